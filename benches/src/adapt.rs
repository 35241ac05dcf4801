//! `adapt`: adaptation of a background model to many utterances in one call.
//!
//! The data: a diagonal background of random parameters, and utterances of independent normal rows. Everything follows from
//! the seed.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use gmm_host::adapt::{
    RatioOptions, Speakers, Trial, Utterances, adapted_means_of_many, adapted_means_top, log_likelihood_ratios,
    utterance_statistics,
};
use gmm_host::{Engine, ReferenceEngine};
use gmm_model::{Covariances, Dataset, Draws, Mixture, Precision};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis, s};

use crate::turns::{EngineTurns, TurnOptions};

/// Utterances, rows of each, columns and components.
const SIZE: (usize, usize, usize, usize) = (1_000, 1_000, 39, 1_024);

/// Utterances of a quick run.
const QUICK: usize = 20;

/// Utterances that the reference adapts to too.
const CHECKED: usize = 3;

/// Speakers that each utterance is compared with.
const SPEAKERS: usize = 10;

/// Components per row, if not all.
const TOP: usize = 30;

const RELEVANCE: f64 = 16.0;

/// Largest error of an adapted mean; deviations are about 1.
const ALLOWED: [(Precision, f64); 2] = [(Precision::F64, 1e-10), (Precision::F32, 2e-5)];

const COLUMNS: &str = "utterances,n,d,k,precision,what,turn,ms,error";

/// Measures both precisions, and writes the record.
///
/// # Errors
/// If a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &EngineTurns) -> Result<()> {
    let TurnOptions { quick, turns, seed, .. } = &arguments.common;
    let title = "milliseconds to adapt a background model to all utterances";
    let (engine, mut record) = arguments.open("adapt", title, COLUMNS)?;
    let (count, n, d, k) = (if *quick { QUICK } else { SIZE.0 }, SIZE.1, SIZE.2, SIZE.3);
    let draws = &mut Draws::for_purpose("adapt", *seed, 0);
    let background = background(k, d, draws)?;
    let x = Array2::from_shape_simple_fn((count * n, d), || 1.2 * draws.normal() as f32);
    let ranges: Vec<Range<usize>> = (0..count).map(|i| i * n..(i + 1) * n).collect();
    let mut wrong = 0;
    for (precision, allowed) in ALLOWED {
        let data = match precision {
            Precision::F32 => Dataset::new(x.clone())?,
            Precision::F64 => Dataset::new(x.mapv(f64::from))?,
        };
        let adapted = |engine: &dyn Engine, ranges: &[Range<usize>]| -> Result<Array3<f64>> {
            Ok(adapted_means_of_many(engine, &background, &Utterances::new(&data, ranges), RELEVANCE)?)
        };
        let of_top = || adapted_means_top(&*engine, &background, &Utterances::new(&data, &ranges), TOP, RELEVANCE);
        let (all, top) = (adapted(&*engine, &ranges)?, of_top()?);
        let wants = [adapted(&ReferenceEngine, &ranges[..CHECKED])?, naive(&background, &x, &ranges[..CHECKED])?];
        let trials: Vec<Trial> = (0..SPEAKERS * count)
            .map(|i| Trial { speaker: (i / SPEAKERS + i % SPEAKERS) % count, utterance: i / SPEAKERS })
            .collect();
        let (speakers, options) = (Speakers::Means(top.view()), RatioOptions { top: TOP });
        let ratios = || {
            let utterances = Utterances::new(&data, &ranges);
            log_likelihood_ratios(&*engine, &background, &speakers, &utterances, &trials, &options)
        };
        let of_speakers = ratios()?;
        let checked: Vec<usize> = (0..CHECKED).map(|u| u * SPEAKERS + u).collect();
        let of_checked: Vec<Trial> = checked.iter().map(|&at| trials[at]).collect();
        let scores = naive_ratios(&background, &top, &x, (&ranges, &of_checked))?;
        let largest = |most: f64, v: &f64| if v.is_nan() { f64::NAN } else { most.max(v.abs()) };
        let error = |got: &Array3<f64>, want: &Array3<f64>| {
            (&got.slice(s![..CHECKED, .., ..]) - want).iter().fold(0.0, largest)
        };
        let of_ratios: Vec<f64> = checked.iter().zip(&scores).map(|(&at, want)| of_speakers[at] - want).collect();
        let errors = [error(&all, &wants[0]), error(&top, &wants[1]), of_ratios.iter().fold(0.0, largest)];
        wrong += errors.iter().filter(|error| error.is_nan() || **error > allowed).count();
        for turn in 0..*turns {
            let mut push = |what: &str, ms: f64, error: f64| -> Result<()> {
                let line = format!("{count},{n},{d},{k},{precision},{what},{turn},{ms:.1},{error:.1e}");
                println!("{line}");
                record.push(&line)
            };
            let began = Instant::now();
            utterance_statistics(&*engine, &background, &Utterances::new(&data, &ranges), &|_, _| Ok(()))?;
            push("statistics", 1e3 * began.elapsed().as_secs_f64(), errors[0])?;
            let began = Instant::now();
            let means = adapted(&*engine, &ranges)?;
            push("adapted means", 1e3 * began.elapsed().as_secs_f64(), errors[0])?;
            let began = Instant::now();
            let means_of_top = of_top()?;
            push("adapted means by 30 components", 1e3 * began.elapsed().as_secs_f64(), errors[1])?;
            let began = Instant::now();
            let again = ratios()?;
            push("ratios of ten speakers each by 30 components", 1e3 * began.elapsed().as_secs_f64(), errors[2])?;
            ensure!(again == of_speakers, "the bits of ratios differ between calls");
            ensure!(means == all && means_of_top == top, "the bits of adapted means differ between calls");
        }
    }
    ensure!(wrong == 0, "{wrong} answers were wrong");
    println!("{}", record.path().display());
    Ok(())
}

/// Adapted means in `f64`, one row after the other, with the [`TOP`] components of largest density of each.
fn naive(background: &Mixture, x: &Array2<f32>, ranges: &[Range<usize>]) -> Result<Array3<f64>> {
    let means = background.means();
    let (k, d) = means.dim();
    let mut out = Array3::zeros((ranges.len(), k, d));
    for (range, mut adapted) in ranges.iter().zip(out.outer_iter_mut()) {
        let (mut counts, mut sums) = (vec![0.0; k], Array2::<f64>::zeros((k, d)));
        for row in x.slice(s![range.clone(), ..]).outer_iter() {
            let all = log_joint(background, means, row)?;
            let mut joint: Vec<(f64, usize)> = all.into_iter().zip(0..).collect();
            joint.sort_by(|a, b| b.0.total_cmp(&a.0));
            let densities: Vec<f64> = joint[..TOP].iter().map(|one| (one.0 - joint[0].0).exp()).collect();
            let total: f64 = densities.iter().sum();
            for (density, (_, c)) in densities.iter().zip(&joint) {
                counts[*c] += density / total;
                sums.row_mut(*c).scaled_add(density / total, &row.mapv(f64::from));
            }
        }
        for c in 0..k {
            let mean = (&sums.row(c) + &(RELEVANCE * &means.row(c))) / (counts[c] + RELEVANCE);
            adapted.row_mut(c).assign(&mean);
        }
    }
    Ok(out)
}

/// The log joint densities of a row under a diagonal mixture, with means of its own.
fn log_joint(background: &Mixture, means: ArrayView2<'_, f64>, row: ArrayView1<'_, f32>) -> Result<Vec<f64>> {
    let Covariances::Diag(variances) = background.covariances() else { bail!("the background is diagonal") };
    let of = |c: usize| {
        let terms = (0..row.len())
            .map(|j| (f64::from(row[j]) - means[[c, j]]).powi(2) / variances[[c, j]] + variances[[c, j]].ln());
        background.weights()[c].ln() - 0.5 * terms.sum::<f64>()
    };
    Ok((0..means.nrows()).map(of).collect())
}

/// Ratios in `f64`, one row after the other.
fn naive_ratios(
    background: &Mixture,
    speakers: &Array3<f64>,
    x: &Array2<f32>,
    (ranges, trials): (&[Range<usize>], &[Trial]),
) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    for trial in trials {
        let rows = x.slice(s![ranges[trial.utterance].clone(), ..]);
        let mut sum = 0.0;
        for row in rows.outer_iter() {
            let joint = log_joint(background, background.means(), row)?;
            let own = log_joint(background, speakers.index_axis(Axis(0), trial.speaker), row)?;
            let mut order: Vec<usize> = (0..joint.len()).collect();
            order.sort_by(|&a, &b| joint[b].total_cmp(&joint[a]));
            let log = |all: &[f64]| order[..TOP].iter().map(|&c| (all[c] - joint[order[0]]).exp()).sum::<f64>().ln();
            sum += log(&own) - log(&joint);
        }
        found.push(sum / rows.nrows() as f64);
    }
    Ok(found)
}

fn background(k: usize, d: usize, draws: &mut Draws) -> Result<Mixture> {
    let mut weights = Array1::from_shape_simple_fn(k, || 0.2 + draws.uniform());
    weights /= weights.sum();
    let means = Array2::from_shape_simple_fn((k, d), || draws.normal());
    let variances = Array2::from_shape_simple_fn((k, d), || 0.3 + 0.7 * draws.uniform());
    Ok(Mixture::new(weights, means, Covariances::Diag(variances))?)
}
