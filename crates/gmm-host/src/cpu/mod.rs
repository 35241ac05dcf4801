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
mod scorer;
pub(crate) mod simd;
mod terms;
mod tiled_rows;
mod tiles;
mod top;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gmm_model::{CovarianceType, Dataset, Mixture, Noise, NoiseTerms, Precision, PrecisionMixture, Statistics};
use ndarray::ArrayView2;

use crate::censoring::LimitedPasses;
use crate::deconvolution::{CpuPasses, MeasuredRows};
use crate::engine::{ComponentColumns, Evaluate, Scorer, Seeding, check_features};
use crate::init::{RowDraw, WeighedRows, rows_of};
use crate::nearby::{Skip, choice};
use crate::noise::NoisePass;
use crate::products::{Kind, Multiplier};
use crate::{
    Engine, Error, EvaluateOptions, Evaluation, FillResponsibilities, Resident, Search, TruncatedPass, default_threads,
    memory, missing, shift, truncated,
};
use layout::Layout;
use parts::PartedRows;
use passes::{NearPass, Passes};
use scorer::CpuScorer;
use simd::{Dispatch, Machine};
use terms::{Terms, relative};
use tiled_rows::TiledRows;

pub use math::exp_in_place;
pub(crate) use mixing::Mixing;
pub(crate) use top::{TopPass, is_felt};

/// Most mixtures evaluated per read of a block: with a few dozen, loading the block into the cache costs little.
const SETS: usize = 64;

/// At most this many numbers, a pass is so short that starting it on all threads takes a noticeable part of its time.
pub(crate) const FEW_NUMBERS: usize = 1 << 20;

/// Limit on the bytes of their parameters, which is likely to fit into a core's share of the last-level cache.
const SETS_BYTES: usize = 4 << 20;

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

impl Engine for CpuEngine {
    fn name(&self) -> String {
        "cpu".to_owned()
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

/// Rows in memory, with the workspace of passes over them.
struct CpuRows<T> {
    layout: Layout<T>,
    passes: Passes<T>,
    /// Squared distances to the nearest of the centres added so far; empty if there is none.
    near: Vec<f64>,
    /// Candidate rows of the last `weigh_draws`, `(t, d)`, less the shift; empty after the next centre is added.
    drawn: Vec<T>,
    /// What passes with many components use besides.
    tiled: TiledRows<T>,
    /// The rows one after another, created for truncated EM.
    in_turn: Option<truncated::Rows<T>>,
    /// The same rows in `f64`, created when a mixture first needs them; see [`wide`](Self::wide).
    wide: Option<Box<CpuRows<f64>>>,
}

impl<T: Dispatch> CpuRows<T> {
    const fn new(layout: Layout<T>, passes: Passes<T>) -> Self {
        Self { layout, passes, near: Vec::new(), drawn: Vec::new(), tiled: TiledRows::NONE, in_turn: None, wide: None }
    }

    /// Returns the rows in `f64` if the mixture has a component so narrow and so far from the shift that rounding its
    /// mean to `T` would change the result noticeably. They are cached, since the next iteration is likely to need them
    /// too.
    fn wide(&mut self, mixture: &Mixture) -> Result<Option<&mut CpuRows<f64>>, Error> {
        check_features(self.layout.d, mixture.n_features())?;
        if T::PRECISION == Precision::F64 || !shift::is_felt(mixture, &self.layout.shift, T::PRECISION) {
            return Ok(None);
        }
        if self.wide.is_none() {
            let shape = (self.layout.n, self.layout.d);
            let layout = self.passes.make_layout(shape, || Layout::copy_of(&self.layout))?;
            self.wide = Some(Box::new(CpuRows::new(layout, self.passes.anew())));
        }
        Ok(self.wide.as_deref_mut())
    }

    /// The statistics of a pass, and the count of the noise.
    fn expectation(&mut self, mixture: &Mixture, noise: Option<NoiseTerms>) -> Result<NoisePass, Error> {
        let (kind, shift) = (mixture.covariance_type(), &self.layout.shift);
        let terms = Terms::new(mixture, shift);
        let count = match self.tiled.of_mixture(&self.layout, &self.passes, mixture) {
            Some((tiles, bounds)) => {
                let pass = NearPass { terms: &terms, bounds: &bounds, noise };
                let (count, near) = self.passes.expectation_near(&tiles, &pass)?;
                self.tiled.near_components = Some(near);
                count
            }
            None => {
                self.tiled.near_components = None;
                self.passes.expectation(&self.layout, &terms, noise)?
            }
        };
        let statistics = self.passes.statistics(&self.layout, kind, mixture.means(), &terms.means);
        Ok(NoisePass { statistics, count })
    }

    /// Whether any mixture of a batch needs the [`wide`](Self::wide) rows.
    fn any_wide(&self, mixtures: &[Mixture]) -> Result<bool, Error> {
        mixtures.iter().try_for_each(|mixture| check_features(self.layout.d, mixture.n_features()))?;
        let shift = &self.layout.shift;
        Ok(T::PRECISION == Precision::F32 && mixtures.iter().any(|m| shift::is_felt(m, shift, T::PRECISION)))
    }
}

impl<T: Dispatch> crate::Passes for CpuRows<T> {
    fn dim(&self) -> (usize, usize) {
        (self.layout.n, self.layout.d)
    }

    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        check_features(self.layout.d, shift.len())?;
        if !self.layout.move_to(shift) {
            return Ok(false);
        }
        (self.near, self.drawn, self.wide) = (Vec::new(), Vec::new(), None);
        (self.tiled, self.in_turn) = (TiledRows::NONE, None);
        Ok(true)
    }

    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error> {
        let shape = (rows.len(), self.layout.d);
        let layout = self.passes.make_layout(shape, || self.layout.sample(rows, weights))?;
        Ok(Box::new(Self::new(layout, self.passes.anew())))
    }

    fn near_components(&self) -> Option<f64> {
        self.wide.as_ref().and_then(|wide| wide.near_components()).or(self.tiled.near_components)
    }

    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.pass(mixture);
        }
        Ok(self.expectation(mixture, None)?.statistics)
    }

    fn pass_beside(&mut self, mixture: &Mixture, noise: &Noise) -> Result<Option<NoisePass>, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.pass_beside(mixture, noise);
        }
        self.expectation(mixture, Some(noise.terms())).map(Some)
    }

    fn pass_truncated(&mut self, mixture: &Mixture, search: &Search) -> Result<TruncatedPass, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.pass_truncated(mixture, search);
        }
        let layout = &self.layout;
        let rows = match &mut self.in_turn {
            Some(rows) => rows,
            None => {
                let weights = || (0..layout.n).map(|row| layout.weight(row).to_f64()).collect();
                let fill = |row: usize, to: &mut [T]| to.iter_mut().zip(layout.row(row)).for_each(|(to, x)| *to = x);
                let make = || truncated::Rows::new(layout.n, &layout.shift, layout.is_weighted().then(weights), fill);
                self.in_turn.insert(self.passes.install(make)?)
            }
        };
        let machine = self.passes.machine();
        self.passes.install(|| truncated::pass(machine, rows, mixture, search))
    }

    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        if self.any_wide(mixtures)? {
            return mixtures.iter().map(|mixture| self.pass(mixture)).collect();
        }
        let shape = |m: &Mixture| (m.covariance_type(), m.n_components());
        let mut all = Vec::with_capacity(mixtures.len());
        for alike in mixtures.chunk_by(|a, b| shape(a) == shape(b)) {
            let (kind, k) = shape(&alike[0]);
            if self.passes.shares_sets(&self.layout, kind, k, alike.len())? {
                let sets: Vec<_> = alike.iter().map(|m| (Terms::new(m, &self.layout.shift), m.means())).collect();
                all.extend(self.passes.expectations(&self.layout, &sets)?);
            } else {
                for mixture in alike {
                    all.push(self.pass(mixture)?);
                }
            }
        }
        Ok(all)
    }

    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error> {
        check_features(self.layout.d, centres.ncols())?;
        let points = relative(centres, &self.layout.shift);
        self.passes.given(&self.layout, kind, &points, fill)?;
        Ok(self.passes.statistics(&self.layout, kind, centres, &points))
    }
}

impl<T: Dispatch> Seeding for CpuRows<T> {
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error> {
        check_features(self.layout.d, centres.ncols())?;
        let points = relative(centres, &self.layout.shift);
        match self.tiled.of_centres(&self.layout, &self.passes, &points) {
            Some((tiles, bounds)) => self.passes.nearest_near(&tiles, kind, &points, &bounds)?,
            None => self.passes.nearest(&self.layout, kind, &points)?,
        }
        Ok(self.passes.statistics(&self.layout, kind, centres, &points))
    }

    fn forget_centres(&mut self) {
        (self.near, self.drawn) = (Vec::new(), Vec::new());
        self.tiled.forget_centres();
    }

    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error> {
        check_features(self.layout.d, centre.len())?;
        if self.near.is_empty() {
            memory::check("the distances to centres", 8 * self.layout.n as u128)?;
            self.near = vec![f64::INFINITY; self.layout.n];
        }
        self.drawn.clear();
        let point: Vec<T> = centre.iter().zip(&self.layout.shift).map(|(c, s)| T::of(c - s)).collect();
        Ok(self.tiled.add_centre(&self.layout, &self.passes, &point, &mut self.near))
    }

    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error> {
        assert_eq!(weights.is_some(), self.layout.is_weighted(), "row weights");
        let rows = rows_of(draws, &self.near, weights);
        self.drawn = rows.iter().flat_map(|&row| self.layout.row(row)).collect();
        let left = match &self.tiled.distances {
            Some(tiled) => tiled.potentials(&self.passes, &self.drawn),
            None => self.passes.potentials(&self.layout, &self.drawn, &self.near),
        };
        Ok(WeighedRows { rows, left })
    }

    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error> {
        let drawn = std::mem::take(&mut self.drawn);
        let point = &drawn[which * self.layout.d..][..self.layout.d];
        Ok(self.tiled.add_centre(&self.layout, &self.passes, point, &mut self.near))
    }

    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error> {
        Ok(ranges.iter().flat_map(|rows| self.near[rows.clone()].iter().copied()).collect())
    }
}

impl<T: Dispatch> Evaluate for CpuRows<T> {
    fn evaluate(&mut self, mixture: &Mixture, want: EvaluateOptions<'_>) -> Result<Evaluation, Error> {
        if let Some(wide) = self.wide(mixture)? {
            return wide.evaluate(mixture, want);
        }
        let terms = Terms::new(mixture, &self.layout.shift);
        if want.responsibilities.is_none()
            && let Some((tiles, bounds)) = self.tiled.of_mixture(&self.layout, &self.passes, mixture)
        {
            return self.passes.evaluate_near(&tiles, &terms, &bounds, want);
        }
        self.passes.evaluate(&self.layout, &terms, want)
    }

    fn evaluate_precisions(
        &mut self,
        mixture: &PrecisionMixture<'_>,
        want: EvaluateOptions<'_>,
    ) -> Result<Evaluation, Error> {
        check_features(self.layout.d, mixture.n_features())?;
        let terms = Terms::of_precisions(self.passes.machine(), mixture, &self.layout.shift)?;
        self.passes.evaluate(&self.layout, &terms, want)
    }

    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        if self.any_wide(mixtures)? {
            let alone = |m: &Mixture| match self.wide(m)? {
                Some(wide) => wide.log_likelihoods(std::slice::from_ref(m)),
                None => self.log_likelihoods(std::slice::from_ref(m)),
            };
            return Ok(mixtures.iter().map(alone).collect::<Result<Vec<_>, _>>()?.concat());
        }
        let can_skip =
            |m: &Mixture| choice(self.passes.skip, (self.layout.n, m.n_components(), self.layout.d), || true).is_ok();
        if mixtures.iter().any(can_skip) {
            let [mixture] = mixtures else {
                let one = |mixture| self.log_likelihoods(std::slice::from_ref(mixture));
                return Ok(mixtures.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat());
            };
            if let Some((tiles, bounds)) = self.tiled.of_mixture(&self.layout, &self.passes, mixture) {
                let terms = Terms::new(mixture, &self.layout.shift);
                let found = self.passes.evaluate_near(&tiles, &terms, &bounds, EvaluateOptions::default())?;
                return Ok(vec![found.log_likelihood]);
            }
        }
        let mut out = vec![0.0; mixtures.len()];
        let mut left = out.as_mut_slice();
        let shape = |m: &Mixture| (m.covariance_type(), m.n_components());
        for alike in mixtures.chunk_by(|a, b| shape(a) == shape(b)) {
            let at_once = (SETS_BYTES / (alike[0].n_parameters() * size_of::<T>())).clamp(1, SETS);
            for sets in alike.chunks(at_once) {
                let (here, rest) = left.split_at_mut(sets.len());
                let terms: Vec<Terms<T>> = sets.iter().map(|m| Terms::new(m, &self.layout.shift)).collect();
                self.passes.log_likelihoods(&self.layout, &terms, here)?;
                left = rest;
            }
        }
        Ok(out)
    }
}

impl<T: Dispatch> ComponentColumns for CpuRows<T> {}
