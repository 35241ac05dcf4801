//! The reference engine: [`gmm_model::reference`](mod@gmm_model::reference) behind the [`Engine`] trait. It is slow and
//! sequential; the other engines are tested against it.

use std::ops::Range;

use gmm_model::{CovarianceType, Dataset, Mixture, ModelError, Precision, PrecisionMixture, Statistics, reference};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

use crate::deconvolution::{MeasuredRows, NaivePasses};
use crate::engine::{ComponentColumns, Evaluate, Passes, Seeding};
use crate::engine::{DISTANCE_ROWS, check_features};
use crate::init::{RowDraw, WeighedRows, rows_of};
use crate::products::{Kind, Multiplier};
use crate::{Engine, Error, EvaluateOptions, Evaluation, FillResponsibilities, Resident};

/// The naive engine: always `f64`, one thread, no blocking, no shift.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceEngine;

impl Engine for ReferenceEngine {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn description(&self) -> String {
        "naive f64, one thread".to_owned()
    }

    fn precision(&self, _asked: Precision) -> Precision {
        Precision::F64
    }

    fn multiplier(&self) -> Result<Multiplier, Error> {
        Ok(Multiplier(Kind::Reference))
    }

    fn load_measured(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        if data.limits().is_some() {
            let why = "has no passes over rows within limits: use the CPU engine";
            return Err(Error::Device(format!("{} {why}", self.name())));
        }
        let plain = self.load(&data.without_measurement_errors(), precision, shift)?;
        Ok(Box::new(MeasuredRows::new(data.clone(), Box::new(NaivePasses::new(data.clone())), plain)))
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        if data.is_indirect() {
            return self.load_measured(data, precision, shift);
        }
        if data.has_missing() {
            return self.load_incomplete(data, precision, shift);
        }
        Ok(Box::new(ReferenceRows::of(data)))
    }
}

/// Unshifted rows in `f64`, `(n, d)`.
pub(crate) struct ReferenceRows {
    rows: Array2<f64>,
    weights: Option<Vec<f64>>,
    /// Squared distance of each row to the nearest centre, `(n,)`; empty until a centre is added.
    near: Vec<f64>,
    /// The rows returned by the last [`Seeding::weigh_draws`]; cleared when a centre is added.
    drawn: Vec<usize>,
}

fn squared_distance(x: ArrayView1<'_, f64>, centre: ArrayView1<'_, f64>) -> f64 {
    x.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// `weight * value`; 0 if `weight` is 0, even if `value` is infinite.
fn weighted(weight: f64, value: f64) -> f64 {
    if weight > 0.0 { weight * value } else { 0.0 }
}

impl ReferenceRows {
    pub(crate) fn of(data: &Dataset) -> Self {
        let weights = data.weights().map(<[f64]>::to_vec);
        Self { rows: data.rows().to_f64(), weights, near: Vec::new(), drawn: Vec::new() }
    }

    fn weight(&self, row: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |w| w[row])
    }
}

impl Passes for ReferenceRows {
    fn dim(&self) -> (usize, usize) {
        self.rows.dim()
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let weights = weights.map(<[f64]>::to_vec);
        Ok(Box::new(Self { rows: self.rows.select(Axis(0), rows), weights, near: Vec::new(), drawn: Vec::new() }))
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        check_features(self.rows.ncols(), mixture.n_features())?;
        Ok(reference::statistics(mixture, self.rows.view(), self.weights.as_deref()))
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        check_features(self.rows.ncols(), centres.ncols())?;
        let mut out = Statistics::zero(kind, centres.to_owned());
        let mut r = ndarray::Array1::zeros(centres.nrows());
        for (i, x) in self.rows.outer_iter().enumerate() {
            fill(i, r.as_slice_mut().expect("contiguous"));
            reference::accumulate(&mut out, x, self.weight(i), r.view());
        }
        Ok(out)
    }
}

impl Seeding for ReferenceRows {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        check_features(self.rows.ncols(), centres.ncols())?;
        let mut out = Statistics::zero(kind, centres.to_owned());
        for (i, x) in self.rows.outer_iter().enumerate() {
            let distances =
                centres.outer_iter().map(|c| -(&x - &c).mapv(|v| v * v).sum()).collect::<ndarray::Array1<_>>();
            let mut r = ndarray::Array1::zeros(centres.nrows());
            r[reference::argmax(distances.view())] = 1.0;
            reference::accumulate(&mut out, x, self.weight(i), r.view());
        }
        Ok(out)
    }

    fn forget_centres(&mut self) {
        (self.near, self.drawn) = (Vec::new(), Vec::new());
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        check_features(self.rows.ncols(), centre.len())?;
        self.drawn.clear();
        self.near.resize(self.rows.nrows(), f64::INFINITY);
        for (x, near) in self.rows.outer_iter().zip(&mut self.near) {
            *near = near.min(squared_distance(x, centre.into()));
        }
        let weighted: Vec<f64> = self.near.iter().enumerate().map(|(i, q)| weighted(self.weight(i), *q)).collect();
        Ok(weighted.chunks(DISTANCE_ROWS).map(|some| some.iter().sum()).collect())
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        assert_eq!(weights.is_some(), self.weights.is_some(), "row weights");
        self.drawn = rows_of(draws, &self.near, weights);
        let left = |&row: &usize| {
            let rows = self.rows.outer_iter().zip(&self.near).enumerate();
            let distance = |x| squared_distance(x, self.rows.row(row));
            rows.map(|(i, (x, near))| weighted(self.weight(i), near.min(distance(x)))).sum()
        };
        Ok(WeighedRows { left: self.drawn.iter().map(left).collect(), rows: self.drawn.clone() })
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.add_centre(&self.rows.row(self.drawn[which]).to_vec())
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        Ok(ranges.iter().flat_map(|rows| self.near[rows.clone()].to_vec()).collect())
    }
}

impl Evaluate for ReferenceRows {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        check_features(self.rows.ncols(), mixture.n_features())?;
        self.each_posterior(want, |x| Ok(reference::posterior(mixture, x)))
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        check_features(self.rows.ncols(), mixture.n_features())?;
        mixture.check_factors()?;
        self.each_posterior(want, |x| reference::precision_posterior(mixture, x))
    }
}

impl ComponentColumns for ReferenceRows {}

impl ReferenceRows {
    fn each_posterior(
        &self,
        mut want: EvaluateOptions<'_>,
        posterior: impl Fn(ArrayView1<'_, f64>) -> Result<(f64, Array1<f64>), ModelError>,
    ) -> Result<Evaluation, Error> {
        let mut out = Evaluation::NOTHING;
        for (i, x) in self.rows.outer_iter().enumerate() {
            let (log_density, r) = posterior(x)?;
            out.add_row(self.weight(i), log_density, r.view());
            want.put_row(i, log_density, r.view());
        }
        Ok(out)
    }
}
