//! Reads a request: JSON, perhaps followed by the bytes of tensors.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::{Datatype, Elements};
use crate::Refusal;
use crate::shared::{Regions, TensorRange};

/// An inference request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Option<String>,
    pub(crate) inputs: Vec<Tensor>,
    /// The requested outputs; the usual ones if empty.
    pub(crate) outputs: Vec<Output>,
    /// Whether outputs that are not named are wanted in binary form.
    pub(crate) is_binary: bool,
    /// The parameter `missing`: whether NaN is a missing value and not an error.
    pub(crate) missing: Option<String>,
    /// The parameter `matrix`: the resident matrix that the rows of another are asked about.
    pub(crate) matrix: Option<String>,
    /// The parameter `count` of a search.
    pub(crate) count: Option<usize>,
}

/// A requested output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    /// Whether it is wanted in binary form.
    pub(crate) is_binary: bool,
    /// The shared memory that it is written to.
    pub(crate) place: Option<TensorRange>,
}

/// An input tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// In row-major order; NaN for null.
    pub(crate) values: Elements,
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    parameters: RawParameters,
    #[serde(borrow)]
    inputs: Vec<RawInput<'a>>,
    #[serde(borrow, default)]
    outputs: Vec<RawOutput<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawParameters {
    binary_data_output: bool,
    missing: Option<String>,
    matrix: Option<String>,
    count: Option<usize>,
}

#[derive(Deserialize)]
struct RawInput<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    shape: Vec<i64>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    #[serde(default)]
    parameters: RawInputParameters,
    #[serde(default)]
    data: Option<Numbers>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawInputParameters {
    binary_data_size: Option<usize>,
    shared_memory_region: Option<String>,
    shared_memory_byte_size: Option<usize>,
    shared_memory_offset: Option<usize>,
}

#[derive(Deserialize)]
struct RawOutput<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    parameters: RawOutputParameters,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawOutputParameters {
    binary_data: Option<bool>,
    shared_memory_region: Option<String>,
    shared_memory_byte_size: Option<usize>,
    shared_memory_offset: Option<usize>,
}

/// Reads a request whose first `json` bytes are JSON, all of them if `None`.
///
/// # Errors
/// 400 with the input and what is wrong with it.
pub(crate) fn parse(body: &Bytes, json: Option<usize>, regions: &Regions) -> Result<Request, Refusal> {
    let json = json.unwrap_or(body.len());
    if json > body.len() {
        let message = format!("Inference-Header-Content-Length is {json}, but the body has {} bytes", body.len());
        return Err(Refusal::bad(message));
    }
    let mut rest = body.slice(json..);
    let raw: RawRequest<'_> = serde_json::from_slice(&body[..json])
        .map_err(|e| Refusal::bad(format!("the request is not valid JSON: {e}")))?;
    let inputs = raw.inputs.into_iter().map(|input| tensor(input, &mut rest, regions)).collect::<Result<_, _>>()?;
    if !rest.is_empty() {
        return Err(Refusal::bad(format!("{} bytes follow the last binary input", rest.len())));
    }
    let is_binary = raw.parameters.binary_data_output;
    let output = |output: RawOutput<'_>| {
        let RawOutputParameters { binary_data, shared_memory_region: region, .. } = output.parameters;
        let RawOutputParameters { shared_memory_byte_size: size, shared_memory_offset: offset, .. } = output.parameters;
        let place = TensorRange::of(region, size, offset)?;
        Ok(Output { name: output.name.into_owned(), is_binary: binary_data.unwrap_or(is_binary), place })
    };
    Ok(Request {
        id: raw.id.map(Cow::into_owned),
        inputs,
        outputs: raw.outputs.into_iter().map(output).collect::<Result<_, Refusal>>()?,
        is_binary,
        missing: raw.parameters.missing,
        matrix: raw.parameters.matrix,
        count: raw.parameters.count,
    })
}

/// The type of a tensor and its number of elements.
///
/// # Errors
/// 400 if the type has no numbers, or the shape is negative or too large.
pub(crate) fn checked(name: &str, datatype: &str, shape: &[i64]) -> Result<(Datatype, usize), Refusal> {
    let named = |why: String| Refusal::bad(format!("input '{}': {why}", gmm_model::shown(name)));
    let Some(found) = Datatype::of(datatype) else {
        let all = Datatype::ALL.map(|(name, _)| name).join(", ");
        let datatype = gmm_model::shown(datatype).into_owned();
        return Err(named(format!("datatype '{datatype}' is not one of {all}")));
    };
    let side = |side: i64| usize::try_from(side).ok();
    let size = shape.iter().try_fold(1usize, |all, &one| all.checked_mul(side(one)?));
    Ok((found, size.ok_or_else(|| named(format!("shape {shape:?} is negative or too large")))?))
}

/// The tensor, of the data in JSON, of the next bytes of `rest`, or of shared memory.
fn tensor(input: RawInput<'_>, rest: &mut Bytes, regions: &Regions) -> Result<Tensor, Refusal> {
    let RawInput { name, shape, datatype, parameters, data } = input;
    let named = |why: String| Refusal::bad(format!("input '{}': {why}", gmm_model::shown(&name)));
    let (datatype, size) = checked(&name, &datatype, &shape)?;
    let RawInputParameters { binary_data_size, shared_memory_region, shared_memory_byte_size, shared_memory_offset } =
        parameters;
    let place = TensorRange::of(shared_memory_region, shared_memory_byte_size, shared_memory_offset)?;
    let bytes = |length: usize, what: &str| {
        let wanted = size.saturating_mul(datatype.size());
        if wanted == length {
            return Ok(());
        }
        let of = format!("shape {shape:?} of {}", datatype.name());
        Err(named(format!("{what} is {length}, but {of} needs {wanted} bytes")))
    };
    let values = match (data, binary_data_size, place) {
        (Some(Numbers(values)), None, None) => {
            if let Some((at, value)) = datatype.unfit(&values) {
                let none = datatype.name();
                return Err(named(format!("value {at} of data (counted from 0) is {value}, which is no {none}")));
            }
            values.into()
        }
        (None, Some(length), None) => {
            bytes(length, "binary_data_size")?;
            if length > rest.len() {
                return Err(named(format!("binary_data_size is {length}, but {} bytes are left", rest.len())));
            }
            Elements::decode(datatype, rest.split_to(length))
        }
        (None, None, Some(place)) => {
            bytes(place.byte_size, "shared_memory_byte_size")?;
            Elements::decode(datatype, regions.bytes(&place)?)
        }
        (None, None, None) => {
            let give = "give data, or binary_data_size and its bytes";
            return Err(named(format!("it has no data: {give}")));
        }
        _ => {
            return Err(named("it has data, binary_data_size and shared memory, or two of these: give one".to_owned()));
        }
    };
    if values.len() != size {
        return Err(named(format!("shape {shape:?} needs {size} values, and data has {}", values.len())));
    }
    Ok(Tensor { name: name.into_owned(), shape: shape.into_iter().map(|side| side as usize).collect(), values })
}

/// Numbers in one array or in nested ones, in row-major order; null is NaN.
pub(crate) struct Numbers(pub(crate) Vec<f64>);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut all = Vec::new();
        Flat(&mut all).deserialize(from)?;
        Ok(Self(all))
    }
}

/// Appends a number, or the numbers of an array.
struct Flat<'a>(&'a mut Vec<f64>);

impl<'de> DeserializeSeed<'de> for Flat<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Flat<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, null, or an array of them")
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.0.push(value);
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.visit_f64(f64::from(u8::from(value)))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.visit_f64(f64::NAN)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        while all.next_element_seed(Flat(self.0))?.is_some() {}
        Ok(())
    }
}
