//! The traits that every engine implements. An [`Engine`] loads rows and returns a [`Resident`], which implements
//! [`Passes`], [`Seeding`], [`Evaluate`] and [`ComponentColumns`]. A new engine can implement only [`OwnPasses`] and
//! inherit the rest from [`Inherit`].

mod columns;
mod evaluate;
mod inherit;
mod passes;
mod seeding;

pub use columns::ComponentColumns;
pub use evaluate::{Evaluate, EvaluateOptions, Evaluation, FloatsMut, Scorer};
pub use inherit::{Inherit, OwnPasses};
pub use passes::{FillResponsibilities, Passes};
pub use seeding::{DISTANCE_ROWS, Seeding};

use std::ops::Range;

use gmm_model::{Dataset, Mixture, Precision, PrecisionMixture, RowStorage, Statistics};

use crate::adapt::Ratios;
use crate::data::DeviceRows;
use crate::many::{Job, SmallFit};
use crate::products::Multiplier;
use crate::{DeviceData, Error, FitOptions, missing};

/// A CPU or GPU that can store rows and run passes over them.
pub trait Engine: Send + Sync {
    /// Short name, as stored in model files: `cpu`, `reference`, `cuda:0`.
    fn name(&self) -> String;

    /// One line for display: threads and instruction set, or device and module.
    fn description(&self) -> String;

    /// The interface for rows that are already in the memory of this engine's device; `None` if it has none. GPU
    /// engines have one.
    fn device_input(&self) -> Option<&dyn DeviceInput> {
        None
    }

    /// Whether rows of this shape, in this precision, would stay in host memory and pass through the engine's device in
    /// every pass, because they do not fit into its free memory. The results have the same bits.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn is_streamed(&self, shape: (usize, usize), precision: Precision, weighted: bool) -> Result<bool, Error> {
        let _ = (shape, precision, weighted);
        Ok(false)
    }

    /// The precision in which rows are stored if `asked` is requested.
    fn precision(&self, asked: Precision) -> Precision {
        asked
    }

    /// This engine's implementation of matrix products, for a [`ResidentMatrix`](crate::ResidentMatrix).
    ///
    /// # Errors
    /// [`Error::Device`] if this engine has none, as in this default.
    fn multiplier(&self) -> Result<Multiplier, Error> {
        let why = "has no kernels for products of matrices yet: use the CPU (--device cpu, CpuEngine)";
        Err(Error::Device(format!("{} {why}", self.name())))
    }

    /// Loads the rows with their weights, as `x − shift` rounded once to `precision`; `shift` is `(d,)`.
    ///
    /// The shift removes a common offset before anything is rounded or squared. All results are in the data's own
    /// coordinates. Rows with missing values are loaded by [`load_incomplete`](Self::load_incomplete).
    ///
    /// # Errors
    /// [`Error::Memory`], checked before anything is allocated.
    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error>;

    /// As [`load`](Self::load), for rows with missing values ([`Dataset::has_missing`]): sums and densities are then those
    /// of the observed values, with the expectations of the missing ones given these
    /// ([`gmm_model::missing`](mod@gmm_model::missing)). The moments of [`Passes::given`] and [`Seeding::nearest`] are
    /// those of the observed values only.
    ///
    /// The default loads the rows of each pattern of missing values by [`load`](Self::load), as complete rows of fewer
    /// columns. Parts of the data set have no effect.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_incomplete(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        missing::load(&|rows, shift| self.load(rows, precision, shift), data, shift, None)
    }

    /// As [`load`](Self::load), for rows known only indirectly ([`Dataset::is_indirect`]). Of rows with measurement errors sums
    /// are then the expected ones of the true rows, and densities those of the noisy rows
    /// ([`gmm_model::deconvolution`](mod@gmm_model::deconvolution)); for rows within limits see
    /// [`gmm_model::censoring`](mod@gmm_model::censoring). The moments of [`Passes::given`] and
    /// [`Seeding::nearest`] are those of the rows as they were measured. Values may be missing. Parts of the data set have no
    /// effect.
    ///
    /// # Errors
    /// [`Error::Device`] if this engine has no such passes, as in this default; [`Error::Memory`].
    fn load_measured(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        let _ = (data, precision, shift);
        let why = "has no passes over rows with measurement errors or within limits: use the CPU (--device cpu, device=\"cpu\")";
        Err(Error::Device(format!("{} {why}", self.name())))
    }

    /// Calls `work` on several threads at the same time, each with an engine for independent fits of rows of this
    /// shape, `(n, d)`, if that takes less time than one fit after another on this engine; returns whether it did. The
    /// calls return when there is no more to do.
    ///
    /// The CPU engine does so for rows so few that one fit does not fill all cores, with the same bits. Several GPUs
    /// get one thread each, with the bits of a single GPU. All others return `false`.
    fn concurrently(&self, shape: (usize, usize), work: &(dyn Fn(&dyn Engine) + Sync)) -> bool {
        let _ = (shape, work);
        false
    }

    /// Calls `each` with the statistics of a [pass](Passes::pass) under `mixture` over each of the `parts` of the rows,
    /// perhaps from several threads and in any order. With `top`, from 1 to `k`, each row has responsibilities among as many
    /// components, those of largest density. `false`, perhaps after some calls, if the engine has no way that is faster than
    /// to load and pass each part, or none with `top`; as in this default. `each` may take or change the statistics.
    ///
    /// # Errors
    /// As for [`load`](Self::load) and [`Passes::pass`]; the first error of `each`.
    fn pass_of_parts(
        &self,
        data: &Dataset,
        storage: &RowStorage,
        mixture: &Mixture,
        parts: &[Range<usize>],
        top: Option<usize>,
        each: &(dyn Fn(usize, &mut Statistics) -> Result<(), Error> + Sync),
    ) -> Result<bool, Error> {
        let _ = (data, storage, mixture, parts, top, each);
        Ok(false)
    }

    /// The mean of each trial's log-likelihood ratio over the rows of its utterance, as
    /// [`log_likelihood_ratios`](crate::adapt::log_likelihood_ratios) documents it; NaN where both densities are 0. `Ok(None)`
    /// if the engine has no way of its own, or no room; as in this default: the CPU then computes them.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn ratios(&self, data: &Dataset, storage: &RowStorage, asked: &Ratios<'_>) -> Result<Option<Vec<f64>>, Error> {
        let _ = (data, storage, asked);
        Ok(None)
    }

    /// Whether [`fit_small`](Self::fit_small) would run a fit of rows of this shape, `(n, d)`, without missing values, with
    /// these options: for callers that would otherwise prepare such fits in vain. `false` in this default; an engine
    /// without it is given the groups of [`fit_many`](crate::many::fit_many) only.
    fn takes_small(&self, shape: (usize, usize), options: &FitOptions) -> bool {
        let _ = (shape, options);
        false
    }

    /// Runs many small fits in a way of the engine's own, from the start to the last iteration, such as one block of
    /// threads each with its rows in shared memory. Returns a run for each job, or `None` for those that it leaves to
    /// [`fit()`](crate::fit()), such as fits of too many rows; `Ok(None)` if it has no such way, as in this default.
    ///
    /// [`refusal`](crate::many::refusal) excludes none of the jobs; their rows all have positive weight, and are at least
    /// two and as many as components. The bits of a run do not depend on the other jobs; it agrees with
    /// [`fit()`](crate::fit()) on this engine up to rounding.
    ///
    /// # Errors
    /// An error that is not one job's alone: all jobs then run one by one.
    fn fit_small(&self, data: &Dataset, jobs: &[Job<'_>]) -> Result<Option<Vec<Option<SmallFit>>>, Error> {
        let _ = (data, jobs);
        Ok(None)
    }

    /// [`Evaluate::evaluate_precisions`] of rows so few that loading them would take longer. `None` if they should be
    /// loaded instead. On the CPU engine both ways give the same bits.
    ///
    /// # Errors
    /// As for [`Evaluate::evaluate_precisions`].
    fn evaluate_few(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        mixture: &PrecisionMixture<'_>,
        want: &mut EvaluateOptions<'_>,
    ) -> Result<Option<Evaluation>, Error> {
        let _ = (data, precision, shift, mixture, want);
        Ok(None)
    }

    /// Prepares evaluations of `mixture` on small sets of rows, one after another, as a server makes them. `None` if the
    /// engine gains nothing by that, as in this default: each set is then loaded.
    fn scorer(&self, mixture: &Mixture, precision: Precision) -> Option<Box<dyn Scorer>> {
        let _ = (mixture, precision);
        None
    }

    /// As [`load`](Self::load), to the same bits, for rows that thousands of passes will read. The engine may spend
    /// more time and memory on loading them.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_to_keep(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load(data, precision, shift)
    }

    /// As [`load`](Self::load), to the same bits, for rows whose shift will change later ([`Passes::hold_about`]). The
    /// engine may also store the unshifted rows if memory suffices.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_to_move(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load(data, precision, shift)
    }

    /// As [`load_to_move`](Self::load_to_move), with the largest `|x − shift|` of each column, `(d,)`, NaN if a value of the
    /// column is, where the engine finds that on the way and so saves a read of the rows; else `None`, as in this default,
    /// and nothing is loaded.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_with_reach(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
    ) -> Result<Option<RowsAndReach>, Error> {
        let _ = (data, precision, shift);
        Ok(None)
    }
}

/// Rows on an engine, and the largest `|x − shift|` of each column, `(d,)`.
pub type RowsAndReach = (Box<dyn Resident>, Vec<f64>);

/// Input from an engine's device memory, for rows that another library put there.
pub trait DeviceInput {
    /// Borrows rows in this engine's device memory, for fits, evaluations and likelihoods. Waits for all work that the
    /// process has queued on the device so far.
    ///
    /// # Safety
    /// `rows` describes memory that this process may read, and nothing writes to it or frees it while the result lives, or
    /// rows of a fit that were loaded from it.
    /// Work that writes it has finished, or was queued on a stream of the device's primary context or on the stream
    /// named in `rows`.
    ///
    /// # Errors
    /// [`Error::Data`] if there are no rows or the weights are invalid (see [`Dataset::with_weights`]);
    /// [`Error::Option`] if `rows` are on another device or on none; [`Error::Device`].
    unsafe fn device_data(&self, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error>;

    /// As [`Engine::load`], to the same bits, for rows in device memory, which are not copied to the host. If a `limit`
    /// is given, as a fit does, no row may be farther than that from the shift in any column, and
    /// [`Passes::hold_about`] reads `data` again, where no row was left out.
    ///
    /// Cost: two passes over the rows on the device, one of which checks that all values are finite.
    ///
    /// # Errors
    /// [`Error::Data`] with the first row and column that is NaN or infinite; [`Error::Scale`] with the first column
    /// beyond the limit; [`Error::Memory`], checked before anything is allocated; [`Error::Device`].
    fn load_there(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error>;

    /// Calls `work` with rows in device memory, as [`Engine::load`] would store them, for evaluations: each reads the rows
    /// where they are. Takes less time and memory than [`load_there`](Self::load_there) if there is one evaluation.
    ///
    /// The rows are not checked. If a row is NaN or infinite, its log density is −∞.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`]; those of `work`.
    fn evaluate_in_place(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        work: &mut dyn FnMut(&mut dyn Evaluate) -> Result<Evaluation, Error>,
    ) -> Result<Evaluation, Error>;
}

/// Rows stored on an engine. The same rows, parameters and thread count give the same bits.
pub trait Resident: Passes + Seeding + Evaluate + ComponentColumns {}

impl<R: Passes + Seeding + Evaluate + ComponentColumns + ?Sized> Resident for R {}

/// Errors if data and mixture differ in dimension.
pub(crate) fn check_features(found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Features { found, expected }) }
}
