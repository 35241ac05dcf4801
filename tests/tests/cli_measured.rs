//! `--noise-columns`, `--noise-covariances` and `--projections`: rows with measurement errors.

use gmm_tests::{Folder, close, f8, npy, numbers};

const N: usize = 1500;

/// Normal numbers of a linear congruential generator (Knuth's MMIX), by Box and Muller.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    }
}

/// One row: the true values, the noisy ones, and the deviations of the errors.
type Row = [[f64; 2]; 3];

/// Two components of deviation 0.5 around (0, 0) and (4, 2), with errors of deviations up to 3.
fn rows() -> Vec<Row> {
    let random = &mut Random(7);
    let one = |i: usize| {
        let centre = if i.is_multiple_of(3) { [0.0, 0.0] } else { [4.0, 2.0] };
        let truth = centre.map(|c| c + 0.5 * random.normal());
        let deviations = [0, 1].map(|_| 3.0 * random.uniform() * random.uniform());
        let noisy = [0, 1].map(|j| truth[j] + deviations[j] * random.normal());
        [truth, noisy, deviations]
    };
    (0..N).map(one).collect()
}

/// A folder with `stars.csv`: the columns `id`, `x`, `ey`, `y`, `ex`, of which `x` and `y` are noisy with deviations `ex`, `ey`.
fn stars() -> Folder {
    let folder = Folder::new();
    let line = |(i, [_, v, e]): (usize, &Row)| format!("{i},{},{},{},{}\n", v[0], e[1], v[1], e[0]);
    let lines: String = rows().iter().enumerate().map(line).collect();
    folder.write("stars.csv", format!("id,x,ey,y,ex\n{lines}"));
    folder
}

const NOISE: &str = "--noise-columns ex,ey";

fn table(text: &str) -> Vec<Vec<f64>> {
    text.lines().skip(1).map(|l| l.split(',').map(|v| v.parse().unwrap()).collect()).collect()
}

#[test]
fn a_fit_finds_the_components_of_the_true_rows_and_scores_the_noisy_ones() {
    let folder = stars();
    let fit = format!("fit stars.csv -k 2 --columns x,y {NOISE} --n-init 3 --tol 1e-6 --max-iter 1000");
    let summary = folder.gmm(&format!("{fit} -o m.json --json")).ok().json();
    assert!(summary["rules"][0].as_str().unwrap().contains("measurement errors of each row"), "{summary}");
    let model = folder.json("m.json");
    let mut means = numbers(&model["means"]);
    let mut all = numbers(&model["covariances"]);
    if means[0] > means[2] {
        means.rotate_left(2);
        all.rotate_left(4);
    }
    // Within five standard errors or so: 0.5 and the errors over the root of 500 rows.
    close(&means, &[0.0, 0.0, 4.0, 2.0], 0.2);
    close(&[all[0], all[3], all[4], all[7]], &[0.25; 4], 0.15);
    // Without the errors the components are those of the noisy rows.
    folder.gmm("fit stars.csv -k 2 --columns x,y -o noisy.json -q").ok();
    assert!(numbers(&folder.json("noisy.json")["covariances"])[0] > 0.6);
    let score = folder.gmm(&format!("score m.json stars.csv {NOISE} --json")).ok().json();
    assert_eq!(score["log_likelihood"], summary["log_likelihood"]);
    let per_row = table(&folder.gmm(&format!("score m.json stars.csv {NOISE} --per-row")).ok().stdout);
    let sum: f64 = per_row.iter().map(|row| row[0]).sum();
    close(&[sum], &[summary["log_likelihood"].as_f64().unwrap()], 1e-9);
    let shares = table(&folder.gmm(&format!("predict m.json stars.csv {NOISE} --proba")).ok().stdout);
    assert!(shares.len() == N && shares.iter().all(|r| (r.iter().sum::<f64>() - 1.0).abs() < 1e-12));
    let best = folder.gmm(&format!("select stars.csv -k 1..3 --columns x,y {NOISE} --json")).ok().json();
    assert_eq!(best["best"]["k"].as_u64().or(best["best"]["n_components"].as_u64()), Some(2), "{best}");
}

#[test]
fn covariances_in_a_file_are_the_columns_of_deviations() {
    let folder = stars();
    let all: Vec<f64> = rows().iter().flat_map(|[.., e]| [e[0] * e[0], 0.0, 0.0, e[1] * e[1]]).collect();
    folder.write("errors.npy", npy("<f8", false, &format!("({N}, 2, 2)"), &f8(&all)));
    let of = |noise: &str| {
        let text = format!("fit stars.csv -k 2 --columns x,y {noise} --max-iter 5 -q --json");
        folder.gmm(&text).ok().json()["log_likelihood"].as_f64().unwrap()
    };
    close(&[of("--noise-covariances errors.npy")], &[of(NOISE)], 1e-8);
}

#[test]
fn projections_say_what_of_the_true_rows_was_measured() {
    let folder = Folder::new();
    let (mut lines, mut views) = ("w,e\n".to_owned(), Vec::new());
    let random = &mut Random(3);
    for i in 0..N {
        let view = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]][i % 3];
        let (v, e) = ([1.0 + random.normal(), 2.0 + random.normal()], 0.5 * random.uniform());
        lines += &format!("{},{e}\n", view[0] * v[0] + view[1] * v[1] + e * random.normal());
        views.extend(view);
    }
    folder.write("views.csv", lines);
    folder.write("r.npy", npy("<f8", false, &format!("({N}, 1, 2)"), &f8(&views)));
    let options = "--noise-columns e --projections r.npy";
    folder.gmm(&format!("fit views.csv -k 1 {options} --tol 1e-8 --max-iter 2000 -o m.json -q")).ok();
    let model = folder.json("m.json");
    close(&numbers(&model["means"]), &[1.0, 2.0], 0.2);
    close(&numbers(&model["covariances"]), &[1.0, 0.0, 0.0, 1.0], 0.3);
    assert_eq!(folder.gmm(&format!("predict m.json views.csv {options}")).ok().stdout.lines().count(), N + 1);
    folder.write("two.npy", npy("<f8", false, &format!("({N}, 2)"), &f8(&views)));
    folder
        .gmm("fit views.csv -k 1 --noise-columns e --projections two.npy")
        .failed(3, &["two.npy has shape [1500, 2]", "three dimensions"]);
}

#[test]
fn true_rows_are_nearer_to_the_truth_than_the_noisy_ones_and_their_deviations_are_right() {
    let folder = stars();
    folder.gmm(&format!("fit stars.csv -k 2 --columns x,y {NOISE} --n-init 3 -o m.json -q")).ok();
    let out = folder.gmm(&format!("impute m.json stars.csv {NOISE} --deviations")).ok().stdout;
    assert!(out.starts_with("x,y,x_sd,y_sd\n"), "{out}");
    let (mut before, mut after, mut inside) = (0.0, 0.0, 0);
    for ([truth, noisy, _], found) in rows().iter().zip(table(&out)) {
        for j in 0..2 {
            before += (noisy[j] - truth[j]).powi(2);
            after += (found[j] - truth[j]).powi(2);
            inside += usize::from((found[j] - truth[j]).abs() < found[2 + j]);
        }
    }
    assert!(after < 0.5 * before, "{after} {before}");
    // 68 % of normal values are within a deviation.
    let share = inside as f64 / (2 * N) as f64;
    assert!((0.62..0.76).contains(&share), "{share}");
    folder.gmm(&format!("impute m.json stars.csv {NOISE} --how draw")).failed(2, &["leave --how and --draws out"]);
    folder.gmm("impute m.json stars.csv --columns x,y --deviations").failed(2, &["--noise-columns"]);
}

#[test]
fn invalid_errors_and_options_are_refused_with_their_place() {
    let folder = stars();
    folder.gmm("fit stars.csv -k 2 --columns x,y --noise-columns ex").failed(3, &["1 noise columns for 2 columns"]);
    folder.gmm("fit stars.csv -k 2 --columns x,y --noise-columns ex,nothing").failed(3, &["no column 'nothing'"]);
    folder.gmm("fit stars.csv -k 2 --noise-columns ex,ey").failed(3, &["2 noise columns for 3 columns"]);
    folder.write("bad.csv", "x,e\n1,0.5\n2,-0.1\n3,0\n");
    let words = ["bad.csv", "measurement error in row 1, column 0 is -0.1", "finite and not negative"];
    folder.gmm("fit bad.csv -k 1 --noise-columns e").failed(3, &words);
    folder.write("large.csv", "x,e\n1,0.5\n2,1e155\n3,0\n");
    let words = ["row 1, column 0 is 1e155", "its square finite too", "at most 1.3e154"];
    folder.gmm("fit large.csv -k 1 --noise-columns e").failed(3, &words);
    folder.write("holes.csv", "x,e\n1,0.5\n2,NA\n3,0\n");
    folder.gmm("fit holes.csv -k 1 --noise-columns e --missing em").failed(3, &["row 1, column 0", "a missing one"]);
    for option in ["--noise", "--init tree", "--init best", "--online", "--bayes dp"] {
        let text = format!("fit stars.csv -k 2 --columns x,y {NOISE} {option}");
        folder.gmm(&text).failed(2, &["cannot be used with measurement errors"]);
    }
    folder
        .gmm(&format!("fit stars.csv -k 2 --columns x,y {NOISE} --by id"))
        .failed(2, &["does not take measurement errors"]);
    folder.write("exact.csv", "x,e\n1,0\n2,0\n4,0\n5,0\n");
    let of =
        |what: &str| folder.gmm(&format!("fit exact.csv -k 1 --json {what}")).ok().json()["log_likelihood"].as_f64();
    close(&[of("--noise-columns e").unwrap()], &[of("--columns x").unwrap()], 1e-9);
}

#[test]
fn weights_missing_values_and_checkpoints_go_with_measurement_errors() {
    let folder = Folder::new();
    folder.write("a.csv", "x,y,ex,ey,w\n1,2,0.5,0.1,2\n2,NA,0.1,NA,1\n3,4,0,1,1\n5,1,0.2,0.3,1\n");
    folder.write("b.csv", "x,y,ex,ey\n1,2,0.5,0.1\n1,2,0.5,0.1\n2,NA,0.1,NA\n3,4,0,1\n5,1,0.2,0.3\n");
    let of = |what: &str| {
        let text = format!("fit {what} -k 1 {NOISE} --missing em --reg-covar 0.01 --tol 1e-9 --max-iter 30 --json");
        folder.gmm(&text).ok().json()["log_likelihood"].as_f64().unwrap()
    };
    close(&[of("a.csv --weights w")], &[of("b.csv")], 1e-9);
    let stars = stars();
    let fit = format!("fit stars.csv -k 2 --columns x,y {NOISE}");
    stars.gmm(&format!("{fit} --max-iter 3 --checkpoint c.json -o part.json -q")).ok();
    let again = format!("stars.csv --columns x,y {NOISE} --resume c.json --max-iter 20 -o resumed.json -q");
    stars.gmm(&format!("fit {again}")).ok();
    stars.gmm(&format!("{fit} --max-iter 20 -o whole.json -q")).ok();
    assert_eq!(stars.json("resumed.json")["means"], stars.json("whole.json")["means"]);
    let other = "fit stars.csv --columns x,y --noise-columns ey,ex --resume c.json -o other.json";
    stars.gmm(other).failed(3, &["was made from other rows"]);
}
