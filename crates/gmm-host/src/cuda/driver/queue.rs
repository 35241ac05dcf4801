//! Work in order on a device.

use std::cell::Cell;
use std::sync::Arc;

use cust::error::CudaResult;
use cust::event::{Event, EventFlags};
use cust::stream::{Stream, StreamFlags};

use super::device::Gpu;
use super::pool::{Lane, Pool};
use super::table;
use crate::Error;

/// A stream, the events that time it, and the name of the last kernel put on it, since a kernel's fault shows at a later
/// wait. Stream and events come from the device's pool and go back to it.
pub(crate) struct Queue {
    pub(crate) stream: Arc<Stream>,
    /// Where work begins and ends that is timed.
    pub(crate) clock: Arc<(Event, Event)>,
    last: Cell<&'static str>,
    /// Whether something was put on the stream that was not waited for.
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

    /// Notes that a kernel was put on the stream.
    pub(crate) fn launched(&self, kernel: &'static str) {
        self.last.set(kernel);
        self.busy.set(true);
    }

    /// Notes that something is on the stream that nobody waits for before other work begins.
    pub(crate) fn left(&self) {
        self.busy.set(true);
    }

    /// Waits for everything on the stream.
    ///
    /// # Errors
    /// [`Error::Device`] that names the last kernel.
    pub(crate) fn wait(&self, gpu: &Gpu) -> Result<(), Error> {
        self.explain(gpu, self.stream.synchronize())?;
        self.busy.set(false);
        Ok(())
    }

    /// Waits where something may still run: pinned memory may then be written.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub(crate) fn rest(&self, gpu: &Gpu) -> Result<(), Error> {
        if self.busy.get() { self.wait(gpu) } else { Ok(()) }
    }

    /// [`rest`](Self::rest) before buffers go. Where it fails the device may still use them, so that the pool takes none;
    /// the failure is not reported: it tells of what was, or of a device that is lost.
    pub(crate) fn come_to_rest(&self) {
        if self.busy.get() {
            match self.stream.synchronize() {
                Ok(()) => self.busy.set(false),
                Err(_) => self.pool.close(),
            }
            table::take_failure();
        }
    }

    /// [`come_to_rest`](Self::come_to_rest) after a failure, which may have left anything.
    pub(crate) fn recover(&self) {
        self.busy.set(true);
        self.come_to_rest();
    }

    /// [`Gpu::check`] for an answer that tells of work done earlier.
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
