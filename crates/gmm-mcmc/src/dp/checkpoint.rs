//! A run as bytes, so that it can go on in another process with the same bits.

use std::collections::HashMap;

use gmm_model::PriorScale;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};

use super::chain::Counts;
use super::moments::Moments;
use super::run::Record;
use super::{DpOptions, DpRun};
use crate::checkpoint::Hash;
use crate::{Basis, Error};

/// The name of the format in the header.
const FORMAT: &str = "gmm-mcmc-dp-checkpoint";
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
    /// Everything on which the draws depend but the engine, with names for messages.
    inputs: Vec<(String, String)>,
    engine: String,
    chains: Vec<Numbers>,
    checksum: u64,
}

/// Of a chain.
#[derive(Serialize, Deserialize)]
struct Numbers {
    step: u64,
    splits: [u64; 2],
    merges: [u64; 2],
}

impl DpRun {
    /// The run as bytes: safetensors with a header. Preserves the bits of every number.
    pub fn to_bytes(&self, basis: &Basis) -> Vec<u8> {
        let tensors: Vec<(String, Dtype, Vec<u8>)> = self.chains.iter().enumerate().flat_map(tensors).collect();
        let number =
            |chain: &Record| Numbers { step: chain.step, splits: chain.counts.splits, merges: chain.counts.merges };
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            inputs: inputs(&self.options, basis),
            engine: basis.engine.clone(),
            chains: self.chains.iter().map(number).collect(),
            checksum: checksum(tensors.iter().map(|(_, _, bytes)| bytes.as_slice())),
        };
        let header = serde_json::to_string(&header).expect("a plain structure");
        let views = tensors.iter().map(|(name, dtype, bytes)| {
            let len = bytes.len() / (dtype.bitsize() / 8);
            (name.as_str(), TensorView::new(*dtype, vec![len], bytes).expect("whole numbers of values"))
        });
        serialize(views, Some(HashMap::from([("checkpoint".to_owned(), header)]))).expect("names are unique")
    }

    /// Reads the bytes of a run, to be continued with `options`, which may have more draws than that run had. The second
    /// value is a warning if the run was made on another engine: further draws are equally valid, but have other bits.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the bytes are not such a checkpoint, are damaged, or data, precision, prior or options
    /// differ, naming the difference; [`Error::Option`] if `options` are invalid.
    pub fn from_bytes(bytes: &[u8], options: DpOptions, basis: &Basis) -> Result<(Self, Option<String>), Error> {
        options.validate()?;
        let wrong = |why: String| Error::Checkpoint(why);
        let none = |why: &dyn std::fmt::Display| wrong(format!("truncated, corrupt, or of another kind: {why}"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| none(&e))?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get("checkpoint"));
        let header = header.ok_or_else(|| none(&"it has no header"))?;
        let header: Header = serde_json::from_str(header).map_err(|e| none(&e))?;
        if header.format != FORMAT || header.version != VERSION {
            let (format, version) = (&header.format, header.version);
            let why = format!("it is {format} {version}, but this run needs {FORMAT} {VERSION}: start a new run");
            return Err(wrong(why));
        }
        let inputs = inputs(&options, basis);
        if let Some(((name, was), (_, is))) = header.inputs.iter().zip(&inputs).find(|(a, b)| a != b) {
            return Err(wrong(match name.as_str() {
                "rows" => "it was made from other rows: give the data that the run began with".to_owned(),
                "prior" => "it was made with another prior: give that which the run began with".to_owned(),
                _ => format!("it was made with {name} {was}, not {is}"),
            }));
        }
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| none(&e))?;
        let d = options.prior.mean.len();
        let mut chains = Vec::new();
        for (c, numbers) in header.chains.iter().enumerate() {
            let chain = record(&tensors, c, numbers, &options, d).map_err(|why| none(&why))?;
            if chain.clusters.len() > options.draws {
                let (has, wanted) = (chain.clusters.len(), options.draws);
                return Err(wrong(format!(
                    "it has {has} draws of a chain, more than {wanted}: draws are never discarded"
                )));
            }
            chains.push(chain);
        }
        let run = Self { options, chains };
        let again: Vec<_> = run.chains.iter().enumerate().flat_map(self::tensors).collect();
        if run.chains.len() != run.options.chains
            || checksum(again.iter().map(|(_, _, bytes)| bytes.as_slice())) != header.checksum
        {
            return Err(none(&"its parts disagree"));
        }
        let (was, is) = (&header.engine, &basis.engine);
        let moved = (was != is).then(|| {
            format!(
                "the checkpoint was made by engine {was}, not {is}: further draws differ from those that {was} would make"
            )
        });
        Ok((run, moved))
    }
}

/// What the draws depend on.
fn inputs(options: &DpOptions, basis: &Basis) -> Vec<(String, String)> {
    let DpOptions { kind, prior, concentration, chains, draws: _, warmup, thin, moves, single_rows, start, seed } =
        options;
    let mut hash = Hash::new();
    let mut add = |v: f64| hash.add(v.to_bits());
    prior.mean.iter().for_each(|v| add(*v));
    [prior.mean_precision, prior.degrees_of_freedom].into_iter().for_each(&mut add);
    match &prior.scale {
        PriorScale::Matrix(scale) => scale.iter().for_each(|v| add(*v)),
        PriorScale::Variances(scale) => scale.iter().for_each(|v| add(*v)),
        PriorScale::Variance(scale) => add(*scale),
    }
    let named = [
        ("rows", format!("{:016x}", basis.fingerprint)),
        ("precision", basis.precision.to_string()),
        ("covariance", kind.to_string()),
        ("prior", format!("{:016x}", hash.0)),
        ("concentration", concentration.to_string()),
        ("chains", chains.to_string()),
        ("warmup", warmup.to_string()),
        ("thin", thin.to_string()),
        ("moves", moves.to_string()),
        ("single_rows", single_rows.to_string()),
        ("start", start.to_string()),
        ("seed", seed.to_string()),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

fn checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut hash = Hash::new();
    for part in parts {
        hash.add(part.len() as u64);
        for word in part.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            hash.add(u64::from_le_bytes(padded));
        }
    }
    hash.0
}

/// The arrays of a chain. The moments of a cluster are its number of rows, its mean and its scatter, one after another.
fn tensors((c, chain): (usize, &Record)) -> Vec<(String, Dtype, Vec<u8>)> {
    let numbers = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let labels = |values: &[u32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let flat = |m: &Moments| [&[m.n], m.mean.as_slice(), &m.scatter].concat();
    let moments: Vec<f64> = chain.moments.iter().flat_map(flat).collect();
    let all = [
        ("labels", Dtype::U32, labels(&chain.labels)),
        ("moments", Dtype::F64, numbers(&moments)),
        ("alpha", Dtype::F64, numbers(&[chain.alpha])),
        ("clusters", Dtype::U32, labels(&chain.clusters)),
        ("concentration", Dtype::F64, numbers(&chain.concentration)),
        ("log_joint", Dtype::F64, numbers(&chain.log_joint)),
        ("drawn", Dtype::U32, labels(&chain.drawn)),
    ];
    all.into_iter().map(|(name, dtype, bytes)| (format!("chain{c}.{name}"), dtype, bytes)).collect()
}

/// A chain from its arrays, if their lengths and labels are those of a chain.
fn record(
    tensors: &SafeTensors<'_>,
    c: usize,
    numbers: &Numbers,
    options: &DpOptions,
    d: usize,
) -> Result<Record, String> {
    let bytes = |part: &str, dtype: Dtype| {
        let tensor = tensors.tensor(&format!("chain{c}.{part}")).map_err(|e| e.to_string())?;
        if tensor.dtype() == dtype { Ok(tensor.data()) } else { Err("numbers of another type".to_owned()) }
    };
    let f64s = |part: &str| {
        Ok::<_, String>(
            bytes(part, Dtype::F64)?.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect::<Vec<_>>(),
        )
    };
    let u32s = |part: &str| {
        Ok::<_, String>(
            bytes(part, Dtype::U32)?.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect::<Vec<_>>(),
        )
    };
    let each = 1 + d + options.kind.second_len(1, d);
    let of = |flat: &[f64]| Moments {
        kind: options.kind,
        n: flat[0],
        mean: flat[1..][..d].to_vec(),
        scatter: flat[1 + d..].to_vec(),
    };
    let flat = f64s("moments")?;
    let alpha = f64s("alpha")?;
    let chain = Record {
        step: numbers.step,
        alpha: alpha.first().copied().unwrap_or_default(),
        labels: u32s("labels")?,
        moments: flat.chunks_exact(each).map(of).collect(),
        counts: Counts { splits: numbers.splits, merges: numbers.merges },
        clusters: u32s("clusters")?,
        concentration: f64s("concentration")?,
        log_joint: f64s("log_joint")?,
        drawn: u32s("drawn")?,
    };
    let drawn = (numbers.step.saturating_sub(options.warmup as u64) / options.thin as u64) as usize;
    let mut sizes = vec![0.0; chain.moments.len()];
    let known = chain.labels.iter().all(|&label| match sizes.get_mut(label as usize) {
        Some(size) => {
            *size += 1.0;
            true
        }
        None => false,
    });
    let agree = known
        && sizes.iter().zip(&chain.moments).all(|(size, m)| *size == m.n && m.n > 0.0)
        && flat.len() == each * chain.moments.len()
        && [chain.clusters.len(), chain.concentration.len(), chain.log_joint.len()] == [drawn; 3]
        && chain.drawn.len() == drawn * chain.labels.len()
        && chain.labels.is_empty() == (numbers.step == 0);
    if agree { Ok(chain) } else { Err("its parts disagree".to_owned()) }
}
