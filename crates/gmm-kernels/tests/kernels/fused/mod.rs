//! The loop on the device: pass, reduction and update, against reference passes and `gmm_model::m_step`.

use crate::compare::close;
use crate::data::{Random, mixture, rows};
use crate::harness::{KINDS, poison};
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::fused::Instance;
use gmm_kernels::em::state::{DONE, FINISHED, TROUBLE};
use gmm_kernels::layout::{Kind, second_len};
use gmm_kernels::reduce::{self, Reduce};
use gmm_model::{CovarianceType, Covariances, Mixture, m_step, reference};
use ndarray::{Array2, array};

mod bayes;
mod chunks;
mod full;
mod halves;
mod harness;
mod instances;
mod linear;
mod narrow;
mod wide;

use harness::{How, Options, PLAIN, packed, run};

/// The expected result, from the reference.
fn expected(start: &Mixture, data: &Array2<f64>, o: &Options<'_>) -> (Mixture, Vec<f64>) {
    let mut mixture = start.clone();
    let mut trace = Vec::new();
    for _ in 0..o.iterations {
        let statistics = reference::statistics(&mixture, data.view(), o.row_weights);
        trace.push(statistics.mean_log_likelihood());
        mixture = m_step(&statistics, o.reg_covar, Some(&mixture)).unwrap().mixture;
    }
    (mixture, trace)
}

fn same(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().map(|v| v * v).sum::<f64>().sqrt();
    let error = got.iter().zip(want).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    assert!(error <= tolerance * scale, "{what}: error {error:e} of {scale:e}\n{got:?}\n{want:?}");
}

/// Tolerance of plain fp16: eight times its rounding error.
const HEADS: f64 = 8.0 / 2048.0;

fn check<T: Real>(kind: (CovarianceType, Kind), (n, d, k): (usize, usize, usize), offset: f64, o: &Options<'_>) {
    let random = &mut Random((n * 1000 + d * 50 + k) as u64);
    let start = mixture(kind.0, k, d, offset, random);
    let data = rows::<T>(&start, n, random);
    let got = run::<T>(kind.1, &start, &data, o);
    let (mixture, trace) = expected(&start, &data, o);
    let what = |part: &str| format!("{} {} n={n} d={d} k={k}: {part}", T::NAME, kind.0);
    // Rounding error of the rows' differences; anything larger is a bug.
    eprintln!("{} n={n} d={d} k={k}", kind.0);
    let tolerance = match o.how {
        How::HalfPrecision { one: true, .. } | How::Linear { .. } | How::Full { one: true, .. } => HEADS,
        _ if T::BYTES == 4 => 2e-6,
        _ => 1e-11,
    } * f64::from(o.iterations);
    assert_eq!(got.state[TROUBLE as usize], 0, "{}", what("trouble"));
    assert_eq!(got.state[FINISHED as usize], o.iterations, "{}", what("finished"));
    assert_eq!(got.state[DONE as usize], o.iterations, "{}", what("done"));
    for (a, b) in got.trace.iter().zip(&trace) {
        close(*a, *b, 1.0 + b.abs(), tolerance, &what("likelihood"));
    }
    same(&got.weights, mixture.weights().as_slice().unwrap(), tolerance, &what("weights"));
    same(&got.means, mixture.means().as_slice().unwrap(), tolerance, &what("means"));
    same(&got.covariances, &packed(&mixture), tolerance, &what("covariances"));
    assert!(got.empty.iter().all(|e| *e == 0), "{}", what("empty"));
}

/// A tied covariance subtracts the responsibilities' sums times the squared means, which magnifies any missing
/// responsibility by that factor.
#[test]
fn responsibilities_of_f32_rows_add_up_to_the_rows() {
    for (name, kind) in KINDS {
        for (n, d, k) in [(2, 3, 2), (300, 3, 7), (130, 4, 90)] {
            let random = &mut Random(n as u64);
            let start = mixture(name, k, d, 0.0, random);
            let Some(_) = Instance::of(kind, k as u32, d as u32) else { continue };
            let data = rows::<f32>(&start, n, random);
            let got = run::<f32>(kind, &start, &data, &PLAIN);
            let sum: f64 = got.weights.iter().sum();
            assert!((sum - 1.0).abs() < 1e-14, "{name} n={n} d={d} k={k}: {sum}");
        }
    }
}

#[test]
fn an_offset_costs_nothing() {
    for kind in KINDS {
        check::<f64>(kind, (301, 5, 3), 1e8, &PLAIN);
        check::<f32>(kind, (301, 5, 3), 1e4, &PLAIN);
    }
}

#[test]
fn several_iterations_with_row_weights() {
    let random = &mut Random(5);
    let weights: Vec<f64> = (0..333).map(|i| if i % 5 == 3 { 0.0 } else { 0.25 + random.uniform() }).collect();
    let o = Options { row_weights: Some(&weights), iterations: 4, blocks: 3, ..PLAIN };
    for kind in KINDS {
        check::<f64>(kind, (333, 6, 4), 3.0, &o);
        check::<f32>(kind, (333, 6, 4), 3.0, &o);
    }
}

#[test]
fn a_loop_stops_where_it_converges() {
    let random = &mut Random(9);
    let start = mixture(CovarianceType::Full, 2, 3, 0.0, random);
    let data = rows::<f64>(&start, 200, random);
    let o = Options { iterations: 12, tol: 1e-2, ..PLAIN };
    let got = run::<f64>(Kind::Full, &start, &data, &o);
    let (_, trace) = expected(&start, &data, &o);
    let stop = (1..12).find(|i| (trace[*i] - trace[*i - 1]).abs() < 1e-2).unwrap() as u32 + 1;
    assert!(stop < 12);
    assert_eq!((got.state[DONE as usize], got.state[FINISHED as usize]), (stop, stop));
    assert!(got.trace[stop as usize..].iter().all(|v| v.is_nan()), "later launches do nothing");
    let (mixture, _) = expected(&start, &data, &Options { iterations: stop, ..PLAIN });
    same(&got.covariances, &packed(&mixture), 1e-10, "the parameters of that iteration stay");
}

#[test]
fn an_empty_component_keeps_what_it_has() {
    for (kind, number) in KINDS {
        let random = &mut Random(11);
        let near = mixture(kind, 3, 2, 0.0, random);
        let data = rows::<f64>(&near, 150, random);
        let mut means = near.means().to_owned();
        means.row_mut(1).assign(&array![1e3, -1e3]);
        let start = Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap();
        let got = run::<f64>(number, &start, &data, &PLAIN);
        let (mixture, _) = expected(&start, &data, &PLAIN);
        assert_eq!(got.empty, [0, 1, 0], "{kind}");
        same(&got.means, mixture.means().as_slice().unwrap(), 1e-11, &format!("{kind}: means"));
        same(&got.covariances, &packed(&mixture), 1e-11, &format!("{kind}: covariances"));
        let each = second_len(number, 3, 2) as usize / 3;
        if number != Kind::Tied {
            assert_eq!(got.covariances[each..2 * each], packed(&start)[each..2 * each], "{kind}: bit for bit");
        }
    }
}

/// Features that overflow or lose precision, and statistics without an M-step, are reported instead of giving wrong
/// results.
#[test]
fn trouble_is_told() {
    let trouble = |kind: Kind, start: &Mixture, data: &Array2<f64>, o: &Options<'_>| {
        run::<f64>(kind, start, data, o).state[TROUBLE as usize]
    };
    let random = &mut Random(13);
    let start = mixture(CovarianceType::Diag, 2, 2, 0.0, random);
    let data = rows::<f64>(&start, 60, random);

    // A narrow component far from the others.
    let mut apart = data.clone();
    let narrow = Covariances::Diag(array![[1.0, 1.0], [1e-10, 1e-10]]);
    let far = Mixture::new(start.weights().to_owned(), array![[0.0, 0.0], [5e3, 5e3]], narrow).unwrap();
    for i in 40..60 {
        apart.row_mut(i).assign(&array![5e3 + 1e-5 * random.normal(), 5e3 + 1e-5 * random.normal()]);
    }
    assert_eq!(trouble(Kind::Diag, &far, &apart, &PLAIN), 1);

    // A column that is twice another one, without regularisation.
    let mut double = data.clone();
    for mut row in double.rows_mut() {
        row[1] = 2.0 * row[0];
    }
    let full = mixture(CovarianceType::Full, 2, 2, 0.0, random);
    assert_eq!(trouble(Kind::Full, &full, &double, &Options { reg_covar: 0.0, ..PLAIN }), 1);
    let tied = mixture(CovarianceType::Tied, 2, 2, 0.0, random);
    assert_eq!(trouble(Kind::Tied, &tied, &double, &Options { reg_covar: 0.0, ..PLAIN }), 1);

    // Values whose squares overflow.
    let mut huge = data.clone();
    huge[[3, 0]] = 1e200;
    huge[[4, 0]] = -1e200;
    for (kind, number) in KINDS {
        let start = mixture(kind, 2, 2, 0.0, random);
        assert_eq!(trouble(number, &start, &huge, &PLAIN), 1, "{kind}");
    }

    // Later launches do nothing.
    let o = Options { iterations: 3, reg_covar: 0.0, ..PLAIN };
    let got = run::<f64>(Kind::Full, &full, &double, &o);
    assert_eq!((got.state[TROUBLE as usize], got.state[FINISHED as usize]), (1, 1));
}

#[test]
fn partial_results_are_added_whatever_their_number() {
    for (count, len) in
        [(1_u64, 1_u64), (3, 8), (16, 9), (17, 1), (300, 20), (128, 7), (129, 33), (600, 515), (2, 8200)]
    {
        let random = &mut Random(count * 100 + len);
        let values: Vec<f64> = (0..count * len).map(|_| random.normal()).collect();
        let partials = Buffer::new(&values);
        for kernel in [reduce::reduce_blocks(), reduce::reduce_many_blocks()] {
            let mut out = poison::<f64>(len);
            let arguments = Reduce { partials: partials.pointer(), count, len, out: out.pointer_mut(), accumulate: 0 };
            // SAFETY: every buffer has the length that the kernel's arguments document.
            unsafe { kernel.emulate((2, 1), arguments) };
            for (i, got) in out.to_vec().iter().enumerate() {
                let want: f64 = (0..count as usize).map(|s| values[s * len as usize + i]).sum();
                close(*got, want, count as f64, 1e-14, &format!("{}: {count} of {len}: {i}", kernel.name));
            }
        }
    }
}
