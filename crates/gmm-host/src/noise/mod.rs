//! A uniform noise component beside the Gaussian ones: rows that belong to no cluster (Banfield and Raftery 1993; Fraley
//! and Raftery 1998).
//!
//! Engines know only Gaussian mixtures. With the density `g` of the Gaussian part, a row is noise with probability
//! `t = w0/V / (w0/V + (1 − w0) g)`, and the responsibilities of the components are those without noise times `1 − t`. So
//! an E-step is an evaluation of `g`, and a pass with the row weights `w (1 − t)`: no kernel is needed. The CPU engine
//! does both at once ([`Passes::pass_beside`](crate::Passes::pass_beside)).

mod clean;
mod discounted;
mod evaluate;
mod pass;
mod region;

use std::sync::Arc;

use gmm_model::{Dataset, Noise};

use crate::{Data, Error, FitOptions, Init};

pub use discounted::{discounted, weight_after};
pub use evaluate::{evaluate, labels, log_densities, responsibilities, sample_rows, score};
pub use region::region;

pub(crate) use evaluate::{NoiseOutputs, evaluate_rows};
pub use pass::NoisePass;

pub(crate) use pass::pass;

/// The noise component of a fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NoiseOptions {
    /// Which rows are noise at the start.
    pub start: NoiseStart,
    /// `ln V`, the logarithm of the hypervolume of the region that the rows lie in. `None`: that of the smaller of two
    /// boxes around them ([`region()`]).
    pub log_volume: Option<f64>,
}

/// Which rows are noise at the start of a fit. The first mixture is found on the others; with
/// [`Init::Given`] only the share of noise matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum NoiseStart {
    /// Rows whose nearest neighbours are far away, by nearest-neighbour cleaning (Byers and Raftery 1998), on a sample if
    /// there are many rows. It estimates the share of noise.
    #[default]
    Cleaned,
    /// The given share of rows, those whose nearest neighbours are farthest away.
    Share(f64),
    /// The given rows, `(n,)`.
    Rows(Arc<Vec<bool>>),
    /// The noise of a fitted mixture, whose volume it keeps; the start must be that mixture.
    Given(Box<Noise>),
}

impl NoiseOptions {
    /// Checks all that does not depend on the data.
    pub(crate) fn validate(&self, options: &FitOptions) -> Result<(), Error> {
        let refuse = |option, value: String, must: &str| Err(Error::Option { option, value, must: must.to_owned() });
        if let Some(v) = self.log_volume.filter(|v| !v.is_finite()) {
            return refuse("logarithm of the noise volume", v.to_string(), "finite");
        }
        match (&self.start, &options.init) {
            (NoiseStart::Share(share), _) if !(*share > 0.0 && *share < 1.0) => {
                refuse("share of noise", share.to_string(), "above 0 and below 1")
            }
            (NoiseStart::Given(_), init) if !matches!(init, Init::Given(_)) => refuse(
                "start of the noise",
                "given".to_owned(),
                "used with the mixture that it belongs to as the start",
            ),
            (_, Init::Tree(Some(_)) | Init::Best(Some(_))) => {
                refuse("init", "a given tree".to_owned(), "a start that is made without the rows of noise")
            }
            _ => Ok(()),
        }
    }

    /// One line for the record of a fit.
    pub(crate) fn line(&self, noise: &Noise) -> String {
        let start = match &self.start {
            NoiseStart::Cleaned => "by nearest-neighbour cleaning".to_owned(),
            NoiseStart::Share(share) => format!("share {share}"),
            NoiseStart::Rows(rows) => format!("{} given rows", rows.iter().filter(|is| **is).count()),
            NoiseStart::Given(_) => "given".to_owned(),
        };
        let of = if noise.region.is_some() { "uniform noise" } else { "uniform noise in a given volume" };
        format!("{of}: log volume {}{START}{start}", noise.log_volume)
    }

    /// The line of [`line`](Self::line) without the start; other lines as they are.
    pub(crate) fn without_start(line: &str) -> &str {
        match line.split_once(START) {
            Some((rule, _)) if line.starts_with("uniform noise") => rule,
            _ => line,
        }
    }
}

/// The noise of a fit, for its data.
#[derive(Clone, Debug)]
pub(crate) struct NoiseRule {
    /// The noise at the start.
    pub(crate) start: Noise,
    /// Indices of the rows on the engine on which the first mixture is found, ascending; `None` for all.
    pub(crate) clear: Option<Vec<usize>>,
    /// Weights of the rows on the engine, if any.
    pub(crate) weights: Option<Vec<f64>>,
}

impl NoiseRule {
    /// The rows on which the first mixture is found.
    pub(crate) fn clear_rows(&self, rows: &[usize], data: Data<'_>) -> Result<Dataset, Error> {
        let some = Dataset::new(data.pick(rows)?)?;
        Ok(match self.weights_of(rows) {
            Some(weights) => some.with_weights(weights)?,
            None => some,
        })
    }

    /// Weights of some rows on the engine, if there are any.
    pub(crate) fn weights_of(&self, rows: &[usize]) -> Option<Vec<f64>> {
        self.weights.as_ref().map(|all| rows.iter().map(|&row| all[row]).collect())
    }
}

/// The noise of a fit: `whole` are the rows as given, `present` those of positive weight, and `data` those of them without
/// a label, which are on the engine.
///
/// Cost: three reads of the rows for the region, of which one multiplies them by a `(d, d)` matrix; for the nearest
/// neighbours the distances between all pairs of at most 4096 rows.
///
/// # Errors
/// [`Error::Option`] if the rows have no volume, or all rows are noise at the start; errors of the device.
pub(crate) fn of_data(
    options: &FitOptions,
    whole: Data<'_>,
    present: Data<'_>,
    data: Data<'_>,
) -> Result<Option<NoiseRule>, Error> {
    let Some(noise) = &options.rule.noise else { return Ok(None) };
    data.require_exact("uniform noise")?;
    let weights = data.weights().map(<[f64]>::to_vec);
    if let NoiseStart::Given(start) = &noise.start {
        start.check(present.dim().1)?;
        return Ok(Some(NoiseRule { start: start.as_ref().clone(), clear: None, weights }));
    }
    let (log_volume, region) = match noise.log_volume {
        Some(log_volume) => (log_volume, None),
        None => {
            let region = region(present)?;
            (region.log_volume(), Some(region))
        }
    };
    let (share, clear) = match &noise.start {
        NoiseStart::Rows(rows) => given(rows, &options.rule.labels, whole)?,
        NoiseStart::Share(share) => clean::clear_rows(data, Some(*share))?,
        _ => clean::clear_rows(data, None)?,
    };
    if clear.len() < options.n_components {
        let must =
            format!("at most n - n_components: {} rows are left for {} components", clear.len(), options.n_components);
        return Err(Error::Option {
            option: "rows of noise at the start",
            value: (data.dim().0 - clear.len()).to_string(),
            must,
        });
    }
    let start = Noise { weight: share, log_volume, region };
    Ok(Some(NoiseRule { start, clear: Some(clear), weights }))
}

/// The share of noise at the start, and the other rows on the engine.
fn given(rows: &[bool], labels: &Option<Arc<Vec<Option<usize>>>>, whole: Data<'_>) -> Result<(f64, Vec<usize>), Error> {
    let n = whole.dim().0;
    if rows.len() != n {
        let must = format!("{n}, the number of rows");
        return Err(Error::Option { option: "number of noise flags", value: rows.len().to_string(), must });
    }
    let weight = |i: usize| whole.weights().map_or(1.0, |weights| weights[i]);
    let on_engine = (0..n).filter(|&i| weight(i) > 0.0 && labels.as_ref().is_none_or(|all| all[i].is_none()));
    let (mut clear, mut noise, mut total) = (Vec::new(), 0.0, 0.0);
    for (at, i) in on_engine.enumerate() {
        total += weight(i);
        if rows[i] {
            noise += weight(i);
        } else {
            clear.push(at);
        }
    }
    Ok((bounded(noise / total), clear))
}

/// What precedes the start in the record of a fit.
const START: &str = ", start ";

/// A share of noise from which EM can start: 0 and 1 are fixed points of EM.
fn bounded(share: f64) -> f64 {
    share.clamp(LEAST, 1.0 - LEAST)
}

/// The smallest share of noise at the start: a row in a thousand.
const LEAST: f64 = 1e-3;
