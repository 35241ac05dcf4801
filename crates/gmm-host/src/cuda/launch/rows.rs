//! Launches that convert uploaded rows to tiles and that gather selected rows.

use cust::memory::DeviceSlice;
use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::layout::{TILE_ROWS, tiled_len, tiles};
use gmm_kernels::tile::{Pick, Tile, pick, tile_from_f32, tile_from_f64};
use gmm_model::Precision;

use super::arguments::{at_least, pointer};
use super::launcher::Launcher;
use crate::Error;
use crate::cuda::number::Number;

impl Launcher<'_> {
    /// Converts row-major rows `(n, d)`, minus `shift`, `(d,)`, to tiles. `rows` holds numbers of `precision` in 8-byte
    /// words, two `f32` or one `f64` per word.
    pub(crate) fn hold<T: Number>(
        self,
        (n, d): (u64, u32),
        precision: Precision,
        rows: &DeviceSlice<f64>,
        shift: &DeviceSlice<f64>,
        to: &DeviceSlice<T>,
    ) -> Result<(), Error> {
        let numbers = n * u64::from(d);
        let (kernel, words) = match precision {
            Precision::F32 => (tile_from_f32::<T>(), numbers.div_ceil(2)),
            Precision::F64 => (tile_from_f64::<T>(), numbers),
        };
        at_least(rows, words, "uploaded rows");
        at_least(shift, d.into(), "a shift");
        at_least(to, tiled_len(n, d), "rows");
        let a = Tile {
            from: pointer(rows).cast_const().cast(),
            n,
            columns: d,
            shift: pointer(shift),
            scale: std::ptr::null(),
            to: pointer(to),
        };
        // A block converts as many rows at a time as a warp has lanes.
        const _: () = assert!(THREADS == TILE_ROWS && TILE_ROWS.is_multiple_of(WARP));
        let grid = (tiles(n) * u64::from(TILE_ROWS / WARP)).min(1 << 16) as u32;
        // SAFETY: every length was checked against the field's formula; the kernel was chosen for numbers of this
        // precision.
        unsafe { self.launch(kernel, (grid, 1), a) }
    }

    /// Gathers the given rows, `(count,)` valid row numbers, of `from` into `to`.
    pub(crate) fn pick<T: Number>(
        self,
        d: u32,
        from: &DeviceSlice<T>,
        rows: &DeviceSlice<u64>,
        to: &DeviceSlice<T>,
    ) -> Result<(), Error> {
        let count = rows.len() as u64;
        at_least(to, tiled_len(count, d), "picked rows");
        let (from, rows, to) = (pointer(from), pointer(rows), pointer(to));
        let a = Pick { from, rows, count, columns: d, to };
        let grid = (tiles(count).min(1 << 16) as u32, d.min(64));
        // SAFETY: the length of `to` was checked against the field's formula; the caller passes row numbers that exist
        // in `from`.
        unsafe { self.launch(pick::<T>(), grid, a) }
    }
}
