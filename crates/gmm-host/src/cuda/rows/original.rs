//! Rows on the device as they came, so that they can be held about any point without coming again.
//!
//! A row less a shift is rounded once, and what that takes does not come back: rows held about one point cannot be turned
//! into those held about another, bit by bit. So they are kept as they came, and the device forms the difference, in f64
//! and rounded once as [`upload`] does on the host: the bits are the same.
//!
//! A few come together with all that belongs to them, in one copy that nobody waits for. More of them come in pieces, as
//! rows that are not kept do, and only where they are to be held about a second point: a fit's rows, which are scored about
//! the mixture that was found.

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
use crate::cuda::rows::source::Source;
use crate::cuda::rows::upload;

/// Bytes of rows that come together: with more of them, their way costs more than a fit's other steps, and is shorter where
/// several threads prepare one piece while another is copied.
const TOGETHER: usize = 1 << 20;

/// Rows that come in pieces are kept where so many times their bytes are free: seldom must they go again for a pass.
const SPARE: u128 = 8;

/// How rows come that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepOriginal {
    /// They are not.
    No,
    Together,
    InPieces,
}

impl KeepOriginal {
    /// Rows of so many bytes, which are to be held about a second point or not.
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

/// Rows are kept so, on a test's own thread, until what this gives is dropped.
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

/// Writes numbers to the beginning of some words.
fn write<A: Pod>(words: &mut [f64], numbers: &[A]) {
    cast_slice_mut::<f64, A>(words)[..numbers.len()].copy_from_slice(numbers);
}

impl<T: Number> Rows<T> {
    /// Brings the rows as they came and holds them about the shift; false where they are too many to be kept, `to_move` or
    /// not, or there is no room for both. Their weights come along.
    pub(crate) fn keep_source(&mut self, data: &Dataset, to_move: bool) -> Result<bool, Error> {
        let mut tried = false;
        self.run(|rows| {
            // A second time means that a launch lacked memory.
            if std::mem::replace(&mut tried, true) { Ok(false) } else { rows.keep_source_here(data, to_move) }
        })
    }

    fn keep_source_here(&mut self, data: &Dataset, to_move: bool) -> Result<bool, Error> {
        const WHAT: &str = "the data on the GPU, as they came";
        let (n, d, precision) = (self.n, self.d, data.rows().precision());
        let bytes = n * d * if precision == Precision::F32 { 4 } else { 8 };
        let kept = KeepOriginal::of(bytes, to_move);
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
        // KeepOriginal before anything is on its way, so that it outlives a failure of what follows.
        self.source = Some(Source { device, host: pinned_empty(), precision, words });
        if kept == KeepOriginal::Together {
            self.bring_together(data)?
        } else {
            self.bring_in_pieces(data)?
        }
        Ok(true)
    }

    /// Nobody waits for it.
    fn bring_together(&mut self, data: &Dataset) -> Result<(), Error> {
        let (n, d) = (self.n, self.d);
        let source = self.source.as_mut().expect("a place for the rows");
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
        // SAFETY: pinned; `hold_about_here` waits before it writes there, and `Drop` before it goes.
        let mut copied = unsafe { source.device.first(words).async_copy_from(&host[..words], stream) };
        if let Some(to) = &self.row_weights {
            // SAFETY: as above.
            copied = copied.and_then(|()| unsafe { to.first(n).async_copy_from(&host[words..][..n], stream) });
        }
        self.gpu.check("a copy to the device", copied)?;
        self.hold()
    }

    fn bring_in_pieces(&mut self, data: &Dataset) -> Result<(), Error> {
        let (n, d) = (self.n, self.d);
        let source = self.source.as_mut().expect("a place for the rows");
        pin(&self.gpu, &mut source.host, d)?;
        write(source.host.as_mut_slice(), &self.shift);
        let rows = source.device.first(source.words).index(d..);
        // SAFETY: the same bytes, of which the last word may have one number only.
        let narrow = unsafe { DeviceSlice::<f32>::from_raw_parts(rows.as_device_ptr().cast(), 2 * rows.len()) };
        let (gpu, queue) = (&self.gpu, &self.queue);
        match data.rows() {
            Matrix::F32(a) => {
                let from = a.as_slice().expect("a Matrix is row-major");
                send(gpu, queue, &mut narrow.index(..n * d), 1, |piece, chunk| upload::copy(&from[piece], chunk))?;
            }
            Matrix::F64(a) => {
                let from = a.as_slice().expect("a Matrix is row-major");
                send(gpu, queue, &mut rows.index(..), 1, |piece, chunk| upload::copy(&from[piece], chunk))?;
            }
        }
        if let (Some(to), Some(weights)) = (&self.row_weights, data.weights()) {
            upload::weights(gpu, queue, weights, &mut to.first(n))?;
        }
        self.send_shift()?;
        self.hold()
    }

    /// Puts the shift, as it is in pinned memory, on the stream.
    fn send_shift(&mut self) -> Result<(), Error> {
        let Some(source) = &mut self.source else { return Ok(()) };
        self.queue.left();
        let host = &source.host.as_slice()[..self.d];
        // SAFETY: pinned; `hold_about_here` waits before it writes there, and `Drop` before it goes.
        let copied = unsafe { source.device.first(self.d).async_copy_from(host, &self.queue.stream) };
        self.gpu.check("a copy of a shift to the device", copied)
    }

    /// [`Passes::hold_about`](crate::Passes::hold_about); what others know of the rows is about the old shift, and theirs to forget.
    pub(crate) fn hold_about_here(&mut self, shift: &[f64]) -> Result<bool, Error> {
        self.queue.rest(&self.gpu)?;
        let Some(source) = &mut self.source else { return Ok(false) };
        write(source.host.as_mut_slice(), shift);
        self.send_shift()?;
        self.hold()?;
        // As if they had just come: chunks are as large as for new rows, since they decide the order of sums.
        self.shift = shift.to_vec();
        self.scatter = None;
        (self.planned, self.most_rows) = (None, self.n as u64);
        Ok(true)
    }

    /// Whether there were rows as they came, which are gone now.
    pub(crate) fn give_up_source(&mut self) -> Result<bool, Error> {
        if self.source.is_none() {
            return Ok(false);
        }
        // What reads them may still be under way.
        self.queue.rest(&self.gpu)?;
        self.source = None;
        Ok(true)
    }

    /// As [`Gpu::room`](crate::cuda::driver::device::Gpu::room), but rows that are kept as they came go before anything is refused.
    pub(crate) fn room(&mut self, what: &'static str, wanted: u128, have: u128) -> Result<(), Error> {
        match self.gpu.room(what, wanted, have) {
            Err(Error::Memory { .. }) if self.give_up_source()? => self.gpu.room(what, wanted, have),
            answer => answer,
        }
    }

    /// Puts the difference on the stream.
    fn hold(&self) -> Result<(), Error> {
        let Some(source) = &self.source else { return Ok(()) };
        let (n, d) = (self.n as u64, self.d as u32);
        let rows = source.device.first(source.words).index(self.d..);
        let to = self.x.first(tiled_len(n, d) as usize);
        let launcher = Launcher { gpu: &self.gpu, queue: &self.queue };
        launcher.hold((n, d), source.precision, &rows, &source.device.first(self.d), &to)
    }
}
