//! Passes over blocks of rows with measurement errors: densities, responsibilities, expected moments.

use std::ops::Range;

use gmm_model::{CovarianceType, ModelError, Statistics, packed_len};
use ndarray::ArrayView1;
use rayon::prelude::*;

use super::component::{Component, Method, Parameters};
use super::factor::Failed;
use super::lanes::{Rows, SLOTS};
use super::layout::{Block, Layout, WIDTH};
use super::{dense, diagonal, views};
use crate::cpu::simd::{Dispatch, Kernel, Machine, Words};
use crate::{Error, EvaluateOptions, Evaluation, memory};

/// Shares per thread, so that a thread delayed by the system delays the others by a quarter at most.
const SHARES_PER_THREAD: usize = 4;

/// Above this many bytes of workspace, there is one share per thread.
const LARGE: u128 = 1 << 22;

/// Numbers per row and component, or per component.
struct Sizes {
    kept: usize,
    scratch: usize,
    sums: usize,
}

impl Sizes {
    const fn of(method: Method, m: usize, d: usize) -> Self {
        match method {
            Method::Diagonal => Self { kept: 0, scratch: 0, sums: diagonal::sums(d) },
            Method::Dense => Self { kept: dense::kept(d), scratch: dense::scratch(d), sums: dense::sums(d) },
            Method::Views => Self { kept: views::kept(m), scratch: views::scratch(m, d), sums: views::sums(d) },
        }
    }
}

/// Workspace of one share of the blocks, and its sums.
struct Share {
    /// Log joint densities, then responsibilities, `(k, WIDTH)`.
    joint: Vec<f64>,
    log_densities: [f64; WIDTH],
    /// What rows keep of each component, `(k, kept, WIDTH)`; of one component if no sums are wanted.
    kept: Vec<f64>,
    /// `(scratch, WIDTH)`.
    scratch: Vec<f64>,
    /// `(k, sums, SLOTS)`; empty if none are wanted.
    sums: Vec<f64>,
    log_likelihood: f64,
    total_weight: f64,
}

/// One block of a share.
struct BlockPass<'a> {
    layout: &'a Layout,
    parameters: &'a Parameters,
    block: usize,
    /// Row weights; `None` if no sums are wanted.
    weights: Option<[f64; WIDTH]>,
    share: &'a mut Share,
}

/// The component in which a factorisation failed, and where.
type Failure = (usize, Failed);

impl Kernel<f64> for BlockPass<'_> {
    type Output = Result<(), Failure>;

    #[inline(always)]
    fn run<W: Words<f64>>(self, w: W) -> Self::Output {
        let Self { layout, parameters, block, weights, share } = self;
        let sizes = Sizes::of(parameters.method, layout.m, layout.d);
        let (block, is_diagonal, k) = (layout.block(block), layout.is_diagonal, parameters.k);
        for c in 0..k {
            let of = parameters.component(c);
            let at = if weights.is_some() { c } else { 0 } * sizes.kept * WIDTH;
            let kept = &mut share.kept[at..][..sizes.kept * WIDTH];
            let (scratch, joint) = (&mut share.scratch[..], &mut share.joint[c * WIDTH..][..WIDTH]);
            let step =
                FactorStep { block, is_diagonal, of, log_weight: parameters.log_weights[c], kept, scratch, joint };
            // Apart: each becomes a function of its own, small enough for the compiler to inline all that it calls.
            let failed = match parameters.method {
                Method::Diagonal => w.apart(DiagonalFactor(step)),
                Method::Dense => w.apart(DenseFactor(step)),
                Method::Views => w.apart(ViewsFactor(step)),
            };
            if let Some(failed) = failed {
                return Err((c, failed));
            }
        }
        for group in 0..Rows::<W>::GROUPS {
            let rows = Rows::group(w, group);
            normalise(rows, &parameters.weights, &mut share.joint, &mut share.log_densities);
        }
        let Some(weights) = weights else { return Ok(()) };
        for c in 0..k {
            let of = parameters.component(c);
            let kept = &share.kept[c * sizes.kept * WIDTH..][..sizes.kept * WIDTH];
            let sums = &mut share.sums[c * sizes.sums * SLOTS..][..sizes.sums * SLOTS];
            let (scratch, r) = (&mut share.scratch[..], &share.joint[c * WIDTH..][..WIDTH]);
            let step = SumStep { block, is_diagonal, of, kept, r, weights: &weights, scratch, sums };
            match parameters.method {
                Method::Diagonal => w.apart(DiagonalSums(step)),
                Method::Dense => w.apart(DenseSums(step)),
                Method::Views => w.apart(ViewsSums(step)),
            }
        }
        Ok(())
    }
}

/// The factors of a block's rows in one component.
struct FactorStep<'a> {
    block: Block<'a>,
    is_diagonal: bool,
    of: Component<'a>,
    log_weight: f64,
    kept: &'a mut [f64],
    scratch: &'a mut [f64],
    /// Log joint densities, `(WIDTH,)`.
    joint: &'a mut [f64],
}

struct DiagonalFactor<'a>(FactorStep<'a>);
struct DenseFactor<'a>(FactorStep<'a>);
struct ViewsFactor<'a>(FactorStep<'a>);

/// The sums of a block's rows in one component.
struct SumStep<'a> {
    block: Block<'a>,
    is_diagonal: bool,
    of: Component<'a>,
    kept: &'a [f64],
    /// Responsibilities, `(WIDTH,)`.
    r: &'a [f64],
    /// `(WIDTH,)`.
    weights: &'a [f64],
    scratch: &'a mut [f64],
    sums: &'a mut [f64],
}

struct DiagonalSums<'a>(SumStep<'a>);
struct DenseSums<'a>(SumStep<'a>);
struct ViewsSums<'a>(SumStep<'a>);

macro_rules! factor_step {
    ($name:ident, |$rows:ident, $step:ident| $factor:expr) => {
        impl Kernel<f64> for $name<'_> {
            type Output = Option<Failed>;

            #[inline(always)]
            fn run<W: Words<f64>>(self, w: W) -> Option<Failed> {
                let $step = self.0;
                let mut failed = None;
                for group in 0..Rows::<W>::GROUPS {
                    let $rows = Rows::group(w, group);
                    let factor = $factor;
                    failed = failed.or(factor.failed);
                    let constant = $rows.add($rows.load($step.block.constants, 0), $rows.splat($step.log_weight));
                    $rows.store($step.joint, 0, $rows.add(constant, factor.exponent));
                }
                failed
            }
        }
    };
}
factor_step!(DiagonalFactor, |rows, step| diagonal::factor(rows, step.block, &step.of));
factor_step!(DenseFactor, |rows, step| dense::factor(rows, step.block, step.is_diagonal, &step.of, step.kept));
factor_step!(ViewsFactor, |rows, step| views::factor(
    rows,
    (step.block, step.is_diagonal),
    &step.of,
    step.kept,
    step.scratch
));

macro_rules! sum_step {
    ($name:ident, |$rows:ident, $step:ident, $r:ident| $add:expr) => {
        impl Kernel<f64> for $name<'_> {
            type Output = ();

            #[inline(always)]
            fn run<W: Words<f64>>(self, w: W) {
                let $step = self.0;
                for group in 0..Rows::<W>::GROUPS {
                    let $rows = Rows::group(w, group);
                    let $r = $rows.mul($rows.load($step.r, 0), $rows.load($step.weights, 0));
                    if $rows.any_positive($r) {
                        $add;
                    }
                }
            }
        }
    };
}
sum_step!(DiagonalSums, |rows, step, r| diagonal::add(rows, step.block, &step.of, r, step.sums));
sum_step!(DenseSums, |rows, step, r| dense::add(
    rows,
    (step.block, step.is_diagonal),
    &step.of,
    (step.kept, r),
    step.scratch,
    step.sums
));
sum_step!(ViewsSums, |rows, step, r| views::add(rows, step.block, &step.of, (step.kept, r), step.scratch, step.sums));

/// Turns log joint densities, `(k, WIDTH)`, into responsibilities, and writes the log densities. If all densities of a row
/// underflow, they are the weights.
#[inline(always)]
fn normalise<W: Words<f64>>(rows: Rows<W>, weights: &[f64], joint: &mut [f64], log_densities: &mut [f64]) {
    let mut top = rows.splat(f64::NEG_INFINITY);
    for c in 0..weights.len() {
        top = rows.max(rows.load(joint, c), top);
    }
    let mut sum = rows.splat(0.0);
    for c in 0..weights.len() {
        let share = rows.exp(rows.sub(rows.load(joint, c), top));
        sum = rows.add(sum, share);
        rows.store(joint, c, share);
    }
    let least = rows.splat(f64::MIN);
    for (c, weight) in weights.iter().enumerate() {
        let share = rows.div(rows.load(joint, c), sum);
        rows.store(joint, c, rows.select_lt(top, least, rows.splat(*weight), share));
    }
    let log_density = rows.add(top, rows.ln(sum));
    rows.store(log_densities, 0, rows.select_lt(top, least, top, log_density));
}

/// The threads and instructions of passes.
pub(super) struct Runner<'a> {
    pub(super) machine: Machine,
    pub(super) pool: &'a rayon::ThreadPool,
    pub(super) layout: &'a Layout,
    pub(super) weights: Option<&'a [f64]>,
}

impl Runner<'_> {
    /// The blocks of each share. Their number depends only on the shape and the thread count, since it determines the order
    /// of additions.
    fn shares(&self, bytes: u128) -> Vec<Range<usize>> {
        let threads = self.pool.current_num_threads();
        let blocks = self.layout.blocks();
        let count = (threads * if bytes > LARGE { 1 } else { SHARES_PER_THREAD }).min(blocks);
        (0..count).map(|i| i * blocks / count..(i + 1) * blocks / count).collect()
    }

    fn weight(&self, row: usize) -> f64 {
        match self.weights {
            _ if row >= self.layout.n => 0.0,
            Some(weights) => weights[row],
            None => 1.0,
        }
    }

    /// Workspace of each share, with sums or without.
    fn workspaces(&self, parameters: &Parameters, with_sums: bool) -> Result<Vec<(Range<usize>, Share)>, Error> {
        let Parameters { k, d, method, .. } = *parameters;
        let sizes = Sizes::of(method, self.layout.m, d);
        let kept = if with_sums { k } else { 1 } * sizes.kept * WIDTH;
        let sums = if with_sums { k * sizes.sums * SLOTS } else { 0 };
        let bytes = 8 * (kept as u128 + sums as u128 + ((k + sizes.scratch) * WIDTH) as u128);
        let shares = self.shares(bytes);
        memory::check("the workspace of a pass", bytes * shares.len() as u128)?;
        let share = |blocks| {
            let share = Share {
                joint: vec![0.0; k * WIDTH],
                log_densities: [0.0; WIDTH],
                kept: memory::zeros(kept),
                scratch: vec![0.0; sizes.scratch * WIDTH],
                sums: memory::zeros(sums),
                log_likelihood: 0.0,
                total_weight: 0.0,
            };
            (blocks, share)
        };
        Ok(shares.into_iter().map(share).collect())
    }

    /// The error of a factorisation that failed.
    fn failure(parameters: &Parameters, (component, failed): Failure) -> Error {
        let Failed { column, pivot, .. } = failed;
        ModelError::NotPositiveDefinite { component, column, pivot, kind: parameters.kind }.into()
    }

    /// The expected statistics of the true rows, about the means.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`ModelError::NotPositiveDefinite`].
    pub(super) fn statistics(&self, parameters: &Parameters, zero: Statistics) -> Result<Statistics, Error> {
        let layout = self.layout;
        let mut all = self.workspaces(parameters, true)?;
        let one = |(blocks, share): &mut (Range<usize>, Share)| {
            for block in blocks.clone() {
                let counts = |row: usize| if layout.is_unmeasured(row) { 0.0 } else { self.weight(row) };
                let weights: [f64; WIDTH] = std::array::from_fn(|lane| counts(block * WIDTH + lane));
                let pass = BlockPass { layout, parameters, block, weights: Some(weights), share };
                f64::dispatch(self.machine, pass)?;
                for (w, v) in weights.iter().zip(share.log_densities).filter(|(w, _)| **w > 0.0) {
                    share.log_likelihood += w * v;
                    share.total_weight += w;
                }
            }
            Ok(())
        };
        let run = |all: &mut Vec<_>| all.par_iter_mut().map(one).collect::<Result<(), Failure>>();
        self.pool.install(|| run(&mut all)).map_err(|failure| Self::failure(parameters, failure))?;
        let (first, others) = all.split_first_mut().expect("at least one share");
        for (_, share) in others {
            first.1.sums.iter_mut().zip(&share.sums).for_each(|(total, v)| *total += v);
            first.1.log_likelihood += share.log_likelihood;
            first.1.total_weight += share.total_weight;
        }
        Ok(collected(parameters, layout, &first.1, zero))
    }

    /// As [`Evaluate::evaluate`](crate::Evaluate::evaluate).
    ///
    /// # Errors
    /// As for [`statistics`](Self::statistics).
    pub(super) fn evaluate(&self, parameters: &Parameters, mut want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        let (layout, k) = (self.layout, parameters.k);
        let all = self.workspaces(parameters, false)?;
        let mut work = Vec::with_capacity(all.len());
        for (blocks, share) in all {
            let rows = layout.n.min(blocks.end * WIDTH) - blocks.start * WIDTH;
            work.push((blocks, share, want.split(rows, k)));
        }
        let one = |(blocks, share, mut want): (Range<usize>, Share, EvaluateOptions<'_>)| {
            let mut out = Evaluation::NOTHING;
            let (mut share, mut r, start) = (share, vec![0.0; k], blocks.start * WIDTH);
            for block in blocks {
                f64::dispatch(self.machine, BlockPass { layout, parameters, block, weights: None, share: &mut share })?;
                for lane in 0..WIDTH.min(layout.n - block * WIDTH) {
                    let row = block * WIDTH + lane;
                    r.iter_mut().enumerate().for_each(|(c, r)| *r = share.joint[c * WIDTH + lane]);
                    out.add_row(self.weight(row), share.log_densities[lane], ArrayView1::from(&r));
                    want.put_row(row - start, share.log_densities[lane], ArrayView1::from(&r));
                }
            }
            Ok(out)
        };
        let run = || work.into_par_iter().map(one).collect::<Result<Vec<_>, Failure>>();
        let parts = self.pool.install(run).map_err(|failure| Self::failure(parameters, failure))?;
        Ok(parts.into_iter().fold(Evaluation::NOTHING, |sum, part| sum + part))
    }
}

/// The statistics of all shares, from the accumulators of the first.
fn collected(parameters: &Parameters, layout: &Layout, share: &Share, zero: Statistics) -> Statistics {
    let Parameters { k, d, method, kind, .. } = *parameters;
    let mut out = zero;
    let len = Sizes::of(method, layout.m, d).sums;
    let mut sums = vec![0.0; len];
    for c in 0..k {
        let slots = share.sums[c * len * SLOTS..][..len * SLOTS].chunks_exact(SLOTS);
        sums.iter_mut().zip(slots).for_each(|(sum, slots)| *sum = slots.iter().sum());
        out.weight[c] = sums[0];
        out.first.row_mut(c).iter_mut().zip(&sums[1..]).for_each(|(first, v)| *first = *v);
        let second = match kind {
            CovarianceType::Full => &mut out.second[c * packed_len(d)..][..packed_len(d)],
            CovarianceType::Tied => &mut out.second[..],
            CovarianceType::Diag => &mut out.second[c * d..][..d],
            CovarianceType::Spherical => &mut out.second[c..=c],
        };
        parameters.component(c).add_second(method, kind, &sums, second);
    }
    out.log_likelihood = share.log_likelihood;
    out.total_weight = share.total_weight;
    out.n_rows = layout.n as u64;
    out
}
