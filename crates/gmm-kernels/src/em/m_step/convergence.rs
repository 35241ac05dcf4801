//! The likelihood of a pass, and whether the loop goes on.

use crate::device;
use crate::em::m_step::{Component, TRACE, kind};
use crate::em::state::{DONE, FINISHED, TROUBLE};

/// What an iteration's likelihood is made of.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// Σ w ln p(x), but for what all components share.
    total: f64,
    /// See [`Update`](crate::em::m_step::Update).
    carry: f64,
    /// The mean of the iteration before.
    before: f64,
}

impl Seen {
    pub(crate) const NOTHING: Self = Self { total: 0.0, carry: 0.0, before: 0.0 };
}

impl Component<'_> {
    /// What [`book`](Self::book) needs, sent for long before.
    #[inline(always)]
    pub(crate) unsafe fn look(&self) -> Seen {
        let a = self.a;
        // SAFETY: places within the sums, the carry and the trace.
        unsafe {
            let load = |from: *mut f64, at: u64| device::load(from.cast_const(), at);
            Seen {
                total: self.sum_at(self.place.log_likelihood()),
                carry: if a.kind == kind::TIED { load(a.carry, ((a.iteration - 1) % 2) as u64) } else { 0.0 },
                before: if a.iteration > 1 { load(a.trace, (a.iteration - 2) as u64 % TRACE) } else { 0.0 },
            }
        }
    }

    /// The likelihood of the pass that this ends, and whether to go on; one thread of one block.
    #[inline(always)]
    pub(crate) unsafe fn book(&self, seen: Seen) {
        let a = self.a;
        let mean = (seen.total - seen.carry) / a.total_weight;
        let change = if a.iteration > 1 { mean - seen.before } else { f64::INFINITY };
        let size = if change < 0.0 { -change } else { change };
        // SAFETY: places within the trace and the state.
        unsafe {
            device::store(a.trace, (a.iteration - 1) as u64 % TRACE, mean);
            if !(mean > f64::NEG_INFINITY && mean < f64::INFINITY) {
                device::store(a.state, TROUBLE, a.iteration);
            }
            device::store(a.state, FINISHED, a.iteration);
            if size < a.tol || a.iteration == a.max_iter {
                device::store(a.state, DONE, a.iteration);
            }
        }
    }
}
