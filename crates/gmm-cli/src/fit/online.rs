//! `gmm fit --online`: online EM over batches of rows.

use std::ops::ControlFlow;

use clap::Args;
use gmm_host::{Engine, EpochOptions, Fit, FitOptions, fit_online};
use gmm_model::Dataset;

use crate::args;
use crate::exit::Failure;
use crate::interrupt::{self, Hold};
use crate::output::Console;
use crate::progress::{Epochs, RowSize};

/// Options of online EM.
#[derive(Args)]
pub(crate) struct OnlineArgs {
    /// Fit by online EM: a step after each batch of rows, in memory on the device for one batch
    #[arg(
        long,
        conflicts_with_all = ["max_iter", "checkpoint", "resume", "autotune", "bayes"],
        help_heading = "Online EM"
    )]
    pub(crate) online: bool,
    /// Number of rows per batch [default: the larger of 4096 and 4 times the number of free parameters]
    #[arg(
        long,
        value_name = "ROWS",
        requires = "online",
        value_parser = args::at_least_one,
        allow_negative_numbers = true,
        help_heading = "Online EM"
    )]
    batch: Option<usize>,
    /// Largest number of passes over the rows; --tol is the change between two
    #[arg(
        long,
        value_name = "N",
        requires = "online",
        default_value_t = EpochOptions::default().epochs,
        value_parser = args::at_least_one,
        allow_negative_numbers = true,
        help_heading = "Online EM"
    )]
    epochs: usize,
    /// Exponent of the step sizes (t + 2)^-KAPPA, from 0 to 1. Values above 0.5 converge, larger ones average more
    #[arg(
        long,
        value_name = "KAPPA",
        requires = "online",
        default_value_t = EpochOptions::default().kappa,
        allow_hyphen_values = true,
        help_heading = "Online EM"
    )]
    step: f64,
}

/// Fits while showing the progress; stops at a signal.
///
/// # Errors
/// Errors of the fit, with column names; [`Failure::Interrupted`].
pub(super) fn fit(
    args: &OnlineArgs,
    data: &Dataset,
    options: &FitOptions,
    engine: &dyn Engine,
    console: &Console,
) -> anyhow::Result<Fit> {
    let online =
        EpochOptions { batch_rows: args.batch, epochs: args.epochs, kappa: args.step, ..EpochOptions::default() };
    let progress = Epochs::new(console, RowSize::of(data), args.epochs);
    let mut held: Option<Hold> = None;
    let result = fit_online(engine, data, options, &online, &mut |step, epoch, _| {
        held.get_or_insert_with(interrupt::hold);
        progress.step(epoch, step);
        if interrupt::received().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish();
    result.map_err(|error| match error {
        gmm_host::Error::Interrupted { iterations } => Failure::Interrupted { iterations, kept: String::new() }.into(),
        error => super::named(error, data),
    })
}
