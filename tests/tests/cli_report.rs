//! `gmm report`: one HTML file about a model and rows.

use gmm_tests::{Folder, data};
use regex_lite::Regex;

fn fitted() -> Folder {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o m.json -q", data("old_faithful.csv"))).ok();
    folder
}

/// The cells of the rows of the table with this caption.
fn table(html: &str, caption: &str) -> Vec<Vec<String>> {
    let start = html.find(&format!("<caption>{caption}")).unwrap_or_else(|| panic!("no table '{caption}'"));
    let body = html[start..].split_once("<tbody>").expect("a body").1.split_once("</tbody>").expect("an end").0;
    let cell = Regex::new("<(?:td|th)[^>]*>([^<]*)<").unwrap();
    let rows = body.split("</tr>").filter(|row| row.contains("<th"));
    rows.map(|row| cell.captures_iter(row).map(|found| found[1].to_owned()).collect()).collect()
}

/// Asserts that a page has no script and nothing from outside, and that each element is closed.
#[track_caller]
fn check_page(html: &str) {
    for part in ["<script", "href=", "src=", "@import", "url(h", "NaN"] {
        assert!(!html.contains(part), "{part}");
    }
    assert!(html.starts_with("<!doctype html>\n<html lang=\"en\">") && html.ends_with("</html>\n"));
    let tag = Regex::new(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)([^>]*)>").unwrap();
    let mut open: Vec<String> = Vec::new();
    for found in tag.captures_iter(html) {
        match (&found[1], &found[2]) {
            (_, "meta") => (),
            ("/", name) => assert_eq!(open.pop().as_deref(), Some(name)),
            _ if found[3].ends_with('/') => (),
            (_, name) => open.push(name.to_owned()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let id = Regex::new(" id=\"([^\"]+)\"").unwrap();
    let mut ids: Vec<_> = id.captures_iter(html).map(|found| found[1].to_owned()).collect();
    let n = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), n, "an identifier is there twice");
}

#[test]
fn a_report_has_the_numbers_of_the_other_commands() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    folder.gmm(&format!("outliers m.json {x} --contamination 0.05 --save m.json -o y.csv")).ok();
    folder.gmm(&format!("report m.json {x} -o r.html")).ok();
    let html = folder.text("r.html");
    check_page(&html);
    let model = folder.json("m.json");
    assert!(html.contains(&format!("{:.3}</dd>", model["fit"]["bic"].as_f64().unwrap())), "BIC");
    let score = folder.gmm(&format!("score m.json {x}")).ok().stdout;
    let mean = score.lines().find(|line| line.starts_with("per row")).unwrap().split_whitespace().last().unwrap();
    assert!(html.contains(&format!("<dt>Mean log density</dt><dd>{mean}</dd>")), "{mean}");
    // The rows of each component are those of gmm predict.
    let labels = folder.gmm(&format!("predict m.json {x}")).ok().stdout;
    let groups = table(&html, "Rows by their most likely group");
    for (c, group) in groups.iter().enumerate() {
        let n = labels.lines().skip(1).filter(|label| *label == c.to_string()).count();
        assert_eq!((&group[0], &group[1]), (&c.to_string(), &n.to_string()));
    }
    // The least likely rows are those of gmm score, in order.
    let densities = folder.gmm(&format!("score m.json {x} --per-row")).ok().stdout;
    let densities: Vec<f64> = densities.lines().skip(1).map(|v| v.parse().unwrap()).collect();
    let mut order: Vec<usize> = (0..densities.len()).collect();
    order.sort_by(|&a, &b| densities[a].total_cmp(&densities[b]));
    let unlikely = table(&html, "12 of 272 rows, the least likely first");
    assert_eq!(unlikely.len(), 12);
    for (row, &expected) in unlikely.iter().zip(&order) {
        assert_eq!(row[0], expected.to_string());
        assert!((row[1].parse::<f64>().unwrap() - densities[expected]).abs() < 1e-5);
        assert_eq!(row[2], "yes", "13 rows are below the threshold");
    }
    assert!(html.contains("13 of 272 rows are outliers by the threshold of the model."));
}

#[test]
fn a_model_alone_has_a_report() {
    let folder = fitted();
    let html = folder.gmm("report m.json -o -").ok().stdout;
    check_page(&html);
    assert_eq!(html.matches("<svg").count(), 2, "trace and ellipses");
    assert!(html.contains("converged") && !html.contains("Least likely rows"));
    // The same bytes again, and through a pipe.
    assert_eq!(folder.bash("cat m.json | \"$GMM\" report - -o - | sed 's/a model</m.json</'").ok().stdout, html);
    folder.bash("sed 's/\"fit\"/\"other\"/' m.json > bare.json").ok();
    let bare = folder.gmm("report bare.json -o -").ok().stdout;
    assert!(bare.contains("The model file has no record of a fit."));
    check_page(&bare);
}

#[test]
fn every_kind_of_model_has_a_report() {
    let folder = Folder::new();
    let x = data("old_faithful.csv");
    let kinds = [
        "--covariance tied",
        "--covariance diag",
        "--covariance spherical",
        "--noise",
        "--bayes dp",
        "--columns waiting",
    ];
    for kind in kinds {
        folder.gmm(&format!("fit {x} -k 3 {kind} -o m.json -q --max-iter 3")).ok();
        folder.gmm(&format!("report m.json {x} -o r.html")).ok();
        let html = folder.text("r.html");
        check_page(&html);
        assert_eq!(
            html.contains("The strongest correlations"),
            !["diag", "spherical", "waiting"].iter().any(|k| kind.ends_with(k))
        );
        assert_eq!(html.contains(">noise<"), kind == "--noise", "{kind}");
        let score = folder.gmm(&format!("score m.json {x}")).ok().stdout;
        let mean = score.lines().find(|line| line.starts_with("per row")).unwrap().split_whitespace().last().unwrap();
        assert!(html.contains(&format!("<dt>Mean log density</dt><dd>{mean}</dd>")), "{kind}: {mean}");
    }
    folder.gmm(&format!("fit {x} -k 4 -o m.json -q")).ok();
    folder.gmm(&format!("merge m.json --criterion entropy -k 2 --data {x} -o c.json")).ok();
    let html = folder.gmm(&format!("report c.json {x} -o -")).ok().stdout;
    check_page(&html);
    assert_eq!(table(&html, "Rows by their most likely group").len(), 2, "clusters");
}

#[test]
fn the_report_of_many_rows_and_columns_is_small() {
    let folder = Folder::new();
    folder.gmm("generate -n 100000 -d 30 -k 50 -o x.npy --truth m.json -q").ok();
    folder.gmm("report m.json x.npy -o r.html").ok();
    let html = folder.text("r.html");
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    for part in
        ["the 40 of 50 components", "the 24 of 30 columns", "Of 30 columns these 4 are drawn", "first 12 of 30 columns"]
    {
        assert!(html.contains(part), "{part}");
    }
    check_page(&html);
}

#[test]
fn rows_far_away_and_hostile_names_leave_the_page_whole() {
    let folder = Folder::new();
    folder.write("x.csv", "<script>,\"a\"\"b&\"\n1,2\n2,4\n3,5\n4,9\n9,1\n");
    folder.gmm("fit x.csv -k 1 -o m.json -q").ok();
    folder.write("far.csv", "<script>,\"a\"\"b&\"\n1,2\n1e200,3\n");
    folder.gmm("report m.json far.csv -o r.html").ok();
    let html = folder.text("r.html");
    check_page(&html);
    assert!(html.contains("&lt;script&gt;") && html.contains("<td>-inf</td>"));
}

#[test]
fn what_cannot_be_reported_is_refused_before_any_work() {
    let folder = fitted();
    folder.write("holes.csv", "eruptions,waiting\n1,\n2,50\n");
    let refuses = |arguments: &str, code: i32, parts: &[&str]| {
        folder.refuses(&format!("report {arguments}"), code, parts);
    };
    refuses("m.json -o r.txt", 2, &["r.txt", "unknown file type 'txt'", "html"]);
    refuses("m.json -o absent/r.html", 6, &["absent"]);
    refuses("absent.json -o r.html", 6, &["absent.json"]);
    refuses("m.json holes.csv -o r.html", 3, &["holes.csv", "missing value"]);
    refuses("- - -o r.html", 2, &["standard input"]);
    assert!(!folder.path("r.html").exists());
}

#[test]
fn noise_takes_its_share_and_limits_are_not_compared() {
    let folder = Folder::new();
    let rows = data("iris.csv");
    folder.gmm(&format!("fit {rows} --columns 0..3 -k 2 --noise=0.2 -o n.json -q")).ok();
    folder.gmm("report n.json -o n.html").ok();
    let html = String::from_utf8(folder.read("n.html")).unwrap();
    let shares = table(&html, "Weight (share of the rows)");
    let total: f64 = shares.iter().map(|row| row[1].parse::<f64>().unwrap()).sum();
    let noise = folder.json("n.json")["noise"]["weight"].as_f64().unwrap();
    assert!(noise > 0.0 && (total + noise - 1.0).abs() < 2e-4, "{total} {noise}");
    let rows = data("old_faithful.csv");
    folder.gmm(&format!("fit {rows} -k 2 --censored waiting=..80 -o c.json -q")).ok();
    folder.gmm(&format!("report c.json {rows} -o c.html")).ok();
    let html = String::from_utf8(folder.read("c.html")).unwrap();
    assert!(html.contains("cannot be compared") && !html.contains("Mean of the fit"));
}
