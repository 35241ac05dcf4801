//! The record of how a fit with [`autotune`](crate::FitOptions::autotune) chose its EM path.

use std::fmt;
use std::path::PathBuf;

/// The choice of an EM path by timing, with all timings.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The EM path with which the fit began, by its name in [`loop_candidates`](crate::loop_candidates).
    pub path: &'static str,
    /// The source of the choice.
    pub source: TuningSource,
    /// Name and seconds per iteration of each path timed, fastest first.
    pub seconds: Vec<(&'static str, f64)>,
    /// Problems with the tuning file. The fit continues without the file.
    pub warnings: Vec<String>,
}

/// The source of a [`Tuning`].
#[derive(Clone, Debug, PartialEq)]
pub enum TuningSource {
    /// The environment variable `GMM_PLAN` sets the path; nothing was timed.
    Forced,
    /// The paths were timed by this engine.
    Timed,
    /// The timings come from this file.
    File(PathBuf),
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "autotune: {}", self.path)?;
        match &self.source {
            TuningSource::Forced => return write!(f, ", set by GMM_PLAN"),
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
        assert_eq!(tuning(TuningSource::Forced).to_string(), "autotune: chunked-split-fp16, set by GMM_PLAN");
    }
}
