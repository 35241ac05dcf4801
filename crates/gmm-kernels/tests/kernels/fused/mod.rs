//! The loop on the device: pass, reduction and update, against reference passes and `gmm_model::m_step`.

use crate::compare::close;
use crate::data::{Random, mixture, rows};
use crate::harness::{KINDS, poison};
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::fused::narrow::Cut;
use gmm_kernels::fused::state::{DONE, FINISHED, TROUBLE};
use gmm_kernels::fused::{self, Variant};
use gmm_kernels::layout::{Kind, second_len};
use gmm_kernels::reduce::{self, Reduce};
use gmm_model::{CovarianceType, Covariances, Mixture, m_step, reference};
use ndarray::{Array2, array};

mod halves;
mod harness;

use harness::{How, Options, PLAIN, packed, run};

/// The same by the reference.
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

fn check<T: Real>(kind: (CovarianceType, Kind), (n, d, k): (usize, usize, usize), offset: f64, o: &Options<'_>) {
    let random = &mut Random((n * 1000 + d * 50 + k) as u64);
    let start = mixture(kind.0, k, d, offset, random);
    let data = rows::<T>(&start, n, random);
    let got = run::<T>(kind.1, &start, &data, o);
    let (mixture, trace) = expected(&start, &data, o);
    let what = |part: &str| format!("{} {} n={n} d={d} k={k}: {part}", T::NAME, kind.0);
    // What rounding the rows' differences leaves: more than that is an error.
    eprintln!("{} n={n} d={d} k={k}", kind.0);
    let tolerance = match o.how {
        How::Halves { one: true, .. } => HEADS,
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

/// A shape for every variant, at its edges or inside them.
fn shapes(kind: Kind) -> Vec<(usize, usize, usize)> {
    let columns: &[usize] = match kind {
        Kind::Full => &[1, 2, 4, 8, 12, 11, 5, 9, 15, 13, 16, 24, 17, 28, 29, 33, 36, 40],
        Kind::Tied => &[1, 7, 16, 17, 30, 32, 40, 33, 50, 64, 80, 81],
        Kind::Diag => &[1, 8, 15, 30, 16, 17, 40, 33, 50, 64, 80, 81],
        Kind::Spherical => &[1, 2, 15, 16, 30, 31],
    };
    let mut out = Vec::new();
    for (i, d) in columns.iter().enumerate() {
        for k in [1, 3, 8, 9, 16, 17, 30, 33, 64, 65, 80, 100] {
            // Rows for each component, but not an even number of groups.
            let n = (4 * d + 9) * k.min(7) + 2 * i + 1;
            let least = if kind == Kind::Full { (d + 1) * k } else { 2 * k } + 5;
            if Variant::of(kind, k as u32, *d as u32).is_some() && (k < 17 || i % 3 == 0) {
                out.push((n.max(least), *d, k));
            }
        }
    }
    if kind == Kind::Full {
        out.extend([(805, 23, 17), (901, 26, 17), (1051, 30, 17)]);
    }
    out
}

#[test]
fn one_iteration_is_the_references() {
    for kind in KINDS {
        for shape in shapes(kind.1) {
            check::<f64>(kind, shape, 0.0, &PLAIN);
        }
    }
}

#[test]
fn one_iteration_in_f32_is_the_references() {
    for kind in KINDS {
        for shape in shapes(kind.1).into_iter().step_by(3) {
            check::<f32>(kind, shape, 0.0, &PLAIN);
        }
    }
}

/// A tied covariance subtracts them times the means' squares: what lacks there is an error so many times as large.
#[test]
fn responsibilities_of_f32_rows_add_up_to_the_rows() {
    for (name, kind) in KINDS {
        for (n, d, k) in [(2, 3, 2), (300, 3, 7), (130, 4, 90)] {
            let random = &mut Random(n as u64);
            let start = mixture(name, k, d, 0.0, random);
            let Some(_) = Variant::of(kind, k as u32, d as u32) else { continue };
            let data = rows::<f32>(&start, n, random);
            let got = run::<f32>(kind, &start, &data, &PLAIN);
            let sum: f64 = got.weights.iter().sum();
            assert!((sum - 1.0).abs() < 1e-14, "{name} n={n} d={d} k={k}: {sum}");
        }
    }
}

/// Shared memory of a GPU that has less than Hopper, and shapes that then have blocks of fewer warps.
const ROOM: u64 = 160 << 10;
const LESS_ROOM: [(usize, usize, usize); 1] = [(333, 30, 9)];

#[test]
fn where_shared_memory_is_less_blocks_have_fewer_warps() {
    for shape in LESS_ROOM {
        check::<f64>((CovarianceType::Full, Kind::Full), shape, 0.0, &Options { room: ROOM, ..PLAIN });
    }
}

#[test]
fn every_variant_is_reached() {
    let mut reached: Vec<Variant> = Vec::new();
    for (_, kind) in KINDS {
        reached.extend(shapes(kind).iter().map(|(_, d, k)| Variant::of(kind, *k as u32, *d as u32).unwrap()));
        reached.extend(
            LESS_ROOM.map(|(_, d, k)| Variant::of(Kind::Full, k as u32, d as u32).unwrap().fitting::<f64>(ROOM)),
        );
    }
    for variant in Variant::all() {
        assert!(reached.contains(&variant), "{variant:?}");
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

/// Blocks that share sums: weights, iterations and an offset, and blocks that have rows for one warp or for none.
#[test]
fn sums_that_blocks_share_with_row_weights_and_few_rows() {
    let random = &mut Random(6);
    let weights: Vec<f64> = (0..170).map(|i| if i % 7 == 2 { 0.0 } else { 0.25 + random.uniform() }).collect();
    let shapes = [
        (0, 17, 16),
        (0, 20, 2),
        (0, 16, 17),
        (0, 34, 9),
        (0, 13, 75),
        (1, 33, 20),
        (2, 33, 9),
        (2, 9, 70),
        (3, 47, 9),
    ];
    // Components have fewer rows than columns here, and would be singular.
    let ridge = Options { reg_covar: 1.0, ..PLAIN };
    for (kind, d, k) in shapes {
        let weighted = Options { row_weights: Some(&weights), iterations: 2, blocks: 3, ..ridge };
        check::<f64>(KINDS[kind], (170, d, k), 3.0, &weighted);
        check::<f32>(KINDS[kind], (170, d, k), 3.0, &weighted);
    }
    // One block has rows for one or two of its warps, another none: with four warps, and with eight.
    for (kind, d, k) in [(0, 17, 2), (0, 31, 9), (0, 37, 9), (0, 30, 17), (1, 40, 2), (2, 64, 2), (3, 33, 2)] {
        let wide = fused::block::<f64>(Variant::of(KINDS[kind].1, k as u32, d as u32).unwrap()).0 == 256;
        assert_eq!(wide, k > 2, "{d} {k}");
        for n in if wide { [150, 290] } else { [20, 90] } {
            check::<f64>(KINDS[kind], (n, d, k), 0.0, &Options { blocks: 4, ..ridge });
        }
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

/// What the features cannot hold, or no M-step can use, is told and not passed off as a result.
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

    // A column that is another's double, and nothing added.
    let mut double = data.clone();
    for mut row in double.rows_mut() {
        row[1] = 2.0 * row[0];
    }
    let full = mixture(CovarianceType::Full, 2, 2, 0.0, random);
    assert_eq!(trouble(Kind::Full, &full, &double, &Options { reg_covar: 0.0, ..PLAIN }), 1);
    let tied = mixture(CovarianceType::Tied, 2, 2, 0.0, random);
    assert_eq!(trouble(Kind::Tied, &tied, &double, &Options { reg_covar: 0.0, ..PLAIN }), 1);

    // Squares that overflow.
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

/// Shapes by chunks: about sixteen and thirty-two columns, and about the components of a piece and twice that.
const LARGE: [(usize, usize, usize); 9] = [
    (190, 30, 30),
    (257, 17, 33),
    (100, 33, 4),
    (300, 4, 130),
    (400, 18, 65),
    (129, 32, 5),
    (64, 16, 3),
    (400, 16, 20),
    (300, 16, 70),
];

#[test]
fn rows_in_chunks_are_the_references() {
    for kind in KINDS {
        for (i, shape) in LARGE.into_iter().enumerate() {
            // Components have fewer rows than dimensions.
            let o = Options { reg_covar: 0.1, how: How::Large([128, 256, 384][i % 3]), ..PLAIN };
            check::<f64>(kind, shape, 0.0, &o);
            if i % 2 == 1 {
                check::<f32>(kind, shape, 0.0, &o);
            }
        }
    }
}

#[test]
fn rows_in_chunks_with_weights_and_an_offset() {
    let random = &mut Random(5);
    let weights: Vec<f64> = (0..290).map(|i| if i % 5 == 3 { 0.0 } else { 0.25 + random.uniform() }).collect();
    let o = Options { row_weights: Some(&weights), iterations: 2, blocks: 3, how: How::Large(128), ..PLAIN };
    for kind in KINDS {
        check::<f64>(kind, (290, 6, 4), 1e6, &o);
        check::<f32>(kind, (290, 6, 4), 1e3, &o);
    }
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
            // SAFETY: buffers of these lengths.
            unsafe { kernel.emulate((2, 1), arguments) };
            for (i, got) in out.to_vec().iter().enumerate() {
                let want: f64 = (0..count as usize).map(|s| values[s * len as usize + i]).sum();
                close(*got, want, count as f64, 1e-14, &format!("{}: {count} of {len}: {i}", kernel.name));
            }
        }
    }
}

/// Shapes for halves: factors of one, two, and three times sixteen columns, of more than 64, and of more than 128.
const HALVES: [(usize, usize, usize); 8] =
    [(190, 30, 30), (257, 17, 33), (100, 33, 4), (300, 4, 130), (150, 70, 9), (129, 32, 5), (64, 16, 3), (140, 131, 2)];

/// Of heads alone: eight times the rounding of a half.
const HEADS: f64 = 8.0 / 2048.0;

#[test]
fn rows_in_halves_are_the_references() {
    halves_are_the_references(false);
}

#[test]
fn rows_in_heads_are_the_references_as_far_as_halves_go() {
    halves_are_the_references(true);
}

fn halves_are_the_references(one: bool) {
    for kind in KINDS {
        for (i, shape) in HALVES.into_iter().enumerate() {
            let how = How::Halves { chunk: [128, 256, 384][i % 3], one };
            // Some take whole partial results from each warp of a block.
            let o = Options { reg_covar: 0.1, blocks: 4, how, ..PLAIN };
            match i % 2 {
                0 => check::<f32>(kind, shape, 0.0, &o),
                _ => check::<f32>(kind, shape, 1e3, &Options { iterations: 2, blocks: 8, ..o }),
            }
        }
    }
}

/// An outlier sets a column's scale; what is a thousandth of it has few digits in halves.
#[test]
fn components_too_narrow_for_halves_are_told() {
    for (kind, number) in KINDS {
        let random = &mut Random(21);
        let start = mixture(kind, 3, 9, 0.0, random);
        let mut data = rows::<f32>(&start, 200, random);
        let o = Options { how: How::Halves { chunk: 128, one: false }, blocks: 4, reg_covar: 0.1, ..PLAIN };
        assert_eq!(run::<f32>(number, &start, &data, &o).state[TROUBLE as usize], 0, "{kind}");
        data[[7, 4]] = 1e5;
        let told = run::<f32>(number, &start, &data, &o).state[TROUBLE as usize];
        // The second moments of a tied covariance do not come from halves.
        assert_eq!(told, u32::from(number != Kind::Tied), "{kind}");
    }
}

const FULL: (CovarianceType, Kind) = (CovarianceType::Full, Kind::Full);

#[test]
fn rows_of_few_columns_are_the_references() {
    // Each kernel, one warp and many, places left empty, and rows that do not fill their last 64.
    let shapes = [(150, 1, 3), (700, 1, 40), (400, 2, 5), (600, 2, 26), (900, 2, 100), (130, 3, 8), (500, 3, 33)];
    for shape in shapes {
        let o = Options { how: How::Narrow, blocks: 3, reg_covar: 1e-3, ..PLAIN };
        check::<f32>(FULL, shape, 0.0, &o);
        check::<f32>(FULL, shape, 1e3, &Options { iterations: 2, ..o });
        let weights: Vec<f64> = (0..shape.0).map(|i| [1.0, 0.0, 2.5][i % 3]).collect();
        check::<f32>(FULL, shape, 0.0, &Options { row_weights: Some(&weights), ..o });
    }
}

/// Sums of more rows than a lane adds up in `f32`.
#[test]
fn many_rows_of_few_columns_are_the_references() {
    let o = Options { how: How::Narrow, blocks: 1, ..PLAIN };
    check::<f32>(FULL, (64 * 128 * 2 + 70, 2, 3), 0.0, &o);
}

/// Rows of which every density would underflow next to the largest that there could be.
#[test]
fn rows_far_from_every_component_of_few_columns_count() {
    let random = &mut Random(5);
    let start = mixture(CovarianceType::Full, 20, 2, 0.0, random);
    let mut data = rows::<f32>(&start, 300, random);
    for (i, far) in [(3, 40.0), (70, -60.0), (299, 200.0)] {
        data[[i, 0]] = far;
    }
    let o = Options { how: How::Narrow, reg_covar: 1e-3, ..PLAIN };
    let (got, (want, trace)) = (run::<f32>(Kind::Full, &start, &data, &o), expected(&start, &data, &o));
    assert_eq!(got.state[TROUBLE as usize], 0);
    close(got.trace[0], trace[0], trace[0].abs(), 2e-6, "likelihood");
    same(&got.weights, want.weights().as_slice().unwrap(), 2e-6, "weights");
    same(&got.means, want.means().as_slice().unwrap(), 2e-6, "means");
    same(&got.covariances, &packed(&want), 2e-6, "covariances");
}

#[test]
fn a_mixture_of_few_columns_is_cut_into_warps() {
    let cut = |k, d| Cut::of(k, d).map(|cut| (cut.each, cut.warps));
    assert_eq!((cut(100, 2), cut(128, 2)), (Some((7, 15)), Some((8, 16))));
    assert_eq!((cut(64, 2), cut(8, 2)), (Some((8, 8)), Some((7, 2))));
    assert_eq!((cut(129, 2), cut(3, 4), cut(193, 1), cut(97, 3)), (None, None, None, None));
}
