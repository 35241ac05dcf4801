//! Draws: exact bits, and distributions checked by moments and Kolmogorov-Smirnov distances at fixed seeds.

use gmm_model::Draws;

const N: usize = 20_000;

fn draws() -> Draws {
    Draws::new(20_240_101, 0)
}

fn many(mut draw: impl FnMut(&mut Draws) -> f64) -> Vec<f64> {
    let mut draws = draws();
    (0..N).map(|_| draw(&mut draws)).collect()
}

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n)
}

/// Largest distance of the empirical distribution from `cdf`. 1.95/√n has probability 0.001 under the hypothesis.
#[track_caller]
fn distributed(mut values: Vec<f64>, cdf: impl Fn(f64) -> f64) {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let distance = values
        .iter()
        .enumerate()
        .map(|(i, &v)| (cdf(v) - i as f64 / n).abs().max((cdf(v) - (i + 1) as f64 / n).abs()))
        .fold(0.0, f64::max);
    assert!(distance < 1.95 / n.sqrt(), "distance {distance}");
}

#[test]
fn the_same_seed_gives_the_same_bits_on_any_machine() {
    let mut d = Draws::new(42, 7);
    let found = [
        d.bits(),
        d.uniform().to_bits(),
        d.normal().to_bits(),
        d.normal().to_bits(),
        d.gamma(0.3).to_bits(),
        d.gamma(4.5).to_bits(),
        d.chi_square(3.0).to_bits(),
        d.dirichlet(3, 0.5)[1].to_bits(),
        d.index(1_000_003) as u64,
        d.weighted_index(&[0.1, 0.1, 0.7, 1.0]) as u64,
    ];
    let expected = [
        0xcbd5_6a89_09ec_9467,
        0x3fed_0d60_bd6e_c3a2,
        0x3fe3_8078_340b_1220,
        0x3f81_0c62_1b04_f890,
        0x3f64_007a_16ea_c8cf,
        0x401f_6d14_9d71_a1c4,
        0x4004_eac4_1a6f_6690,
        0x3fe6_db33_c9dd_b888,
        0x6_38ed,
        2,
    ];
    assert_eq!(found, expected, "{found:#x?}");
}

#[test]
fn the_words_are_those_of_chacha8() {
    // The first block of ChaCha8 with a zero key and nonce (draft-strombergsson-chacha-test-vectors-01, TC1).
    // The key includes a nonzero hash even for the purpose "", so `Draws` cannot have a zero key. This checks the
    // generator directly.
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};
    let mut rng = ChaCha8Rng::from_seed([0; 32]);
    assert_eq!(rng.next_u64().to_le_bytes(), [0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6]);
}

#[test]
fn a_draw_can_be_reached_directly() {
    let mut sequential = draws();
    let all: Vec<f64> = (0..300).map(|_| sequential.uniform()).collect();
    let mut direct = draws();
    for i in (0..300).rev() {
        assert_eq!(direct.uniform_at(i as u64), all[i]);
    }
    direct.seek(100);
    assert!((100..300).all(|i| direct.uniform() == all[i]));
}

#[test]
fn seeking_forgets_the_second_normal_of_a_pair() {
    let mut d = draws();
    let first = d.normal();
    d.seek(0);
    assert_eq!(d.normal(), first);
}

#[test]
fn seeds_streams_and_purposes_differ() {
    let first = [Draws::new(1, 0), Draws::new(2, 0), Draws::new(1, 1), Draws::for_purpose("sample", 1, 0)];
    let mut bits: Vec<u64> = first.into_iter().map(|mut d| d.bits()).collect();
    bits.sort_unstable();
    bits.dedup();
    assert_eq!(bits.len(), 4);
}

#[test]
fn streams_are_uncorrelated() {
    let (mut a, mut b) = (Draws::new(0, 0), Draws::new(0, 1));
    let products: Vec<f64> = (0..N).map(|_| a.normal() * b.normal()).collect();
    assert!(moments(&products).0.abs() < 4.0 / (N as f64).sqrt());
}

#[test]
fn uniforms_are_uniform() {
    let values = many(Draws::uniform);
    assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
    distributed(values, |v| v);
}

#[test]
fn indices_are_uniform_and_below_n() {
    let mut draws = draws();
    let mut counts = [0_usize; 7];
    for _ in 0..70_000 {
        counts[draws.index(7)] += 1;
    }
    // Chi-square with 6 degrees of freedom: 22.5 has probability 0.001.
    let chi_square: f64 = counts.iter().map(|&c| (c as f64 - 1e4).powi(2) / 1e4).sum();
    assert!(chi_square < 22.5, "{counts:?}");
    assert_eq!(draws.index(1), 0);
    assert!((0..100).all(|_| draws.index(usize::MAX) < usize::MAX));
}

#[test]
fn normals_are_normal() {
    let values = many(Draws::normal);
    let (mean, variance) = moments(&values);
    assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    distributed(values, |v| 0.5 * libm::erfc(-v / std::f64::consts::SQRT_2));
}

#[test]
fn filled_normals_take_as_many_uniforms_as_they_say() {
    for len in 0..6 {
        let mut d = draws();
        let mut out = vec![0.0; len];
        d.fill_normal(&mut out);
        assert_eq!(d.uniform(), draws().uniform_at(Draws::normal_uniforms(len) as u64));
        let mut one_by_one = draws();
        assert!(out.iter().all(|&z| z == one_by_one.normal()));
    }
}

#[test]
fn gammas_have_the_right_moments() {
    // Mean and variance are the shape; the variance of the sample variance is (2 a² + 6 a)/n.
    for shape in [0.1, 0.5, 1.0, 2.5, 30.0] {
        let (mean, variance) = moments(&many(|d| d.gamma(shape)));
        let n = N as f64;
        assert!((mean - shape).abs() < 4.0 * (shape / n).sqrt(), "shape {shape}: mean {mean}");
        let spread = ((2.0 * shape * shape + 6.0 * shape) / n).sqrt();
        assert!((variance - shape).abs() < 5.0 * spread, "shape {shape}: variance {variance}");
    }
}

#[test]
fn gammas_are_gamma_where_the_distribution_has_a_closed_form() {
    distributed(many(|d| d.gamma(1.0)), |v| -libm::expm1(-v));
    distributed(many(|d| d.gamma(0.5)), |v| libm::erf(v.sqrt()));
    distributed(many(|d| d.gamma(3.0)), |v| 1.0 - (-v).exp() * (1.0 + v + v * v / 2.0));
    distributed(many(|d| d.chi_square(2.0)), |v| -libm::expm1(-v / 2.0));
}

#[test]
fn the_logarithm_of_a_gamma_does_not_underflow() {
    let mut d = draws();
    assert!((0..1000).all(|_| d.ln_gamma(1e-6).is_finite()));
    assert!(d.gamma(0.0).is_nan() && d.gamma(f64::NAN).is_nan());
}

#[test]
fn dirichlets_sum_to_one_with_beta_margins() {
    let mut draws = draws();
    let mut first = Vec::new();
    for _ in 0..N {
        let w = draws.dirichlet(3, 1.0);
        assert!((w.iter().sum::<f64>() - 1.0).abs() < 1e-15 && w.iter().all(|&w| w >= 0.0));
        first.push(w[0]);
    }
    // Beta(1, 2).
    distributed(first, |v| 1.0 - (1.0 - v).powi(2));
    assert!((draws.dirichlet(5, 1e-4).iter().sum::<f64>() - 1.0).abs() < 1e-15);
}

#[test]
fn weighted_indices_follow_the_weights_and_skip_zeros() {
    let mut draws = draws();
    let mut counts = [0_f64; 4];
    for _ in 0..N {
        counts[draws.weighted_index(&[0.0, 1.0, 1.0, 4.0])] += 1.0;
    }
    assert_eq!((counts[0], counts[2]), (0.0, 0.0));
    assert!((counts[1] / N as f64 - 0.25).abs() < 0.015);
    assert_eq!(draws.weighted_index(&[0.0, 0.0]), 0);
    let least = f64::from_bits(1);
    assert!((0..100).all(|_| draws.weighted_index(&[0.0, least, least]) == 1));
}

#[test]
fn an_index_is_that_of_the_uniform_that_is_drawn_for_it() {
    let cumulative = [0.0, 1.0, 1.0, 4.0, 4.0];
    let below_one = 1.0 - f64::EPSILON / 2.0;
    let found = [0.0, 0.249, 0.25, below_one].map(|uniform| Draws::index_at(&cumulative, uniform));
    assert_eq!(found, [1, 1, 3, 3]);
    let (mut drawn, mut known) = (draws(), draws());
    assert!((0..100).all(|_| drawn.weighted_index(&cumulative) == Draws::index_at(&cumulative, known.uniform())));
}

#[test]
fn distinct_indices_are_a_uniform_ordered_choice() {
    let mut draws = draws();
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..12_000 {
        let chosen = draws.distinct_indices(4, 2);
        *counts.entry((chosen[0], chosen[1])).or_insert(0.0) += 1.0;
    }
    assert!(counts.len() == 12 && counts.keys().all(|(a, b)| a != b));
    // Chi-square with 11 degrees of freedom: 31.3 has probability 0.001.
    let chi_square: f64 = counts.values().map(|c: &f64| (c - 1000.0).powi(2) / 1000.0).sum();
    assert!(chi_square < 31.3, "{counts:?}");
    let mut all = draws.distinct_indices(100, 100);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..100));
}
