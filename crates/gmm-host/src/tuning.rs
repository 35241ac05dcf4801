//! How a fit with [`autotune`](crate::FitOptions::autotune) came to the way in which it ran.

use std::fmt;
use std::path::PathBuf;

/// A choice among the ways to run EM's loop, made by timing them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The way with which the fit began, in the words of [`loop_candidates`](crate::loop_candidates).
    pub path: &'static str,
    /// Where that is from.
    pub source: TuningSource,
    /// Seconds that an iteration of each way took when they were timed, fastest first.
    pub seconds: Vec<(&'static str, f64)>,
    /// What is wrong with the file in which choices are kept. A fit goes on without it.
    pub warnings: Vec<String>,
}

/// Where a [`Tuning`] is from.
#[derive(Clone, Debug, PartialEq)]
pub enum TuningSource {
    /// `GMM_PLAN` decides, and nothing was timed.
    Forced,
    /// The paths were timed by this engine.
    Timed,
    /// They were timed before, and this file has the result.
    File(PathBuf),
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autotune: {}", self.path)?;
        match &self.source {
            TuningSource::Forced => return write!(f, ", since GMM_PLAN decides"),
            TuningSource::Timed => write!(f, ", timed now")?,
            TuningSource::File(path) => write!(f, ", from {}", path.display())?,
        }
        for (i, (path, seconds)) in self.seconds.iter().enumerate() {
            write!(f, "{} {path} {:.4} ms", if i == 0 { ":" } else { "," }, 1e3 * seconds)?;
        }
        write!(f, " an iteration")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_one_line_with_all_times() {
        let seconds = vec![("chunked-split-fp16", 1.25e-3), ("host", 0.5)];
        let tuning =
            |source| Tuning { path: "chunked-split-fp16", source, seconds: seconds.clone(), warnings: Vec::new() };
        let timed =
            "autotune: chunked-split-fp16, timed now: chunked-split-fp16 1.2500 ms, host 500.0000 ms an iteration";
        assert_eq!(tuning(TuningSource::Timed).to_string(), timed);
        let file = tuning(TuningSource::File("a.json".into())).to_string();
        assert!(file.starts_with("autotune: chunked-split-fp16, from a.json: chunked-split-fp16 1.25"), "{file}");
        assert_eq!(tuning(TuningSource::Forced).to_string(), "autotune: chunked-split-fp16, since GMM_PLAN decides");
    }
}
