//! A point in a stream, for which another stream or the host waits.

use cust::stream::Stream;
use cust::sys::{CUevent, cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuEventSynchronize, cuStreamWaitEvent};

use super::device::Gpu;
use crate::Error;

/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: u32 = 2;

/// An event without a time. cust's events have no way to make a stream wait for them more than once.
pub(crate) struct Mark(CUevent);

// SAFETY: the driver's functions may be called for an event from any thread with the context current.
unsafe impl Send for Mark {}

impl Mark {
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the call writes a handle to `event`.
        let code = unsafe { cuEventCreate(&raw mut event, WITHOUT_TIME) };
        gpu.check_code(|| "an event".to_owned(), code)?;
        Ok(Self(event))
    }

    /// Marks what is enqueued on `stream` so far, in place of an earlier point.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn record(&self, gpu: &Gpu, stream: &Stream) -> Result<(), Error> {
        // SAFETY: both handles are valid.
        gpu.check_code(|| "an event".to_owned(), unsafe { cuEventRecord(self.0, stream.as_inner()) })
    }

    /// Makes what is enqueued on `stream` from now on wait for the point. Does nothing if none was recorded.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn hold_back(&self, gpu: &Gpu, stream: &Stream) -> Result<(), Error> {
        // SAFETY: both handles are valid, and the driver keeps the point that the event has now.
        let code = unsafe { cuStreamWaitEvent(stream.as_inner(), self.0, 0) };
        gpu.check_code(|| "waiting for another stream".to_owned(), code)
    }

    /// Waits until the device has passed the point. Returns at once if none was recorded.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn wait(&self, gpu: &Gpu) -> Result<(), Error> {
        // SAFETY: the handle is valid.
        gpu.check_code(|| "waiting for a copy to the device".to_owned(), unsafe { cuEventSynchronize(self.0) })
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again. The driver ignores what it cannot free.
        let _ = unsafe { cuEventDestroy_v2(self.0) };
        super::table::take_failure();
    }
}
