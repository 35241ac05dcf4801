//! An npy file whose bytes are already a matrix is mapped into memory in place of being read.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use gmm_model::{Matrix, RowArray};
use memmap2::Mmap;

use super::header::{Header, Kind};
use crate::input::Input;
use crate::mapped::MappedValues;

/// Shorter arrays, in bytes, are read: that takes microseconds, and then nothing that happens to the file matters.
const SMALL: usize = 1 << 20;

/// Maps the `(n, d)` array of a regular file, whose length agrees with the header; the npy file begins at byte `base` of it. `None` if the values would need a
/// conversion, or if the system cannot map the file; then it must be read.
pub(super) fn map(input: &Input, base: u64, header: &Header, shape: (usize, usize)) -> Option<Matrix> {
    let Input::Disk(file, _) = input else { return None };
    let is_native = header.big_endian == cfg!(target_endian = "big");
    let len = header.count * header.kind.size();
    if !is_native || len < SMALL {
        return None;
    }
    let start = usize::try_from(base + header.offset).ok()?;
    let values = start..start.checked_add(len)?;
    match header.kind {
        Kind::F4 => map_as::<f32>(file, values, shape).map(Matrix::from),
        Kind::F8 => map_as::<f64>(file, values, shape).map(Matrix::from),
        _ => None,
    }
}

fn map_as<T: Pod + Send + Sync>(file: &File, bytes: Range<usize>, shape: (usize, usize)) -> Option<RowArray<T>> {
    // SAFETY: the map is read-only, and every bit pattern is a valid value. Another program that writes to the file
    // changes the values; one that truncates it ends this process with SIGBUS. Nothing can prevent either, which
    // `read_table` documents for its users; no program that replaces a file by renaming does so.
    let map = unsafe { Mmap::map(file) }.ok()?;
    // Old writers do not align the values.
    RowArray::shared(Arc::new(MappedValues::new(map, bytes)?), shape).ok()
}
