//! k-means over rows with missing values. The squared distance of a row to a point is that of its observed columns, times
//! `d` over their number: what is expected of all columns if those that are missing are like the others (Dixon 1979,
//! "Pattern recognition with partly missing data").

use std::ops::Range;

use gmm_model::{CovarianceType, Statistics};
use ndarray::ArrayView2;

use super::HoledRows;
use super::available::Available;
use crate::engine::{DISTANCE_ROWS, Seeding, check_features};
use crate::init::{RowDraw, WeighedRows, rows_of};
use crate::{Error, memory};

/// The squared distance of a row with missing values to a point. Of a row without observed values it is 0.
fn distance(x: &[f64], point: &[f64]) -> f64 {
    let (mut sum, mut observed) = (0.0, 0.0);
    for (x, p) in x.iter().zip(point) {
        let z = x - p;
        let is_observed = !x.is_nan();
        sum += if is_observed { z * z } else { 0.0 };
        observed += if is_observed { 1.0 } else { 0.0 };
    }
    if observed > 0.0 { sum * (x.len() as f64 / observed) } else { 0.0 }
}

/// `weight * value`; 0 if `weight` is 0, even if `value` is infinite.
fn weighted(weight: f64, value: f64) -> f64 {
    if weight > 0.0 { weight * value } else { 0.0 }
}

impl HoledRows {
    /// A row, with its missing values at the shift: a median of the observed ones.
    fn filled(&self, row: usize) -> Vec<f64> {
        let value = |(j, shift): (usize, &f64)| match self.rows.at(row, j) {
            v if v.is_nan() => *shift,
            v => v,
        };
        self.shift.iter().enumerate().map(value).collect()
    }
}

impl Seeding for HoledRows {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        let (k, d) = centres.dim();
        check_features(self.shift.len(), d)?;
        let flat: Vec<f64> = centres.iter().copied().collect();
        let assign = |_: usize, values: &[f64], r: &mut [f64]| {
            for (x, r) in values.chunks_exact(d).zip(r.chunks_exact_mut(k)) {
                let mut best = (f64::INFINITY, 0);
                for (c, centre) in flat.chunks_exact(d).enumerate() {
                    let q = distance(x, centre);
                    best = if q < best.0 { (q, c) } else { best };
                }
                r.fill(0.0);
                r[best.1] = 1.0;
            }
        };
        Ok(Available::of(self).statistics(kind, centres, &assign))
    }

    fn forget_centres(&mut self) {
        (self.near, self.drawn) = (Vec::new(), Vec::new());
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        check_features(self.shift.len(), centre.len())?;
        let n = self.rows.dim().0;
        if self.near.is_empty() {
            memory::check("the distances to centres", 8 * n as u128)?;
            self.near = vec![f64::INFINITY; n];
        }
        self.drawn.clear();
        let found = Available::of(self)
            .tasks(|_, values| values.chunks_exact(centre.len()).map(|x| distance(x, centre)).collect::<Vec<f64>>());
        self.near.iter_mut().zip(found.into_iter().flatten()).for_each(|(near, q)| *near = near.min(q));
        let sums: Vec<f64> = self.near.iter().enumerate().map(|(i, q)| weighted(self.weight(i), *q)).collect();
        Ok(sums.chunks(DISTANCE_ROWS).map(|some| some.iter().sum()).collect())
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        assert_eq!(weights.is_some(), self.weights.is_some(), "row weights");
        self.drawn = rows_of(draws, &self.near, weights);
        let points: Vec<Vec<f64>> = self.drawn.iter().map(|&row| self.filled(row)).collect();
        let available = Available::of(self);
        let near = &self.near;
        let parts = available.tasks(|first, values| {
            let mut left = vec![0.0; points.len()];
            for (i, x) in values.chunks_exact(self.shift.len()).enumerate() {
                for (left, point) in left.iter_mut().zip(&points) {
                    *left += weighted(available.weight(first + i), near[first + i].min(distance(x, point)));
                }
            }
            left
        });
        let mut left = vec![0.0; points.len()];
        for part in parts {
            left.iter_mut().zip(part).for_each(|(sum, v)| *sum += v);
        }
        Ok(WeighedRows { rows: self.drawn.clone(), left })
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.add_centre(&self.filled(self.drawn[which]))
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        Ok(ranges.iter().flat_map(|rows| self.near[rows.clone()].to_vec()).collect())
    }
}
