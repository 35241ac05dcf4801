//! How often a call is measured, and short calls measured together.

use std::time::Instant;

use anyhow::Result;

/// Fewer than so many measurements are no median, unless one takes very long.
const LEAST: usize = 5;
/// Seconds that what is timed together should take: far above the clock.
const TOGETHER: f64 = 2e-3;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Measurements at most.
    pub repeats: usize,
    /// Seconds after which no measurement begins, once there are five; before that, five times as many.
    pub seconds: f64,
}

impl Limits {
    /// Whether to measure once more.
    pub fn more(&self, done: usize, began: Instant) -> bool {
        let seconds = began.elapsed().as_secs_f64();
        done == 0 || (done < self.repeats && (seconds < self.seconds || (done < LEAST && seconds < 5.0 * self.seconds)))
    }

    /// The same for one of several turns: at least once, and none begins when the time is over.
    pub(crate) fn more_in_turn(&self, done: usize, began: Instant) -> bool {
        done == 0 || (done < self.repeats && began.elapsed().as_secs_f64() < self.seconds)
    }
}

/// How many calls are timed together, so that a clock's grain does not matter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Together(pub(crate) usize);

impl Together {
    /// Each call alone.
    pub(crate) const ONE: Self = Self(1);

    /// As many as take long enough, by one call, after one that warms up.
    ///
    /// # Errors
    /// What the work says.
    pub(crate) fn of(mut work: impl FnMut() -> Result<()>) -> Result<Self> {
        work()?;
        Ok(Self::taking(once(work)?.0))
    }

    /// As many as take long enough where one takes so many seconds.
    pub(crate) fn taking(seconds: f64) -> Self {
        Self((TOGETHER / seconds).ceil().clamp(1.0, 1e4) as usize)
    }

    /// Seconds of one call, measured several times in a turn.
    ///
    /// # Errors
    /// What the work says.
    pub(crate) fn turn(self, limits: Limits, mut work: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
        let (began, mut seconds) = (Instant::now(), Vec::new());
        while limits.more_in_turn(seconds.len(), began) {
            let (whole, ()) = once(|| (0..self.0).try_for_each(|_| work()))?;
            seconds.push(whole / self.0 as f64);
        }
        Ok(seconds)
    }
}

/// Seconds of one piece of work, several times, after one call that warms up; short work is repeated and its mean taken.
///
/// # Errors
/// What the work says.
pub fn calls(limits: Limits, mut work: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    work()?;
    let begin = Instant::now();
    work()?;
    let often = (TOGETHER / begin.elapsed().as_secs_f64()).ceil().clamp(1.0, 1e4) as usize;
    let (began, mut seconds) = (Instant::now(), Vec::new());
    while limits.more(seconds.len(), began) {
        let begin = Instant::now();
        for _ in 0..often {
            work()?;
        }
        seconds.push(begin.elapsed().as_secs_f64() / often as f64);
    }
    Ok(seconds)
}

/// Seconds of one call.
///
/// # Errors
/// What the work says.
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
