//! One row of a record.

use gmm_model::{CovarianceType, Precision};
use serde::{Deserialize, Serialize, Serializer};

use crate::Shape;
use crate::spread::Spread;

/// The outcome of a size.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Checked and timed.
    Ok,
    /// Checked and timed, but other processes took more than a tenth of the machine.
    Disturbed,
    /// The answer is outside the tolerance, so nothing was timed.
    Wrong,
    /// There is no answer.
    Error,
    /// Left out, because it would take too long.
    Left,
}

impl Status {
    /// Its name in the record.
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

/// The result for one engine, kind, precision and size. Times are in milliseconds. The fields are the columns of the
/// CSV, in this order.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `em`, `likelihood` or `product`.
    pub what: &'static str,
    /// The sweep it belongs to.
    pub sweep: String,
    /// `reference`, `cpu`, `cuda:0`, or a peer.
    pub engine: String,
    /// Kind of covariance; `None` for products.
    pub covariance: Option<CovarianceType>,
    /// Type of the rows; of a product, of the entries.
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
    /// The outcome.
    pub status: Status,
    /// Wall-clock time from the call to its result, after warm-up: the median.
    pub ms: Option<f64>,
    /// Its lower quartile.
    pub ms_q1: Option<f64>,
    /// Its upper quartile.
    pub ms_q3: Option<f64>,
    /// Its minimum.
    pub ms_min: Option<f64>,
    /// Its maximum.
    pub ms_max: Option<f64>,
    /// Number of measurements.
    pub samples: Option<usize>,
    /// The first call of this size, which includes memory allocation and kernel compilation.
    pub first_ms: Option<f64>,
    /// Loading the rows, or A, into the engine: transfer and layout.
    pub load_ms: Option<f64>,
    /// The iterations only, rows resident, in wall-clock time.
    pub em_ms: Option<f64>,
    /// A product with A resident on the engine: B is sent and the product is returned.
    pub resident_ms: Option<f64>,
    /// The iterations only, by the device's clock; of a product, with A, B and the product all on the device.
    pub device_ms: Option<f64>,
    /// Time per mixture of 64 mixtures evaluated in a batch.
    pub batch_ms: Option<f64>,
    /// Largest relative difference from the reference; for a peer's fit or likelihood, of its log-likelihood from ours.
    pub error: Option<f64>,
    /// The last mean log-likelihood on the timed rows.
    pub log_likelihood: Option<f64>,
    /// The share of the machine that other processes took during the turns.
    pub others: Option<f64>,
    /// The code path that an engine with several paths took.
    pub way: String,
    /// The reason for a status other than `ok`.
    pub note: String,
}

fn name<S: Serializer>(precision: &Precision, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(precision.name())
}

/// Seconds as milliseconds with six significant digits, which is more than any clock resolves.
pub(crate) fn ms(seconds: f64) -> Option<f64> {
    digits(1e3 * seconds, 6)
}

/// Rounds to `digits` significant digits; `None` if the value is not finite.
pub(crate) fn digits(value: f64, digits: usize) -> Option<f64> {
    format!("{value:.*e}", digits - 1).parse().ok().filter(|v: &f64| v.is_finite())
}

impl Row {
    /// A row without measurements.
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

    /// Names of the CSV's columns, separated by commas.
    pub(crate) fn columns() -> String {
        let row = Self::new("", "", "", Shape { n: 0, k: 0, d: 0 });
        row.fields().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }

    /// The size.
    pub fn shape(&self) -> Shape {
        Shape { n: self.n, k: self.k, d: self.d }
    }

    /// Records the measured times, given in seconds.
    pub(crate) fn time(&mut self, seconds: Vec<f64>) {
        let samples = seconds.len();
        let Spread { median, min, max, quartiles: [q1, q3] } = Spread::of(seconds);
        (self.ms, self.ms_q1, self.ms_q3) = (ms(median), ms(q1), ms(q3));
        (self.ms_min, self.ms_max, self.samples) = (ms(min), ms(max), Some(samples));
    }

    /// Whether an engine of ours failed. Peers that differ and sizes that were left out do not count.
    pub fn failed(&self) -> bool {
        matches!(self.status, Status::Wrong | Status::Error)
    }

    /// Names and values of the fields, in the order of the CSV.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        let value = serde_json::to_value(self).expect("plain fields");
        let fields = value.as_object().expect("a struct").iter().map(|(name, value)| {
            let text = match value {
                serde_json::Value::Null => String::new(),
                // A field of the CSV must contain neither commas nor line breaks.
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
