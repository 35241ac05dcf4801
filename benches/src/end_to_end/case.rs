//! A command to be timed, its check, and its line of the record.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use gmm_bench::quiet::{DISTURBED, Watch};
use gmm_bench::spread::Spread;
use gmm_bench::timing::Limits;
use gmm_bench::{Shape, Status};
use gmm_model::Precision;

use super::child::{self, Outcome};
use super::data::Table;

/// The record's columns, in the order of [`Line::text`].
pub(crate) const COLUMNS: &str = "workload,what,program,format,precision,n,k,d,status,ms,best_ms,read_ms,fit_ms,\
                                  memory_of_matrix,anonymous_mib,log_likelihood,runs,others,note";

/// A line of the record.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// `read`, `fit`, `fit from a start`, or a Python call.
    pub(crate) what: String,
    pub(crate) program: String,
    /// Format of the file, or library of the array.
    pub(crate) format: String,
    pub(crate) precision: Precision,
    pub(crate) shape: Shape,
    pub(crate) status: Status,
    /// Seconds of each run.
    pub(crate) seconds: Vec<f64>,
    /// Seconds of reading and of fitting, in each run, by the program's own report.
    pub(crate) parts: Vec<Parts>,
    /// Bytes of memory that are not a file's, and of the matrix.
    pub(crate) memory: Option<(u64, f64)>,
    /// Largest share of all cores' time that other processes took during a run.
    pub(crate) others: Option<f64>,
    /// Mean log-likelihood at the last E-step.
    pub(crate) log_likelihood: Option<f64>,
    pub(crate) note: String,
}

/// Seconds that a program reports of parts of its work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) read: Option<f64>,
    pub(crate) fit: Option<f64>,
}

impl Line {
    /// A line without times.
    pub(crate) fn new(what: &str, program: &str, format: &str, table: &Table) -> Self {
        Self {
            what: what.to_owned(),
            program: program.to_owned(),
            format: format.to_owned(),
            precision: table.precision,
            shape: table.shape,
            status: Status::Ok,
            seconds: Vec::new(),
            parts: Vec::new(),
            memory: None,
            others: None,
            log_likelihood: None,
            note: String::new(),
        }
    }

    /// The same with a reason why there is no time.
    pub(crate) fn without_time(mut self, status: Status, note: &str) -> Self {
        self.status = status;
        note.clone_into(&mut self.note);
        self
    }

    /// The fields, separated by commas.
    pub(crate) fn text(&self) -> String {
        let Self { what, program, format, precision, shape: Shape { n, k, d }, status, note, .. } = self;
        let spread = |seconds: Vec<f64>| (!seconds.is_empty()).then(|| Spread::of(seconds));
        let ms = |seconds: Option<f64>| seconds.map_or_else(String::new, |s| format!("{:.1}", 1e3 * s));
        let whole = spread(self.seconds.clone());
        let part = |of: fn(&Parts) -> Option<f64>| spread(self.parts.iter().filter_map(of).collect()).map(|s| s.median);
        let memory = |of: fn(u64, f64) -> String| self.memory.map_or_else(String::new, |(bytes, own)| of(bytes, own));
        let plain = |text: &str| text.replace([',', '\n', '\r'], ";");
        [
            plain(&format!("{what} {format} {precision}: {program}")),
            what.clone(),
            plain(program),
            format.clone(),
            format!("{precision},{n},{k},{d}"),
            status.name().to_owned(),
            ms(whole.map(|s| s.median)),
            ms(whole.map(|s| s.min)),
            ms(part(|parts| parts.read)),
            ms(part(|parts| parts.fit)),
            memory(|bytes, own| format!("{:.2}", bytes as f64 / own)),
            memory(|bytes, _| format!("{:.0}", bytes as f64 / f64::from(1 << 20))),
            self.log_likelihood.map_or_else(String::new, |value| format!("{value:.9}")),
            self.seconds.len().to_string(),
            self.others.map_or_else(String::new, |share| format!("{share:.2}")),
            plain(note),
        ]
        .join(",")
    }
}

/// A checked command that will be timed.
pub(crate) struct Case {
    pub(crate) line: Line,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Folder of the program's and the driver's caches; made anew for each run if `cold`.
    pub(crate) caches: Option<PathBuf>,
    pub(crate) cold: bool,
    /// Reads the parts from the output.
    pub(crate) parts: fn(&Outcome) -> Parts,
}

impl Case {
    /// Runs the command once.
    ///
    /// # Errors
    /// If it fails, or the folder of caches cannot be made.
    pub(crate) fn run(&self, watched: bool) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if let Some(caches) = &self.caches {
            if self.cold && caches.exists() {
                std::fs::remove_dir_all(caches).with_context(|| format!("cannot remove {}", caches.display()))?;
            }
            for (variable, name) in [("CUDA_CACHE_PATH", "cuda"), ("GMM_CACHE_DIR", "gmm")] {
                let folder = caches.join(name);
                std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                command.env(variable, folder);
            }
        }
        child::run(&mut command, watched)
    }
}

/// Times all cases in turns, so that other activity on the machine affects all alike. A case whose runs have taken
/// `limits.seconds` in all has no further turn.
///
/// # Errors
/// If a command fails that did not when it was checked.
pub(crate) fn time(cases: &mut [Case], limits: Limits) -> Result<()> {
    for turn in 0..limits.repeats {
        for case in cases.iter_mut() {
            if turn == 0 || case.line.seconds.iter().sum::<f64>() < limits.seconds {
                let watch = Watch::begin(None);
                let outcome = case.run(false)?;
                let share = watch.others().unwrap_or(0.0).max(case.line.others.unwrap_or(0.0));
                case.line.others = Some(share);
                if share > DISTURBED {
                    case.line.status = Status::Disturbed;
                }
                case.line.seconds.push(outcome.seconds);
                case.line.parts.push((case.parts)(&outcome));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_field_for_every_column_also_with_commas_in_a_note() {
        let mut line = Line {
            what: "read".to_owned(),
            program: "gmm cuda:0,1".to_owned(),
            format: "npy".to_owned(),
            precision: Precision::F64,
            shape: Shape { n: 3, k: 2, d: 1 },
            status: Status::Ok,
            seconds: vec![0.3, 0.1, 0.2],
            parts: vec![Parts { read: Some(0.05), fit: None }],
            others: Some(0.05),
            memory: Some((3 << 20, f64::from(2 << 20))),
            log_likelihood: None,
            note: "one, two\nthree".to_owned(),
        };
        let first = "read npy f64: gmm cuda:0;1,read,gmm cuda:0;1,npy,f64,3,2,1,ok,";
        assert_eq!(line.text(), format!("{first}200.0,100.0,50.0,,1.50,3,,3,0.05,one; two;three"));
        assert_eq!(line.text().split(',').count(), COLUMNS.split(',').count());
        line = Line { seconds: Vec::new(), parts: Vec::new(), ..line }.without_time(Status::Wrong, "why");
        assert_eq!(line.text().split(',').count(), COLUMNS.split(',').count());
    }
}
