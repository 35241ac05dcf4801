//! Reads the values of an npy file from a stream, converting them on the fly.

use std::io::Read;

use super::grid::Grid;
use super::header::Header;
use super::number::Number;
use crate::error::Fault;
use crate::memory::Limit;
use crate::store::Store;

/// Values in row-major order or in the file's: `f32` for `f2` and `f4`, `f64` for all other types.
pub(super) enum Values {
    F32(Store<f32>),
    F64(Store<f64>),
}

impl Values {
    /// Size in memory, in bytes.
    pub(super) fn bytes(&self) -> u128 {
        match self {
            Self::F32(values) => size_of_val(&values[..]) as u128,
            Self::F64(values) => size_of_val(&values[..]) as u128,
        }
    }
}

/// Bytes converted at a time; a multiple of every type's size.
pub(super) const BLOCK: usize = 1 << 18;

/// What is known about the length of a stream, in bytes, before it is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    /// The length in an archive's directory, which may be wrong. If `is_possible`, the archive has enough bytes for it,
    /// and memory may be reserved for all of it.
    Promised {
        len: u64,
        is_possible: bool,
    },
    Unknown,
}

/// The part of a stream after the header.
pub(super) struct Source<'a, R> {
    reader: R,
    header: &'a Header,
    is_possible: bool,
}

impl<'a, R: Read> Source<'a, R> {
    /// Checks the header against the length.
    pub(super) fn new(reader: R, header: &'a Header, length: Length) -> Result<Self, Fault> {
        let is_possible = match length {
            Length::Promised { len, is_possible } => {
                header.check_length(len)?;
                is_possible
            }
            Length::Unknown => false,
        };
        Ok(Self { reader, header, is_possible })
    }

    /// Reads all values, in the file's order.
    pub(super) fn read(&mut self) -> Result<Values, Fault> {
        self.read_rows(&Grid { n: self.header.count, d: 1, fortran: false, columns: None }, Limit::None)
    }

    /// Reads the selected columns of an array, in row-major order.
    pub(super) fn read_rows(&mut self, grid: &Grid<'_>, limit: Limit) -> Result<Values, Fault> {
        if self.header.is_single() {
            self.rows(grid, limit).map(Values::F32)
        } else {
            self.rows(grid, limit).map(Values::F64)
        }
    }

    fn rows<T: Number>(&mut self, grid: &Grid<'_>, limit: Limit) -> Result<Store<T>, Fault> {
        let mut out = Store::new(limit, WHAT);
        if grid.fortran {
            // Written to column by column, a file would be read and written again for each.
            let bytes = grid.len() as u128 * size_of::<T>() as u128;
            if self.is_possible && bytes <= limit.fitting(0, bytes) {
                return self.columns_in_place(grid, out);
            }
            return self.columns_in_turn(grid, limit);
        }
        let (len, is_possible) = (grid.len(), self.is_possible);
        self.blocks(|first, block| {
            if first == 0 {
                out.check(len)?;
                out.reserve(if is_possible { len } else { 0 })?;
            }
            // Without a possible length memory is reserved for the values read, never for what a header claims.
            if grid.columns.is_none() {
                out.extend_from_slice(block)?;
            } else {
                out.resize(grid.end(first + block.len()))?;
                grid.place(first, block, &mut out);
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// Reads columns to their places among the rows.
    fn columns_in_place<T: Number>(&mut self, grid: &Grid<'_>, mut out: Store<T>) -> Result<Store<T>, Fault> {
        let slots = grid.slots();
        self.blocks(|first, block| {
            if first == 0 {
                out.resize(grid.len())?;
            }
            grid.each_column(first, block, |row, column, run| {
                if let Some(slot) = slots.get(column) {
                    grid.place_column(row, slot, run, &mut out);
                }
            });
            Ok(())
        })?;
        Ok(out)
    }

    /// Reads columns as they are stored, and then transposes them to a copy.
    fn columns_in_turn<T: Number>(&mut self, grid: &Grid<'_>, limit: Limit) -> Result<Store<T>, Fault> {
        let mut stored = Store::<T>::new(limit.beside(), WHAT);
        let slots = grid.slots();
        self.blocks(|first, block| {
            if first == 0 {
                stored.check(grid.len())?;
            }
            let mut result = Ok(());
            grid.each_column(first, block, |_, column, run| {
                if result.is_ok() && slots.get(column).is_some() {
                    // Memory is reserved for the values read, never for the number that a header claims.
                    result = stored.extend_from_slice(run);
                }
            });
            Ok(result?)
        })?;
        let mut out = Store::zeros(grid.len(), limit, "the array in row-major order")?;
        let columns: Vec<usize> = (0..grid.d).filter_map(|column| slots.get(column)).collect();
        let tile = (TILE / grid.width()).max(512);
        for (i, out) in out.chunks_mut(tile * grid.width()).enumerate() {
            let (row, rows) = (i * tile, out.len() / grid.width());
            for (&slot, column) in columns.iter().zip(stored.chunks(grid.n.max(1))) {
                grid.place_column(0, slot, &column[row..row + rows], out);
            }
        }
        Ok(out)
    }

    /// Calls `each` for every block, with the index of its first value and its values.
    fn blocks<T: Number>(&mut self, mut each: impl FnMut(usize, &[T]) -> Result<(), Fault>) -> Result<(), Fault> {
        let size = self.header.kind.size();
        let mut bytes = Vec::with_capacity(BLOCK);
        let mut values = Vec::with_capacity(BLOCK / size);
        let mut first = 0;
        while first < self.header.count {
            let count = (self.header.count - first).min(BLOCK / size);
            bytes.clear();
            self.reader.by_ref().take((count * size) as u64).read_to_end(&mut bytes)?;
            if bytes.len() < count * size {
                return Err(self.header.ends_after((first * size + bytes.len()) as u64));
            }
            values.clear();
            T::decode(&bytes, self.header.kind, self.header.big_endian, &mut values);
            each(first, &values)?;
            first += count;
        }
        let mut extra = [0];
        if self.reader.read(&mut extra)? != 0 {
            let end = self.header.offset + (self.header.count * size) as u64;
            return Err(Fault::corrupt(end, "bytes after the last value"));
        }
        Ok(())
    }
}

/// Values of the matrix that are transposed together: 256 KiB of `f64` stay in the L2 cache.
pub(super) const TILE: usize = 1 << 15;

/// The purpose of the memory, for error messages.
pub(super) const WHAT: &str = "the array";
