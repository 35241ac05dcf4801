//! The launch that mixes columns of log densities.

use cust::memory::DeviceSlice;
use gmm_kernels::log_likelihood::mixing::{MixColumns, mix_columns};

use super::arguments::{at_least, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;

impl Launcher<'_> {
    /// Computes ln p(x) of `n` rows, written to `log_densities` if given, and the part of Σ w ln p(x) of each of
    /// `blocks` blocks.
    ///
    /// `addresses` and `log_weights` are `(k,)` on the device. `addresses` holds the device addresses of `columns`,
    /// `(n,)` each.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn mix(
        self,
        n: u64,
        columns: &[DeviceSlice<f64>],
        addresses: &DeviceSlice<f64>,
        log_weights: &DeviceSlice<f64>,
        row_weights: Option<&DeviceSlice<f64>>,
        log_densities: Option<&DeviceSlice<f64>>,
        blocks: u32,
        partials: &DeviceSlice<f64>,
    ) -> Result<(), Error> {
        let k = columns.len() as u64;
        columns.iter().for_each(|column| at_least(column, n, "a component's log densities"));
        at_least(addresses, k, "addresses");
        at_least(log_weights, k, "log weights");
        row_weights.iter().for_each(|w| at_least(w, n, "row weights"));
        log_densities.iter().for_each(|to| at_least(to, n, "log densities"));
        at_least(partials, blocks.into(), "partial likelihoods");
        let a = MixColumns {
            // Device addresses: 8-byte words.
            columns: pointer(addresses).cast_const().cast(),
            log_weights: pointer(log_weights),
            k: k as u32,
            n,
            row_weights: or_null(row_weights),
            log_densities: or_null(log_densities),
            partials: pointer(partials),
        };
        // SAFETY: every length was checked against the field's formula; the caller copied the addresses of exactly
        // these columns.
        unsafe { self.launch(mix_columns(), (blocks, 1), a) }
    }
}
