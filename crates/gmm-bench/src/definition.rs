//! Benchmark definitions: `benches/definitions/*.toml`, some of which are compiled into the program.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use gmm_model::{CovarianceType, Precision};
use serde::{Deserialize, Deserializer};

use crate::sizes::{Sizes, Sweep};

/// The definitions compiled into the program: name and text.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("em-sweeps", include_str!("../../../benches/definitions/em-sweeps.toml")),
    ("likelihood-sweep", include_str!("../../../benches/definitions/likelihood-sweep.toml")),
    ("variants", include_str!("../../../benches/definitions/variants.toml")),
    ("products", include_str!("../../../benches/definitions/products.toml")),
];

/// A benchmark definition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Description, one line.
    pub title: String,
    /// What is timed.
    pub what: What,
    /// Iterations of a fit; ignored for anything else.
    #[serde(default)]
    pub iterations: usize,
    /// Covariance kinds, each run at every size; empty for products.
    #[serde(default)]
    pub covariances: Vec<CovarianceType>,
    /// Precisions, each run at every size.
    #[serde(deserialize_with = "precisions")]
    pub precisions: Vec<Precision>,
    /// Engines by name: reference, cpu, cuda. An engine that is not available gives a note in the record.
    pub engines: Vec<String>,
    /// Other programs to run, if a Python that has them is given.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Seed of the data and the start parameters.
    pub seed: u64,
    /// Longest call in seconds: a size that would take longer, estimated from smaller sizes, is left out.
    pub longest: f64,
    /// Total time budget in seconds; sizes that do not fit are left out.
    pub budget: f64,
    /// Maximum relative error of an answer against the reference.
    pub tolerance: Tolerance,
    /// Number of measurements.
    pub repeats: Repeats,
    /// Limits of `--quick`.
    pub quick: Quick,
    /// The sweeps over sizes.
    #[serde(rename = "sweep")]
    pub sweeps: Vec<Sweep>,
}

/// The operation that is timed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A fit from given parameters: from the call to the model.
    Em,
    /// A log-likelihood of resident rows under parameters.
    Likelihood,
    /// A product of matrices, `(n, k)` times `(k, d)`.
    Product,
}

impl What {
    /// Its name in definitions and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Em => "em",
            Self::Likelihood => "likelihood",
            Self::Product => "product",
        }
    }
}

/// Relative tolerances by precision.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    f64: f64,
    f32: f64,
}

impl Tolerance {
    /// The tolerance for one precision.
    pub const fn of(&self, precision: Precision) -> f64 {
        match precision {
            Precision::F64 => self.f64,
            Precision::F32 => self.f32,
        }
    }
}

/// Number of measurements of a call.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeats {
    /// Warm-up calls after the first call, before any measurement.
    pub warm_up: usize,
    /// Maximum number of measurements.
    pub most: usize,
    /// Seconds after which no further measurement begins.
    pub seconds: f64,
}

/// Limits of `--quick`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Largest `n*k*d`. A sweep without any size this small runs its smallest `k` and `d` with few enough rows; a sweep
    /// of products runs its first size with a small enough `k`.
    pub work: f64,
    /// Maximum number of measurements.
    pub most: usize,
}

/// The error for a name that no definition has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    word: String,
    names: String,
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no definition '{}': choose one of {}, or give a .toml file", self.word, self.names)
    }
}

impl std::error::Error for Unknown {}

impl Definition {
    /// Opens the built-in definition of this name, or the file at this path. Also returns the name for its record.
    ///
    /// # Errors
    /// [`Unknown`] if there is neither; an error if the file cannot be read, or a field is missing, unknown or invalid.
    pub fn open(word: &str) -> Result<(String, Self)> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == word) {
            return Ok(((*name).to_owned(), Self::parse(text).with_context(|| format!("in the definition {name}"))?));
        }
        let path = Path::new(word);
        if path.extension().is_none() && path.components().count() == 1 && !path.exists() {
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            bail!(Unknown { word: word.to_owned(), names });
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {word}"))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, Self::parse(&text).with_context(|| format!("in {word}"))?))
    }

    /// Parses a definition.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn parse(text: &str) -> Result<Self> {
        let definition: Self = toml::from_str(text)?;
        let Self { sweeps, covariances, precisions, engines, what, iterations, .. } = &definition;
        ensure!(!sweeps.is_empty(), "there is no [[sweep]]");
        ensure!(!precisions.is_empty(), "precisions is empty");
        let product = *what == What::Product;
        ensure!(covariances.is_empty() == product, "fits and likelihoods need covariances, and products have none");
        ensure!(definition.budget > 0.0, "budget is not above 0");
        ensure!(!engines.is_empty(), "engines is empty");
        ensure!(*what != What::Em || *iterations > 0, "a fit needs iterations, at least 1");
        for sweep in sweeps {
            let sizes = [&sweep.n, &sweep.k, &sweep.d].map(|sizes| sizes.all());
            ensure!(!matches!(sweep.n, Sizes::Same(_)), "sweep {}: n cannot refer to itself", sweep.name);
            ensure!(!sweep.shapes().is_empty(), "sweep {} has an empty list", sweep.name);
            ensure!(sizes.concat().iter().all(|size| *size > 0), "sweep {} has a size of 0", sweep.name);
            let fewest = sweep.n.all().iter().min().copied().unwrap_or(0);
            ensure!(
                product || fewest >= sweep.k.all().iter().max().copied().unwrap_or(0).max(2),
                "sweep {}: n below k",
                sweep.name
            );
        }
        Ok(definition)
    }

    /// Returns the definition reduced for `--quick`: small sizes, few measurements.
    pub fn quick(mut self) -> Self {
        let Quick { work, most } = self.quick;
        self.repeats =
            Repeats { warm_up: 0, most: most.min(self.repeats.most), seconds: self.repeats.seconds.min(0.05) };
        for sweep in &mut self.sweeps {
            if self.what == What::Product {
                sweep.quick_product(work);
                continue;
            }
            let least = |sizes: &Sizes| sizes.all().iter().min().copied().unwrap_or(1);
            let (k, d) = (least(&sweep.k), least(&sweep.d));
            // If even the smallest number of rows is too large, a smaller one is used than the sweep has.
            let n = least(&sweep.n).min((work / (k * d) as f64) as usize).max(k.max(2));
            let cut = |sizes: &Sizes, least: usize, rest: usize| {
                let small = sizes.all().iter().copied().filter(|s| (s * rest) as f64 <= work).collect::<Vec<_>>();
                Sizes::Many(if small.is_empty() { vec![least] } else { small })
            };
            (sweep.n, sweep.k, sweep.d) = (cut(&sweep.n, n, k * d), cut(&sweep.k, k, n * d), cut(&sweep.d, d, n * k));
        }
        self
    }
}

/// Deserializes a list of precisions from their names.
///
/// # Errors
/// If a word is not a precision.
pub fn precisions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Precision>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    words.iter().map(|word| word.parse().map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    #[test]
    fn the_definitions_in_the_program_are_read_and_have_the_sizes_that_were_published() {
        for (name, _) in BUILT_IN {
            let (_, definition) = Definition::open(name).unwrap();
            let work = definition.quick.work;
            let product = definition.what == What::Product;
            for sweep in definition.quick().sweeps {
                let shapes = sweep.shapes();
                assert!(!shapes.is_empty() && shapes[0].work() <= work, "{name}: {shapes:?}");
                assert!(product || shapes.iter().all(|shape| shape.n >= shape.k), "{name}: {shapes:?}");
            }
        }
        let (_, em) = Definition::open("em-sweeps").unwrap();
        let ends = |at: usize| {
            let shapes = em.sweeps[at].shapes();
            (shapes[0], shapes[shapes.len() - 1])
        };
        assert_eq!(ends(0), (Shape { n: 128, k: 8, d: 2 }, Shape { n: 524_288, k: 8, d: 2 }));
        assert_eq!(ends(1), (Shape { n: 524_288, k: 1, d: 2 }, Shape { n: 524_288, k: 64, d: 2 }));
        assert_eq!(ends(2), (Shape { n: 8192, k: 4, d: 8 }, Shape { n: 8192, k: 4, d: 64 }));
        assert_eq!((em.iterations, em.sweeps[0].shapes().len()), (20, 13));
        let (_, products) = Definition::open("products").unwrap();
        let [ladder, large] = [0, 1].map(|at: usize| products.sweeps[at].shapes());
        assert!(ladder.iter().all(|shape| shape.n == shape.k && shape.n == shape.d) && ladder.len() == 7, "{ladder:?}");
        assert_eq!(large, [Shape { n: 2000, k: 40_000, d: 2000 }]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let text = BUILT_IN[0].1;
        let refused = |from: &str, to: &str, why: &str| {
            assert!(text.contains(from), "{from}");
            let error = format!("{:#}", Definition::parse(&text.replace(from, to)).unwrap_err());
            assert!(error.contains(why), "{error}");
        };
        refused("iterations = 20", "iterations = 0", "at least 1");
        refused("what = \"em\"", "what = \"dance\"", "dance");
        refused("seed = ", "speed = ", "speed");
        refused("k = 4", "k = 9000", "n below k");
        refused("k = 4", "k = []", "empty list");
        refused("n = 8192", "n = \"n\"", "refer to itself");
        refused("covariances = [\"full\"]", "", "need covariances");
        refused("budget = 150.0", "budget = 0.0", "not above 0");
    }
}
