//! The other program: a child process that answers JSON lines.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gmm_model::{Mixture, Precision};
use serde_json::{Value, json};

use crate::parameters::Parameters;
use crate::row::{Row, digits, ms};
use crate::task::Turns;
use crate::timing::Limits;

/// A running peer. It ends when its stdin closes.
pub struct Peer {
    requests: ChildStdin,
    /// Its lines, as a thread reads them.
    answers: Receiver<std::io::Result<String>>,
    /// How long an answer is waited for.
    patience: Duration,
    process: Child,
}

/// What it takes at most to import what it needs, and each answer to who asks for no other.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long to iterate in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Iterations that are done in any case.
    pub at_least: usize,
    /// Iterations that are not exceeded.
    pub at_most: usize,
    /// Time after which no further iteration begins.
    pub seconds: f64,
}

impl Turn {
    /// Does `work` as often as the turn asks for: mean seconds.
    pub fn of(self, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
        let (mut seconds, mut times) = (0.0, 0);
        while times < self.at_least || (seconds < self.seconds && times < self.at_most) {
            let begin = Instant::now();
            work()?;
            seconds += begin.elapsed().as_secs_f64();
            times += 1;
        }
        Ok(seconds / times as f64)
    }
}

impl Peer {
    /// Starts `python script` with `threads` threads for its linear algebra.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(python: &Path, script: &Path, threads: usize) -> Result<Self> {
        let mut command = Command::new(python);
        command.arg(script);
        Self::spawn(command, python, threads)
    }

    /// Starts one of the peers that this crate has a script for: `scikit-learn`, `scikit-learn-cuda` (torch tensors on a GPU,
    /// by its array API), `gmmx`, `torch` or `torch-cuda` (its distributions, and EM written in it), `numpy` or `cupy` (products
    /// only).
    ///
    /// # Errors
    /// Where Python does not start, or lacks what the peer needs.
    pub fn named(python: &Path, name: &str, threads: usize) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", include_str!("peers.py"), name]);
        let mut peer = Self::spawn(command, python, threads)?;
        // Its first line says that it could import what it needs.
        peer.ready()?;
        Ok(peer)
    }

    fn spawn(mut command: Command, python: &Path, threads: usize) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        for variable in ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(variable, threads.to_string());
        }
        let mut process = command.spawn().with_context(|| format!("cannot start {}", python.display()))?;
        let requests = process.stdin.take().expect("piped");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let (said, answers) = channel();
        // It ends with the process, or where nobody listens any more.
        std::thread::spawn(move || lines.map(|line| said.send(line)).take_while(Result::is_ok).for_each(drop));
        Ok(Self { requests, answers, patience: PATIENCE, process })
    }

    /// From now on no answer is waited for longer than that: a peer that gives none is stopped, and is none any more.
    pub(crate) fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Name, version, and the libraries below it.
    pub fn versions(&mut self) -> Result<String> {
        let answer = self.ask(&json!({"do": "versions"}))?;
        let field = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ok(format!("{} {}, {}", field("name"), field("version"), field("details")))
    }

    /// Reads an npy file and holds it in the given precision.
    pub fn load(&mut self, path: &Path, precision: Precision) -> Result<()> {
        self.ask(&json!({"do": "load", "path": path, "dtype": dtype(precision)})).map(drop)
    }

    /// Sets the mixture from which iterations start.
    pub fn start_from(&mut self, mixture: &Mixture, reg_covar: f64) -> Result<()> {
        let Parameters { weights, means, covariances } = Parameters::of(mixture);
        self.ask(&json!({
            "do": "start",
            "kind": mixture.covariance_type().name(),
            "reg_covar": reg_covar,
            "weights": weights,
            "means": means,
            "covariances": covariances,
            "shape": mixture.covariances().shape(),
        }))
        .map(drop)
    }

    /// Iterates for one turn: mean seconds per iteration.
    pub fn iterate(&mut self, turn: Turn) -> Result<f64> {
        let answer = self.take_turn("iterate", turn)?;
        answer["seconds"].as_f64().context("the peer answered without a time")
    }

    /// Fits all rows once from the start: seconds, and the mean log-likelihood at the last E-step.
    ///
    /// # Errors
    /// Where it cannot.
    pub fn fit_once(&mut self, max_iter: usize) -> Result<(f64, f64)> {
        self.fit("", max_iter, 0)
    }

    /// Scores all rows for one turn: mean seconds, and the sum of the log densities.
    pub fn score(&mut self, turn: Turn) -> Result<(f64, f64)> {
        let answer = self.take_turn("score", turn)?;
        let seconds = answer["seconds"].as_f64().context("the peer answered without a time")?;
        Ok((seconds, answer["log_likelihood"].as_f64().context("the peer answered without a log-likelihood")?))
    }

    /// Fits all rows once from the start, by `sklearn`, or by gmm_rs on the device of that name: seconds, and the mean log-likelihood at the last
    /// E-step.
    pub fn fit(&mut self, by: &str, max_iter: usize, threads: usize) -> Result<(f64, f64)> {
        let answer = self.ask(&json!({"do": "fit", "by": by, "max_iter": max_iter, "threads": threads}))?;
        let seconds = answer["seconds"].as_f64().context("the peer answered without a time")?;
        Ok((seconds, answer["lower_bound"].as_f64().context("the peer answered without a lower bound")?))
    }

    /// Reads the two factors of a product, and says which parts of the way there it can leave out: `resident`, `device`.
    pub(crate) fn load_factors(&mut self, [a, b]: [&Path; 2], precision: Precision) -> Result<Vec<String>> {
        let answer = self.ask(&json!({"do": "factors", "a": a, "b": b, "dtype": dtype(precision)}))?;
        serde_json::from_value(answer["parts"].clone()).context("the peer did not say what it can leave out")
    }

    /// Multiplies for one turn: mean seconds. `part` is what is timed: `whole`, or one of those that it named.
    pub(crate) fn product(&mut self, part: &str, turn: Turn) -> Result<f64> {
        let Turn { at_least, at_most, seconds } = turn;
        let answer = self.ask(&json!({
            "do": "product", "part": part, "at_least": at_least, "at_most": at_most, "seconds": seconds,
        }))?;
        answer["seconds"].as_f64().context("the peer answered without a time")
    }

    /// Entries of the last product, by row and column.
    pub(crate) fn entries(&mut self, places: &[(usize, usize)]) -> Result<Vec<f64>> {
        let answer = self.ask(&json!({"do": "entries", "places": places}))?;
        serde_json::from_value(answer["values"].clone()).context("the peer answered without entries")
    }

    fn take_turn(&mut self, what: &str, turn: Turn) -> Result<Value> {
        let Turn { at_least, at_most, seconds } = turn;
        self.ask(&json!({"do": what, "at_least": at_least, "at_most": at_most, "seconds": seconds}))
    }

    /// The mixture that it has arrived at.
    pub fn parameters(&mut self) -> Result<Parameters> {
        Ok(serde_json::from_value(self.ask(&json!({"do": "parameters"}))?)?)
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.requests, "{request}").context("the peer is gone")?;
        self.answer(&request["do"])
    }

    fn ready(&mut self) -> Result<()> {
        self.answer(&json!("its imports")).map(drop)
    }

    fn answer(&mut self, to: &Value) -> Result<Value> {
        let line = match self.answers.recv_timeout(self.patience) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the peer ended without an answer to {to}; see its own message above")
            }
            Err(RecvTimeoutError::Timeout) => {
                // It may have ended by itself just now.
                let _ = self.process.kill();
                let _ = self.process.wait();
                bail!("the peer had not done {to} after {:.0} s, and was stopped", self.patience.as_secs_f64())
            }
        };
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("the peer said {line:?}"))?;
        match answer.get("error") {
            Some(error) => bail!("the peer could not do {to}: {error}"),
            None => Ok(answer),
        }
    }
}

/// NumPy's name.
const fn dtype(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "float32",
        Precision::F64 => "float64",
    }
}

/// A peer's fits or values in turns: `call` does one, or as many as take so many seconds, and gives mean seconds and a
/// log-likelihood per row.
pub(crate) struct PeerCalls<'a, F> {
    peer: &'a mut Peer,
    call: F,
    seconds: Vec<f64>,
}

/// Calls that are shorter are timed together for so many seconds.
pub(crate) const TOGETHER: f64 = 2e-3;

impl<'a, F: FnMut(&mut Peer, f64) -> Result<(f64, f64)>> PeerCalls<'a, F> {
    /// After a first call, which is noted with how far its answer is from ours. It may have compiled something, so it is no
    /// measurement.
    ///
    /// # Errors
    /// What the peer says.
    pub(crate) fn begin(peer: &'a mut Peer, mut call: F, ours: Option<f64>, row: &mut Row) -> Result<Self> {
        let (first, value) = call(peer, 0.0)?;
        row.first_ms = ms(first);
        row.log_likelihood = digits(value, 12);
        row.error = ours.and_then(|ours| digits(crate::check::relative(value, ours), 2));
        Ok(Self { peer, call, seconds: Vec::new() })
    }
}

impl<F: FnMut(&mut Peer, f64) -> Result<(f64, f64)>> Turns for PeerCalls<'_, F> {
    fn turn(&mut self, limits: Limits) -> Result<()> {
        let (began, mut done) = (Instant::now(), 0);
        while limits.more_in_turn(done, began) {
            self.seconds.push((self.call)(self.peer, TOGETHER)?.0);
            done += 1;
        }
        Ok(())
    }

    fn measured(&self) -> f64 {
        self.seconds.iter().sum()
    }

    fn finish(self: Box<Self>, _: Limits, row: &mut Row) -> Result<()> {
        row.time(self.seconds);
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_answer_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("peer.sh");
        std::fs::write(
            &script,
            "read line\necho '{\"name\": \"p\", \"version\": \"1\", \"details\": \"d\"}'\nread line\nexec sleep 600\n",
        )
        .unwrap();
        let mut peer = Peer::start(Path::new("sh"), &script, 1).unwrap();
        assert_eq!(peer.versions().unwrap(), "p 1, d");
        peer.wait_at_most(Duration::from_millis(200));
        let began = Instant::now();
        let error = peer.fit_once(1).unwrap_err().to_string();
        assert!(error.contains("\"fit\" after 0 s, and was stopped"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60));
        // It is gone: asking again is an error, and no wait.
        assert!(peer.fit_once(1).is_err());
    }
}
