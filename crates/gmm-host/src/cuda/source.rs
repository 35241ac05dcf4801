//! Few rows, on the device as they came, so that they can be held about any point without coming again.
//!
//! A row less a shift is rounded once, and what that takes does not come back: rows held about one point cannot be turned
//! into those held about another, bit by bit. So they are kept as they came, and the device forms the difference, in f64
//! and rounded once as [`upload`](super::upload) does on the host: the bits are the same.

use cust::memory::AsyncCopyDestination;
use cust::memory::bytemuck::{Pod, cast_slice_mut};
use gmm_kernels::layout::tiled_len;
use gmm_model::{Dataset, Matrix, Precision};

use super::buffers::{Pinned, Slot, pin, pinned_empty};
use super::em::LoopMemory;
use super::launch::Launcher;
use super::rows::CudaRows;
use super::upload::Number;
use crate::Error;

/// Bytes of rows that are kept: with more of them, their way costs more than a fit's other steps, and is shorter where
/// several threads prepare one piece while another is copied.
const MOST_BYTES: usize = 1 << 20;

/// See the module.
pub(super) struct Source {
    /// The shift, `(d,)`, then the rows, `(n, d)` row-major, two numbers to a word where they are f32.
    device: Slot<f64>,
    /// The same, pinned, and after it the row weights, `(n,)`.
    host: Pinned<f64>,
    /// Of the numbers of the rows.
    precision: Precision,
    words: usize,
}

#[cfg(test)]
thread_local! {
    /// A test of rows that are not kept sets this, on its own thread.
    pub(super) static KEEP_NONE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether rows of so many bytes are kept.
fn kept(bytes: usize) -> bool {
    #[cfg(test)]
    if KEEP_NONE.get() {
        return false;
    }
    bytes <= MOST_BYTES
}

/// Writes numbers to the beginning of some words.
fn write<A: Pod>(words: &mut [f64], numbers: &[A]) {
    cast_slice_mut::<f64, A>(words)[..numbers.len()].copy_from_slice(numbers);
}

impl<T: Number> CudaRows<T> {
    /// Brings the rows as they came and holds them about the shift; false where they are too many, or there is no room for
    /// both. Their weights come along. Nobody waits for it.
    pub(super) fn keep_source(&mut self, data: &Dataset) -> Result<bool, Error> {
        let mut tried = false;
        self.run(|rows| {
            // A second time means that a launch lacked memory.
            if std::mem::replace(&mut tried, true) { Ok(false) } else { rows.keep_source_here(data) }
        })
    }

    fn keep_source_here(&mut self, data: &Dataset) -> Result<bool, Error> {
        const WHAT: &str = "the data on the GPU, as they came";
        let (n, d, precision) = (self.n, self.d, data.rows().precision());
        let bytes = n * d * if precision == Precision::F32 { 4 } else { 8 };
        if !kept(bytes) {
            return Ok(false);
        }
        let words = d + bytes.div_ceil(8);
        let room = self.gpu.room(WHAT, 8 * words as u128, 0);
        let device = match room.and_then(|()| Slot::taken(&self.gpu, WHAT, words)) {
            Err(Error::Memory { .. }) => return Ok(false),
            other => other?,
        };
        let mut host = pinned_empty();
        pin(&self.gpu, &mut host, words + data.weights().map_or(0, <[f64]>::len))?;
        let out = host.as_mut_slice();
        write(out, &self.shift);
        match data.rows() {
            Matrix::F32(a) => write(&mut out[d..], a.as_slice().expect("a Matrix is row-major")),
            Matrix::F64(a) => write(&mut out[d..], a.as_slice().expect("a Matrix is row-major")),
        }
        write(&mut out[words..], data.weights().unwrap_or_default());
        // Kept before anything is on its way, so that it outlives a failure of what follows.
        let source = self.source.insert(Source { device, host, precision, words });
        self.queue.left();
        let (stream, host) = (&self.queue.stream, source.host.as_slice());
        // SAFETY: pinned; `hold_about_here` waits before it writes there, and `Drop` before it goes.
        let mut copied = unsafe { source.device.first(words).async_copy_from(&host[..words], stream) };
        if let Some(to) = &self.row_weights {
            // SAFETY: as above.
            copied = copied.and_then(|()| unsafe { to.first(n).async_copy_from(&host[words..][..n], stream) });
        }
        self.gpu.check("a copy to the device", copied)?;
        self.hold()?;
        Ok(true)
    }

    /// [`Resident::hold_about`](crate::Resident::hold_about).
    pub(super) fn hold_about_here(&mut self, shift: &[f64]) -> Result<bool, Error> {
        self.queue.rest(&self.gpu)?;
        let Some(source) = &mut self.source else { return Ok(false) };
        write(source.host.as_mut_slice(), shift);
        self.queue.left();
        let host = &source.host.as_slice()[..shift.len()];
        // SAFETY: as where the rows came.
        let copied = unsafe { source.device.first(shift.len()).async_copy_from(host, &self.queue.stream) };
        self.gpu.check("a copy of a shift to the device", copied)?;
        self.hold()?;
        // As if they had just come: what the loop and the initialisation know is about the old shift, and chunks are as
        // large as for new rows, since they decide the order of sums.
        self.shift = shift.to_vec();
        self.loop_memory = LoopMemory::empty();
        self.seeding.forget();
        self.lloyd.forget();
        (self.planned, self.most_rows) = (None, self.n as u64);
        Ok(true)
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
