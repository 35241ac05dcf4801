//! Passes over features that are columns, by warpgroups, launched as the host does.

use std::ptr::null;

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::chunked::double_precision;
use gmm_kernels::em::m_step;
use gmm_kernels::em::wgmma::linear::encode::{Encode, wgmma_encode};
use gmm_kernels::em::wgmma::linear::features::{Features, wgmma_features};
use gmm_kernels::em::wgmma::linear::logs::Logs;
use gmm_kernels::em::wgmma::linear::sums::Sums;
use gmm_kernels::em::wgmma::linear::{Linear, logs_len};
use gmm_kernels::layout::Kind;

use super::harness::{How, Passes};
use crate::harness::poison;

/// Operands of the passes.
pub(super) struct ByWarpgroups {
    scales: Buffer<f32>,
    norms: Buffer<f32>,
    operands: Buffer<u32>,
}

impl<T: Real> Passes<'_, T> {
    fn warpgroups(&self) -> Option<Linear> {
        matches!(self.o.how, How::Linear { .. }).then(|| Linear::of(self.kind, self.k, self.d).expect("a kernel"))
    }

    pub(super) fn for_warpgroups(&self) -> ByWarpgroups {
        ByWarpgroups {
            scales: poison(u64::from(self.d) + 1),
            norms: self.chunked_f64_norms_f32(),
            operands: Buffer::new(&vec![0; self.warpgroups().map_or(0, |of| of.operands() as usize)]),
        }
    }

    pub(super) fn encode_linear(
        &self,
        iteration: u32,
        state: &mut Buffer<u32>,
        coefficients: &Buffer<f64>,
        means: &Buffer<f64>,
        constants: &Buffer<f64>,
        to: &mut ByWarpgroups,
    ) {
        let place = self.warpgroups().expect("asked for").place;
        if iteration == 0 {
            self.scale_columns(&to.norms, &mut to.scales);
        }
        let arguments = Encode {
            state: state.pointer_mut(),
            iteration,
            kind: m_step::number(self.kind),
            k: self.k,
            d: self.d,
            steps: place.steps,
            groups: place.groups,
            scales: to.scales.pointer(),
            coefficients: coefficients.pointer(),
            means: means.pointer(),
            constants: constants.pointer(),
            operands: to.operands.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document, here and below.
        unsafe { wgmma_encode().emulate((8 * place.groups, 1), arguments) };
    }

    pub(super) fn linear(
        &self,
        chunk: usize,
        iteration: u32,
        state: *const u32,
        of_rows: &ByWarpgroups,
        partials: &mut Buffer<f64>,
    ) {
        assert!(self.row_weights.is_none(), "rows in heads have no weights");
        let of = self.warpgroups().expect("asked for");
        let (d, chunk, derive, features) =
            (self.d, chunk as u64, gmm_kernels::em::features::derived(self.kind), of.features());
        let mut rows = Buffer::new(&vec![u32::MAX; of.feature_words(chunk) as usize]);
        let mut logs = poison::<f32>(logs_len(chunk));
        let mut likelihoods = poison::<f64>(double_precision::likelihoods(chunk));
        for start in (0..self.n).step_by(chunk as usize) {
            let n = chunk.min(self.n - start);
            let x = self.rows().wrapping_add((start * u64::from(d)) as usize);
            let with_norms = self.kind == Kind::Spherical;
            let norms = if with_norms { of_rows.norms.pointer().wrapping_add(start as usize) } else { null() };
            let scales = of_rows.scales.pointer();
            let out = rows.pointer_mut();
            let all = Features { x, norms, n, d, derive, features, scales, out };
            let first = Logs {
                state,
                iteration,
                rows: rows.pointer(),
                n,
                features,
                stages: of.stages(),
                operands: of_rows.operands.pointer(),
                logs: logs.pointer_mut(),
                likelihoods: likelihoods.pointer_mut(),
            };
            let second = Sums {
                state,
                iteration,
                n,
                d,
                derive,
                features,
                groups: of.place.groups,
                scales,
                operands: of_rows.operands.pointer(),
                rows: rows.pointer(),
                logs: logs.pointer(),
                likelihoods: likelihoods.pointer(),
                splits: self.o.blocks,
                accumulate: (start > 0).into(),
                partials: partials.pointer_mut(),
            };
            // SAFETY: as above.
            unsafe {
                wgmma_features().emulate((3, 1), all);
                of.logs().emulate((2, 1), first);
                of.sums().emulate((of.blocks_of_split() * self.o.blocks, 1), second);
            }
        }
    }
}
