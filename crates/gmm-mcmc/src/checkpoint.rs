//! A run as bytes, so that it can be stopped here and gone on with elsewhere, to the same bits.

use std::collections::HashMap;

use gmm_host::Data;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};

use crate::run::{Chain, Run, Stat};
use crate::{Error, Options, Prior, Sampler, Target};

/// The word by which a checkpoint says what it is.
const FORMAT: &str = "gmm-mcmc-checkpoint";
const VERSION: u64 = 1;
/// Numbers of a draw beside its point.
const STATS: usize = 6;

/// A run with what it belongs to: the data, by their fingerprint, and the prior.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The run so far.
    pub run: Run,
    /// What the data were, see [`fingerprint`].
    pub fingerprint: u64,
    /// The prior as JSON, defaults filled in.
    prior: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
    options: Options,
    prior: String,
    fingerprint: u64,
    steps: Vec<u64>,
    /// A hash of all numbers.
    checksum: u64,
}

impl Checkpoint {
    /// What a run's bytes are made of.
    pub fn new(run: Run, prior: &Prior, fingerprint: u64) -> Self {
        Self { run, fingerprint, prior: as_json(prior) }
    }

    /// The run, to go on with it: asked for `options`, which may want more draws than before but nothing else.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] where data, prior or options are others, and which.
    pub fn resume(self, options: &Options, target: &Target, fingerprint: u64) -> Result<Run, Error> {
        options.validate()?;
        let wrong = |why: String| Err(Error::Checkpoint(why));
        if self.fingerprint != fingerprint {
            return wrong("it was made from other rows: give the data that the run began with".to_owned());
        }
        if self.prior != as_json(target.prior()) {
            let ours = as_json(target.prior());
            return wrong(format!("its prior, kind or number of components is another: {}, not {ours}", self.prior));
        }
        let before = &self.run.options;
        let words = |o: &Options| {
            let Options { sampler, chains, warmup, thin, seed, target_accept, max_depth, draws: _ } = o;
            [
                ("sampler", format!("{sampler:?}")),
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
        if self.run.chains.iter().any(|chain| chain.point.len() != target.dim()) {
            return wrong("its points are of another length".to_owned());
        }
        Ok(Run { options: options.clone(), ..self.run })
    }

    /// The bytes: safetensors, with the options in their metadata. Every number is kept to the bit.
    pub fn to_bytes(&self) -> Vec<u8> {
        let options = self.run.options.clone();
        let steps = self.run.chains.iter().map(|chain| chain.steps).collect();
        let (format, prior, fingerprint) = (FORMAT.to_owned(), self.prior.clone(), self.fingerprint);
        let checksum = checksum(&self.run.chains);
        let header = Header { format, version: VERSION, options, prior, fingerprint, steps, checksum };
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
    /// [`Error::Checkpoint`] for bytes that are none, or of a later version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |why: String| Error::Checkpoint(why);
        let none = |why: &dyn std::fmt::Display| wrong(format!("truncated, corrupt, or of another kind: {why}"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| none(&e))?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get("checkpoint"));
        let header: Header =
            serde_json::from_str(header.ok_or_else(|| none(&"it has no header"))?).map_err(|e| none(&e))?;
        if (header.format.as_str(), header.version) != (FORMAT, VERSION) {
            let why = format!("it is {} {}, this program reads {FORMAT} {VERSION}", header.format, header.version);
            return Err(wrong(why));
        }
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
            let stats = numbers(i, "stats")?.as_chunks::<STATS>().0.iter().map(stat).collect();
            let (point, tuning, points) = (numbers(i, "point")?, numbers(i, "tuning")?, numbers(i, "points")?);
            chains.push(Chain { point, steps, tuning, points, stats });
        }
        header.options.validate()?;
        let agree = chains.len() == header.options.chains && chains.iter().all(|c| agrees(c, &header.options));
        if !agree || checksum(&chains) != header.checksum {
            return Err(none(&"its parts disagree"));
        }
        let run = Run { options: header.options, chains };
        Ok(Self { run, fingerprint: header.fingerprint, prior: header.prior })
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

fn checksum(chains: &[Chain]) -> u64 {
    let mut hash = Hash::new();
    for chain in chains {
        hash.add(chain.steps);
        let stats = chain.stats.iter().flat_map(numbers);
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

fn parts((i, chain): (usize, &Chain)) -> [(String, Vec<u8>); 4] {
    let bytes = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let stats: Vec<f64> = chain.stats.iter().flat_map(numbers).collect();
    [("point", &chain.point), ("tuning", &chain.tuning), ("points", &chain.points), ("stats", &stats)]
        .map(|(name, values)| (format!("chain{i}.{name}"), bytes(values)))
}

fn numbers(s: &Stat) -> [f64; STATS] {
    let diverging = f64::from(u8::from(s.diverging));
    [s.lp, s.acceptance_rate, diverging, s.n_steps.into(), s.step_size, s.tree_depth.into()]
}

fn stat(&[lp, acceptance_rate, diverging, n_steps, step_size, tree_depth]: &[f64; STATS]) -> Stat {
    let (n_steps, tree_depth) = (n_steps as u32, tree_depth as u32);
    Stat { lp, acceptance_rate, diverging: diverging != 0.0, n_steps, step_size, tree_depth }
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
