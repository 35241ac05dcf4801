//! The driver and the layer right above it: its functions ([`table`]), a device ([`device`]) with its streams
//! ([`queue`], and [`mark`] between them), memory ([`pool`], [`buffers`], and [`staging`] for transfers) and kernels
//! ([`ptx`] chooses the module, [`loading`] loads from it), and error texts ([`fault`]). Independent of rows and
//! mixtures.

pub(crate) mod buffers;
pub(crate) mod device;
pub(crate) mod device_state;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod fault;
pub(crate) mod loading;
pub(crate) mod mark;
pub(crate) mod pool;
pub(crate) mod ptx;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod staging;
pub(crate) mod table;
