//! Log-likelihood ratios of speakers and background: for each row the components of largest density under the background,
//! and the densities of these under both.
//!
//! The parameters of all speakers are on the device, the background's before them. Each utterance is a part of the rows, on one
//! of several [lanes](Lane): a kernel lists the components of its rows, and another takes all its trials at the same time,
//! of which the first is the background's own.

use cust::memory::DeviceSlice;
use gmm_kernels::em::chunked::double_precision::trials::{Trials, trials};
use gmm_kernels::layout::{packed_len, tiled_len};
use gmm_model::{Cholesky, CovarianceType, Factors, Mixture};
use ndarray::{ArrayView2, Axis};
use rayon::prelude::*;

use super::device_loop::{Loop, Member};
use super::lanes::{LANES, Lane};
use super::parts::{Part, plan_of};
use super::path::{EmPath, Launch, LoopPlan, LoopRows};
use super::workspace::Workspace;
use crate::Error;
use crate::adapt::{Ratios, Speakers};
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::staging::{receive, send};
use crate::cuda::launch::{Chunk, Launcher, or_null, pointer};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;

/// What error messages call the parameters.
const WHAT: &str = "the speakers on the GPU";

/// Most trials of a launch: a grid has no more rows of blocks.
const MOST_TRIALS: usize = if cfg!(test) { 2 } else { 65_535 };

/// Fewest rows of a block.
const ROWS_OF_BLOCK: usize = 16;

/// The ratio of each trial, with NaN where both densities are 0. `parts` are the utterances; trials number the `used` speakers. `None` if no path
/// keeps enough precision, memory lacks, or the largest components of a row cannot be told.
///
/// # Errors
/// As for a pass.
pub(crate) fn ratios<T: Number>(
    Member { em, rows }: Member<'_, T>,
    paths: &[&'static dyn EmPath],
    parts: &[Part],
    asked: &Ratios<'_>,
    used: &[usize],
) -> Result<Option<Vec<f64>>, Error> {
    let Some(plan) = plan_of(rows, paths, asked.background, parts, Some(asked.top))? else { return Ok(None) };
    let done = on_path(em, rows, &plan, (parts, used), asked);
    if done.is_err() {
        rows.recover();
    }
    match done {
        Err(Error::Memory { .. }) => Ok(None),
        done => done,
    }
}

/// The trials of an utterance.
struct OfUtterance {
    part: Part,
    /// Places of its trials among those asked for.
    asked: Vec<usize>,
    /// Place of the first of its mixtures, the background.
    first: usize,
    /// Blocks that share its rows.
    splits: usize,
    /// Place of the first of its sums, `(1 + asked, splits)`.
    sums: usize,
}

impl OfUtterance {
    const fn len(&self) -> usize {
        1 + self.asked.len()
    }

    /// All of them, the mixture of each of their trials, and the number of sums.
    fn all(parts: &[Part], asked: &Ratios<'_>, multiprocessors: usize) -> (Vec<Self>, Vec<u32>, usize) {
        let mut of = vec![Vec::new(); parts.len()];
        asked.trials.iter().enumerate().for_each(|(at, trial)| of[trial.utterance].push(at));
        let (mut all, mut mixtures, mut sums) = (Vec::new(), Vec::new(), 0);
        for (part, asked_here) in parts.iter().zip(of) {
            let (first, most) = (mixtures.len(), part.rows.len().div_ceil(ROWS_OF_BLOCK));
            mixtures.push(0);
            mixtures.extend(asked_here.iter().map(|&at| 1 + asked.trials[at].speaker as u32));
            let splits = (2 * multiprocessors).div_ceil(1 + asked_here.len()).min(most);
            let one = Self { part: part.clone(), asked: asked_here, first, splits, sums };
            sums += one.len() * splits;
            all.push(one);
        }
        (all, mixtures, sums)
    }
}

/// As [`ratios`], on one path.
fn on_path<T: Number>(
    em: &mut Loop,
    rows: &mut Rows<T>,
    plan: &LoopPlan,
    (parts, used): (&[Part], &[usize]),
    asked: &Ratios<'_>,
) -> Result<Option<Vec<f64>>, Error> {
    let workspace = Workspace::of(plan);
    let (utterances, mixtures, n_sums) = OfUtterance::all(parts, asked, rows.gpu.limits.multiprocessors as usize);
    let scored = Scored::send(rows, (asked, used), &mixtures, n_sums)?;
    let longest = parts.iter().map(|part| part.rows.len() as u64).max().unwrap_or(0).min(plan.grid.chunk);
    let mut others: Vec<Loop> = (1..LANES.min(utterances.len())).map(|_| Loop::empty()).collect();
    let listed = |_| Slot::<u32>::taken(&rows.gpu, WHAT, tiled_len(longest, plan.largest) as usize);
    let listed: Vec<Slot<u32>> = (0..=others.len()).map(listed).collect::<Result<_, _>>()?;
    // Dropped before the lists: they then wait for their streams, which use those.
    let lanes = Lane::open([em].into_iter().chain(&mut others), rows, plan, &workspace, asked.background)?;
    for (one, (lane, listed)) in utterances.iter().zip(lanes.iter().zip(&listed).cycle()) {
        let listed = listed.first(tiled_len(longest, plan.largest) as usize);
        scored.enqueue(lane, rows, plan, &workspace, one, listed)?;
    }
    let kept =
        lanes.iter().try_fold(true, |kept, lane| Ok::<_, Error>(lane.kept_precision(&rows.gpu, &workspace)? && kept));
    if !kept? {
        return Ok(None);
    }
    let mut sums = vec![0.0; scored.n_sums];
    receive(&rows.gpu, &rows.queue, &scored.sums.first(scored.n_sums), |piece, from| {
        sums[piece].copy_from_slice(from)
    })?;
    let mut found = vec![0.0; asked.trials.len()];
    for one in &utterances {
        let mut of = sums[one.sums..].chunks_exact(one.splits).map(|of_blocks| of_blocks.iter().sum::<f64>());
        let background = of.next().unwrap_or(f64::NAN);
        one.asked.iter().zip(of).for_each(|(&at, sum)| found[at] = (sum - background) / one.part.total_weight);
    }
    Ok(Some(found))
}

/// The parameters of background and speakers on the device, and the sums of all trials.
struct Scored {
    means: Slot<f64>,
    scales: Slot<f64>,
    constants: Slot<f64>,
    /// Whether scales are triangles of matrices.
    triangles: bool,
    /// Whether each speaker has scales and constants of its own.
    of_each: bool,
    /// The mixture of each trial.
    mixtures: Slot<u32>,
    n_mixtures: usize,
    sums: Slot<f64>,
    n_sums: usize,
}

impl Scored {
    /// Copies the parameters of the background and of the `used` speakers to the device.
    fn send<T: Number>(
        rows: &mut Rows<T>,
        (asked, used): (&Ratios<'_>, &[usize]),
        mixtures: &[u32],
        n_sums: usize,
    ) -> Result<Self, Error> {
        let background = asked.background;
        let (k, d) = background.means().dim();
        // Those with scales of their own.
        let owners: Vec<&Mixture> = match &asked.speakers {
            Speakers::Means(_) => vec![background],
            Speakers::Mixtures(all) => [background].into_iter().chain(used.iter().map(|&i| &all[i])).collect(),
        };
        let is_matrix = |one: &&Mixture| matches!(one.covariance_type(), CovarianceType::Full | CovarianceType::Tied);
        let triangles = owners.iter().any(is_matrix);
        let of_component = if triangles { packed_len(d as u32) as usize } else { d };
        let (n_means, n_constants) = ((1 + used.len()) * k * d, owners.len() * k);
        let wanted = 8 * (n_means + n_constants * (of_component + 1) + n_sums) + 4 * mixtures.len();
        rows.room(WHAT, wanted as u128, 0)?;
        let gpu = &rows.gpu;
        let sent = Self {
            means: Slot::taken(gpu, WHAT, n_means)?,
            scales: Slot::taken(gpu, WHAT, n_constants * of_component)?,
            constants: Slot::taken(gpu, WHAT, n_constants)?,
            triangles,
            of_each: owners.len() > 1,
            mixtures: Slot::taken(gpu, WHAT, mixtures.len())?,
            n_mixtures: mixtures.len(),
            sums: Slot::taken(gpu, WHAT, n_sums)?,
            n_sums,
        };
        let means_of = |i: usize| -> ArrayView2<'_, f64> {
            match (i.checked_sub(1), asked.speakers.borrowed()) {
                (None, _) => background.means(),
                (Some(i), Speakers::Means(means)) => means.index_axis_move(Axis(0), used[i]),
                (Some(i), Speakers::Mixtures(all)) => all[used[i]].means(),
            }
        };
        send(gpu, &rows.queue, &mut sent.means.first(n_means), d, |piece, chunk| {
            chunk.par_chunks_exact_mut(d).zip(piece.start / d..piece.end / d).with_min_len(256).for_each(|(to, at)| {
                let means = means_of(at / k);
                let mean = means.row(at % k);
                to.iter_mut().zip(mean.iter().zip(&rows.shift)).for_each(|(to, (mean, shift))| *to = mean - shift);
            });
        })?;
        let scales: Vec<Scales<'_>> = owners.iter().map(|one| Scales::of(one, triangles)).collect();
        let to = &mut sent.scales.first(n_constants * of_component);
        send(gpu, &rows.queue, to, of_component, |piece, chunk| {
            let components = piece.start / of_component..piece.end / of_component;
            let slots = chunk.par_chunks_exact_mut(of_component).zip(components);
            slots.for_each(|(to, at)| scales[at / k].write(at % k, to));
        })?;
        send(gpu, &rows.queue, &mut sent.constants.first(n_constants), 1, |piece, chunk| {
            for (to, at) in chunk.iter_mut().zip(piece) {
                *to = owners[at / k].log_weight(at % k) + owners[at / k].log_normalizer(at % k);
            }
        })?;
        let to = &mut sent.mixtures.first(mixtures.len());
        send(gpu, &rows.queue, to, 1, |piece, chunk| chunk.copy_from_slice(&mixtures[piece]))?;
        Ok(sent)
    }

    /// Enqueues the trials of an utterance on a lane.
    fn enqueue<T: Number>(
        &self,
        lane: &Lane<'_>,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        one: &OfUtterance,
        listed: DeviceSlice<u32>,
    ) -> Result<(), Error> {
        let buffers = workspace.buffers(&lane.em.numbers, &lane.em.flags);
        let norms_from = one.part.rows.start as u64;
        let chunk: Chunk<T> = rows.stage(one.part.rows.clone())?;
        let launcher = Launcher { gpu: &rows.gpu, queue: &lane.queue };
        let (k, d) = (plan.shape.k, plan.shape.d);
        let launch = Launch { launcher, plan, rows: &LoopRows::of(&chunk), norms_from, buffers: &buffers };
        plan.path.list_largest(&launch, listed, &mut |start, n| {
            let row_weights = chunk.row_weights.map(|all| all.index(start as usize..));
            for first in (0..one.len()).step_by(MOST_TRIALS) {
                let count = MOST_TRIALS.min(one.len() - first);
                let (trial, sum) = (one.first + first, one.sums + first * one.splits);
                let arguments = Trials::<T> {
                    x: pointer(&chunk.x.index(start as usize * d as usize..)).cast_const(),
                    n,
                    d,
                    k,
                    row_weights: or_null(row_weights.as_ref()),
                    components: pointer(&listed),
                    count: plan.largest,
                    mixtures: pointer(&self.mixtures.first(self.n_mixtures).index(trial..trial + count)),
                    means: pointer(&self.means.first(self.means.room())),
                    scales: pointer(&self.scales.first(self.scales.room())),
                    has_triangles: self.triangles.into(),
                    constants: pointer(&self.constants.first(self.constants.room())),
                    of_each: self.of_each.into(),
                    accumulate: (start > 0).into(),
                    sums: pointer(&self.sums.first(self.n_sums).index(sum..sum + count * one.splits)),
                };
                // SAFETY: the slots have the lengths that `send` took, all trials name a mixture in them, and `list_largest`
                // compared the length of `listed`; the lanes rest before the slots are freed.
                unsafe { launcher.launch(trials::<T>(), (one.splits as u32, count as u32), arguments)? };
            }
            Ok(())
        })
    }
}

/// What multiplies differences from the means: inverses of standard deviations, or of Cholesky factors by columns.
struct Scales<'a> {
    factors: &'a Factors,
    /// The inverse that all components share.
    tied: Option<Vec<f64>>,
    triangles: bool,
}

impl<'a> Scales<'a> {
    fn of(mixture: &'a Mixture, triangles: bool) -> Self {
        let factors = mixture.factors();
        let tied = match factors {
            Factors::Tied(one) => {
                let mut inverse = vec![0.0; one.packed().len()];
                invert(one, &mut inverse);
                Some(inverse)
            }
            _ => None,
        };
        Self { factors, tied, triangles }
    }

    /// Those of component `c`.
    fn write(&self, c: usize, to: &mut [f64]) {
        match self.factors {
            Factors::Full(all) => invert(&all[c], to),
            Factors::Tied(_) => to.copy_from_slice(self.tied.as_deref().unwrap_or_default()),
            Factors::Diag(sd) => self.diagonal(sd.row(c).iter().copied(), sd.ncols(), to),
            Factors::Spherical(sd) => {
                // A triangle of d columns has d (d + 1) / 2 entries.
                let d = if self.triangles { (2 * to.len()).isqrt() } else { to.len() };
                self.diagonal(std::iter::repeat_n(sd[c], d), d, to);
            }
        }
    }

    /// Of `d` standard deviations, as columns of a diagonal matrix, or alone.
    fn diagonal(&self, deviations: impl Iterator<Item = f64>, d: usize, to: &mut [f64]) {
        to.fill(0.0);
        let mut at = 0;
        for (j, deviation) in deviations.enumerate() {
            to[at] = 1.0 / deviation;
            at += if self.triangles { d - j } else { 1 };
        }
    }
}

/// Writes the inverse of a factor column by column.
fn invert(factor: &Cholesky, to: &mut [f64]) {
    let d = factor.dim();
    let (mut column, mut at) = (vec![0.0; d], 0);
    for j in 0..d {
        column.fill(0.0);
        column[j] = 1.0;
        factor.solve_lower(&mut column);
        to[at..at + d - j].copy_from_slice(&column[j..]);
        at += d - j;
    }
}
