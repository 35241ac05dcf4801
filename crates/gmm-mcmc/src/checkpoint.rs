//! A run as bytes, so that it can be stopped here and gone on with elsewhere, to the same bits.

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

/// The word by which a checkpoint says what it is.
const FORMAT: &str = "gmm-mcmc-checkpoint";
/// Version 1 did not say in which precision the rows were held, version 2 had no energies.
const VERSION: u64 = 3;
/// The oldest version that is read.
const OLDEST: u64 = 2;
/// Numbers of a draw beside its point.
const STATS: usize = 7;

/// The same in a checkpoint of this version.
const fn stats_in(version: u64) -> usize {
    if version < 3 { STATS - 1 } else { STATS }
}

/// What draws depend on beside options and prior.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    /// What the data were, see [`fingerprint`].
    pub fingerprint: u64,
    /// In which the engine held the rows.
    pub precision: Precision,
    /// The engine's name, such as `cpu`.
    pub engine: String,
}

impl Basis {
    /// That of a likelihood of `data` on `engine`, asked to hold them in `precision`.
    ///
    /// Cost: one walk through the rows ([`Data::walk`]).
    ///
    /// # Errors
    /// As for [`fingerprint`].
    pub fn new<'a>(engine: &dyn Engine, data: impl Into<Data<'a>>, precision: Precision) -> Result<Self, Error> {
        let (precision, engine_name) = (engine.precision(precision), engine.name());
        Ok(Self { fingerprint: fingerprint(data)?, precision, engine: engine_name })
    }
}

/// A run with what it belongs to: its basis, and the prior.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The run so far.
    pub run: Run,
    /// What it was made on.
    pub basis: Basis,
    /// The prior as JSON, defaults filled in.
    prior: String,
}

/// What the header of every version has.
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
    /// What a run's bytes are made of.
    pub fn new(run: Run, prior: &Prior, basis: Basis) -> Self {
        Self { run, basis, prior: as_json(prior) }
    }

    /// What to know before going on with the run on `basis`, on whose engine it was not made; the draws then are as good, but
    /// not to the bit those that it would have made there.
    pub fn moved(&self, basis: &Basis) -> Option<String> {
        let (was, is) = (&self.basis.engine, &basis.engine);
        let text = || {
            format!(
                "the checkpoint is of engine {was}, not {is}: draws from here on differ from those that {was} would make"
            )
        };
        (was != is).then(text)
    }

    /// Draws of the chain that has most of them.
    pub fn most_draws(&self) -> usize {
        self.run.chains.iter().map(Chain::n_draws).max().unwrap_or(0)
    }

    /// The run, to go on with it: asked for `options`, which may want more draws than before, or fewer if no chain has as many yet, and nothing else. Another engine
    /// is allowed, see [`moved`](Self::moved).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] where data, precision, prior or options are others, and which; [`Error::Option`] for fewer draws
    /// than a chain has.
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
            let must = format!("at least {most}, the draws of a chain that the checkpoint holds: none is thrown away");
            return refuse("draws", options.draws, &must);
        }
        if self.run.chains.iter().any(|chain| chain.point.len() != target.dim()) {
            return wrong("its points are of another length".to_owned());
        }
        Ok(Run { options: options.clone(), ..self.run })
    }

    /// The bytes: safetensors, with the options in their metadata. Every number is kept to the bit.
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
    /// [`Error::Checkpoint`] for bytes that are none, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |why: String| Error::Checkpoint(why);
        let none = |why: &dyn std::fmt::Display| wrong(format!("truncated, corrupt, or of another kind: {why}"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| none(&e))?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get("checkpoint"));
        let header = header.ok_or_else(|| none(&"it has no header"))?;
        let Stamp { format, version } = serde_json::from_str(header).map_err(|e| none(&e))?;
        if format != FORMAT || !(OLDEST..=VERSION).contains(&version) {
            let why = format!("it is {format} {version}, this program goes on from {FORMAT} {VERSION}: begin anew");
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
        // What is wrong with them is wrong with the bytes, not with what was asked for.
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

/// Whether a chain has as many draws as its steps leave, and NUTS what a warm-up gives it.
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

/// A hash of all numbers that a checkpoint of this version has.
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

/// FNV-1a over words, with a rotation that brings high bits down.
struct Hash(u64);

impl Hash {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    const fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
}

fn as_json(prior: &Prior) -> String {
    serde_json::to_string(prior).expect("a plain structure")
}

/// What differs first between two priors in JSON.
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

/// A draw's numbers, of which older versions lack the last.
fn stat(numbers: &[f64]) -> Stat {
    let at = |i: usize| numbers.get(i).copied().unwrap_or(f64::NAN);
    let (n_steps, tree_depth) = (at(3) as u32, at(5) as u32);
    let energy = Some(at(6)).filter(|energy| !energy.is_nan());
    Stat { lp: at(0), acceptance_rate: at(1), diverging: at(2) != 0.0, n_steps, step_size: at(4), tree_depth, energy }
}

/// A number that tells one data set from another: a hash of shape, values (as `f64`) and row weights, wherever they lie.
///
/// Cost: one walk through the rows ([`Data::walk`]).
///
/// # Errors
/// None for rows on the host; of rows on a GPU what [`Data::walk`] says.
pub fn fingerprint<'a>(data: impl Into<Data<'a>>) -> Result<u64, Error> {
    let data = data.into();
    let (n, d) = data.dim();
    let mut hash = Hash::new();
    hash.add(n as u64);
    hash.add(d as u64);
    data.walk(&mut |first, rows| {
        for (i, row) in rows.outer_iter().enumerate() {
            row.iter().for_each(|v| hash.add(v.to_bits()));
            hash.add(data.weights().map_or(1.0, |weights| weights[first + i]).to_bits());
        }
    })?;
    Ok(hash.0)
}
