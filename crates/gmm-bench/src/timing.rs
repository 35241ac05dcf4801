//! Limits on the number of measurements, and joint timing of short calls.

use std::time::Instant;

use anyhow::Result;

/// Minimum number of measurements for a median, unless a single one takes very long.
const LEAST: usize = 5;
/// Seconds that jointly timed calls should take: far above the clock's resolution.
const TOGETHER: f64 = 2e-3;

/// Limits of a series of measurements.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of measurements.
    pub repeats: usize,
    /// Seconds after which no measurement begins, if there are at least five; five times this if there are fewer.
    pub seconds: f64,
}

impl Limits {
    /// A single call.
    pub const ONE: Self = Self { repeats: 1, seconds: 0.0 };
    /// Short calls, as many as are needed for the clock's resolution.
    pub(crate) const SHORT: Self = Self { repeats: 10_000, seconds: TOGETHER };

    /// Calls `one` within the limits, at least once, and collects the results.
    ///
    /// # Errors
    /// Any error of `one`.
    pub fn collect<T>(self, one: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
        let few = 5.0 * self.seconds;
        collect(one, |done, seconds| done < self.repeats && (seconds < self.seconds || (done < LEAST && seconds < few)))
    }

    /// As [`collect`](Self::collect), for one of several turns: no call begins after `seconds`, however few there were.
    pub(crate) fn turn<T>(self, one: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
        collect(one, |done, seconds| done < self.repeats && seconds < self.seconds)
    }

    /// Mean seconds per call in one turn.
    ///
    /// # Errors
    /// Any error of `work`.
    pub fn mean(self, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
        let seconds = self.turn(|| Ok(once(&mut work)?.0))?;
        Ok(seconds.iter().sum::<f64>() / seconds.len() as f64)
    }
}

fn collect<T>(mut one: impl FnMut() -> Result<T>, more: impl Fn(usize, f64) -> bool) -> Result<Vec<T>> {
    let (began, mut all) = (Instant::now(), Vec::new());
    while all.is_empty() || more(all.len(), began.elapsed().as_secs_f64()) {
        all.push(one()?);
    }
    Ok(all)
}

/// Number of calls timed jointly, so that the clock's resolution does not matter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallsPerSample(pub(crate) usize);

impl CallsPerSample {
    /// Each call is timed separately.
    pub(crate) const ONE: Self = Self(1);

    /// Chooses the number from the time of one call, made after a warm-up call.
    ///
    /// # Errors
    /// Any error of `work`.
    pub(crate) fn of(mut work: impl FnMut() -> Result<()>) -> Result<Self> {
        work()?;
        Ok(Self::taking(once(work)?.0))
    }

    /// Chooses the number, given the seconds of one call.
    pub(crate) fn taking(seconds: f64) -> Self {
        Self((TOGETHER / seconds).ceil().clamp(1.0, 1e4) as usize)
    }

    /// Mean seconds per call.
    ///
    /// # Errors
    /// Any error of `work`.
    pub(crate) fn mean(self, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
        let (seconds, ()) = once(|| (0..self.0).try_for_each(|_| work()))?;
        Ok(seconds / self.0 as f64)
    }
}

/// Measures the seconds of `work` several times, after a warm-up call. Each measurement of short work is the mean of
/// several calls.
///
/// # Errors
/// Any error of `work`.
pub fn calls(limits: Limits, mut work: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let together = CallsPerSample::of(&mut work)?;
    limits.collect(|| together.mean(&mut work))
}

/// Measures the seconds of one call; also returns its result.
///
/// # Errors
/// Any error of `work`.
pub fn once<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let begin = Instant::now();
    let done = work()?;
    Ok((begin.elapsed().as_secs_f64(), done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_measurement_is_made_in_any_case_and_never_more_than_wanted() {
        let mut done = 0;
        let mut count = |repeats, seconds| {
            calls(Limits { repeats, seconds }, || {
                done += 1;
                std::thread::sleep(std::time::Duration::from_millis(3));
                Ok(())
            })
            .unwrap()
            .len()
        };
        assert_eq!((count(0, 0.0), count(3, 60.0)), (1, 3));
        assert_eq!(done, 8, "two calls before each");
    }
}
