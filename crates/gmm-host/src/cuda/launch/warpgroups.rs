//! Launches of passes by warpgroups.

use gmm_kernels::fused::warpgroups::Warpgroups;
use gmm_kernels::fused::warpgroups::full::joint::Joint;
use gmm_kernels::fused::warpgroups::full::moments::Moments;
use gmm_kernels::fused::warpgroups::full::normalise::Normalise;
use gmm_kernels::fused::warpgroups::full::{self, Full};
use gmm_kernels::fused::warpgroups::linear::encode::{Encode, warpgroups_encode};
use gmm_kernels::fused::warpgroups::linear::features::{Features, warpgroups_features};
use gmm_kernels::fused::warpgroups::linear::logs::Logs;
use gmm_kernels::fused::warpgroups::linear::sums::Sums;
use gmm_kernels::fused::warpgroups::linear::{self, Linear};
use gmm_kernels::fused::{self, large, update};
use gmm_kernels::layout::{Kind, tiled_len};

use super::em::{Between, LoopBuffers};
use super::halves::Coded;
use super::{Chunk, Launcher, at_least, or_null, pointer};
use crate::Error;
use crate::cuda::plan::Chunks;
use crate::cuda::shape::Shape;
use crate::cuda::upload::Number;

/// Buffers of a plan of warpgroups, with their lengths checked for chunks of so many of `n` rows.
fn buffers<'a>(shape: &Shape, of: Warpgroups, most: u64, n: u64, b: &'a LoopBuffers) -> (&'a Between, &'a Coded) {
    let between = b.between.as_ref().expect("a plan of chunks has buffers for them");
    let coded = b.coded.as_ref().expect("a plan of warpgroups has buffers for them");
    let (joint, responsibilities) = of.densities(most);
    at_least(&between.exponentials, of.rows(most).div_ceil(2), "features");
    at_least(&between.factors, of.normalisers(most).div_ceil(2), "normalisers");
    at_least(&between.joint, joint.div_ceil(2), "joint densities");
    at_least(&between.responsibilities, responsibilities.div_ceil(2), "responsibilities");
    at_least(&between.likelihoods, large::likelihoods(most), "likelihoods");
    between.norms.iter().for_each(|norms| at_least(norms, tiled_len(n, 1).div_ceil(2), "norms"));
    at_least(&coded.operands, of.operands().div_ceil(2), "operands");
    at_least(&coded.scales, (u64::from(shape.d) + 1).div_ceil(2), "scales");
    let kind = shape.kernel_kind();
    assert_eq!(between.norms.is_some(), kind == Kind::Spherical, "norms");
    assert_eq!(Some(of), Warpgroups::of(kind, shape.k, shape.d, of.one()));
    (between, coded)
}

impl Launcher<'_> {
    /// Features of all rows, before the first iteration; nothing where these go in chunks, each of which takes the place of the
    /// one before.
    pub(crate) fn features<T: Number>(
        self,
        shape: &Shape,
        of: Warpgroups,
        chunks: &Chunks,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        match of {
            Warpgroups::Linear(of) if chunks.chunk >= rows.n => self.features_of(shape, of, (0, rows.n), rows, b),
            // Those of full covariances are left by each pass.
            Warpgroups::Linear(_) | Warpgroups::Full(_) => Ok(()),
        }
    }

    fn features_of<T: Number>(
        self,
        shape: &Shape,
        of: Linear,
        (start, n): (u64, u64),
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (between, coded) = buffers(shape, Warpgroups::Linear(of), n, rows.n, b);
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

    pub(super) fn warpgroups_pass<T: Number>(
        self,
        shape: &Shape,
        of: Warpgroups,
        chunks: &Chunks,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        assert!(T::BYTES == 4 && rows.row_weights.is_none(), "rows in halves are f32 and weigh 1");
        match of {
            Warpgroups::Linear(of) => self.linear_pass(shape, of, chunks, iteration, rows, b),
            Warpgroups::Full(of) => self.full_pass(shape, of, chunks, iteration, rows, b),
        }
    }

    fn full_pass<T: Number>(
        self,
        shape: &Shape,
        of: Full,
        chunks: &Chunks,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (between, coded) = buffers(shape, Warpgroups::Full(of), chunks.chunk.min(rows.n), rows.n, b);
        let rows_of_block = Warpgroups::Full(of).rows_of_block();
        let (Full { k, d, .. }, components, state) = (of, of.components(), pointer(&b.state));
        for (start, n) in chunks.over(rows.n) {
            let joint = Joint {
                state,
                iteration,
                x: first_row(rows, d, start),
                n,
                d,
                components,
                scales: pointer(&coded.scales).cast(),
                operands: pointer(&coded.operands).cast(),
                columns: pointer(&between.exponentials).cast(),
                joint: pointer(&between.joint).cast(),
                normalisers: pointer(&between.factors).cast(),
                likelihoods: pointer(&between.likelihoods),
            };
            let normalise = Normalise {
                state,
                iteration,
                n,
                components,
                joint: pointer(&between.joint).cast(),
                normalisers: pointer(&between.factors).cast(),
                responsibilities: pointer(&between.responsibilities).cast(),
            };
            let moments = Moments {
                state,
                iteration,
                n,
                k,
                d,
                scales: pointer(&coded.scales).cast(),
                columns: pointer(&between.exponentials).cast(),
                responsibilities: pointer(&between.responsibilities).cast(),
                likelihoods: pointer(&between.likelihoods),
                splits: chunks.splits,
                accumulate: (start > 0).into(),
                partials: pointer(&b.partials),
            };
            // SAFETY: lengths were checked against the fields' formulas, here and by the caller.
            unsafe {
                self.launch(of.densities(), (blocks_of(n, rows_of_block, chunks), 1), joint)?;
                self.launch(of.normalise(), (full::groups(n).min(1 << 16) as u32, 1), normalise)?;
                self.launch(of.moments(), (of.blocks_of_split() * chunks.splits, 1), moments)?;
            }
        }
        Ok(())
    }

    fn linear_pass<T: Number>(
        self,
        shape: &Shape,
        of: Linear,
        chunks: &Chunks,
        iteration: u32,
        rows: &Chunk<T>,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let (between, coded) = buffers(shape, Warpgroups::Linear(of), chunks.chunk.min(rows.n), rows.n, b);
        let rows_of_block = Warpgroups::Linear(of).rows_of_block();
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
            // SAFETY: lengths were checked against the fields' formulas, here and by the caller.
            unsafe {
                self.launch(of.logs(), (blocks_of(n, rows_of_block, chunks), 1), logs)?;
                self.launch(of.sums(), (of.blocks_of_split() * chunks.splits, 1), sums)?;
            }
        }
        Ok(())
    }

    /// Coefficients in heads, or in two halves, from those in `f64`.
    pub(super) fn encode_heads(
        self,
        shape: &Shape,
        of: Warpgroups,
        iteration: u32,
        b: &LoopBuffers,
    ) -> Result<(), Error> {
        let coded = b.coded.as_ref().expect("a plan of warpgroups has buffers for them");
        at_least(&coded.operands, of.operands().div_ceil(2), "operands");
        at_least(&coded.scales, (u64::from(shape.d) + 1).div_ceil(2), "scales");
        let (state, k, d) = (pointer(&b.state), shape.k, shape.d);
        match of {
            Warpgroups::Linear(of) => {
                let a = Encode {
                    state,
                    iteration,
                    kind: update::number(shape.kernel_kind()),
                    k,
                    d,
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
            Warpgroups::Full(of) => {
                let a = full::encode::Encode {
                    state,
                    iteration,
                    k,
                    d,
                    scales: pointer(&coded.scales).cast(),
                    roots: or_null(b.roots.as_ref()),
                    means: pointer(&b.means),
                    constants: pointer(&b.constants),
                    operands: pointer(&coded.operands).cast(),
                };
                // SAFETY: as above.
                unsafe { self.launch(of.encode(), (of.components(), 1), a) }
            }
        }
    }
}

/// Blocks of the densities of `n` rows.
fn blocks_of(n: u64, rows_of_block: u32, chunks: &Chunks) -> u32 {
    n.div_ceil(u64::from(rows_of_block)).min(u64::from(chunks.blocks)) as u32
}

fn first_row<T: Number>(rows: &Chunk<T>, d: u32, start: u64) -> *const f32 {
    pointer(&rows.x.index(start as usize * d as usize..)).cast_const().cast()
}

fn first_norm(between: &Between, start: u64) -> *const f32 {
    let all = between.norms.map(|norms| pointer(&norms).cast_const().cast::<f32>());
    all.map_or(std::ptr::null(), |norms| norms.wrapping_add(start as usize))
}
