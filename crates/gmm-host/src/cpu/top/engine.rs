//! Selected components of many utterances: how their rows are divided among threads.

use std::ops::Range;

use gmm_model::{Dataset, Mixture, Statistics};
use ndarray::{ArrayView3, Axis};
use rayon::prelude::*;

use super::super::CpuEngine;
use super::super::simd::Dispatch;
use super::{TopBackground, TopParameters, TopRows};
use crate::adapt::{Speakers, Trial};
use crate::{Error, memory};

/// Most rows of a piece: an utterance with more is divided, so that one long utterance occupies all threads. The workspace
/// of a piece is then small beside its work.
const MOST_ROWS: usize = 2048;

/// Pieces of an utterance whose statistics, of `k (2 d + 1)` numbers, are in memory at the same time, for each thread.
const PIECES_PER_THREAD: usize = 4;

/// Rows of one utterance.
struct Piece {
    utterance: usize,
    rows: Range<usize>,
}

fn pieces(utterances: &[Range<usize>]) -> Vec<Piece> {
    let of = |(utterance, rows): (usize, &Range<usize>)| {
        let end = rows.end;
        rows.clone().step_by(MOST_ROWS).map(move |first| Piece { utterance, rows: first..end.min(first + MOST_ROWS) })
    };
    utterances.iter().enumerate().flat_map(of).collect()
}

/// Rows, the mixture that selects components, and how many.
pub(crate) struct TopPass<'a> {
    pub(crate) engine: &'a CpuEngine,
    pub(crate) data: &'a Dataset,
    pub(crate) utterances: &'a [Range<usize>],
    pub(crate) background: &'a Mixture,
    /// Subtracted from rows and means, `(d,)`.
    pub(crate) shift: Vec<f64>,
    /// From 1 to `k`.
    pub(crate) count: usize,
}

impl TopPass<'_> {
    fn background<T: Dispatch>(&self) -> Result<TopBackground<T>, Error> {
        let (k, bytes) = (self.background.n_components(), size_of::<T>());
        memory::check("the densities of every thread", (2 * k * 272 * bytes * self.engine.threads()) as u128)?;
        Ok(TopBackground::new(self.background, &self.shift))
    }

    fn rows<T: Dispatch>(&self, rows: &Range<usize>, background: &TopBackground<T>) -> Result<TopRows<T>, Error> {
        TopRows::new(self.engine.machine, &self.data.part(rows.clone()), background, self.count)
    }

    /// The mean over the rows of `ln p(x | speaker) − ln p(x | background)` of each trial, `(trials.len(),)`.
    pub(crate) fn ratios<T: Dispatch>(&self, speakers: &Speakers<'_>, trials: &[Trial]) -> Result<Vec<f64>, Error> {
        let machine = self.engine.machine;
        let mut of_utterance: Vec<Vec<usize>> = vec![Vec::new(); self.utterances.len()];
        trials.iter().enumerate().for_each(|(at, trial)| of_utterance[trial.utterance].push(at));
        let mut pieces = pieces(self.utterances);
        pieces.retain(|piece| !of_utterance[piece.utterance].is_empty());
        let (selecting, background) = (self.background::<T>()?, TopParameters::<T>::new(self.background, &self.shift));
        let of = |piece: &Piece| {
            let rows = self.rows(&piece.rows, &selecting)?;
            let here = rows.log_likelihood(machine, &background);
            let score = |own: &mut TopParameters<'_, T>, at: &usize| match speakers {
                Speakers::Means(means) => {
                    own.move_to(means.index_axis(Axis(0), trials[*at].speaker), &self.shift);
                    rows.log_likelihood(machine, own) - here
                }
                Speakers::Mixtures(all) => {
                    let own = TopParameters::new(&all[trials[*at].speaker], &self.shift);
                    rows.log_likelihood(machine, &own) - here
                }
            };
            let differences: Vec<f64> =
                of_utterance[piece.utterance].par_iter().map_init(|| background.clone(), score).collect();
            Ok((rows.total_weight(), differences))
        };
        let found: Vec<_> = self.engine.pool.install(|| pieces.par_iter().map(of).collect::<Result<_, Error>>())?;
        let (mut sums, mut weights) = (vec![0.0; trials.len()], vec![0.0; self.utterances.len()]);
        for (piece, (weight, differences)) in pieces.iter().zip(found) {
            weights[piece.utterance] += weight;
            of_utterance[piece.utterance].iter().zip(differences).for_each(|(&at, v)| sums[at] += v);
        }
        Ok(sums.iter().zip(trials).map(|(sum, trial)| sum / weights[trial.utterance]).collect())
    }

    /// Calls `each` with the statistics of every utterance, with responsibilities among the selected components.
    pub(crate) fn statistics<T: Dispatch>(
        &self,
        each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
    ) -> Result<(), Error> {
        let background = self.background::<T>()?;
        let none = Statistics::of_no_rows(self.background);
        let of_piece = |rows: &Range<usize>| {
            let mut statistics = none.clone();
            self.rows(rows, &background)?.add_to(self.engine.machine, &background, &mut statistics);
            Ok(statistics)
        };
        let of = |(i, utterance): (usize, &Range<usize>)| {
            let pieces: Vec<Range<usize>> =
                pieces(std::slice::from_ref(utterance)).into_iter().map(|piece| piece.rows).collect();
            let mut sum: Option<Statistics> = None;
            for some in pieces.chunks(PIECES_PER_THREAD * self.engine.threads()) {
                let found: Vec<Statistics> = match some {
                    [one] => vec![of_piece(one)?],
                    _ => some.par_iter().map(of_piece).collect::<Result<_, Error>>()?,
                };
                for one in found {
                    match &mut sum {
                        Some(sum) => sum.add(&one).expect("statistics under one mixture"),
                        None => sum = Some(one),
                    }
                }
            }
            each(i, &mut sum.unwrap_or_else(|| none.clone()))
        };
        // The first error is that of the first utterance.
        let ended: Vec<_> = self.engine.pool.install(|| self.utterances.par_iter().enumerate().map(of).collect());
        ended.into_iter().collect()
    }
}

/// Whether means are so far from the shift that rounding them to `f32` there is large against the background's standard
/// deviations, as [`shift::is_felt`](crate::shift::is_felt) has it for a mixture.
pub(crate) fn is_felt(means: ArrayView3<'_, f64>, background: &Mixture, shift: &[f64]) -> bool {
    let most = 2f64.powi(24 - 13);
    let deviations: Vec<f64> = match background.factors() {
        gmm_model::Factors::Diag(sd) => sd.iter().copied().collect(),
        gmm_model::Factors::Spherical(sd) => sd.iter().flat_map(|v| std::iter::repeat_n(*v, shift.len())).collect(),
        gmm_model::Factors::Full(all) => all.iter().flat_map(|l| (0..l.dim()).map(|j| l.at(j, j))).collect(),
        gmm_model::Factors::Tied(l) => {
            (0..background.n_components()).flat_map(|_| (0..l.dim()).map(|j| l.at(j, j))).collect()
        }
    };
    let far = |one: ndarray::ArrayView2<'_, f64>| {
        let means = one.into_iter().zip(shift.iter().cycle()).zip(&deviations);
        means.into_iter().any(|((m, s), sd)| (m - s).abs() > most * sd)
    };
    means.outer_iter().any(far)
}
