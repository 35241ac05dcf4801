//! The one trait behind which every engine stands.

use std::ops::Range;

use gmm_model::{CovarianceType, Dataset, Mixture, Precision, PrecisionMixture, Statistics};
use ndarray::{Array2, ArrayView2, ArrayView3};

use crate::em::{EmOptions, EmRun};
use crate::init::{LloydPasses, RowDraw, WeighedRows, lloyd_pass};
use crate::products::Multiplier;
use crate::{CudaEngine, DeviceColumn, DeviceData, Error};

/// Writes the responsibilities, `(m, k)` row by row, of the `m` rows that start at the given row.
pub type FillResponsibilities<'a> = dyn Fn(usize, &mut [f64]) + Sync + 'a;

/// Rows of which [`Resident::add_centre`] adds up the weighted distances.
pub const DISTANCE_ROWS: usize = 1024;

/// A machine that can hold rows and run passes over them.
pub trait Engine: Send + Sync {
    /// Short name, as stored in model files: `cpu`, `reference`, `cuda:0`.
    fn name(&self) -> String;

    /// One line for people: threads and instruction set, or device and module.
    fn description(&self) -> String;

    /// The GPU engine, where this is one: it can take in rows that lie on its device already.
    fn as_cuda(&self) -> Option<&CudaEngine> {
        None
    }

    /// The precision in which rows are held where `asked` is asked for.
    fn precision(&self, asked: Precision) -> Precision {
        asked
    }

    /// What multiplies matrices here, for a [`ResidentMatrix`](crate::ResidentMatrix).
    ///
    /// # Errors
    /// [`Error::Device`] where this engine does not: so far, a GPU's.
    fn multiplier(&self) -> Result<Multiplier, Error> {
        let why = "has no kernels for products of matrices yet: use the CPU (--device cpu, CpuEngine)";
        Err(Error::Device(format!("{} {why}", self.name())))
    }

    /// Takes the rows in, as `x − shift` rounded once to `precision`; `shift` is `(d,)`.
    ///
    /// The shift takes out a common offset before anything is rounded or squared. All results are in the data's own
    /// coordinates. Row weights come along.
    ///
    /// # Errors
    /// [`Error::Memory`] before anything is taken.
    fn load(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error>;

    /// [`Resident::evaluate_precisions`] of rows that are so few that to load them would take longer: to the same bits where
    /// the CPU is the engine. None where they are to be loaded.
    ///
    /// # Errors
    /// As for [`Resident::evaluate_precisions`].
    fn evaluate_few(
        &self,
        data: &Dataset,
        precision: Precision,
        shift: &[f64],
        mixture: &PrecisionMixture<'_>,
        want: &mut Wanted<'_>,
    ) -> Result<Option<Evaluation>, Error> {
        let _ = (data, precision, shift, mixture, want);
        Ok(None)
    }

    /// As [`load`](Self::load), to the same bits, for rows that are to be [held](Resident::hold_about) about another point
    /// later: an engine may keep them as they came, too, where it has room enough.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_to_move(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load(data, precision, shift)
    }

    /// As [`load`](Self::load), to the same bits, for rows that lie on this engine's device already, and do not come to the
    /// host. Where there is a `limit`, no row may be farther than that from the shift in any column.
    ///
    /// Cost: two passes over the rows on the device, one of which sees whether all are finite.
    ///
    /// # Errors
    /// [`Error::Data`] with the first row and column that is NaN or infinite; [`Error::Scale`] with the first column beyond
    /// the limit; [`Error::Memory`] before anything is taken; [`Error::Device`], as from every engine that has no such
    /// device.
    fn load_there(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error> {
        let _ = (data, precision, shift, limit);
        Err(Error::Device(format!("the rows lie on a GPU, and the engine is '{}'", self.name())))
    }
}

/// Rows resident on an engine.
///
/// Every pass returns [`Statistics`] about the centres it was run with. Same rows, parameters and thread count give
/// the same bits.
pub trait Resident: Send {
    /// `(n, d)`.
    fn dim(&self) -> (usize, usize);

    /// Holds the rows about another point, `(d,)`, where that is cheaper than to [load](Engine::load) them again: every
    /// result is then, to the bit, that of rows which were loaded so. False where they must be loaded, as for engines
    /// that keep no more than what they hold; nothing has changed then.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn hold_about(&mut self, shift: &[f64]) -> Result<bool, Error> {
        let _ = shift;
        Ok(false)
    }

    /// Some of the rows by their indices, as rows of their own about the same point: to the bit what
    /// [`load`](Engine::load) would give for them. Their weights, `(rows.len(),)`, are given where there are any.
    ///
    /// # Errors
    /// As for [`load`](Engine::load).
    ///
    /// # Panics
    /// Where there is no such row.
    fn sample(&mut self, rows: &[usize], weights: Option<&[f64]>) -> Result<Box<dyn Resident>, Error>;

    /// One fused E- and M-pass: responsibilities under `mixture`, and their sufficient statistics about its means.
    ///
    /// # Errors
    /// [`Error::Features`] where `d` differs; [`Error::Memory`].
    fn pass(&mut self, mixture: &Mixture) -> Result<Statistics, Error>;

    /// As [`pass`](Self::pass), for who wants one and not a loop of them, and may be quicker: the gradient of the likelihood.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn expectation(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.pass(mixture)
    }

    /// [`expectation`](Self::expectation) under each mixture, to the same bits: for engines that can do several at once.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn passes(&mut self, mixtures: &[Mixture]) -> Result<Vec<Statistics>, Error> {
        mixtures.iter().map(|mixture| self.expectation(mixture)).collect()
    }

    /// Goes on with EM from `run.mixture` by itself, as far as it can without the host: iterations, trace, mixture and
    /// whether it converged are noted in `run`, and `seen(run, from)` is called at each of the host's looks, with the
    /// iterations that were known before. What is left is the caller's to do, by [`pass`](Self::pass); this does nothing
    /// where an engine has no loop of its own, or none for this shape.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass), and what `seen` says.
    fn iterate(
        &mut self,
        run: &mut EmRun,
        options: &EmOptions,
        seen: &mut dyn FnMut(&mut EmRun, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _ = (run, options, seen);
        Ok(())
    }

    /// Statistics of the hard assignment of each row to its nearest centre, `(k, d)`, the first among equals.
    /// `log_likelihood` is 0; with [`CovarianceType::Spherical`], `second` is each cluster's inertia.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn nearest(&mut self, kind: CovarianceType, centres: ArrayView2<'_, f64>) -> Result<Statistics, Error>;

    /// Lloyd's passes from `centres`, `(k, d)`, each of which moves every centre to the mean of the rows that are nearest
    /// to it; one without rows stays. At least one pass and at most `most`, from 1: as many as an engine likes to do
    /// without its caller, and none after one that leaves a centre without rows, or whose moves have squares that sum to
    /// `rest` at most. `centres` are left as the last pass moved them.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass), and [`Error::NotFinite`].
    fn lloyd(&mut self, centres: &mut Array2<f64>, most: usize, rest: f64) -> Result<LloydPasses, Error> {
        let _ = (most, rest);
        lloyd_pass(self, centres)
    }

    /// Statistics under responsibilities that the caller gives, about `centres`, `(k, d)`.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn given(
        &mut self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        fill: &FillResponsibilities<'_>,
    ) -> Result<Statistics, Error>;

    /// Forgets the centres of [`add_centre`](Self::add_centre), and the memory that goes with them and with
    /// [`lloyd`](Self::lloyd).
    fn forget_centres(&mut self);

    /// One centre more, `(d,)`, from which rows may be near: `near_i = min(near_i, |x_i − centre|²)`, infinite before the
    /// first. Returns `Σ w near` of each [`DISTANCE_ROWS`] rows in turn, `(ceil(n/1024),)`. Keeps 8 bytes a row.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn add_centre(&mut self, centre: &[f64]) -> Result<Vec<f64>, Error>;

    /// The row of each of `draws`, from 1, which of the rows of its group has a probability in proportion to `w near`, and what
    /// adding it would leave. Row weights, `(n,)`, are those that came along with the rows. Cost: distances of all rows to as
    /// many points.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    ///
    /// # Panics
    /// Where no centre was added, there is no such group, or weights are given that the rows do not have, or none that they have.
    fn weigh_draws(&mut self, draws: &[RowDraw], weights: Option<&[f64]>) -> Result<WeighedRows, Error>;

    /// Makes a centre of the row that is at `which` of those that were weighed last: what [`add_centre`](Self::add_centre) does
    /// with it, and returns, for less.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    ///
    /// # Panics
    /// Where it was not weighed since the last centre.
    fn add_drawn(&mut self, which: usize) -> Result<Vec<f64>, Error>;

    /// What [`add_centre`](Self::add_centre) of `first`, `(d,)`, and for each of `uniforms` a
    /// [`weigh_draws`](Self::weigh_draws) and an [`add_drawn`](Self::add_drawn) of the one that leaves least would come to,
    /// without a look between: the rows that became centres. `uniforms`, `(c, 2, t)` in `[0, 1)`, say of `t` candidates for each
    /// further centre first which group of rows, then which row of it, each with a probability in proportion to `w near`.
    ///
    /// None where it is to be done one after another: the engine has no such way, or none for so many rows, too little memory
    /// for it, or rows ran out, since all lie on centres or their distances overflow. Centres before are forgotten, and there are none
    /// afterwards, in any case.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    ///
    /// # Panics
    /// An engine that has such a way: where `c` or `t` is 0 or the length between is not 2, or as for
    /// [`weigh_draws`](Self::weigh_draws).
    fn draw_centres(
        &mut self,
        _first: &[f64],
        _uniforms: ArrayView3<'_, f64>,
        _weights: Option<&[f64]>,
    ) -> Result<Option<Vec<usize>>, Error> {
        self.forget_centres();
        Ok(None)
    }

    /// `near` of some ranges of rows, one after another.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    ///
    /// # Panics
    /// Where no centre was added, or a range ends beyond the rows.
    fn near(&mut self, ranges: &[Range<usize>]) -> Result<Vec<f64>, Error>;

    /// Evaluates `mixture` on every row and writes what was asked for. A row's values do not depend on other rows.
    ///
    /// Where every density of a row underflows, its log density is −∞ and its responsibilities are the component
    /// weights.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn evaluate(&mut self, mixture: &Mixture, want: Wanted<'_>) -> Result<Evaluation, Error>;

    /// [`evaluate`](Self::evaluate) of a mixture that is given by factors of its precisions: from these, where an engine
    /// has a way to.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass), and [`Error::Model`] of factors that are not finite or singular.
    fn evaluate_precisions(&mut self, mixture: &PrecisionMixture<'_>, want: Wanted<'_>) -> Result<Evaluation, Error> {
        self.evaluate(&mixture.to_mixture()?, want)
    }

    /// Σ w ln p(x) over all rows under each mixture, `(mixtures.len(),)`: what [`evaluate`](Self::evaluate) gives, for
    /// engines that can do it for many mixtures at once or for less than an evaluation. A mixture's value does not
    /// depend on the others.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    fn log_likelihoods(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>, Error> {
        mixtures.iter().map(|m| Ok(self.evaluate(m, Wanted::default())?.log_likelihood)).collect()
    }

    /// Room for the log densities of all rows under one component, where the rows are: `8*n` bytes. None where they are as
    /// well off with whoever asks, as for all engines but those of a GPU.
    ///
    /// # Errors
    /// [`Error::Memory`] before it is taken, also where passes would have little left; [`Error::Device`].
    fn column(&mut self) -> Result<Option<DeviceColumn>, Error> {
        Ok(None)
    }

    /// Σ w ln p(x) of the mixture whose components have these [`column`](Self::column)s, `(k,)`, and these logarithms of
    /// weights, `(k,)`. Before that the components of `anew`, each of which is the only one of its mixture, are evaluated into
    /// their columns. All others hold what they were evaluated to. Same columns, same bits, whichever of them are new.
    ///
    /// # Errors
    /// As for [`pass`](Self::pass); what the columns of `anew` hold then is not said.
    ///
    /// # Panics
    /// Where columns are not of these rows, or `anew` names one that is not there.
    fn mix_columns(
        &mut self,
        columns: &mut [DeviceColumn],
        log_weights: &[f64],
        anew: &[(usize, Mixture)],
    ) -> Result<f64, Error> {
        let _ = (columns, log_weights, anew);
        Err(no_columns())
    }

    /// ln p(x) of each row, `(n,)`, under the mixture of [`mix_columns`](Self::mix_columns).
    ///
    /// # Errors
    /// As for [`pass`](Self::pass).
    ///
    /// # Panics
    /// Where columns are not of these rows, or `rows` has another length.
    fn mixed_rows(&mut self, columns: &[DeviceColumn], log_weights: &[f64], rows: &mut [f64]) -> Result<(), Error> {
        let _ = (columns, log_weights, rows);
        Err(no_columns())
    }
}

fn no_columns() -> Error {
    Error::Device("these rows have no columns on a device".to_owned())
}

/// What [`Resident::evaluate`] writes per row, besides the totals that it returns.
#[derive(Default)]
pub struct Wanted<'a> {
    /// Log densities, `(n,)`.
    pub log_densities: Option<&'a mut [f64]>,
    /// Responsibilities, `(n, k)` row by row.
    pub responsibilities: Option<&'a mut [f64]>,
    /// Component of largest responsibility, `(n,)`, the first among equals.
    pub labels: Option<&'a mut [u32]>,
}

/// Totals over all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Σ w ln p(x).
    pub log_likelihood: f64,
    /// −Σ w Σ_c r ln r, the entropy of the assignments.
    pub entropy: f64,
    /// Σ w.
    pub total_weight: f64,
}

/// Refuses data of another dimension than the mixture's.
pub(crate) fn check_features(found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Features { found, expected }) }
}
