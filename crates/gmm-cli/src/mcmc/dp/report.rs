//! The summary of draws of partitions: warnings, table and JSON.

use std::time::Duration;

use gmm_mcmc::dp::DpDraws;
use gmm_mcmc::{diagnostics, r_hat_text};
use serde_json::{Value, json};

use crate::output::Console;
use crate::render;

pub(super) struct Report<'a> {
    pub(super) draws: &'a DpDraws,
    /// The draw of [`vi_estimate`](gmm_mcmc::dp::vi_estimate), and its expected distance.
    pub(super) estimate: (usize, f64),
    pub(super) elapsed: Duration,
    /// Whether the concentration has a prior.
    pub(super) random: bool,
}

impl Report<'_> {
    /// Names and draws of what is summarised.
    fn quantities(&self) -> Vec<(&'static str, Vec<f64>)> {
        let mut all = vec![("clusters", self.draws.clusters.iter().map(|k| f64::from(*k)).collect())];
        if self.random {
            all.push(("concentration", self.draws.concentration.clone()));
        }
        all.push(("log_joint", self.draws.log_joint.clone()));
        all
    }

    /// The posterior of the number of clusters: each number and its share of the draws, ascending.
    fn shares(&self) -> Vec<(u32, f64)> {
        let mut all = self.draws.clusters.clone();
        all.sort_unstable();
        let share = |same: &[u32]| (same[0], same.len() as f64 / all.len() as f64);
        all.chunk_by(|a, b| a == b).map(share).collect()
    }

    pub(super) fn warn(&self, console: &Console) {
        for (name, values) in self.quantities() {
            let chains: Vec<&[f64]> = values.chunks(self.draws.draws).collect();
            let r_hat = diagnostics::r_hat(&chains);
            if r_hat > gmm_mcmc::R_HAT {
                let r_hat = r_hat_text(r_hat);
                console.warn(&format!("chains have not mixed: r_hat of {name} is {r_hat}; raise --warmup and --draws"));
            }
        }
    }

    pub(super) fn table(&self) -> String {
        let mut out = String::from("               mean         sd         5%        95%   ess_bulk  r_hat\n");
        for (name, values) in self.quantities() {
            let chains: Vec<&[f64]> = values.chunks(self.draws.draws).collect();
            let (mean, sd) = moments(&values);
            let sorted = diagnostics::sorted(&values);
            let [low, high] = [0.05, 0.95].map(|p| diagnostics::quantile(&sorted, p));
            let or_dash = |v: f64, text: String| if v.is_nan() { "–".to_owned() } else { text };
            let numbers = [mean, sd, low, high].map(|v| format!("{:>10}", or_dash(v, format!("{v:.2}"))));
            let (ess, r_hat) = (diagnostics::ess_bulk(&chains), diagnostics::r_hat(&chains));
            let (ess, r_hat) = (or_dash(ess, format!("{ess:.0}")), or_dash(r_hat, r_hat_text(r_hat)));
            out += &format!("{name:<13} {} {ess:>10} {r_hat:>6}\n", numbers.join(" "));
        }
        let mut shares = self.shares();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        let share = |(k, p): &(u32, f64)| format!("{k} ({:.1} %)", 100.0 * p);
        let likely: Vec<String> = shares.iter().take(6).map(share).collect();
        let best = self.draws.best();
        let (vi, expected) = self.estimate;
        let rate = |[tried, done]: [u64; 2]| format!("{done} of {tried}");
        out + &format!(
            "\nnumber of clusters  {}\nbest draw  {} clusters, log joint density {}\nleast expected variation of information  {} \
             clusters, {expected:.3} nats\n{} chains of {} draws, accepted {} splits and {} merges, in {:.3?}\n",
            likely.join(", "),
            self.draws.clusters[best],
            render::short(self.draws.log_joint[best]),
            self.draws.clusters[vi],
            self.draws.chains,
            self.draws.draws,
            rate(self.draws.splits),
            rate(self.draws.merges),
            self.elapsed
        )
    }

    pub(super) fn json(&self, engine: &str) -> Value {
        let line = |(name, values): (&'static str, Vec<f64>)| {
            let chains: Vec<&[f64]> = values.chunks(self.draws.draws).collect();
            let (mean, sd) = moments(&values);
            let sorted = diagnostics::sorted(&values);
            json!({
                "name": name, "mean": mean, "sd": sd,
                "q5": diagnostics::quantile(&sorted, 0.05), "q95": diagnostics::quantile(&sorted, 0.95),
                "ess_bulk": diagnostics::ess_bulk(&chains), "ess_tail": diagnostics::ess_tail(&chains),
                "r_hat": diagnostics::r_hat(&chains),
            })
        };
        let best = self.draws.best();
        let at = |i: usize| json!({ "chain": i / self.draws.draws, "draw": i % self.draws.draws, "clusters": self.draws.clusters[i] });
        json!({
            "sampler": "split-merge",
            "chains": self.draws.chains,
            "draws": self.draws.draws,
            "parameters": self.quantities().into_iter().map(line).collect::<Vec<_>>(),
            "clusters": self.shares().iter().map(|(k, p)| json!({ "k": k, "probability": p })).collect::<Vec<_>>(),
            "best": at(best),
            "vi": at(self.estimate.0),
            "expected_vi": self.estimate.1,
            "splits": self.draws.splits,
            "merges": self.draws.merges,
            "engine": engine,
            "elapsed_s": self.elapsed.as_secs_f64(),
        })
    }
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
}
