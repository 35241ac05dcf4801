//! Streams on which parts of the rows are processed at the same time.

use cust::memory::AsyncCopyDestination;
use gmm_kernels::em::state::{STATE_LEN, TROUBLE};
use gmm_model::Mixture;

use super::device_loop::{Loop, Start};
use super::path::LoopPlan;
use super::workspace::Workspace;
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;

/// Most parts that run at the same time: each has a workspace. On an H200, 1000 parts of 1000 × 39 rows with 1024 components
/// occupy eight multiprocessors each for most of their time.
pub(super) const LANES: usize = 8;

/// A stream, and the buffers of the passes on it.
pub(super) struct Lane<'a> {
    pub(super) queue: Queue,
    pub(super) em: &'a mut Loop,
}

impl<'a> Lane<'a> {
    /// A lane for each of the loops that there is memory for, at least one, with the parameters of `mixture`.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`]. Nothing on the device uses the loops then.
    pub(super) fn open<T: Number>(
        loops: impl Iterator<Item = &'a mut Loop>,
        rows: &mut Rows<T>,
        plan: &LoopPlan,
        workspace: &Workspace,
        mixture: &Mixture,
    ) -> Result<Vec<Self>, Error> {
        let mut lanes: Vec<Self> = Vec::new();
        let begun = || {
            for em in loops {
                match em.reserve(rows, plan, workspace) {
                    Err(Error::Memory { .. }) if !lanes.is_empty() => break,
                    reserved => reserved?,
                }
                let scatter = rows.scatter.clone();
                em.begin(rows, plan, workspace, &Start::of(mixture, scatter.as_deref()))?;
                lanes.push(Lane { queue: Queue::new(&rows.gpu)?, em });
            }
            rows.queue.wait(&rows.gpu)
        };
        match begun() {
            Ok(()) => Ok(lanes),
            Err(error) => {
                rows.recover();
                Err(error)
            }
        }
    }

    /// Waits for the passes, and returns whether none met a number that its operands cannot hold.
    pub(super) fn kept_precision(&self, gpu: &Gpu, workspace: &Workspace) -> Result<bool, Error> {
        let mut state = [0; STATE_LEN];
        // SAFETY: read only after the wait below.
        let copied = unsafe {
            let flags = workspace.buffers(&self.em.numbers, &self.em.flags).state;
            flags.index(..STATE_LEN).async_copy_to(&mut state[..], &self.queue.stream)
        };
        gpu.check("a copy of flags from the device", copied)?;
        self.queue.wait(gpu)?;
        Ok(state[TROUBLE as usize] == 0)
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        self.queue.come_to_rest();
    }
}
