//! Times a fit from given parameters: the whole call, and separately loading and iterations.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use gmm_host::{EmOptions, Engine, Fit, FitOptions, Init, fit, run_em, shift};

use crate::check::{Mixed, REG_COVAR};
use crate::peer::Peer;
use crate::row::{Row, digits, ms};
use crate::spread::Spread;
use crate::task::{LONG, PeerCalls, Task, Turns};
use crate::timing::{Limits, once};

/// Fits with a fixed number of iterations.
pub(crate) struct Em {
    pub(crate) mixed: Mixed,
    pub(crate) iterations: usize,
}

struct Fits<'a> {
    task: &'a Em,
    engine: &'a dyn Engine,
    options: FitOptions,
    wall: Vec<f64>,
    device: Vec<f64>,
}

impl Task for Em {
    fn error(&self, engine: &dyn Engine) -> Result<f64> {
        self.mixed.em(engine)
    }

    fn begin<'a>(&'a self, engine: &'a dyn Engine, warm_up: usize, row: &mut Row) -> Result<Box<dyn Turns + 'a>> {
        let Mixed { start, precision, .. } = &self.mixed;
        let options = FitOptions {
            covariance_type: start.covariance_type(),
            init: Init::Given(Box::new(start.clone())),
            tol: 0.0,
            max_iter: self.iterations,
            reg_covar: REG_COVAR,
            precision: Some(*precision),
            ..FitOptions::new(start.n_components())
        };
        let mut fits = Fits { task: self, engine, options, wall: Vec::new(), device: Vec::new() };
        let (first, fitted) = fits.call()?;
        row.first_ms = ms(first);
        row.iterations = Some(fitted.summary.iterations);
        row.log_likelihood = fitted.summary.trace.last().and_then(|value| digits(*value, 12));
        row.way = fitted.on_device.map_or("", |on| on.path).to_owned();
        if first > LONG {
            fits.keep(first, &fitted);
        } else {
            for _ in 0..warm_up {
                fits.call()?;
            }
        }
        Ok(Box::new(fits))
    }

    fn hand_out(&self, folder: &Path) -> Result<()> {
        self.mixed.hand_out(folder)
    }

    fn begin_peer<'a>(
        &'a self,
        peer: &'a mut Peer,
        folder: &Path,
        ours: Option<f64>,
        row: &mut Row,
    ) -> Result<Box<dyn Turns + 'a>> {
        self.mixed.load_peer(peer, folder)?;
        row.iterations = Some(self.iterations);
        let calls = PeerCalls::begin(peer, |peer, _| peer.fit("", self.iterations, 0), ours, row)?;
        Ok(Box::new(calls))
    }
}

impl Fits<'_> {
    fn call(&self) -> Result<(f64, Fit)> {
        once(|| Ok(fit(self.engine, &self.task.mixed.data, &self.options)?))
    }

    fn keep(&mut self, seconds: f64, fitted: &Fit) {
        self.wall.push(seconds);
        let on_device = fitted.on_device.filter(|on| on.iterations == fitted.summary.iterations);
        self.device.extend(on_device.map(|on| on.time.as_secs_f64()));
    }

    /// Times loading and iterations separately.
    fn parts(&self, limits: Limits, row: &mut Row) -> Result<()> {
        let Mixed { data, start, precision, .. } = &self.task.mixed;
        let at = shift::of_data(data);
        let FitOptions { tol, max_iter, reg_covar, .. } = self.options;
        let options = EmOptions { tol, max_iter, reg_covar, precision: *precision, autotune: false, fast: false };
        let parts = limits.turn(|| {
            let (load, mut rows) = once(|| Ok(self.engine.load(data, *precision, &at)?))?;
            let from = start.clone();
            let run = || Ok(run_em(rows.as_mut(), from, &options, 0, &mut |_| ControlFlow::Continue(()))?);
            Ok((load, once(run)?.0))
        })?;
        let (load, em) = parts.into_iter().unzip();
        row.load_ms = ms(Spread::of(load).median);
        row.em_ms = ms(Spread::of(em).median);
        Ok(())
    }
}

impl Turns for Fits<'_> {
    fn turn(&mut self, limits: Limits) -> Result<()> {
        limits.turn(|| self.call().map(|(seconds, fitted)| self.keep(seconds, &fitted))).map(drop)
    }

    fn measured(&self) -> f64 {
        self.wall.iter().sum()
    }

    fn finish(self: Box<Self>, limits: Limits, row: &mut Row) -> Result<()> {
        // Only if the device ran all iterations of every fit.
        if self.device.len() == self.wall.len() {
            row.device_ms = ms(Spread::of(self.device.clone()).median);
        }
        row.time(self.wall.clone());
        if Spread::of(self.wall.clone()).median <= LONG / 2.0 {
            self.parts(limits, row)?;
        }
        Ok(())
    }
}
