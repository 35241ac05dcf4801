//! Rows that do not fit into device memory. They stay where they are, in host memory or in a mapped file, and pass
//! through the device in every pass, a range at a time. As many sections as fit stay on the device.
//!
//! ```text
//! host threads     piece p: original rows ─▶ pinned memory
//! copy stream                                pinned memory ─▶ device
//! compute stream                                              device ─▶ rows minus shift, tiled ─▶ the pass's kernels
//! ```
//! [`PIECES`] pieces are in flight, so that copies continue while kernels run. Results have the same bits as for rows
//! that are [resident](super::Rows::load).

use std::ops::Range;

use cust::memory::bytemuck::cast_slice_mut;
use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_kernels::layout::tiled_len;
use gmm_model::{Dataset, Matrix, Precision};

use super::sections::Sections;
use super::upload::{TILE, copy};
use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::mark::Mark;
use crate::cuda::driver::queue::Queue;
use crate::cuda::launch::Launcher;
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::number::Number;

/// Pieces in flight. While the kernels of a section run, three of them can be copied.
const PIECES: usize = 4;

/// Bytes of a piece's original rows: enough that starting a copy costs nothing.
const PIECE_BYTES: usize = 32 << 20;

const WHAT: &str = "rows that pass through the GPU";

/// A piece of the original rows in flight to the device.
struct Piece {
    /// Pinned words, of two `f32` or one `f64` each.
    host: Pinned<f64>,
    device: Slot<f64>,
    /// The copy to the device is done: `host` may be written.
    copied: Mark,
    /// The rows were taken from `device`, which may be written.
    taken: Mark,
}

/// The rows, and what is on the device of them.
pub(crate) struct Streamed<T: Number> {
    /// Shares the memory of the caller's rows.
    data: Dataset,
    sections: Sections,
    copies: Queue,
    pieces: Vec<Piece>,
    /// Number of pieces sent so far.
    sent: usize,
    /// The shift, `(d,)`, pinned and on the device.
    host_shift: Pinned<f64>,
    shift: Slot<f64>,
    /// The range that [`stage`](Self::stage) was last asked for: one section, tiled.
    window: Slot<T>,
    /// The first sections, tiled, and whether each holds its rows about the present shift.
    held: Vec<(Slot<T>, bool)>,
}

/// Whether rows of this shape pass through the device: there are several sections, and not enough memory for all of
/// them and for the passes.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn is_streamed(
    gpu: &Gpu,
    (n, d): (usize, usize),
    number_bytes: usize,
    weighted: bool,
    forced: &ForcedPlan,
) -> Result<bool, Error> {
    let sections = Sections::of((n, d), number_bytes, forced);
    if sections.count() == 1 {
        return Ok(false);
    }
    let section = sections.rows() as u128 * d as u128 * number_bytes as u128;
    let wanted = section * sections.count() as u128 + if weighted { 8 * n as u128 } else { 0 };
    Ok(gpu.free()? < wanted + super::sections::bytes_for_passes())
}

/// Rows of a piece: a multiple of 128.
fn rows_of_piece(d: usize, precision: Precision) -> usize {
    (PIECE_BYTES / (d * bytes_of(precision)) / TILE).max(1) * TILE
}

const fn bytes_of(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 4,
        Precision::F64 => 8,
    }
}

impl<T: Number> Streamed<T> {
    /// Takes memory for one section, the pieces, and as many further sections as leave `spare` bytes free.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn new(
        gpu: &Gpu,
        queue: &Queue,
        data: &Dataset,
        shift: &[f64],
        sections: Sections,
        spare: u128,
    ) -> Result<Self, Error> {
        let (d, precision) = (data.n_features(), data.rows().precision());
        let window = Slot::taken(gpu, WHAT, tiled_len(sections.rows() as u64, d as u32) as usize)?;
        let words = (rows_of_piece(d, precision).min(sections.rows().next_multiple_of(TILE)) * d * bytes_of(precision))
            .div_ceil(8);
        let mut pieces = Vec::with_capacity(PIECES);
        for _ in 0..PIECES {
            let mut host = pinned_empty();
            pin(gpu, &mut host, words)?;
            let device = Slot::taken(gpu, WHAT, words)?;
            pieces.push(Piece { host, device, copied: Mark::new(gpu)?, taken: Mark::new(gpu)? });
        }
        let room = gpu.free()?.saturating_sub(spare) / window.bytes().max(1);
        let most = (room as usize).min(sections.count() - 1);
        let mut held = Vec::with_capacity(most);
        while held.len() < most {
            match Slot::taken(gpu, WHAT, window.room()) {
                Ok(slot) => held.push((slot, false)),
                Err(Error::Memory { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        let (held_rows, n) = (held.len() * sections.rows(), data.n_rows());
        tracing::info!(n, held_rows, section = sections.rows(), "rows pass through the GPU");
        let mut host_shift = pinned_empty();
        pin(gpu, &mut host_shift, d)?;
        let shift_on_device = Slot::taken(gpu, WHAT, d)?;
        let copies = Queue::new(gpu)?;
        let mut streamed = Self {
            data: data.clone(),
            sections,
            copies,
            pieces,
            sent: 0,
            host_shift,
            shift: shift_on_device,
            window,
            held,
        };
        streamed.set_shift(gpu, queue, shift)?;
        Ok(streamed)
    }

    pub(crate) const fn data(&self) -> &Dataset {
        &self.data
    }

    /// Sets the shift, `(d,)`. The queue must be at rest.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn set_shift(&mut self, gpu: &Gpu, queue: &Queue, shift: &[f64]) -> Result<(), Error> {
        let d = shift.len();
        self.host_shift.as_mut_slice()[..d].copy_from_slice(shift);
        self.held.iter_mut().for_each(|(_, is_filled)| *is_filled = false);
        queue.left();
        // SAFETY: the host buffer is pinned, and is written again only when the queue has come to rest.
        let copied = unsafe { self.shift.first(d).async_copy_from(&self.host_shift.as_slice()[..d], &queue.stream) };
        gpu.check("a copy of a shift to the device", copied)
    }

    /// Frees the sections that stay on the device; they pass through it from now on. Returns whether there were any.
    /// The queue must be at rest.
    pub(crate) fn evict(&mut self) -> bool {
        !std::mem::take(&mut self.held).is_empty()
    }

    /// The rows of a range within one section, as far as kernels are concerned that are enqueued before the next call.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn stage(&mut self, gpu: &Gpu, queue: &Queue, rows: Range<usize>) -> Result<DeviceSlice<T>, Error> {
        let d = self.data.n_features();
        let len = |rows: &Range<usize>| tiled_len(rows.len() as u64, d as u32) as usize;
        let section = self.sections.of_row(rows.start);
        let Some((slot, is_filled)) = self.held.get(section) else {
            let to = self.window.first(len(&rows));
            self.send(gpu, queue, rows, to)?;
            return Ok(to);
        };
        let whole = self.sections.range(section);
        let to = slot.first(len(&whole));
        if !is_filled {
            self.send(gpu, queue, whole.clone(), to)?;
            self.held[section].1 = true;
        }
        Ok(to.index((rows.start - whole.start) * d..).index(..len(&rows)))
    }

    /// Enqueues everything that leaves rows minus shift in `to`, tiled. Waits only for pinned memory.
    fn send(&mut self, gpu: &Gpu, queue: &Queue, rows: Range<usize>, to: DeviceSlice<T>) -> Result<(), Error> {
        let (d, precision) = (self.data.n_features(), self.data.rows().precision());
        let each = rows_of_piece(d, precision);
        let launcher = Launcher { gpu, queue };
        for start in rows.clone().step_by(each) {
            let part = start..rows.end.min(start + each);
            let piece = &mut self.pieces[self.sent % PIECES];
            self.sent += 1;
            piece.copied.wait(gpu)?;
            let words = (part.len() * d * bytes_of(precision)).div_ceil(8);
            let host = &mut piece.host.as_mut_slice()[..words];
            let values = part.start * d..part.end * d;
            match self.data.rows() {
                Matrix::F32(a) => {
                    let from = &a.as_slice().expect("a Matrix is row-major")[values];
                    copy(from, &mut cast_slice_mut::<f64, f32>(host)[..from.len()]);
                }
                Matrix::F64(a) => copy(&a.as_slice().expect("a Matrix is row-major")[values], host),
            }
            self.copies.left();
            piece.taken.hold_back(gpu, &self.copies.stream)?;
            let mut device = piece.device.first(words);
            // SAFETY: the host buffer is pinned. It is written only after `copied`, and freed only when both streams
            // have come to rest.
            let sent = unsafe { device.async_copy_from(&*host, &self.copies.stream) };
            gpu.check("a copy to the device", sent)?;
            piece.copied.record(gpu, &self.copies.stream)?;
            piece.copied.hold_back(gpu, &queue.stream)?;
            let at = (part.start - rows.start) * d;
            let out = to.index(at..).index(..tiled_len(part.len() as u64, d as u32) as usize);
            launcher.hold((part.len() as u64, d as u32), precision, &device, &self.shift.first(d), &out)?;
            piece.taken.record(gpu, &queue.stream)?;
        }
        Ok(())
    }

    /// Waits for the copies, before buffers are released or after a failure.
    pub(crate) fn come_to_rest(&self) {
        self.copies.recover();
    }
}
