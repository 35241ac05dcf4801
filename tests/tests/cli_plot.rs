//! `gmm plot`, and `--plot` of `gmm fit` and `gmm select`.

use gmm_tests::{Folder, data, root};

/// A folder with Old Faithful's rows in `x.csv` and a model of its two components in `m.json`.
fn fitted() -> Folder {
    let folder = Folder::new();
    std::fs::copy(data("old_faithful.csv"), folder.path("x.csv")).expect("a copy");
    folder.gmm("fit x.csv -k 2 --device cpu -o m.json").ok();
    folder
}

/// Width and height from a PNG's header.
fn size(png: &[u8]) -> (u32, u32) {
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    (side(16), side(20))
}

#[test]
fn a_fit_is_drawn_as_svg_and_png() {
    let folder = fitted();
    assert_eq!(folder.gmm("plot fit m.json x.csv -o fit.svg").ok().stdout, "");
    let svg = folder.text("fit.svg");
    assert!(svg.starts_with("<svg") && svg.contains(">eruptions<") && svg.contains(">waiting<"), "{svg}");
    assert!(svg.contains("x.csv, 272 rows"), "{svg}");
    // A marker for every row; two ellipses for each of two components, each drawn twice because of its rim.
    let rows = svg.matches("<circle").count() + svg.matches("<path d=\"M").count();
    assert!(rows >= 272 && svg.matches("<ellipse").count() == 8, "{rows}");
    folder.gmm("plot fit m.json x.csv -o fit.png --scale 0.5").ok();
    folder.gmm("plot fit m.json x.csv -o large.PNG").ok();
    let (small, large) = (size(&folder.read("fit.png")), size(&folder.read("large.PNG")));
    assert_eq!(large, (4 * small.0, 4 * small.1));
    // The same bytes each time, and on standard output.
    assert_eq!(folder.gmm("plot fit m.json x.csv -o -").ok().stdout, svg);
    // One column gives a density plot; columns are selected by name or index.
    let one = folder.gmm("plot fit m.json x.csv --axes waiting -o -").ok().stdout;
    assert!(one.contains(">density<") && !one.contains(">eruptions<"));
    assert_eq!(folder.gmm("plot fit m.json x.csv --axes 1 -o -").ok().stdout, one);
    let units = folder.gmm("plot fit m.json x.csv --units waiting=min -o -").ok().stdout;
    assert!(units.contains(">waiting (min)<") && units.contains(">eruptions<"));
    folder.refuses("plot fit m.json x.csv --units height=m -o a.svg", 2, &["--units", "no column 'height'"]);
    let turned = folder.gmm("plot fit m.json x.csv --axes waiting,eruptions -o -").ok().stdout;
    assert_ne!(turned, svg);
}

#[test]
fn many_rows_are_drawn_in_part_and_many_columns_too() {
    let folder = Folder::new();
    folder.gmm("generate -n 2e5 -k 3 -d 8 --seed 2 -o x.npy --truth m.json").ok();
    let run = folder.gmm("plot fit m.json x.npy --points 200 --seed 3 -o grid.svg").ok();
    assert!(
        run.stderr.contains("the first 6 of 8 columns are drawn") && run.stderr.contains("--axes"),
        "{}",
        run.stderr
    );
    let svg = folder.text("grid.svg");
    assert!(svg.contains("200000 rows, 200 of them drawn (seed 3)"), "no note");
    assert!(svg.contains(">x5<") && !svg.contains(">x6<"));
    assert!(svg.len() < 1_000_000, "{} bytes", svg.len());
    assert_ne!(folder.gmm("plot fit m.json x.npy --points 200 --seed 4 -o -").ok().stdout, svg);
    folder.gmm("-q plot fit m.json x.npy --axes 7,6 -o pair.png").ok();
    folder.gmm("generate -n 300 -k 2 -d 1 -o one.npy --truth one.json").ok();
    assert!(folder.gmm("plot fit one.json one.npy -o -").ok().stdout.contains(">density<"));
    folder.refuses("plot fit m.json x.npy --points 0 -o a.svg", 2, &["--points"]);
    folder.refuses("plot fit m.json x.npy --points 1e6 -o a.svg", 2, &["--points", "50000"]);
    folder.refuses("plot fit m.json x.npy --axes 8,1 -o a.svg", 3, &["--axes", "no column '8'", "x0, x1"]);
    folder.refuses("plot fit m.json x.npy --axes 1,1 -o a.svg", 3, &["twice"]);
}

#[test]
fn pictures_that_cannot_be_written_or_drawn_are_refused() {
    let folder = fitted();
    for (output, code, part) in [
        ("fit.jpg", 2, "svg or png"),
        ("fit", 2, "svg or png"),
        ("none/fit.svg", 6, "no folder 'none'"),
        (".", 6, "directory"),
    ] {
        folder.refuses(&format!("plot fit m.json x.csv -o {output}"), code, &[part]);
        folder.refuses(&format!("plot plan -o {output}"), code, &[part]);
        folder.refuses(&format!("fit x.csv -k 2 --plot {output}"), code, &[part]);
        folder.refuses(&format!("select x.csv -k 1..2 --plot {output}"), code, &[part]);
    }
    folder.refuses("fit x.csv -k 2 --plot -", 2, &["--plot cannot write to standard output"]);
    folder.refuses("plot fit m.json x.csv --axes height -o a.svg", 3, &["no column 'height'", "eruptions, waiting"]);
    folder.refuses("plot fit m.json x.csv --scale 0 -o a.png", 2, &["--scale", "0.25 to 8"]);
    folder.refuses("plot fit m.json x.csv --scale NaN -o a.png", 2, &["--scale"]);
    folder.write("nan.csv", "eruptions,waiting\n1,2\nNaN,3\n");
    folder.refuses("plot fit m.json nan.csv -o a.svg", 3, &["nan.csv", "eruptions"]);
    folder.write("other.csv", "a,b\n1,2\n3,4\n");
    folder.refuses("plot fit m.json other.csv -o a.svg", 3, &["other.csv", "a"]);
    folder.refuses("plot fit none.json x.csv -o a.svg", 6, &["none.json"]);
    // An input is never overwritten, even if it has a picture's extension.
    folder.write("x.svg", "no picture");
    folder.refuses("plot trace x.svg -o x.svg", 2, &["would be overwritten"]);
    let usage = folder.gmm("plot fit m.json x.csv");
    assert!(usage.code == Some(2) && usage.stderr.contains("--output"), "{}", usage.stderr);
}

#[test]
fn a_trace_is_drawn_of_a_model_that_has_one() {
    let folder = fitted();
    let svg = folder.gmm("plot trace m.json -o -").ok().stdout;
    assert!(
        svg.contains("log-likelihood, nats per row") && svg.contains("tol 1e-3") && svg.contains("272 rows"),
        "{svg}"
    );
    assert_eq!(folder.bash("cat m.json | $GMM plot trace - -o -").ok().stdout, svg);
    folder.gmm("generate -n 10 -k 2 -d 2 -o y.csv --truth truth.json").ok();
    folder.refuses("plot trace truth.json -o a.svg", 3, &["truth.json", "no record of a fit"]);
}

#[test]
fn a_selection_is_drawn_from_its_json_and_by_its_own_option() {
    let folder = fitted();
    let json = folder.gmm("select x.csv -k 1..4 --covariance full,diag --device cpu --json --plot own.svg").ok().stdout;
    folder.write("s.json", json);
    let svg = folder.gmm("plot select s.json -o -").ok().stdout;
    assert!(svg.contains("lowest BIC: 2 components, full (ringed)") && svg.contains(">diag<"), "{svg}");
    assert_eq!(folder.text("own.svg"), svg);
    assert!(folder.gmm("plot select s.json --criterion aic -o -").ok().stdout.contains("lowest AIC"));
    for (text, part) in [
        ("{}", "no 'criterion'"),
        ("not json", "s.json"),
        (r#"{"criterion": "bic"}"#, "no list 'candidates'"),
        (r#"{"criterion": "mdl", "candidates": []}"#, "mdl"),
        (r#"{"criterion": "bic", "candidates": [{"bic": 1}]}"#, "candidate 0"),
        (r#"{"criterion": "bic", "candidates": []}"#, "nothing to draw"),
    ] {
        folder.write("s.json", text);
        folder.refuses("plot select s.json -o a.svg", 3, &[part]);
    }
}

#[test]
fn records_are_drawn_and_what_is_none_is_refused() {
    let folder = Folder::new();
    let record = |name: &str| root().join("benches/record").join(name).display().to_string();
    let growth = record("nvidia-h200/growth-2026-11-22.csv");
    let all = folder.gmm(&format!("plot bench {growth} -o -")).ok().stdout;
    let one = folder.gmm(&format!("plot bench {growth} --sweep k -o -")).ok().stdout;
    assert!(all.contains("rows, N") && !one.contains("rows, N") && one.contains(">components, K<"));
    let cpu = folder.gmm(&format!("plot bench {} -o -", record("amd-epyc-2c/2026-11-21-cpu-5.csv"))).ok().stdout;
    assert!(cpu.contains("scikit-learn 1.9.1") && cpu.contains("AMD EPYC"));
    folder.refuses(&format!("plot bench {growth} --sweep x -o a.svg"), 2, &["n, k or d"]);
    folder.write("r.csv", "# what: nothing\nworkload,ms\nW1,\n");
    folder.refuses("plot bench r.csv -o a.svg", 3, &["r.csv", "no times"]);
    folder.write("r.csv", b"\xff\xfe\x00".as_slice());
    folder.refuses("plot bench r.csv -o a.svg", 3, &["UTF-8"]);
    folder.refuses("plot bench none.csv -o a.svg", 6, &["none.csv"]);
}

/// The command that draws `docs/speed.svg`, without its output.
fn speed() -> String {
    let record = |name: &str| root().join("benches/record").join(name).display().to_string();
    let (cpu, gpu) = (record("amd-epyc-2c/2026-11-21-cpu-5.csv"), record("nvidia-h200/2026-11-23-python-peers.csv"));
    let only = "--only covariance=full --only 1:precision=f64 --only 2:precision=f32 --only way=torch,jax";
    format!("plot bench {cpu} {gpu} --bars {only}")
}

#[test]
fn bars_show_the_ratios_of_their_records() {
    let folder = Folder::new();
    let svg = folder.gmm(&format!("{} -o -", speed())).ok().stdout;
    let shown = |svg: &str| -> Vec<f64> {
        svg.split("×</text>").filter_map(|before| before.rsplit('>').next()?.parse().ok()).collect()
    };
    let text = |name: &str| std::fs::read_to_string(root().join("benches/record").join(name)).expect("a record");
    let mut expected: Vec<f64> = Vec::new();
    for line in text("amd-epyc-2c/2026-11-21-cpu-5.csv").lines().filter(|line| line.starts_with("f64,full,")) {
        expected.extend([1.0, line.split(',').nth(12).and_then(|ratio| ratio.parse().ok()).expect("a ratio")]);
    }
    let mut ours = f64::NAN;
    for line in text("nvidia-h200/2026-11-23-python-peers.csv").lines().filter(|line| line.contains(",f32,full,")) {
        let fields: Vec<&str> = line.split(',').collect();
        let ms: f64 = fields[9].parse().expect("a time");
        match (fields[0], fields[1]) {
            ("gmm_rs", "torch") => (ours, _) = (ms, expected.push(1.0)),
            ("gmm_rs", _) | (_, "numpy") => {}
            _ => expected.push(ms / ours),
        }
    }
    let shown = shown(&svg);
    assert_eq!((shown.len(), expected.len()), (14, 14), "{shown:?}, {expected:?}");
    for (shown, expected) in shown.iter().zip(&expected) {
        let rounding = if *expected < 9.95 { 0.05 } else { 0.5 };
        assert!((shown - expected).abs() <= rounding + 1e-9, "{shown} for {expected}");
    }
    // The picture of the README is what this command draws.
    assert_eq!(std::fs::read_to_string(root().join("docs/speed.svg")).expect("a picture"), svg);
}

#[test]
fn bars_that_cannot_be_drawn_are_refused() {
    let folder = Folder::new();
    let speed = speed();
    let without = speed.split(" --bars").next().expect("a command");
    folder.refuses(&format!("{without} -o a.svg"), 2, &["several records", "--bars"]);
    for (command, part) in [
        (format!("{without} --only way=torch -o a.svg"), "--bars"),
        (format!("{without} --bars --sweep k -o a.svg"), "--sweep"),
        ("plot bench --bars -o a.svg".to_owned(), "RECORD"),
    ] {
        let usage = folder.gmm(&command);
        assert!(usage.code == Some(2) && usage.stderr.contains(part), "{}", usage.stderr);
    }
    folder.refuses(&format!("{speed} --only precision -o a.svg"), 2, &["--only", "COLUMN=VALUE"]);
    folder.refuses(&format!("{speed} --only kind=full -o a.svg"), 3, &["no column 'kind'", "covariance, n, k, d"]);
    folder.refuses(&format!("{speed} --only n=7 -o a.svg"), 3, &["record 1", "no workload is left"]);
    folder.write("r.csv", "workload,ms\nW1,2\n");
    folder.refuses("plot bench r.csv --bars -o a.svg", 3, &["r.csv", "'peer_ms'"]);
}

#[test]
fn the_planner_is_mapped_without_a_gpu() {
    let folder = Folder::new();
    let svg = folder.gmm("plot plan -k 1..8 -d 1,2,4,800 --covariance full --precision f64 -o -").ok().stdout;
    assert!(svg.contains("as on an NVIDIA H200") && svg.contains("full covariances, f64, 1000000 rows"), "{svg}");
    // The map shows the same path as `gmm doctor` for that size.
    let plan = folder.gmm("doctor --plan -k 8 -d 800 --covariance full").ok().stdout;
    assert!(plan.contains("* host") && svg.contains(">host: "), "{plan}");
    let mut forced = folder.command("plot plan -k 2 -d 2 -o -");
    let output = forced.env("GMM_PLAN", "loop=host").output().expect("the program starts");
    assert!(String::from_utf8_lossy(&output.stdout).contains("GMM_PLAN=loop=host"));
    folder.refuses("plot plan -k 0..3 -o a.svg", 2, &["-k"]);
    folder.refuses("plot plan -d 1..100 -o a.svg", 2, &["-d", "64"]);
}

#[test]
fn fit_draws_what_it_found() {
    let folder = fitted();
    folder.gmm("fit x.csv -k 2 --device cpu --plot fit.svg -o again.json").ok();
    folder.gmm("plot fit m.json x.csv -o same.svg").ok();
    assert_eq!(folder.text("fit.svg"), folder.text("same.svg"));
    assert_eq!(folder.files(), ["again.json", "fit.svg", "m.json", "same.svg", "x.csv"]);
}
