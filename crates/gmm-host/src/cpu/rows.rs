//! Rows in memory, and the passes of every kind over them.

use std::ops::Range;

use gmm_model::{CovarianceType, Mixture, Noise, NoiseTerms, Precision, PrecisionMixture, Statistics};
use ndarray::ArrayView2;

use super::layout::Layout;
use super::passes::{NearPass, Passes};
use super::simd::Dispatch;
use super::terms::{Terms, relative};
use super::tiled_rows::TiledRows;
use crate::engine::{ComponentColumns, Evaluate, Seeding, check_features};
use crate::init::{RowDraw, WeighedRows, rows_of};
use crate::nearby::choice;
use crate::noise::NoisePass;
use crate::{
    Error, EvaluateOptions, Evaluation, FillResponsibilities, Resident, Search, TruncatedPass, memory, shift, truncated,
};

/// Most mixtures evaluated per read of a block: with a few dozen, loading the block into the cache costs little.
const SETS: usize = 64;

/// Limit on the bytes of their parameters, which is likely to fit into a core's share of the last-level cache.
const SETS_BYTES: usize = 4 << 20;

/// Rows in memory, with the workspace of passes over them.
pub(super) struct CpuRows<T> {
    pub(super) layout: Layout<T>,
    pub(super) passes: Passes<T>,
    /// Squared distances to the nearest of the centres added so far; empty if there is none.
    near: Vec<f64>,
    /// Candidate rows of the last `weigh_draws`, `(t, d)`, less the shift; empty after the next centre is added.
    drawn: Vec<T>,
    /// What passes with many components use besides.
    tiled: TiledRows<T>,
    /// The rows one after another, created for truncated EM.
    in_turn: Option<truncated::Rows<T>>,
    /// The same rows in `f64`, created when a mixture first needs them; see [`wide`](Self::wide).
    pub(super) wide: Option<Box<CpuRows<f64>>>,
}

impl<T: Dispatch> CpuRows<T> {
    pub(super) const fn new(layout: Layout<T>, passes: Passes<T>) -> Self {
        Self { layout, passes, near: Vec::new(), drawn: Vec::new(), tiled: TiledRows::NONE, in_turn: None, wide: None }
    }

    /// Returns the rows in `f64` if the mixture has a component so narrow and so far from the shift that rounding its
    /// mean to `T` would change the result noticeably. They are cached, since the next iteration is likely to need them
    /// too.
    fn wide(&mut self, mixture: &Mixture) -> Result<Option<&mut CpuRows<f64>>, Error> {
        check_features(self.layout.d, mixture.n_features())?;
        if T::PRECISION == Precision::F64 || !shift::is_felt(mixture, &self.layout.shift, T::PRECISION) {
            return Ok(None);
        }
        if self.wide.is_none() {
            let shape = (self.layout.n, self.layout.d);
            let layout = self.passes.make_layout(shape, || Layout::copy_of(&self.layout))?;
            self.wide = Some(Box::new(CpuRows::new(layout, self.passes.anew())));
        }
        Ok(self.wide.as_deref_mut())
    }

    /// The statistics of a pass, and the count of the noise.
    fn expectation(&mut self, mixture: &Mixture, noise: Option<NoiseTerms>) -> Result<NoisePass, Error> {
        let (kind, shift) = (mixture.covariance_type(), &self.layout.shift);
        let terms = Terms::new(mixture, shift);
        let count = match self.tiled.of_mixture(&self.layout, &self.passes, mixture) {
            Some((tiles, bounds)) => {
                let pass = NearPass { terms: &terms, bounds: &bounds, noise };
                let (count, near) = self.passes.expectation_near(&tiles, &pass)?;
                self.tiled.near_components = Some(near);
                count
            }
            None => {
                self.tiled.near_components = None;
                self.passes.expectation(&self.layout, &terms, noise)?
            }
        };
        let statistics = self.passes.statistics(&self.layout, kind, mixture.means(), &terms.means);
        Ok(NoisePass { statistics, count })
    }

    /// Whether any mixture of a batch needs the [`wide`](Self::wide) rows.
    fn any_wide(&self, mixtures: &[Mixture]) -> Result<bool, Error> {
        mixtures.iter().try_for_each(|mixture| check_features(self.layout.d, mixture.n_features()))?;
        let shift = &self.layout.shift;
        Ok(T::PRECISION == Precision::F32 && mixtures.iter().any(|m| shift::is_felt(m, shift, T::PRECISION)))
    }
}

impl<T: Dispatch> crate::Passes for CpuRows<T> {
    fn dim(&self) -> (usize, usize) {
        (self.layout.n, self.layout.d)
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        check_features(self.layout.d, shift.len())?;
        if !self.layout.move_to(shift) {
            return Ok(false);
        }
        (self.near, self.drawn, self.wide) = (Vec::new(), Vec::new(), None);
        (self.tiled, self.in_turn) = (TiledRows::NONE, None);
        Ok(true)
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let shape = (rows.len(), self.layout.d);
        let layout = self.passes.make_layout(shape, || self.layout.sample(rows, weights))?;
        Ok(Box::new(Self::new(layout, self.passes.anew())))
    }

    fn near_components(&self) -> Option<f64> {
        self.wide.as_ref().and_then(|wide| wide.near_components()).or(self.tiled.near_components)
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.pass(mixture);
        }
        Ok(self.expectation(mixture, None)?.statistics)
    }

    fn pass_beside(&mut self, mixture: &Mixture, noise: &Noise) -> Result<Option<NoisePass>, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.pass_beside(mixture, noise);
        }
        self.expectation(mixture, Some(noise.terms())).map(Some)
    }

    fn pass_truncated(&mut self, mixture: &Mixture, search: &Search) -> Result<TruncatedPass, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.pass_truncated(mixture, search);
        }
        let layout = &self.layout;
        let rows = match &mut self.in_turn {
            Some(rows) => rows,
            None => {
                let weights = || (0..layout.n).map(|row| layout.weight(row).to_f64()).collect();
                let fill = |row: usize, to: &mut [T]| to.iter_mut().zip(layout.row(row)).for_each(|(to, x)| *to = x);
                let make = || truncated::Rows::new(layout.n, &layout.shift, layout.is_weighted().then(weights), fill);
                self.in_turn.insert(self.passes.install(make)?)
            }
        };
        let machine = self.passes.machine();
        self.passes.install(|| {
            let mut steps = truncated::OnThreads::new(machine, rows, mixture)?;
            truncated::pass(&mut steps, mixture.n_components(), search)
        })
    }

    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        if self.any_wide(mixtures)? {
            return mixtures.iter().map(|mixture| self.pass(mixture)).collect();
        }
        let shape = |m: &Mixture| (m.covariance_type(), m.n_components());
        let mut all = Vec::with_capacity(mixtures.len());
        for alike in mixtures.chunk_by(|a, b| shape(a) == shape(b)) {
            let (kind, k) = shape(&alike[0]);
            if self.passes.shares_sets(&self.layout, kind, k, alike.len())? {
                let sets: Vec<_> = alike.iter().map(|m| (Terms::new(m, &self.layout.shift), m.means())).collect();
                all.extend(self.passes.expectations(&self.layout, &sets)?);
            } else {
                for mixture in alike {
                    all.push(self.pass(mixture)?);
                }
            }
        }
        Ok(all)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        check_features(self.layout.d, centres.ncols())?;
        let points = relative(centres, &self.layout.shift);
        self.passes.given(&self.layout, kind, &points, fill)?;
        Ok(self.passes.statistics(&self.layout, kind, centres, &points))
    }
}

impl<T: Dispatch> Seeding for CpuRows<T> {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        check_features(self.layout.d, centres.ncols())?;
        let points = relative(centres, &self.layout.shift);
        match self.tiled.of_centres(&self.layout, &self.passes, &points) {
            Some((tiles, bounds)) => self.passes.nearest_near(&tiles, kind, &points, &bounds)?,
            None => self.passes.nearest(&self.layout, kind, &points)?,
        }
        Ok(self.passes.statistics(&self.layout, kind, centres, &points))
    }

    fn forget_centres(&mut self) {
        (self.near, self.drawn) = (Vec::new(), Vec::new());
        self.tiled.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        check_features(self.layout.d, centre.len())?;
        if self.near.is_empty() {
            memory::check("the distances to centres", 8 * self.layout.n as u128)?;
            self.near = vec![f64::INFINITY; self.layout.n];
        }
        self.drawn.clear();
        let point: Vec<T> = centre.iter().zip(&self.layout.shift).map(|(c, s)| T::of(c - s)).collect();
        Ok(self.tiled.add_centre(&self.layout, &self.passes, &point, &mut self.near))
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        assert_eq!(weights.is_some(), self.layout.is_weighted(), "row weights");
        let rows = rows_of(draws, &self.near, weights);
        self.drawn = rows.iter().flat_map(|&row| self.layout.row(row)).collect();
        let left = match &self.tiled.distances {
            Some(tiled) => tiled.potentials(&self.passes, &self.drawn),
            None => self.passes.potentials(&self.layout, &self.drawn, &self.near),
        };
        Ok(WeighedRows { rows, left })
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        let drawn = std::mem::take(&mut self.drawn);
        let point = &drawn[which * self.layout.d..][..self.layout.d];
        Ok(self.tiled.add_centre(&self.layout, &self.passes, point, &mut self.near))
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        Ok(ranges.iter().flat_map(|rows| self.near[rows.clone()].iter().copied()).collect())
    }
}

impl<T: Dispatch> Evaluate for CpuRows<T> {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.evaluate(mixture, want);
        }
        let terms = Terms::new(mixture, &self.layout.shift);
        if want.responsibilities.is_none()
            && let Some((tiles, bounds)) = self.tiled.of_mixture(&self.layout, &self.passes, mixture)
        {
            return self.passes.evaluate_near(&tiles, &terms, &bounds, want);
        }
        self.passes.evaluate(&self.layout, &terms, want)
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        check_features(self.layout.d, mixture.n_features())?;
        let terms = Terms::of_precisions(self.passes.machine(), mixture, &self.layout.shift)?;
        self.passes.evaluate(&self.layout, &terms, want)
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        if self.any_wide(mixtures)? {
            let alone = |m: &Mixture| match self.wide(m)? {
                Some(wide) => wide.log_likelihoods(std::slice::from_ref(m)),
                None => self.log_likelihoods(std::slice::from_ref(m)),
            };
            return Ok(mixtures.iter().map(alone).collect::<Result<Vec<_>, _>>()?.concat());
        }
        let can_skip =
            |m: &Mixture| choice(self.passes.skip, (self.layout.n, m.n_components(), self.layout.d), || true).is_ok();
        if mixtures.iter().any(can_skip) {
            let [mixture] = mixtures else {
                let one = |mixture| self.log_likelihoods(std::slice::from_ref(mixture));
                return Ok(mixtures.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat());
            };
            if let Some((tiles, bounds)) = self.tiled.of_mixture(&self.layout, &self.passes, mixture) {
                let terms = Terms::new(mixture, &self.layout.shift);
                let found = self.passes.evaluate_near(&tiles, &terms, &bounds, EvaluateOptions::default())?;
                return Ok(vec![found.log_likelihood]);
            }
        }
        let mut out = vec![0.0; mixtures.len()];
        let mut left = out.as_mut_slice();
        let shape = |m: &Mixture| (m.covariance_type(), m.n_components());
        for alike in mixtures.chunk_by(|a, b| shape(a) == shape(b)) {
            let at_once = (SETS_BYTES / (alike[0].n_parameters() * size_of::<T>())).clamp(1, SETS);
            for sets in alike.chunks(at_once) {
                let (here, rest) = left.split_at_mut(sets.len());
                let terms: Vec<Terms<T>> = sets.iter().map(|m| Terms::new(m, &self.layout.shift)).collect();
                self.passes.log_likelihoods(&self.layout, &terms, here)?;
                left = rest;
            }
        }
        Ok(out)
    }
}

impl<T: Dispatch> ComponentColumns for CpuRows<T> {}
