//! One line of the results, as written to the record and as shown on the terminal.

use anyhow::Result;
use gmm_model::{CovarianceType, Precision};

use super::check::Errors;
use crate::definition::Shape;
use gmm_bench::flops;
use gmm_bench::spread::Spread;

/// Columns of the record.
pub(crate) const COLUMNS: &str = "what,workload,covariance,precision,n,k,d,verdict,ms,goal_ms,floor_ms,floor_share,\
     gflops,gbs,ms_min,ms_q1,ms_q3,ms_max,clock,wall_ms,samples,few,more,weight_error,first_error,second_error,\
     log_likelihood_error,offset_weight_error,offset_first_error,offset_second_error,offset_log_likelihood_error,\
     loop_error,loop_log_likelihood_error,checked_rows,effective_components,plan,note";

/// The operation that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// One iteration of EM.
    Em,
    /// k-means++ and Lloyd.
    Init,
    /// A fit of small data.
    Fit,
    /// A log-likelihood under one set of parameters.
    Likelihood,
    /// A query to a resident matrix.
    Product,
}

/// Times in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    /// The time to report.
    pub(crate) time: Spread,
    /// Its clock: `device` or `wall`.
    pub(crate) clock: &'static str,
    /// The median in wall-clock time.
    pub(crate) wall: f64,
    /// Number of measurements; 0 for an estimate.
    pub(crate) samples: usize,
    /// Iterations of the shorter and the longer run of a slope.
    pub(crate) iterations: Option<[usize; 2]>,
}

/// All results of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) what: What,
    pub(crate) name: String,
    pub(crate) kind: CovarianceType,
    pub(crate) precision: Precision,
    pub(crate) shape: Shape,
    /// Milliseconds; `None` if there is no goal, or it is for another size.
    pub(crate) goal_ms: Option<f64>,
    pub(crate) floor_ms: Option<f64>,
    /// Errors at the origin, at the offset, and of the loop.
    pub(crate) errors: [Option<Errors>; 3],
    /// Number of distinct rows that the reference summed.
    pub(crate) checked: Option<usize>,
    pub(crate) effective_components: Option<f64>,
    pub(crate) plan: Option<String>,
    pub(crate) note: String,
    /// Times, or why there are none.
    pub(crate) timed: std::result::Result<Timed, Failure>,
}

/// Why a line has no times.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The answer is wrong; the text describes its error.
    Wrong(String),
    /// There is no answer; the text is the engine's error.
    Error(String),
}

impl Line {
    /// A line without results.
    pub(crate) fn new(what: What, name: String, kind: CovarianceType, precision: Precision, shape: Shape) -> Self {
        Self {
            what,
            name,
            kind,
            precision,
            shape,
            goal_ms: None,
            floor_ms: None,
            errors: [None; 3],
            checked: None,
            effective_components: None,
            plan: None,
            note: String::new(),
            timed: Err(Failure::Error("not run".to_owned())),
        }
    }

    /// Fills the line by `fill`, which checks and then times. An error of `fill` is recorded in the line.
    pub(crate) fn filled(mut self, fill: impl FnOnce(&mut Self) -> Result<()>) -> Self {
        if let Err(why) = fill(&mut self) {
            self.timed = Err(Failure::Error(format!("{why:#}")));
        }
        self
    }

    /// Records the measured seconds and their clock.
    pub(crate) fn time(&mut self, clock: &'static str, seconds: Vec<f64>) {
        let (samples, time) = (seconds.len(), Spread::of(seconds));
        self.timed = Ok(Timed { time, clock, wall: time.median, samples, iterations: None });
    }

    /// Records the number of checked rows, and what is wrong, if anything. Returns whether the answer is right and may
    /// be timed.
    pub(crate) fn judge(&mut self, checked: usize, wrong: Option<String>) -> bool {
        self.checked = Some(checked);
        let right = wrong.is_none();
        if let Some(why) = wrong {
            self.timed = Err(Failure::Wrong(why));
        }
        right
    }

    /// `met` or `missed` if there is a goal, else `ok`; `wrong` or `error` if there is no time.
    pub(crate) fn verdict(&self) -> &'static str {
        match (&self.timed, self.goal_ms) {
            (Err(Failure::Wrong(_)), _) => "wrong",
            (Err(Failure::Error(_)), _) => "error",
            (Ok(_), None) => "ok",
            (Ok(timed), Some(goal)) if 1e3 * timed.time.median <= goal => "met",
            (Ok(_), Some(_)) => "missed",
        }
    }

    /// The floor divided by the time.
    fn floor_share(&self) -> Option<f64> {
        let timed = self.timed.as_ref().ok()?;
        Some(self.floor_ms? / (1e3 * timed.time.median))
    }

    /// Counted operations, and bytes of one read of the rows, in 1e9 per second.
    fn speeds(&self) -> Option<[f64; 2]> {
        let timed = self.timed.as_ref().ok().filter(|_| self.what == What::Em)?;
        let size = match self.precision {
            Precision::F32 => 4.0,
            Precision::F64 => 8.0,
        };
        let bytes = size * self.shape.n as f64 * self.shape.d as f64;
        Some([flops::per_iteration(self.kind, self.shape), bytes].map(|all| all / timed.time.median / 1e9))
    }

    /// One line of the file, in the order of [`COLUMNS`].
    pub(crate) fn fields(&self) -> Vec<String> {
        let decimals = |v: Option<f64>, decimals: usize| v.map_or_else(String::new, |v| format!("{v:.decimals$}"));
        let count = |v: Option<usize>| v.map_or_else(String::new, |v| v.to_string());
        let error = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.2e}"));
        let plain = |text: &str| text.replace(',', " ").replace('\n', "; ");
        let timed = self.timed.as_ref().ok();
        let ms = |of: fn(&Spread) -> f64| decimals(timed.map(|timed| 1e3 * of(&timed.time)), 5);
        let Shape { n, k, d } = self.shape;
        let what = match self.what {
            What::Em => "em",
            What::Init => "init",
            What::Fit => "fit",
            What::Likelihood => "likelihood",
            What::Product => "product",
        };
        // Products have no covariance kind.
        let kind = if self.what == What::Product { String::new() } else { self.kind.to_string() };
        let mut fields = vec![what.to_owned(), self.name.clone(), kind, self.precision.to_string()];
        fields.extend([n, k, d].map(|size| size.to_string()));
        fields.push(self.verdict().to_owned());
        fields.push(ms(|time| time.median));
        fields.extend([decimals(self.goal_ms, 3), decimals(self.floor_ms, 3), decimals(self.floor_share(), 4)]);
        let speeds = self.speeds();
        fields.extend([decimals(speeds.map(|s| s[0]), 1), decimals(speeds.map(|s| s[1]), 1)]);
        fields.extend([ms(|t| t.min), ms(|t| t.quartiles[0]), ms(|t| t.quartiles[1]), ms(|t| t.max)]);
        fields.push(timed.map_or_else(String::new, |timed| timed.clock.to_owned()));
        fields.push(decimals(timed.map(|timed| 1e3 * timed.wall), 5));
        fields.push(count(timed.map(|timed| timed.samples)));
        let iterations = timed.and_then(|timed| timed.iterations);
        fields.extend([count(iterations.map(|i| i[0])), count(iterations.map(|i| i[1]))]);
        for errors in &self.errors[..2] {
            fields.extend([error(errors.map(|e| e.weight)), error(errors.map(|e| e.first))]);
            fields.extend([error(errors.map(|e| e.second)), error(errors.map(|e| e.log_likelihood))]);
        }
        let looped = self.errors[2];
        fields.extend([error(looped.map(|e| e.sums())), error(looped.map(|e| e.log_likelihood))]);
        fields.extend([count(self.checked), decimals(self.effective_components, 2)]);
        fields.push(plain(self.plan.as_deref().unwrap_or_default()));
        let note = match &self.timed {
            Err(Failure::Wrong(why) | Failure::Error(why)) => why,
            Ok(_) => &self.note,
        };
        fields.push(plain(note));
        fields
    }

    /// The table's heading.
    pub(crate) fn heading() -> String {
        let first = format!("{:<18} {:>10} {:>17} {:>8} {:>8}", "workload", "ms", "quartiles", "goal", "floor");
        format!("{first} {:>8} {:>7}  {:>8} {:>8} {:>8}  verdict", "GFLOP/s", "GB/s", "sums", "offset", "ln L")
    }

    /// One line of the table.
    pub(crate) fn shown(&self) -> String {
        let name = &self.name;
        let timed = match &self.timed {
            Ok(timed) => timed,
            Err(Failure::Wrong(why)) => return format!("{name:<18} WRONG: {why}"),
            Err(Failure::Error(why)) => return format!("{name:<18} ERROR: {why}"),
        };
        let or_dash = |v: Option<String>| v.unwrap_or_else(|| "-".to_owned());
        let [q1, q3] = timed.time.quartiles.map(|q| 1e3 * q);
        let error = |e: Option<f64>| or_dash(e.map(|e| format!("{e:.1e}")));
        let speeds = self.speeds();
        let looped = self.errors[2];
        // The loop has one error for both places; a pass has one for each.
        let log_likelihoods = self.errors.iter().flatten().map(|e| e.log_likelihood).reduce(f64::max);
        let sums = self.errors[0].or(looped).map(|e| e.sums());
        let clock = if timed.clock == "device" { ' ' } else { '*' };
        format!(
            "{name:<18} {:>9.4}{clock} {:>17} {:>8} {:>8} {:>8} {:>7}  {:>8} {:>8} {:>8}  {}{}{}",
            1e3 * timed.time.median,
            format!("{q1:.4}-{q3:.4}"),
            or_dash(self.goal_ms.map(|goal| format!("{goal:.2}"))),
            or_dash(self.floor_share().map(|share| format!("{:.1}%", 100.0 * share))),
            or_dash(speeds.map(|s| format!("{:.0}", s[0]))),
            or_dash(speeds.map(|s| format!("{:.0}", s[1]))),
            error(sums),
            error(self.errors[1].map(|e| e.sums())),
            error(log_likelihoods),
            self.verdict(),
            if self.note.is_empty() { "" } else { "; " },
            self.note,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_field_for_every_column() {
        let timed = Timed { time: Spread::of(vec![1e-3]), clock: "wall", wall: 1e-3, samples: 1, iterations: None };
        for timed in [Ok(timed), Err(Failure::Wrong("a, b".to_owned()))] {
            let line = Line {
                what: What::Em,
                name: "W1-full-f32".to_owned(),
                kind: CovarianceType::Full,
                precision: Precision::F32,
                shape: Shape { n: 10, k: 2, d: 3 },
                goal_ms: Some(2.0),
                floor_ms: Some(0.5),
                errors: [Some(Errors::default()), None, None],
                checked: Some(5),
                effective_components: Some(1.5),
                plan: Some("chunk=1,blocks=2".to_owned()),
                note: String::new(),
                timed,
            };
            let fields = line.fields();
            assert_eq!(fields.join(",").split(',').count(), COLUMNS.split(',').count(), "{fields:?}");
            assert_eq!(line.verdict(), if line.timed.is_ok() { "met" } else { "wrong" });
        }
    }
}
