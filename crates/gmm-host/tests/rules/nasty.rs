//! A fit with a prior, a floor or dropping of starved components ends with a model, whatever finite rows it gets.

use gmm_host::{CpuEngine, Fit, FitOptions, FitRule, Floor, Init, Prior, fit};
use gmm_model::{CovarianceType, Dataset, Draws, Matrix, Starved};
use ndarray::{Array2, Axis};

use crate::{floor, prior, with};

fn rules() -> Vec<(&'static str, FitRule)> {
    let starved = |min_count| FitRule { starved: Some(Starved { min_count, min_weight: 1e-5 }), ..FitRule::none() };
    vec![
        ("prior", prior()),
        ("floor", floor(1e-3, 0.0)),
        ("relative floor", floor(0.0, 1e-3)),
        ("starved", starved(10.0)),
        ("barely starved", starved(1.5)),
        ("all", FitRule { prior: Prior::Conjugate, floor: Floor { absolute: 1e-6, relative: 1e-4 }, ..starved(2.0) }),
    ]
}

/// Rows of each kind that people have been known to fit.
fn patterns(draws: &mut Draws) -> Vec<(&'static str, Array2<f64>)> {
    let n = 2 + draws.index(24);
    let d = 1 + draws.index(6);
    let plain = Array2::from_shape_simple_fn((n, d), || draws.normal());
    let column = draws.index(d);
    let change = |f: &dyn Fn(&mut Array2<f64>)| {
        let mut rows = plain.clone();
        f(&mut rows);
        rows
    };
    let wide = Array2::from_shape_fn((3, 9), |(i, j)| ((i * 7 + j * j * 3) % 11) as f64);
    vec![
        ("plain", plain.clone()),
        ("a constant column", change(&|r| r.column_mut(column).fill(3.7e5))),
        ("all columns constant", change(&|r| r.fill(0.1))),
        (
            "collinear columns",
            change(&|r| {
                let sum = r.sum_axis(Axis(1));
                r.column_mut(column).assign(&(&sum * 2.0));
            }),
        ),
        (
            "duplicates",
            change(&|r| {
                let first = r.row(0).to_owned();
                r.outer_iter_mut().step_by(2).for_each(|mut row| row.assign(&first));
            }),
        ),
        ("whole numbers", change(&|r| r.mapv_inplace(f64::round))),
        ("zeros and ones", change(&|r| r.mapv_inplace(|v| f64::from(v > 0.5)))),
        ("an offset", change(&|r| *r += 1e9)),
        ("huge", change(&|r| *r *= 1e150)),
        ("tiny", change(&|r| *r *= 1e-150)),
        ("vanishing", change(&|r| *r *= 1e-300)),
        (
            "a huge and a tiny column",
            change(&|r| {
                *r *= 1e-100;
                r.column_mut(column).mapv_inplace(|v| v * 1e200);
            }),
        ),
        ("a sentinel", change(&|r| r.row_mut(n - 1).fill(-1e20))),
        ("a far row", change(&|r| r.row_mut(n / 2).fill(1e150))),
        ("fewer rows than columns", wide),
    ]
}

fn check(what: &str, rows: Matrix, options: &FitOptions) -> Fit {
    let data = Dataset::new(rows).unwrap();
    let found = match fit(&CpuEngine::new(1).unwrap(), &data, options) {
        Ok(found) => found,
        Err(error) => panic!("{what}: {error}\n{options:?}\n{:?}", data.rows()),
    };
    assert!(found.summary.log_likelihood.is_finite(), "{what}: {}", found.summary.log_likelihood);
    found
}

#[test]
fn a_fit_of_finite_rows_ends_with_a_model() {
    let rounds = std::env::var("GMM_NASTY_ROUNDS").map_or(3, |text| text.parse().unwrap());
    for round in 0..rounds {
        let mut draws = Draws::for_purpose("nasty rows", 3, round);
        for (pattern, rows) in patterns(&mut draws) {
            let n = rows.nrows();
            let most = draws.index(n.min(6)) + 1;
            for (name, rule) in rules() {
                for kind in CovarianceType::ALL {
                    let k = if draws.uniform() < 0.2 { n } else { most };
                    let init = Init::WORDS[draws.index(5)].parse().unwrap();
                    let reg_covar = [0.0, 1e-6][draws.index(2)];
                    let options = FitOptions { init, reg_covar, max_iter: 30, ..with(rule.clone(), k, kind) };
                    let what = format!("round {round}, {pattern}, {name}, {kind}, k = {k}");
                    check(&what, Matrix::from(rows.clone()), &options);
                    // The values that f32 can hold.
                    let single = rows.mapv(|v| (v as f32).clamp(-1e38, 1e38));
                    check(&format!("{what}, f32"), Matrix::from(single), &options);
                }
            }
        }
    }
}
