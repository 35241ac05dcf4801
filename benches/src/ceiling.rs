//! Measures the machine's ceiling: the rate of fused multiply-adds on registers, on the benchmark's number of threads.

use std::fmt;
use std::time::Instant;

use gmm_model::Precision;

/// Ceilings in GFLOP/s by precision; `None` if this program has no loop for the processor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ceiling {
    pub(crate) f64: Option<f64>,
    pub(crate) f32: Option<f64>,
}

impl Ceiling {
    /// The ceiling of one precision.
    pub(crate) const fn of(&self, precision: Precision) -> Option<f64> {
        match precision {
            Precision::F64 => self.f64,
            Precision::F32 => self.f32,
        }
    }

    /// The better of two measurements.
    pub(crate) fn better(self, other: Self) -> Self {
        let better = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
        Self { f64: better(self.f64, other.f64), f32: better(self.f32, other.f32) }
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.f64, self.f32) {
            (Some(double), Some(single)) => {
                write!(f, "{double:.1} GFLOP/s f64, {single:.1} f32, by a loop on registers")
            }
            _ => f.write_str("not measured on this processor"),
        }
    }
}

/// Number of trials. The best is used, because other load can only slow a loop.
const TRIALS: usize = 12;
/// Multiply-adds per accumulator and trial, which take some 20 ms.
const ROUNDS: usize = 4_000_000;

/// The best of several trials on `threads` threads.
pub(crate) fn measure(threads: usize) -> Ceiling {
    #[cfg(target_arch = "x86_64")]
    {
        let (double, single) = x86::loops();
        Ceiling { f64: double.map(|run| best(threads, run)), f32: single.map(|run| best(threads, run)) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    Ceiling::default()
}

/// A loop with the given number of rounds; returns the number of operations.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
type Loop = fn(usize) -> f64;

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn best(threads: usize, run: Loop) -> f64 {
    let trial = || {
        let begin = Instant::now();
        let operations: f64 = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| run(ROUNDS))).collect();
            running.into_iter().map(|thread| thread.join().expect("arithmetic does not panic")).sum()
        });
        operations / begin.elapsed().as_secs_f64() / 1e9
    };
    (0..TRIALS).map(|_| trial()).fold(0.0, f64::max)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::Loop;

    /// Number of independent accumulators: two units with a latency of four cycles need eight, and there are sixteen
    /// registers.
    const CHAINS: usize = 12;

    /// The loops in `f64` and `f32` with the widest registers that the processor supports.
    pub(super) fn loops() -> (Option<Loop>, Option<Loop>) {
        if is_x86_feature_detected!("avx512f") {
            (Some(double_512), Some(single_512))
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            (Some(double_256), Some(single_256))
        } else {
            (None, None)
        }
    }

    macro_rules! chain {
        ($name:ident, $features:literal, $lanes:literal, $set:ident, $multiply_add:ident) => {
            fn $name(rounds: usize) -> f64 {
                #[target_feature(enable = $features)]
                fn run(rounds: usize) {
                    let factor = $set(black_box(0.999_999));
                    let mut sums = [$set(black_box(1.0)); CHAINS];
                    for _ in 0..rounds {
                        for sum in &mut sums {
                            *sum = $multiply_add(*sum, factor, factor);
                        }
                    }
                    black_box(sums);
                }
                // SAFETY: `loops` returns this function only if `is_x86_feature_detected!` found its features.
                unsafe { run(rounds) };
                (2 * $lanes * CHAINS * rounds) as f64
            }
        };
    }

    chain!(double_512, "avx512f", 8, _mm512_set1_pd, _mm512_fmadd_pd);
    chain!(single_512, "avx512f", 16, _mm512_set1_ps, _mm512_fmadd_ps);
    chain!(double_256, "avx2,fma", 4, _mm256_set1_pd, _mm256_fmadd_pd);
    chain!(single_256, "avx2,fma", 8, _mm256_set1_ps, _mm256_fmadd_ps);
}
