//! Where things lie in the numbers of a loop on the device.

use std::ops::Range;

use gmm_kernels::fused::large;
use gmm_kernels::fused::update::{Matrices, TRACE, wide_matrix};
use gmm_kernels::layout::{packed_len, tiled_len};
use gmm_model::CovarianceType;

use super::launch::{Between, Coded, Kernels, LoopPlan};
use super::workspace::Slot;
use cust::memory::DeviceSlice;

/// Ranges of `f64`: first what a look brings, then what stays on the device. Each starts where a line of a cache does.
#[derive(Clone)]
pub(super) struct Arena {
    pub(super) trace: Range<usize>,
    pub(super) weights: Range<usize>,
    pub(super) means: Range<usize>,
    pub(super) covariances: Range<usize>,
    pub(super) carry: Range<usize>,
    pub(super) constants: Range<usize>,
    /// Also what halves are made of them: zeroed at the beginning.
    pub(super) zeroed: Range<usize>,
    pub(super) coefficients: Range<usize>,
    /// Where a kernel takes densities about the means.
    pub(super) roots: Range<usize>,
    pub(super) sums: Range<usize>,
    pub(super) scatter: Range<usize>,
    /// Where an M-step has its matrices in device memory.
    pub(super) matrices: Range<usize>,
    pub(super) partials: Range<usize>,
    /// What the two kernels of a chunk leave to one another.
    between: Option<RangesBetween>,
    coded: Option<CodedRanges>,
    pub(super) len: usize,
}

#[derive(Clone)]
struct RangesBetween {
    norms: Range<usize>,
    exponentials: Range<usize>,
    factors: Range<usize>,
    likelihoods: Range<usize>,
    joint: Range<usize>,
    responsibilities: Range<usize>,
}

#[derive(Clone)]
struct CodedRanges {
    operands: Range<usize>,
    offsets: Range<usize>,
    scalars: Range<usize>,
    scales: Range<usize>,
}

impl Arena {
    pub(super) fn of(plan: &LoopPlan) -> Self {
        let (shape, place) = (&plan.shape, plan.kernels.place());
        let (k, d, kind) = (shape.k as usize, shape.d as usize, shape.kernel_kind());
        let mut len = 0;
        let mut take = |numbers: usize| {
            let start = len;
            len += numbers.next_multiple_of(16);
            start..start + numbers
        };
        let words = |numbers: u64| numbers.div_ceil(2) as usize;
        let trace = take(TRACE as usize);
        let weights = take(k);
        let means = take(k * d);
        let covariances = take(shape.kind.second_len(k, d));
        let carry = take(2);
        let constants = take(8 * place.groups as usize);
        let coefficients = take(plan.coefficients() as usize);
        let coded = match &plan.kernels {
            Kernels::Halves(halves, _) => Some(CodedRanges {
                operands: take(words(halves.operands(kind, shape.d))),
                offsets: take(words(halves.offsets(kind, shape.d))),
                scalars: take(words(16 * u64::from(place.groups))),
                scales: take(words(u64::from(shape.d) + 1)),
            }),
            Kernels::Warpgroups(of, _) => Some(CodedRanges {
                operands: take(words(of.operands())),
                offsets: take(0),
                scalars: take(0),
                scales: take(words(u64::from(shape.d) + 1)),
            }),
            _ => None,
        };
        let zeroed = coefficients.start..coded.as_ref().map_or(coefficients.end, |c| c.scalars.end);
        let sums = take(place.sums() as usize);
        let roots = take(if plan.kernels.wants_roots(kind) { k * packed_len(shape.d) as usize } else { 0 });
        let scatter = take(if shape.kind == CovarianceType::Tied { packed_len(shape.d) as usize } else { 0 });
        let matrices = take(if plan.matrices == Matrices::Device { k * wide_matrix(shape.d) as usize } else { 0 });
        let partials = take(plan.kernels.partials() as usize * place.sums() as usize);
        let between = plan.kernels.chunks().map(|chunks| {
            let rows = chunks.chunk.min(shape.n);
            let with_norms = shape.kind == CovarianceType::Spherical;
            let (exponentials, factors) = match &plan.kernels {
                Kernels::Large(of, _) => (of.exponentials(rows) * shape.number_bytes() / 8, of.factors(rows)),
                Kernels::Halves(halves, _) => {
                    (halves.exponentials(rows).div_ceil(2), halves.of.factors(rows).div_ceil(2))
                }
                Kernels::Warpgroups(of, _) => (of.rows(rows).div_ceil(2), of.normalisers(rows).div_ceil(2)),
                Kernels::Fused(..) | Kernels::Narrow(..) => unreachable!("they have no chunks"),
            };
            let (joint, responsibilities) = match &plan.kernels {
                Kernels::Warpgroups(of, _) => of.densities(rows),
                _ => (0, 0),
            };
            RangesBetween {
                norms: take(match (with_norms, coded.is_some()) {
                    (true, false) => tiled_len(shape.n, 1) as usize,
                    (true, true) => words(tiled_len(shape.n, 1)),
                    _ => 0,
                }),
                exponentials: take(exponentials as usize),
                factors: take(factors as usize),
                likelihoods: take(large::likelihoods(rows) as usize),
                joint: take(words(joint)),
                responsibilities: take(words(responsibilities)),
            }
        });
        Self {
            trace,
            weights,
            means,
            covariances,
            carry,
            constants,
            zeroed,
            coefficients,
            roots,
            sums,
            scatter,
            matrices,
            partials,
            between,
            coded,
            len,
        }
    }

    /// What a look brings.
    pub(super) fn seen(&self) -> usize {
        self.carry.start
    }

    pub(super) fn between(&self, numbers: &DeviceSlice<f64>) -> Option<Between> {
        self.between.as_ref().map(|at| Between {
            norms: (!at.norms.is_empty()).then(|| numbers.index(at.norms.clone())),
            exponentials: numbers.index(at.exponentials.clone()),
            factors: numbers.index(at.factors.clone()),
            likelihoods: numbers.index(at.likelihoods.clone()),
            joint: numbers.index(at.joint.clone()),
            responsibilities: numbers.index(at.responsibilities.clone()),
        })
    }

    pub(super) fn coded(&self, numbers: &DeviceSlice<f64>) -> Option<Coded> {
        self.coded.as_ref().map(|at| Coded {
            operands: numbers.index(at.operands.clone()),
            offsets: numbers.index(at.offsets.clone()),
            scalars: numbers.index(at.scalars.clone()),
            scales: numbers.index(at.scales.clone()),
        })
    }

    /// The numbers of a loop, as the slot holds them.
    pub(super) fn all(&self, slot: &Slot<f64>) -> DeviceSlice<f64> {
        slot.first(self.len)
    }
}
