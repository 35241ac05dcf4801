//! A loop in the emulator, with each of the EM paths.

use super::bayes::{Conjugate, WITHOUT_PRIOR};
use crate::data::column_means;
use crate::harness::{poison, tiled};
use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::chunked::double_precision::densities::Densities;
use gmm_kernels::em::chunked::double_precision::moments::Moments;
use gmm_kernels::em::chunked::double_precision::norms::{Norms, norms};
use gmm_kernels::em::chunked::double_precision::{self, DoublePrecision};
use gmm_kernels::em::chunked::half_precision::HalfPrecision;
use gmm_kernels::em::fused::{Instance, Pass};
use gmm_kernels::em::m_step::{self, Update};
use gmm_kernels::em::small_d::{self, Partition, SmallDPass};
use gmm_kernels::em::state::STATE_LEN;
use gmm_kernels::em::wgmma::full::Full;
use gmm_kernels::em::wgmma::linear::Linear;
use gmm_kernels::layout::{Kind, packed_len, tiled_len};
use gmm_kernels::reduce::{self, Reduce};
use gmm_model::bayes::BayesPrior;
use gmm_model::{Covariances, Mixture};
use ndarray::Array2;
use std::ptr::{null, null_mut};

/// Results of a loop of EM.
pub(super) struct Loop {
    pub(super) state: Vec<u32>,
    pub(super) trace: Vec<f64>,
    pub(super) weights: Vec<f64>,
    /// `(k, d)`, including the shift.
    pub(super) means: Vec<f64>,
    pub(super) covariances: Vec<f64>,
    pub(super) empty: Vec<u32>,
    /// Operands of the next densities; roots only for paths that use them.
    pub(super) coefficients: Vec<f64>,
    pub(super) constants: Vec<f64>,
    pub(super) roots: Vec<f64>,
    /// Σ r, with a prior.
    pub(super) counts: Vec<f64>,
}

/// Covariances, packed as in the statistics.
pub(super) fn packed(mixture: &Mixture) -> Vec<f64> {
    let (k, d) = mixture.means().dim();
    let lower = |a: ndarray::ArrayView2<'_, f64>| {
        (0..d).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|at| a[at]).collect::<Vec<_>>()
    };
    match mixture.covariances() {
        Covariances::Full(all) => (0..k).flat_map(|c| lower(all.index_axis(ndarray::Axis(0), c))).collect(),
        Covariances::Tied(one) => lower(one.view()),
        Covariances::Diag(all) => all.iter().copied().collect(),
        Covariances::Spherical(all) => all.to_vec(),
    }
}

pub(super) struct Options<'a> {
    pub(super) row_weights: Option<&'a [f64]>,
    pub(super) iterations: u32,
    pub(super) tol: f64,
    pub(super) reg_covar: f64,
    pub(super) blocks: u32,
    pub(super) how: How,
    /// Limit on a block's shared memory, in bytes.
    pub(super) room: u64,
    /// Whether the M-step's matrices are in device memory.
    pub(super) wide: bool,
    /// The prior of variational Bayes.
    pub(super) prior: Option<&'a BayesPrior>,
}

/// The kernels that make a pass.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum How {
    /// A single kernel.
    Fused,
    /// Two kernels per chunk of this many rows.
    DoublePrecision(usize),
    /// As `DoublePrecision`, in split fp16, or in fp16 if `one`.
    HalfPrecision { chunk: usize, one: bool },
    /// A single kernel whose warps each have their own components.
    SmallDPass,
    /// Warpgroups in fp16, for features that are columns.
    Linear { chunk: usize },
    /// Warpgroups in split fp16 (or fp16 if `one`), for full covariances.
    Full { chunk: usize, one: bool },
}

pub(super) const PLAIN: Options<'static> = Options {
    row_weights: None,
    iterations: 1,
    tol: 0.0,
    reg_covar: 1e-6,
    blocks: 2,
    how: How::Fused,
    room: u64::MAX,
    wide: false,
    prior: None,
};

pub(super) fn run<T: Real>(kind: Kind, start: &Mixture, data: &Array2<f64>, o: &Options<'_>) -> Loop {
    let ((n, d), k) = (data.dim(), start.n_components());
    let shift = column_means(data);
    let place = match o.how {
        How::Fused => Instance::of(kind, k as u32, d as u32).unwrap().place(),
        How::SmallDPass => small_d::place(k as u32),
        How::DoublePrecision(_) => DoublePrecision::of(kind, k as u32, d as u32).place,
        How::HalfPrecision { one, .. } => HalfPrecision::of(kind, k as u32, d as u32, one).of.place,
        How::Linear { .. } => Linear::of(kind, k as u32, d as u32).unwrap().place,
        How::Full { one, .. } => Full::of(k as u32, d as u32, one).unwrap().place(),
    };
    let x = tiled::<T>(data, Some(&shift), None);
    let row_weights = o.row_weights.map(Buffer::new);
    let total_weight = o.row_weights.map_or(n as f64, |w| w.iter().sum());
    let conjugate = o.prior.map(|prior| Conjugate::new(prior, kind, k, &shift));
    let begun = o.prior.map(|prior| prior.update_from(start, total_weight).unwrap());
    let start = begun.as_ref().map_or(start, |posterior| posterior.mixture());
    let mut scatter: Vec<f64> = (0..d)
        .flat_map(|i| (0..=i).map(move |j| (i, j)))
        .map(|(i, j)| {
            let held = |r: usize, c: usize| T::from_f64(data[[r, c]] - shift[c]).to_f64();
            (0..n).map(|r| o.row_weights.map_or(1.0, |w| w[r]) * held(r, i) * held(r, j)).sum()
        })
        .collect();
    assert_eq!(scatter.len() as u64, packed_len(d as u32));
    if let Some(conjugate) = &conjugate {
        conjugate.add_to_scatter(&mut scatter);
    }
    let scatter = Buffer::new(&scatter);
    let mut state = Buffer::new(&[0_u32; STATE_LEN]);
    let mut weights = match o.prior {
        None => Buffer::new(start.weights().as_slice().unwrap()),
        Some(_) => poison::<f64>(k as u64),
    };
    let mut counts = Buffer::new(&begun.as_ref().map_or(Vec::new(), |posterior| posterior.counts().to_vec()));
    let mut divergences = poison::<f64>(2 * k as u64);
    let means: Vec<f64> = start.means().outer_iter().flat_map(|m| (&m - &array_of(&shift)).to_vec()).collect();
    let mut means = Buffer::new(&means);
    let mut covariances = Buffer::new(&packed(start));
    let mut empty = Buffer::new(&vec![u32::MAX; k]);
    // Empty if roots are used instead, as on the host.
    let has_roots =
        kind == Kind::Full && matches!(o.how, How::HalfPrecision { .. } | How::SmallDPass | How::Full { .. });
    let mut coefficients = Buffer::new(&vec![0.0; if has_roots { 0 } else { place.coefficients() as usize }]);
    let mut constants = poison::<f64>(8 * u64::from(place.groups));
    let mut carry = poison::<f64>(2);
    let mut trace = poison::<f64>(m_step::TRACE);
    // Warpgroup kernels write only the partial sums of actual features.
    let partials_len = u64::from(o.blocks) * place.sums();
    let mut partials = match o.how {
        How::Full { .. } => Buffer::new(&vec![0.0; partials_len as usize]),
        _ => poison::<f64>(partials_len),
    };
    let mut sums = poison::<f64>(place.sums());
    let pass = Passes::<T> { kind, n: n as u64, k: k as u32, d: d as u32, o, x: &x, row_weights: row_weights.as_ref() };
    let mut roots = poison::<f64>(k as u64 * packed_len(d as u32));
    let mut matrices = poison::<f64>(if o.wide { k as u64 * m_step::wide_matrix(d as u32) } else { 0 });
    let mut coded = pass.coded();
    let mut by_warpgroups = pass.for_warpgroups();
    let mut full_operands = pass.full_operands();
    for iteration in 0..=o.iterations {
        if iteration > 0 {
            let (state, coefficients) = (state.pointer(), coefficients.pointer());
            match o.how {
                How::Fused => pass.fused(iteration, state, coefficients, constants.pointer(), &mut partials),
                How::DoublePrecision(chunk) => {
                    pass.large(chunk, iteration, state, coefficients, constants.pointer(), &mut partials)
                }
                How::HalfPrecision { chunk, .. } => pass.halves(chunk, iteration, state, &coded, &mut partials),
                How::SmallDPass => pass.narrow(iteration, state, &means, &roots, &constants, &mut partials),
                How::Linear { chunk } => pass.linear(chunk, iteration, state, &by_warpgroups, &mut partials),
                How::Full { chunk, .. } => {
                    pass.full(chunk, iteration, state, &coded, &full_operands, &mut partials);
                }
            }
            let arguments = Reduce {
                partials: partials.pointer(),
                count: o.blocks.into(),
                len: place.sums(),
                out: sums.pointer_mut(),
                accumulate: 0,
            };
            // SAFETY: as above.
            unsafe { reduce::of_blocks(place.sums()).emulate((5, 1), arguments) };
        }
        let arguments = Update {
            state: state.pointer_mut(),
            iteration,
            max_iter: o.iterations,
            tol: o.tol,
            kind: m_step::number(kind),
            k: k as u32,
            d: d as u32,
            steps: place.steps,
            groups: place.groups,
            classes: place.classes,
            sums: sums.pointer(),
            scatter: scatter.pointer(),
            total_weight,
            reg_covar: o.reg_covar,
            most_terms: 1e7,
            least_left: 1e-6,
            about_means: 0,
            weights: weights.pointer_mut(),
            means: means.pointer_mut(),
            covariances: covariances.pointer_mut(),
            empty: empty.pointer_mut(),
            coefficients: coefficients.pointer_mut(),
            constants: constants.pointer_mut(),
            roots: if has_roots { roots.pointer_mut() } else { null_mut() },
            carry: carry.pointer_mut(),
            trace: trace.pointer_mut(),
            matrices: if o.wide { matrices.pointer_mut() } else { null_mut() },
            counts: counts.pointer_mut(),
            divergences: divergences.pointer_mut(),
            ..conjugate.as_ref().map_or(WITHOUT_PRIOR, Conjugate::arguments)
        };
        let kernel = match (o.prior.is_some(), o.wide) {
            (false, false) => m_step::update(),
            (false, true) => m_step::update_wide(),
            (true, false) => m_step::bayes_update(),
            (true, true) => m_step::bayes_update_wide(),
        };
        // SAFETY: as above.
        unsafe { kernel.emulate((8 * place.groups, 1), arguments) };
        match o.how {
            How::HalfPrecision { .. } => {
                pass.encode(iteration, &mut state, &coefficients, &roots, &means, &constants, &mut coded);
            }
            How::Linear { .. } => {
                pass.encode_linear(iteration, &mut state, &coefficients, &means, &constants, &mut by_warpgroups);
            }
            How::Full { .. } => {
                let of = [&roots, &means, &constants];
                pass.encode_full(iteration, &mut state, of, &mut coded, &mut full_operands);
            }
            _ => {}
        }
    }
    let means = means.to_vec().iter().enumerate().map(|(i, m)| m + shift[i % d]).collect();
    Loop {
        state: state.to_vec(),
        trace: trace.to_vec()[..o.iterations as usize].to_vec(),
        weights: weights.to_vec(),
        means,
        covariances: covariances.to_vec(),
        empty: empty.to_vec(),
        coefficients: coefficients.to_vec(),
        constants: constants.to_vec(),
        roots: if has_roots { roots.to_vec() } else { Vec::new() },
        counts: counts.to_vec(),
    }
}

/// Arguments that all passes over the same rows share.
pub(super) struct Passes<'a, T: Real> {
    pub(super) kind: Kind,
    pub(super) n: u64,
    pub(super) k: u32,
    pub(super) d: u32,
    pub(super) o: &'a Options<'a>,
    pub(super) x: &'a Buffer<T>,
    pub(super) row_weights: Option<&'a Buffer<f64>>,
}

impl<T: Real> Passes<'_, T> {
    fn fused(
        &self,
        iteration: u32,
        state: *const u32,
        coefficients: *const f64,
        constants: *const f64,
        partials: &mut Buffer<f64>,
    ) {
        let instance = Instance::of(self.kind, self.k, self.d).unwrap().fitting(T::BYTES, self.o.room);
        let arguments = Pass {
            state,
            iteration,
            x: self.x.pointer().cast(),
            number_bytes: T::BYTES,
            row_weights: self.row_weights.map_or(null(), Buffer::pointer),
            n: self.n,
            d: self.d,
            derive: gmm_kernels::em::features::derived(self.kind),
            coefficients,
            constants,
            partials: partials.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document, here and below.
        unsafe { gmm_kernels::em::fused::kernel(instance).emulate((self.o.blocks, 1), arguments) };
    }

    fn narrow(
        &self,
        iteration: u32,
        state: *const u32,
        means: &Buffer<f64>,
        roots: &Buffer<f64>,
        constants: &Buffer<f64>,
        partials: &mut Buffer<f64>,
    ) {
        let cut = Partition::of(self.k, self.d).unwrap();
        let arguments = SmallDPass {
            state,
            iteration,
            x: self.rows(),
            row_weights: self.row_weights.map_or(null(), Buffer::pointer),
            n: self.n,
            k: self.k,
            groups: small_d::place(self.k).groups,
            warps: cut.warps,
            means: means.pointer(),
            roots: roots.pointer(),
            constants: constants.pointer(),
            partials: partials.pointer_mut(),
        };
        // SAFETY: as above.
        unsafe { small_d::kernel(cut).emulate((self.o.blocks, 1), arguments) };
    }

    /// Squared norms of the rows.
    pub(super) fn norms(&self) -> Buffer<f64> {
        let mut norm = poison::<f64>(tiled_len(self.n, 1));
        let arguments = Norms::<T> { x: self.x.pointer(), n: self.n, d: self.d, norms: norm.pointer_mut() };
        // SAFETY: as above.
        unsafe { norms::<T>().emulate((2, 1), arguments) };
        norm
    }

    fn large(
        &self,
        chunk: usize,
        iteration: u32,
        state: *const u32,
        coefficients: *const f64,
        constants: *const f64,
        partials: &mut Buffer<f64>,
    ) {
        let of = DoublePrecision::of(self.kind, self.k, self.d);
        let (d, chunk, derive) = (self.d, chunk as u64, gmm_kernels::em::features::derived(self.kind));
        let norm = self.norms();
        let mut exponentials = poison::<T>(of.exponentials(chunk));
        let mut factors = poison::<f64>(of.factors(chunk));
        let mut likelihoods = poison::<f64>(double_precision::likelihoods(chunk));
        for start in (0..self.n).step_by(chunk as usize) {
            let n = chunk.min(self.n - start);
            let x = self.x.pointer().wrapping_add((start * u64::from(d)) as usize);
            let norms = norm.pointer().wrapping_add(start as usize);
            let densities = Densities::<T> {
                state,
                iteration,
                x,
                norms,
                row_weights: self.row_weights.map_or(null(), |w| w.pointer().wrapping_add(start as usize)),
                n,
                d,
                derive,
                steps: of.place.steps,
                groups: of.place.groups,
                classes: of.place.classes,
                coefficients,
                constants,
                exponentials: exponentials.pointer_mut(),
                factors: factors.pointer_mut(),
                likelihoods: likelihoods.pointer_mut(),
            };
            let moments = Moments::<T> {
                state,
                iteration,
                x,
                norms,
                n,
                d,
                derive,
                steps: of.place.steps,
                groups: of.place.groups,
                classes: of.place.classes,
                exponentials: exponentials.pointer(),
                factors: factors.pointer(),
                likelihoods: likelihoods.pointer(),
                splits: self.o.blocks,
                accumulate: (start > 0).into(),
                partials: partials.pointer_mut(),
            };
            let grid = ((of.units(d) * self.o.blocks).div_ceil(4), 1);
            // SAFETY: as above.
            unsafe {
                double_precision::densities::<T>(of.family, of.at_once).emulate((2, 1), densities);
                double_precision::moments::<T>(of.family, of.at_once).emulate(grid, moments);
            }
        }
    }
}

pub(super) fn array_of(v: &[f64]) -> ndarray::ArrayView1<'_, f64> {
    ndarray::ArrayView1::from(v)
}
