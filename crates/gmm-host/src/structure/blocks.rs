//! Responsibilities of all rows, a block at a time.

use gmm_model::{Dataset, Mixture, Precision};
use ndarray::{ArrayView2, Axis};

use crate::{Data, Engine, Error, EvaluateOptions, Resident, evaluate};

/// Responsibilities that are evaluated at once: 64 MiB.
const AT_ONCE: usize = 1 << 23;

/// What is known of the rows of a block.
pub(super) struct Block<'a> {
    /// `(m, k)`.
    pub(super) responsibilities: ArrayView2<'a, f64>,
    /// `(m,)`.
    pub(super) log_densities: &'a [f64],
    /// `(m,)`.
    pub(super) weights: Option<&'a [f64]>,
}

/// Rows whose responsibilities under one mixture are visited in several passes.
pub(super) struct Blocks<'a> {
    engine: &'a dyn Engine,
    mixture: &'a Mixture,
    data: Data<'a>,
    precision: Precision,
    /// Rows that are few enough stay on the engine between passes.
    resident: Option<Box<dyn Resident>>,
    responsibilities: Vec<f64>,
    log_densities: Vec<f64>,
    /// Rows of a block.
    most: usize,
}

impl<'a> Blocks<'a> {
    /// Loads the rows if one block holds them all.
    ///
    /// # Errors
    /// As for [`evaluate::load`].
    pub(super) fn new(
        engine: &'a dyn Engine,
        mixture: &'a Mixture,
        data: Data<'a>,
        precision: Precision,
    ) -> Result<Self, Error> {
        Self::of_rows(engine, mixture, data, precision, (AT_ONCE / mixture.n_components()).max(1))
    }

    /// As [`new`](Self::new), with blocks of `most` rows.
    fn of_rows(
        engine: &'a dyn Engine,
        mixture: &'a Mixture,
        data: Data<'a>,
        precision: Precision,
        most: usize,
    ) -> Result<Self, Error> {
        crate::engine::check_features(data.dim().1, mixture.n_features())?;
        let (n, k) = (data.dim().0, mixture.n_components());
        let resident = match n <= most {
            true => Some(evaluate::load(engine, mixture, data, precision)?),
            false => None,
        };
        let m = n.min(most);
        let (responsibilities, log_densities) = (vec![0.0; m * k], vec![0.0; m]);
        Ok(Self { engine, mixture, data, precision, resident, responsibilities, log_densities, most })
    }

    /// Visits all rows in order.
    ///
    /// # Errors
    /// As for [`evaluate::load`], and the first error of `see`.
    pub(super) fn pass(&mut self, mut see: impl FnMut(Block<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let weights = self.data.weights();
        if let Some(mut resident) = self.resident.take() {
            let seen = self.evaluate(resident.as_mut(), weights, &mut see);
            self.resident = Some(resident);
            return seen;
        }
        let most = self.most;
        let of = |start: usize, m: usize| weights.map(|weights| &weights[start..start + m]);
        if let Data::Host(data) = self.data {
            let n = data.n_rows();
            return (0..n).step_by(most).try_for_each(|start| {
                // Without the weights: those of a block may all be 0.
                let rows = data.select_rows(&(start..n.min(start + most)).collect::<Vec<_>>());
                let m = rows.n_rows();
                let mut loaded = evaluate::load(self.engine, self.mixture, &rows, self.precision)?;
                self.evaluate(loaded.as_mut(), of(start, m), &mut see)
            });
        }
        let mut outcome = Ok(());
        self.data.walk(&mut |first, block| {
            for (i, rows) in block.axis_chunks_iter(Axis(0), most).enumerate() {
                if outcome.is_ok() {
                    let start = first + i * most;
                    outcome = Dataset::new(rows.to_owned()).map_err(Error::from).and_then(|rows| {
                        let m = rows.n_rows();
                        let mut loaded = evaluate::load(self.engine, self.mixture, &rows, self.precision)?;
                        self.evaluate(loaded.as_mut(), of(start, m), &mut see)
                    });
                }
            }
        })?;
        outcome
    }

    fn evaluate(
        &mut self,
        rows: &mut dyn Resident,
        weights: Option<&[f64]>,
        see: &mut impl FnMut(Block<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (m, k) = (rows.dim().0, self.mixture.n_components());
        let responsibilities = &mut self.responsibilities[..m * k];
        let log_densities = &mut self.log_densities[..m];
        let want = EvaluateOptions {
            responsibilities: Some(responsibilities.into()),
            log_densities: Some(log_densities),
            ..EvaluateOptions::default()
        };
        rows.evaluate(self.mixture, want)?;
        let responsibilities = ArrayView2::from_shape((m, k), &self.responsibilities[..m * k]).expect("m*k numbers");
        see(Block { responsibilities, log_densities: &self.log_densities[..m], weights })
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, SyntheticOptions, reference, sample, synthetic};

    use super::*;
    use crate::CpuEngine;

    #[test]
    fn blocks_of_any_size_visit_all_rows_in_order_with_their_weights() {
        let mixture = synthetic(3, 2, CovarianceType::Full, 0, &SyntheticOptions::default()).unwrap();
        let rows = sample(&mixture, 50, 1).unwrap().0;
        let weights: Vec<f64> = (0..50).map(f64::from).collect();
        let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
        let engine = CpuEngine::new(1).unwrap();
        for most in [1, 7, 49, 50, 64] {
            let mut blocks = Blocks::of_rows(&engine, &mixture, Data::from(&data), Precision::F64, most).unwrap();
            for _ in 0..2 {
                let (mut seen, mut weighed, mut densities) = (Vec::new(), Vec::new(), Vec::new());
                blocks
                    .pass(|block| {
                        assert!(block.responsibilities.nrows() <= most);
                        seen.extend(block.responsibilities.iter().copied());
                        weighed.extend_from_slice(block.weights.unwrap());
                        densities.extend_from_slice(block.log_densities);
                        Ok(())
                    })
                    .unwrap();
                assert_eq!(weighed, weights);
                let (r, logs) = (
                    reference::responsibilities(&mixture, rows.view()),
                    reference::log_densities(&mixture, rows.view()),
                );
                assert_eq!(seen.len(), r.len());
                assert!(seen.iter().zip(&r).all(|(a, b)| (a - b).abs() < 1e-12), "{most}");
                assert!(densities.iter().zip(&logs).all(|(a, b)| (a - b).abs() < 1e-12 * b.abs().max(1.0)), "{most}");
            }
        }
    }
}
