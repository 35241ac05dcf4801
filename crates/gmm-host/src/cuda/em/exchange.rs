//! All-reduce: adds the sums of a pass over several devices, through pinned host memory.

use cust::memory::AsyncCopyDestination;

use super::device_loop::Member;
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::driver::buffers::{Pinned, Slot, pin, pinned_empty};
use crate::cuda::driver::mark::Mark;
use crate::cuda::number::Number;

const WHAT: &str = "the sums of several GPUs";

/// Every device copies its sums to pinned host memory, which all devices can read, waits for the others, copies all
/// sums back and adds them in the order of the devices. So all have the same sums, to the bit. The host waits for
/// nothing.
///
/// Cost: two copies and two launches, some 30 µs, and for large sums the time of the copies. Direct copies between the
/// devices would be faster only for sums of megabytes, which belong to passes of many milliseconds.
pub(super) struct Exchange {
    /// `(2, devices, sums)`: iterations alternate between two halves. A device overwrites its sums of two iterations
    /// ago, which all devices have read: it waited for their sums of the last iteration, which they copied later.
    host: Pinned<f64>,
    /// `(devices, sums)` on each device.
    gathered: Vec<Slot<f64>>,
    /// Each device's sums are in host memory.
    summed: Vec<Mark>,
    sums: usize,
    turn: usize,
}

impl Exchange {
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(super) fn new<T: Number>(members: &[Member<'_, T>], sums: usize) -> Result<Self, Error> {
        let count = members.len();
        let mut host = pinned_empty();
        members[0].rows.gpu.enter()?;
        pin(&members[0].rows.gpu, &mut host, 2 * count * sums)?;
        let (mut gathered, mut summed) = (Vec::new(), Vec::new());
        for Member { rows, .. } in members {
            rows.gpu.enter()?;
            gathered.push(Slot::taken(&rows.gpu, WHAT, count * sums)?);
            summed.push(Mark::new(&rows.gpu)?);
        }
        Ok(Self { host, gathered, summed, sums, turn: 0 })
    }

    /// Enqueues the addition of the members' sums.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(super) fn add_up<T: Number>(
        &mut self,
        members: &[Member<'_, T>],
        workspaces: &[Workspace],
    ) -> Result<(), Error> {
        let (count, sums) = (members.len(), self.sums);
        self.turn = 1 - self.turn;
        let host = &mut self.host.as_mut_slice()[self.turn * count * sums..][..count * sums];
        let of = |i: usize| workspaces[i].buffers(&members[i].em.numbers, &members[i].em.flags).sums.index(..sums);
        for (i, (Member { rows, .. }, slot)) in members.iter().zip(host.chunks_exact_mut(sums)).enumerate() {
            rows.gpu.enter()?;
            // SAFETY: the host buffer is pinned and lives as long as the loop, which waits for all streams at its end.
            let copied = unsafe { of(i).async_copy_to(slot, &rows.queue.stream) };
            rows.gpu.check("a copy of sums from the device", copied)?;
            self.summed[i].record(&rows.gpu, &rows.queue.stream)?;
        }
        for (i, Member { rows, .. }) in members.iter().enumerate() {
            rows.gpu.enter()?;
            for other in (0..count).filter(|other| *other != i) {
                self.summed[other].hold_back(&rows.gpu, &rows.queue.stream)?;
            }
            let mut gathered = self.gathered[i].first(count * sums);
            // SAFETY: as above; the stream waits for all of the sums.
            let copied = unsafe { gathered.async_copy_from(&*host, &rows.queue.stream) };
            rows.gpu.check("a copy of sums to the device", copied)?;
            rows.launcher().reduce_blocks(&gathered, count as u64, sums as u64, &of(i), false)?;
        }
        Ok(())
    }
}
