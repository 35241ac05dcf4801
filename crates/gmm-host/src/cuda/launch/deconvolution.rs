//! The launch of a pass over rows with measurement errors.

use cust::memory::DeviceSlice;
use gmm_kernels::deconvolution::{
    Deconvolution, FAILURE, Form, MOST_COLUMNS, MOST_MASKED, TOTALS, deconvolution_factors, factors_len,
};
use gmm_kernels::device::WARP;
use gmm_kernels::layout::{packed_len, tiled_len};

use super::arguments::{at_least, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;

/// Rows with measurement errors on the device.
#[derive(Clone, Copy)]
pub(crate) struct NoisyChunk {
    pub(crate) n: u64,
    pub(crate) d: u32,
    /// `(n, d)` tiled.
    pub(crate) x: DeviceSlice<f64>,
    /// `(n, d)` or `(n, d*(d+1)/2)` tiled; none if the rows are exact, and a NaN is a missing value.
    pub(crate) errors: Option<DeviceSlice<f64>>,
    pub(crate) is_correlated: bool,
    /// `(n,)`, of exact rows.
    pub(crate) patterns: Option<DeviceSlice<u32>>,
    /// With `patterns`: from where to where the rows of each warp reach; see [`Deconvolution::groups`].
    pub(crate) groups: Option<DeviceSlice<u64>>,
    /// `(n,)`.
    pub(crate) row_weights: Option<DeviceSlice<f64>>,
}

impl NoisyChunk {
    /// Number of groups of rows, of which a warp takes one at a time.
    pub(crate) fn groups(&self, form: Form) -> u64 {
        match &self.groups {
            Some(groups) if form == Form::Patterns => groups.len() as u64 - 1,
            _ => self.n.div_ceil(u64::from(WARP)),
        }
    }
}

/// A mixture as the kernels of a form read it.
#[derive(Clone, Copy)]
pub(crate) struct NoisyModel {
    pub(crate) form: Form,
    pub(crate) k: u32,
    /// `(k,)`.
    pub(crate) weights: DeviceSlice<f64>,
    /// `(k, Form::record)`.
    pub(crate) records: DeviceSlice<f64>,
}

/// The factors of consecutive patterns of missing values; see [`gmm_kernels::deconvolution::PatternFactors`].
#[derive(Clone, Copy)]
pub(crate) struct PatternFactors {
    /// Of all patterns.
    pub(crate) masks: DeviceSlice<u64>,
    /// The first of them.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// `(count, k, factors_len)`.
    pub(crate) factors: DeviceSlice<f64>,
}

/// What a pass writes; see [`Deconvolution`].
#[derive(Clone, Copy)]
pub(crate) struct NoisyOutputs {
    pub(crate) with_sums: bool,
    /// `(blocks, noisy_numbers)`.
    pub(crate) partials: DeviceSlice<f64>,
    /// `(blocks, FAILURE)`.
    pub(crate) failures: DeviceSlice<f64>,
    /// `(n,)`.
    pub(crate) log_densities: Option<DeviceSlice<f64>>,
    /// `(n, k)`.
    pub(crate) responsibilities: Option<DeviceSlice<f64>>,
    /// `(n,)`.
    pub(crate) labels: Option<DeviceSlice<u32>>,
}

/// Numbers of a block's partial results.
pub(crate) fn noisy_numbers(form: Form, k: u32, d: u32, with_sums: bool) -> u64 {
    u64::from(TOTALS) + if with_sums { u64::from(k) * u64::from(form.sums(d)) } else { 0 }
}

impl Launcher<'_> {
    /// Makes the factors of patterns of `d` columns, a block of a warp for each pattern and component.
    pub(crate) fn pattern_factors(self, d: u32, model: &NoisyModel, to: &PatternFactors) -> Result<(), Error> {
        let (k, of) = (model.k, u64::from(model.k) * u64::from(to.count));
        assert!(k > 0 && (1..=MOST_MASKED).contains(&d) && to.count > 0, "no factors");
        at_least(&model.records, u64::from(k) * u64::from(Form::Patterns.record(d)), "records of components");
        at_least(&to.masks, u64::from(to.first) + u64::from(to.count), "masks");
        at_least(&to.factors, of * factors_len(d), "factors");
        let a = gmm_kernels::deconvolution::PatternFactors {
            k,
            d,
            first: to.first,
            masks: pointer(&to.masks),
            records: pointer(&model.records),
            factors: pointer(&to.factors),
        };
        let blocks = u32::try_from(of).expect("the factors have room");
        // SAFETY: every length was checked against the field's formula.
        unsafe { self.launch(deconvolution_factors(), (blocks, 1), a) }
    }

    /// Runs a pass over noisy rows, in `blocks` blocks of a warp; `factors` are those of the patterns of all rows, for
    /// [`Form::Patterns`].
    pub(crate) fn deconvolution(
        self,
        rows: &NoisyChunk,
        model: &NoisyModel,
        factors: Option<&PatternFactors>,
        out: &NoisyOutputs,
        blocks: u32,
    ) -> Result<(), Error> {
        let NoisyChunk { n, d, is_correlated, .. } = *rows;
        let NoisyModel { form, k, .. } = *model;
        assert!(n > 0 && k > 0 && d > 0 && blocks > 0, "an empty pass");
        let is_known = match form {
            Form::Columns => !is_correlated,
            Form::Patterns => d <= MOST_MASKED && rows.patterns.is_some() && rows.groups.is_some() && factors.is_some(),
            Form::Small(columns) => d <= columns && !is_correlated && rows.errors.is_some(),
            Form::Matrix => d <= MOST_COLUMNS && rows.errors.is_some(),
        };
        assert!(is_known, "{form:?} for {d} columns");
        at_least(&rows.x, tiled_len(n, d), "rows");
        let of_errors = if is_correlated { packed_len(d) as u32 } else { d };
        rows.errors.iter().for_each(|errors| at_least(errors, tiled_len(n, of_errors), "measurement errors"));
        rows.patterns.iter().for_each(|patterns| at_least(patterns, n, "patterns of missing values"));
        if let Some(of) = factors {
            at_least(&of.masks, u64::from(of.first) + u64::from(of.count), "masks");
            at_least(&of.factors, u64::from(of.count) * u64::from(k) * factors_len(d), "factors");
        }
        rows.row_weights.iter().for_each(|weights| at_least(weights, n, "row weights"));
        at_least(&model.weights, k.into(), "weights");
        at_least(&model.records, u64::from(k) * u64::from(form.record(d)), "records of components");
        at_least(&out.partials, u64::from(blocks) * noisy_numbers(form, k, d, out.with_sums), "partial sums");
        at_least(&out.failures, u64::from(blocks) * u64::from(FAILURE), "failures");
        out.log_densities.iter().for_each(|slice| at_least(slice, n, "log densities"));
        out.responsibilities.iter().for_each(|slice| at_least(slice, n * u64::from(k), "responsibilities"));
        out.labels.iter().for_each(|slice| at_least(slice, n, "labels"));
        let a = Deconvolution {
            n,
            k,
            d,
            x: pointer(&rows.x),
            errors: or_null(rows.errors.as_ref()),
            is_correlated: is_correlated.into(),
            patterns: or_null(rows.patterns.as_ref()),
            masks: or_null(factors.map(|of| &of.masks)),
            groups: or_null(rows.groups.as_ref().filter(|_| form == Form::Patterns)),
            group_count: rows.groups(form),
            first_pattern: factors.map_or(0, |of| of.first),
            factors: or_null(factors.map(|of| &of.factors)),
            row_weights: or_null(rows.row_weights.as_ref()),
            weights: pointer(&model.weights),
            records: pointer(&model.records),
            with_sums: out.with_sums.into(),
            partials: pointer(&out.partials),
            failures: pointer(&out.failures),
            log_densities: or_null(out.log_densities.as_ref()),
            responsibilities: or_null(out.responsibilities.as_ref()),
            labels: or_null(out.labels.as_ref()),
        };
        // SAFETY: every length was checked against the field's formula, and the form computes such rows.
        unsafe { self.launch(form.kernel(), (blocks, 1), a) }
    }
}
