//! `scale`: EM iterations over rows in memory, over rows that pass through a GPU because they exceed its memory, and
//! over rows that several GPUs share.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use gmm_bench::parameters::Parameters;
use gmm_bench::record::{Csv, Facts};
use gmm_bench::source::Source;
use gmm_bench::{hardware, machine};
use gmm_host::{CpuEngine, CudaEngine, CudaGroup, EmOptions, EmRun, Engine, Fit, FitOptions, Init, fit, run_em, shift};
use gmm_model::{CovarianceType, Dataset, Matrix, Mixture, Precision, m_step, reference};

use crate::definition::Shape;

/// Distinct rows; the file repeats them. The reference's sums are exactly those of the distinct rows, times the number
/// of repetitions.
const DISTINCT: usize = 100_000;

/// Largest error of a parameter after one iteration, relative to the largest entry of its array: rows are f32.
const ALLOWED: f64 = 1e-5;

const COLUMNS: &str = "sweep,series,n,k,d,verdict,ms,floor_ms,gb_per_s,of_pinned,same_bits,error,path,anonymous_mib";

/// Times EM iterations over more and more rows, on several engines.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Engines, the first with all rows in memory: cpu, cpu:mapped, cuda:0, cuda:0@8 (8 GiB of device memory),
    /// cuda:0,1.
    #[arg(required = true)]
    engines: Vec<Target>,
    /// Numbers of rows: multiples of 100000.
    #[arg(long, value_delimiter = ';', default_value = "100000;1000000;10000000")]
    rows: Vec<usize>,
    /// Number of columns.
    #[arg(long, default_value_t = 16)]
    columns: usize,
    /// Number of components.
    #[arg(short, default_value_t = 16)]
    k: usize,
    /// Seconds of measuring per size and engine.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Number of restarts of a fit to time as well; 0 times none.
    #[arg(long, default_value_t = 0)]
    restarts: usize,
    /// Folder for the file of rows, which is removed at the end.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
    /// The .csv file to write, or the folder for MACHINE/scale-DATE.csv.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to name in the record, if the program runs outside the repository.
    #[arg(long)]
    commit: Option<String>,
    /// Seed of the data and of the start.
    #[arg(long, default_value_t = 4)]
    seed: u64,
}

/// An engine, and what it may hold.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    ordinals: Vec<usize>,
    /// Bytes of device memory.
    limit: Option<u64>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (device, limit) = text.split_once('@').map_or((text, None), |(device, limit)| (device, Some(limit)));
        let gib = |limit: &str| limit.parse().map(|gib: f64| (gib * f64::from(1 << 30)) as u64);
        let limit = limit.map(gib).transpose().map_err(|e| format!("{text}: {e}"))?;
        let ordinals = match device.strip_prefix("cuda:") {
            Some(list) => {
                list.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|e| format!("{text}: {e}"))?
            }
            None if matches!(device, "cpu" | "cpu:mapped") => Vec::new(),
            None => return Err(format!("{text} is not cpu, cpu:mapped, or cuda: and numbers")),
        };
        Ok(Self { name: text.to_owned(), ordinals, limit })
    }
}

impl Target {
    /// The engine, and bytes per second from pinned memory to the first device.
    fn open(&self) -> Result<(Box<dyn Engine>, Option<f64>)> {
        let engines = self.ordinals.iter().map(|&ordinal| CudaEngine::new(ordinal)).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = engines.first() else {
            let mapped = self.name == "cpu:mapped";
            return Ok((Box::new(if mapped { CpuEngine::without_copies(0)? } else { CpuEngine::new(0)? }), None));
        };
        let pinned = first.upload_rates(256 << 20)?.pinned;
        let limited = |engine: CudaEngine| match self.limit {
            Some(bytes) => engine.with_memory_limit(bytes),
            None => Ok(engine),
        };
        let mut engines = engines.into_iter().map(limited).collect::<Result<Vec<_>, _>>()?;
        let engine: Box<dyn Engine> =
            if engines.len() == 1 { Box::new(engines.remove(0)) } else { Box::new(CudaGroup::new(engines)?) };
        Ok((engine, Some(pinned)))
    }

    /// Its name in the record and the picture.
    fn series(&self) -> String {
        match (&self.ordinals[..], self.limit) {
            ([], _) if self.name == "cpu" => "CPU copied".to_owned(),
            ([], _) => "CPU mapped".to_owned(),
            (list, None) => format!("{} GPU", list.len()),
            (list, Some(bytes)) => format!("{} GPU {} GiB", list.len(), bytes as f64 / f64::from(1 << 30)),
        }
    }
}

/// Measures all sizes on all engines and writes the record.
///
/// # Errors
/// If an engine is not available, a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { engines, rows, columns: d, k, seconds, restarts, folder, out, commit, seed } = arguments;
    let source = Source::new(Shape { n: DISTINCT, k: *k, d: *d }, *seed)?;
    let start = source.start(CovarianceType::Full, false)?;
    let distinct = source.rows(DISTINCT, Precision::F32)?;
    let wanted = expected(&distinct, &start)?;
    let hardware = hardware::describe(engines[0].open()?.0.as_ref());
    let commit = commit.clone().unwrap_or_else(|| machine::commit(Path::new(".")));
    let list = |items: Vec<String>| items.join(" ");
    let command = format!(
        "scale {} --rows {} --columns {d} -k {k} --seconds {seconds} --restarts {restarts}",
        list(engines.iter().map(|target| target.name.clone()).collect()),
        rows.iter().map(ToString::to_string).collect::<Vec<_>>().join(";"),
    );
    let mut facts = Facts::new("milliseconds per EM iteration, float32 rows in a mapped file", commit, &command);
    facts.extend(hardware.facts);
    let mut record = Csv::create(out, &hardware.slug, &format!("scale-{}", machine::today()), &facts, COLUMNS)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("scale-{}.npy", std::process::id()));
    let mut wrong = 0;
    for &n in rows {
        let data = repeated(&distinct, n, &file)?;
        let (mut first, mut first_fit): (Option<Mixture>, Option<Fit>) = (None, None);
        for target in engines.iter().filter(|_| *restarts > 0) {
            let (fit, measured) = restarted(target, &data, &start, *restarts, first_fit.as_ref())?;
            let same = first_fit.as_ref().map(|first| first.mixture == fit.mixture);
            let line = measured.line("restarts", target, (n, *k, *d), same);
            println!("{line}");
            record.push(&line)?;
            wrong += usize::from(measured.error > ALLOWED);
            first_fit.get_or_insert(fit);
        }
        for target in engines {
            let measured = measure(target, &data, &start, &wanted, *seconds)?;
            let same = first.as_ref().map(|first| *first == measured.last);
            let line = measured.line("n", target, (n, *k, *d), same);
            println!("{line}");
            record.push(&line)?;
            wrong += usize::from(measured.error > ALLOWED);
            first.get_or_insert(measured.last);
        }
    }
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    ensure!(wrong == 0, "{wrong} answers were wrong");
    println!("{}", record.path().display());
    Ok(())
}

/// The parameters after one iteration, by the reference.
fn expected(distinct: &Dataset, start: &Mixture) -> Result<Parameters> {
    let rows = distinct.rows().to_f64();
    let statistics = reference::statistics(start, rows.view(), None);
    Ok(Parameters::of(&m_step(&statistics, REG_COVAR, Some(start))?.mixture))
}

const REG_COVAR: f64 = 1e-6;

/// Writes `n` rows that repeat the distinct ones to an npy file, and maps it.
fn repeated(distinct: &Dataset, n: usize, file: &Path) -> Result<Dataset> {
    ensure!(n.is_multiple_of(DISTINCT) && n > 0, "{n} is not a multiple of {DISTINCT}");
    let Matrix::F32(rows) = distinct.rows() else { return Err(anyhow!("the rows are f32")) };
    let bytes: Vec<u8> = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
    let written = File::create(file).and_then(|out| {
        let mut out = BufWriter::new(out);
        let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, {}), }}", rows.ncols());
        let len = (10 + head.len() + 1).next_multiple_of(64) - 10;
        out.write_all(b"\x93NUMPY\x01\x00")?;
        out.write_all(&u16::try_from(len).expect("a short head").to_le_bytes())?;
        out.write_all(format!("{head:<width$}\n", width = len - 1).as_bytes())?;
        (0..n / DISTINCT).try_for_each(|_| out.write_all(&bytes))?;
        out.flush()
    });
    written.with_context(|| format!("cannot write {}", file.display()))?;
    Ok(gmm_data::read_table(file, &gmm_data::ReadOptions::default())?.into_dataset()?)
}

/// What an engine did.
struct Measured {
    ms: f64,
    error: f64,
    pinned: Option<f64>,
    path: &'static str,
    anonymous_mib: f64,
    /// The mixture after three iterations.
    last: Mixture,
}

/// Checks one iteration, and times iterations for about so many seconds.
fn measure(target: &Target, data: &Dataset, start: &Mixture, wanted: &Parameters, seconds: f64) -> Result<Measured> {
    let (engine, pinned) = target.open()?;
    let mut rows = engine.load(data, Precision::F32, &shift::of_data(data))?;
    let mut iterate = |max_iter: usize| -> Result<(EmRun, f64)> {
        let options = EmOptions {
            tol: 0.0,
            max_iter,
            reg_covar: REG_COVAR,
            precision: Precision::F32,
            autotune: false,
            fast: false,
        };
        let began = Instant::now();
        let run = run_em(rows.as_mut(), start.clone(), &options, 0, &mut |_| ControlFlow::Continue(()))?;
        let wall = began.elapsed().as_secs_f64() / max_iter as f64;
        let seconds = run.on_device.map_or(wall, |on| on.time.as_secs_f64() / on.iterations as f64);
        Ok((run, seconds))
    };
    let (one, once) = iterate(1)?;
    let error = Parameters::of(&one.mixture).error(wanted);
    let last = iterate(3)?.0.mixture;
    let count = (seconds / once).clamp(2.0, 1000.0) as usize;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        best = best.min(iterate(count)?.1);
    }
    let path = one.on_device.map_or("host", |on| on.path);
    Ok(Measured { ms: 1e3 * best, error, pinned, path, anonymous_mib: anonymous_mib(), last })
}

/// Times a fit with restarts from random rows, in milliseconds per restart of 50 iterations. The error is that of the
/// best log-likelihood, against the first engine's.
fn restarted(
    target: &Target,
    data: &Dataset,
    start: &Mixture,
    restarts: usize,
    first: Option<&Fit>,
) -> Result<(Fit, Measured)> {
    let (engine, pinned) = target.open()?;
    let (init, k) = (Init::RandomRows, start.n_components());
    let options = FitOptions { n_init: restarts, init, max_iter: 50, tol: 0.0, ..FitOptions::new(k) };
    let fits = (0..3).map(|_| fit(engine.as_ref(), data, &options)).collect::<Result<Vec<_>, _>>()?;
    let best = fits.into_iter().min_by_key(|fit| fit.elapsed).expect("three fits");
    let value = |fit: &Fit| fit.summary.mean_log_likelihood;
    let error = first.map_or(0.0, |first| ((value(&best) - value(first)) / value(first)).abs());
    let ms = 1e3 * best.elapsed.as_secs_f64() / restarts as f64;
    let path = best.on_device.map_or("host", |on| on.path);
    let last = best.mixture.clone();
    Ok((best, Measured { ms, error, pinned, path, anonymous_mib: anonymous_mib(), last }))
}

/// Memory of the process that is not a file's, in MiB; 0 where the system does not say.
fn anonymous_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

impl Measured {
    /// The record's line, in the order of [`COLUMNS`]. The floor is that of rows that all pass through the bus.
    fn line(&self, sweep: &str, target: &Target, (n, k, d): (usize, usize, usize), same: Option<bool>) -> String {
        let bytes = (4 * n * d) as f64;
        let rate = bytes / self.ms * 1e3;
        let or_empty = |v: Option<String>| v.unwrap_or_default();
        let pinned = self.pinned.filter(|_| target.limit.is_some());
        [
            sweep.to_owned(),
            target.series(),
            format!("{n},{k},{d}"),
            if self.error <= ALLOWED { "ok" } else { "wrong" }.to_owned(),
            format!("{:.4}", self.ms),
            or_empty(pinned.map(|pinned| format!("{:.4}", 1e3 * bytes / pinned))),
            format!("{:.2}", rate / 1e9),
            or_empty(pinned.map(|pinned| format!("{:.3}", rate / pinned))),
            or_empty(same.map(|same| if same { "yes" } else { "no" }.to_owned())),
            format!("{:.1e}", self.error),
            self.path.to_owned(),
            format!("{:.0}", self.anonymous_mib),
        ]
        .join(",")
    }
}
