//! Passes of full covariances by warpgroups, launched as the host does.

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::chunked::double_precision::likelihoods;
use gmm_kernels::em::wgmma::full::Full;
use gmm_kernels::em::wgmma::full::encode::Encode;
use gmm_kernels::em::wgmma::full::joint::Joint;
use gmm_kernels::em::wgmma::full::moments::Moments;
use gmm_kernels::em::wgmma::full::normalise::Normalise;

use super::halves::Coded;
use super::harness::{How, Passes};
use crate::harness::poison;

/// Unwritten words: NaN as fp16.
fn unwritten(len: u64) -> Buffer<u32> {
    Buffer::new(&vec![u32::MAX; len as usize])
}

impl<T: Real> Passes<'_, T> {
    fn full_of(&self) -> Full {
        let How::Full { one, .. } = self.o.how else { panic!("another way") };
        Full::of(self.k, self.d, one).expect("few columns")
    }

    /// Operands of the joint densities.
    pub(super) fn full_operands(&self) -> Buffer<u32> {
        let len = if matches!(self.o.how, How::Full { .. }) { self.full_of().operands() } else { 0 };
        Buffer::new(&vec![0; len as usize])
    }

    pub(super) fn encode_full(
        &self,
        iteration: u32,
        state: &mut Buffer<u32>,
        [roots, means, constants]: [&Buffer<f64>; 3],
        coded: &mut Coded,
        operands: &mut Buffer<u32>,
    ) {
        if iteration == 0 {
            self.scale_columns(&coded.norms, &mut coded.scales);
        }
        let arguments = Encode {
            state: state.pointer_mut(),
            iteration,
            k: self.k,
            d: self.d,
            scales: coded.scales.pointer(),
            roots: roots.pointer(),
            means: means.pointer(),
            constants: constants.pointer(),
            operands: operands.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document, here and below.
        unsafe { self.full_of().encode().emulate((self.full_of().components(), 1), arguments) };
    }

    pub(super) fn full(
        &self,
        chunk: usize,
        iteration: u32,
        state: *const u32,
        coded: &Coded,
        operands: &Buffer<u32>,
        partials: &mut Buffer<f64>,
    ) {
        assert!(self.row_weights.is_none(), "rows in halves have no weights");
        let (of, k, d, chunk) = (self.full_of(), self.k, self.d, chunk as u64);
        let mut columns = unwritten(of.column_words(chunk));
        let mut responsibilities = unwritten(of.responsibilities(chunk));
        let mut joint = poison::<f32>(of.joint(chunk));
        let mut normalisers = poison::<f32>(of.normalisers(chunk));
        let mut likelihoods = poison::<f64>(likelihoods(chunk));
        for start in (0..self.n).step_by(chunk as usize) {
            let n = chunk.min(self.n - start);
            let densities = Joint {
                state,
                iteration,
                x: self.rows().wrapping_add((start * u64::from(d)) as usize),
                n,
                d,
                components: of.components(),
                scales: coded.scales.pointer(),
                operands: operands.pointer(),
                columns: columns.pointer_mut(),
                joint: joint.pointer_mut(),
                normalisers: normalisers.pointer_mut(),
                likelihoods: likelihoods.pointer_mut(),
            };
            let normalise = Normalise {
                state,
                iteration,
                n,
                components: of.components(),
                joint: joint.pointer(),
                normalisers: normalisers.pointer(),
                responsibilities: responsibilities.pointer_mut(),
            };
            let moments = Moments {
                state,
                iteration,
                n,
                k,
                d,
                scales: coded.scales.pointer(),
                columns: columns.pointer(),
                responsibilities: responsibilities.pointer(),
                likelihoods: likelihoods.pointer(),
                splits: self.o.blocks,
                accumulate: (start > 0).into(),
                partials: partials.pointer_mut(),
            };
            // SAFETY: as above.
            unsafe {
                of.densities().emulate((1, 1), densities);
                of.normalise().emulate((2, 1), normalise);
                of.moments().emulate((of.blocks_of_split() * self.o.blocks, 1), moments);
            }
        }
    }
}
