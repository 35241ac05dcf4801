//! Background models: statistics of many utterances under one mixture, adaptation of it to each, and log-likelihood
//! ratios with the components of largest density.
//!
//! The mathematics are in [`gmm_model::adapt`]. Here an utterance is a range of the rows of a data set, which is any unit
//! that gets a score or a model: a recording, a speaker, a class.

mod many;
mod ratios;

use std::ops::Range;

use gmm_model::{Dataset, Mixture, Precision};

use crate::engine::check_features;
use crate::{Error, shift};

pub use many::{
    adapt_many, adapt_many_top, adapted_means_of_many, adapted_means_top, top_statistics, utterance_statistics,
};
pub use ratios::{RatioOptions, Ratios, Speakers, Trial, log_likelihood_ratios};

/// Rows of many utterances in one data set.
#[derive(Clone, Copy)]
pub struct Utterances<'a> {
    /// All rows.
    pub data: &'a Dataset,
    /// The rows of each utterance, at least one with positive weight. They may overlap.
    pub rows: &'a [Range<usize>],
    /// The precision of rows and products; sums are f64.
    pub precision: Precision,
}

impl<'a> Utterances<'a> {
    /// The utterances in the precision of the data.
    pub fn new(data: &'a Dataset, rows: &'a [Range<usize>]) -> Self {
        Self { data, rows, precision: data.rows().precision() }
    }

    fn check(&self, background: &Mixture) -> Result<(), Error> {
        check_features(self.data.n_features(), background.n_features())?;
        shift::check_weights(self.data.into(), self.precision)?;
        for (i, rows) in self.rows.iter().enumerate() {
            if rows.is_empty() || rows.end > self.data.n_rows() {
                let (value, n) = (format!("{rows:?}"), self.data.n_rows());
                let must = format!("a range of the {n} rows, with at least one");
                return Err(Error::Option { option: "utterance", value: format!("number {i}, {value}"), must });
            }
            if self.data.weights().is_some_and(|weights| weights[rows.clone()].iter().all(|w| *w == 0.0)) {
                let must = "with a row of positive weight".to_owned();
                return Err(Error::Option { option: "utterance", value: format!("number {i}, of weight 0"), must });
            }
        }
        Ok(())
    }
}
