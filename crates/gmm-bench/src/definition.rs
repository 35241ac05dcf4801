//! What is run: `benches/definitions/*.toml`, of which some are in the program.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use gmm_model::{CovarianceType, Precision};
use serde::{Deserialize, Deserializer};

/// The definitions that the program has in it: name and text.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("em-sweeps", include_str!("../../../benches/definitions/em-sweeps.toml")),
    ("likelihood-sweep", include_str!("../../../benches/definitions/likelihood-sweep.toml")),
    ("variants", include_str!("../../../benches/definitions/variants.toml")),
    ("products", include_str!("../../../benches/definitions/products.toml")),
];

/// A whole definition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// One line for people.
    pub title: String,
    /// What is timed.
    pub what: What,
    /// Iterations of a fit; of no meaning for anything else.
    #[serde(default)]
    pub iterations: usize,
    /// Kinds, each at every size; none for products.
    #[serde(default)]
    pub covariances: Vec<CovarianceType>,
    /// Precisions, each at every size.
    #[serde(deserialize_with = "precisions")]
    pub precisions: Vec<Precision>,
    /// Engines by their names: reference, cpu, cuda. One that is not there is a note.
    pub engines: Vec<String>,
    /// Other programs, run where a Python is named that has them.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Seed of data and start.
    pub seed: u64,
    /// Seconds of a call beyond which a size is left out, judged by the size before it.
    pub longest: f64,
    /// Seconds that the whole may take; what is then not done is left out.
    pub budget: f64,
    /// How far an answer may be from the reference, relative.
    pub tolerance: Tolerance,
    /// How often is measured.
    pub repeats: Repeats,
    /// What `--quick` runs.
    pub quick: Quick,
    /// Series of sizes.
    #[serde(rename = "sweep")]
    pub sweeps: Vec<Sweep>,
}

/// What a call is.
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
    /// As it stands in definitions and records.
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

/// How often a call is measured.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeats {
    /// Calls before anything is measured, after the first.
    pub warm_up: usize,
    /// Measurements at most.
    pub most: usize,
    /// Seconds after which no measurement begins.
    pub seconds: f64,
}

/// What `--quick` leaves.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Largest `n*k*d`; a sweep of which nothing is left gets its smallest `k` and `d`, and as few rows. Of products, it gets a
    /// small `k`.
    pub work: f64,
    /// Measurements at most.
    pub most: usize,
}

/// All sizes that its lists make.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Short name, as it stands in the record.
    pub name: String,
    /// Rows.
    pub n: Sizes,
    /// Components.
    pub k: Sizes,
    /// Columns.
    pub d: Sizes,
}

/// One size or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Sizes {
    /// That of the rows, whatever it is.
    Same(Same),
    /// The same throughout.
    One(usize),
    /// One after another.
    Many(Vec<usize>),
}

/// Of what another size is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Same {
    /// `"n"`: the rows.
    #[serde(rename = "n")]
    Rows,
}

impl Sizes {
    /// All of them; none where they are the rows'.
    pub fn all(&self) -> &[usize] {
        match self {
            Self::Same(Same::Rows) => &[],
            Self::One(size) => std::slice::from_ref(size),
            Self::Many(sizes) => sizes,
        }
    }

    /// Each, or nothing once, where it is the rows'.
    fn each(&self) -> Vec<Option<usize>> {
        match self {
            Self::Same(Same::Rows) => vec![None],
            _ => self.all().iter().copied().map(Some).collect(),
        }
    }
}

/// Rows, components, dimensions.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Rows.
    pub n: usize,
    /// Components.
    pub k: usize,
    /// Dimensions.
    pub d: usize,
}

impl Shape {
    /// `n*k*d`.
    pub const fn work(self) -> f64 {
        self.n as f64 * self.k as f64 * self.d as f64
    }
}

impl Sweep {
    /// Its sizes, `d` outermost and `n` innermost.
    pub fn shapes(&self) -> Vec<Shape> {
        let n = |d, k: Option<usize>| self.n.all().iter().map(move |n| (*n, k.unwrap_or(*n), d));
        let nk = |d| self.k.each().into_iter().flat_map(move |k| n(d, k));
        let all = self.d.each().into_iter().flat_map(nk);
        all.map(|(n, k, d): (_, _, Option<usize>)| Shape { n, k, d: d.unwrap_or(n) }).collect()
    }

    /// Its sizes of so much work at most, or its first with as small a `k` as that needs.
    fn quick_product(&mut self, work: f64) {
        let first = self.shapes()[0];
        let small: Vec<usize> =
            self.shapes().into_iter().filter(|shape| shape.work() <= work).map(|shape| shape.n).collect();
        if small.is_empty() {
            let k = (work / (first.n * first.d) as f64) as usize;
            (self.n, self.k, self.d) = (Sizes::One(first.n), Sizes::One(k.max(1)), Sizes::One(first.d));
        } else {
            self.n = Sizes::Many(small);
        }
    }
}

/// A name that no definition has.
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
    /// The definition of this name in the program, or the file of this path; gives the name for its record too.
    ///
    /// # Errors
    /// [`Unknown`] where there is neither; where the file cannot be read, or a field is missing, unknown or makes no sense.
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

    /// Reads a definition.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
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
            ensure!(!matches!(sweep.n, Sizes::Same(_)), "sweep {}: n cannot be the rows', which it is", sweep.name);
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

    /// The same for `--quick`: small sizes, few measurements.
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
            // Where even the fewest rows are many, fewer are taken than the sweep has.
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

fn precisions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Precision>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    words.iter().map(|word| word.parse().map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        refused("n = 8192", "n = \"n\"", "cannot be the rows'");
        refused("covariances = [\"full\"]", "", "need covariances");
        refused("budget = 150.0", "budget = 0.0", "not above 0");
    }
}
