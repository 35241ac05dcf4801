//! The buffers of a loop on the device: those of every path, and a path's own.

use std::ops::Range;

use cust::memory::DeviceSlice;

/// A path's own buffers. `A` is a length in 8-byte words, a range of words, or the memory itself. Each field's comment
/// gives its content's type.
#[derive(Clone, Copy, Default)]
pub(crate) struct PathBuffers<A> {
    /// `u32`: coefficients encoded as operands of the products.
    pub(crate) operands: A,
    /// `f32`: `−Wμ`, added to products of rows with a component's factor `W` to centre them at its mean.
    pub(crate) offsets: A,
    /// `f32`, `(8*groups, 2)`: each component's constant and multiplier.
    pub(crate) scalars: A,
    /// `f32`, `(d+1,)`: powers of two that scale the columns, and the norm, into half precision's range.
    pub(crate) scales: A,
    /// Squared norms of all rows, or of a section's if the rows are streamed, `tiled_len(n, 1)`, `f64` or `f32`, if
    /// norms are a feature.
    pub(crate) norms: A,
    /// Per chunk: exponentials of log densities minus the row's largest, or features in half precision.
    pub(crate) exponentials: A,
    /// Per chunk: factors that turn exponentials into responsibilities.
    pub(crate) factors: A,
    /// Per chunk: partial sums of the rows' log-likelihoods.
    pub(crate) likelihoods: A,
    /// `f32`, per chunk: log joint densities.
    pub(crate) joint: A,
    /// `u32`, per chunk: responsibilities in half precision, two per word.
    pub(crate) responsibilities: A,
    /// Ordered rows, boxes, records and lists: [`nearby`](super::paths::nearby).
    pub(crate) nearby: A,
}

impl<A: Clone> PathBuffers<A> {
    /// Applies `f` to each field, in a fixed order.
    pub(crate) fn map<B>(&self, mut f: impl FnMut(A) -> B) -> PathBuffers<B> {
        PathBuffers {
            operands: f(self.operands.clone()),
            offsets: f(self.offsets.clone()),
            scalars: f(self.scalars.clone()),
            scales: f(self.scales.clone()),
            norms: f(self.norms.clone()),
            exponentials: f(self.exponentials.clone()),
            factors: f(self.factors.clone()),
            likelihoods: f(self.likelihoods.clone()),
            joint: f(self.joint.clone()),
            responsibilities: f(self.responsibilities.clone()),
            nearby: f(self.nearby.clone()),
        }
    }
}

impl<A: Copy> PathBuffers<A> {
    /// All fields, in the order of [`map`](Self::map).
    pub(crate) const fn all(&self) -> [A; 10] {
        let Self { operands, offsets, scalars, scales, norms, .. } = *self;
        let Self { exponentials, factors, likelihoods, joint, responsibilities, .. } = *self;
        [operands, offsets, scalars, scales, norms, exponentials, factors, likelihoods, joint, responsibilities]
    }
}

impl PathBuffers<Range<usize>> {
    /// End of the range that is zeroed before the first iteration: no kernel writes the padding of operands, offsets
    /// and scalars.
    pub(crate) fn zeroed_until(&self) -> usize {
        self.scalars.end
    }
}

/// The device buffers of a loop.
#[derive(Clone, Copy)]
pub(crate) struct LoopBuffers {
    /// State, `(4,)`.
    pub(crate) state: DeviceSlice<u32>,
    /// `(k,)`.
    pub(crate) empty: DeviceSlice<u32>,
    /// The last [`TRACE`](gmm_kernels::em::m_step::TRACE) mean log-likelihoods.
    pub(crate) trace: DeviceSlice<f64>,
    /// `(k,)`; not used with a prior.
    pub(crate) weights: DeviceSlice<f64>,
    /// `(k, d)`: means minus the shift.
    pub(crate) means: DeviceSlice<f64>,
    /// Packed, `second_len(kind, k, d)`.
    pub(crate) covariances: DeviceSlice<f64>,
    /// `(2,)`.
    pub(crate) carry: DeviceSlice<f64>,
    /// `(8*groups,)`.
    pub(crate) constants: DeviceSlice<f64>,
    /// `LoopPlan::coefficients`.
    pub(crate) coefficients: DeviceSlice<f64>,
    /// `(k, d*(d+1)/2)` if `EmPath::takes_roots`.
    pub(crate) roots: Option<DeviceSlice<f64>>,
    /// `FeatureLayout::sums`.
    pub(crate) sums: DeviceSlice<f64>,
    /// `(d*(d+1)/2,)` if the covariance is tied.
    pub(crate) scatter: Option<DeviceSlice<f64>>,
    /// `(k, wide_matrix(d))` if the M-step's matrices are in device memory.
    pub(crate) matrices: Option<DeviceSlice<f64>>,
    /// `(partials, sums)`.
    pub(crate) partials: DeviceSlice<f64>,
    /// With a prior.
    pub(crate) bayes: Option<BayesBuffers>,
    pub(crate) own: PathBuffers<DeviceSlice<f64>>,
}

/// The buffers of variational Bayes.
#[derive(Clone, Copy)]
pub(crate) struct BayesBuffers {
    /// `(k,)`: Σ r.
    pub(crate) counts: DeviceSlice<f64>,
    /// m less the shift, then C: [`prior_len`](super::prior::prior_len).
    pub(crate) prior: DeviceSlice<f64>,
    /// `(2, k)`: parts of the divergence from the prior.
    pub(crate) divergences: DeviceSlice<f64>,
}
