//! Data sets in parts on the CPU engine: every sum is that of the parts, added in order, to the bit.

use std::ops::Range;

use crate::common;
use gmm_host::init::RowDraw;
use gmm_host::{
    CpuEngine, Engine, EvaluateOptions, FitOptions, Init, PassRows, ReferenceEngine, Resident, fit, maximise, pass,
    shift,
};
use gmm_model::{CovarianceType, Covariances, Dataset, Mixture, Precision, RowStorage, Statistics, StatisticsError};
use ndarray::Array2;

const D: usize = 3;
const K: usize = 4;

/// Sizes of ten parts, uneven, some smaller than a block of rows and one of a single row.
const SIZES: [usize; 10] = [700, 1, 255, 256, 257, 3000, 40, 1025, 512, 90];

fn data(weighted: bool, offset: f64) -> Dataset {
    let starts: Vec<usize> = SIZES[..9]
        .iter()
        .scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        })
        .collect();
    let n = SIZES.iter().sum();
    let rows = common::rows(n, D, offset, 1.0, 7);
    let data = Dataset::new(rows).unwrap().with_parts(starts);
    let weight = |i: usize| 0.5 + (i % 5) as f64;
    if weighted { data.with_weights((0..n).map(weight).collect()).unwrap() } else { data }
}

fn engines() -> Vec<CpuEngine> {
    let copied = [1, 2, 3].map(|threads| CpuEngine::new(threads).unwrap());
    copied.into_iter().chain([CpuEngine::without_copies(2).unwrap()]).collect()
}

fn parts(data: &Dataset) -> Vec<Dataset> {
    data.parts().map(|rows| data.part(rows)).collect()
}

fn bits(s: &Statistics) -> Vec<u64> {
    let totals = [s.log_likelihood, s.total_weight, s.n_rows as f64];
    let all = s.weight.iter().chain(s.first.iter()).chain(&s.second).chain(&totals);
    all.map(|v| v.to_bits()).collect()
}

/// Panics unless a pass over all rows has the bits of the sum of the same pass over each part.
fn check(
    engine: &CpuEngine,
    data: &Dataset,
    storage: &RowStorage,
    what: &str,
    run: &dyn Fn(&mut dyn Resident, usize) -> Statistics,
) {
    let load = |data: &Dataset| engine.load(data, storage.precision, &storage.shift).unwrap();
    let starts: Vec<usize> = data.parts().map(|rows| rows.start).collect();
    let each = parts(data).into_iter().zip(starts).map(|(part, start)| run(load(&part).as_mut(), start));
    let want = Statistics::sum(each.collect::<Vec<_>>()).unwrap().unwrap();
    let mut whole = load(data);
    for round in 0..2 {
        assert_eq!(bits(&run(whole.as_mut(), 0)), bits(&want), "{what}, round {round}");
    }
}

fn storages(offset: f64) -> Vec<RowStorage> {
    let shift = vec![offset, offset + 0.5, offset - 0.25];
    [Precision::F32, Precision::F64].map(|precision| RowStorage { precision, shift: shift.clone() }).into()
}

#[test]
fn every_pass_is_the_sum_of_the_passes_over_the_parts() {
    for (engine, weighted) in engines().iter().flat_map(|engine| [(engine, false), (engine, true)]) {
        let data = data(weighted, 0.0);
        for (kind, storage) in
            CovarianceType::ALL.iter().flat_map(|kind| storages(0.0).into_iter().map(move |s| (*kind, s)))
        {
            let what = format!("{kind} {} {weighted} {}", storage.precision, engine.description());
            let mixture = common::mixture(kind, K, D, 0.0, 1.0, 3);
            let other = common::mixture(kind, K, D, 0.0, 1.0, 4);
            let fill = |start: usize| move |first: usize, out: &mut [f64]| fill(start + first, out);
            check(engine, &data, &storage, &what, &|rows, _| rows.pass(&mixture).unwrap());
            check(engine, &data, &storage, &what, &|rows, _| rows.expectation(&mixture).unwrap());
            check(engine, &data, &storage, &what, &|rows, _| {
                rows.passes(&[other.clone(), mixture.clone()]).unwrap().remove(1)
            });
            check(engine, &data, &storage, &what, &|rows, _| rows.nearest(kind, mixture.means()).unwrap());
            check(engine, &data, &storage, &what, &|rows, start| {
                rows.given(kind, mixture.means(), &fill(start)).unwrap()
            });
        }
    }
}

/// Responsibilities that differ by row and component and sum to 1.
fn fill(first: usize, out: &mut [f64]) {
    for (i, row) in out.chunks_exact_mut(K).enumerate() {
        let raw = |c: usize| ((first + i) * 31 + c * 17) as f64 % 7.0 + 1.0;
        let sum: f64 = (0..K).map(raw).sum();
        row.iter_mut().enumerate().for_each(|(c, r)| *r = raw(c) / sum);
    }
}

#[test]
fn a_component_that_needs_double_precision_gets_it_in_every_part() {
    // Far from the shift in units of its deviation, so that `f32` rows are used in `f64`.
    let far = common::mixture(CovarianceType::Full, K, D, 1e4, 1.0, 3);
    let data = data(false, 1e4);
    let storage = RowStorage { precision: Precision::F32, shift: vec![0.0; D] };
    assert!(shift::is_felt(&far, &storage.shift, Precision::F32));
    for engine in engines() {
        check(&engine, &data, &storage, &engine.description(), &|rows, _| rows.pass(&far).unwrap());
    }
}

#[test]
fn passes_over_parts_agree_with_the_reference() {
    let data = data(true, 0.0);
    for kind in CovarianceType::ALL {
        let mixture = common::mixture(kind, K, D, 0.0, 1.0, 3);
        let mut slow = ReferenceEngine.load(&data, Precision::F64, &[0.0; D]).unwrap();
        let mut fast = CpuEngine::new(2).unwrap().load(&data, Precision::F64, &[0.0; D]).unwrap();
        common::check(&fast.pass(&mixture).unwrap(), &slow.pass(&mixture).unwrap(), 1e-13, "pass");
        let (found, wanted) = (outputs(fast.as_mut(), &mixture), outputs(slow.as_mut(), &mixture));
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found - wanted).abs() <= 1e-11 * wanted.abs().max(1.0), "{kind}: {found} {wanted}");
        }
    }
}

/// All values that an evaluation writes and returns.
fn outputs(rows: &mut dyn Resident, mixture: &Mixture) -> Vec<f64> {
    let n = rows.dim().0;
    let (mut densities, mut responsibilities, mut labels) = (vec![0.0; n], vec![0.0; n * K], vec![0; n]);
    let want = EvaluateOptions {
        log_densities: Some(&mut densities),
        responsibilities: Some((&mut responsibilities).into()),
        labels: Some(&mut labels),
    };
    let totals = rows.evaluate(mixture, want).unwrap();
    let several = rows.log_likelihoods(&[mixture.clone(), mixture.clone()]).unwrap();
    let labels = labels.into_iter().map(f64::from);
    let totals = [totals.log_likelihood, totals.entropy, totals.total_weight];
    densities.into_iter().chain(responsibilities).chain(labels).chain(totals).chain(several).collect()
}

#[test]
fn rows_have_the_same_values_in_parts_or_not() {
    let (parted, mixture) = (data(false, 0.0), common::mixture(CovarianceType::Full, K, D, 0.0, 1.0, 3));
    let whole = parted.part(0..parted.n_rows());
    let engine = CpuEngine::new(2).unwrap();
    let [of_parts, of_whole] = [&parted, &whole].map(|data| {
        let mut rows = engine.load(data, Precision::F64, &[0.0; D]).unwrap();
        let values = outputs(rows.as_mut(), &mixture);
        values[..parted.n_rows() * (K + 2)].iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    });
    assert!(of_parts == of_whole);
}

#[test]
fn centres_are_drawn_as_if_the_rows_were_in_one_part() {
    for weighted in [false, true] {
        let parted = data(weighted, 0.0);
        let whole = parted.part(0..parted.n_rows());
        let engine = CpuEngine::new(2).unwrap();
        let [of_parts, of_whole] = [&parted, &whole].map(|data| {
            let mut rows = engine.load(data, Precision::F32, &[0.1; D]).unwrap();
            let mut found = rows.add_centre(&[0.0; D]).unwrap();
            let draws = [(0, 0.3), (5, 0.9)].map(|(group, uniform)| RowDraw { group, uniform });
            let weighed = rows.weigh_draws(&draws, data.weights()).unwrap();
            found.extend(weighed.rows.iter().map(|row| *row as f64).chain(weighed.left));
            found.extend(rows.add_drawn(1).unwrap());
            let ranges: [Range<usize>; 2] = [690..960, 6000..6136];
            found.extend(rows.near(&ranges).unwrap());
            rows.forget_centres();
            let some = [0, 699, 700, 701, 956, 6135, 12];
            let mut sample = rows.sample(&some, weighted.then_some(&[1.0; 7][..])).unwrap();
            found.extend(sample.nearest(CovarianceType::Diag, ndarray::aview2(&[[0.0; D]])).unwrap().second);
            found
        });
        assert_eq!(of_parts, of_whole);
    }
}

#[test]
fn a_fit_in_parts_has_the_bits_of_passes_over_each_part() {
    for (engine, weighted) in engines().iter().flat_map(|engine| [(engine, false), (engine, true)]) {
        for kind in CovarianceType::ALL {
            for precision in [None, Some(Precision::F32)] {
                let options = FitOptions { covariance_type: kind, precision, max_iter: 0, ..FitOptions::new(K) };
                check_fit(engine, &data(weighted, 3.0), &options);
            }
        }
    }
}

fn check_fit(engine: &CpuEngine, data: &Dataset, options: &FitOptions) {
    let files = parts(data);
    let start = fit(engine, data, options).unwrap();
    let mut residents: Vec<PassRows> =
        files.iter().map(|file| PassRows::new(engine, file, &start.storage).unwrap()).collect();
    let (mut mixture, mut trace) = (start.mixture.clone(), Vec::new());
    for _ in 0..4 {
        let each: Vec<Statistics> = residents.iter_mut().map(|rows| rows.pass(&mixture).unwrap()).collect();
        assert_eq!(bits(&each[5]), bits(&pass(engine, &mixture, &files[5], &start.storage).unwrap()));
        let sum = Statistics::sum(each).unwrap().unwrap();
        trace.push(sum.mean_log_likelihood());
        mixture = maximise(&sum, options.reg_covar, &mixture).unwrap().mixture;
    }
    let whole = fit(engine, data, &FitOptions { max_iter: 4, tol: 0.0, ..options.clone() }).unwrap();
    assert_eq!(whole.summary.trace, trace);
    assert_eq!(whole.mixture, mixture);
    let again = FitOptions { init: Init::Given(Box::new(start.mixture)), max_iter: 4, tol: 0.0, ..options.clone() };
    assert_eq!(fit(engine, data, &again).unwrap().mixture, mixture, "also from a given start");
}

#[test]
fn rows_of_weight_zero_are_left_out_of_passes_as_of_fits() {
    let n = SIZES.iter().sum();
    // The second part, a single row, vanishes.
    let weight = |i: usize| if i.is_multiple_of(3) || i == 700 { 0.0 } else { 1.0 };
    let data = data(false, 0.0).with_weights((0..n).map(weight).collect()).unwrap();
    let engine = CpuEngine::new(2).unwrap();
    let storage = &storages(0.0)[1];
    let mixture = common::mixture(CovarianceType::Tied, K, D, 0.0, 1.0, 3);
    let all = pass(&engine, &mixture, &data, storage).unwrap();
    let files = parts(&data).into_iter().filter(|file| file.total_weight() > 0.0);
    let each = files.map(|file| pass(&engine, &mixture, &file, storage).unwrap());
    assert_eq!(bits(&all), bits(&Statistics::sum(each.collect::<Vec<_>>()).unwrap().unwrap()));
    assert_eq!(all.n_rows, (0..n).filter(|&i| weight(i) > 0.0).count() as u64);
}

#[test]
fn statistics_of_another_mixture_cannot_be_maximised() {
    let engine = CpuEngine::new(1).unwrap();
    let of = |kind, seed| common::mixture(kind, K, D, 0.0, 1.0, seed);
    let mixture = of(CovarianceType::Diag, 3);
    let statistics = pass(&engine, &mixture, &data(false, 0.0), &storages(0.0)[1]).unwrap();
    for (other, words) in [
        (of(CovarianceType::Diag, 4), "different centres (first at component 0)"),
        (of(CovarianceType::Full, 3), "different shape: diag k=4 d=3 and full k=4 d=3"),
    ] {
        let error = maximise(&statistics, 1e-6, &other).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // The same means, so the same centres: the recorded mixtures differ.
    let wider = Covariances::Diag(Array2::from_elem((K, D), 2.0));
    let other = Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), wider).unwrap();
    let error = maximise(&statistics, 1e-6, &other).unwrap_err().to_string();
    assert!(error.contains("passes under different mixtures"), "{error}");
    let mut sum = pass(&engine, &other, &data(false, 0.0), &storages(0.0)[1]).unwrap();
    assert_eq!(sum.add(&statistics), Err(StatisticsError::Mixtures));
    let mut broken = statistics;
    broken.second[1] = f64::NAN;
    assert!(maximise(&broken, 1e-6, &mixture).unwrap_err().to_string().contains("component 0 are not finite"));
}

#[test]
fn rows_far_from_every_component_are_an_error_of_the_pass() {
    let far = Dataset::new(ndarray::array![[1e200, 0.0, 0.0]]).unwrap();
    let mixture = common::mixture(CovarianceType::Diag, K, D, 0.0, 1.0, 3);
    let error = pass(&CpuEngine::new(1).unwrap(), &mixture, &far, &storages(0.0)[1]).unwrap_err().to_string();
    assert!(error.contains("not finite") || error.contains("densities vanish"), "{error}");
}
