//! The record: a table on the terminal, and a CSV that stays.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::ceiling::Ceiling;
use crate::contest::{DISTURBED, Outcome, Times};
use crate::flops;
use crate::machine::{Machine, today};
use crate::spread::Spread;

const COLUMNS: &str = "precision,covariance,n,k,d,status,ms,ms_min,ms_max,peer_ms,peer_ms_min,peer_ms_max,\
                       ratio,ratio_min,ratio_max,gflops,ceiling_share,error,peer_error,disagreement,\
                       effective_components,pairs,others";

/// What a record says before its rows.
pub(crate) struct Header<'a> {
    /// What is measured, and beside what.
    pub(crate) what: &'a str,
    pub(crate) machine: &'a Machine,
    pub(crate) commit: String,
    pub(crate) command: &'a str,
    pub(crate) threads: usize,
    pub(crate) engine: String,
    pub(crate) peer: String,
}

impl Header<'_> {
    /// Comment lines, one fact each.
    pub(crate) fn lines(&self) -> String {
        let Machine { processor, cores, flags, system, compiler, load, .. } = self.machine;
        let facts = [
            ("what", format!("{}; see benches/README.md", self.what)),
            ("date", today()),
            ("commit", self.commit.clone()),
            ("command", self.command.to_owned()),
            ("processor", format!("{processor}, {cores} cores")),
            ("instructions", flags.clone()),
            ("system", format!("{system}, load {load}")),
            ("compiler", compiler.clone()),
            ("threads", self.threads.to_string()),
            ("ours", self.engine.clone()),
            ("peer", self.peer.clone()),
        ];
        facts.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "# {name}: {value}");
            text
        })
    }
}

/// Rows as they come.
#[derive(Default)]
pub(crate) struct Record {
    outcomes: Vec<Outcome>,
}

impl Record {
    /// Heads the table on the terminal.
    pub(crate) fn print_heading() {
        let first = format!("{:4} {:9} {:>7} {:>3} {:>3} {:>9} {:>10}", "", "", "n", "k", "d", "ours ms", "sklearn ms");
        let then = format!("{:>7} {:>15} {:>8} {:>8} {:>8}", "ratio", "(min - max)", "GFLOP/s", "ceiling", "error");
        println!("{first} {then} {:>8} {:>7}", "peer's", "others");
    }

    /// Takes an outcome, and shows it.
    pub(crate) fn push(&mut self, outcome: Outcome, ceiling: &Ceiling) {
        println!("{}", shown(&outcome, ceiling));
        self.outcomes.push(outcome);
    }

    /// Rows whose answer was wrong.
    pub(crate) fn wrong(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.times.is_none()).count()
    }

    /// Writes `below/MACHINE/DATE-cpu.csv`, or `DATE-cpu-2.csv` and so on: no record is ever overwritten.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) fn write(&self, header: &Header<'_>, ceilings: [Ceiling; 2], below: &Path) -> Result<PathBuf> {
        let [before, after] = ceilings;
        let mut text = header.lines();
        let _ = writeln!(text, "# ceiling before: {before}\n# ceiling after: {after}\n{COLUMNS}");
        for outcome in &self.outcomes {
            let _ = writeln!(text, "{}", fields(outcome, &before.better(after)).join(","));
        }
        keep(below, header.machine, "cpu", &text)
    }
}

/// Writes `below/MACHINE/DATE-NAME.csv`, or with `-2` and so on: no record is ever overwritten.
///
/// # Errors
/// Where it cannot be written.
pub(crate) fn keep(below: &Path, machine: &Machine, name: &str, text: &str) -> Result<PathBuf> {
    let path = gmm_bench::record::new_path(below, &machine.slug, &format!("{}-{name}", today()))?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// GFLOP/s and their share of the ceiling, where there are times and a ceiling.
fn speed(outcome: &Outcome, ceiling: &Ceiling) -> (Option<f64>, Option<f64>) {
    let operations = flops::per_iteration(outcome.kind, outcome.shape);
    let gflops = outcome.times.map(|times| operations / times.ours.median / 1e9);
    (gflops, gflops.zip(ceiling.of(outcome.precision)).map(|(gflops, top)| gflops / top))
}

/// One line of the table on the terminal.
fn shown(outcome: &Outcome, ceiling: &Ceiling) -> String {
    let Outcome { shape, kind, precision, error, peer_error, disagreement, .. } = outcome;
    let key = format!("{precision:4} {kind:9} {:>7} {:>3} {:>3}", shape.n, shape.k, shape.d);
    let Some(Times { ours, peer, ratio, others }) = outcome.times else {
        return format!("{key} WRONG: error {error:.1e}, the peer's {peer_error:.1e}, disagreement {disagreement:.1e}");
    };
    let (gflops, share) = speed(outcome, ceiling);
    format!(
        "{key} {:>9.2} {:>10.2} {:>6.1}x {:>15} {:>8.1} {:>8} {error:>8.0e} {peer_error:>8.0e} {:>6.0}%",
        1e3 * ours.median,
        1e3 * peer.median,
        ratio.median,
        format!("({:.1} - {:.1})", ratio.min, ratio.max),
        gflops.unwrap_or_default(),
        share.map_or_else(String::new, |share| format!("{:.0}%", 100.0 * share)),
        100.0 * others,
    )
}

/// One line of the file, in the order of [`COLUMNS`].
fn fields(outcome: &Outcome, ceiling: &Ceiling) -> Vec<String> {
    let Outcome { shape, kind, precision, .. } = outcome;
    let status = match outcome.times {
        None => "wrong",
        Some(times) if times.others > DISTURBED => "disturbed",
        Some(_) => "ok",
    };
    let mut fields = vec![precision.to_string(), kind.to_string()];
    fields.extend([shape.n, shape.k, shape.d].map(|size| size.to_string()));
    fields.push(status.to_owned());
    let decimals = |value: Option<f64>, decimals: usize| value.map_or_else(String::new, |v| format!("{v:.decimals$}"));
    let pick = |of: fn(&Times) -> Spread| outcome.times.as_ref().map(of);
    for (spread, scale, digits) in [(pick(|t| t.ours), 1e3, 4), (pick(|t| t.peer), 1e3, 4), (pick(|t| t.ratio), 1.0, 3)]
    {
        fields.extend(
            [spread.map(|s| s.median), spread.map(|s| s.min), spread.map(|s| s.max)]
                .map(|v| decimals(v.map(|v| scale * v), digits)),
        );
    }
    let (gflops, share) = speed(outcome, ceiling);
    fields.extend([decimals(gflops, 2), decimals(share, 3)]);
    fields.extend([outcome.error, outcome.peer_error, outcome.disagreement].map(|error| format!("{error:.1e}")));
    fields.extend([format!("{:.2}", outcome.effective_components), outcome.pairs.to_string()]);
    fields.push(decimals(outcome.times.map(|times| times.others), 2));
    fields
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, Precision};

    use super::*;
    use crate::definition::Shape;

    fn outcome(times: Option<Times>) -> Outcome {
        Outcome {
            shape: Shape { n: 10, k: 2, d: 3 },
            kind: CovarianceType::Full,
            precision: Precision::F64,
            pairs: 1,
            effective_components: 1.5,
            error: 1e-12,
            peer_error: 1e-13,
            disagreement: 1e-12,
            times,
        }
    }

    #[test]
    fn every_line_has_a_field_for_every_column() {
        let spread = Spread::of(vec![0.25]);
        let times = Times { ours: spread, peer: spread, ratio: Spread::of(vec![1.0]), others: 0.0 };
        for times in [None, Some(times)] {
            let fields = fields(&outcome(times), &Ceiling::default());
            assert_eq!(fields.len(), COLUMNS.split(',').count(), "{fields:?}");
        }
    }
}
