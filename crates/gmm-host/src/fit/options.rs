//! The options of a fit.

use gmm_model::{CovarianceModel, CovarianceType, Precision};

use crate::{Error, FitRule, Init};

/// Options of a fit. Names and defaults are scikit-learn's.
#[derive(Clone, Debug, PartialEq)]
pub struct FitOptions {
    /// Number of components `k`, at least 1 and at most the number of rows.
    pub n_components: usize,
    /// Covariance kind.
    pub covariance_type: CovarianceType,
    /// How the first mixture is found.
    pub init: Init,
    /// Number of rows, spread evenly over the data, on which k-means runs in each restart. `None`: the larger of 32768
    /// and `64 k` if the data have more than twice as many rows, else all. A component that has only a few rows in a
    /// million needs all of them: `Some(usize::MAX)`.
    pub init_rows: Option<usize>,
    /// Number of restarts. The restart with the highest log-likelihood at its last E-step wins. Initialisations that
    /// draw no random numbers run once.
    pub n_init: usize,
    /// Stop when the mean log-likelihood changes by strictly less than this.
    pub tol: f64,
    /// Stop after this many iterations; 0 returns the start.
    pub max_iter: usize,
    /// Added to the covariances' diagonals: an absolute amount, in squared units of the data.
    pub reg_covar: f64,
    /// Seed of all random draws.
    pub seed: u64,
    /// Precision of the rows on the engine; `None`: the precision of the data.
    pub precision: Option<Precision>,
    /// Whether to time a GPU's EM paths on these rows and run the fastest in place of the planned one. The timings are
    /// stored in a file ([`CudaEngine::tuning_file`](crate::CudaEngine::tuning_file)) and reused for similar shapes.
    /// Engines with a single path ignore this. The fastest path may change with the machine's load, and paths differ in
    /// rounding, so the same data are certain to give the same bits only if this is `false`.
    pub autotune: bool,
    /// Whether a GPU may iterate with one fp16 product (11 significant bits) in place of three split-fp16 products
    /// where that is faster. Applies to `f32` rows without weights, with more components or columns than the equally
    /// fast exact kernels handle; otherwise it has no effect. The loss of accuracy is measured on these rows after the
    /// fit: [`Fit::fast`](crate::Fit::fast). The log-likelihood of the result is computed as for every other fit.
    pub fast: bool,
    /// Whether restarts, candidates of [`select`](crate::select()) and [many fits](crate::many) may run at the same time
    /// where one does not fill the engine ([`Engine::concurrently`](crate::Engine::concurrently)). On a CPU the result
    /// has the same bits. An observer then gets no mixtures, so that [`Iteration::save`](crate::Iteration::save) does
    /// nothing. A GPU makes fits of few rows without the host ([`Engine::fit_small`](crate::Engine::fit_small)), but for
    /// a single fit of one restart: an observer then sees each fit at its end, the iterations of its best restart.
    pub concurrent: bool,
    /// What the fit does beyond maximum likelihood.
    pub rule: FitRule,
}

impl FitOptions {
    /// The defaults for `k` components: full, k-means, `tol` 1e-3, 100 iterations, `reg_covar` 1e-6, 1 restart, seed 0.
    pub const fn new(k: usize) -> Self {
        Self {
            n_components: k,
            covariance_type: CovarianceType::Full,
            init: Init::KMeans,
            init_rows: None,
            n_init: 1,
            tol: 1e-3,
            max_iter: 100,
            reg_covar: 1e-6,
            seed: 0,
            precision: None,
            autotune: false,
            fast: false,
            concurrent: true,
            rule: FitRule::none(),
        }
    }

    /// The covariance kind, and the number of factors of [`rule`](Self::rule).
    pub fn covariance(&self) -> CovarianceModel {
        CovarianceModel { kind: self.covariance_type, factors: self.rule.factors }
    }

    /// These options with a covariance kind, and its number of factors in [`rule`](Self::rule).
    #[must_use]
    pub fn with_covariance(self, CovarianceModel { kind, factors }: CovarianceModel) -> Self {
        Self { covariance_type: kind, rule: FitRule { factors, ..self.rule }, ..self }
    }

    /// Checks all constraints that do not depend on the data.
    ///
    /// # Errors
    /// [`Error::Option`] with the first invalid option, its value and its range.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |option, value: &dyn ToString, must: &str| {
            Err(Error::Option { option, value: value.to_string(), must: must.to_owned() })
        };
        if self.n_components == 0 {
            return refuse("n_components", &0, "at least 1");
        }
        if self.n_init == 0 {
            return refuse("n_init", &0, "at least 1");
        }
        for (option, value) in [("tol", self.tol), ("reg_covar", self.reg_covar)] {
            if !(value >= 0.0 && value.is_finite()) {
                return refuse(option, &value, "finite and not negative");
            }
        }
        if let Some(rows) = self.init_rows.filter(|rows| *rows < self.n_components) {
            return refuse("init_rows", &rows, "at least n_components");
        }
        if let Init::Given(mixture) = &self.init {
            if mixture.n_components() != self.n_components {
                return refuse(
                    "n_components",
                    &self.n_components,
                    &format!("{}, as in the given mixture", mixture.n_components()),
                );
            }
            if mixture.covariance_type() != self.covariance_type {
                let given = mixture.covariance_type();
                return refuse("covariance_type", &self.covariance_type, &format!("{given}, as in the given mixture"));
            }
        }
        self.rule.validate(self)
    }
}
