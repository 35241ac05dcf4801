//! Log densities of resident rows under single components, stored on a device.

use gmm_model::Mixture;

use crate::{DeviceColumn, Error};

/// Log densities by component, for samplers that change one component at a time. Only GPU engines implement this; the
/// defaults make the caller store the log densities on the host.
pub trait ComponentColumns: Send {
    /// Allocates the log densities of all rows under one component on the device: `8*n` bytes. `None` if the engine
    /// does not store them.
    ///
    /// # Errors
    /// [`Error::Memory`], checked before the allocation, also if it would leave too little for the passes;
    /// [`Error::Device`].
    fn column(&mut self) -> Result<Option<DeviceColumn>, Error> {
        Ok(None)
    }

    /// Evaluates the components of `anew`, each given as its index and a mixture of this component only, into their
    /// [`column`](Self::column)s. Then returns Σ w ln p(x) of the mixture of all `columns`, `(k,)`, with the logarithms
    /// of the weights `log_weights`, `(k,)`. The other columns keep their values. The same columns give the same bits,
    /// whichever of them are new.
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass). The contents of the columns of `anew` are then unspecified.
    ///
    /// # Panics
    /// If a column belongs to other rows, or `anew` has an index of `k` or more.
    fn mix_columns(
        &mut self,
        columns: &mut [DeviceColumn],
        log_weights: &[f64],
        anew: &[(usize, Mixture)],
    ) -> Result<f64, Error> {
        let _ = (columns, log_weights, anew);
        Err(no_columns())
    }

    /// Writes ln p(x) of each row, `(n,)`, under the mixture of [`mix_columns`](Self::mix_columns).
    ///
    /// # Errors
    /// As for [`pass`](crate::Passes::pass).
    ///
    /// # Panics
    /// If a column belongs to other rows, or `rows` has another length.
    fn mixed_rows(&mut self, columns: &[DeviceColumn], log_weights: &[f64], rows: &mut [f64]) -> Result<(), Error> {
        let _ = (columns, log_weights, rows);
        Err(no_columns())
    }
}

fn no_columns() -> Error {
    Error::Device("this engine stores no log densities by component".to_owned())
}
