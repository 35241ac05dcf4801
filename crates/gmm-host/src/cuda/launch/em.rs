//! Launches of the loop on the device.

use cust::memory::DeviceSlice;
use gmm_kernels::fused::halves::Halves;
use gmm_kernels::fused::large::densities::Densities;
use gmm_kernels::fused::large::moments::Moments;
use gmm_kernels::fused::large::norms::{Norms, norms as norms_kernel};
use gmm_kernels::fused::large::{self, Large};
use gmm_kernels::fused::narrow::{self, Cut, Narrow};
use gmm_kernels::fused::place::Place;
use gmm_kernels::fused::state::STATE_LEN;
use gmm_kernels::fused::update::{self, Matrices, TRACE, Update, update as update_kernel, update_wide, wide_matrix};
use gmm_kernels::fused::warpgroups::Warpgroups;
use gmm_kernels::fused::{self, Pass, Variant};
use gmm_kernels::layout::{Kind, packed_len, second_len, tiled_len, tiles};
use gmm_kernels::{THREADS, device::WARP};

use super::halves::Coded;
use super::{Chunk, Launcher, at_least, check_chunk, or_null, pointer};
use crate::Error;
use crate::cuda::plan::Chunks;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

/// The buffers of a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopBuffers {
    /// State, `(4,)`.
    pub(crate) state: DeviceSlice<u32>,
    /// `(k,)`.
    pub(crate) empty: DeviceSlice<u32>,
    /// The last [`TRACE`] mean log-likelihoods.
    pub(crate) trace: DeviceSlice<f64>,
    /// `(k,)`.
    pub(crate) weights: DeviceSlice<f64>,
    /// `(k, d)`, less the shift.
    pub(crate) means: DeviceSlice<f64>,
    /// Packed, `second_len(kind, k, d)`.
    pub(crate) covariances: DeviceSlice<f64>,
    /// `(2,)`.
    pub(crate) carry: DeviceSlice<f64>,
    /// `(8*groups,)`.
    pub(crate) constants: DeviceSlice<f64>,
    /// [`LoopPlan::coefficients`].
    pub(crate) coefficients: DeviceSlice<f64>,
    /// `(k, d*(d+1)/2)` where [`Kernels::wants_roots`].
    pub(crate) roots: Option<DeviceSlice<f64>>,
    /// [`Place::sums`](fused::place::Place::sums).
    pub(crate) sums: DeviceSlice<f64>,
    /// `(d*(d+1)/2,)` where the covariance is tied.
    pub(crate) scatter: Option<DeviceSlice<f64>>,
    /// `(k, wide_matrix(d))` where they are in device memory.
    pub(crate) matrices: Option<DeviceSlice<f64>>,
    /// `(blocks, sums)` or `(splits, sums)`.
    pub(crate) partials: DeviceSlice<f64>,
    /// What the two kernels of a chunk leave to one another.
    pub(crate) between: Option<Between>,
    /// What [`Kernels::Halves`] and [`Kernels::Warpgroups`] read.
    pub(crate) coded: Option<Coded>,
}

/// The buffers between the two kernels of [`Kernels::Large`], of [`Kernels::Halves`] and of [`Kernels::Warpgroups`].
#[derive(Clone, Copy)]
pub(crate) struct Between {
    /// `tiled_len(n, 1)`, of all rows, where norms are a feature.
    pub(crate) norms: Option<DeviceSlice<f64>>,
    /// [`Large::exponentials`] of a chunk, of the rows' type; for warpgroups [`Warpgroups::rows`].
    pub(crate) exponentials: DeviceSlice<f64>,
    /// [`Large::factors`] of a chunk; `f32` for halves; for warpgroups [`Warpgroups::normalisers`], `f32` too.
    pub(crate) factors: DeviceSlice<f64>,
    /// [`large::likelihoods`] of a chunk.
    pub(crate) likelihoods: DeviceSlice<f64>,
    /// `f32` and `u32`: [`Warpgroups::densities`] of a chunk.
    pub(crate) joint: DeviceSlice<f64>,
    pub(crate) responsibilities: DeviceSlice<f64>,
}

/// The kernels of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernels {
    /// One, with so many blocks.
    Fused(Variant, u32),
    /// One for few columns, with components `k` and so many blocks.
    Narrow(Cut, u32, u32),
    /// Two for each chunk.
    Large(Large, Chunks),
    /// The same in halves.
    Halves(Halves, Chunks),
    /// The same in heads or halves, by warpgroups.
    Warpgroups(Warpgroups, Chunks),
}

impl Kernels {
    /// Where features lie.
    pub(crate) const fn place(&self) -> Place {
        match self {
            Self::Fused(variant, _) => variant.place(),
            Self::Narrow(_, k, _) => narrow::place(*k),
            Self::Large(of, _) | Self::Halves(Halves { of, .. }, _) => of.place,
            Self::Warpgroups(of, _) => of.place(),
        }
    }

    /// Partial results that a pass leaves.
    pub(crate) const fn partials(&self) -> u32 {
        match self {
            Self::Fused(_, blocks) | Self::Narrow(.., blocks) => *blocks,
            Self::Large(_, chunks) | Self::Halves(_, chunks) | Self::Warpgroups(_, chunks) => chunks.splits,
        }
    }

    /// Whether densities are taken about the means, of the inverses of the Cholesky factors.
    pub(crate) const fn wants_roots(&self, kind: Kind) -> bool {
        match self {
            Self::Fused(..) | Self::Large(..) => false,
            Self::Narrow(..) => true,
            Self::Halves(..) | Self::Warpgroups(..) => matches!(kind, Kind::Full),
        }
    }

    /// How those for chunks go over the rows.
    pub(crate) const fn chunks(&self) -> Option<Chunks> {
        match self {
            Self::Fused(..) | Self::Narrow(..) => None,
            Self::Large(_, chunks) | Self::Halves(_, chunks) | Self::Warpgroups(_, chunks) => Some(*chunks),
        }
    }
}

impl Chunks {
    /// First row and rows of each chunk of `n` rows. Chunks are whole tiles, so what belongs to them lies one after another.
    pub(super) fn over(self, n: u64) -> impl Iterator<Item = (u64, u64)> {
        (0..n).step_by(self.chunk as usize).map(move |start| (start, self.chunk.min(n - start)))
    }
}

/// What stays the same in a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopPlan {
    pub(crate) shape: Shape,
    pub(crate) kernels: Kernels,
    pub(crate) matrices: Matrices,
    pub(crate) max_iter: u32,
    pub(crate) tol: f64,
    pub(crate) reg_covar: f64,
    pub(crate) total_weight: f64,
    /// See [`Update`].
    pub(crate) most_terms: f64,
    /// See [`Update`].
    pub(crate) least_left: f64,
}

impl LoopPlan {
    /// Coefficients of densities: [`Place::coefficients`](fused::place::Place::coefficients), or none where roots take their place.
    pub(crate) const fn coefficients(&self) -> u64 {
        let roots = self.kernels.wants_roots(self.shape.kernel_kind());
        if roots { 0 } else { self.kernels.place().coefficients() }
    }
}

impl Launcher<'_> {
    /// A pass over all rows, and its partial results into the sums.
    pub(crate) fn loop_pass<T: Number>(
        self,
        plan: &LoopPlan,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (shape, place) = (&plan.shape, plan.kernels.place());
        check_chunk(shape, rows);
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.coefficients, plan.coefficients(), "coefficients");
        at_least(&b.constants, 8 * u64::from(place.groups), "constants");
        at_least(&b.partials, u64::from(plan.kernels.partials()) * place.sums(), "partial sums");
        match plan.kernels {
            Kernels::Fused(variant, blocks) => self.fused_pass(shape, variant, blocks, iteration, rows, b)?,
            Kernels::Narrow(cut, _, blocks) => self.narrow_pass(shape, cut, blocks, iteration, rows, b)?,
            Kernels::Large(of, chunks) => self.large_pass(shape, of, &chunks, iteration, rows, b)?,
            Kernels::Halves(halves, chunks) => self.halves_pass(shape, halves, &chunks, iteration, rows, b)?,
            Kernels::Warpgroups(of, chunks) => self.warpgroups_pass(shape, of, &chunks, iteration, rows, b)?,
        }
        self.reduce_blocks(&b.partials, plan.kernels.partials().into(), place.sums(), &b.sums)
    }

    fn fused_pass<T: Number>(
        self,
        shape: &Shape,
        variant: Variant,
        blocks: u32,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let pass = Pass::<T> {
            state: pointer(&b.state),
            iteration,
            x: pointer(&rows.x),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            d: shape.d,
            derive: fused::derived(shape.kernel_kind()),
            coefficients: pointer(&b.coefficients),
            constants: pointer(&b.constants),
            partials: pointer(&b.partials),
        };
        self.pass(shape, variant, blocks, pass)
    }

    fn narrow_pass<T: Number>(
        self,
        shape: &Shape,
        cut: Cut,
        blocks: u32,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        assert_eq!(Cut::of(shape.k, shape.d), Some(cut));
        assert!(T::BYTES == 4 && shape.kernel_kind() == Kind::Full, "few columns are f32 with full covariances");
        let roots = b.roots.as_ref().expect("a plan of few columns has roots");
        let pass = Narrow {
            state: pointer(&b.state),
            iteration,
            x: pointer(&rows.x).cast_const().cast(),
            row_weights: or_null(rows.row_weights.as_ref()),
            n: rows.n,
            k: shape.k,
            groups: narrow::place(shape.k).groups,
            warps: cut.warps,
            means: pointer(&b.means),
            roots: pointer(roots),
            constants: pointer(&b.constants),
            partials: pointer(&b.partials),
        };
        // SAFETY: lengths were checked against the fields' formulas, here, in `update` and by the caller.
        unsafe { self.launch(narrow::kernel(cut), (blocks, 1), pass) }
    }

    fn large_pass<T: Number>(
        self,
        shape: &Shape,
        of: Large,
        chunks: &Chunks,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (kind, d, place) = (shape.kernel_kind(), shape.d, of.place);
        let between = b.between.as_ref().expect("a plan of chunks has buffers for them");
        let most = chunks.chunk.min(rows.n);
        at_least(&between.exponentials, of.exponentials(most) * shape.number_bytes() / 8, "exponentials");
        at_least(&between.factors, of.factors(most), "factors");
        at_least(&between.likelihoods, large::likelihoods(most), "likelihoods");
        between.norms.iter().for_each(|norms| at_least(norms, tiled_len(rows.n, 1), "norms"));
        assert_eq!(between.norms.is_some(), kind == Kind::Spherical, "norms");
        assert_eq!(of, Large::of(kind, shape.k, d));
        let exponentials = pointer(&between.exponentials).cast::<T>();
        for (start, n) in chunks.over(rows.n) {
            let at = start as usize;
            let x = rows.x.index(at * d as usize..);
            let norms = between.norms.map(|all| all.index(at..));
            let row_weights = rows.row_weights.map(|all| all.index(at..));
            let densities = Densities::<T> {
                state: pointer(&b.state),
                iteration,
                x: pointer(&x),
                norms: or_null(norms.as_ref()),
                row_weights: or_null(row_weights.as_ref()),
                n,
                d,
                derive: fused::derived(kind),
                steps: place.steps,
                groups: place.groups,
                classes: place.classes,
                coefficients: pointer(&b.coefficients),
                constants: pointer(&b.constants),
                exponentials,
                factors: pointer(&between.factors),
                likelihoods: pointer(&between.likelihoods),
            };
            let moments = Moments::<T> {
                state: pointer(&b.state),
                iteration,
                x: pointer(&x),
                norms: or_null(norms.as_ref()),
                n,
                d,
                derive: fused::derived(kind),
                steps: place.steps,
                groups: place.groups,
                classes: place.classes,
                exponentials,
                factors: pointer(&between.factors),
                likelihoods: pointer(&between.likelihoods),
                splits: chunks.splits,
                accumulate: (start > 0).into(),
                partials: pointer(&b.partials),
            };
            let blocks = u64::from(chunks.blocks).min(tiles(n)) as u32;
            let warps = of.units(d) * chunks.splits;
            // SAFETY: lengths were checked against the fields' formulas, here and by the caller.
            unsafe {
                self.launch(large::densities::<T>(of.family, of.at_once), (blocks, 1), densities)?;
                let grid = (warps.div_ceil(THREADS / WARP), 1);
                self.launch(large::moments::<T>(of.family, of.at_once), grid, moments)?;
            }
        }
        Ok(())
    }

    /// Squared norms of all rows, `tiled_len(n, 1)`.
    pub(crate) fn norms<T: Number>(self, shape: &Shape, rows: &Chunk<T>, out: &DeviceSlice<f64>) -> Result<(), Error> {
        check_chunk(shape, rows);
        at_least(out, tiled_len(rows.n, 1), "norms");
        let a = Norms::<T> { x: pointer(&rows.x), n: rows.n, d: shape.d, norms: pointer(out) };
        let grid = tiles(rows.n).min(1 << 16) as u32;
        // SAFETY: lengths were checked against the fields' formulas.
        unsafe { self.launch(norms_kernel::<T>(), (grid, 1), a) }
    }

    /// The M-step that ends an iteration, and the next coefficients; at iteration 0, those of the parameters that are there.
    pub(crate) fn update(self, plan: &LoopPlan, iteration: u32, b: &LoopBuffers) -> Result<(), Error> {
        let (shape, place) = (&plan.shape, plan.kernels.place());
        let (kind, k, d) = (shape.kernel_kind(), u64::from(shape.k), u64::from(shape.d));
        at_least(&b.state, STATE_LEN as u64, "state");
        at_least(&b.sums, place.sums(), "sums");
        b.scatter.iter().for_each(|s| at_least(s, packed_len(shape.d), "scatter"));
        assert_eq!(b.scatter.is_some(), kind == gmm_kernels::layout::Kind::Tied, "scatter");
        at_least(&b.weights, k, "weights");
        at_least(&b.means, k * d, "means");
        at_least(&b.covariances, second_len(kind, shape.k, shape.d), "covariances");
        at_least(&b.empty, k, "empty");
        at_least(&b.coefficients, plan.coefficients(), "coefficients");
        at_least(&b.constants, 8 * u64::from(place.groups), "constants");
        at_least(&b.carry, 2, "carry");
        assert_eq!(b.roots.is_some(), plan.kernels.wants_roots(kind), "roots");
        b.roots.iter().for_each(|roots| at_least(roots, k * packed_len(shape.d), "roots"));
        at_least(&b.trace, TRACE, "trace");
        assert_eq!(b.matrices.is_some(), plan.matrices == Matrices::Device, "matrices");
        b.matrices.iter().for_each(|matrices| at_least(matrices, k * wide_matrix(shape.d), "matrices"));
        let a = Update {
            state: pointer(&b.state),
            iteration,
            max_iter: plan.max_iter,
            tol: plan.tol,
            kind: update::number(kind),
            k: shape.k,
            d: shape.d,
            steps: place.steps,
            groups: place.groups,
            classes: place.classes,
            sums: pointer(&b.sums),
            scatter: or_null(b.scatter.as_ref()),
            total_weight: plan.total_weight,
            reg_covar: plan.reg_covar,
            most_terms: plan.most_terms,
            least_left: plan.least_left,
            weights: pointer(&b.weights),
            means: pointer(&b.means),
            covariances: pointer(&b.covariances),
            empty: pointer(&b.empty),
            coefficients: pointer(&b.coefficients),
            constants: pointer(&b.constants),
            roots: or_null(b.roots.as_ref()),
            carry: pointer(&b.carry),
            trace: pointer(&b.trace),
            matrices: or_null(b.matrices.as_ref()),
        };
        let kernel = match plan.matrices {
            Matrices::Shared => update_kernel(),
            Matrices::Device => update_wide(),
        };
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(kernel, (8 * place.groups, 1), a)? };
        match plan.kernels {
            Kernels::Halves(halves, _) => self.encode(shape, halves, iteration, b),
            Kernels::Warpgroups(of, _) => self.encode_heads(shape, of, iteration, b),
            Kernels::Fused(..) | Kernels::Narrow(..) | Kernels::Large(..) => Ok(()),
        }
    }
}
