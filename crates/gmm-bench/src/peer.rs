//! A peer: another program in a child process that answers requests as JSON lines.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gmm_model::{Mixture, Precision};
use serde_json::{Value, json};

use crate::parameters::Parameters;
use crate::timing::Limits;

/// A running peer. The process ends when its stdin closes.
pub struct Peer {
    requests: ChildStdin,
    /// Lines of its stdout, read by a thread.
    answers: Receiver<std::io::Result<String>>,
    /// Timeout of an answer.
    patience: Duration,
    process: Child,
}

/// Timeout of start-up with all imports, and the default timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(600);

impl Peer {
    /// Starts `python script` with `threads` threads for its linear algebra.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(python: &Path, script: &Path, threads: usize) -> Result<Self> {
        let mut command = Command::new(python);
        command.arg(script);
        Self::spawn(command, python, threads)
    }

    /// Starts one of the peers of this crate's script: `scikit-learn`, `scikit-learn-cuda` (torch tensors on a GPU,
    /// through the array API), `gmmx`, `torch` or `torch-cuda` (torch's distributions, and EM written with torch),
    /// `numpy` or `cupy` (products only).
    ///
    /// # Errors
    /// If Python cannot be started, or lacks packages that the peer needs.
    pub fn named(python: &Path, name: &str, threads: usize) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", include_str!("peers.py"), name]);
        let mut peer = Self::spawn(command, python, threads)?;
        // Its first line reports whether all imports succeeded.
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
        // The thread ends with the process, or when the receiver is dropped.
        std::thread::spawn(move || lines.map(|line| said.send(line)).take_while(Result::is_ok).for_each(drop));
        Ok(Self { requests, answers, patience: PATIENCE, process })
    }

    /// Sets the timeout of an answer. A peer that exceeds it is killed, and further requests fail.
    pub(crate) fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Name and version, and those of the libraries that it uses.
    pub fn versions(&mut self) -> Result<String> {
        let answer = self.ask(&json!({"do": "versions"}))?;
        let field = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ok(format!("{} {}, {}", field("name"), field("version"), field("details")))
    }

    /// Makes the peer read an npy file and keep it in the given precision.
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

    /// Iterates for one turn; returns mean seconds per iteration.
    pub fn iterate(&mut self, limits: Limits) -> Result<f64> {
        seconds_of(&self.turn(json!({"do": "iterate"}), limits)?)
    }

    /// Scores all rows for one turn; returns mean seconds, and the sum of the log densities.
    pub fn score(&mut self, limits: Limits) -> Result<(f64, f64)> {
        let answer = self.turn(json!({"do": "score"}), limits)?;
        let seconds = seconds_of(&answer)?;
        Ok((seconds, answer["log_likelihood"].as_f64().context("the peer answered without a log-likelihood")?))
    }

    /// Fits all rows once from the start parameters; returns seconds, and the mean log-likelihood at the last E-step.
    /// If the peer has several implementations, `by` selects one: `sklearn`, or a device of gmm_rs.
    pub fn fit(&mut self, by: &str, max_iter: usize, threads: usize) -> Result<(f64, f64)> {
        let answer = self.ask(&json!({"do": "fit", "by": by, "max_iter": max_iter, "threads": threads}))?;
        let seconds = seconds_of(&answer)?;
        Ok((seconds, answer["lower_bound"].as_f64().context("the peer answered without a lower bound")?))
    }

    /// Makes the peer read the two factors of a product. Returns the variants that it can time besides the whole call:
    /// `resident` (A resident), `device` (no transfers).
    pub(crate) fn load_factors(&mut self, [a, b]: [&Path; 2], precision: Precision) -> Result<Vec<String>> {
        let answer = self.ask(&json!({"do": "factors", "a": a, "b": b, "dtype": dtype(precision)}))?;
        serde_json::from_value(answer["parts"].clone()).context("the peer answered without the list of its parts")
    }

    /// Multiplies for one turn; returns mean seconds. `part` is what is timed: `whole`, or one that
    /// [`load_factors`](Self::load_factors) returned.
    pub(crate) fn product(&mut self, part: &str, limits: Limits) -> Result<f64> {
        seconds_of(&self.turn(json!({"do": "product", "part": part}), limits)?)
    }

    /// Entries of the last product, at these rows and columns.
    pub(crate) fn entries(&mut self, places: &[(usize, usize)]) -> Result<Vec<f64>> {
        let answer = self.ask(&json!({"do": "entries", "places": places}))?;
        serde_json::from_value(answer["values"].clone()).context("the peer answered without entries")
    }

    fn turn(&mut self, mut request: Value, Limits { repeats, seconds }: Limits) -> Result<Value> {
        (request["at_most"], request["seconds"]) = (json!(repeats), json!(seconds));
        self.ask(&request)
    }

    /// The peer's current mixture.
    pub fn parameters(&mut self) -> Result<Parameters> {
        Ok(serde_json::from_value(self.ask(&json!({"do": "parameters"}))?)?)
    }

    fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.requests, "{request}").context("the peer has ended")?;
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
                // Errors are ignored: the process may just have ended by itself.
                let _ = self.process.kill();
                let _ = self.process.wait();
                bail!("the peer had not done {to} after {:.0} s, and was stopped", self.patience.as_secs_f64())
            }
        };
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("the peer answered {line:?}"))?;
        match answer.get("error") {
            Some(error) => bail!("the peer could not do {to}: {error}"),
            None => Ok(answer),
        }
    }
}

fn seconds_of(answer: &Value) -> Result<f64> {
    answer["seconds"].as_f64().context("the peer answered without a time")
}

/// NumPy's name of a precision.
const fn dtype(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "float32",
        Precision::F64 => "float64",
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Instant;

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
        let error = peer.fit("", 1, 0).unwrap_err().to_string();
        assert!(error.contains("\"fit\" after 0 s, and was stopped"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60));
        // The process has ended, so a further request fails at once.
        assert!(peer.fit("", 1, 0).is_err());
    }
}
