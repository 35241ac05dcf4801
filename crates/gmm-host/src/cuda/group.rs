//! Several GPUs as one engine: each holds a contiguous share of the rows.

use std::ops::Range;
use std::sync::Arc;

use gmm_model::{CovarianceType, Dataset, Mixture, Precision, PrecisionMixture, RowStorage, Statistics};
use ndarray::ArrayView2;

use super::deconvolution::{self, GroupPasses};
use super::driver::device::{self, Gpu};
use super::em::{self, Member};
use super::launch::plan::ForcedPlan;
use super::number::Number;
use super::products::CudaMultiplier;
use super::resident::CudaResident;
use super::rows::threads::on_threads;
use crate::adapt::Ratios;
use crate::cpu::few;
use crate::cuda::rows::reach::LoadOptions;
use crate::deconvolution::MeasuredRows;
use crate::em::{EmOptions, EmRun};
use crate::engine::{ComponentColumns, Evaluate, Passes, Seeding, check_features};
use crate::init::{RowDraw, WeighedRows};
use crate::products::{Kind, Multiplier};
use crate::{
    CpuEngine, CudaEngine, Engine, Error, EvaluateOptions, Evaluation, FillResponsibilities, Resident, missing,
};

/// Several NVIDIA GPUs of this machine, each with a contiguous share of the rows.
///
/// Sums of the shares are added in the order of the devices, so the same devices give the same bits; another number of
/// devices agrees within rounding. EM runs on the devices: in each iteration they exchange their sums through host
/// memory, which takes some 30 µs plus the time of the copies, and each makes the M-step. So several devices pay for
/// millions of rows. Other passes run on all devices at once, one host thread each.
#[derive(Clone)]
pub struct CudaGroup {
    gpus: Vec<Arc<Gpu>>,
}

impl CudaGroup {
    /// Combines engines of different devices, in this order.
    ///
    /// # Errors
    /// [`Error::Option`] if there is none, or two are the same device.
    pub fn new(engines: Vec<CudaEngine>) -> Result<Self, Error> {
        let gpus: Vec<Arc<Gpu>> = engines.into_iter().map(|engine| engine.gpu).collect();
        let twice = gpus.iter().enumerate().any(|(i, gpu)| gpus[..i].iter().any(|other| other.ordinal == gpu.ordinal));
        if gpus.is_empty() || twice {
            let value = gpus.iter().map(|gpu| gpu.ordinal.to_string()).collect::<Vec<_>>().join(",");
            return Err(Error::Option { option: "devices", value, must: "at least one, and each once".to_owned() });
        }
        Ok(Self { gpus })
    }

    /// Opens the visible devices with these ordinals, at the same time; all of them if there are none in the list.
    ///
    /// # Errors
    /// As for [`CudaEngine::new`] and [`new`](Self::new).
    pub fn open(ordinals: &[usize]) -> Result<Self, Error> {
        let ordinals = if ordinals.is_empty() {
            device::start()?;
            (0..device::count()?).collect()
        } else {
            ordinals.to_vec()
        };
        let engines = on_threads(ordinals, CudaEngine::new)?;
        Self::new(engines)
    }

    /// Limits the memory of each device: see [`CudaEngine::with_memory_limit`].
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn with_memory_limit(self, bytes: u64) -> Result<Self, Error> {
        self.gpus.iter().try_for_each(|gpu| gpu.limit_memory(bytes))?;
        Ok(self)
    }

    fn rows<T: Number>(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        options: LoadOptions<'_>,
    ) -> Result<Box<dyn Resident>, Error> {
        check_features(data.n_features(), shift.len())?;
        let forced = ForcedPlan::from_environment()?;
        let ranges = shard_ranges(data.n_rows(), self.gpus.len());
        let starts = ranges.iter().map(|rows| rows.start).collect();
        let load = |(gpu, rows): (Arc<Gpu>, Range<usize>)| {
            CudaResident::<T>::load(gpu, &data.part(rows), precision, shift, forced, options)
        };
        let shards = on_threads(self.gpus.iter().cloned().zip(ranges).collect(), load)?;
        let data = data.part(0..data.n_rows());
        Ok(Box::new(GroupRows { shards, starts, data, shift: shift.to_vec(), precision, on_host: None }))
    }

    fn load_data(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        options: LoadOptions<'_>,
    ) -> Result<Box<dyn Resident>, Error> {
        if data.is_indirect() {
            return self.load_measured(data, precision, shift);
        }
        if data.has_missing() {
            return self.load_incomplete(data, precision, shift);
        }
        match precision {
            Precision::F32 => self.rows::<f32>(data, precision, shift, options),
            Precision::F64 => self.rows::<f64>(data, precision, shift, options),
        }
    }
}

/// At most this many numbers, two H100 share an iteration with less than 1.9 times the speed of one, and the rows of
/// all devices take little memory.
const FEW_NUMBERS: usize = 1 << 27;

/// Rows of a tile: shares begin at tiles.
const TILE: usize = gmm_kernels::layout::TILE_ROWS as usize;

/// The rows of each device, of about equal numbers; fewer ranges than `devices` if there are few rows.
fn shard_ranges(n: usize, devices: usize) -> Vec<Range<usize>> {
    let each = n.div_ceil(devices).next_multiple_of(TILE);
    (0..n).step_by(each).map(|start| start..n.min(start + each)).collect()
}

impl Engine for CudaGroup {
    fn name(&self) -> String {
        let ordinals: Vec<String> = self.gpus.iter().map(|gpu| gpu.ordinal.to_string()).collect();
        format!("cuda:{}", ordinals.join(","))
    }

    fn description(&self) -> String {
        let of = |gpu: &Arc<Gpu>| CudaEngine::on(gpu.clone()).description();
        format!("{} devices: {}", self.gpus.len(), self.gpus.iter().map(of).collect::<Vec<_>>().join("; "))
    }

    fn is_streamed(&self, (n, d): (usize, usize), precision: Precision, weighted: bool) -> Result<bool, Error> {
        let each = shard_ranges(n, self.gpus.len()).first().map_or(0, Range::len);
        let of = |gpu: &Arc<Gpu>| CudaEngine::on(gpu.clone()).is_streamed((each, d), precision, weighted);
        self.gpus.iter().map(of).try_fold(false, |any, one| Ok(any | one?))
    }

    /// That of the first device.
    fn multiplier(&self) -> Result<Multiplier, Error> {
        Ok(Multiplier(Kind::Cuda(CudaMultiplier::new(self.gpus[0].clone()))))
    }

    /// On the first device.
    fn ratios(&self, data: &Dataset, storage: &RowStorage, asked: &Ratios<'_>) -> Result<Option<Vec<f64>>, Error> {
        CudaEngine::on(self.gpus[0].clone()).ratios(data, storage, asked)
    }

    /// One thread per device, for rows so few that a share of them does not fill a device.
    fn concurrently(&self, (n, d): (usize, usize), work: &(dyn Fn(&dyn Engine) + Sync)) -> bool {
        if self.gpus.len() == 1 || n.saturating_mul(d) > FEW_NUMBERS {
            return false;
        }
        let engines = self.gpus.iter().map(|gpu| CudaEngine::on(gpu.clone())).collect();
        let done = on_threads(engines, |engine: CudaEngine| {
            work(&engine);
            Ok(())
        });
        done.is_ok()
    }

    fn evaluate_few(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        mixture: &PrecisionMixture<'_>,
        want: &mut EvaluateOptions<'_>,
    ) -> Result<Option<Evaluation>, Error> {
        few::evaluate_beside_a_device(data, precision, shift, mixture, want)
    }

    /// As for one device.
    fn load_incomplete(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let engine = self.clone();
        let load = move |rows: &Dataset, shift: &[f64]| engine.load(rows, precision, shift);
        if !deconvolution::takes_missing(data.n_features()) {
            return missing::load(&load, data, shift, None);
        }
        let ranges = shard_ranges(data.n_rows(), self.gpus.len());
        match GroupPasses::new(self.gpus.iter().cloned().zip(ranges).collect(), data) {
            Ok(passes) => {
                let together = missing::Together { passes: Box::new(passes), load: Arc::new(load) };
                missing::load_together(data, shift, together)
            }
            Err(Error::Memory { .. }) => missing::load(&load, data, shift, None),
            Err(error) => Err(error),
        }
    }

    /// As for one device.
    fn load_measured(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        deconvolution::check(&self.name(), data)?;
        let plain = missing::plain(data, shift, |exact| self.load(exact, precision, shift))?;
        let ranges = shard_ranges(data.n_rows(), self.gpus.len());
        let passes = GroupPasses::new(self.gpus.iter().cloned().zip(ranges).collect(), data)?;
        Ok(Box::new(MeasuredRows::new(data.clone(), Box::new(passes), plain)))
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load_data(data, precision, shift, LoadOptions::default())
    }

    fn load_to_move(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load_data(data, precision, shift, LoadOptions { to_move: true, ..LoadOptions::default() })
    }
}

/// Rows on several devices.
struct GroupRows<T: Number> {
    shards: Vec<CudaResident<T>>,
    /// First row of each shard.
    starts: Vec<usize>,
    /// Shares the memory of the caller's rows.
    data: Dataset,
    shift: Vec<f64>,
    precision: Precision,
    /// All rows on the CPU engine, for k-means++ over all of them: its draws need distances to rows of other devices.
    on_host: Option<Box<dyn Resident>>,
}

impl<T: Number> GroupRows<T> {
    /// Runs `work` on each shard, with the shard's first row; the results in order.
    fn each<A: Send>(
        &mut self,
        work: impl Fn(&mut CudaResident<T>, usize) -> Result<A, Error> + Sync,
    ) -> Result<Vec<A>, Error> {
        on_threads(self.shards.iter_mut().zip(&self.starts).collect(), |(shard, start)| work(shard, *start))
    }

    fn sum(
        &mut self,
        work: impl Fn(&mut CudaResident<T>, usize) -> Result<Statistics, Error> + Sync,
    ) -> Result<Statistics, Error> {
        let all = self.each(work)?;
        Ok(Statistics::sum(all).map_err(|(_, error)| error)?.expect("at least one device"))
    }

    /// Adds up the shards' totals; each shard's rows are cut from the outputs.
    fn evaluate_each(
        &mut self,
        k: usize,
        mut want: EvaluateOptions<'_>,
        work: impl Fn(&mut CudaResident<T>, EvaluateOptions<'_>) -> Result<Evaluation, Error> + Sync,
    ) -> Result<Evaluation, Error> {
        let shards: Vec<_> = self.shards.iter_mut().map(|shard| (want.split(shard.dim().0, k), shard)).collect();
        let all = on_threads(shards, |(want, shard)| work(shard, want))?;
        Ok(all.into_iter().reduce(|a, b| a + b).expect("at least one device"))
    }

    fn host(&mut self) -> Result<&mut dyn Resident, Error> {
        if self.on_host.is_none() {
            self.on_host = Some(CpuEngine::without_copies(0)?.load(&self.data, self.precision, &self.shift)?);
        }
        Ok(self.on_host.as_deref_mut().expect("just made"))
    }
}

impl<T: Number> Passes for GroupRows<T> {
    fn dim(&self) -> (usize, usize) {
        self.data.rows().dim()
    }

    /// If only some devices keep the original rows, those have the new shift afterwards, and the others the old one:
    /// the results, which are about no shift, then differ by rounding.
    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        let moved = self.each(|shard, _| shard.hold_about(shift))?.into_iter().all(|moved| moved);
        (self.shift, self.on_host) = (shift.to_vec(), None);
        Ok(moved)
    }

    /// On the first device.
    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let some = self.shards[0].rows.sample_of(&self.data, rows, weights)?;
        Ok(Box::new(CudaResident::of(some)))
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.sum(|shard, _| shard.pass(mixture))
    }

    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        let mut all = self.each(|shard, _| shard.passes(mixtures))?.into_iter();
        let mut sums = all.next().expect("at least one device");
        for shard in all {
            for (sum, other) in sums.iter_mut().zip(&shard) {
                sum.add(other)?;
            }
        }
        Ok(sums)
    }

    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.sum(|shard, _| shard.expectation(mixture))
    }

    fn pass_of_fit(&mut self, mixture: &Mixture, options: &EmOptions) -> Result<Statistics, Error> {
        self.sum(|shard, _| shard.pass_of_fit(mixture, options))
    }

    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        check_features(self.dim().1, run.mixture.n_features())?;
        if run.iterations > 0 || options.max_iter == 0 {
            return Ok(());
        }
        let options = em::loop_options(run, options);
        let (kind, k) = (run.mixture.covariance_type(), run.mixture.n_components());
        let mut all: Vec<Vec<_>> = Vec::new();
        for shard in &self.shards {
            shard.rows.gpu.enter()?;
            all.push(em::running(&shard.rows, &shard.rows.shape(kind, k), options.fast));
        }
        // Only paths that all devices would take.
        let paths: Vec<_> =
            all[0].iter().filter(|path| all.iter().all(|other| other.contains(path))).copied().collect();
        let mut members: Vec<_> =
            self.shards.iter_mut().map(|CudaResident { em, rows, .. }| Member { em, rows }).collect();
        em::iterate(&mut members, &paths, run, &options, seen)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        self.sum(|shard, start| shard.given(kind, centres, &|first, out| fill(start + first, out)))
    }
}

impl<T: Number> Seeding for GroupRows<T> {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        self.sum(|shard, _| shard.nearest(kind, centres))
    }

    fn forget_centres(&mut self) {
        self.on_host = None;
        self.shards.iter_mut().for_each(Seeding::forget_centres);
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        self.host()?.add_centre(centre)
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        self.host()?.weigh_draws(draws, weights)
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        self.host()?.add_drawn(which)
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        self.host()?.near(ranges)
    }
}

impl<T: Number> Evaluate for GroupRows<T> {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        self.evaluate_each(mixture.n_components(), want, |shard, want| shard.evaluate(mixture, want))
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        self.evaluate_each(mixture.n_components(), want, |shard, want| shard.evaluate_precisions(mixture, want))
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        let all = self.each(|shard, _| shard.log_likelihoods(mixtures))?;
        Ok((0..mixtures.len()).map(|m| all.iter().map(|shard| shard[m]).sum()).collect())
    }
}

impl<T: Number> ComponentColumns for GroupRows<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_tiles_of_about_equal_numbers() {
        for (n, devices) in [(1, 2), (128, 2), (129, 2), (1000, 3), (10_000_000, 8)] {
            let ranges = shard_ranges(n, devices);
            assert!(ranges.len() <= devices && ranges[0].start == 0 && ranges[ranges.len() - 1].end == n);
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].end.is_multiple_of(TILE)));
        }
        assert_eq!(shard_ranges(1000, 3), [0..384, 384..768, 768..1000]);
    }
}
