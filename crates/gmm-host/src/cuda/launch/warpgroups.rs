//! Launches of passes by warpgroups.

use gmm_kernels::fused::warpgroups::linear::encode::{Encode, warpgroups_encode};
use gmm_kernels::fused::warpgroups::linear::features::{Features, warpgroups_features};
use gmm_kernels::fused::warpgroups::linear::logs::{Logs, ROWS_OF_BLOCK};
use gmm_kernels::fused::warpgroups::linear::sums::Sums;
use gmm_kernels::fused::warpgroups::linear::{self, Linear};
use gmm_kernels::fused::{self, large, update};
use gmm_kernels::layout::{Kind, tiled_len};

use super::em::{Between, LoopBuffers};
use super::halves::Coded;
use super::{Chunk, Launcher, at_least, pointer};
use crate::Error;
use crate::cuda::plan::Chunks;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

/// Buffers of a plan of warpgroups, with their lengths checked for chunks of so many of `n` rows.
fn buffers<'a>(shape: &Shape, of: Linear, most: u64, n: u64, b: &'a LoopBuffers) -> (&'a Between, &'a Coded) {
    let between = b.between.as_ref().expect("a plan of chunks has buffers for them");
    let coded = b.coded.as_ref().expect("a plan of warpgroups has buffers for them");
    at_least(&between.exponentials, of.feature_words(most).div_ceil(2), "features");
    at_least(&between.factors, linear::logs_len(most).div_ceil(2), "logarithms");
    at_least(&between.likelihoods, large::likelihoods(most), "likelihoods");
    between.norms.iter().for_each(|norms| at_least(norms, tiled_len(n, 1).div_ceil(2), "norms"));
    at_least(&coded.operands, of.operands().div_ceil(2), "operands");
    at_least(&coded.scales, (u64::from(shape.d) + 1).div_ceil(2), "scales");
    let kind = shape.kernel_kind();
    assert_eq!(between.norms.is_some(), kind == Kind::Spherical, "norms");
    assert_eq!(Some(of), Linear::of(kind, shape.k, shape.d));
    (between, coded)
}

impl Launcher<'_> {
    /// Features of all rows, before the first iteration; nothing where these go in chunks, each of which takes the place of the
    /// one before.
    pub(crate) fn features<T: Number>(
        self,
        shape: &Shape,
        of: Linear,
        chunks: &Chunks,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        if chunks.chunk >= rows.n { self.features_of(shape, of, (0, rows.n), rows, b) } else { Ok(()) }
    }

    fn features_of<T: Number>(
        self,
        shape: &Shape,
        of: Linear,
        (start, n): (u64, u64),
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (between, coded) = buffers(shape, of, n, rows.n, b);
        let features = Features {
            x: first_row(rows, shape.d, start),
            norms: first_norm(between, start),
            n,
            d: shape.d,
            derive: fused::derived(shape.kernel_kind()),
            features: of.features(),
            scales: pointer(&coded.scales).cast(),
            out: pointer(&between.exponentials).cast(),
        };
        let grid = (linear::groups(n).min(1 << 16) as u32, 1);
        // SAFETY: lengths were checked against the fields' formulas, here and by the caller.
        unsafe { self.launch(warpgroups_features(), grid, features) }
    }

    pub(super) fn linear_pass<T: Number>(
        self,
        shape: &Shape,
        of: Linear,
        chunks: &Chunks,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        assert!(T::BYTES == 4 && rows.row_weights.is_none(), "rows in heads are f32 and weigh 1");
        let (between, coded) = buffers(shape, of, chunks.chunk.min(rows.n), rows.n, b);
        let (d, derive, features) = (shape.d, fused::derived(shape.kernel_kind()), of.features());
        for (start, n) in chunks.over(rows.n) {
            if chunks.chunk < rows.n {
                self.features_of(shape, of, (start, n), rows, b)?;
            }
            let logs = Logs {
                state: pointer(&b.state),
                iteration,
                rows: pointer(&between.exponentials).cast(),
                n,
                features,
                stages: of.stages(),
                operands: pointer(&coded.operands).cast(),
                logs: pointer(&between.factors).cast(),
                likelihoods: pointer(&between.likelihoods),
            };
            let sums = Sums {
                state: pointer(&b.state),
                iteration,
                n,
                d,
                derive,
                features,
                groups: of.place.groups,
                scales: pointer(&coded.scales).cast(),
                operands: pointer(&coded.operands).cast(),
                rows: pointer(&between.exponentials).cast(),
                logs: pointer(&between.factors).cast(),
                likelihoods: pointer(&between.likelihoods),
                splits: chunks.splits,
                accumulate: (start > 0).into(),
                partials: pointer(&b.partials),
            };
            let blocks = n.div_ceil(u64::from(ROWS_OF_BLOCK)).min(u64::from(chunks.blocks)) as u32;
            // SAFETY: lengths were checked against the fields' formulas, here and by the caller.
            unsafe {
                self.launch(of.logs(), (blocks, 1), logs)?;
                self.launch(of.sums(), (of.blocks_of_split() * chunks.splits, 1), sums)?;
            }
        }
        Ok(())
    }

    /// Coefficients in heads from those in `f64`.
    pub(super) fn encode_linear(
        self,
        shape: &Shape,
        of: Linear,
        iteration: u32,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let coded = b.coded.as_ref().expect("a plan of warpgroups has buffers for them");
        at_least(&coded.operands, of.operands().div_ceil(2), "operands");
        at_least(&coded.scales, (u64::from(shape.d) + 1).div_ceil(2), "scales");
        let a = Encode {
            state: pointer(&b.state),
            iteration,
            kind: update::number(shape.kernel_kind()),
            k: shape.k,
            d: shape.d,
            steps: of.place.steps,
            groups: of.place.groups,
            scales: pointer(&coded.scales).cast(),
            coefficients: pointer(&b.coefficients),
            means: pointer(&b.means),
            constants: pointer(&b.constants),
            operands: pointer(&coded.operands).cast(),
        };
        // SAFETY: lengths were checked against the fields' formulas, here and in `update`.
        unsafe { self.launch(warpgroups_encode(), (8 * of.place.groups, 1), a) }
    }
}

fn first_row<T: Number>(rows: &Chunk<T>, d: u32, start: u64) -> *const f32 {
    pointer(&rows.x.index(start as usize * d as usize..)).cast_const().cast()
}

fn first_norm(between: &Between, start: u64) -> *const f32 {
    let all = between.norms.map(|norms| pointer(&norms).cast_const().cast::<f32>());
    all.map_or(std::ptr::null(), |norms| norms.wrapping_add(start as usize))
}
