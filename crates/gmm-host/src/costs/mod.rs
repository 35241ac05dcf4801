//! Estimates of how long the CPU and a GPU would take, from which [`Device::Auto`](crate::Device::Auto) chooses.
//!
//! A GPU multiplies a hundred times as fast as a few cores, but a process needs a third of a second to open one. So
//! small work goes to the CPU, without opening the driver, and large work to the GPU. Near the border both take about
//! as long, and the estimates need not be better than that. What differs most between machines is measured and
//! stored beside the autotune results: how fast the CPU is (once), and how long the GPU takes to open (the shortest
//! time).

#[cfg(feature = "cuda")]
pub(crate) mod measured;
#[cfg(feature = "cuda")]
mod stored;

use std::fmt;
use std::time::Duration;

use gmm_model::{CovarianceModel, CovarianceType, Precision};

use crate::FitOptions;

/// The work that a program is about to do on an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes of rows to load.
    bytes: f64,
    /// Passes over the rows.
    passes: f64,
    /// Multiply-adds of all passes, counted as on a CPU in `f64`; those in `f32` count half.
    operations: f64,
    /// Whether no GPU does this.
    only_cpu: bool,
}

/// Iterations that a fit is expected to take if it stops by `tol`.
const ITERATIONS: usize = 40;

/// Passes of k-means over the rows that it runs on.
const LLOYD_PASSES: f64 = 12.0;

/// Multiply-adds that an exponential or a logarithm takes as long as.
const EXP: f64 = 20.0;

/// Multiply-adds of an EM pass per row: densities, responsibilities and statistics.
fn per_row(kind: CovarianceType, k: usize, d: usize) -> f64 {
    let (k, d) = (k as f64, d as f64);
    match kind {
        CovarianceType::Full => k * (d * (d + 1.0) + 2.0 * d + EXP),
        CovarianceType::Tied => d * d + k * (6.0 * d + EXP),
        CovarianceType::Diag => k * (4.0 * d + EXP),
        CovarianceType::Spherical => k * (3.0 * d + EXP),
    }
}

/// Time of a multiply-add relative to one in `f64`.
const fn share(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 0.5,
        Precision::F64 => 1.0,
    }
}

impl Work {
    /// `passes` passes over `(n, d)` rows with `k` components: EM iterations, or evaluations of a mixture.
    pub fn passes((n, d): (usize, usize), precision: Precision, kind: CovarianceType, k: usize, passes: f64) -> Self {
        let bytes = n as f64 * d as f64 * if precision == Precision::F32 { 4.0 } else { 8.0 };
        let operations = passes * n as f64 * per_row(kind, k, d) * share(precision);
        Self { bytes, passes, operations, only_cpu: false }
    }

    /// A fit of `(n, d)` rows: all initialisations, each with its start, its iterations and an evaluation.
    pub fn fit(shape: (usize, usize), precision: Precision, options: &FitOptions) -> Self {
        let FitOptions { n_components: k, covariance_type: kind, tol, max_iter, n_init, .. } = *options;
        let precision = options.precision.unwrap_or(precision);
        let iterations = if tol > 0.0 { max_iter.min(ITERATIONS) } else { max_iter };
        let starts = n_init as f64;
        // Components that a row tries.
        let tried = options.rule.truncated.map_or(k, |of| k.min(of.components.saturating_mul(of.components + 4)));
        let em = Self::passes(shape, precision, kind, tried, starts * (iterations as f64 + 1.0) + 1.0);
        let rows = shape.0.min(options.init_rows.unwrap_or((64 * k).max(1 << 15)));
        let start = Self::passes((rows, shape.1), precision, CovarianceType::Spherical, k, starts * LLOYD_PASSES);
        Self { only_cpu: options.rule.truncated.is_some(), ..em.and(start) }
    }

    /// The fits of [`select`](crate::select()): every combination of `components` and `kinds`.
    pub fn select(
        shape: (usize, usize),
        precision: Precision,
        options: &FitOptions,
        components: &[usize],
        kinds: &[CovarianceModel],
    ) -> Self {
        let fits = kinds.iter().flat_map(|&kind| {
            let with = move |&n_components| FitOptions { n_components, ..options.clone() }.with_covariance(kind);
            components.iter().map(with)
        });
        fits.map(|options| Self::fit(shape, precision, &options)).fold(Self::default(), Self::and)
    }

    /// A product of an `(m, k)` and a `(k, n)` matrix.
    pub fn product(m: usize, n: usize, k: usize, precision: Precision) -> Self {
        let (m, n, k) = (m as f64, n as f64, k as f64);
        let number = if precision == Precision::F32 { 4.0 } else { 8.0 };
        let (bytes, operations) = (number * (m * k + k * n + m * n), m * n * k * share(precision));
        Self { bytes, passes: 1.0, operations, only_cpu: false }
    }

    /// Both, one after the other, over the same rows.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            passes: self.passes + other.passes,
            operations: self.operations + other.operations,
            only_cpu: self.only_cpu || other.only_cpu,
        }
    }
}

/// The speed of the CPU and of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speeds {
    /// `f64` multiply-adds per second and thread of the CPU engine.
    pub(crate) cpu: f64,
    pub(crate) threads: usize,
    /// Seconds until the GPU is open: 0 if it is.
    pub(crate) open: f64,
}

/// Speed of one thread before it is measured: of an AVX2 core at 3 GHz (0.3 of its peak).
const CPU_SPEED: f64 = 10e9;

/// Seconds that a GPU takes to open, before it is measured.
const OPEN_SECONDS: f64 = 0.3;

/// Seconds that a program needs at its end to close the GPU, if it opened it.
const CLOSE_SECONDS: f64 = 0.1;

/// Estimates for some work, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimates {
    /// On the CPU.
    pub cpu: f64,
    /// On a GPU, including the time to open and close it; infinite if no GPU does the work.
    pub gpu: f64,
    /// The part of `gpu` to open and close it.
    pub open: f64,
}

impl Estimates {
    pub(crate) fn of(work: &Work, speeds: &Speeds) -> Self {
        // On the CPU, per byte: the rows are copied once. Per pass: the threads start and end together.
        let cpu = work.bytes * 0.5e-9 + work.passes * 5e-6 + work.operations / (speeds.cpu * speeds.threads as f64);
        // On a GPU, per byte: copies into pinned memory and to the device. Per pass: the kernels' launches.
        const FIRST_LAUNCHES: f64 = 0.5e-3;
        const GPU_SPEED: f64 = 3e12;
        let gpu = FIRST_LAUNCHES + work.bytes * 0.2e-9 + work.passes * 15e-6 + work.operations / GPU_SPEED;
        let open = if speeds.open > 0.0 { speeds.open + CLOSE_SECONDS } else { 0.0 };
        Self { cpu, gpu: if work.only_cpu { f64::INFINITY } else { gpu + open }, open }
    }

    /// Whether the GPU is expected to be done first.
    pub fn prefer_gpu(&self) -> bool {
        self.gpu < self.cpu
    }
}

impl fmt::Display for Estimates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        if self.gpu == f64::INFINITY {
            return write!(f, "about {:.1?} on the CPU, and not on a GPU", duration(self.cpu));
        }
        let [cpu, gpu, open] = [self.cpu, self.gpu, self.open].map(duration);
        write!(f, "about {cpu:.1?} on the CPU, {gpu:.1?} on a GPU")?;
        if self.open > 0.0 { write!(f, " ({open:.1?} of it to open and close the GPU)") } else { Ok(()) }
    }
}

/// The estimates for `work`, from the speeds stored so far. `is_open`: whether this process has opened the GPU.
pub fn estimates(work: &Work, threads: usize, is_open: bool) -> Estimates {
    let threads = if threads == 0 { crate::default_threads() } else { threads };
    // Speeds that no measurement changes by so much: a prediction of a few rows should not look for a file.
    let slow = Estimates::of(work, &Speeds { cpu: CPU_SPEED / 20.0, threads: 1, open: 0.0 });
    if !slow.prefer_gpu() {
        return Estimates::of(work, &Speeds { cpu: CPU_SPEED, threads, open: OPEN_SECONDS });
    }
    let stored = stored_speeds(threads);
    Estimates::of(work, &Speeds { open: if is_open { 0.0 } else { stored.open }, ..stored })
}

#[cfg(feature = "cuda")]
fn stored_speeds(threads: usize) -> Speeds {
    let (cpu, open) = stored::read(threads);
    Speeds { cpu: cpu.unwrap_or(CPU_SPEED), threads, open: open.unwrap_or(OPEN_SECONDS) }
}

#[cfg(not(feature = "cuda"))]
fn stored_speeds(threads: usize) -> Speeds {
    Speeds { cpu: CPU_SPEED, threads, open: OPEN_SECONDS }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEEDS: Speeds = Speeds { cpu: CPU_SPEED, threads: 16, open: OPEN_SECONDS };

    fn fit(n: usize, d: usize, k: usize) -> Work {
        Work::fit((n, d), Precision::F32, &FitOptions { tol: 0.0, max_iter: 20, ..FitOptions::new(k) })
    }

    #[test]
    fn small_fits_go_to_the_cpu_and_large_ones_to_the_gpu() {
        for (n, d, k, gpu) in [(1000, 4, 3, false), (100_000, 4, 3, false), (10_000_000, 16, 16, true)] {
            assert_eq!(Estimates::of(&fit(n, d, k), &SPEEDS).prefer_gpu(), gpu, "{n} {d} {k}");
        }
        // The same fit with two threads.
        let few = Speeds { threads: 2, ..SPEEDS };
        assert!(Estimates::of(&fit(1_000_000, 16, 16), &few).prefer_gpu());
    }

    #[test]
    fn a_gpu_that_is_open_is_preferred_for_smaller_work() {
        let work = fit(100_000, 16, 16);
        assert!(!Estimates::of(&work, &SPEEDS).prefer_gpu());
        assert!(Estimates::of(&work, &Speeds { open: 0.0, ..SPEEDS }).prefer_gpu());
        assert!(!Estimates::of(&fit(300, 4, 3), &Speeds { open: 0.0, ..SPEEDS }).prefer_gpu());
    }

    #[test]
    fn work_grows_with_all_that_it_consists_of() {
        let options = FitOptions::new(3);
        let of = |options: &FitOptions| Work::fit((1000, 4), Precision::F64, options).operations;
        assert!(of(&FitOptions { n_init: 2, ..options.clone() }) > 1.9 * of(&options));
        assert!(of(&FitOptions { tol: 0.0, max_iter: 1000, ..options.clone() }) > 10.0 * of(&options));
        assert!(of(&FitOptions { precision: Some(Precision::F32), ..options.clone() }) < 0.6 * of(&options));
        for kind in CovarianceType::ALL {
            assert!(per_row(kind, 8, 8) < per_row(kind, 9, 8) && per_row(kind, 8, 8) < per_row(kind, 8, 9), "{kind}");
        }
        let one = Work::passes((10, 2), Precision::F64, CovarianceType::Diag, 2, 1.0);
        assert_eq!(one.and(one), Work::passes((10, 2), Precision::F64, CovarianceType::Diag, 2, 2.0));
    }

    #[test]
    fn estimates_are_said_with_their_units() {
        let text = Estimates { cpu: 0.0012, gpu: 0.45, open: 0.4 }.to_string();
        assert_eq!(text, "about 1.2ms on the CPU, 450.0ms on a GPU (400.0ms of it to open and close the GPU)");
        assert!(Estimates { cpu: 1e300, gpu: f64::INFINITY, open: 0.0 }.to_string().starts_with("about "));
        assert_eq!(Estimates { cpu: 2.0, gpu: 0.5, open: 0.0 }.to_string(), "about 2.0s on the CPU, 500.0ms on a GPU");
    }
}
