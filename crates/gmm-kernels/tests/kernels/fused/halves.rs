//! Passes in fp16, launched as the host does.

use std::ptr::null;

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::chunked::half_precision::HalfPrecision;
use gmm_kernels::em::chunked::half_precision::densities::Densities;
use gmm_kernels::em::chunked::half_precision::encode::{Encode, chunked_half_encode};
use gmm_kernels::em::chunked::half_precision::moments::Moments;
use gmm_kernels::em::chunked::half_precision::scales::{Norms, Scales, chunked_half_norms, chunked_half_scales};
use gmm_kernels::em::m_step;
use gmm_kernels::layout::{Kind, tiled_len};

use super::harness::{How, Passes};
use crate::harness::poison;

/// Operands of the densities.
pub(super) struct Coded {
    pub(super) scales: Buffer<f32>,
    pub(super) norms: Buffer<f32>,
    operands: Buffer<u32>,
    offsets: Buffer<f32>,
    scalars: Buffer<f32>,
}

impl<T: Real> Passes<'_, T> {
    pub(super) fn rows(&self) -> *const f32 {
        assert_eq!(T::BYTES, 4, "only f32 rows are taken so");
        self.x.pointer().cast()
    }

    fn of(&self) -> HalfPrecision {
        let one = matches!(self.o.how, How::HalfPrecision { one: true, .. });
        HalfPrecision::of(self.kind, self.k, self.d, one)
    }

    /// Squared norms of the rows, if the rows are `f32`.
    pub(super) fn chunked_f64_norms_f32(&self) -> Buffer<f32> {
        let mut norms = poison(tiled_len(self.n, 1));
        if T::BYTES == 4 {
            let arguments = Norms { x: self.rows(), n: self.n, d: self.d, norms: norms.pointer_mut() };
            // SAFETY: every buffer has the length that the kernel's arguments document, here and below.
            unsafe { chunked_half_norms().emulate((2, 1), arguments) };
        }
        norms
    }

    pub(super) fn coded(&self) -> Coded {
        let (of, kind, d) = (self.of(), self.kind, self.d);
        Coded {
            scales: poison(u64::from(d) + 1),
            norms: self.chunked_f64_norms_f32(),
            operands: Buffer::new(&vec![0; of.operands(kind, d) as usize]),
            offsets: Buffer::new(&vec![0.0; of.offsets(kind, d) as usize]),
            scalars: poison(16 * u64::from(of.of.place.groups)),
        }
    }

    /// Powers of two that scale the columns, and the norms if they are a feature.
    pub(super) fn scale_columns(&self, norms: &Buffer<f32>, scales: &mut Buffer<f32>) {
        let arguments = Scales {
            x: self.rows(),
            norms: if self.kind == Kind::Spherical { norms.pointer() } else { null() },
            n: self.n,
            d: self.d,
            scales: scales.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document, here and below.
        unsafe { chunked_half_scales().emulate((self.d + 1, 1), arguments) };
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn encode(
        &self,
        iteration: u32,
        state: &mut Buffer<u32>,
        coefficients: &Buffer<f64>,
        roots: &Buffer<f64>,
        means: &Buffer<f64>,
        constants: &Buffer<f64>,
        coded: &mut Coded,
    ) {
        let of = self.of();
        if iteration == 0 {
            self.scale_columns(&coded.norms, &mut coded.scales);
        }
        let arguments = Encode {
            state: state.pointer_mut(),
            iteration,
            kind: m_step::number(self.kind),
            k: self.k,
            d: self.d,
            steps: of.of.place.steps,
            groups: of.of.place.groups,
            at_once: of.of.at_once,
            one: of.one.into(),
            scales: coded.scales.pointer(),
            coefficients: coefficients.pointer(),
            roots: if self.kind == Kind::Full { roots.pointer() } else { null() },
            means: means.pointer(),
            constants: constants.pointer(),
            operands: coded.operands.pointer_mut(),
            offsets: coded.offsets.pointer_mut(),
            scalars: coded.scalars.pointer_mut(),
        };
        // SAFETY: as above.
        unsafe { chunked_half_encode().emulate((8 * of.of.place.groups, 1), arguments) };
    }

    pub(super) fn halves(
        &self,
        chunk: usize,
        iteration: u32,
        state: *const u32,
        coded: &Coded,
        partials: &mut Buffer<f64>,
    ) {
        assert!(self.row_weights.is_none(), "rows in halves have no weights");
        let of = self.of();
        let (kind, d, chunk, derive) = (self.kind, self.d, chunk as u64, gmm_kernels::em::features::derived(self.kind));
        let mut exponentials = Buffer::new(&vec![u32::MAX; of.exponentials(chunk) as usize]);
        let mut factors = poison::<f32>(of.of.factors(chunk));
        let mut likelihoods = poison::<f64>(gmm_kernels::em::chunked::double_precision::likelihoods(chunk));
        for start in (0..self.n).step_by(chunk as usize) {
            let n = chunk.min(self.n - start);
            let x = self.rows().wrapping_add((start * u64::from(d)) as usize);
            let norms = coded.norms.pointer().wrapping_add(start as usize);
            let densities = Densities {
                state,
                iteration,
                x,
                norms,
                n,
                d,
                derive,
                steps: of.steps(kind, d),
                groups: of.of.place.groups,
                scales: coded.scales.pointer(),
                operands: coded.operands.pointer(),
                offsets: coded.offsets.pointer(),
                scalars: coded.scalars.pointer(),
                exponentials: exponentials.pointer_mut(),
                factors: factors.pointer_mut(),
                likelihoods: likelihoods.pointer_mut(),
            };
            let moments = Moments {
                state,
                iteration,
                x,
                norms,
                n,
                d,
                derive,
                steps: of.of.place.steps,
                groups: of.of.place.groups,
                classes: of.of.place.classes,
                scales: coded.scales.pointer(),
                exponentials: exponentials.pointer(),
                factors: factors.pointer(),
                likelihoods: likelihoods.pointer(),
                splits: self.o.blocks,
                accumulate: (start > 0).into(),
                partials: partials.pointer_mut(),
            };
            let lanes = of.lanes(d);
            assert_eq!(self.o.blocks % lanes, 0, "{} partial results, {lanes} of each block", self.o.blocks);
            let grid = (of.blocks_of_split(d) * self.o.blocks / lanes, 1);
            // SAFETY: as above.
            unsafe {
                of.densities(d).emulate((2, 1), densities);
                of.moments().emulate(grid, moments);
            }
        }
    }
}
