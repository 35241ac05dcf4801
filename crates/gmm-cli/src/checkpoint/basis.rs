//! What the result of a fit depends on besides its state: options, data and engine. A resumed fit must have the same.

use anyhow::Context;
use gmm_host::{Device, EmRun, Engine, Error, FitOptions, Init, NoiseOptions, NoiseStart};
use gmm_model::{CovarianceModel, Dataset, Precision};
use serde::{Deserialize, Serialize};

use super::Saved;
use crate::args::EngineArgs;
use crate::exit::Failure;
use crate::fit::rule::RuleArgs;
use crate::output::Console;

/// The version of this program.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// What a checkpoint was made with.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Basis {
    /// Version of the program.
    program: String,
    pub(crate) fit: FitRecord,
    rows: usize,
    columns: usize,
    /// Precision of the values, before that of the engine.
    values: String,
    /// A hash of shape, values and row weights in hexadecimal, and one of the first rows of the files if there are
    /// several, since sums are taken per file. JSON's numbers cannot hold 64 bits everywhere.
    fingerprint: String,
    /// Name of the engine, as `--device` takes it.
    engine: String,
    /// Threads and instruction set, or the GPU and its module.
    hardware: String,
    /// Number of CPU threads.
    threads: usize,
}

/// The options of a fit as a checkpoint holds them.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct FitRecord {
    pub(crate) k: usize,
    covariance: String,
    /// As given on the command line: a method or a file.
    pub(crate) init: String,
    n_init: usize,
    init_rows: Option<usize>,
    tol: f64,
    max_iter: usize,
    reg_covar: f64,
    seed: u64,
    precision: Option<String>,
    fast: bool,
    autotune: bool,
    #[serde(default)]
    pub(crate) rule: RuleArgs,
    /// The column of labels.
    #[serde(default)]
    pub(crate) labels: Option<String>,
}

impl FitRecord {
    pub(crate) fn new(options: &FitOptions, init: &str) -> Self {
        Self {
            k: options.n_components,
            covariance: options.covariance().to_string(),
            init: init.to_owned(),
            n_init: options.n_init,
            init_rows: options.init_rows,
            tol: options.tol,
            max_iter: options.max_iter,
            reg_covar: options.reg_covar,
            seed: options.seed,
            precision: options.precision.map(|p| p.name().to_owned()),
            fast: options.fast,
            autotune: options.autotune,
            rule: RuleArgs::default(),
            labels: None,
        }
    }

    /// The same with a rule, and the column of labels.
    pub(crate) fn with_rule(self, rule: &RuleArgs, labels: Option<&str>) -> Self {
        Self { rule: rule.clone(), labels: labels.map(str::to_owned), ..self }
    }

    /// The options. A fit that began with a given mixture gets that of `run` in its place, and its noise: it is past its start.
    ///
    /// # Errors
    /// Errors if a word is unknown, in a file of a later version.
    pub(crate) fn options(&self, run: &EmRun) -> anyhow::Result<FitOptions> {
        let precision: Option<Precision> = self.precision.as_deref().map(str::parse).transpose()?;
        let covariance: CovarianceModel = self.covariance.parse()?;
        let init = self.init.parse().unwrap_or_else(|_| Init::Given(Box::new(run.mixture.clone())));
        let mut rule = self.rule.rule(covariance.kind, self.k)?;
        if let Some(noise) = run.noise.clone().filter(|_| rule.noise.is_none()) {
            rule.noise = Some(NoiseOptions { start: NoiseStart::Given(Box::new(noise)), log_volume: None });
        }
        Ok(FitOptions {
            init,
            n_init: self.n_init,
            init_rows: self.init_rows,
            tol: self.tol,
            max_iter: self.max_iter,
            reg_covar: self.reg_covar,
            seed: self.seed,
            precision,
            fast: self.fast,
            autotune: self.autotune,
            rule,
            ..FitOptions::new(self.k)
        }
        .with_covariance(covariance))
    }

    /// Each option that the result depends on, other than the limits: its identifier, its name, and its value.
    fn words(&self) -> [(&'static str, &'static str, String); 9] {
        let rows = |rows: usize| if rows == usize::MAX { "all".to_owned() } else { rows.to_string() };
        let precision = if self.fast { Some("fast") } else { self.precision.as_deref() };
        [
            ("k", "-k", self.k.to_string()),
            ("covariance", "--covariance", self.covariance.clone()),
            ("init", "--init", self.init.clone()),
            ("init_rows", "--init-rows", self.init_rows.map_or("the default".to_owned(), rows)),
            ("reg_covar", "--reg-covar", self.reg_covar.to_string()),
            ("seed", "--seed", self.seed.to_string()),
            ("precision", "--precision", precision.unwrap_or("that of the data").to_owned()),
            ("autotune", "--autotune", self.autotune.to_string()),
            ("labels", "--labels", self.labels.clone().unwrap_or_else(|| "no column".to_owned())),
        ]
    }
}

impl Basis {
    /// What a fit that begins now is made with; `labels` are the known components. Cost: one read of the data.
    ///
    /// # Errors
    /// None for rows on the host.
    pub(crate) fn new(
        fit: FitRecord,
        (data, labels): (&Dataset, Option<&[Option<usize>]>),
        engine: &dyn Engine,
        threads: usize,
    ) -> anyhow::Result<Self> {
        let (rows, columns) = data.rows().dim();
        Ok(Self {
            program: PROGRAM.to_owned(),
            fit,
            rows,
            columns,
            values: data.rows().precision().name().to_owned(),
            fingerprint: fingerprint(data, labels)?,
            engine: engine.name(),
            hardware: engine.description(),
            threads,
        })
    }
}

fn fingerprint(data: &Dataset, labels: Option<&[Option<usize>]>) -> anyhow::Result<String> {
    let values = gmm_mcmc::fingerprint(data)?;
    // FNV-1a over the numbers.
    let hashed = |hash: Option<u64>, start: u64| {
        Some((hash.unwrap_or(0xcbf2_9ce4_8422_2325) ^ start).wrapping_mul(0x100_0000_01b3))
    };
    let files = data.parts().skip(1).map(|rows| rows.start as u64).fold(None, hashed);
    let labels = labels.and_then(|all| all.iter().map(|c| c.map_or(0, |c| c as u64 + 1)).fold(None, hashed));
    let errors = data.measurement_errors().and_then(|errors| {
        let measured = errors.views().map(|views| views.measured().iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        let values = errors.covariances().values();
        values.iter().map(|v| v.to_bits()).chain(measured.into_iter().flatten()).fold(None, hashed)
    });
    let limits = data.limits().and_then(|limits| {
        let (low, high) = limits.truncation().unwrap_or_default();
        let rows = (0..data.n_rows()).map(|row| limits.row(row)).flat_map(|(low, high)| [low, high]);
        let values = rows.flat_map(|ends| ends.to_vec()).chain(low.iter().chain(high).copied());
        values.map(f64::to_bits).fold(None, hashed)
    });
    let further = files.map(|hash| format!("-{hash:016x}")).into_iter();
    let further = further.chain(labels.map(|hash| format!("-labels-{hash:016x}")));
    let further = further.chain(errors.map(|hash| format!("-errors-{hash:016x}")));
    let further = further.chain(limits.map(|hash| format!("-limits-{hash:016x}")));
    Ok(format!("{values:016x}{}", further.collect::<String>()))
}

impl Saved {
    /// The options to continue with: those of the checkpoint, and the limits `--n-init`, `--max-iter` and `--tol` if
    /// they are among the options that the user `given`.
    ///
    /// # Errors
    /// [`Failure::Usage`] if another given option differs from that of the checkpoint.
    pub(crate) fn options(&self, asked: &FitRecord, given: &[String]) -> anyhow::Result<FitOptions> {
        let is_given = |id: &str| given.iter().any(|name| name == id);
        for ((id, flag, was), (_, _, is)) in self.basis.fit.words().into_iter().zip(asked.words()) {
            if is_given(id) {
                self.agree(flag, &was, &is)?;
            }
        }
        if asked.rule != RuleArgs::default() && asked.rule != self.basis.fit.rule {
            let file = self.display();
            let why = format!(
                "{file} was made with another prior, floor, noise or truncated EM, or other fixed or shared parts: leave these \
                 options out, or begin a new fit without --resume"
            );
            return Err(Failure::Usage(why).into());
        }
        let any = self.state.running.as_ref().or(self.state.best.as_ref()).expect("a checkpoint has a run");
        let mut options = self.basis.fit.options(&any.run).with_context(|| self.display())?;
        if is_given("n_init") {
            options.n_init = asked.n_init;
        }
        if is_given("max_iter") {
            options.max_iter = asked.max_iter;
        }
        if is_given("tol") {
            options.tol = asked.tol;
        }
        if !options.init.is_deterministic(self.basis.rows, options.n_components, options.init_rows)
            && options.n_init < self.state.begun
        {
            let (file, begun) = (self.display(), self.state.begun);
            let why = format!("--n-init {}, but {file} has begun {begun}, and none is undone", options.n_init);
            return Err(Failure::Usage(why).into());
        }
        Ok(options)
    }

    /// The engine to continue on: that of the checkpoint, with as many threads.
    ///
    /// # Errors
    /// [`Failure::Usage`] if another device, or for the CPU another number of threads, was asked for.
    pub(crate) fn engine(&self, asked: &EngineArgs) -> anyhow::Result<EngineArgs> {
        let Basis { engine, threads, .. } = &self.basis;
        let device: Device = engine.parse().with_context(|| self.display())?;
        if asked.device != Device::Auto && asked.device != device {
            self.agree("--device", engine, &asked.device.to_string())?;
        }
        if asked.threads != 0 && device == Device::Cpu {
            self.agree("--threads", &threads.to_string(), &asked.threads.to_string())?;
        }
        Ok(asked.on(device, *threads))
    }

    /// Checks that data and engine are those of the checkpoint; warns if another version of the program made it.
    ///
    /// # Errors
    /// [`Failure::BadData`] if the data differ; [`Error::Device`] if the hardware does.
    pub(crate) fn check(&self, now: &Basis, console: &Console) -> anyhow::Result<()> {
        let (file, was) = (self.display(), &self.basis);
        let shape = |basis: &Basis| format!("{} × {} ({})", basis.rows, basis.columns, basis.values);
        let again = "give the file, --columns and --weights that the fit began with";
        if shape(was) != shape(now) {
            let why = format!("{file} was made from {} values, not {}: {again}", shape(was), shape(now));
            return Err(Failure::BadData(why).into());
        }
        if was.fingerprint != now.fingerprint {
            let (was, now) = (&was.fingerprint, &now.fingerprint);
            let why = format!(
                "{file} was made from other rows, weights, labels or files (fingerprint {was}, not {now}): {again}"
            );
            return Err(Failure::BadData(why).into());
        }
        let machine = |basis: &Basis| format!("{} ({})", basis.engine, basis.hardware);
        if machine(was) != machine(now) {
            let why = format!(
                "{file} was made on {}, not {}, which rounds differently: --init {file} continues from its mixture",
                machine(was),
                machine(now)
            );
            return Err(Error::Device(why).into());
        }
        if was.program != now.program {
            let (was, now) = (&was.program, &now.program);
            console
                .warn(&format!("{file} was made by version {was}, this is {now}: the result may differ in rounding"));
        }
        Ok(())
    }

    /// # Errors
    /// [`Failure::Usage`] if the values differ.
    fn agree(&self, flag: &str, was: &str, is: &str) -> Result<(), Failure> {
        if was == is {
            return Ok(());
        }
        let file = self.display();
        Err(Failure::Usage(format!(
            "{file} was made with {flag} {was}, not {is}: leave {flag} out, or begin a new fit without --resume"
        )))
    }
}
