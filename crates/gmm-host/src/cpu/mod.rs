//! The CPU engine: all cores, cache blocking, and one implementation of each algorithm over the vector operations of
//! the instruction set at hand.
//!
//! Rows are stored in blocks of 256, column by column ([`layout`]). A pass gives every thread a contiguous share of the
//! blocks. For each tile of rows it computes log joint densities ([`e_step`]), turns them into responsibilities in
//! cache, and adds moments about the components' means ([`moments`]). Shares are added up in order, so the same thread
//! count gives the same bits. If the data set has several parts, each is passed over like a data set of its own, and
//! the sums are added in order ([`parts`]).

mod e_step;
pub(crate) mod few;
mod fill;
mod layout;
pub(crate) mod math;
mod mixing;
mod moments;
mod parts;
mod passes;
pub(crate) mod products;
mod rows;
mod scorer;
pub(crate) mod simd;
mod terms;
mod tiled_rows;
mod tiles;
mod top;
mod vectorised;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gmm_model::{CovarianceType, Dataset, Mixture, Precision, PrecisionMixture, RowStorage, Statistics};

use crate::adapt::Ratios;
use crate::censoring::LimitedPasses;
use crate::deconvolution::{CpuPasses, MeasuredRows};
use crate::engine::{Scorer, check_features};
use crate::nearby::Skip;
use crate::products::{Kind, Multiplier};
use crate::{Engine, Error, EvaluateOptions, Evaluation, Resident, default_threads, memory, missing};
use layout::Layout;
use parts::PartedRows;
use passes::Passes;
use rows::CpuRows;
use scorer::CpuScorer;
use simd::{Dispatch, Machine};

pub use math::exp_in_place;
pub(crate) use mixing::Mixing;
pub(crate) use top::{TopPass, is_felt};
pub use vectorised::{Loops, vectorised};

/// At most this many numbers, a pass is so short that starting it on all threads takes a noticeable part of its time.
pub(crate) const FEW_NUMBERS: usize = 1 << 20;

/// The engine that runs on all cores of this machine.
#[derive(Clone)]
pub struct CpuEngine {
    pool: Arc<rayon::ThreadPool>,
    machine: Machine,
    /// Rows whose copy needs more bytes are not copied.
    most_copied: u128,
    skip: Skip,
    /// Whether each thread runs fits of its own: see [`Engine::concurrently`].
    is_shared_out: Arc<AtomicBool>,
}

/// Clears a flag when it is dropped, also by a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl CpuEngine {
    /// Creates an engine with its own thread pool; 0 threads means [`default_threads`].
    ///
    /// # Errors
    /// [`Error::Device`] if the threads cannot be started.
    pub fn new(threads: usize) -> Result<Self, Error> {
        Self::on(threads, Machine::detect())
    }

    /// As [`new`](Self::new), with the named instruction set, one of [`instruction_sets`](Self::instruction_sets),
    /// instead of the best one: for comparisons.
    ///
    /// # Errors
    /// [`Error::Device`] if this processor does not support it.
    pub fn with_instructions(threads: usize, name: &str) -> Result<Self, Error> {
        let found = Machine::all().into_iter().find(|m| m.name() == name);
        let machine = found.ok_or_else(|| Error::Device(format!("this processor has no instruction set '{name}'")))?;
        Self::on(threads, machine)
    }

    /// Names of the instruction sets that this processor supports, the best last.
    pub fn instruction_sets() -> Vec<&'static str> {
        Machine::all().into_iter().map(Machine::name).collect()
    }

    fn on(threads: usize, machine: Machine) -> Result<Self, Error> {
        let threads = if threads == 0 { default_threads() } else { threads };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("gmm-{i}"))
            .build()
            .map_err(|e| Error::Device(format!("cannot start {threads} threads: {e}")))?;
        let most_copied = layout::MOST_COPIED;
        Ok(Self { pool: Arc::new(pool), machine, most_copied, skip: Skip::Auto, is_shared_out: Arc::default() })
    }

    /// As [`new`](Self::new), but without copies of rows whatever their size, as for rows of more than 256 MiB: each
    /// pass then takes longer, and no memory is needed beside the rows. The results have the same bits.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn without_copies(threads: usize) -> Result<Self, Error> {
        Ok(Self { most_copied: 0, ..Self::new(threads)? })
    }

    /// The same engine, whose passes leave out the components that are far from a tile of rows for any number of rows and
    /// components, or never: for comparisons. Otherwise it depends on their numbers.
    #[must_use]
    pub fn with_skipping(self, always: bool) -> Self {
        Self { skip: if always { Skip::Always } else { Skip::Never }, ..self }
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    fn rows<T: Dispatch>(&self, data: &Dataset, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        if data.parts().nth(1).is_some() {
            return Ok(Box::new(PartedRows::<T>::new(self, data, shift)?));
        }
        let make = || Layout::<T>::new(self.machine, data, shift, self.most_copied);
        let layout = layout::make(&self.pool, data.rows().dim(), make)?;
        Ok(Box::new(CpuRows::new(layout, Passes::new(self.machine, self.pool.clone(), self.skip))))
    }
}

impl CpuEngine {
    /// As [`Engine::ratios`].
    pub(crate) fn trial_ratios(
        &self,
        data: &Dataset,
        storage: &RowStorage,
        asked: &Ratios<'_>,
    ) -> Result<Vec<f64>, Error> {
        let Ratios { background, utterances, top: count, .. } = *asked;
        let pass = TopPass { engine: self, data, utterances, background, shift: storage.shift.clone(), count };
        match storage.precision {
            Precision::F32 => pass.ratios::<f32>(&asked.speakers, asked.trials),
            Precision::F64 => pass.ratios::<f64>(&asked.speakers, asked.trials),
        }
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn pass_of_parts(
        &self,
        data: &Dataset,
        storage: &RowStorage,
        mixture: &Mixture,
        parts: &[Range<usize>],
        top: Option<usize>,
        each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
    ) -> Result<bool, Error> {
        let (Some(count), CovarianceType::Diag | CovarianceType::Spherical) = (top, mixture.covariance_type()) else {
            return Ok(false);
        };
        let (engine, shift) = (self, storage.shift.clone());
        let pass = TopPass { engine, data, utterances: parts, background: mixture, shift, count };
        match storage.precision {
            Precision::F32 => pass.statistics::<f32>(each)?,
            Precision::F64 => pass.statistics::<f64>(each)?,
        }
        Ok(true)
    }

    fn ratios(&self, data: &Dataset, storage: &RowStorage, asked: &Ratios<'_>) -> Result<Option<Vec<f64>>, Error> {
        self.trial_ratios(data, storage, asked).map(Some)
    }

    fn description(&self) -> String {
        let threads = self.threads();
        format!("{threads} thread{}, {}", if threads == 1 { "" } else { "s" }, self.machine.name())
    }

    fn multiplier(&self) -> Result<Multiplier, Error> {
        Ok(Multiplier(Kind::Cpu(self.clone())))
    }

    fn concurrently(&self, (n, d): (usize, usize), work: &(dyn Fn(&dyn Engine) + Sync)) -> bool {
        // A fit within `work` must not wait for all threads, of which it holds one.
        if self.threads() == 1 || n.saturating_mul(d) > FEW_NUMBERS || self.is_shared_out.swap(true, Ordering::AcqRel) {
            return false;
        }
        let _at_end = AtEnd(&self.is_shared_out);
        // Passes of a thread of the pool run there, in the same shares; other threads help when they have no fit left.
        self.pool.broadcast(|_| work(self));
        true
    }

    fn evaluate_few(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        mixture: &PrecisionMixture<'_>,
        want: &mut EvaluateOptions<'_>,
    ) -> Result<Option<Evaluation>, Error> {
        // The totals of rows in parts are sums of the parts' totals.
        if data.n_rows() > few::MOST || data.parts().nth(1).is_some() {
            return Ok(None);
        }
        few::evaluate(self.machine, Some(&self.pool), data, precision, shift, mixture, std::mem::take(want)).map(Some)
    }

    fn scorer(&self, mixture: &Mixture, precision: Precision) -> Option<Box<dyn Scorer>> {
        let (_, precision) = crate::evaluate::place(mixture, precision);
        Some(match precision {
            Precision::F32 => Box::new(CpuScorer::<f32>::new(self, mixture)),
            Precision::F64 => Box::new(CpuScorer::<f64>::new(self, mixture)),
        })
    }

    fn load_to_keep(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        // A copy saves time in each of many passes; large rows are copied if that leaves half of the memory.
        let free = memory::available().unwrap_or(0) / 2;
        let most_copied = if self.most_copied == 0 { 0 } else { self.most_copied.max(free) };
        Self { most_copied, ..self.clone() }.load(data, precision, shift)
    }

    fn load_incomplete(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let load = |rows: &Dataset, shift: &[f64]| self.load(rows, precision, shift);
        missing::load(&load, data, shift, Some(self.pool.clone()))
    }

    fn load_measured(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        if data.limits().is_some() {
            let plain = self.load(&data.without_limits(), precision, shift)?;
            let passes = LimitedPasses::new(self.pool.clone(), data.clone());
            return Ok(Box::new(MeasuredRows::new(data.clone(), Box::new(passes), plain)));
        }
        let plain = self.load(&data.without_measurement_errors(), precision, shift)?;
        let passes = CpuPasses::new(self.machine, self.pool.clone(), data)?;
        Ok(Box::new(MeasuredRows::new(data.clone(), Box::new(passes), plain)))
    }

    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        if data.is_indirect() {
            return self.load_measured(data, precision, shift);
        }
        if data.has_missing() {
            return self.load_incomplete(data, precision, shift);
        }
        check_features(data.n_features(), shift.len())?;
        match precision {
            Precision::F32 => self.rows::<f32>(data, shift),
            Precision::F64 => self.rows::<f64>(data, shift),
        }
    }
}
