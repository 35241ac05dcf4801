//! One line of a record.

use gmm_model::{CovarianceType, Precision};
use serde::{Deserialize, Serialize, Serializer};

use crate::Shape;
use crate::spread::Spread;

/// What became of a size.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Checked and timed.
    Ok,
    /// The same, while others took more than a tenth of the machine.
    Disturbed,
    /// The answer is outside the tolerance, and was not timed.
    Wrong,
    /// There is no answer.
    Error,
    /// Left out, since it would take too long.
    Left,
}

impl Status {
    /// As it stands in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Disturbed => "disturbed",
            Self::Wrong => "wrong",
            Self::Error => "error",
            Self::Left => "left",
        }
    }
}

/// What was found for one engine, kind, precision and size. Times are in milliseconds; the fields are the columns of the CSV,
/// in this order.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `em`, `likelihood` or `product`.
    pub what: &'static str,
    /// The sweep it belongs to.
    pub sweep: String,
    /// `reference`, `cpu`, `cuda:0`, or a peer.
    pub engine: String,
    /// Kind of the covariances, where there are any.
    pub covariance: Option<CovarianceType>,
    /// Type in which rows, or entries, are held.
    #[serde(serialize_with = "name")]
    pub precision: Precision,
    /// Rows; of a product, rows of A.
    pub n: usize,
    /// Components; of a product, columns of A and rows of B.
    pub k: usize,
    /// Dimensions; of a product, columns of B.
    pub d: usize,
    /// Iterations of a fit.
    pub iterations: Option<usize>,
    /// What became of it.
    pub status: Status,
    /// Wall clock from the call to its result, warm: the median.
    pub ms: Option<f64>,
    /// Its lower quartile.
    pub ms_q1: Option<f64>,
    /// Its upper quartile.
    pub ms_q3: Option<f64>,
    /// The least.
    pub ms_min: Option<f64>,
    /// The largest.
    pub ms_max: Option<f64>,
    /// Measurements.
    pub samples: Option<usize>,
    /// The first call of this size: memory taken, kernels compiled.
    pub first_ms: Option<f64>,
    /// Rows, or A, to the engine: transfer and layout.
    pub load_ms: Option<f64>,
    /// Iterations alone, rows resident, on the wall's clock.
    pub em_ms: Option<f64>,
    /// A product with A on the engine already: B goes there, the product comes back.
    pub resident_ms: Option<f64>,
    /// Iterations alone on the device's clock; of a product, A, B and the product on the device throughout.
    pub device_ms: Option<f64>,
    /// One of 64 mixtures evaluated together.
    pub batch_ms: Option<f64>,
    /// Largest relative difference from the reference; of a fit's or likelihood's peer, of its log-likelihood from ours.
    pub error: Option<f64>,
    /// The last mean log-likelihood on the timed rows.
    pub log_likelihood: Option<f64>,
    /// The largest share of the machine that other processes took.
    pub others: Option<f64>,
    /// How an engine that has several ways did it.
    pub way: String,
    /// What is wrong.
    pub note: String,
}

fn name<S: Serializer>(precision: &Precision, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(precision.name())
}

/// Milliseconds with six digits: more than any clock has.
pub(crate) fn ms(seconds: f64) -> Option<f64> {
    digits(1e3 * seconds, 6)
}

/// Rounded to so many significant digits; nothing where it is not a number.
pub(crate) fn digits(value: f64, digits: usize) -> Option<f64> {
    format!("{value:.*e}", digits - 1).parse().ok().filter(|v: &f64| v.is_finite())
}

impl Row {
    /// A row without figures.
    pub(crate) fn new(what: &'static str, sweep: &str, engine: &str, shape: Shape) -> Self {
        let Shape { n, k, d } = shape;
        Self {
            what,
            sweep: sweep.to_owned(),
            engine: engine.to_owned(),
            covariance: None,
            precision: Precision::F64,
            n,
            k,
            d,
            iterations: None,
            status: Status::Error,
            ms: None,
            ms_q1: None,
            ms_q3: None,
            ms_min: None,
            ms_max: None,
            samples: None,
            first_ms: None,
            load_ms: None,
            em_ms: None,
            resident_ms: None,
            device_ms: None,
            batch_ms: None,
            error: None,
            log_likelihood: None,
            others: None,
            way: String::new(),
            note: String::new(),
        }
    }

    /// Its size.
    pub fn shape(&self) -> Shape {
        Shape { n: self.n, k: self.k, d: self.d }
    }

    /// Notes what was measured, in seconds.
    pub(crate) fn time(&mut self, seconds: Vec<f64>) {
        let samples = seconds.len();
        let Spread { median, min, max, quartiles: [q1, q3] } = Spread::of(seconds);
        (self.ms, self.ms_q1, self.ms_q3) = (ms(median), ms(q1), ms(q3));
        (self.ms_min, self.ms_max, self.samples) = (ms(min), ms(max), Some(samples));
    }

    /// Whether it tells of a fault of ours: peers may differ, and what was left out was not asked.
    pub fn failed(&self) -> bool {
        matches!(self.status, Status::Wrong | Status::Error)
    }

    /// Fields in the order of the CSV, each with its name.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let value = serde_json::to_value(self).expect("plain fields");
        let fields = value.as_object().expect("a struct").iter().map(|(name, value)| {
            let text = match value {
                serde_json::Value::Null => String::new(),
                // A field holds neither commas nor line breaks.
                serde_json::Value::String(text) => text.replace(',', ";").replace(['\n', '\r', '"'], " "),
                other => other.to_string(),
            };
            (name.clone(), text)
        });
        fields.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hold_what_was_measured_and_no_comma() {
        let mut row = Row::new("em", "n", "cpu", Shape { n: 10, k: 2, d: 3 });
        row.covariance = Some(CovarianceType::Full);
        row.time(vec![0.001, 0.003, 0.002]);
        row.note = "first, second\nthird".to_owned();
        let fields = row.fields();
        let field = |name: &str| fields.iter().find(|(n, _)| n == name).unwrap().1.clone();
        assert_eq!(["ms", "ms_min", "ms_max", "samples"].map(field), ["2.0", "1.0", "3.0", "3"]);
        assert_eq!(["precision", "covariance", "status", "batch_ms"].map(field), ["f64", "full", "error", ""]);
        assert_eq!(field("note"), "first; second third");
    }

    #[test]
    fn digits_are_significant_ones() {
        assert_eq!(
            (digits(1234.5678, 3), digits(1.23456e-9, 2), digits(f64::NAN, 2)),
            (Some(1230.0), Some(1.2e-9), None)
        );
    }
}
