//! A whole pass through the emulated kernels, and each of its parts.

use gmm_kernels::device::Buffer;
use gmm_kernels::em::simple::e_step::whitened::{MOST_COLUMNS, Whitening};
use gmm_kernels::em::simple::e_step::{self, EStep};
use gmm_kernels::em::simple::moments::{self, Sums};
use gmm_kernels::layout::{self, Kind, statistics_len, tiled_len};
use gmm_kernels::reduce::{self, Reduce};
use gmm_kernels::seeding::nearest::{self, Nearest};
use gmm_kernels::tile::{self, Tile, Untile};
use gmm_kernels::{Kernel, Real};
use gmm_model::{Cholesky, CovarianceType, FactorShape, Factors, Mixture, PrecisionMixture, Statistics};
use ndarray::{Array1, Array2};
use std::ptr::{null, null_mut};

pub(crate) const KINDS: [(CovarianceType, Kind); 4] = [
    (CovarianceType::Full, Kind::Full),
    (CovarianceType::Tied, Kind::Tied),
    (CovarianceType::Diag, Kind::Diag),
    (CovarianceType::Spherical, Kind::Spherical),
];

fn kind_of(mixture: &Mixture) -> Kind {
    KINDS.iter().find(|(t, _)| *t == mixture.covariance_type()).unwrap().1
}

pub(crate) fn poison<T: Real>(len: u64) -> Buffer<T> {
    Buffer::new(&vec![T::from_f64(f64::NAN); len as usize])
}

/// Converts `(n, columns)` row-major to tiles, with the kernel.
pub(crate) fn tiled<T: Real>(rows: &Array2<f64>, shift: Option<&[f64]>, scale: Option<&[f64]>) -> Buffer<T> {
    let (n, columns) = (rows.nrows() as u64, rows.ncols() as u32);
    let from = Buffer::new(rows.as_slice().unwrap());
    let (shift, scale) = (shift.map(Buffer::new), scale.map(Buffer::new));
    let mut to = poison(tiled_len(n, columns));
    let arguments = Tile::<T> {
        from: from.pointer().cast(),
        n,
        columns,
        shift: shift.as_ref().map_or(null(), Buffer::pointer),
        scale: scale.as_ref().map_or(null(), Buffer::pointer),
        to: to.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { tile::tile_from_f64::<T>().emulate((2, 1), arguments) };
    to
}

pub(crate) fn untiled<T: Real>(from: &Buffer<T>, n: usize, columns: usize) -> Array2<f64> {
    let mut to = poison::<f64>((n * columns) as u64);
    let arguments = Untile::<T> { from: from.pointer(), n: n as u64, columns: columns as u32, to: to.pointer_mut() };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { tile::untile::<T>().emulate((3, 1), arguments) };
    Array2::from_shape_vec((n, columns), to.to_vec()).unwrap()
}

/// Points as the kernels read them: high and low parts.
pub(crate) struct Means<T: Real> {
    pub(crate) high: Buffer<T>,
    pub(crate) low: Buffer<T>,
}

pub(crate) struct Parameters<T: Real> {
    pub(crate) means: Means<T>,
    factor: Buffer<T>,
    log_scale: Buffer<T>,
    log_scale_low: Buffer<T>,
    weights: Buffer<T>,
    /// For full and tied mixtures of few columns.
    whitening: Buffer<f64>,
}

/// The numbers of [`Whitening`], from the matrices `M` (one, or one per component) of `y = M (x − μ)`.
fn whitening(
    is_tied: bool,
    factors: &[Array2<f64>],
    means: &Array2<f64>,
    scales: impl Iterator<Item = f64>,
    shift: &[f64],
) -> Buffer<f64> {
    let (k, d) = means.dim();
    if factors.is_empty() || d > MOST_COLUMNS as usize {
        return Buffer::new(&[0.0]);
    }
    let layout = Whitening::of(k as u32, d as u32, is_tied);
    let mut out = vec![0.0; layout.count() as usize];
    (0..layout.padded()).for_each(|c| out[layout.scale(c) as usize] = f64::NEG_INFINITY);
    scales.enumerate().for_each(|(c, scale)| out[layout.scale(c as u32) as usize] = scale);
    for (c, mean) in means.outer_iter().enumerate() {
        let m = &factors[if is_tied { 0 } else { c }];
        let offset = m.dot(&Array1::from_shape_fn(d, |j| shift[j] - mean[j]));
        for i in 0..d {
            out[layout.offset(c as u32, i as u32) as usize] = offset[i];
            if c < factors.len() {
                (0..=i).for_each(|j| out[layout.entry(c as u32, i as u32, j as u32) as usize] = m[[i, j]]);
            }
        }
    }
    Buffer::new(&out)
}

/// The inverse of a lower triangular matrix.
fn inverse(l: &Cholesky) -> Array2<f64> {
    let mut out = Array2::zeros((l.dim(), l.dim()));
    for j in 0..l.dim() {
        for i in j..l.dim() {
            let known: f64 = (j..i).map(|m| l.at(i, m) * out[[m, j]]).sum();
            out[[i, j]] = (f64::from(u8::from(i == j)) - known) / l.at(i, i);
        }
    }
    out
}

/// Splits `value` into two numbers of `T`.
fn split<T: Real>(value: f64) -> (T, T) {
    let high = T::from_f64(value);
    (high, T::from_f64(value - high.to_f64()))
}

pub(crate) fn centres<T: Real>(points: &Array2<f64>, shift: &[f64]) -> Means<T> {
    let both: Vec<(T, T)> =
        points.outer_iter().flat_map(|p| p.to_vec()).zip(shift.iter().cycle()).map(|(v, s)| split(v - s)).collect();
    let (high, low): (Vec<T>, Vec<T>) = both.into_iter().unzip();
    Means { high: Buffer::new(&high), low: Buffer::new(&low) }
}

/// A factor stored in panels: reciprocals on the diagonal, the identity past `d`.
fn panels<T: Real>(l: &Cholesky) -> Vec<T> {
    let d = l.dim();
    let mut out = vec![T::from_f64(f64::NAN); layout::panel_len(d as u32) as usize];
    for i in 0..d.next_multiple_of(8) {
        for j in 0..i / 8 * 8 + 8 {
            let there = i < d && j <= i;
            let value = match (there, i == j) {
                (true, true) => 1.0 / l.at(i, i),
                (true, false) => l.at(i, j),
                (false, same) => f64::from(u8::from(same)),
            };
            out[layout::panel_index(i as u32, j as u32) as usize] = T::from_f64(value);
        }
    }
    out
}

pub(crate) fn parameters<T: Real>(mixture: &Mixture, shift: &[f64]) -> Parameters<T> {
    let numbers = |all: &mut dyn Iterator<Item = f64>| Buffer::new(&all.map(T::from_f64).collect::<Vec<_>>());
    let factor = match mixture.factors() {
        Factors::Full(all) => Buffer::new(&all.iter().flat_map(panels).collect::<Vec<T>>()),
        Factors::Tied(one) => Buffer::new(&panels::<T>(one)),
        Factors::Diag(sd) => numbers(&mut sd.iter().map(|v| 1.0 / v)),
        Factors::Spherical(sd) => numbers(&mut sd.iter().map(|v| 1.0 / v)),
    };
    let scales = (0..mixture.n_components()).map(|c| mixture.log_weight(c) + mixture.log_normalizer(c));
    let inverses = match mixture.factors() {
        Factors::Full(all) => all.iter().map(inverse).collect(),
        Factors::Tied(one) => vec![inverse(one)],
        Factors::Diag(_) | Factors::Spherical(_) => Vec::new(),
    };
    let low = |v: f64| if v.is_finite() { v - T::from_f64(v).to_f64() } else { 0.0 };
    Parameters {
        means: centres(&mixture.means().to_owned(), shift),
        factor,
        log_scale: numbers(&mut scales.clone()),
        log_scale_low: numbers(&mut scales.map(low)),
        weights: numbers(&mut mixture.weights().iter().copied()),
        whitening: whitening(
            kind_of(mixture) == Kind::Tied,
            &inverses,
            &mixture.means().to_owned(),
            (0..mixture.n_components()).map(|c| mixture.log_weight(c) + mixture.log_normalizer(c)),
            shift,
        ),
    }
}

/// Results of the E-step.
pub(crate) struct Evaluated<T: Real> {
    pub(crate) log_densities: Vec<f64>,
    pub(crate) labels: Vec<u32>,
    pub(crate) responsibilities: Buffer<T>,
    /// Σ w ln p(x), entropy, Σ w.
    pub(crate) totals: Vec<f64>,
}

#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) blocks: u32,
    pub(crate) splits: u32,
    /// Whether solved columns are in global scratch instead of shared memory.
    pub(crate) large: bool,
    /// Whether a thread of the E-step computes several rows.
    pub(crate) several: bool,
    pub(crate) weighted: bool,
    /// Whether a full or tied mixture is evaluated on the tensor cores.
    pub(crate) whitened: bool,
}

pub(crate) const PLAIN: How =
    How { blocks: 2, splits: 1, large: false, several: false, weighted: false, whitened: false };

fn whitened_kernel<T: Real>(is_tied: bool, d: usize) -> Kernel<EStep<T>> {
    e_step::whitened_kernel(is_tied, d as u32).expect("few columns")
}

/// As [`parameters`], from factors of the precisions, which must be upper triangular.
fn precision_parameters<T: Real>(mixture: &PrecisionMixture<'_>, shift: &[f64]) -> Parameters<T> {
    let numbers = |all: &mut dyn Iterator<Item = f64>| Buffer::new(&all.map(T::from_f64).collect::<Vec<_>>());
    let d = mixture.n_features();
    let panels = |c: usize| {
        let u = mixture.factor(c);
        let mut out = vec![T::from_f64(f64::NAN); layout::panel_len(d as u32) as usize];
        for i in 0..d.next_multiple_of(8) {
            for j in 0..i / 8 * 8 + 8 {
                let value = if i < d && j <= i { u.at(j * d + i) } else { 0.0 };
                out[layout::panel_index(i as u32, j as u32) as usize] = T::from_f64(value);
            }
        }
        out
    };
    let lower: Vec<_> = (0..mixture.n_factors())
        .map(|c| Array2::from_shape_fn((d, d), |(i, j)| if j <= i { mixture.factor(c).at(j * d + i) } else { 0.0 }))
        .collect();
    let scale = |c| mixture.log_weight(c) + mixture.log_normalizer(c, FactorShape::Upper).unwrap();
    let scales = (0..mixture.n_components()).map(scale);
    Parameters {
        means: centres(&mixture.means().to_owned(), shift),
        factor: Buffer::new(&(0..mixture.n_factors()).flat_map(panels).collect::<Vec<T>>()),
        log_scale: numbers(&mut scales.clone()),
        log_scale_low: numbers(&mut scales.map(|v| v - T::from_f64(v).to_f64())),
        weights: numbers(&mut mixture.weights().iter().copied()),
        whitening: whitening(
            mixture.covariance_type() == CovarianceType::Tied,
            &lower,
            &mixture.means().to_owned(),
            (0..mixture.n_components())
                .map(|c| mixture.log_weight(c) + mixture.log_normalizer(c, FactorShape::Upper).unwrap()),
            shift,
        ),
    }
}

fn e_step_kernel<T: Real>(kind: Kind, how: How) -> Kernel<EStep<T>> {
    match (kind, how.large) {
        (Kind::Full, false) if how.several => e_step::full_rows(),
        (Kind::Tied, false) if how.several => e_step::tied_rows(),
        (Kind::Full, false) => e_step::full(),
        (Kind::Full, true) => e_step::full_large(),
        (Kind::Tied, false) => e_step::tied(),
        (Kind::Tied, true) => e_step::tied_large(),
        (Kind::Diag, _) => e_step::diag(),
        (Kind::Spherical, _) => e_step::spherical(),
    }
}

/// The E-step from factors of the precisions; full or tied.
pub(crate) fn evaluate_precisions<T: Real>(
    mixture: &PrecisionMixture<'_>,
    x: &Buffer<T>,
    n: usize,
    shift: &[f64],
    how: How,
) -> Evaluated<T> {
    let parameters = precision_parameters::<T>(mixture, shift);
    let is_tied = mixture.covariance_type() == CovarianceType::Tied;
    let kernel = match (is_tied, how.several) {
        _ if how.whitened => whitened_kernel(is_tied, mixture.n_features()),
        (true, true) => e_step::precision_tied_rows(),
        (true, false) => e_step::precision_tied(),
        (false, true) => e_step::precision_full_rows(),
        (false, false) => e_step::precision_full(),
    };
    step(kernel, parameters, x, (n, mixture.n_components(), mixture.n_features()), None, how)
}

pub(crate) fn evaluate<T: Real>(
    mixture: &Mixture,
    x: &Buffer<T>,
    n: usize,
    shift: &[f64],
    row_weights: Option<&[f64]>,
    how: How,
) -> Evaluated<T> {
    let (k, d) = mixture.means().dim();
    let kernel = if how.whitened {
        whitened_kernel(kind_of(mixture) == Kind::Tied, d)
    } else {
        e_step_kernel(kind_of(mixture), how)
    };
    step(kernel, parameters::<T>(mixture, shift), x, (n, k, d), row_weights, how)
}

fn step<T: Real>(
    kernel: Kernel<EStep<T>>,
    parameters: Parameters<T>,
    x: &Buffer<T>,
    (n, k, d): (usize, usize, usize),
    row_weights: Option<&[f64]>,
    how: How,
) -> Evaluated<T> {
    let row_weights = row_weights.map(Buffer::new);
    let mut responsibilities = poison(tiled_len(n as u64, k as u32));
    let mut log_densities = poison::<f64>(n as u64);
    let mut labels = Buffer::new(&vec![u32::MAX; n]);
    let mut partials = poison::<f64>(u64::from(how.blocks) * 3);
    let columns = u64::from(e_step::solved_columns(d as u32));
    let mut scratch = poison(u64::from(how.blocks) * 128 * columns);
    let mut arguments = EStep {
        x: x.pointer(),
        row_weights: row_weights.as_ref().map_or(null(), Buffer::pointer),
        n: n as u64,
        k: k as u32,
        d: d as u32,
        mean_high: parameters.means.high.pointer(),
        mean_low: parameters.means.low.pointer(),
        factor: parameters.factor.pointer(),
        log_scale: parameters.log_scale.pointer(),
        log_scale_low: parameters.log_scale_low.pointer(),
        weights: parameters.weights.pointer(),
        responsibilities: responsibilities.pointer_mut(),
        want_responsibilities: 0,
        weighted: u32::from(how.weighted),
        log_densities: log_densities.pointer_mut(),
        labels: labels.pointer_mut(),
        partials: partials.pointer_mut(),
        scratch: if how.large { scratch.pointer_mut() } else { null_mut() },
        rows_of_thread: if how.several { e_step::AT_ONCE } else { 1 },
        whitening: parameters.whitening.pointer(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { kernel.emulate((how.blocks, 1), arguments) };
    let without = (log_densities.to_vec(), labels.to_vec(), partials.to_vec());
    // With responsibilities the other results are the same, to the bit.
    arguments.want_responsibilities = 1;
    // SAFETY: as before.
    unsafe { kernel.emulate((how.blocks, 1), arguments) };
    let (log_densities, labels) = (log_densities.to_vec(), labels.to_vec());
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!((bits(&without.0), &without.1), (bits(&log_densities), &labels), "with responsibilities");
    assert_eq!(bits(&without.2), bits(&partials.to_vec()), "totals with responsibilities");
    Evaluated { log_densities, labels, responsibilities, totals: reduced(&partials, u64::from(how.blocks), 3, true) }
}

pub(crate) fn reduced(partials: &Buffer<f64>, count: u64, len: u64, scalars: bool) -> Vec<f64> {
    // Runs twice; the second launch adds to the first, and must give exactly twice its result.
    let mut out = poison::<f64>(len);
    let arguments = |out: &mut Buffer<f64>, accumulate| Reduce {
        partials: partials.pointer(),
        count,
        len,
        out: out.pointer_mut(),
        accumulate,
    };
    let kernel = if scalars { reduce::reduce_scalars() } else { reduce::reduce_partials() };
    let grid = (if scalars { len as u32 } else { 2 }, 1);
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { kernel.emulate(grid, arguments(&mut out, 0)) };
    let once = out.to_vec();
    // SAFETY: as above.
    unsafe { kernel.emulate(grid, arguments(&mut out, 1)) };
    for (a, b) in once.iter().zip(out.to_vec()) {
        assert!(2.0 * a == b || !a.is_finite(), "accumulating changed {a} to {b}");
    }
    once
}

/// Flat statistics of the kind under the given responsibilities (including row weights).
pub(crate) fn sums<T: Real>(
    kind: Kind,
    x: &Buffer<T>,
    responsibilities: &Buffer<T>,
    (n, k, d): (usize, usize, usize),
    means: &Means<T>,
    splits: u32,
) -> Vec<f64> {
    let len = statistics_len(kind, k as u32, d as u32);
    let mut partials = poison::<f64>(u64::from(splits) * len);
    let arguments = Sums {
        x: x.pointer(),
        responsibilities: responsibilities.pointer(),
        n: n as u64,
        k: k as u32,
        d: d as u32,
        mean_high: means.high.pointer(),
        mean_low: means.low.pointer(),
        partials: partials.pointer_mut(),
    };
    let kernel = match kind {
        Kind::Full => moments::full::<T>(),
        Kind::Tied => moments::tied::<T>(),
        Kind::Diag => moments::diag::<T>(),
        Kind::Spherical => moments::spherical::<T>(),
    };
    let blocks = moments::blocks(kind, k as u32, d as u32);
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { kernel.emulate((blocks, splits), arguments) };
    reduced(&partials, u64::from(splits), len, false)
}

/// A whole pass, with the result that the engine's `pass` returns.
pub(crate) fn pass<T: Real>(
    mixture: &Mixture,
    rows: &Array2<f64>,
    shift: &[f64],
    row_weights: Option<&[f64]>,
    how: How,
) -> Statistics {
    let (n, d) = rows.dim();
    let k = mixture.n_components();
    let x = tiled::<T>(rows, Some(shift), None);
    let e = evaluate(mixture, &x, n, shift, row_weights, How { weighted: true, ..how });
    let means = centres(&mixture.means().to_owned(), shift);
    let flat = sums(kind_of(mixture), &x, &e.responsibilities, (n, k, d), &means, how.splits);
    let mut out = statistics(mixture.covariance_type(), mixture.means().to_owned(), &flat);
    out.log_likelihood = e.totals[0];
    out.total_weight = e.totals[2];
    out.n_rows = n as u64;
    out
}

pub(crate) fn statistics(kind: CovarianceType, centres: Array2<f64>, flat: &[f64]) -> Statistics {
    let (k, d) = centres.dim();
    let mut out = Statistics::zero(kind, centres);
    out.weight = flat[..k].to_vec();
    out.first = Array2::from_shape_vec((k, d), flat[k..k + k * d].to_vec()).unwrap();
    out.second = flat[k + k * d..].to_vec();
    out
}

/// Returns labels and one-hot responsibilities.
pub(crate) fn nearest<T: Real>(
    x: &Buffer<T>,
    (n, k, d): (usize, usize, usize),
    centres: &Means<T>,
    row_weights: Option<&[f64]>,
) -> (Vec<u32>, Buffer<T>) {
    let row_weights = row_weights.map(Buffer::new);
    let mut labels = Buffer::new(&vec![u32::MAX; n]);
    let mut responsibilities = poison(tiled_len(n as u64, k as u32));
    let arguments = Nearest {
        x: x.pointer(),
        row_weights: row_weights.as_ref().map_or(null(), Buffer::pointer),
        n: n as u64,
        k: k as u32,
        d: d as u32,
        centre_high: centres.high.pointer(),
        centre_low: centres.low.pointer(),
        responsibilities: responsibilities.pointer_mut(),
        labels: labels.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { nearest::nearest::<T>().emulate((2, 1), arguments) };
    (labels.to_vec(), responsibilities)
}
