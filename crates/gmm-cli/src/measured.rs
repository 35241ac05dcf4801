//! Rows known only indirectly, with measurement errors or within limits: their options, and what they become.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gmm_data::Table;
use gmm_host::Device;
use gmm_model::Dataset;
use gmm_model::deconvolution::MeasurementErrors;
use ndarray::{Array2, Array3, Ix3};

use crate::args::{EngineArgs, Words};
use crate::exit::Failure;
use crate::input;
use crate::limits::LimitArgs;
use crate::missing::Missing;

/// The options of commands that take rows with measurement errors or limits.
#[derive(Args)]
pub(crate) struct MeasuredArgs {
    #[command(flatten)]
    errors: ErrorArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

/// The options of commands that take rows with measurement errors.
#[derive(Args, Clone)]
pub(crate) struct ErrorArgs {
    /// Columns with the standard deviations (not variances) of the measurement errors of each row, one for each column of the
    /// data, in the same order; 0 is exact. The fit estimates the mixture of the true rows (extreme deconvolution), on the CPU
    /// or on a GPU that --device names
    #[arg(long, value_name = "A,B,..", value_parser = Words::new, help_heading = "Measurement errors")]
    noise_columns: Vec<Words>,
    /// npy file of the covariances of the measurement errors of each row, of shape (n, d, d)
    #[arg(long, value_name = "FILE", conflicts_with = "noise_columns", help_heading = "Measurement errors")]
    noise_covariances: Option<PathBuf>,
    /// npy file of projections R of each row, of shape (n, m, d): the m columns of a row are R v of a true row v of d values,
    /// with measurement errors; without noise options they are exact. On the CPU
    #[arg(long, value_name = "FILE", help_heading = "Measurement errors")]
    projections: Option<PathBuf>,
}

impl ErrorArgs {
    /// Whether rows have measurement errors, or are views.
    pub(crate) const fn are_given(&self) -> bool {
        !self.noise_columns.is_empty() || self.noise_covariances.is_some() || self.projections.is_some()
    }

    /// These options, without limits.
    pub(crate) fn measured(&self) -> MeasuredArgs {
        MeasuredArgs { errors: self.clone(), limits: LimitArgs::default() }
    }
}

impl MeasuredArgs {
    /// The columns of deviations, or those of the upper ends of intervals, entries as those of `--columns`.
    pub(crate) fn columns(&self) -> Vec<String> {
        let deviations = self.errors.noise_columns.iter().flat_map(|words| words.0.clone());
        deviations.chain(self.limits.columns()).collect()
    }

    /// As [`LimitArgs::check_selected`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_selected(&self, selected: &[String]) -> Result<(), Failure> {
        self.limits.check_selected(selected)
    }

    /// Whether rows have intervals, of which an open end is no number in the table.
    pub(crate) fn have_intervals(&self) -> bool {
        !self.limits.columns().is_empty()
    }

    /// Whether rows have measurement errors or limits, or are views.
    pub(crate) const fn are_given(&self) -> bool {
        self.errors.are_given() || self.limits.are_given()
    }

    /// Whether rows are linear views, whose columns are not those of the model.
    pub(crate) const fn are_views(&self) -> bool {
        self.errors.projections.is_some()
    }

    /// The engine: of `auto` the CPU, since GPUs have only some of these passes, and nothing estimates their time.
    pub(crate) fn engine(&self, args: &EngineArgs) -> EngineArgs {
        let mut args = args.clone();
        if self.are_given() && args.device == Device::Auto {
            args.device = Device::Cpu;
        }
        args
    }

    /// Errors if the options are given beside something that does not take them.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub(crate) fn refuse(&self, what: &str) -> Result<(), Failure> {
        if !self.are_given() {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "{what} does not take measurement errors or limits (--noise-columns, --censored and their like)"
        )))
    }

    /// Errors if rows would have both measurement errors and limits.
    fn check_apart(&self) -> Result<(), Failure> {
        if self.errors.are_given() && self.limits.are_given() {
            return Err(Failure::Usage(gmm_model::DataError::LimitsAndErrors.to_string()));
        }
        Ok(())
    }

    /// Takes the columns of deviations or upper ends out of a table.
    ///
    /// # Errors
    /// [`Failure::BadData`] if a column does not exist, or if there are not as many deviations as others; [`Failure::Usage`] if
    /// there are limits too.
    pub(crate) fn split(&self, table: &mut Table, place: &str) -> Result<Option<Array2<f64>>, Failure> {
        let columns = self.columns();
        if columns.is_empty() {
            return Ok(None);
        }
        self.check_apart()?;
        let taken = table.take_columns(&columns).map_err(|error| Failure::BadData(format!("{place}: {error}")))?;
        let (found, d) = (taken.len(), table.n_columns());
        if self.have_intervals() && found != columns.len() {
            return Err(Failure::BadData(format!("{place}: --interval: each upper end must be one column")));
        }
        if found != d && !self.have_intervals() {
            let why =
                "--noise-columns needs one standard deviation for each column of the data; --columns chooses these";
            return Err(Failure::BadData(format!("{place}: {found} noise columns for {d} columns: {why}")));
        }
        self.limits.open_lower_ends(table);
        Ok(Some(Array2::from_shape_fn((table.n_rows(), found), |(row, column)| taken[column][row])))
    }

    /// The rows with their measurement errors or limits, and as views if they are. `names` are those of the columns;
    /// `taken` are the columns of [`split`](Self::split).
    ///
    /// # Errors
    /// Errors if a file cannot be read, has another shape, or a value is invalid.
    pub(crate) fn attach(
        &self,
        data: Dataset,
        (names, taken): (Option<&[String]>, Option<Array2<f64>>),
        place: &str,
        missing: Missing,
    ) -> anyhow::Result<Dataset> {
        if !self.errors.are_given() {
            return self.limits.attach(data, (names, taken), place, missing);
        }
        self.check_apart()?;
        let (n, m) = data.rows().dim();
        let (errors, place) = match (&self.errors.noise_covariances, taken) {
            (Some(path), _) => {
                let place = input::display(path);
                (MeasurementErrors::from_covariances(&three(path)?).with_context(|| place.clone())?, place)
            }
            (None, deviations) => {
                let deviations = deviations.unwrap_or_else(|| Array2::zeros((n, m)));
                (MeasurementErrors::from_deviations(deviations).with_context(|| place.to_owned())?, place.to_owned())
            }
        };
        let Some(path) = &self.errors.projections else {
            return data.with_measurement_errors(errors).context(place);
        };
        let measured = data.rows().to_f64();
        let weights = data.weights().map(<[f64]>::to_vec);
        let views = Dataset::of_views(measured, three(path)?, errors).with_context(|| input::display(path))?;
        Ok(match weights {
            Some(weights) => views.with_weights(weights)?,
            None => views,
        })
    }
}

/// An npy file of three dimensions.
fn three(path: &Path) -> anyhow::Result<Array3<f64>> {
    let array = gmm_data::read_npy_array(path)?;
    let shape = array.shape().to_vec();
    let of_three = array.to_f64().into_dimensionality::<Ix3>();
    of_three.map_err(|_| {
        let why = format!(
            "{} has shape {shape:?}: three dimensions are needed, (n, d, d) or (n, m, d)",
            input::display(path)
        );
        Failure::BadData(why).into()
    })
}
