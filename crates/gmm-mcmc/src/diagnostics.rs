//! Convergence diagnostics: split R-hat and effective sample sizes.
//!
//! Rank-normalised, as defined by Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), "Rank-normalization, folding,
//! and localization: an improved R-hat for assessing convergence of MCMC", and as computed by ArviZ, with which the
//! tests compare. A quantity is given as its draws by chain: `chains[c][i]`, all of equal length. Results are NaN if a
//! chain has fewer than [`LEAST_DRAWS`] draws or a value is not finite.

use std::f64::consts::SQRT_2;

/// Smallest number of draws per chain for which diagnostics are defined.
pub const LEAST_DRAWS: usize = 4;

/// Split R-hat: the larger of the values for the ranks and for the folded ranks; the latter detects chains that differ
/// in scale. Above 1.01 the chains have not mixed. NaN for a constant.
///
/// Cost: two sorts of all draws.
pub fn r_hat(chains: &[&[f64]]) -> f64 {
    let Some(halves) = split(chains) else { return f64::NAN };
    let all: Vec<f64> = halves.iter().flatten().copied().collect();
    let median = quantile(&sorted(&all), 0.5);
    let folded: Vec<Vec<f64>> = halves.iter().map(|h| h.iter().map(|v| (v - median).abs()).collect()).collect();
    potential(&normal_scores(&halves)).max(potential(&normal_scores(&folded)))
}

/// Effective sample size for the bulk: that of the normal scores of the ranks.
///
/// Cost: a sort of all draws, and a product per draw and lag that matters.
pub fn ess_bulk(chains: &[&[f64]]) -> f64 {
    split(chains).map_or(f64::NAN, |halves| ess(&normal_scores(&halves)))
}

/// Effective sample size for the tails: the smaller of those for the 5 % and 95 % quantiles.
///
/// Cost: as for [`ess_bulk`].
pub fn ess_tail(chains: &[&[f64]]) -> f64 {
    let Some(halves) = split(chains) else { return f64::NAN };
    let all: Vec<f64> = chains.iter().flat_map(|chain| chain.iter().copied()).collect();
    let all = sorted(&all);
    let at = |p: f64| {
        let mark = quantile(&all, p);
        let below = |v: &f64| f64::from(u8::from(*v <= mark));
        ess(&halves.iter().map(|h| h.iter().map(below).collect()).collect::<Vec<Vec<f64>>>())
    };
    at(0.05).min(at(0.95))
}

/// The quantile `p` of ascending values by linear interpolation, as NumPy's default.
///
/// # Panics
/// If there are no values.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let at = p * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

/// The values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Splits each chain into two halves, without the middle draw if the length is odd. `None` if the diagnostics are
/// undefined.
fn split(chains: &[&[f64]]) -> Option<Vec<Vec<f64>>> {
    let n = chains.first()?.len();
    let fine = chains.iter().all(|chain| chain.len() == n && chain.iter().all(|v| v.is_finite()));
    if !fine || n < LEAST_DRAWS {
        return None;
    }
    let half = n / 2;
    Some(chains.iter().flat_map(|chain| [chain[..half].to_vec(), chain[n - half..].to_vec()]).collect())
}

/// Normal scores of the ranks among all draws (Blom's offset of 3/8); equal values share their mean rank.
fn normal_scores(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let len = chains[0].len();
    let all: Vec<f64> = chains.iter().flatten().copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| all[a].total_cmp(&all[b]));
    let mut scores = vec![0.0; all.len()];
    let mut before = 0;
    for equal in order.chunk_by(|&a, &b| all[a] == all[b]) {
        let rank = before as f64 + 0.5 * (equal.len() + 1) as f64;
        let score = normal_quantile((rank - 0.375) / (all.len() as f64 + 0.25));
        equal.iter().for_each(|&i| scores[i] = score);
        before += equal.len();
    }
    scores.chunks_exact(len).map(<[f64]>::to_vec).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample variance, with `len − 1` in the denominator.
fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    values.iter().map(|v| (v - centre) * (v - centre)).sum::<f64>() / (values.len() - 1) as f64
}

/// R-hat of the given chains, without splitting or ranks.
fn potential(chains: &[Vec<f64>]) -> f64 {
    let n = chains[0].len() as f64;
    let between = n * variance(&chains.iter().map(|chain| mean(chain)).collect::<Vec<_>>());
    let within = mean(&chains.iter().map(|chain| variance(chain)).collect::<Vec<_>>());
    ((between / within + n - 1.0) / n).sqrt()
}

/// Effective sample size of the given chains, without splitting or ranks, by Geyer's initial monotone sequence.
fn ess(chains: &[Vec<f64>]) -> f64 {
    let n = chains[0].len();
    let total = (chains.len() * n) as f64;
    let constant = chains.iter().flatten().all(|v| *v == chains[0][0]);
    if constant {
        return total;
    }
    let centred: Vec<Vec<f64>> =
        chains.iter().map(|chain| (mean(chain), chain)).map(|(m, c)| c.iter().map(|v| v - m).collect()).collect();
    let covariance = |lag: usize| {
        let of = |chain: &Vec<f64>| chain.iter().zip(&chain[lag..]).map(|(a, b)| a * b).sum::<f64>() / n as f64;
        centred.iter().map(of).sum::<f64>() / chains.len() as f64
    };
    let within = covariance(0) * n as f64 / (n - 1) as f64;
    let mut plus = within * (n - 1) as f64 / n as f64;
    if chains.len() > 1 {
        plus += variance(&chains.iter().map(|chain| mean(chain)).collect::<Vec<_>>());
    }
    let correlation = |lag: usize| 1.0 - (within - covariance(lag)) / plus;
    let mut rho = vec![0.0; n];
    let (mut even, mut odd) = (1.0, correlation(1));
    (rho[0], rho[1]) = (even, odd);
    // Adds pairs of lags while their sum is positive.
    let mut t = 1;
    while t + 3 < n && even + odd > 0.0 {
        (even, odd) = (correlation(t + 1), correlation(t + 2));
        if even + odd >= 0.0 {
            (rho[t + 1], rho[t + 2]) = (even, odd);
        }
        t += 2;
    }
    // The last lag of the last pair that counts; negative if there is none.
    let last = t as isize - 2;
    if even > 0.0 {
        rho[(last + 1) as usize] = even;
    }
    // Makes the sums of pairs non-increasing.
    let mut t = 1;
    while t as isize <= last - 2 {
        let before = rho[t - 1] + rho[t];
        if rho[t + 1] + rho[t + 2] > before {
            (rho[t + 1], rho[t + 2]) = (0.5 * before, 0.5 * before);
        }
        t += 2;
    }
    let counted = (last + 1) as usize;
    let time = -1.0 + 2.0 * rho[..counted].iter().sum::<f64>() + rho[counted..=counted].iter().sum::<f64>();
    total / time.max(1.0 / total.log10())
}

/// The quantile of the standard normal, accurate to rounding: Acklam's rational approximation, then two steps of
/// Halley's method.
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416, 1.0];
    let at = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    // Below this the approximation has a separate form.
    const TAIL: f64 = 0.02425;
    if p > 0.5 {
        return -normal_quantile(1.0 - p);
    }
    let mut x = if p < TAIL {
        let q = (-2.0 * libm::log(p)).sqrt();
        at(&C, q) / at(&D, q)
    } else {
        let (q, r) = (p - 0.5, (p - 0.5) * (p - 0.5));
        q * at(&A, r) / at(&B, r)
    };
    for _ in 0..2 {
        let error = 0.5 * libm::erfc(-x / SQRT_2) - p;
        let step = error * (2.0 * std::f64::consts::PI).sqrt() * libm::exp(0.5 * x * x);
        x -= step / (1.0 + 0.5 * x * step);
    }
    x
}
