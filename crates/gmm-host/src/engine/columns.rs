//! Log densities of resident rows under single components, kept on a device.

use gmm_model::Mixture;

use crate::{DeviceColumn, Error};

/// Log densities by component, for samplers that change one component at a time. Only the rows of a GPU have them.
pub trait ComponentColumns: Send {
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
    /// As for [`pass`](crate::Passes::pass); what the columns of `anew` hold then is not said.
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
    /// As for [`pass`](crate::Passes::pass).
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
