//! Draws centres one after another: the host receives the candidates' potentials, and chooses each centre.

use gmm_kernels::THREADS;
use gmm_kernels::device::WARP;
use gmm_kernels::seeding::squared_distances::CANDIDATES;
use gmm_model::CovarianceType;

use super::{Candidates, SUMMED, Seeding, together};
use crate::Error;
use crate::cuda::driver::buffers::pin;
use crate::cuda::launch::{Distances, DrawBuffers, Launcher};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::engine::DISTANCE_ROWS;
use crate::init::{RowDraw, WeighedRows};

/// Most sums that a kernel writes directly to pinned host memory: for fewer, that is faster than a copy.
const SUMS_TO_HOST: usize = 1 << 13;

/// A candidate's potential: the sum over all groups, in the order in which a block of
/// [`draw_next`](gmm_kernels::seeding::draw_next) adds, so that both methods choose the same centre.
fn as_a_block_adds(sums: &[f64]) -> f64 {
    const LANES: usize = WARP as usize;
    let mut of_threads = [0.0; THREADS as usize];
    for (i, sum) in sums.iter().enumerate() {
        of_threads[i % of_threads.len()] += sum;
    }
    let of_warp = |lanes: &[f64]| {
        let mut lanes: [f64; LANES] = lanes.try_into().expect("a warp's lanes");
        for step in [16, 8, 4, 2, 1] {
            lanes = std::array::from_fn(|lane| lanes[lane] + lanes[lane ^ step]);
        }
        lanes[0]
    };
    of_threads.chunks_exact(LANES).fold(0.0, |sum, lanes| sum + of_warp(lanes))
}

impl<T: Number> Seeding<T> {
    /// [`Seeding::weigh_draws`](crate::Seeding::weigh_draws).
    pub(crate) fn weigh_draws(&mut self, data: &mut Rows<T>, draws: &[RowDraw]) -> Result<WeighedRows, Error> {
        assert!(self.begun, "no centre was added");
        assert!(draws.iter().all(|draw| draw.group < data.n.div_ceil(DISTANCE_ROWS)), "a group that there is");
        let (count, groups, each) = (draws.len(), data.n.div_ceil(SUMMED), 2 * data.d);
        // A kernel evaluates four or eight candidates; the last draw fills the unused slots.
        let places = count.next_multiple_of(CANDIDATES / 2);
        self.weighed = Candidates::default();
        let kept = self.reserve_draws(data, places, groups)?;
        self.launch_draws(data, draws, places)?;
        let shape = data.shape(CovarianceType::Spherical, 1);
        let memory = &*self;
        let near = memory.near.first(data.n);
        let to_host = places * groups <= SUMS_TO_HOST;
        let all =
            if to_host { memory.host_sums.on_device(places * groups) } else { memory.sums.first(places * groups) };
        for first in (0..places).step_by(CANDIDATES) {
            let these = first..places.min(first + CANDIDATES);
            let points = memory.centres.first(places * each).index(these.start * each..these.end * each);
            let distances =
                kept.then(|| memory.distances.first(places * data.n).index(these.start * data.n..these.end * data.n));
            let sums = all.index(these.start * groups..these.end * groups);
            let launcher = Launcher { gpu: &data.gpu, queue: &data.queue };
            launcher.potentials(
                &shape,
                &data.whole(),
                &points,
                &near,
                distances.as_ref().map(|to| Distances { to, lower_by: None }),
                &sums,
            )?;
        }
        let len = count * groups;
        let sums = if to_host {
            data.queue.wait(&data.gpu)?;
            self.pending = false;
            self.host_sums.as_slice()[..len].to_vec()
        } else {
            self.seed_results(data, 0..len)?.to_vec()
        };
        let rows = &self.host_draws.as_slice()[2 * places..][..count];
        let rows = rows.iter().map(|&row| row as usize).collect();
        let of_each = || sums.chunks_exact(groups);
        self.weighed = Candidates { sums: of_each().map(together).collect(), places, kept };
        Ok(WeighedRows { rows, left: of_each().map(as_a_block_adds).collect() })
    }

    /// Writes draws to pinned memory, and launches the kernel that makes candidates of them.
    fn launch_draws(&mut self, data: &mut Rows<T>, draws: &[RowDraw], places: usize) -> Result<(), Error> {
        let points = 2 * places * data.d;
        let shape = data.shape(CovarianceType::Spherical, 1);
        let host = self.host_draws.as_mut_slice();
        for (i, draw) in draws.iter().enumerate() {
            (host[i], host[places + i]) = (draw.group as u64, draw.uniform.to_bits());
        }
        let memory = &*self;
        let (there, centres) = (memory.host_draws.on_device(3 * places), memory.centres.first(2 * points));
        let buffers = DrawBuffers {
            groups: there.index(..places),
            uniforms: there.index(places..2 * places),
            rows: there.index(2 * places..),
            candidates: centres.index(..points),
            points: centres.index(points..),
        };
        let launcher = Launcher { gpu: &data.gpu, queue: &data.queue };
        let (count, near) = (draws.len() as u32, memory.near.first(data.n));
        launcher.draw_rows(&shape, &data.whole(), &near, (count, places as u32), &buffers)
    }

    /// [`Seeding::add_drawn`](crate::Seeding::add_drawn): its sums are known from the evaluation, so nothing is waited
    /// for.
    pub(crate) fn add_drawn(&mut self, data: &mut Rows<T>, which: usize) -> Result<Vec<f64>, Error> {
        let memory = &*self;
        let Candidates { sums, places, kept } = &memory.weighed;
        assert!(which < sums.len(), "row {which} of {} that were evaluated since the last centre", sums.len());
        let near = memory.near.first(data.n);
        let launcher = Launcher { gpu: &data.gpu, queue: &data.queue };
        if *kept {
            let distances = memory.distances.first((which + 1) * data.n).index(which * data.n..);
            launcher.lower(data.n as u64, &distances, &near)?;
        } else {
            let each = 2 * data.d;
            let point = memory.centres.first(2 * places * each).index((places + which) * each..);
            let shape = data.shape(CovarianceType::Spherical, 1);
            let sums = memory.sums.first(data.n.div_ceil(SUMMED));
            launcher.add_centre(&shape, &data.whole(), &point, false, &near, &sums)?;
        }
        let memory = &mut *self;
        memory.pending = true;
        Ok(std::mem::take(&mut memory.weighed).sums.swap_remove(which))
    }

    /// Reserves buffers to draw `places` candidates and to evaluate them. Returns whether there is memory for their
    /// distances.
    fn reserve_draws(&mut self, data: &mut Rows<T>, places: usize, groups: usize) -> Result<bool, Error> {
        let memory = &*self;
        let is_there = memory.centres.room() >= 4 * places * data.d
            && memory.sums.room() >= places * groups
            && memory.host_sums.len() >= places * groups
            && memory.host_draws.len() >= 3 * places
            && (memory.distances.room() >= places * data.n || memory.distances.room() == 0);
        if memory.pending && !is_there {
            // Replaced buffers return to the pool, which may give them to others, so no kernel may still use them.
            data.queue.wait(&data.gpu)?;
            self.pending = false;
        }
        self.reserve_seeding(data, places * groups, 2 * places)?;
        pin(&data.gpu, &mut self.host_draws, 3 * places)?;
        self.reserve_distances(data, places)
    }
}
