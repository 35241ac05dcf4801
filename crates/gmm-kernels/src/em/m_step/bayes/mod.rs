//! The M-step of variational Bayes: it gives a posterior in place of a mixture.
//!
//! The expected log density of a row under a component is a Gaussian log density plus a constant, so the passes stay as
//! they are, and so does the expansion of a component's densities. With N = Σ r and x̄ of a component's rows, a prior of
//! mean m worth β rows, and of scale C worth ν rows, the posterior is worth β + N and ν + N rows, and
//!
//! ```text
//! mean          (β m + N x̄) / (β + N)
//! covariance    (C + Σ r (x − x̄)(x − x̄)ᵀ + N reg + βN/(β + N) (x̄ − m)(x̄ − m)ᵀ) / (ν + N)
//! constant      that of a weight of 1, + E ln π + ½ (E ln |Λ| − ln |E Λ| − d/(β + N))
//! ```
//! The covariance is the inverse of the expected precision E Λ. The expectations and the divergence of the posterior from
//! the prior need values of ln Γ and its derivative ψ at numbers that depend on Σ r alone; each has a thread.
//!
//! With a Dirichlet process of concentration α, E ln π of component `c` is a sum over the components before it. With
//! `Sᵢ` = Σ r of the components from `i` on, and ψ(x + 1) = ψ(x) + 1/x, all but two values of ψ cancel:
//!
//! ```text
//! E ln π = ψ(1 + N) − ψ(α + S₀) − Σ over i ≤ c of 1/(α + Sᵢ)
//! ```
//! `gmm_model::bayes` has the distributions of each kind, the sources, and the same formulas on the host.

mod posterior;

use crate::Real;
use crate::device::{self, WARP, first_lanes_sums, thread, warp};
use crate::em::m_step::work::HELD;
use crate::em::m_step::{Component, ONE, OWN_THREADS, has_matrix, kind, share, share_triangle};
use crate::layout::{packed_index, packed_len};
use crate::math::{ln_f64, ln_gamma_and_digamma, reciprocal};

/// Length of C: a packed matrix for full and tied, `d` for diag, 1 for spherical.
pub const fn scale_len(kind: u32, d: u32) -> u64 {
    match kind {
        kind::FULL | kind::TIED => packed_len(d),
        kind::DIAG => d as u64,
        _ => 1,
    }
}

/// Whether the block prefetches C into shared memory.
pub(super) const fn brings_scale(kind: u32, d: u32) -> bool {
    kind == kind::FULL && d <= HELD
}

/// What is read long before it is used, so that nothing waits for it.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Σ r of the component.
    pub(crate) own: f64,
    /// That of the component whose number is the lane's, where there is one.
    of_lane: f64,
}

impl Counts {
    pub(crate) const NONE: Self = Self { own: 0.0, of_lane: 0.0 };
}

/// What a posterior adds to a component's results, in parts that have one number for each thread, warp or block.
#[derive(Clone, Copy)]
pub(crate) struct More {
    /// Of the log density's constant.
    pub(crate) constant: f64,
    /// Of the divergence from the prior, without [`divergence_constant`](super::Update::divergence_constant) and, for a
    /// tied covariance, without what is in [`carry`](super::Update::carry).
    pub(crate) divergence: f64,
}

impl More {
    pub(crate) const NOTHING: Self = Self { constant: 0.0, divergence: 0.0 };
}

impl Component<'_> {
    /// m less the shift; without a matrix, only before the expansion and for a column of this thread.
    #[inline(always)]
    unsafe fn prior_mean<const WIDE: bool>(&self, j: u32) -> f64 {
        match (WIDE, has_matrix(self.a.kind)) {
            // SAFETY: the caller passes `j < d`.
            (true, _) => unsafe { self.prior_mean_there(j) },
            (_, true) => self.w.centre.load(j),
            (_, false) => self.w.reach.load(j),
        }
    }

    /// m less the shift, from device memory.
    #[inline(always)]
    pub(crate) unsafe fn prior_mean_there(&self, j: u32) -> f64 {
        // SAFETY: the caller passes `j < d`.
        unsafe { device::load(self.a.prior, j as u64) }
    }

    /// Entry `at` of C, packed.
    #[inline(always)]
    unsafe fn scale_there(&self, at: u64) -> f64 {
        // SAFETY: the caller passes a position below `scale_len`, and C follows the mean.
        unsafe { device::load(self.a.prior, self.a.d as u64 + at) }
    }

    /// Entry `at` of C of a full covariance; one that this thread prefetched.
    #[inline(always)]
    unsafe fn scale<const WIDE: bool>(&self, at: u64) -> f64 {
        if !WIDE && brings_scale(self.a.kind, self.a.d) {
            self.w.scatter.load(at as u32)
        } else {
            // SAFETY: as the caller's.
            unsafe { self.scale_there(at) }
        }
    }

    /// Starts the copies of the prior: each thread copies what it will use itself. Without a matrix, m goes where the reach
    /// will be, and C where the pivots would be; for a spherical covariance, whose sum of squares is there, to the variances.
    #[inline(always)]
    pub(crate) unsafe fn send_prior(&self) {
        let (a, w) = (self.a, self.w);
        let from = |at: u32| a.prior.wrapping_add(at as usize);
        // SAFETY: `j ≤ i < d`, so positions are within the prior and the vectors.
        unsafe {
            if has_matrix(a.kind) {
                share(a.d, |j| w.centre.send(j, from(j)));
                if brings_scale(a.kind, a.d) {
                    share_triangle(a.d, |i, j| {
                        let at = packed_index(i, j) as u32;
                        w.scatter.send(at, from(a.d + at));
                    });
                }
            } else {
                share(a.d, |j| {
                    w.reach.send(j, from(j));
                    if a.kind == kind::DIAG {
                        w.pivot.send(j, from(a.d + j));
                    } else {
                        w.variance.send(j, from(a.d));
                    }
                });
            }
        }
    }

    /// Without a matrix, stores what [`about_prior`](Self::about_prior) is for the parameters that were given.
    #[inline(always)]
    pub(crate) unsafe fn recall_prior(&self) {
        let (a, w) = (self.a, self.w);
        if !has_matrix(a.kind) {
            share(a.d, |j| {
                // SAFETY: `j < d`.
                let (m, scale) = unsafe {
                    (self.prior_mean_there(j), self.scale_there(if a.kind == kind::DIAG { j as u64 } else { 0 }))
                };
                self.store_about_prior(j, scale, w.mean.load(j) - m);
            });
        }
    }

    /// Without a matrix, stores entry `j` of C + β (E μ − m)(E μ − m)ᵀ where the pivots would be, for the same thread.
    #[inline(always)]
    fn store_about_prior(&self, j: u32, scale: f64, away: f64) {
        self.w.pivot.store(j, scale + self.a.mean_precision * away * away);
    }

    /// Σ r of component `c`.
    #[inline(always)]
    unsafe fn count(&self, c: u32) -> f64 {
        // SAFETY: the caller passes `c < k`.
        unsafe {
            if self.a.iteration == 0 {
                device::load(self.a.counts.cast_const(), c as u64)
            } else {
                self.sum_at(self.place.weight(c))
            }
        }
    }

    #[inline(always)]
    pub(crate) unsafe fn counts(&self) -> Counts {
        let (a, lane) = (self.a, warp::lane_id());
        // SAFETY: both are below `k`.
        let (own, of_lane) = unsafe { (self.count(self.k), if lane < a.k { self.count(lane) } else { 0.0 }) };
        Counts { own, of_lane }
    }

    /// This lane's part of all components' divergences before this M-step.
    #[inline(always)]
    pub(crate) unsafe fn divergences_before(&self) -> f64 {
        let (a, mut c, mut before) = (self.a, warp::lane_id(), 0.0);
        let from = ((a.iteration - 1) % 2) as u64 * a.k as u64;
        while c < a.k {
            // SAFETY: `c < k`, and the buffer holds the numbers of two iterations.
            before += unsafe { device::load(a.divergences.cast_const(), from + c as u64) };
            c += WARP;
        }
        before
    }

    /// All components' divergences before this M-step, in the first lanes, from what each lane has.
    #[inline(always)]
    pub(crate) fn sum_before(&self, before: f64) -> f64 {
        first_lanes_sums([before], self.lanes())[0]
    }

    /// Lanes that have a component of the first warp's.
    #[inline(always)]
    fn lanes(&self) -> u32 {
        if self.a.k < WARP { self.a.k } else { WARP }
    }

    /// For a Dirichlet process: Σ r of the components after this one, and of all; adds 1/(α + Sᵢ) of the lane's components
    /// to `sticks`. All lanes of a warp take part. The sums are from the last component to the first, since a difference of
    /// sums from the first would have the rounding of the large counts.
    #[inline(always)]
    unsafe fn sums_from_last(&self, counts: &Counts, sticks: &mut f64) -> [f64; 2] {
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
            // The sum of the lanes after this one, and that of all.
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
        [after, all]
    }

    /// Returns ν of the posterior of the component's precision, of which Σ r is `own`.
    #[inline(always)]
    fn nu(&self, own: f64) -> f64 {
        self.a.degrees_of_freedom + if self.a.kind == kind::TIED { self.a.total_weight } else { own }
    }

    /// Starts the parts that depend on the counts alone: they are in `of_warps` after the next barrier, but for those that
    /// thread [`ONE`] gets here.
    #[inline(always)]
    pub(crate) unsafe fn more(&self, counts: &Counts) -> More {
        let nth = self.nth_task();
        let of_warp = nth / WARP;
        if of_warp < self.warps_with_tasks() {
            // SAFETY: as the caller's.
            let More { constant, divergence } = unsafe { self.gammas(counts, nth) };
            let [of_precision, of_weight] = self.tasks();
            let lanes = of_precision + of_weight - WARP * of_warp;
            let lanes = if lanes < self.lanes() { self.lanes() } else { lanes };
            let [constant, divergence] =
                first_lanes_sums([constant, divergence], if lanes < WARP { lanes } else { WARP });
            if warp::lane_id() == 0 {
                self.w.of_warps.store2(2 * of_warp, [constant, divergence]);
            }
        }
        if thread::thread_idx_x() / WARP == ONE / WARP { self.logarithms(counts.own) } else { More::NOTHING }
    }

    /// All of a component: `own` is what [`more`](Self::more) returned to [`ONE`].
    #[inline(always)]
    pub(crate) fn gather_more(&self, own: More) -> More {
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
    fn has_precision(&self) -> bool {
        self.a.kind != kind::TIED || self.k == 0
    }

    /// This thread's part of the values of ln Γ and ψ, from argument `task` on. Arguments are numbered, so that the functions
    /// occur once in the code. All lanes of a warp take part.
    #[inline(always)]
    unsafe fn gammas(&self, counts: &Counts, mut task: u32) -> More {
        let (a, d, alpha, count) = (self.a, self.a.d as f64, self.a.concentration, counts.own);
        let (is_process, nu) = (a.process != 0, self.nu(count));
        let [of_precision, of_weight] = self.tasks();
        let tasks = of_precision + of_weight;
        let mut out = More::NOTHING;
        let (mut after, mut all) = (0.0, a.total_weight);
        if is_process {
            let mut sticks = 0.0;
            // SAFETY: all lanes of the warp are here.
            [after, all] = unsafe { self.sums_from_last(counts, &mut sticks) };
            if task < WARP {
                out.constant -= sticks;
            }
        }
        let step = device::unknown(OWN_THREADS);
        while task < tasks {
            // The argument; the factor of ψ in the constant; then those of ln Γ and ψ in the divergence.
            let (x, by_constant, by_ln, by_slope) = if task < of_precision {
                let (x, times) = match a.kind {
                    kind::SPHERICAL => (0.5 * d * nu, d),
                    kind::DIAG => (0.5 * nu, d),
                    _ => (0.5 * (nu - task as f64), 1.0),
                };
                let of_ln = if a.kind == kind::SPHERICAL { 1.0 } else { times };
                let once = if self.has_precision() { 1.0 } else { 0.0 };
                (x, 0.5 * times, -of_ln * once, 0.5 * (nu - a.degrees_of_freedom) * times * once)
            } else {
                match (is_process, task - of_precision) {
                    (false, 0) => (alpha + count, 1.0, -1.0, count),
                    (false, _) => {
                        let once = if self.k == 0 { 1.0 } else { 0.0 };
                        (a.k as f64 * alpha + all, -1.0, once, -count)
                    }
                    (true, 0) => (1.0 + count, 1.0, -1.0, count),
                    (true, 1) => (alpha + after, 0.0, -1.0, after),
                    (true, 2) => (1.0 + count + alpha + after, 0.0, 1.0, -(count + after)),
                    (true, _) => (alpha + all, -1.0, 0.0, 0.0),
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
    fn logarithms(&self, count: f64) -> More {
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
        More {
            constant: -0.5 * d * (ln + halved + of_mean),
            divergence: 0.5 * d * (of_precision + ratio - 1.0 - ln_ratio),
        }
    }

    /// Entry `(i, j)` of C + β (E μ − m)(E μ − m)ᵀ, of a full covariance.
    #[inline(always)]
    pub(crate) unsafe fn about_prior<const WIDE: bool>(&self, i: u32, j: u32) -> f64 {
        // SAFETY: the caller passes `j ≤ i < d`.
        unsafe {
            let away = |j: u32| self.w.mean.load(j) - self.prior_mean::<WIDE>(j);
            self.scale::<WIDE>(packed_index(i, j)) + self.a.mean_precision * away(i) * away(j)
        }
    }

    /// For a tied covariance, with column `j` of precision times mean: this thread's part of half the trace that
    /// [`carry`](super::Update::carry) lacks.
    #[inline(always)]
    pub(crate) unsafe fn about_tied<const WIDE: bool>(&self, product: f64, j: u32) -> f64 {
        // SAFETY: the caller passes `j < d`.
        let m = unsafe { self.prior_mean::<WIDE>(j) };
        0.5 * self.a.mean_precision * product * (self.w.mean.load(j) - 2.0 * m)
    }

    /// Stores the component's part of the divergence, to which only the covariance's determinant is added. Called by one
    /// thread.
    #[inline(always)]
    pub(crate) fn put_divergence(&self, divergence: f64, half_ln_det: f64) {
        let a = self.a;
        let of_precision = if self.has_precision() { a.degrees_of_freedom * half_ln_det } else { 0.0 };
        let at = (a.iteration % 2) as u64 * a.k as u64 + self.k as u64;
        // SAFETY: `self.k < a.k`, and the buffer holds the numbers of two iterations.
        unsafe { device::store(a.divergences, at, divergence + of_precision) };
    }
}
