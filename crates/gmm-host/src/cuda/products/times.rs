//! Timing of a product whose operands and result stay on the device.

use std::time::Duration;

use cust::event::{Event, EventFlags};
use gmm_kernels::products::Form;
use ndarray::Array2;

use super::question::{Question, WHAT};
use super::state::State;
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::number::Number;
use crate::products::Operand;

/// Duration of a product on the device, without transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTime {
    /// From uploaded queries to results.
    pub total: Duration,
    /// The part for packing queries into operands.
    pub packing: Duration,
    /// The part for multiplying, after packing.
    pub multiplying: Duration,
}

impl<T: Number> State<T> {
    /// See [`CudaMatrix::times`](super::CudaMatrix::times).
    pub(super) fn times(
        &mut self,
        gpu: &Gpu,
        matrix: &Operand<'_, T>,
        x: &Operand<'_, T>,
        forms: bool,
        fast: bool,
        repeats: usize,
    ) -> Result<Vec<DeviceTime>, Error> {
        x.check(gpu)?;
        let (n, (m, k)) = (x.dim().0, matrix.dim());
        // Empty outputs: only the kind of query matters here, since no result is copied.
        let (mut nothing, mut none) = (Array2::from_elem((0, 0), T::ZERO), []);
        let asked = if forms { Question::Forms(&mut none) } else { Question::Product(nothing.view_mut()) };
        let mut form = self.form(gpu, &asked, (m, k), n, fast);
        if !self.hold(gpu, form, matrix)? {
            form = Form::Double;
            self.hold(gpu, form, matrix)?;
        }
        let batch = self.plan(gpu, form, (m, k), x, &asked)?;
        if batch.chunk < n {
            let (wanted, free) = (batch.needs.bytes(n as u64), gpu.free()?);
            return Err(Error::Memory { what: WHAT, wanted, free });
        }
        let raw = self.bring(gpu, x)?;
        let event = || gpu.check("an event", Event::new(EventFlags::DEFAULT));
        let events = [event()?, event()?, event()?, event()?];
        let mut times = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            self.compute(gpu, &batch, &raw, &asked, Some(&events))?;
            self.queue.wait(gpu)?;
            let between = |from: usize, to: usize| {
                let milliseconds = gpu.check("an event", events[to].elapsed_time_f32(&events[from]))?;
                Ok::<_, Error>(Duration::from_secs_f64(f64::from(milliseconds) / 1e3))
            };
            times.push(DeviceTime { total: between(0, 3)?, packing: between(0, 1)?, multiplying: between(1, 2)? });
        }
        Ok(times)
    }
}
