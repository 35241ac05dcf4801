//! Reads the values of a regular npy file: only the bytes of the selected columns where they are contiguous, on all
//! cores.

use super::grid::Grid;
use super::header::Header;
use super::number::Number;
use super::values::{TILE, Values, WHAT};
use crate::error::Fault;
use crate::input::Input;
use crate::memory::Limit;
use crate::parallel;
use crate::store::Store;

/// Values of the matrix per task. Reading fewer takes less time than starting a thread.
const SHARE: usize = 1 << 19;

/// Bytes that a thread reads at a time, and then converts: a multiple of every type's size. With many threads, more would be a
/// noticeable part of the memory.
const BLOCK: usize = 1 << 16;

/// Reads the selected columns in row-major order, of an npy file that begins at byte `base` of the input. The header agrees with
/// the file's length.
pub(super) fn read_rows(
    input: &Input,
    base: u64,
    header: &Header,
    grid: &Grid<'_>,
    limit: Limit,
) -> Result<Values, Fault> {
    let file = NpyFile { input, base, header, limit };
    if header.is_single() { file.read(grid).map(Values::F32) } else { file.read(grid).map(Values::F64) }
}

struct NpyFile<'a> {
    input: &'a Input,
    base: u64,
    header: &'a Header,
    limit: Limit,
}

impl NpyFile<'_> {
    fn read<T: Number>(&self, grid: &Grid<'_>) -> Result<Store<T>, Fault> {
        let mut out = Store::<T>::zeros(grid.len(), self.limit, WHAT)?;
        if out.is_empty() {
            return Ok(out);
        }
        let mut grid = *grid;
        if !grid.fortran && grid.columns.is_none() {
            // One long column, so that few long rows are shared among threads too.
            (grid.n, grid.d) = (grid.n * grid.d, 1);
        }
        let share = (SHARE / grid.width()).max(1);
        let tasks: Vec<_> = out.chunks_mut(share * grid.width()).enumerate().map(|(i, out)| (i * share, out)).collect();
        let threads = parallel::threads(tasks.len());
        parallel::each(tasks, threads, |(row, out)| {
            if grid.fortran { self.columns(&grid, row, out) } else { self.rows(&grid, row, out) }
        })?;
        Ok(out)
    }

    /// Reads the rows from row `first` on to `out`, from row-major order.
    fn rows<T: Number>(&self, grid: &Grid<'_>, first: usize, out: &mut [T]) -> Result<(), Fault> {
        let (start, end) = (first * grid.d, (first + out.len() / grid.width()) * grid.d);
        let (mut values, block) = (Buffer::new(), BLOCK / self.header.kind.size());
        for at in (start..end).step_by(block) {
            grid.place(at - start, values.read(self, at, block.min(end - at))?, out);
        }
        Ok(())
    }

    /// Reads the rows from row `first` on to `out`, from Fortran order.
    fn columns<T: Number>(&self, grid: &Grid<'_>, first: usize, out: &mut [T]) -> Result<(), Fault> {
        let (mut values, tile) = (Buffer::new(), (TILE / grid.width()).max(512));
        for (i, out) in out.chunks_mut(tile * grid.width()).enumerate() {
            let (row, rows) = (first + i * tile, out.len() / grid.width());
            for slot in 0..grid.width() {
                let column = grid.columns.map_or(slot, |columns| columns[slot]);
                grid.place_column(0, slot, values.read(self, column * grid.n + row, rows)?, out);
            }
        }
        Ok(())
    }
}

/// Values decoded from a part of the file.
struct Buffer<T> {
    bytes: Vec<u8>,
    values: Vec<T>,
}

impl<T: Number> Buffer<T> {
    const fn new() -> Self {
        Self { bytes: Vec::new(), values: Vec::new() }
    }

    /// Reads `count` values from the file's value `first` on.
    fn read(&mut self, file: &NpyFile<'_>, first: usize, count: usize) -> Result<&[T], Fault> {
        let size = file.header.kind.size();
        self.bytes.resize(count * size, 0);
        let read = file.input.read_at(file.base + file.header.offset + (first * size) as u64, &mut self.bytes)?;
        if read < count * size {
            return Err(file.header.ends_after((first * size + read) as u64));
        }
        self.values.clear();
        T::decode(&self.bytes, file.header.kind, file.header.big_endian, &mut self.values);
        Ok(&self.values)
    }
}
