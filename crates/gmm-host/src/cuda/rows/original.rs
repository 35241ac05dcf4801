//! Rows on the device in their original form, so that they can be shifted to any point without a new upload.
//!
//! A row minus a shift is rounded once. That rounding cannot be undone, so rows about one point cannot be converted bit
//! for bit to rows about another. The original rows are therefore kept, and the device computes the difference in f64
//! and rounds it once, as [`upload`] does on the host: the bits are the same.
//!
//! Small data are uploaded with shift and weights in one copy, without waiting for it. Larger data are uploaded in
//! pieces, like rows that are not kept, and only if they will be shifted to a second point: the rows of a fit, which
//! are scored about the fitted mixture.

use cust::memory::bytemuck::{Pod, cast_slice_mut};
use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_kernels::layout::tiled_len;
use gmm_model::{Dataset, Matrix, Precision};

use crate::Error;
use crate::cuda::driver::buffers::{Slot, pin, pinned_empty};
use crate::cuda::driver::staging::send;
use crate::cuda::launch::Launcher;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::reach::LoadOptions;
use crate::cuda::rows::source::Source;
use crate::cuda::rows::upload;

/// Most bytes of rows that are uploaded in one copy. For more, the transfer dominates a fit's other steps, and is
/// faster if several threads prepare one piece while another is copied.
pub(crate) const TOGETHER: usize = 1 << 20;

/// Large original rows are kept only if this many times their size is free, so that passes rarely have to free them
/// again.
const SPARE: u128 = 8;

/// Whether and how original rows are uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepOriginal {
    /// They are not kept.
    No,
    Together,
    InPieces,
}

impl KeepOriginal {
    /// Decides for rows of `bytes` bytes; `to_move` if they will be shifted to a second point.
    fn of(bytes: usize, to_move: bool) -> Self {
        #[cfg(test)]
        if let Some(kept) = FORCED.get() {
            return kept;
        }
        match (bytes <= TOGETHER, to_move) {
            (true, _) => Self::Together,
            (false, true) => Self::InPieces,
            (false, false) => Self::No,
        }
    }
}

#[cfg(test)]
thread_local! {
    static FORCED: std::cell::Cell<Option<KeepOriginal>> = const { std::cell::Cell::new(None) };
}

/// Forces the decision on a test's own thread until the returned guard is dropped.
#[cfg(test)]
pub(crate) fn force(kept: KeepOriginal) -> impl Drop {
    struct Free;
    impl Drop for Free {
        fn drop(&mut self) {
            FORCED.set(None);
        }
    }
    FORCED.set(Some(kept));
    Free
}

/// Writes numbers to the beginning of `words`.
fn write<A: Pod>(words: &mut [f64], numbers: &[A]) {
    cast_slice_mut::<f64, A>(words)[..numbers.len()].copy_from_slice(numbers);
}

impl<T: Number> Rows<T> {
    /// Uploads the original rows and their weights, and shifts the rows on the device. Returns false if the rows are
    /// too large to be kept, given `options`, or if there is no memory for both forms.
    pub(crate) fn keep_source(&mut self, data: &Dataset, options: LoadOptions<'_>) -> Result<bool, Error> {
        let mut tried = false;
        self.run(|rows| {
            // A second call means that a launch lacked memory.
            if std::mem::replace(&mut tried, true) { Ok(false) } else { rows.keep_source_here(data, options) }
        })
    }

    fn keep_source_here(&mut self, data: &Dataset, options: LoadOptions<'_>) -> Result<bool, Error> {
        const WHAT: &str = "the original data on the GPU";
        let (n, d, precision) = (self.n, self.d, data.rows().precision());
        let bytes = n * d * if precision == Precision::F32 { 4 } else { 8 };
        let kept = KeepOriginal::of(bytes, options.to_move);
        let words = d + bytes.div_ceil(8);
        let room = match kept {
            KeepOriginal::No => return Ok(false),
            KeepOriginal::Together => 1,
            KeepOriginal::InPieces => SPARE,
        };
        let room = self.gpu.room(WHAT, room * 8 * words as u128, 0);
        let device = match room.and_then(|()| Slot::taken(&self.gpu, WHAT, words)) {
            Err(Error::Memory { .. }) => return Ok(false),
            other => other?,
        };
        // Stored before anything is enqueued, so that the buffers outlive a failure of what follows.
        self.source = Some(Source { device, host: pinned_empty(), precision, words });
        if kept == KeepOriginal::Together {
            self.bring_together(data)?
        } else {
            self.bring_in_pieces(data, options)?
        }
        Ok(true)
    }

    /// Enqueues one copy of everything, without waiting for it.
    fn bring_together(&mut self, data: &Dataset) -> Result<(), Error> {
        let (n, d) = (self.n, self.d);
        let source = self.source.as_mut().expect("a buffer for the rows");
        let words = source.words;
        pin(&self.gpu, &mut source.host, words + data.weights().map_or(0, <[f64]>::len))?;
        let out = source.host.as_mut_slice();
        write(out, &self.shift);
        match data.rows() {
            Matrix::F32(a) => write(&mut out[d..], a.as_slice().expect("a Matrix is row-major")),
            Matrix::F64(a) => write(&mut out[d..], a.as_slice().expect("a Matrix is row-major")),
        }
        write(&mut out[words..], data.weights().unwrap_or_default());
        self.queue.left();
        let (stream, host) = (&self.queue.stream, source.host.as_slice());
        // SAFETY: the host buffer is pinned; `hold_about_here` waits before it writes to it, and `Drop` before it is
        // freed.
        let mut copied = unsafe { source.device.first(words).async_copy_from(&host[..words], stream) };
        if let Some(to) = &self.row_weights {
            // SAFETY: as for the rows.
            copied = copied.and_then(|()| unsafe { to.first(n).async_copy_from(&host[words..][..n], stream) });
        }
        self.gpu.check("a copy to the device", copied)?;
        self.hold()
    }

    fn bring_in_pieces(&mut self, data: &Dataset, options: LoadOptions<'_>) -> Result<(), Error> {
        let (n, d) = (self.n, self.d);
        let source = self.source.as_mut().expect("a buffer for the rows");
        pin(&self.gpu, &mut source.host, d)?;
        write(source.host.as_mut_slice(), &self.shift);
        let rows = source.device.first(source.words).index(d..);
        // SAFETY: the same bytes, viewed as `f32`; the last word may hold only one number.
        let narrow = unsafe { DeviceSlice::<f32>::from_raw_parts(rows.as_device_ptr().cast(), 2 * rows.len()) };
        let (gpu, queue) = (&self.gpu, &self.queue);
        match data.rows() {
            Matrix::F32(a) => {
                let from = a.as_slice().expect("a Matrix is row-major");
                send(gpu, queue, &mut narrow.index(..n * d), d, |piece, chunk| {
                    upload::copy_rows(&from[piece], chunk, options)
                })?;
            }
            Matrix::F64(a) => {
                let from = a.as_slice().expect("a Matrix is row-major");
                send(gpu, queue, &mut rows.index(..), d, |piece, chunk| {
                    upload::copy_rows(&from[piece], chunk, options)
                })?;
            }
        }
        if let (Some(to), Some(weights)) = (&self.row_weights, data.weights()) {
            upload::weights(gpu, queue, weights, &mut to.first(n))?;
        }
        self.send_shift()?;
        self.hold()
    }

    /// Enqueues a copy of the shift from pinned memory.
    fn send_shift(&mut self) -> Result<(), Error> {
        let Some(source) = &mut self.source else { return Ok(()) };
        self.queue.left();
        let host = &source.host.as_slice()[..self.d];
        // SAFETY: the host buffer is pinned; `hold_about_here` waits before it writes to it, and `Drop` before it is
        // freed.
        let copied = unsafe { source.device.first(self.d).async_copy_from(host, &self.queue.stream) };
        self.gpu.check("a copy of a shift to the device", copied)
    }

    /// [`Passes::hold_about`](crate::Passes::hold_about). Callers must discard other data that depend on the old shift.
    pub(crate) fn hold_about_here(&mut self, shift: &[f64]) -> Result<bool, Error> {
        self.queue.rest(&self.gpu)?;
        if let Some(streamed) = &mut self.streamed {
            streamed.set_shift(&self.gpu, &self.queue, shift)?;
        } else {
            if let Some(original) = self.original {
                let at = Slot::taken(&self.gpu, "a shift on the GPU", self.d)?;
                let before = std::mem::replace(&mut self.shift, shift.to_vec());
                if let Err(error) = self.tile_from(&original, &at) {
                    self.shift = before;
                    return Err(error);
                }
                return Ok(self.held_anew(shift));
            }
            let Some(source) = &mut self.source else { return Ok(false) };
            write(source.host.as_mut_slice(), shift);
            self.send_shift()?;
            self.hold()?;
        }
        Ok(self.held_anew(shift))
    }

    /// Forgets what depends on the shift before; true.
    fn held_anew(&mut self, shift: &[f64]) -> bool {
        // As for newly loaded rows: the chunk size, which determines the order of sums, is reset too.
        self.shift = shift.to_vec();
        self.scatter = None;
        (self.planned, self.most_rows) = (None, self.sections.rows() as u64);
        true
    }

    /// Frees the original rows, or the sections of streamed rows that stay on the device. Returns whether there were
    /// any.
    pub(crate) fn give_up_source(&mut self) -> Result<bool, Error> {
        let Some(streamed) = &mut self.streamed else {
            if self.source.is_none() {
                return Ok(false);
            }
            // A kernel that reads them may still be running.
            self.queue.rest(&self.gpu)?;
            self.source = None;
            return Ok(true);
        };
        self.queue.rest(&self.gpu)?;
        Ok(streamed.evict())
    }

    /// Like [`Gpu::room`](crate::cuda::driver::device::Gpu::room), but frees the original rows before it fails.
    pub(crate) fn room(&mut self, what: &'static str, wanted: u128, have: u128) -> Result<(), Error> {
        match self.gpu.room(what, wanted, have) {
            Err(Error::Memory { .. }) if self.give_up_source()? => self.gpu.room(what, wanted, have),
            answer => answer,
        }
    }

    /// Enqueues the computation of rows minus shift.
    fn hold(&self) -> Result<(), Error> {
        let Some(source) = &self.source else { return Ok(()) };
        let (n, d) = (self.n as u64, self.d as u32);
        let rows = source.device.first(source.words).index(self.d..);
        let to = self.x.first(tiled_len(n, d) as usize);
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.hold((n, d), source.precision, &rows, &source.device.first(self.d), &to)
    }
}
