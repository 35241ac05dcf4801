//! Every kind of picture, from ordinary and from awkward input: text stays on the canvas and does not overlap, bytes
//! are reproducible, and a PNG can be rendered. With `GMM_PLOT_LOOK=FOLDER` the pictures are saved there for
//! inspection.

mod records;
mod trees;

use std::path::Path;

use gmm_model::structure::{PairDistance, Tree, agglomerate};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, SyntheticOptions, reference, sample, synthetic};
use gmm_plot::{
    Candidate, Dendrogram, Entropy, Error, Fit, Map, Only, Picture, Record, Sweep, Trace, bars, bench, dendrogram,
    drawn, fit, plan, points_of, select, trace,
};
use ndarray::{Array2, array};
use regex_lite::Regex;
use ttf_parser::Face;

/// The box of a text, in the picture's pixels.
#[derive(Clone, Copy, Debug)]
struct Rect {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// All texts of a picture with their boxes, read from its SVG and laid out by the advances of the font's own tables.
fn texts(picture: &Picture) -> Vec<(String, Rect)> {
    let font = Face::parse(include_bytes!("../../font/DejaVuSans-subset.ttf"), 0).expect("a font");
    let em = f64::from(font.units_per_em());
    let (ascent, descent) = (f64::from(font.ascender()) / em, f64::from(font.descender()) / em);
    let element = Regex::new(r#"<text x="([^"]+)" y="([^"]+)" font-size="([^"]+)"([^>]*)>([^<]*)</text>"#).unwrap();
    let found: Vec<_> = element.captures_iter(picture.svg()).collect();
    // No text is written in another form.
    assert_eq!(found.len(), picture.svg().matches("<text").count());
    let laid_out = found.into_iter().map(|found| {
        let [x, y, size] = [1, 2, 3].map(|i| found[i].parse::<f64>().expect("a number"));
        let text = found[5].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let advance = |c: char| font.glyph_index(c).and_then(|glyph| font.glyph_hor_advance(glyph)).map(f64::from);
        let width = text.chars().map(|c| advance(c).unwrap_or(em) / em).sum::<f64>() * size;
        let before = match &found[4] {
            look if look.contains("text-anchor=\"middle\"") => 0.5 * width,
            look if look.contains("text-anchor=\"end\"") => width,
            _ => 0.0,
        };
        // Along the line and across it, from where the text is anchored.
        let (start, end, up, down) = (-before, width - before, ascent * size, -descent * size);
        let at = if found[4].contains("rotate(-90 ") {
            Rect { left: x - up, top: y - end, right: x + down, bottom: y - start }
        } else {
            Rect { left: x + start, top: y - up, right: x + end, bottom: y + down }
        };
        (text, at)
    });
    laid_out.collect()
}

/// Asserts what must hold for every picture, and saves it if `GMM_PLOT_LOOK` is set.
#[track_caller]
fn check(name: &str, picture: &Picture) {
    let (width, height) = picture.size();
    let texts = texts(picture);
    assert!(!texts.is_empty(), "{name}: no text");
    for (i, (text, at)) in texts.iter().enumerate() {
        let inside = at.left >= 0.0 && at.top >= 0.0 && at.right <= width && at.bottom <= height;
        assert!(inside, "{name}: '{text}' leaves the picture of {width} × {height}: {at:?}");
        for (other, there) in &texts[..i] {
            // Boxes hold the font's whole height, of which letters take two thirds.
            let across = at.right.min(there.right) - at.left.max(there.left);
            let down = at.bottom.min(there.bottom) - at.top.max(there.top);
            let short = |r: &Rect| (r.bottom - r.top).min(r.right - r.left);
            let apart = across <= 0.5 || down <= 0.34 * short(at).min(short(there));
            assert!(apart, "{name}: '{text}' and '{other}' overlap: {at:?}, {there:?}");
        }
    }
    let png = picture.png(1.0).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n") && png == picture.png(1.0).unwrap(), "{name}");
    assert!(!picture.svg().contains("NaN") && !picture.svg().contains("inf"), "{name}: a position that is not finite");
    if let Some(folder) = std::env::var_os("GMM_PLOT_LOOK") {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.svg")), picture.svg()).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), picture.png(1.5).unwrap()).unwrap();
    }
}

fn fitted(mixture: &Mixture, data: &Dataset, columns: &[usize], names: &[&str]) -> Result<Picture, Error> {
    let names: Vec<String> = match names {
        [] => (0..mixture.n_features()).map(|j| format!("column {j}")).collect(),
        names => names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let drawn = drawn(data.n_rows(), points_of(columns.len()), 0);
    let responsibilities = reference::responsibilities(mixture, data.rows().select_rows(&drawn).to_f64().view());
    let note = format!("rows.csv, {} rows; ellipses: 1 and 2 standard deviations", data.n_rows());
    fit(&Fit {
        mixture,
        data: Some(data),
        drawn: &drawn,
        responsibilities: responsibilities.view(),
        columns,
        names: &names,
        note,
        noise: None,
    })
}

/// A mixture and rows sampled from it.
#[track_caller]
fn made(k: usize, d: usize, n: usize, kind: CovarianceType) -> (Mixture, Dataset) {
    let mixture =
        synthetic(k, d, kind, 3, &SyntheticOptions { separation: 2.5, ..SyntheticOptions::default() }).unwrap();
    let rows = sample(&mixture, n, 5).unwrap().0;
    (mixture, Dataset::new(rows).unwrap())
}

#[test]
fn a_pair_of_columns_is_a_panel() {
    let (mixture, data) = made(2, 2, 300, CovarianceType::Full);
    let picture = fitted(&mixture, &data, &[0, 1], &["length (mm)", "mass (kg)"]).unwrap();
    check("pair", &picture);
    assert_eq!(picture, fitted(&mixture, &data, &[0, 1], &["length (mm)", "mass (kg)"]).unwrap());
    // Two ellipses for each of two components, each drawn twice because of its rim.
    assert_eq!(picture.svg().matches("<ellipse").count(), 8);
}

#[test]
fn a_mixture_is_drawn_without_rows() {
    let (mixture, data) = made(2, 3, 300, CovarianceType::Full);
    let names = ["a", "b", "c"].map(str::to_owned);
    let responsibilities = Array2::zeros((0, 2));
    for columns in [&[1][..], &[0, 2], &[0, 1, 2]] {
        let alone = Fit {
            mixture: &mixture,
            noise: None,
            data: None,
            drawn: &[],
            responsibilities: responsibilities.view(),
            columns,
            names: &names,
            note: "the model alone".to_owned(),
        };
        let picture = fit(&alone).unwrap();
        check(&format!("alone-{}", columns.len()), &picture);
        let beside = fitted(&mixture, &data, columns, &["a", "b", "c"]).unwrap();
        assert_eq!(picture.svg().matches("<ellipse").count(), beside.svg().matches("<ellipse").count());
        // The only rectangles are the background, frames and clips: no bars.
        assert!(picture.svg().matches("<rect").count() <= beside.svg().matches("<rect").count());
        assert!(!picture.svg().contains("#dddddd"), "bars without rows");
        assert!(fit(&Fit { drawn: &[0], ..alone }).is_err(), "a row that is not there");
    }
}

#[test]
fn figures_of_one_page_do_not_share_identifiers() {
    let (mixture, data) = made(2, 3, 50, CovarianceType::Full);
    let picture = fitted(&mixture, &data, &[0, 1, 2], &["id=\"c0\"", "url(#c0)", "c"]).unwrap();
    let (a, b) = (picture.inline("a", "x \"y\" <z>"), picture.inline("b", ""));
    let id = Regex::new("<clipPath id=\"([^\"]+)\"").unwrap();
    let ids = |svg: &str| id.captures_iter(svg).map(|found| found[1].to_owned()).collect::<Vec<_>>();
    assert!(ids(&a).len() > 3 && ids(&a).iter().all(|id| !ids(&b).contains(id)));
    assert!(ids(&a).iter().all(|id| a.contains(&format!("clip-path=\"url(#{id})\""))));
    assert_eq!(
        a.matches("url(#c").count(),
        picture.svg().matches(">url(#c0)<").count(),
        "only the column's name is left"
    );
    assert!(a.starts_with("<svg role=\"img\" aria-label=\"x &quot;y&quot; &lt;z&gt;\""));
}

#[test]
fn twenty_components_can_be_told_apart() {
    let (mixture, data) = made(20, 2, 20_000, CovarianceType::Full);
    check("pair-20", &fitted(&mixture, &data, &[0, 1], &[]).unwrap());
    check("density-20", &fitted(&mixture, &data, &[1], &[]).unwrap());
}

#[test]
fn hundreds_of_components_make_a_file_that_can_be_opened() {
    let (mixture, data) = made(400, 3, 3000, CovarianceType::Diag);
    let picture = fitted(&mixture, &data, &[0, 1, 2], &[]).unwrap();
    check("grid-of-400", &picture);
    assert!(picture.svg().len() < 2_000_000, "{} bytes", picture.svg().len());
}

#[test]
fn several_columns_are_a_grid_of_pairs() {
    let (mixture, data) = made(3, 3, 1000, CovarianceType::Full);
    check("grid-3", &fitted(&mixture, &data, &[0, 1, 2], &[]).unwrap());
    let (mixture, data) = made(5, 8, 4000, CovarianceType::Diag);
    let long = [
        "a",
        "total_household_income_before_taxes_in_thousands",
        "x<y & z",
        "größe",
        "d",
        "e",
        "f",
        "a very long name with blanks",
    ];
    check("grid-6", &fitted(&mixture, &data, &[0, 1, 2, 3, 5, 7], &long).unwrap());
    check("grid-8", &fitted(&mixture, &data, &[0, 1, 2, 3, 4, 5, 6, 7], &long).unwrap());
    let (mixture, data) = made(20, 4, 4000, CovarianceType::Spherical);
    check("grid-4-of-20", &fitted(&mixture, &data, &[3, 2, 1, 0], &[]).unwrap());
}

#[test]
fn one_column_is_a_density() {
    let (mixture, data) = made(3, 1, 5000, CovarianceType::Full);
    check("density", &fitted(&mixture, &data, &[0], &["waiting, minutes"]).unwrap());
}

#[test]
fn awkward_values_have_axes_too() {
    let narrow = |mean: [f64; 2], deviations: [f64; 2]| {
        let covariance = array![[deviations[0].powi(2), deviations[1].powi(2)]];
        Mixture::new(array![1.0], array![mean], Covariances::Diag(covariance)).unwrap()
    };
    for (name, mean, deviations) in [
        ("huge", [-3e17, 2e-12], [1e16, 1e-13]),
        ("far", [1e9, -1e9], [1.0, 0.01]),
        ("constant", [7.0, 0.0], [1e-3, 1.0]),
        ("all-constant", [0.0, -5e6], [1e-3, 1e-3]),
        ("beyond-squares", [1e140, -1e-140], [1e139, 1e-141]),
    ] {
        let mixture = narrow(mean, deviations);
        let constant = name.contains("constant");
        let value = |i: usize, j: usize| {
            let fixed = constant && (j == 0 || name.starts_with("all"));
            mean[j] + if fixed { 0.0 } else { deviations[j] * (((i * 37 + j * 11) % 50) as f64 / 12.5 - 2.0) }
        };
        let data = Dataset::new(Array2::from_shape_fn((200, 2), |(i, j)| value(i, j))).unwrap();
        check(name, &fitted(&mixture, &data, &[0, 1], &[]).unwrap());
        check(&format!("{name}-one"), &fitted(&mixture, &data, &[0], &[]).unwrap());
    }
}

#[test]
fn an_outlier_and_empty_components_leave_a_picture() {
    let (mixture, _) = made(2, 2, 10, CovarianceType::Full);
    let mut rows = sample(&mixture, 100, 1).unwrap().0;
    rows[[3, 0]] = 1e250;
    check("outlier", &fitted(&mixture, &Dataset::new(rows.clone()).unwrap(), &[0, 1], &[]).unwrap());
    let weights: Vec<f64> = (0..100).map(|i| if i == 3 { 0.0 } else { 1.5 }).collect();
    let weighted = Dataset::new(rows.clone()).unwrap().with_weights(weights).unwrap();
    let picture = fitted(&mixture, &weighted, &[0, 1], &[]).unwrap();
    check("outlier-of-weight-0", &picture);
    assert!(!picture.svg().contains("10²"), "the axis reaches as far as rows that count");
    let one = Dataset::new(rows.slice(ndarray::s![..2, ..]).to_owned()).unwrap();
    check("two-rows", &fitted(&mixture, &one, &[0, 1], &[]).unwrap());
}

#[test]
fn columns_that_cannot_be_drawn_are_refused() {
    let (mixture, data) = made(2, 3, 50, CovarianceType::Full);
    let refused = |columns: &[usize], part: &str| {
        let error = fitted(&mixture, &data, columns, &[]).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(&[], "0 columns");
    refused(&[0, 3], "no such column");
    refused(&[1, 1], "twice");
    refused(&[0; 9], "from 1 to 8");
}

#[test]
fn the_rows_drawn_are_the_same_for_the_same_seed() {
    let rows = drawn(10_000_000, 3000, 4);
    assert_eq!((rows.len(), drawn(5, 9, 0)), (3000, vec![0, 1, 2, 3, 4]));
    assert!(
        rows.windows(2).all(|two| two[0] < two[1])
            && rows == drawn(10_000_000, 3000, 4)
            && rows != drawn(10_000_000, 3000, 5)
    );
    // The rows are spread evenly: for a fair draw these bounds fail with a probability of about 10⁻⁸.
    let half = rows.iter().filter(|row| **row < 5_000_000).count();
    assert!((1340..1660).contains(&half), "{half}");
}

#[test]
fn traces_of_every_length_are_drawn() {
    let of = |name: &str, values: &[f64]| {
        let title = "EM: 2 components, full covariances, 2 columns, 272 rows".to_owned();
        let note = "converged after 8 iterations on cpu, f64".to_owned();
        check(name, &trace(&Trace { values, tol: 1e-3, title, note }).unwrap());
    };
    let rising: Vec<f64> = (0..14).map(|i| -4.1 - 0.4 * f64::from(-i).exp()).collect();
    of("trace", &rising);
    of("trace-1", &[-4.0]);
    of("trace-2", &[-4.2, -4.1]);
    of("trace-falls", &[-9.0, -5.0, -4.0, -4.01, -3.99, -3.99, f64::NAN, -3.9, -3.8999]);
    of("trace-offset", &(0..40).map(|i| -1_234_567_890_123.0 - 1e-3 / f64::from(i + 1)).collect::<Vec<_>>());
    of("trace-constant", &[2.5, 2.5, 2.5]);
    of("trace-long", &(0..1000).map(|i| 1e9 - 1e6 / f64::from(i + 1)).collect::<Vec<_>>());
    let none = trace(&Trace { values: &[f64::NAN], tol: 0.0, title: String::new(), note: String::new() });
    assert!(matches!(none, Err(Error::Nothing(_))), "{none:?}");
}

#[test]
fn selections_mark_the_lowest() {
    let candidate = |kind: &str, k: usize, value: f64| Candidate { kind: kind.to_owned(), k, value, converged: k != 5 };
    let kinds = ["full", "tied", "diag", "spherical"];
    let value = |i: usize, k: usize| 2300.0 + 40.0 * i as f64 + 900.0 / k as f64 + 14.0 * (k as f64) * (4.0 - i as f64);
    let all: Vec<Candidate> =
        kinds.iter().enumerate().flat_map(|(i, kind)| (1..=8).map(move |k| candidate(kind, k, value(i, k)))).collect();
    check("select", &select(&all, "BIC", "BIC against the number of components", "32 fits to 272 rows").unwrap());
    let mut powers: Vec<Candidate> = (0..8).map(|i| candidate("diag", 1 << i, 1e8 - 1e3 * f64::from(i))).collect();
    powers.push(candidate("full", 3, f64::NAN));
    let picture = select(&powers, "AIC", "AIC against the number of components", "9 fits").unwrap();
    check("select-powers", &picture);
    assert!(picture.svg().contains("128 components, diag (ringed)") && picture.svg().contains("1 without a fit"));
    check("select-one", &select(&[candidate("full", 3, -5.0)], "ICL", "ICL", "").unwrap());
    // Lines that end at the same point have names that do not overlap.
    let same: Vec<Candidate> = kinds.iter().flat_map(|kind| [1, 2].map(|k| candidate(kind, k, 7.0))).collect();
    check("select-same", &select(&same, "BIC", "BIC", "").unwrap());
    assert!(matches!(select(&[candidate("full", 3, f64::INFINITY)], "BIC", "", ""), Err(Error::Nothing(_))));
}

#[test]
fn scales_out_of_range_are_refused_and_pixels_follow_them() {
    let picture =
        select(&[Candidate { kind: "full".to_owned(), k: 3, value: 1.0, converged: true }], "BIC", "t", "").unwrap();
    assert!(
        matches!(picture.png(0.0), Err(Error::Size { .. }))
            && picture.png(f64::NAN).is_err()
            && picture.png(100.0).is_err()
    );
    let png = picture.png(2.0).unwrap();
    let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    let (width, height) = picture.size();
    assert_eq!((side(16), side(20)), (2 * width as u32, 2 * height as u32));
}
