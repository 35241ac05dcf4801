//! The launch of many small fits.

use cust::memory::DeviceSlice;
use gmm_kernels::many::{ManyFits, OUTCOME, many_fits, parameters_len};
use gmm_model::Precision;

use super::arguments::{at_least, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;

/// What the fits of a launch have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ManyShape {
    pub(crate) most_rows: u32,
    pub(crate) d: u32,
    pub(crate) k: u32,
    /// A [`gmm_kernels::layout::Kind`], as a number.
    pub(crate) kind: u32,
    pub(crate) warps: u32,
    /// One of [`gmm_kernels::many::start_code`].
    pub(crate) start: u32,
    pub(crate) trials: u32,
    pub(crate) reg_covar: f64,
    pub(crate) tol: f64,
    pub(crate) max_iter: u32,
}

impl ManyShape {
    /// Bytes of shared memory of a block.
    pub(crate) fn shared_bytes(&self) -> u64 {
        (many_fits().shared_bytes)(&self.arguments())
    }

    pub(crate) fn parameters_len(&self) -> usize {
        parameters_len(self.kind, self.k, self.d) as usize
    }

    /// The arguments without any buffer.
    fn arguments(&self) -> ManyFits {
        let Self { most_rows, d, k, kind, warps, start, trials, reg_covar, tol, max_iter } = *self;
        let (read, written) = (std::ptr::null(), std::ptr::null_mut());
        ManyFits {
            single: std::ptr::null(),
            double: read,
            row_weights: read,
            firsts: std::ptr::null(),
            lens: std::ptr::null(),
            most_rows,
            d,
            k,
            kind,
            warps,
            shifts: read,
            start,
            uniforms: read,
            draws: std::ptr::null(),
            trials,
            reg_covar,
            tol,
            max_iter,
            parameters: written,
            traces: written,
            outcomes: written,
        }
    }
}

/// The buffers of many small fits; see [`ManyFits`].
pub(crate) struct ManyBuffers {
    /// All rows, `(n, d)`, as numbers of this precision in 8-byte words.
    pub(crate) rows: (Precision, DeviceSlice<f64>),
    /// `(n,)`.
    pub(crate) row_weights: Option<DeviceSlice<f64>>,
    /// `(fits,)`: each fit's rows from here on are in the table.
    pub(crate) firsts: DeviceSlice<u64>,
    /// `(fits,)`.
    pub(crate) lens: DeviceSlice<u32>,
    /// `(fits, d)`.
    pub(crate) shifts: DeviceSlice<f64>,
    pub(crate) uniforms: DeviceSlice<f64>,
    /// `(fits,)`: positions within the uniforms.
    pub(crate) draws: DeviceSlice<u32>,
    /// `(fits, parameters_len)`.
    pub(crate) parameters: DeviceSlice<f64>,
    /// `(fits, max_iter)`.
    pub(crate) traces: DeviceSlice<f64>,
    /// `(fits, OUTCOME + d)`.
    pub(crate) outcomes: DeviceSlice<f64>,
}

impl Launcher<'_> {
    /// Runs many fits. The caller has checked that their rows are in the table and their draws in the uniforms.
    pub(crate) fn many_fits(self, shape: &ManyShape, fits: u32, b: &ManyBuffers) -> Result<(), Error> {
        let of_fits = |each: u64| u64::from(fits) * each;
        at_least(&b.firsts, of_fits(1), "first rows");
        at_least(&b.lens, of_fits(1), "numbers of rows");
        at_least(&b.shifts, of_fits(shape.d.into()), "shifts");
        at_least(&b.draws, of_fits(1), "places of random numbers");
        at_least(&b.parameters, of_fits(shape.parameters_len() as u64), "parameters");
        at_least(&b.traces, of_fits(shape.max_iter.into()), "traces");
        at_least(&b.outcomes, of_fits(u64::from(OUTCOME + shape.d)), "outcomes");
        let rows = pointer(&b.rows.1).cast_const();
        let is_single = b.rows.0 == Precision::F32;
        let a = ManyFits {
            single: if is_single { rows.cast() } else { std::ptr::null() },
            double: if is_single { std::ptr::null() } else { rows },
            row_weights: or_null(b.row_weights.as_ref()),
            firsts: pointer(&b.firsts),
            lens: pointer(&b.lens),
            shifts: pointer(&b.shifts),
            uniforms: pointer(&b.uniforms),
            draws: pointer(&b.draws),
            parameters: pointer(&b.parameters),
            traces: pointer(&b.traces),
            outcomes: pointer(&b.outcomes),
            ..shape.arguments()
        };
        // SAFETY: every length was checked against the field's formula; rows and draws by the caller.
        unsafe { self.launch(many_fits(), (fits, 1), a) }
    }
}
