//! Which fits a block can run, and which of them one launch can.

use gmm_kernels::many::{MOST_ROWS, MOST_WARPS, OUTCOME, start_code};
use gmm_model::{Precision, packed_len as triangle};

use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::ManyShape;
use crate::cuda::shape::Shape;
use crate::many::Job;
use crate::{FitOptions, Init};

/// Most products of a pass over the rows: a fit of more is faster on several multiprocessors.
const MOST_PRODUCTS: usize = 1 << 18;

/// Most bytes of results on the device and the host at a time.
pub(super) const MOST_BYTES: usize = 256 << 20;

/// Fits that one launch can run.
pub(super) struct Class<'a> {
    pub(super) shape: ManyShape,
    pub(super) options: &'a FitOptions,
    /// Their indices.
    pub(super) jobs: Vec<usize>,
}

impl Class<'_> {
    /// Restarts of each fit.
    pub(super) fn restarts(&self) -> usize {
        if self.shape.start == start_code::GIVEN { 1 } else { self.options.n_init }
    }

    /// Bytes of the results of a fit, and of the random numbers for it.
    pub(super) fn bytes(&self) -> usize {
        let ManyShape { max_iter, d, .. } = self.shape;
        let numbers = self.shape.parameters_len() + (max_iter + OUTCOME + 2 * d) as usize + 2;
        let numbers = numbers + self.uniforms_of_restart();
        numbers.saturating_mul(8).saturating_mul(self.restarts())
    }

    /// Random numbers of a restart.
    pub(super) fn uniforms_of_restart(&self) -> usize {
        let ManyShape { k, trials, start, .. } = self.shape;
        if start == start_code::GIVEN { 0 } else { (2 + 2 * trials * (k - 1)) as usize }
    }

    /// Fits whose results fit into memory at a time, at least one.
    pub(super) fn at_once(&self) -> usize {
        (MOST_BYTES / self.bytes()).max(1)
    }
}

/// The classes of the fits of `d` columns that a block can run.
pub(super) fn classes<'a>(gpu: &Gpu, d: usize, jobs: &[Job<'a>]) -> Vec<Class<'a>> {
    let mut classes: Vec<Class<'a>> = Vec::new();
    for (index, Job { rows, options }) in jobs.iter().enumerate() {
        let Some(shape) = shape(gpu, (rows.len(), d), options) else { continue };
        // Usually that of the fit before.
        let alike = |class: &&mut Class<'_>| {
            let most_rows = class.shape.most_rows.max(shape.most_rows);
            let common = ManyShape { most_rows, ..class.shape };
            common == ManyShape { most_rows, ..shape }
                && (std::ptr::eq(class.options, *options) || class.options == *options)
                && common.shared_bytes() <= gpu.limits.shared_bytes.into()
        };
        match classes.iter_mut().rev().find(alike) {
            Some(class) => {
                class.shape.most_rows = class.shape.most_rows.max(shape.most_rows);
                class.jobs.push(index);
            }
            None => classes.push(Class { shape, options, jobs: vec![index] }),
        }
    }
    classes
}

/// How a block runs a fit of `n` rows of `d` columns; `None` if it is left to the ordinary way.
pub(super) fn shape(gpu: &Gpu, (n, d): (usize, usize), options: &FitOptions) -> Option<ManyShape> {
    let FitOptions { n_components, covariance_type, ref init, reg_covar, tol, max_iter, .. } = *options;
    let of = Shape::new(covariance_type, Precision::F64, (n, d, n_components)).ok()?;
    let start = match init {
        Init::Given(_) => start_code::GIVEN,
        Init::KMeansPlusPlus => start_code::SEEDS,
        Init::KMeans => start_code::K_MEANS,
        _ => return None,
    };
    let (k, d) = (of.k as usize, of.d as usize);
    let products = n.checked_mul(k)?.checked_mul(triangle(d) + d + 1)?;
    // Without `reg_covar` the host decides whether a covariance is more than rounding error. A sample of the rows is
    // k-means' own affair.
    let fits = n <= MOST_ROWS as usize
        && products <= MOST_PRODUCTS
        && reg_covar > 0.0
        && options.init_rows.is_none_or(|rows| rows >= n)
        && !options.autotune;
    let shape = ManyShape {
        most_rows: n as u32,
        d: of.d,
        k: of.k,
        kind: of.kernel_kind() as u32,
        warps: ((n * k).div_ceil(2048) as u32).clamp(1, MOST_WARPS),
        start,
        trials: 2 + (k as f64).ln() as u32,
        reg_covar,
        tol,
        max_iter: u32::try_from(max_iter).ok().filter(|most| 8 * *most as usize <= MOST_BYTES)?,
    };
    (fits && shape.shared_bytes() <= gpu.limits.shared_bytes.into()).then_some(shape)
}
