//! The traits behind which every engine stands: an [`Engine`] takes rows in, and what holds them does [`Passes`], [`Seeding`],
//! [`Evaluate`] and perhaps [`ComponentColumns`]: a [`Resident`]. A new engine writes the passes that it is for and takes the
//! others from [`Inherit`].

mod columns;
mod evaluate;
mod inherit;
mod passes;
mod seeding;

pub use columns::ComponentColumns;
pub use evaluate::{Evaluate, Evaluation, Wanted};
pub use inherit::{Inherit, OwnPasses};
pub use passes::{FillResponsibilities, Passes};
pub use seeding::{DISTANCE_ROWS, Seeding};

use gmm_model::{Dataset, Precision, PrecisionMixture};

use crate::data::DeviceRows;
use crate::products::Multiplier;
use crate::{DeviceData, Error};

/// A machine that can hold rows and run passes over them.
pub trait Engine: Send + Sync {
    /// Short name, as stored in model files: `cpu`, `reference`, `cuda:0`.
    fn name(&self) -> String;

    /// One line for people: threads and instruction set, or device and module.
    fn description(&self) -> String;

    /// What takes in rows that lie on this engine's device already; none where it has no such device. A GPU's has.
    fn device_input(&self) -> Option<&dyn DeviceInput> {
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

    /// [`Evaluate::evaluate_precisions`] of rows that are so few that to load them would take longer: to the same bits where
    /// the CPU is the engine. None where they are to be loaded.
    ///
    /// # Errors
    /// As for [`Evaluate::evaluate_precisions`].
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

    /// As [`load`](Self::load), to the same bits, for rows that are to be [held](Passes::hold_about) about another point
    /// later: an engine may keep them as they came, too, where it has room enough.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_to_move(&self, data: &Dataset, precision: Precision, shift: &[f64]) -> Result<Box<dyn Resident>, Error> {
        self.load(data, precision, shift)
    }
}

/// An engine whose device may hold rows already, where another library put them.
pub trait DeviceInput {
    /// Rows on this engine's device, to be read from there: to fit, to evaluate, to take the likelihood of. All work that
    /// the process has put on the device until now is waited for.
    ///
    /// # Safety
    /// `rows` are numbers that this process may read, and nobody writes to them or frees them as long as the result lives.
    /// Work that writes them is done, or was put on a stream of the device's primary context or on the one that `rows`
    /// names.
    ///
    /// # Errors
    /// [`Error::Data`] for no rows, and for weights as [`Dataset::with_weights`] refuses them; [`Error::Option`] where `rows` lie on
    /// another device, or on none; [`Error::Device`].
    unsafe fn device_data(&self, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error>;

    /// As [`Engine::load`], to the same bits, for such rows, which do not come to the host. Where there is a `limit`, no row may be
    /// farther than that from the shift in any column.
    ///
    /// Cost: two passes over the rows on the device, one of which sees whether all are finite.
    ///
    /// # Errors
    /// [`Error::Data`] with the first row and column that is NaN or infinite; [`Error::Scale`] with the first column beyond
    /// the limit; [`Error::Memory`] before anything is taken; [`Error::Device`].
    fn load_there(
        &self,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        limit: Option<f64>,
    ) -> Result<Box<dyn Resident>, Error>;
}

/// Rows resident on an engine. Same rows, parameters and thread count give the same bits.
pub trait Resident: Passes + Seeding + Evaluate + ComponentColumns {}

impl<R: Passes + Seeding + Evaluate + ComponentColumns + ?Sized> Resident for R {}

/// Refuses data of another dimension than the mixture's.
pub(crate) fn check_features(found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Features { found, expected }) }
}
