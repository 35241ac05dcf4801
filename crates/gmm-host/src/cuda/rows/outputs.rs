//! Where an evaluation writes what was asked for: slices on the host, or another library's arrays on the device.

use std::ops::Range;

use cust::memory::{AsyncCopyDestination, DeviceCopy, DevicePointer, DeviceSlice};
use rayon::prelude::*;

use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::receive;
use crate::cuda::rows::workspace::Extras;
use crate::{DeviceOutputs, Error, EvaluateOptions, FloatsMut};

/// The outputs of an evaluation.
pub(crate) enum Outputs<'a> {
    /// On the host.
    Host(EvaluateOptions<'a>),
    /// On the device: the arrays must be valid, and used by nothing else, until the evaluation returns.
    Device(DeviceOutputs),
}

impl Outputs<'_> {
    /// What a pass must compute for them.
    pub(crate) fn extras(&self) -> Extras {
        match self {
            Self::Host(want) => Extras {
                row_major: want.responsibilities.is_some(),
                log_densities: want.log_densities.is_some(),
                labels: want.labels.is_some(),
                is_evaluation: true,
            },
            // Responsibilities are written to their array without a buffer between.
            Self::Device(out) => Extras {
                row_major: false,
                log_densities: out.log_densities.is_some(),
                labels: out.labels.is_some(),
                is_evaluation: true,
            },
        }
    }

    /// Writes a number to each page of large results on the host, with several threads: a page is mapped when it is first
    /// written, which takes longer than the copy of what the device sends.
    pub(crate) fn touch(&mut self) {
        let Self::Host(want) = self else { return };
        want.log_densities.iter_mut().for_each(|all| touch(all));
        want.labels.iter_mut().for_each(|all| touch(all));
        match &mut want.responsibilities {
            Some(FloatsMut::F32(all)) => touch(all),
            Some(FloatsMut::F64(all)) => touch(all),
            None => {}
        }
    }

    /// Whether responsibilities are wanted.
    pub(crate) fn wants_responsibilities(&self) -> bool {
        match self {
            Self::Host(want) => want.responsibilities.is_some(),
            Self::Device(out) => out.responsibilities.is_some(),
        }
    }

    /// Writes the log densities of the given rows.
    pub(crate) fn put_log_densities(
        &mut self,
        gpu: &Gpu,
        queue: &Queue,
        rows: Range<usize>,
        from: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        match self {
            Self::Host(want) => want.log_densities.as_mut().map_or(Ok(()), |to| get(gpu, queue, from, &mut to[rows])),
            Self::Device(out) => out.log_densities.map_or(Ok(()), |to| copy(gpu, queue, from, to, rows)),
        }
    }

    /// Writes the labels of the given rows.
    pub(crate) fn put_labels(
        &mut self,
        gpu: &Gpu,
        queue: &Queue,
        rows: Range<usize>,
        from: &DeviceSlice<u32>,
    ) -> Result<(), Error> {
        match self {
            Self::Host(want) => want.labels.as_mut().map_or(Ok(()), |to| get(gpu, queue, from, &mut to[rows])),
            Self::Device(out) => out.labels.map_or(Ok(()), |to| copy(gpu, queue, from, to, rows)),
        }
    }

    /// Writes the responsibilities of the given rows, which `untile` writes to an array on the device in row-major order;
    /// `buffer` is such an array for results on the host.
    pub(crate) fn put_responsibilities(
        &mut self,
        gpu: &Gpu,
        queue: &Queue,
        values: Range<usize>,
        buffer: &Slot<f64>,
        untile: impl FnOnce(&DeviceSlice<f64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Host(want) => want.responsibilities.as_mut().map_or(Ok(()), |to| {
                let from = buffer.first(values.len());
                untile(&from)?;
                match to {
                    FloatsMut::F64(to) => get(gpu, queue, &from, &mut to[values]),
                    FloatsMut::F32(to) => receive(gpu, queue, &from, put_to(&mut to[values], |v| v as f32)),
                }
            }),
            Self::Device(out) => out.responsibilities.map_or(Ok(()), |to| untile(&at(to, values))),
        }
    }
}

/// See [`Outputs::touch`].
fn touch<A: Default + Send>(all: &mut [A]) {
    /// Bytes that one thread touches at a time: a huge page.
    const PIECE: usize = 2 << 20;
    const PAGE: usize = 4096;
    if size_of_val(all) < 4 * PIECE {
        return;
    }
    all.par_chunks_mut(PIECE / size_of::<A>()).for_each(|piece| {
        piece.iter_mut().step_by(PAGE / size_of::<A>()).for_each(|first| *first = A::default());
    });
}

fn get<A: DeviceCopy + cust::memory::bytemuck::Pod + Send + Sync>(
    gpu: &Gpu,
    queue: &Queue,
    from: &DeviceSlice<A>,
    to: &mut [A],
) -> Result<(), Error> {
    receive(gpu, queue, from, copy_to(to))
}

/// Copies the values of some rows to their place in an array on the device.
fn copy<A: DeviceCopy>(
    gpu: &Gpu,
    queue: &Queue,
    from: &DeviceSlice<A>,
    array: u64,
    rows: Range<usize>,
) -> Result<(), Error> {
    let mut to = at::<A>(array, rows);
    // SAFETY: both are on the device, and the evaluation waits for the stream before it returns.
    let copied = unsafe { to.async_copy_from(from, &queue.stream) };
    gpu.check("a copy on the device", copied)
}

/// Values of an array on the device.
fn at<A: DeviceCopy>(array: u64, values: Range<usize>) -> DeviceSlice<A> {
    let first = DevicePointer::from_raw(array + (values.start * size_of::<A>()) as u64);
    // SAFETY: the caller of `evaluate_there` guarantees an array that has these values.
    unsafe { DeviceSlice::from_raw_parts(first, values.len()) }
}

/// Copies pieces to their positions in `to`. Uses several threads for long pieces: one thread is slower than the
/// device.
pub(crate) fn copy_to<A: Copy + Send + Sync>(to: &mut [A]) -> impl FnMut(Range<usize>, &[A]) {
    put_to(to, |v| v)
}

/// As [`copy_to`], with a conversion.
fn put_to<A: Copy + Send + Sync, B: Send>(
    to: &mut [B],
    convert: impl Fn(A) -> B + Sync,
) -> impl FnMut(Range<usize>, &[A]) {
    const LONG: usize = 1 << 17;
    move |piece, from| {
        let to = &mut to[piece];
        let put = |(to, from): (&mut [B], &[A])| to.iter_mut().zip(from).for_each(|(to, from)| *to = convert(*from));
        if from.len() < 2 * LONG {
            put((to, from));
        } else {
            to.par_chunks_mut(LONG).zip(from.par_chunks(LONG)).for_each(put);
        }
    }
}
