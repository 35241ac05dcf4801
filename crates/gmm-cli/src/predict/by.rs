//! `gmm predict --by`: each row by the model of its group.

use std::path::Path;

use gmm_data::{Column, ModelFile, Table};
use gmm_host::many::{Groups, map_groups};
use gmm_host::{Engine, Error, Work, noise};
use gmm_model::{Dataset, Mixture, Precision};
use ndarray::{Array2, s};

use super::PredictArgs;
use crate::output::{self, Console};
use crate::{groups, opening};

pub(super) fn run(args: &PredictArgs, column: &str, console: &Console) -> anyhow::Result<()> {
    let source = args.input.source().with_missing(args.missing.missing);
    let models = groups::models(&args.model, source)?;
    let rows = groups::rows_by(source, column, (None, groups::columns(&models)), console)?;
    let of = groups::models_of(&models, &args.model, &rows)?;
    let shape = of.first().map(|model| &model.mixture).expect("a table has rows, so that there is a group");
    let (n, precision) = (rows.data.rows().dim(), rows.data.rows().precision());
    let work = Work::passes(n, precision, shape.covariance_type(), shape.n_components(), 1.0);
    let opened = opening::open(&args.engine, source.memory(), &work, console)?;
    let precision = args.engine.precision().unwrap_or(precision);
    let all = Groups::new(&rows.data, rows.grouping.rows());
    let engine = opened.engine.as_ref();
    let _whole = output::hold(&args.output);
    if args.proba {
        let parts = map_groups(engine, &all, &|part, i, data| responsibilities(part, of[i], data, precision));
        let sorted = stacked(&of, parts)?;
        let order: Vec<usize> = rows.grouping.in_table_order((0..sorted.nrows()).collect());
        let in_order = sorted.select(ndarray::Axis(0), &order);
        write_proba(&args.output, &of, in_order)?;
    } else {
        let parts = map_groups(engine, &all, &|part, i, data| labels(part, of[i], data, precision));
        let mut sorted = vec![0; rows.data.n_rows()];
        for (range, labels) in rows.grouping.rows().iter().zip(parts) {
            sorted[range.clone()].copy_from_slice(&labels?);
        }
        let labels = rows.grouping.in_table_order(sorted);
        gmm_data::write_column(&args.output, "label", Column::Signed(&labels))?;
    }
    console.note(|| format!("wrote {} rows of {} groups", rows.data.n_rows(), of.len()));
    Ok(())
}

/// The mixture whose responsibilities are the model's: of a posterior, that of its E-step.
fn mixture(model: &ModelFile) -> Result<Mixture, Error> {
    match &model.posterior {
        Some(posterior) => Ok(posterior.expectation()?.mixture),
        None => Ok(model.mixture.clone()),
    }
}

fn labels(engine: &dyn Engine, model: &ModelFile, data: &Dataset, precision: Precision) -> Result<Vec<i32>, Error> {
    let mixture = mixture(model)?;
    Ok(match &model.noise {
        Some(noise) => noise::labels(engine, &mixture, noise, data, precision)?.to_vec(),
        None => {
            let labels = gmm_host::evaluate::labels(engine, &mixture, data, precision)?;
            labels.iter().map(|&label| label as i32).collect()
        }
    })
}

fn responsibilities(
    engine: &dyn Engine,
    model: &ModelFile,
    data: &Dataset,
    precision: Precision,
) -> Result<Array2<f64>, Error> {
    noise::responsibilities(engine, &mixture(model)?, model.noise.as_ref(), data, precision)
}

/// The largest number of components, and whether any model has noise.
fn shape(models: &[&ModelFile]) -> (usize, bool) {
    let k = models.iter().map(|model| model.mixture.n_components()).max().unwrap_or(0);
    (k, models.iter().any(|model| model.noise.is_some()))
}

/// The responsibilities of all rows in one array: 0 for components that a group does not have, and noise last.
fn stacked(models: &[&ModelFile], parts: Vec<Result<Array2<f64>, Error>>) -> Result<Array2<f64>, Error> {
    let (k, noisy) = shape(models);
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut all = Array2::zeros((parts.iter().map(Array2::nrows).sum(), k + usize::from(noisy)));
    let mut first = 0;
    for (model, part) in models.iter().zip(parts) {
        let (n, own) = (part.nrows(), model.mixture.n_components());
        all.slice_mut(s![first..first + n, ..own]).assign(&part.slice(s![.., ..own]));
        if model.noise.is_some() {
            all.slice_mut(s![first..first + n, k]).assign(&part.column(own));
        }
        first += n;
    }
    Ok(all)
}

fn write_proba(path: &Path, models: &[&ModelFile], responsibilities: Array2<f64>) -> anyhow::Result<()> {
    let (k, noisy) = shape(models);
    let names = (0..k).map(|c| format!("proba_{c}")).chain(noisy.then(|| "proba_noise".to_owned())).collect();
    Ok(gmm_data::write_table(path, &Table::with_names(responsibilities, names)?)?)
}
