//! Writes an answer: JSON, perhaps followed by the bytes of tensors.

use std::borrow::Cow;
use std::io::Write;

use super::Datatype;
use crate::shared::TensorRange;

/// The elements of an output, in row-major order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a> {
    F64(&'a [f64]),
    I32(&'a [i32]),
    U64(&'a [u64]),
    Bool(&'a [bool]),
}

impl<'a> Values<'a> {
    pub(crate) const fn datatype(self) -> Datatype {
        match self {
            Self::F64(_) => Datatype::F64,
            Self::I32(_) => Datatype::I32,
            Self::U64(_) => Datatype::U64,
            Self::Bool(_) => Datatype::Bool,
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::F64(all) => all.len(),
            Self::I32(all) => all.len(),
            Self::U64(all) => all.len(),
            Self::Bool(all) => all.len(),
        }
    }

    /// Appends the elements in little-endian bytes.
    pub(crate) fn put_bytes(self, out: &mut Vec<u8>) {
        match self {
            // On a little-endian machine these are copies.
            Self::F64(all) if cfg!(target_endian = "little") => out.extend_from_slice(bytemuck::cast_slice(all)),
            Self::F64(all) => all.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes())),
            Self::I32(all) if cfg!(target_endian = "little") => out.extend_from_slice(bytemuck::cast_slice(all)),
            Self::I32(all) => all.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes())),
            Self::U64(all) if cfg!(target_endian = "little") => out.extend_from_slice(bytemuck::cast_slice(all)),
            Self::U64(all) => all.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes())),
            Self::Bool(all) => out.extend(all.iter().map(|v| u8::from(*v))),
        }
    }

    /// The elements in little-endian bytes, without a copy if they are so in memory.
    pub(crate) fn bytes(self) -> Cow<'a, [u8]> {
        match self {
            Self::F64(all) if cfg!(target_endian = "little") => bytemuck::cast_slice(all).into(),
            Self::I32(all) if cfg!(target_endian = "little") => bytemuck::cast_slice(all).into(),
            Self::U64(all) if cfg!(target_endian = "little") => bytemuck::cast_slice(all).into(),
            _ => {
                let mut bytes = Vec::with_capacity(self.len() * self.datatype().size());
                self.put_bytes(&mut bytes);
                bytes.into()
            }
        }
    }

    /// Appends a JSON array.
    pub(crate) fn put_json(self, out: &mut Vec<u8>) {
        match self {
            Self::F64(all) => array(out, all, |out, v| number(out, *v)),
            Self::I32(all) => array(out, all, |out, v| integer(out, i64::from(*v))),
            Self::U64(all) => array(out, all, |out, v| drop(write!(out, "{v}"))),
            Self::Bool(all) => array(out, all, |out, v| out.extend_from_slice(if *v { b"true" } else { b"false" })),
        }
    }
}

/// Appends a JSON array of elements that `put` writes.
pub(crate) fn array<T>(out: &mut Vec<u8>, all: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (i, value) in all.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        put(out, value);
    }
    out.push(b']');
}

/// Appends a number that reads back as the same bits; null if it is NaN or infinite, which JSON does not have.
pub(crate) fn number(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

fn integer(out: &mut Vec<u8>, value: i64) {
    match value {
        // Labels are small.
        0..=9 => out.push(b'0' + value as u8),
        _ => drop(write!(out, "{value}")),
    }
}

/// Appends a JSON string.
pub(crate) fn text(out: &mut Vec<u8>, value: &str) {
    // Writing to memory does not fail.
    drop(serde_json::to_writer(out, value));
}

/// An answer that is being written.
pub(crate) struct Answer {
    json: Vec<u8>,
    binary: Vec<u8>,
    is_first: bool,
}

impl Answer {
    /// Begins with the names of the model and of the request.
    pub(crate) fn new(model: &str, version: &str, id: Option<&str>, capacity: usize) -> Self {
        let mut json = Vec::with_capacity(capacity);
        json.extend_from_slice(b"{\"model_name\":");
        text(&mut json, model);
        json.extend_from_slice(b",\"model_version\":");
        text(&mut json, version);
        if let Some(id) = id {
            json.extend_from_slice(b",\"id\":");
            text(&mut json, id);
        }
        json.extend_from_slice(b",\"outputs\":[");
        Self { json, binary: Vec::new(), is_first: true }
    }

    /// Adds an output that is in shared memory.
    pub(crate) fn put_placed(&mut self, name: &str, shape: &[usize], values: Values<'_>, place: &TensorRange) {
        let length = values.len() * values.datatype().size();
        let json = self.begin(name, shape, values);
        json.extend_from_slice(b",\"parameters\":{\"shared_memory_region\":");
        text(json, &place.region);
        // Writing to memory does not fail.
        drop(write!(json, ",\"shared_memory_byte_size\":{length},\"shared_memory_offset\":{}}}}}", place.offset));
    }

    /// Name, type and shape of an output.
    fn begin(&mut self, name: &str, shape: &[usize], values: Values<'_>) -> &mut Vec<u8> {
        let json = &mut self.json;
        if !std::mem::take(&mut self.is_first) {
            json.push(b',');
        }
        json.extend_from_slice(b"{\"name\":\"");
        json.extend_from_slice(name.as_bytes());
        json.extend_from_slice(b"\",\"datatype\":\"");
        json.extend_from_slice(values.datatype().name().as_bytes());
        json.extend_from_slice(b"\",\"shape\":");
        array(json, shape, |out, side| integer(out, *side as i64));
        json
    }

    /// Adds an output of this shape.
    pub(crate) fn put(&mut self, name: &str, shape: &[usize], values: Values<'_>, is_binary: bool) {
        let json = self.begin(name, shape, values);
        if is_binary {
            let length = values.len() * values.datatype().size();
            // Writing to memory does not fail.
            drop(write!(json, ",\"parameters\":{{\"binary_data_size\":{length}}}}}"));
            self.binary.reserve(length);
            values.put_bytes(&mut self.binary);
        } else {
            json.extend_from_slice(b",\"data\":");
            values.put_json(json);
            json.push(b'}');
        }
    }

    /// The body, and the length of its JSON if bytes of tensors follow.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Option<usize>) {
        self.json.extend_from_slice(b"]}");
        if self.binary.is_empty() {
            return (self.json, None);
        }
        let length = self.json.len();
        self.json.append(&mut self.binary);
        (self.json, Some(length))
    }
}
