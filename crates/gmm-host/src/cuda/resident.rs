//! Resident rows as the engines' trait has them.

use std::ops::Range;

use gmm_model::{CovarianceType, FactorShape, Mixture, PrecisionMixture, Statistics};
use ndarray::{Array2, ArrayView2, ArrayView3};

use super::columns::DeviceColumn;
use super::rows::CudaRows;
use super::upload::Number;
use crate::em::{EmOptions, EmRun};
use crate::engine::check_features;
use crate::init::{LloydPasses, RowDraw, WeighedRows, lloyd_pass};
use crate::{Error, Evaluation, FillResponsibilities, Resident, Wanted};

impl<T: Number> Resident for CudaRows<T> {
    fn dim(&self) -> (usize, usize) {
        (self.n, self.d)
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        check_features(self.d, shift.len())?;
        self.run(|rows| rows.hold_about_here(shift))
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let mut some = None;
        self.run(|all| {
            some = Some(all.sample_here(rows, weights)?);
            Ok(())
        })?;
        Ok(Box::new(some.expect("rows that were picked")))
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        check_features(self.d, mixture.n_features())?;
        self.run(|rows| rows.pass_here(mixture))
    }

    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        check_features(self.d, run.mixture.n_features())?;
        self.run(|rows| rows.iterate_here(run, options, seen))
    }

    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        check_features(self.d, centres.ncols())?;
        match self.run(|rows| rows.hard_statistics(kind, centres))? {
            Some(statistics) => Ok(statistics),
            None => self.run(|rows| rows.nearest_here(kind, centres)),
        }
    }

    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        check_features(self.d, centres.ncols())?;
        match self.run(|rows| rows.lloyd_here(centres, most, rest))? {
            Some(passes) => Ok(passes),
            None => lloyd_pass(self, centres),
        }
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        check_features(self.d, centres.ncols())?;
        self.run(|rows| rows.given_here(kind, centres, fill))
    }

    fn forget_centres(&mut self) {
        self.forget_centres_here();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        check_features(self.d, centre.len())?;
        self.run(|rows| rows.add_centre_here(centre))
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        assert_eq!(weights.is_some(), self.row_weights.is_some(), "row weights");
        self.run(|rows| rows.weigh_draws_here(draws))
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.run(|rows| rows.add_drawn_here(which))
    }

    fn draw_centres(
        &mut self,
        first: &[f64],
        uniforms: ArrayView3<'_, f64>,
        weights: Option<&[f64]>,
    ) -> Result<Option<Vec<usize>>, Error> {
        check_features(self.d, first.len())?;
        assert_eq!(weights.is_some(), self.row_weights.is_some(), "row weights");
        self.run(|rows| rows.draw_centres_here(first, uniforms))
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.run(|rows| rows.near_here(ranges))
    }

    fn evaluate(&mut self, mixture: &Mixture, mut want: Wanted<'_>) -> Result<Evaluation, Error> {
        check_features(self.d, mixture.n_features())?;
        self.run(|rows| rows.evaluate_here(mixture, &mut want))
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        mut want: Wanted<'_>,
    ) -> Result<Evaluation, Error> {
        check_features(self.d, mixture.n_features())?;
        mixture.check_factors()?;
        let is_matrix = matches!(mixture.covariance_type(), CovarianceType::Full | CovarianceType::Tied);
        if is_matrix && (0..mixture.n_factors()).any(|c| mixture.factor_shape(c) != FactorShape::Upper) {
            // Square roots that users set themselves: the kernels' panels have no room for them.
            return self.evaluate(&mixture.to_mixture()?, want);
        }
        let scale = |c| Ok(mixture.log_weight(c) + mixture.log_normalizer(c, FactorShape::Upper)?);
        let scales: Vec<f64> = (0..mixture.n_components()).map(scale).collect::<Result<_, Error>>()?;
        self.run(|rows| rows.evaluate_precisions_here(mixture, &scales, &mut want))
    }

    fn column(&mut self) -> Result<Option<DeviceColumn>, Error> {
        let mut column = None;
        self.run(|rows| {
            column = Some(rows.column_here()?);
            Ok(())
        })?;
        Ok(column)
    }

    fn mix_columns(
        &mut self,
        columns: &mut [DeviceColumn],
        log_weights: &[f64],
        anew: &[(usize, Mixture)],
    ) -> Result<f64, Error> {
        self.check_columns(columns, log_weights);
        assert!(anew.iter().all(|(c, alone)| *c < columns.len() && alone.n_components() == 1), "components");
        anew.iter().try_for_each(|(_, component)| check_features(self.d, component.n_features()))?;
        self.run(|all| all.mix_columns_here(columns, log_weights, anew))
    }

    fn mixed_rows(&mut self, columns: &[DeviceColumn], log_weights: &[f64], rows: &mut [f64]) -> Result<(), Error> {
        self.check_columns(columns, log_weights);
        assert_eq!(rows.len(), self.n, "rows");
        self.run(|all| all.mixed_rows_here(columns, log_weights, rows))
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        mixtures.iter().try_for_each(|mixture| check_features(self.d, mixture.n_features()))?;
        let mut values = self.run(|rows| rows.scores_here(mixtures))?;
        for (value, mixture) in values.iter_mut().zip(mixtures).filter(|(value, _)| !value.is_finite()) {
            *value = self.evaluate(mixture, Wanted::default())?.log_likelihood;
        }
        Ok(values)
    }

    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        let mut all = self.passes(std::slice::from_ref(mixture))?;
        Ok(all.remove(0))
    }

    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        mixtures.iter().try_for_each(|mixture| check_features(self.d, mixture.n_features()))?;
        let all = self.run(|rows| rows.expectations_here(mixtures))?;
        all.into_iter().zip(mixtures).map(|(found, mixture)| found.map_or_else(|| self.pass(mixture), Ok)).collect()
    }
}

impl<T: Number> CudaRows<T> {
    /// Columns of other rows would be read from where there is nothing.
    fn check_columns(&self, columns: &[DeviceColumn], log_weights: &[f64]) {
        let good = columns.iter().all(|column| column.is_of(&self.gpu, self.n));
        assert!(good && !columns.is_empty() && columns.len() == log_weights.len(), "columns of these rows");
    }
}
