//! The parts of a posterior's constant and divergence that depend on Σ r alone: values of ln Γ, its derivative ψ and ln.

use crate::Real;
use crate::device::{self, WARP, first_lanes_sums, thread, warp};
use crate::em::m_step::bayes::Counts;
use crate::em::m_step::{Component, ONE, OWN_THREADS, has_matrix, kind};
use crate::math::{ln_f64, ln_gamma_and_digamma, reciprocal};

/// What depends on the counts alone: a thread's, warp's or block's part.
#[derive(Clone, Copy)]
pub(crate) struct CountTerms {
    /// Of the log density's constant.
    pub(crate) constant: f64,
    /// Of the divergence from the prior, without [`divergence_constant`](crate::em::m_step::Update::divergence_constant) and, for a
    /// tied covariance, without what is in [`carry`](crate::em::m_step::Update::carry).
    pub(crate) divergence: f64,
}

impl CountTerms {
    pub(crate) const NOTHING: Self = Self { constant: 0.0, divergence: 0.0 };
}

impl Component<'_> {
    /// All components' divergences before this M-step, in the first lanes, from what each lane has.
    #[inline(always)]
    pub(crate) fn sum_before(&self, before: f64) -> f64 {
        first_lanes_sums([before], self.lanes())[0]
    }

    /// Lanes that have a component of the first warp's.
    #[inline(always)]
    pub(super) fn lanes(&self) -> u32 {
        if self.a.k < WARP { self.a.k } else { WARP }
    }

    /// For a Dirichlet process: Σ r of the components after this one; adds 1/(α + Sᵢ) of the lane's components to `sticks`. All
    /// lanes of a warp take part. The sums are from the last component to the first, since a difference of sums from the
    /// first would have the rounding of the large counts.
    #[inline(always)]
    unsafe fn sums_from_last(&self, counts: &Counts, sticks: &mut f64) -> f64 {
        let (a, lane) = (self.a, warp::lane_id());
        let (mut all, mut after) = (0.0, 0.0);
        let mut first = a.k.next_multiple_of(WARP);
        while first > 0 {
            first -= WARP;
            let c = first + lane;
            let count = match (first, c < a.k) {
                (0, _) => counts.of_lane,
                // SAFETY: `c < k`.
                (_, true) => unsafe { self.count(c) },
                _ => 0.0,
            };
            // The sum of the lanes after this one, and that of all: both only of lanes that have components, and in those.
            let (mut later, mut of_warp, mut by) = (0.0, count, 1);
            while by < self.lanes() {
                let other = warp::shuffle_xor(of_warp, by);
                later += if lane & by == 0 { other } else { 0.0 };
                of_warp += other;
                by *= 2;
            }
            later += all;
            if c <= self.k {
                *sticks += reciprocal(a.concentration + (count + later));
            }
            if first == self.k / WARP * WARP {
                after = Real::shuffle_idx(later, self.k % WARP);
            }
            all += of_warp;
        }
        after
    }

    /// Starts the parts that depend on the counts alone: they are in `of_warps` after the next barrier, but for those that
    /// thread [`ONE`] gets here.
    #[inline(always)]
    pub(crate) unsafe fn count_terms(&self, counts: &Counts) -> CountTerms {
        let nth = self.nth_task();
        let of_warp = nth / WARP;
        if of_warp < self.warps_with_tasks() {
            // SAFETY: as the caller's.
            let CountTerms { constant, divergence } = unsafe { self.gammas(counts, nth) };
            let [of_precision, of_weight] = self.tasks();
            let lanes = of_precision + of_weight - WARP * of_warp;
            let lanes = if lanes < self.lanes() { self.lanes() } else { lanes };
            let [constant, divergence] =
                first_lanes_sums([constant, divergence], if lanes < WARP { lanes } else { WARP });
            if warp::lane_id() == 0 {
                self.w.of_warps.store2(2 * of_warp, [constant, divergence]);
            }
        }
        if thread::thread_idx_x() / WARP == ONE / WARP { self.logarithms(counts.own) } else { CountTerms::NOTHING }
    }

    /// All of a component: `own` is what [`count_terms`](Self::count_terms) returned to [`ONE`].
    #[inline(always)]
    pub(crate) fn all_count_terms(&self, own: CountTerms) -> CountTerms {
        let (mut out, mut of_warp) = (own, 0);
        while of_warp < self.warps_with_tasks() {
            let [constant, divergence] = self.w.of_warps.load2(2 * of_warp);
            out.constant += constant;
            out.divergence += divergence;
            of_warp += 1;
        }
        out
    }

    /// Number of arguments of ln Γ and ψ: those of the precision, and those of the weight.
    #[inline(always)]
    fn tasks(&self) -> [u32; 2] {
        [if has_matrix(self.a.kind) { self.a.d } else { 1 }, if self.a.process != 0 { 4 } else { 2 }]
    }

    #[inline(always)]
    fn warps_with_tasks(&self) -> u32 {
        let [of_precision, of_weight] = self.tasks();
        let warps = (of_precision + of_weight).div_ceil(WARP);
        if warps < OWN_THREADS / WARP { warps } else { OWN_THREADS / WARP }
    }

    /// The first argument of this thread. The first of all go to the block's upper half: with few columns its warps have no
    /// entries of the matrix, and wait for the others.
    #[inline(always)]
    fn nth_task(&self) -> u32 {
        (thread::thread_idx_x() + OWN_THREADS / 2) % OWN_THREADS
    }

    /// Whether the divergence of the component's precision counts: that of a tied covariance does once.
    #[inline(always)]
    pub(super) fn has_precision(&self) -> bool {
        self.a.kind != kind::TIED || self.k == 0
    }

    /// This thread's part of the values of ln Γ and ψ, from argument `task` on. Arguments are numbered, so that the functions
    /// occur once in the code. All lanes of a warp take part.
    #[inline(always)]
    unsafe fn gammas(&self, counts: &Counts, mut task: u32) -> CountTerms {
        let (a, d, alpha, count) = (self.a, self.a.d as f64, self.a.concentration, counts.own);
        let (is_process, nu) = (a.process != 0, self.nu(count));
        let [of_precision, of_weight] = self.tasks();
        let tasks = of_precision + of_weight;
        let mut out = CountTerms::NOTHING;
        // Σ r of all components is the rows' weight, to rounding.
        let (mut after, all) = (0.0, a.total_weight);
        if is_process {
            let mut sticks = 0.0;
            // SAFETY: all lanes of the warp are here.
            after = unsafe { self.sums_from_last(counts, &mut sticks) };
            if task < WARP {
                out.constant -= sticks;
            }
        }
        let once = if self.has_precision() { 1.0 } else { 0.0 };
        let step = device::unknown(OWN_THREADS);
        while task < tasks {
            // The argument; the factor of ψ in the constant; then those of ln Γ and ψ in the divergence.
            let (x, by_constant, by_ln, by_slope) = if task < of_precision {
                let spherical = a.kind == kind::SPHERICAL;
                let times = if has_matrix(a.kind) { 1.0 } else { d };
                let x = if spherical { 0.5 * d * nu } else { 0.5 * (nu - task as f64) };
                let of_ln = if spherical { 1.0 } else { times };
                (x, 0.5 * times, -of_ln * once, 0.5 * (nu - a.degrees_of_freedom) * times * once)
            } else {
                // Selections in place of branches, in which the lanes would follow one another.
                let nth = task - of_precision;
                let zero_unless = |condition: bool, v: f64| if condition { v } else { 0.0 };
                let own = zero_unless(nth == 0, count);
                let last = nth + 1 == of_weight;
                let by_constant = zero_unless(nth == 0, 1.0) - zero_unless(last, 1.0);
                if is_process {
                    let both = zero_unless(nth == 2, count + after);
                    let after = zero_unless(nth == 1, after);
                    let x = own + both + after + zero_unless(last, all);
                    let x = x + zero_unless(nth == 0 || nth == 2, 1.0) + zero_unless(nth > 0, alpha);
                    (x, by_constant, zero_unless(nth == 2, 2.0) - zero_unless(!last, 1.0), own + after - both)
                } else {
                    let x = own + zero_unless(last, a.k as f64 * alpha + all) + zero_unless(!last, alpha);
                    (
                        x,
                        by_constant,
                        zero_unless(last && self.k == 0, 1.0) - zero_unless(!last, 1.0),
                        own - zero_unless(last, count),
                    )
                }
            };
            let (ln_gamma, slope) = ln_gamma_and_digamma(x);
            out.constant += by_constant * slope;
            out.divergence += by_ln * ln_gamma + by_slope * slope;
            task += step;
        }
        out
    }

    /// The terms with logarithms of β and ν, in the first lane of a warp whose lanes are all here: three lanes have one
    /// logarithm each, so that the function occurs once in the code.
    #[inline(always)]
    fn logarithms(&self, count: f64) -> CountTerms {
        let (a, d, nu) = (self.a, self.a.d as f64, self.nu(count));
        let of_mean = reciprocal(a.mean_precision + count);
        let ratio = a.mean_precision * of_mean;
        let ln = ln_f64(match warp::lane_id() {
            0 => nu,
            1 => ratio,
            _ => 0.5 * d,
        });
        let [ln_ratio, ln_half_d] = [Real::shuffle_idx(ln, 1), Real::shuffle_idx(ln, 2)];
        // Minus the sum of `d` logarithms of ν/2, or of d ν/2.
        let halved = if a.kind == kind::SPHERICAL { ln_half_d } else { -core::f64::consts::LN_2 };
        let of_precision = if self.has_precision() { a.degrees_of_freedom * ln - nu } else { 0.0 };
        CountTerms {
            constant: -0.5 * d * (ln + halved + of_mean),
            divergence: 0.5 * d * (of_precision + ratio - 1.0 - ln_ratio),
        }
    }
}
