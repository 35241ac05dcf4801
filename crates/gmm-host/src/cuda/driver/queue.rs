//! A stream: ordered work on a device.

use std::cell::Cell;
use std::sync::Arc;

use cust::error::CudaResult;
use cust::event::{Event, EventFlags};
use cust::stream::{Stream, StreamFlags};

use super::device::Gpu;
use super::pool::{Lane, Pool};
use super::table;
use crate::Error;

/// A stream, the events that time it, and the name of the last kernel launched on it, because a kernel's fault is only
/// reported by a later wait. Stream and events are taken from the device's pool and return to it.
pub(crate) struct Queue {
    pub(crate) stream: Arc<Stream>,
    /// The events that mark the start and the end of timed work.
    pub(crate) clock: Arc<(Event, Event)>,
    last: Cell<&'static str>,
    /// Whether the stream has work that has not been waited for.
    busy: Cell<bool>,
    pool: Arc<Pool>,
}

impl Queue {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let Lane { stream, clock } = match gpu.pool.take_lane() {
            Some(lane) => lane,
            None => {
                let stream = gpu.check("a stream", Stream::new(StreamFlags::DEFAULT, None))?;
                let event = || gpu.check("an event", Event::new(EventFlags::DEFAULT));
                Lane { stream: Arc::new(stream), clock: Arc::new((event()?, event()?)) }
            }
        };
        Ok(Self { stream, clock, last: Cell::new(""), busy: Cell::new(false), pool: gpu.pool.clone() })
    }

    /// Records that a kernel was launched on the stream.
    pub(crate) fn launched(&self, kernel: &'static str) {
        self.last.set(kernel);
        self.busy.set(true);
    }

    /// Records that the stream has work, such as a copy, that the caller does not wait for.
    pub(crate) fn left(&self) {
        self.busy.set(true);
    }

    /// Waits for all work on the stream.
    ///
    /// # Errors
    /// [`Error::Device`], which names the last kernel.
    pub(crate) fn wait(&self, gpu: &Gpu) -> Result<(), Error> {
        self.explain(gpu, self.stream.synchronize())?;
        self.busy.set(false);
        Ok(())
    }

    /// Waits if work may still be running, so that pinned memory may be written.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub(crate) fn rest(&self, gpu: &Gpu) -> Result<(), Error> {
        if self.busy.get() { self.wait(gpu) } else { Ok(()) }
    }

    /// [`rest`](Self::rest) before buffers are released. If the wait fails, the device may still use them, so the pool
    /// is closed. The failure is not reported: it concerns earlier work, or a lost device.
    pub(crate) fn come_to_rest(&self) {
        if self.busy.get() {
            match self.stream.synchronize() {
                Ok(()) => self.busy.set(false),
                Err(_) => self.pool.close(),
            }
            table::take_failure();
        }
    }

    /// [`come_to_rest`](Self::come_to_rest) after a failure, when the state of the stream is unknown.
    pub(crate) fn recover(&self) {
        self.busy.set(true);
        self.come_to_rest();
    }

    /// [`Gpu::check`] for a result that may report a failure of earlier work.
    pub(crate) fn explain<A>(&self, gpu: &Gpu, answer: CudaResult<A>) -> Result<A, Error> {
        match self.last.get() {
            "" => gpu.check("a copy", answer),
            kernel => gpu.check(&format!("kernel {kernel}"), answer),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.busy.get() {
            self.pool.leave_lane(Lane { stream: self.stream.clone(), clock: self.clock.clone() });
        }
    }
}
