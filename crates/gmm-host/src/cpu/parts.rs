//! Rows of a data set with several parts, such as the files that they were read from: every sum is taken per part and
//! added in the order of the parts. So a fit of all files has the bits of passes over one file after another whose
//! statistics are added in the same order.

use std::mem;
use std::ops::Range;

use gmm_model::{CovarianceType, Dataset, Mixture, Noise, PrecisionMixture, Statistics};
use ndarray::ArrayView2;

use super::layout::Layout;
use super::passes::Passes;
use super::simd::{Dispatch, Machine};
use super::{CpuEngine, CpuRows};
use crate::engine::{ComponentColumns, Evaluate, Seeding};
use crate::init::{RowDraw, WeighedRows};
use crate::noise::NoisePass;
use crate::{Engine, Error, EvaluateOptions, Evaluation, FillResponsibilities, Resident};

/// Rows in parts, each in a layout of its own over the same memory. One workspace serves all parts.
pub(super) struct PartedRows<T> {
    parts: Vec<CpuRows<T>>,
    /// First row of each part.
    starts: Vec<usize>,
    passes: Passes<T>,
    /// The workspace of the parts' rows in `f64`: see [`CpuRows::wide`].
    wide: Passes<f64>,
    /// The rows as one part: k-means++ samples from groups of rows that cross the borders of parts. Exists
    /// from the first centre until the centres are forgotten.
    whole: Option<Box<dyn Resident>>,
    /// For `whole` and for samples.
    engine: CpuEngine,
    data: Dataset,
    shift: Vec<f64>,
}

impl<T: Dispatch> PartedRows<T> {
    /// Lays out each part. Either all blocks are copied or none, as for the same rows in one part.
    pub(super) fn new(engine: &CpuEngine, data: &Dataset, shift: &[f64]) -> Result<Self, Error> {
        let bytes = data.n_rows() as u128 * shift.len() as u128 * size_of::<T>() as u128;
        let most_copied = if bytes > engine.most_copied { 0 } else { u128::MAX };
        let passes = |machine: Machine| Passes::new(machine, engine.pool.clone(), engine.skip);
        let part = |rows: Range<usize>| {
            let layout = engine.pool.install(|| Layout::new(engine.machine, &data.part(rows), shift, most_copied))?;
            Ok::<_, Error>(CpuRows::new(layout, passes(engine.machine)))
        };
        Ok(Self {
            parts: data.parts().map(part).collect::<Result<_, _>>()?,
            starts: data.parts().map(|rows| rows.start).collect(),
            passes: passes(engine.machine),
            wide: Passes::new(engine.machine, engine.pool.clone(), engine.skip),
            whole: None,
            engine: engine.clone(),
            data: data.part(0..data.n_rows()),
            shift: shift.to_vec(),
        })
    }

    /// Runs `run` on each part in order, with the part's first row.
    fn each<A>(&mut self, mut run: impl FnMut(&mut CpuRows<T>, usize) -> Result<A, Error>) -> Result<Vec<A>, Error> {
        let Self { parts, starts, passes, wide, .. } = self;
        let run_part = |(part, &start): (&mut CpuRows<T>, &usize)| {
            mem::swap(&mut part.passes, passes);
            let had_wide = part.wide.is_some();
            if let Some(rows) = &mut part.wide {
                mem::swap(&mut rows.passes, wide);
            }
            let found = run(part, start);
            mem::swap(&mut part.passes, passes);
            match &mut part.wide {
                Some(rows) if had_wide => mem::swap(&mut rows.passes, wide),
                Some(rows) => *wide = mem::replace(&mut rows.passes, passes.anew()),
                None => {}
            }
            found
        };
        parts.iter_mut().zip(starts.iter()).map(run_part).collect()
    }

    /// The sum of each part's statistics, in order.
    fn sum(
        &mut self,
        run: impl FnMut(&mut CpuRows<T>, usize) -> Result<Statistics, Error>,
    ) -> Result<Statistics, Error> {
        let all = self.each(run)?;
        Ok(Statistics::sum(all).map_err(|(_, error)| error)?.expect("at least one part"))
    }

    /// Adds up the totals of each part, in order; a part's rows are cut from the outputs.
    fn evaluate_each(
        &mut self,
        k: usize,
        mut want: EvaluateOptions<'_>,
        mut run: impl FnMut(&mut CpuRows<T>, EvaluateOptions<'_>) -> Result<Evaluation, Error>,
    ) -> Result<Evaluation, Error> {
        let all = self.each(|part, _| {
            let here = want.split(part.layout.n, k);
            run(part, here)
        })?;
        Ok(all.into_iter().reduce(|a, b| a + b).expect("at least one part"))
    }

    fn whole(&mut self) -> Result<&mut dyn Resident, Error> {
        if self.whole.is_none() {
            self.whole = Some(self.engine.load(&self.data, T::PRECISION, &self.shift)?);
        }
        Ok(self.whole.as_deref_mut().expect("just made"))
    }
}

impl<T: Dispatch> crate::Passes for PartedRows<T> {
    fn dim(&self) -> (usize, usize) {
        (self.data.n_rows(), self.data.n_features())
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        // All parts agree: their blocks are all copies, or none is.
        let moved = self.each(|part, _| part.hold_about(shift))?.into_iter().all(|moved| moved);
        if moved {
            (self.shift, self.whole) = (shift.to_vec(), None);
        }
        Ok(moved)
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        // Without the checks of `Dataset`: weights of samples may all be 0.
        let place = |row: usize| self.starts.partition_point(|&start| start <= row) - 1;
        let from = |row: usize| (&self.parts[place(row)].layout, row - self.starts[place(row)]);
        let layout = self.engine.pool.install(|| Layout::gathered(rows.len(), &self.shift, weights, |i| from(rows[i])));
        Ok(Box::new(CpuRows::new(layout?, self.passes.anew())))
    }

    fn near_components(&self) -> Option<f64> {
        self.parts.iter().filter_map(|part| part.near_components()).reduce(f64::max)
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.sum(|part, _| part.pass(mixture))
    }

    fn pass_beside(&mut self, mixture: &Mixture, noise: &Noise) -> Result<Option<NoisePass>, Error> {
        let mut count = 0.0;
        let statistics = self.sum(|part, _| {
            let found = part.pass_beside(mixture, noise)?.expect("the engine knows noise");
            count += found.count;
            Ok(found.statistics)
        })?;
        Ok(Some(NoisePass { statistics, count }))
    }

    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        let mut all = self.each(|part, _| part.passes(mixtures))?.into_iter();
        let mut sums = all.next().expect("at least one part");
        for part in all {
            for (sum, other) in sums.iter_mut().zip(&part) {
                sum.add(other)?;
            }
        }
        Ok(sums)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.sum(|part, start| part.given(kind, centres, &|first, out| fill(start + first, out)))
    }
}

impl<T: Dispatch> Seeding for PartedRows<T> {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.sum(|part, _| part.nearest(kind, centres))
    }

    fn forget_centres(&mut self) {
        self.whole = None;
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.whole()?.add_centre(centre)
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        self.whole()?.weigh_draws(draws, weights)
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.whole()?.add_drawn(which)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.whole()?.near(ranges)
    }
}

impl<T: Dispatch> Evaluate for PartedRows<T> {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        self.evaluate_each(mixture.n_components(), want, |part, want| part.evaluate(mixture, want))
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.evaluate_each(mixture.n_components(), want, |part, want| part.evaluate_precisions(mixture, want))
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        let all = self.each(|part, _| part.log_likelihoods(mixtures))?;
        Ok((0..mixtures.len()).map(|m| all.iter().map(|part| part[m]).reduce(|a, b| a + b).unwrap_or(0.0)).collect())
    }
}

impl<T: Dispatch> ComponentColumns for PartedRows<T> {}
