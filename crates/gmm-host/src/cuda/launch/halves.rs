//! Launches of passes in halves.

use cust::memory::DeviceSlice;
use gmm_kernels::fused::halves::densities::Densities;
use gmm_kernels::fused::halves::encode::{Encode, halves_encode};
use gmm_kernels::fused::halves::moments::Moments;
use gmm_kernels::fused::halves::scales::{Scales, halves_scales};
use gmm_kernels::fused::halves::{self};
use gmm_kernels::fused::large::Large;
use gmm_kernels::fused::{self, update};
use gmm_kernels::layout::{Kind, packed_len, tiled_len, tiles};
use gmm_kernels::{THREADS, device::WARP};

use super::em::{Kernels, LoopBuffers, LoopPlan};
use super::{Chunk, Launcher, at_least, or_null, pointer};
use crate::Error;
use crate::cuda::plan::{Chunks, Shape};
use crate::cuda::upload::Number;

/// Coefficients in halves. Lengths are in `f64`; what lies there says its field.
#[derive(Clone, Copy)]
pub(crate) struct Coded {
    /// `u32`: [`halves::operands`].
    pub(crate) operands: DeviceSlice<f64>,
    /// `f32`: [`halves::offsets`].
    pub(crate) offsets: DeviceSlice<f64>,
    /// `f32`: `(8*groups, 2)`.
    pub(crate) scalars: DeviceSlice<f64>,
    /// `f32`: `(d+1,)`.
    pub(crate) scales: DeviceSlice<f64>,
    /// `(k, d*(d+1)/2)` for full covariances.
    pub(crate) roots: Option<DeviceSlice<f64>>,
}

impl Coded {
    /// Checks lengths.
    fn check(&self, of: Large, shape: &Shape) {
        let (kind, k, d) = (shape.kernel_kind(), u64::from(shape.k), shape.d);
        let words = |slice: &DeviceSlice<f64>, len: u64, what: &str| at_least(slice, len.div_ceil(2), what);
        words(&self.operands, halves::operands(of, kind, d), "operands");
        words(&self.offsets, halves::offsets(of, kind, d), "offsets");
        words(&self.scalars, 16 * u64::from(of.place.groups), "scalars");
        words(&self.scales, u64::from(d) + 1, "scales");
        assert_eq!(self.roots.is_some(), kind == Kind::Full, "roots");
        self.roots.iter().for_each(|roots| at_least(roots, k * packed_len(d), "roots"));
    }
}

impl Launcher<'_> {
    pub(super) fn halves_pass<T: Number>(
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
        let coded = b.coded.as_ref().expect("a plan of halves has buffers for them");
        let most = chunks.chunk.min(rows.n);
        at_least(&between.exponentials, halves::exponentials(of, most).div_ceil(2), "exponentials");
        at_least(&between.factors, of.factors(most).div_ceil(2), "factors");
        at_least(&between.likelihoods, halves::likelihoods(most), "likelihoods");
        between.norms.iter().for_each(|norms| at_least(norms, tiled_len(rows.n, 1), "norms"));
        coded.check(of, shape);
        assert_eq!(between.norms.is_some(), kind == Kind::Spherical, "norms");
        assert_eq!(of, Large::of(kind, shape.k, d));
        assert!(T::BYTES == 4 && rows.row_weights.is_none(), "rows in halves are f32 and weigh 1");
        let mut start = 0;
        while start < rows.n {
            let n = chunks.chunk.min(rows.n - start);
            // Chunks are whole tiles, so the pieces follow one another.
            let at = start as usize;
            let x = pointer(&rows.x.index(at * d as usize..)).cast_const().cast::<f32>();
            let norms = between.norms.map(|all| all.index(at..));
            let densities = Densities {
                state: pointer(&b.state),
                iteration,
                x,
                norms: or_null(norms.as_ref()),
                n,
                d,
                derive: fused::derived(kind),
                steps: halves::steps(of, kind, d),
                groups: place.groups,
                scales: pointer(&coded.scales).cast(),
                operands: pointer(&coded.operands).cast(),
                offsets: pointer(&coded.offsets).cast(),
                scalars: pointer(&coded.scalars).cast(),
                exponentials: pointer(&between.exponentials).cast(),
                factors: pointer(&between.factors).cast(),
                likelihoods: pointer(&between.likelihoods),
            };
            let moments = Moments {
                state: pointer(&b.state),
                iteration,
                x,
                norms: or_null(norms.as_ref()),
                n,
                d,
                derive: fused::derived(kind),
                steps: place.steps,
                groups: place.groups,
                classes: place.classes,
                scales: pointer(&coded.scales).cast(),
                exponentials: pointer(&between.exponentials).cast(),
                factors: pointer(&between.factors).cast(),
                likelihoods: pointer(&between.likelihoods),
                splits: chunks.splits,
                accumulate: (start > 0).into(),
                partials: pointer(&b.partials),
            };
            let blocks = u64::from(chunks.blocks).min(tiles(n)) as u32;
            let warps = of.units(d) * chunks.splits;
            // SAFETY: lengths were checked against the fields' formulas, here and by the caller.
            unsafe {
                self.launch(halves::densities(of, d), (blocks, 1), densities)?;
                self.launch(halves::moments(of), (warps.div_ceil(THREADS / WARP), 1), moments)?;
            }
            start += n;
        }
        Ok(())
    }

    /// Scales of the columns; nothing where the plan has no halves.
    pub(crate) fn scales<T: Number>(self, plan: &LoopPlan, rows: &Chunk<T>, b: &LoopBuffers) -> Result<(), Error> {
        let (Kernels::Halves(of, _), Some(coded)) = (plan.kernels, b.coded.as_ref()) else { return Ok(()) };
        coded.check(of, &plan.shape);
        assert_eq!(T::BYTES, 4, "rows in halves are f32");
        let a = Scales {
            x: pointer(&rows.x).cast(),
            norms: or_null(b.between.and_then(|between| between.norms).as_ref()),
            n: rows.n,
            d: plan.shape.d,
            scales: pointer(&coded.scales).cast(),
        };
        // SAFETY: lengths were checked against the fields' formulas, those of the rows by the caller.
        unsafe { self.launch(halves_scales(), (plan.shape.d + 1, 1), a) }
    }

    /// Coefficients in halves from those in `f64`; nothing where the plan has no halves.
    pub(super) fn encode(self, plan: &LoopPlan, iteration: u32, b: &LoopBuffers) -> Result<(), Error> {
        let (Kernels::Halves(of, _), Some(coded)) = (plan.kernels, b.coded.as_ref()) else { return Ok(()) };
        let shape = &plan.shape;
        coded.check(of, shape);
        let a = Encode {
            state: pointer(&b.state),
            iteration,
            kind: update::number(shape.kernel_kind()),
            k: shape.k,
            d: shape.d,
            steps: of.place.steps,
            groups: of.place.groups,
            at_once: of.at_once,
            scales: pointer(&coded.scales).cast(),
            coefficients: pointer(&b.coefficients),
            roots: or_null(coded.roots.as_ref()),
            means: pointer(&b.means),
            constants: pointer(&b.constants),
            operands: pointer(&coded.operands).cast(),
            offsets: pointer(&coded.offsets).cast(),
            scalars: pointer(&coded.scalars).cast(),
        };
        // SAFETY: lengths were checked against the fields' formulas, here and in `update`.
        unsafe { self.launch(halves_encode(), (8 * of.place.groups, 1), a) }
    }
}
