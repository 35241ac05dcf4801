//! Launches of passes in halves.

use cust::memory::DeviceSlice;
use gmm_kernels::fused::halves::Halves;
use gmm_kernels::fused::halves::densities::Densities;
use gmm_kernels::fused::halves::encode::{Encode, halves_encode};
use gmm_kernels::fused::halves::moments::Moments;
use gmm_kernels::fused::halves::scales::{Norms, Scales, halves_norms, halves_scales};
use gmm_kernels::fused::large;
use gmm_kernels::fused::{self, update};
use gmm_kernels::layout::{Kind, tiled_len, tiles};

use super::em::LoopBuffers;
use super::{Chunk, Launcher, at_least, or_null, pointer};
use crate::Error;
use crate::cuda::plan::Chunks;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

/// Coefficients in halves. Lengths are in `f64`; what lies there says its field.
#[derive(Clone, Copy)]
pub(crate) struct Coded {
    /// `u32`: [`Halves::operands`].
    pub(crate) operands: DeviceSlice<f64>,
    /// `f32`: [`Halves::offsets`].
    pub(crate) offsets: DeviceSlice<f64>,
    /// `f32`: `(8*groups, 2)`.
    pub(crate) scalars: DeviceSlice<f64>,
    /// `f32`: `(d+1,)`.
    pub(crate) scales: DeviceSlice<f64>,
}

impl Coded {
    /// Checks lengths.
    fn check(&self, halves: Halves, shape: &Shape) {
        let (kind, d) = (shape.kernel_kind(), shape.d);
        let words = |slice: &DeviceSlice<f64>, len: u64, what: &str| at_least(slice, len.div_ceil(2), what);
        words(&self.operands, halves.operands(kind, d), "operands");
        words(&self.offsets, halves.offsets(kind, d), "offsets");
        words(&self.scalars, 16 * u64::from(halves.of.place.groups), "scalars");
        words(&self.scales, u64::from(d) + 1, "scales");
    }
}

impl Launcher<'_> {
    pub(super) fn halves_pass<T: Number>(
        self,
        shape: &Shape,
        halves: Halves,
        chunks: &Chunks,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (of, kind, d) = (halves.of, shape.kernel_kind(), shape.d);
        let place = of.place;
        let between = b.between.as_ref().expect("a plan of chunks has buffers for them");
        let coded = b.coded.as_ref().expect("a plan of halves has buffers for them");
        let most = chunks.chunk.min(rows.n);
        at_least(&between.exponentials, halves.exponentials(most).div_ceil(2), "exponentials");
        at_least(&between.factors, of.factors(most).div_ceil(2), "factors");
        at_least(&between.likelihoods, large::likelihoods(most), "likelihoods");
        between.norms.iter().for_each(|norms| at_least(norms, tiled_len(rows.n, 1).div_ceil(2), "norms"));
        coded.check(halves, shape);
        assert_eq!(between.norms.is_some(), kind == Kind::Spherical, "norms");
        assert_eq!(halves, Halves::of(kind, shape.k, d, halves.one));
        assert!(T::BYTES == 4 && rows.row_weights.is_none(), "rows in halves are f32 and weigh 1");
        for (start, n) in chunks.over(rows.n) {
            let at = start as usize;
            let x = pointer(&rows.x.index(at * d as usize..)).cast_const().cast::<f32>();
            let norms =
                between.norms.map_or(std::ptr::null(), |all| pointer(&all).cast_const().cast::<f32>().wrapping_add(at));
            let densities = Densities {
                state: pointer(&b.state),
                iteration,
                x,
                norms,
                n,
                d,
                derive: fused::derived(kind),
                steps: halves.steps(kind, d),
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
                norms,
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
            let moment_blocks = halves.blocks_of_split(d) * (chunks.splits / halves.lanes(d));
            // SAFETY: lengths were checked against the fields' formulas, here and by the caller.
            unsafe {
                self.launch(halves.densities(d), (blocks, 1), densities)?;
                self.launch(halves.moments(), (moment_blocks, 1), moments)?;
            }
        }
        Ok(())
    }

    /// Norms and scales of the columns, before the first iteration.
    pub(crate) fn scales<T: Number>(self, shape: &Shape, rows: &Chunk<T>, b: &LoopBuffers) -> Result<(), Error> {
        let coded = b.coded.as_ref().expect("a plan of halves has buffers for them");
        at_least(&coded.scales, (u64::from(shape.d) + 1).div_ceil(2), "scales");
        assert_eq!(T::BYTES, 4, "rows in halves are f32");
        let x = pointer(&rows.x).cast_const().cast();
        let norms = b.between.and_then(|between| between.norms);
        let (n, d) = (rows.n, shape.d);
        if let Some(norms) = &norms {
            at_least(norms, tiled_len(n, 1).div_ceil(2), "norms");
            let a = Norms { x, n, d, norms: pointer(norms).cast() };
            // SAFETY: lengths were checked against the fields' formulas, here and below; those of the rows by the caller.
            unsafe { self.launch(halves_norms(), (tiles(n).min(1 << 16) as u32, 1), a)? };
        }
        let norms = norms.map_or(std::ptr::null(), |norms| pointer(&norms).cast_const().cast());
        let a = Scales { x, norms, n, d, scales: pointer(&coded.scales).cast() };
        // SAFETY: as above.
        unsafe { self.launch(halves_scales(), (d + 1, 1), a) }
    }

    /// Coefficients in halves from those in `f64`.
    pub(super) fn encode(self, shape: &Shape, halves: Halves, iteration: u32, b: &LoopBuffers) -> Result<(), Error> {
        let coded = b.coded.as_ref().expect("a plan of halves has buffers for them");
        let of = halves.of;
        coded.check(halves, shape);
        let a = Encode {
            state: pointer(&b.state),
            iteration,
            kind: update::number(shape.kernel_kind()),
            k: shape.k,
            d: shape.d,
            steps: of.place.steps,
            groups: of.place.groups,
            at_once: of.at_once,
            one: halves.one.into(),
            scales: pointer(&coded.scales).cast(),
            coefficients: pointer(&b.coefficients),
            roots: or_null(b.roots.as_ref()),
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
