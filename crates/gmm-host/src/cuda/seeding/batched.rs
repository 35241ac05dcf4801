//! Draws all centres in one batch, if there are few enough rows that one block can choose a centre. The host waits
//! once.

use cust::memory::AsyncCopyDestination;
use gmm_kernels::seeding::draw_next::MOST_ROWS;
use gmm_kernels::seeding::squared_distances::CANDIDATES;
use gmm_model::CovarianceType;
use ndarray::{ArrayView2, ArrayView3};

use super::{SUMMED, Seeding};
use crate::Error;
use crate::cuda::driver::buffers::pin;
use crate::cuda::launch::{Distances, Launcher, NextBuffers, Weighed};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;

/// Most seconds for all centres without a host synchronisation; and an estimate of the duration on a slow device. One by one they
/// take several times as long.
const UNSEEN: f64 = 4.0;
fn unseen(more: usize, numbers: usize, places: usize) -> f64 {
    more as f64 * (2e-5 + numbers as f64 * places as f64 * 1e-11)
}

#[cfg(test)]
thread_local! {
    /// Set by tests of seeds that are drawn one after another, on their own thread.
    pub(crate) static ONE_BY_ONE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl<T: Number> Seeding<T> {
    /// [`Seeding::draw_centres`](crate::Seeding::draw_centres): for each centre one launch chooses it and draws
    /// candidates for the next, and another evaluates these. The host waits once at the end.
    pub(crate) fn draw_centres(
        &mut self,
        data: &mut Rows<T>,
        first: &[f64],
        uniforms: ArrayView3<'_, f64>,
    ) -> Result<Option<Vec<usize>>, Error> {
        let (more, two, count) = uniforms.dim();
        assert!(two == 2 && more > 0 && count > 0, "two numbers for each candidate of a place");
        let (places, groups, n) = (count.next_multiple_of(CANDIDATES / 2), data.n.div_ceil(SUMMED), data.n);
        self.forget(data);
        #[cfg(test)]
        if ONE_BY_ONE.get() {
            return Ok(None);
        }
        if n as u64 > MOST_ROWS || unseen(more, n * data.d, places) > UNSEEN {
            return Ok(None);
        }
        // Layout of the draws: rows of centres, whether rows ran out, the chosen candidate's index, and uniforms, which
        // the host sends and partly reads back. Then follow rows of candidates.
        let (sent, len) = (more + 2 + uniforms.len(), more + 2 + uniforms.len() + more * count);
        match self.reserve_ahead(data, places, sent, len) {
            Ok(true) => {}
            // Drawing centres one by one needs less memory.
            Ok(false) | Err(Error::Memory { .. }) => {
                self.forget(data);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        self.send_draws(data, sent, uniforms)?;
        self.send_centres(data, ArrayView2::from_shape((1, data.d), first).expect("d values"))?;
        let memory = &*self;
        let draws = memory.draws.first(len);
        let shape = data.shape(CovarianceType::Spherical, 1);
        let launcher = Launcher { gpu: &data.gpu, queue: &data.queue };
        let each = 2 * data.d;
        let (near, sums) = (memory.near.first(n), memory.sums.first(places * groups));
        let centres = memory.centres.first(2 * places * each);
        let distances = memory.distances.first(places * n);
        let rows = data.whole();
        launcher.add_centre(&shape, &rows, &centres.index(..each), true, &near, &sums.index(..groups))?;
        let (ran_out, best) = (draws.index(more..more + 1), draws.index(more + 1..more + 2));
        let drawn = |c: usize| draws.index(sent + c * count..sent + (c + 1) * count);
        // The candidates that were evaluated before centre `c`.
        let weighed = |c: usize| Weighed {
            count: if c == 0 { 1 } else { count as u32 },
            distances: (c > 0).then(|| (distances, drawn(c - 1))),
            sums,
            chosen: draws.index(c.saturating_sub(1)..c.max(1)),
            best,
            ran_out,
        };
        for c in 0..more {
            let next = NextBuffers {
                uniforms: draws.index(more + 2 + 2 * c * count..more + 2 + 2 * (c + 1) * count),
                rows: drawn(c),
                candidates: centres.index(..places * each),
                points: centres.index(places * each..),
            };
            launcher.draw_next(&shape, &rows, &near, &weighed(c), Some((count as u32, places as u32, &next)))?;
            for first in (0..places).step_by(CANDIDATES) {
                let these = first..places.min(first + CANDIDATES);
                let points = next.candidates.index(these.start * each..these.end * each);
                let to = distances.index(these.start * n..);
                let sums = sums.index(these.start * groups..these.end * groups);
                // The first launch of a centre lowers `near` by the chosen candidate's distances, before any distance
                // is overwritten.
                let lower_by = (c > 0 && first == 0).then_some((&best, count as u64));
                launcher.potentials(&shape, &rows, &points, &near, Some(Distances { to: &to, lower_by }), &sums)?;
            }
        }
        launcher.draw_next::<T>(&shape, &rows, &near, &weighed(more), None)?;
        self.fetch_draws(data, more)
    }

    /// Enqueues the copy of uniform numbers to the device, after zeros for what it will write.
    fn send_draws(&mut self, data: &Rows<T>, sent: usize, uniforms: ArrayView3<'_, f64>) -> Result<(), Error> {
        let (written, random) = self.host_draws.as_mut_slice()[..sent].split_at_mut(sent - uniforms.len());
        written.fill(0);
        random.iter_mut().zip(&uniforms).for_each(|(slot, u)| *slot = u.to_bits());
        self.pending = true;
        let host = &self.host_draws.as_slice()[..sent];
        // SAFETY: the host buffer is pinned, and the stream is waited for before it is written again or freed.
        let copy = unsafe { self.draws.first(sent).async_copy_from(host, &data.queue.stream) };
        data.gpu.check("a copy of uniform numbers to the device", copy)
    }

    /// Copies the rows of the `more` drawn centres to the host; `None` if the draws ran out of rows.
    fn fetch_draws(&mut self, data: &Rows<T>, more: usize) -> Result<Option<Vec<usize>>, Error> {
        let host = &mut self.host_draws.as_mut_slice()[..more + 1];
        // SAFETY: the host buffer is pinned, and is read only after the wait below.
        let copy = unsafe { self.draws.first(more + 1).async_copy_to(&mut *host, &data.queue.stream) };
        data.gpu.check("a copy of centres' rows from the device", copy)?;
        data.queue.wait(&data.gpu)?;
        self.pending = false;
        let (rows, ran_out) = self.host_draws.as_slice()[..more + 1].split_at(more);
        // A row past the last would be a fault of the device: the host then draws by itself.
        let good = ran_out == [0] && rows.iter().all(|&row| row < data.n as u64);
        Ok(good.then(|| rows.iter().map(|&row| row as usize).collect()))
    }

    /// Reserves buffers to draw all centres with `places` candidate slots: `len` numbers of draws, of which `sent` are
    /// sent. Returns false if there is not enough spare memory for distances.
    fn reserve_ahead(&mut self, data: &mut Rows<T>, places: usize, sent: usize, len: usize) -> Result<bool, Error> {
        pin(&data.gpu, &mut self.host_centres, 2 * data.d)?;
        pin(&data.gpu, &mut self.host_draws, sent)?;
        self.draws.reserve(&data.gpu, len)?;
        self.reserve_seeding(data, places * data.n.div_ceil(SUMMED), 2 * places)?;
        self.reserve_distances(data, places)
    }
}
