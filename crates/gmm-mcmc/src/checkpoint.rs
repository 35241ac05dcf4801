//! Checkpoints: a run as bytes, so that it can be stopped and resumed elsewhere with the same bits.

use std::collections::HashMap;

use gmm_host::{Data, Engine};
use gmm_model::Precision;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::refuse;
use crate::run::{Chain, Run, Stat};
use crate::{Error, Options, Prior, Sampler, Target};

/// The name of the format in the header of a checkpoint.
const FORMAT: &str = "gmm-mcmc-checkpoint";
/// Version 1 lacked the precision of the rows, version 2 the energies.
const VERSION: u64 = 3;
/// The oldest version that can be read.
const OLDEST: u64 = 2;
/// Number of statistics per draw.
const STATS: usize = 7;

/// Number of statistics per draw in a checkpoint of the given version.
const fn stats_in(version: u64) -> usize {
    if version < 3 { STATS - 1 } else { STATS }
}

/// The inputs on which the draws depend, besides options and prior.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    /// Identifies the data: see [`fingerprint`].
    pub fingerprint: u64,
    /// The precision in which the engine stores the rows.
    pub precision: Precision,
    /// The name of the engine, such as `cpu`.
    pub engine: String,
}

impl Basis {
    /// The basis of a likelihood of `data` on `engine` with the requested `precision`.
    ///
    /// Cost: one read of the data ([`Data::walk`]).
    ///
    /// # Errors
    /// As for [`fingerprint`].
    pub fn new<'a>(engine: &dyn Engine, data: impl Into<Data<'a>>, precision: Precision) -> Result<Self, Error> {
        let (precision, engine_name) = (engine.precision(precision), engine.name());
        Ok(Self { fingerprint: fingerprint(data)?, precision, engine: engine_name })
    }
}

/// A run together with its basis and its prior.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The run so far.
    pub run: Run,
    /// The inputs of the run.
    pub basis: Basis,
    /// The prior as JSON, with defaults filled in.
    prior: String,
}

/// The part of the header that all versions have.
#[derive(Deserialize)]
struct Stamp {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
    options: Options,
    prior: String,
    fingerprint: u64,
    precision: String,
    engine: String,
    steps: Vec<u64>,
    /// A hash of all numbers.
    checksum: u64,
}

impl Checkpoint {
    /// Combines a run with its prior and basis.
    pub fn new(run: Run, prior: &Prior, basis: Basis) -> Self {
        Self { run, basis, prior: as_json(prior) }
    }

    /// A warning if `basis` has another engine than the run was made on: further draws are equally valid, but differ in
    /// bits from those of the original engine.
    pub fn moved(&self, basis: &Basis) -> Option<String> {
        let (was, is) = (&self.basis.engine, &basis.engine);
        let text = || {
            format!(
                "the checkpoint was made by engine {was}, not {is}: further draws differ from those that {was} would make"
            )
        };
        (was != is).then(text)
    }

    /// The largest number of draws of a chain.
    pub fn most_draws(&self) -> usize {
        self.run.chains.iter().map(Chain::n_draws).max().unwrap_or(0)
    }

    /// Returns the run, to be continued with `options`. These may differ from the run's only in the number of draws,
    /// which must be at least that of every chain. Another engine is allowed: see [`moved`](Self::moved).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if data, precision, prior or options differ, naming the difference; [`Error::Option`] if
    /// `options` has fewer draws than a chain.
    pub fn resume(self, options: &Options, target: &Target, basis: &Basis) -> Result<Run, Error> {
        options.validate()?;
        let wrong = |why: String| Err(Error::Checkpoint(why));
        if self.basis.fingerprint != basis.fingerprint {
            return wrong("it was made from other rows: give the data that the run began with".to_owned());
        }
        if self.prior != as_json(target.prior()) {
            return wrong(other_prior(&self.prior, &as_json(target.prior())));
        }
        if self.basis.precision != basis.precision {
            return wrong(format!("it was made with precision {}, not {}", self.basis.precision, basis.precision));
        }
        let before = &self.run.options;
        let words = |o: &Options| {
            let Options { sampler, chains, warmup, thin, seed, target_accept, max_depth, draws: _ } = o;
            [
                ("sampler", sampler.name().to_owned()),
                ("chains", chains.to_string()),
                ("warmup", warmup.to_string()),
                ("thin", thin.to_string()),
                ("seed", seed.to_string()),
                ("target_accept", target_accept.to_string()),
                ("max_depth", max_depth.to_string()),
            ]
        };
        for ((name, was), (_, is)) in words(before).into_iter().zip(words(options)) {
            if was != is {
                return wrong(format!("it was made with {name} {was}, not {is}"));
            }
        }
        let most = self.most_draws();
        if most > options.draws {
            let must = format!("at least {most}, the draws of a chain in the checkpoint: draws are never discarded");
            return refuse("draws", options.draws, &must);
        }
        if self.run.chains.iter().any(|chain| chain.point.len() != target.dim()) {
            return wrong("its points have another length".to_owned());
        }
        Ok(Run { options: options.clone(), ..self.run })
    }

    /// The checkpoint as bytes: safetensors, with the options in the metadata. Preserves the bits of every number.
    pub fn to_bytes(&self) -> Vec<u8> {
        let options = self.run.options.clone();
        let steps = self.run.chains.iter().map(|chain| chain.steps).collect();
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            options,
            prior: self.prior.clone(),
            fingerprint: self.basis.fingerprint,
            precision: self.basis.precision.name().to_owned(),
            engine: self.basis.engine.clone(),
            steps,
            checksum: checksum(&self.run.chains, VERSION),
        };
        let header = serde_json::to_string(&header).expect("a plain structure");
        let parts: Vec<(String, Vec<u8>)> = self.run.chains.iter().enumerate().flat_map(parts).collect();
        let views = parts.iter().map(|(name, bytes)| {
            let view = TensorView::new(Dtype::F64, vec![bytes.len() / 8], bytes).expect("eight bytes a number");
            (name.as_str(), view)
        });
        serialize(views, Some(HashMap::from([("checkpoint".to_owned(), header)]))).expect("names are unique")
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the bytes are not a checkpoint, are damaged, or have an unsupported version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |why: String| Error::Checkpoint(why);
        let none = |why: &dyn std::fmt::Display| wrong(format!("truncated, corrupt, or of another kind: {why}"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| none(&e))?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get("checkpoint"));
        let header = header.ok_or_else(|| none(&"it has no header"))?;
        let Stamp { format, version } = serde_json::from_str(header).map_err(|e| none(&e))?;
        if format != FORMAT || !(OLDEST..=VERSION).contains(&version) {
            let why = format!("it is {format} {version}, but this program resumes {FORMAT} {VERSION}: start a new run");
            return Err(wrong(why));
        }
        let header: Header = serde_json::from_str(header).map_err(|e| none(&e))?;
        let precision = header.precision.parse().map_err(|e| none(&e))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| none(&e))?;
        let numbers = |chain: usize, part: &str| -> Result<Vec<f64>, Error> {
            let tensor = tensors.tensor(&format!("chain{chain}.{part}")).map_err(|e| none(&e))?;
            if tensor.dtype() != Dtype::F64 {
                return Err(none(&"numbers of another type"));
            }
            Ok(tensor.data().as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect())
        };
        let mut chains = Vec::new();
        for (i, &steps) in header.steps.iter().enumerate() {
            let stats = numbers(i, "stats")?.chunks_exact(stats_in(version)).map(stat).collect();
            let (point, tuning, points) = (numbers(i, "point")?, numbers(i, "tuning")?, numbers(i, "points")?);
            chains.push(Chain { point, steps, tuning, points, stats });
        }
        // Invalid options here mean damaged bytes, not an invalid request by the user.
        header.options.validate().map_err(|e| none(&e))?;
        let agree = chains.len() == header.options.chains && chains.iter().all(|c| agrees(c, &header.options));
        if !agree || checksum(&chains, version) != header.checksum {
            return Err(none(&"its parts disagree"));
        }
        let run = Run { options: header.options, chains };
        let basis = Basis { fingerprint: header.fingerprint, precision, engine: header.engine };
        Ok(Self { run, basis, prior: header.prior })
    }
}

/// Whether a chain's number of draws agrees with its steps, and, for NUTS, its tuning with the state of the warm-up.
fn agrees(chain: &Chain, options: &Options) -> bool {
    let (m, warmup, thin) = (chain.point.len(), options.warmup as u64, options.thin as u64);
    let drawn = chain.steps.saturating_sub(warmup);
    let tuned = match options.sampler {
        Sampler::Rwm => true,
        Sampler::Nuts if chain.steps == 0 => chain.tuning.is_empty(),
        Sampler::Nuts => chain.steps >= warmup && drawn.is_multiple_of(thin) && chain.tuning.len() == 1 + m,
    };
    tuned && chain.n_draws() as u64 == drawn / thin && chain.points.len() == chain.n_draws() * m
}

/// A hash of all numbers that a checkpoint of the given version contains.
fn checksum(chains: &[Chain], version: u64) -> u64 {
    let mut hash = Hash::new();
    for chain in chains {
        hash.add(chain.steps);
        let stats = chain.stats.iter().flat_map(|stat| numbers(stat).into_iter().take(stats_in(version)));
        let all = [&chain.point, &chain.tuning, &chain.points].into_iter().flatten().copied();
        all.chain(stats).for_each(|v| hash.add(v.to_bits()));
    }
    hash.0
}

/// FNV-1a over 64-bit words, with a rotation that moves high bits down.
pub(crate) struct Hash(pub(crate) u64);

impl Hash {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) const fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
}

fn as_json(prior: &Prior) -> String {
    serde_json::to_string(prior).expect("a plain structure")
}

/// Describes the first difference between two priors in JSON.
fn other_prior(was: &str, is: &str) -> String {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (was, is) = (parsed(was), parsed(is));
    let differs = |key: &&str| was[*key] != is[*key];
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match ["kind", "k", "concentration", "means", "scales"].into_iter().find(differs) {
        Some("kind") => format!("it was made with {} covariances, not {}", word(&was["kind"]), word(&is["kind"])),
        Some("k") => format!("it was made with {} components, not {}", was["k"], is["k"]),
        part => {
            let of = match part {
                Some("concentration") => " of the weights",
                Some("means") => " of the means",
                Some("scales") => " of the covariances",
                _ => "",
            };
            format!("it was made with another prior{of}: give the prior that the run began with")
        }
    }
}

fn parts((i, chain): (usize, &Chain)) -> [(String, Vec<u8>); 4] {
    let bytes = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let stats: Vec<f64> = chain.stats.iter().flat_map(numbers).collect();
    [("point", &chain.point), ("tuning", &chain.tuning), ("points", &chain.points), ("stats", &stats)]
        .map(|(name, values)| (format!("chain{i}.{name}"), bytes(values)))
}

fn numbers(s: &Stat) -> [f64; STATS] {
    let diverging = f64::from(u8::from(s.diverging));
    let energy = s.energy.unwrap_or(f64::NAN);
    [s.lp, s.acceptance_rate, diverging, s.n_steps.into(), s.step_size, s.tree_depth.into(), energy]
}

/// The statistics of a draw from its numbers; older versions lack the last one.
fn stat(numbers: &[f64]) -> Stat {
    let at = |i: usize| numbers.get(i).copied().unwrap_or(f64::NAN);
    let (n_steps, tree_depth) = (at(3) as u32, at(5) as u32);
    let energy = Some(at(6)).filter(|energy| !energy.is_nan());
    Stat { lp: at(0), acceptance_rate: at(1), diverging: at(2) != 0.0, n_steps, step_size: at(4), tree_depth, energy }
}

/// Identifies a data set: a hash of its shape, values (as `f64`) and row weights, equal for host and GPU memory.
///
/// Cost: one read of the data ([`Data::walk`]).
///
/// # Errors
/// None for rows on the host; for rows on a GPU as for [`Data::walk`].
pub fn fingerprint<'a>(data: impl Into<Data<'a>>) -> Result<u64, Error> {
    let data = data.into();
    let (n, d) = data.dim();
    let mut hash = Hash::new();
    hash.add(n as u64);
    hash.add(d as u64);
    data.walk_with_holes(&mut |first, rows| {
        for (i, row) in rows.outer_iter().enumerate() {
            row.iter().for_each(|v| hash.add(v.to_bits()));
            hash.add(data.weights().map_or(1.0, |weights| weights[first + i]).to_bits());
        }
    })?;
    Ok(hash.0)
}
