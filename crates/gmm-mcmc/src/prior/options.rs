//! Priors as given by the user, in TOML, JSON or as a structure. Missing parts have defaults that scale with the data.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::Error;

/// The three parts of a prior. A part that is `None` has its default: see [`Prior`](super::Prior).
///
/// ```
/// use gmm_mcmc::{CovariancesPrior, PriorOptions};
///
/// let text = r#"
///     [weights]
///     prior = "dirichlet"
///     concentration = 2.0
///     [covariances]
///     prior = "lkj"
///     eta = 4.0
///     scale = [1.0, 20.0]
/// "#;
/// let options = PriorOptions::from_toml(text)?;
/// assert!(options.means.is_none() && matches!(options.covariances, Some(CovariancesPrior::Lkj { .. })));
/// assert!(PriorOptions::from_toml("[means]\nprior = 'normal'\nsigma = 1.0").is_err());
/// # Ok::<(), gmm_mcmc::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorOptions {
    /// Prior of the component weights.
    pub weights: Option<WeightsPrior>,
    /// Prior of each component's mean.
    pub means: Option<MeansPrior>,
    /// Prior of each covariance, or of the single one if tied.
    pub covariances: Option<CovariancesPrior>,
}

impl PriorOptions {
    /// Reads the TOML form.
    ///
    /// # Errors
    /// [`Error::Prior`] with line and column if the text is not TOML, a key is unknown, or a value has the wrong type.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| {
            let wrong = Wrong::find(text).unwrap_or_else(|| Wrong::new(error.span(), None, &error));
            let place = wrong.at.map_or_else(String::new, |at| {
                let before = &text[..text.floor_char_boundary(at.start)];
                let line = before.rsplit('\n').next().unwrap_or_default();
                format!("line {}, column {}: ", before.matches('\n').count() + 1, line.chars().count() + 1)
            });
            let key = wrong.key.map_or_else(String::new, |key| format!("{key}: "));
            Error::Prior(format!("{place}{key}{}", wrong.why))
        })
    }
}

impl PriorOptions {
    /// Reads the tables from a JSON object of objects.
    ///
    /// # Errors
    /// [`Error::Prior`] with table and key, in the same cases as [`from_toml`](Self::from_toml).
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let wrong = |place: String, error: &serde_json::Error| Error::Prior(format!("{place}{error}"));
        let tables: serde_json::Value = serde_json::from_str(text).map_err(|e| wrong(String::new(), &e))?;
        serde_json::from_value(tables.clone()).map_err(|error| match wrong_key(&tables) {
            Some((place, error)) => wrong(format!("{place}: "), &error),
            None => wrong(String::new(), &error),
        })
    }
}

/// The first table and key that make the JSON invalid, and the error; like [`Wrong::find`] for TOML.
fn wrong_key(tables: &serde_json::Value) -> Option<(String, serde_json::Error)> {
    let fails = |table: &str, keys: serde_json::Value| {
        let alone = serde_json::Map::from_iter([(table.to_owned(), keys)]);
        serde_json::from_value::<PriorOptions>(alone.into()).err()
    };
    for (table, keys) in tables.as_object()? {
        let Some(keys) = keys.as_object() else {
            return fails(table, keys.clone()).map(|error| (table.clone(), error));
        };
        let first = keys.get("prior").map(|value| ("prior".to_owned(), value.clone()));
        let with = |more: Option<(String, serde_json::Value)>| first.clone().into_iter().chain(more).collect();
        if let Some(error) = fails(table, with(None)) {
            let place = if first.is_some() { format!("{table}: prior") } else { table.clone() };
            return Some((place, error));
        }
        for (key, value) in keys.iter().filter(|(key, _)| *key != "prior") {
            if let Some(error) = fails(table, with(Some((key.clone(), value.clone())))) {
                return Some((format!("{table}: {key}"), error));
            }
        }
    }
    None
}

/// The place and description of an error in the text of a prior.
struct Wrong {
    at: Option<Range<usize>>,
    key: Option<String>,
    why: String,
}

impl Wrong {
    fn new(at: Option<Range<usize>>, key: Option<String>, error: &toml::de::Error) -> Self {
        Self { at, key, why: error.message().trim_end().replace('\n', ", ") }
    }

    /// The first key that makes a table invalid. The value of `prior` determines which other keys are allowed, and
    /// serde loses their positions when it reads it, so each key is tried separately together with `prior`. `None` if
    /// the text does not consist of tables.
    fn find(text: &str) -> Option<Self> {
        type Keys = BTreeMap<Spanned<String>, Spanned<toml::Value>>;
        let tables: BTreeMap<Spanned<String>, Keys> = toml::from_str(text).ok()?;
        let fails = |table: &str, keys: &[(&str, &toml::Value)]| {
            let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).clone())).collect();
            let alone = toml::Table::from_iter([(table.to_owned(), toml::Value::Table(keys))]);
            alone.try_into::<PriorOptions>().err()
        };
        let mut tables: Vec<_> = tables.into_iter().collect();
        tables.sort_by_key(|(table, _)| table.span().start);
        for (table, keys) in &tables {
            let (at, table) = (table.span(), table.get_ref().as_str());
            let prior = keys.iter().find(|(key, _)| *key.get_ref() == "prior").map(|(_, value)| value);
            let first: Vec<_> = prior.iter().map(|value| ("prior", value.get_ref())).collect();
            if let Some(error) = fails(table, &first) {
                let at = prior.map_or(at, Spanned::span);
                return Some(Self::new(Some(at), Some(table.to_owned()), &error));
            }
            let mut rest: Vec<_> = keys.iter().filter(|(key, _)| *key.get_ref() != "prior").collect();
            rest.sort_by_key(|(key, _)| key.span().start);
            for (key, value) in rest {
                if let Some(error) = fails(table, &[&first[..], &[(key.get_ref(), value.get_ref())]].concat()) {
                    let name = format!("{table}: {}", key.get_ref());
                    return Some(Self::new(Some(key.span()), Some(name), &error));
                }
            }
        }
        None
    }
}

/// Prior of the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "prior", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WeightsPrior {
    /// Uniform over distributions: a Dirichlet of concentration 1.
    Flat,
    /// A symmetric Dirichlet distribution.
    Dirichlet {
        /// Concentration, the same for each component; default 1.
        concentration: Option<f64>,
    },
}

/// Prior of each mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "prior", rename_all = "kebab-case", deny_unknown_fields)]
pub enum MeansPrior {
    /// Constant. The posterior is proper only with one component.
    Flat,
    /// Independent normals, one for each column.
    Normal {
        /// Means of the normals; default the middle of the column's range.
        mean: Option<PerColumn>,
        /// Standard deviations of the normals; default the column's range.
        sd: Option<PerColumn>,
    },
}

/// Prior of each covariance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "prior", rename_all = "kebab-case", deny_unknown_fields)]
pub enum CovariancesPrior {
    /// Constant: always improper, so it is an error.
    Flat,
    /// For full and tied: inverse-Wishart with a diagonal scale matrix.
    InverseWishart {
        /// Above `d − 1`; default `d + 2`.
        degrees_of_freedom: Option<f64>,
        /// The scale's diagonal, in squared units of the data; default the columns' variances times `k^(−2/d)`.
        scale: Option<PerColumn>,
    },
    /// For full and tied: an LKJ prior for the correlations, half-normals for the standard deviations.
    Lkj {
        /// Shape: 1 is uniform over correlation matrices, larger values favour weaker correlations; default 2.
        eta: Option<f64>,
        /// Scales of the half-normals, in units of the data; default the columns' standard deviations.
        scale: Option<PerColumn>,
    },
    /// For diag and spherical: inverse-gammas for the variances.
    InverseGamma {
        /// Shape; default 3/2.
        shape: Option<f64>,
        /// Scale, in squared units of the data; default half the columns' variances times `k^(−2/d)`.
        scale: Option<PerColumn>,
    },
    /// For diag and spherical: half-normals for the standard deviations.
    HalfNormal {
        /// Their scales, in units of the data; default the columns' standard deviations.
        scale: Option<PerColumn>,
    },
}

/// One number for all columns, or a number per column, `(d,)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PerColumn {
    /// The same number for all columns.
    All(f64),
    /// A number per column, `(d,)`.
    Each(Vec<f64>),
}

impl PerColumn {
    /// The numbers for each column, `(len,)`.
    pub(crate) fn spread(&self, what: &str, len: usize) -> Result<Vec<f64>, Error> {
        match self {
            Self::All(value) => Ok(vec![*value; len]),
            Self::Each(values) if values.len() == len => Ok(values.clone()),
            Self::Each(values) => {
                Err(Error::Prior(format!("{what} has {} numbers, expected {len} (or one for all)", values.len())))
            }
        }
    }
}

/// Implemented by hand: the derived form for untagged enums does not say in its error what it expects.
impl<'de> Deserialize<'de> for PerColumn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;

        impl<'de> Visitor<'de> for Numbers {
            type Value = PerColumn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one number, or a list with a number for each column")
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<PerColumn, E> {
                Ok(PerColumn::All(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<PerColumn, E> {
                Ok(PerColumn::All(value as f64))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<PerColumn, E> {
                Ok(PerColumn::All(value as f64))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PerColumn, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element::<PerColumn>()? {
                    match value {
                        PerColumn::All(value) => values.push(value),
                        PerColumn::Each(_) => return Err(de::Error::invalid_type(de::Unexpected::Seq, &Numbers)),
                    }
                }
                Ok(PerColumn::Each(values))
            }
        }

        deserializer.deserialize_any(Numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_prior_is_told_with_line_column_and_key() {
        let numbers = "expected one number, or a list with a number for each column";
        for (text, parts) in [
            ("[means]\nprior = 'normal'\nsd = 'x'\n", ["line 3, column 1: means: sd: ", "string \"x\"", numbers]),
            (
                "[means]\nprior = 'normal'\n  sd = [[1.0], [2.0]]",
                ["line 3, column 3: means: sd: ", "sequence", numbers],
            ),
            ("[means]\nsd = [1.0, 'y']\nprior = 'normal'", ["line 2, column 1: means: sd: ", "\"y\"", numbers]),
            (
                "[weights]\nprior = 'dirichlet'\nalpha = 1",
                ["line 3, column 1: weights: alpha", "unknown", "concentration"],
            ),
            ("[means]\nprior = 'cauchy'", ["line 2, column 9: means: ", "`cauchy`", "`normal`"]),
            ("[means]\nsd = 1.0", ["line 1, column 2: means: ", "missing field `prior`", ""]),
            ("\n[mean]\nprior = 'flat'", ["line 3, column 9: mean: ", "unknown field `mean`", "`covariances`"]),
            ("means = 3", ["line 1, column 9: ", "integer `3`", ""]),
            ("[means]\nprior = \n", ["line 2, column 9: ", "", ""]),
        ] {
            let error = PriorOptions::from_toml(text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{text:?} {parts:?}: {error}");
            assert!(!error.contains('\n') && !error.contains('|'), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_prior_in_json_is_told_with_table_and_key() {
        let numbers = "expected one number, or a list with a number for each column";
        for (text, start, rest) in [
            (r#"{"weights": {"prior": "flat"}, "means": {"prior": "normal", "sd": "x"}}"#, "means: sd: ", numbers),
            (r#"{"means": {"sd": [1, "y"], "prior": "normal"}}"#, "means: sd: ", numbers),
            (r#"{"weights": {"prior": "dirichlet", "alpha": 1}}"#, "weights: alpha: ", "`concentration`"),
            (r#"{"weights": {"prior": "dirichlet", "concentration": [1]}}"#, "weights: concentration: ", "f64"),
            (r#"{"means": {"prior": "cauchy"}}"#, "means: prior: ", "`flat` or `normal`"),
            (r#"{"means": {"sd": 1.0}}"#, "means: ", "missing field `prior`"),
            (r#"{"means": 3}"#, "means: ", "integer `3`"),
            (r#"{"mean": {"prior": "flat"}}"#, "mean: ", "`covariances`"),
            (r#"[1]"#, "", "invalid"),
        ] {
            let error = PriorOptions::from_json(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("prior: {start}")) && error.contains(rest), "{text}: {error}");
            assert!(!error.contains(" line "), "{text}: {error}");
        }
        let options = PriorOptions::from_json(r#"{"means": {"sd": [1, 2.5], "prior": "normal"}}"#).unwrap();
        let sd = Some(PerColumn::Each(vec![1.0, 2.5]));
        assert_eq!(options.means, Some(MeansPrior::Normal { mean: None, sd }));
    }

    #[test]
    fn whole_numbers_are_numbers() {
        let options = PriorOptions::from_toml("[means]\nprior = 'normal'\nmean = 3\nsd = [1, 2.5]").unwrap();
        let normal = MeansPrior::Normal { mean: Some(PerColumn::All(3.0)), sd: Some(PerColumn::Each(vec![1.0, 2.5])) };
        assert_eq!(options.means, Some(normal));
    }
}
