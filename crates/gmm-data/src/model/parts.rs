//! Parsing and checks that both forms of a model share.

use std::collections::BTreeMap;
use std::fmt;

use gmm_model::{CovarianceType, Covariances, FitSummary, Mixture, Noise, OutlierThreshold, RowStorage};
use ndarray::{Array1, Array2, Array3};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::factors::FactorsField;
use super::posterior::PosteriorField;
use super::{MODEL_FORMAT, MODEL_VERSION, MODELS_FORMAT, ModelFile};
use crate::Problem;
use crate::error::{Fault, one_line};

/// The fields of a JSON object, each kept as unparsed text so that an error can name the field.
pub(super) struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Splits an object into its fields, and checks format and version before all other fields.
    pub(super) fn parse(text: &'a str) -> Result<Self, Fault> {
        Self::parse_as(text, (MODEL_FORMAT, MODEL_VERSION))
    }

    /// Whether a text is an object of this format, as far as can be told.
    pub(super) fn has_format(text: &str, format: &str) -> bool {
        let object: Result<Object<'_>, _> = serde_json::from_str(text);
        object.is_ok_and(|object| {
            let found = object.fields.get("format").map(|raw| serde_json::from_str::<String>(raw.get()));
            found.is_some_and(|found| found.is_ok_and(|found| found == format))
        })
    }

    /// As [`parse`](Self::parse), for a format and the latest version of it.
    pub(super) fn parse_as(text: &'a str, format: (&str, u64)) -> Result<Self, Fault> {
        Self::split(text)?.of_format(format)
    }

    /// Splits an object of any format into its fields.
    pub(super) fn split(text: &'a str) -> Result<Self, Fault> {
        Self::once(serde_json::from_str(text).map_err(|e| syntax(text, &e))?)
    }

    /// Checks that no field appears twice: it is unknown which of the two is meant.
    fn once(Object { fields, twice }: Object<'a>) -> Result<Self, Fault> {
        match twice {
            Some(name) => Err(Fault::field(&name, Problem::Field("the field appears in the file twice".to_owned()))),
            None => Ok(Self(fields)),
        }
    }

    /// Whether there is a field of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A field that is an object.
    pub(super) fn object(&self, name: &str) -> Result<Self, Fault> {
        let object = serde_json::from_str(self.raw(name)?.get());
        Self::once(object.map_err(|_| Fault::field(name, Problem::Field("it must be an object".to_owned())))?)
    }

    /// Checks format and version, of which `latest` is the latest that this program reads.
    pub(super) fn of_format(self, (wanted, latest): (&str, u64)) -> Result<Self, Fault> {
        let fields = self;
        if !fields.has("format") {
            return Err(Fault::field("format", Problem::Format(format!("it does not say \"format\":\"{wanted}\""))));
        }
        let format: String = fields.get("format")?;
        if format == MODELS_FORMAT && wanted != MODELS_FORMAT {
            let why = "it holds models of groups (gmm fit --by): this command needs a single model".to_owned();
            return Err(Fault::field("format", Problem::Format(why)));
        }
        if format != wanted {
            let why = format!("its format is '{}', not '{wanted}'", one_line(&format));
            return Err(Fault::field("format", Problem::Format(why)));
        }
        let version: u64 = fields.get("version")?;
        if version == 0 || version > latest {
            let advice = if version == 0 { "" } else { "; update the program" };
            let why = format!("its version is {version}, this program reads up to {latest}{advice}");
            return Err(Fault::field("version", Problem::Format(why)));
        }
        Ok(fields)
    }

    /// The covariance kind.
    pub(super) fn kind(&self) -> Result<CovarianceType, Fault> {
        let word: String = self.get("covariance_type")?;
        word.parse().map_err(|e| Fault::field("covariance_type", Problem::Model(e)))
    }

    /// A required field that is not parsed.
    pub(super) fn raw(&self, name: &str) -> Result<&'a RawValue, Fault> {
        let raw = self.0.get(name).copied();
        raw.ok_or_else(|| Fault::field(name, Problem::Field("missing field".to_owned())))
    }

    /// Parses a required field.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T, Fault> {
        let raw = self.0.get(name).ok_or_else(|| Fault::field(name, Problem::Field("missing field".to_owned())))?;
        // Drop serde_json's line and column, which count from the start of the field.
        serde_json::from_str(raw.get()).map_err(|e| {
            let text = e.to_string();
            let why = text.rsplit_once(" at line").map_or(text.as_str(), |(why, _)| why);
            Fault::field(name, Problem::Field(why.to_owned()))
        })
    }

    /// Parses a field that may be missing or null.
    pub(super) fn optional<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Fault> {
        if self.has(name) { self.get::<Option<T>>(name) } else { Ok(None) }
    }
}

/// A JSON object, with a record of duplicate names: a plain map would silently keep the last of two fields of one name.
struct Object<'a> {
    fields: BTreeMap<String, &'a RawValue>,
    /// The first name that occurs a second time.
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fill;

        impl<'de> Visitor<'de> for Fill {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut object = Object { fields: BTreeMap::new(), twice: None };
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if object.fields.insert(name.clone(), value).is_some() {
                        object.twice.get_or_insert(name);
                    }
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Fill)
    }
}

/// Converts a JSON syntax error, adding its line, its byte offset, and the field that contains it.
fn syntax(text: &str, e: &serde_json::Error) -> Fault {
    let before: usize =
        text.split_inclusive('\n').take(e.line().saturating_sub(1)).map(str::len).sum::<usize>() + e.column();
    let before = &text.as_bytes()[..before.min(text.len())];
    let known = [
        "weights",
        "means",
        "covariances",
        "fit",
        "feature_names",
        "storage",
        "trace",
        "outliers",
        "clusters",
        "posterior",
        "noise",
        "factors",
        "version",
    ];
    let last = |name: &&str| {
        let key = format!("\"{name}\"");
        before.windows(key.len()).rposition(|w| w == key.as_bytes())
    };
    let text = e.to_string();
    let why = text.rsplit_once(" at line").map_or(text.as_str(), |(why, _)| why);
    let problem = if before.ends_with(b"N") || before.ends_with(b"I") {
        "JSON has no NaN and no Infinity".to_owned()
    } else {
        format!("not JSON: {why}")
    };
    let mut fault = Fault::from(Problem::Field(problem));
    fault.place.line = Some(e.line() as u64);
    fault.place.offset = Some((before.len() as u64).saturating_sub(1));
    fault.place.field = known.iter().filter_map(|n| last(n).map(|at| (at, n))).max().map(|(_, n)| (*n).to_owned());
    fault
}

/// An array read from either form: its shape and its values in row-major order.
pub(super) struct Numbers {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f64>,
}

/// Builds a model from its parts and checks that they are consistent.
pub(super) fn assemble(
    fields: &Fields<'_>,
    weights: Numbers,
    means: Numbers,
    covariances: Numbers,
) -> Result<ModelFile, Fault> {
    let kind = fields.kind()?;
    let k: usize = fields.get("n_components")?;
    let d: usize = fields.get("n_features")?;
    check("weights", &weights, &[k])?;
    check("means", &means, &[k, d])?;
    let expected: &[usize] = match kind {
        CovarianceType::Full => &[k, d, d],
        CovarianceType::Tied => &[d, d],
        CovarianceType::Diag => &[k, d],
        CovarianceType::Spherical => &[k],
    };
    check("covariances", &covariances, expected)?;
    let bad = |_| Fault::from(Problem::Field("shape and numbers disagree".to_owned()));
    let c = covariances.values;
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_vec((k, d, d), c).map_err(bad)?),
        CovarianceType::Tied => Covariances::Tied(Array2::from_shape_vec((d, d), c).map_err(bad)?),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_vec((k, d), c).map_err(bad)?),
        CovarianceType::Spherical => Covariances::Spherical(Array1::from_vec(c)),
    };
    let means = Array2::from_shape_vec((k, d), means.values).map_err(bad)?;
    let mixture = Mixture::new(Array1::from_vec(weights.values), means, covariances).map_err(Problem::from)?;
    let feature_names: Option<Vec<String>> = fields.optional("feature_names")?;
    let fit: Option<FitSummary> = fields.optional("fit")?;
    let storage: Option<RowStorage> = fields.optional("storage")?;
    let trace: Vec<f64> = fields.optional("trace")?.unwrap_or_default();
    let outliers: Option<OutlierThreshold> = fields.optional("outliers")?;
    let clusters: Option<Vec<usize>> = fields.optional("clusters")?;
    let noise: Option<Noise> = fields.optional("noise")?;
    let factors: Option<FactorsField> = fields.optional("factors")?;
    let mixture = match factors {
        Some(field) => field.with(mixture)?,
        None => mixture,
    };
    let posterior: Option<PosteriorField> = fields.optional("posterior")?;
    let posterior = posterior.map(|field| field.with(&mixture)).transpose()?;
    let model = ModelFile { mixture, feature_names, fit, storage, trace, outliers, clusters, posterior, noise };
    super::check_columns(&model)?;
    Ok(model)
}

fn check(field: &str, numbers: &Numbers, expected: &[usize]) -> Result<(), Fault> {
    if numbers.shape == expected {
        return Ok(());
    }
    let why = format!("shape {:?}, but n_components and n_features require {expected:?}", numbers.shape);
    Err(Fault::field(field, Problem::Field(why)))
}
