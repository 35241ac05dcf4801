//! Distances, merges, trees, combinations and splits.

use gmm_model::structure::{
    Combination, CombineBy, Combining, MergeChange, PairDistance, SplitOptions, Tree, agglomerate, bhattacharyya,
    bound_of_change, change_point, description_length, distances, kl, kl_monte_carlo, kl_upper_bound, kl_variational,
    merge, merge_pair, runnalls, split, split_to, symmetric_kl, widest,
};
use gmm_model::{CovarianceType, Covariances, Mixture, ModelError, reference};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, array};
use proptest::prelude::*;

use crate::{all_close, close, mixture, mixtures_close, rows};

fn kind() -> impl Strategy<Value = CovarianceType> {
    prop::sample::select(CovarianceType::ALL.to_vec())
}

/// The same density with full covariances.
fn full(m: &Mixture) -> Mixture {
    let d = m.n_features();
    let mut all = Array3::zeros((m.n_components(), d, d));
    all.outer_iter_mut().enumerate().for_each(|(c, mut slot)| slot.assign(&m.covariances().matrix(c, d)));
    Mixture::new(m.weights().to_owned(), m.means().to_owned(), Covariances::Full(all)).expect("valid")
}

/// What a kind can keep of a whole covariance: all of it, its diagonal, or its trace.
fn held(kind: CovarianceType, whole: &Array2<f64>) -> Vec<f64> {
    match kind {
        CovarianceType::Full | CovarianceType::Tied => whole.iter().copied().collect(),
        CovarianceType::Diag => whole.diag().to_vec(),
        CovarianceType::Spherical => vec![whole.diag().sum()],
    }
}

#[track_caller]
fn moments_are_kept(before: &Mixture, after: &Mixture) {
    all_close(&before.mean(), &after.mean(), 1e-12);
    let kind = before.covariance_type();
    all_close(&held(kind, &before.covariance()), &held(kind, &after.covariance()), 1e-12);
    close(after.weights().sum(), 1.0, 1e-12);
}

/// Components with the given weights, means and variances in one dimension.
fn line(weights: Array1<f64>, means: &[f64], variances: &[f64]) -> Mixture {
    let column = |v: &[f64]| Array2::from_shape_vec((v.len(), 1), v.to_vec()).expect("one column");
    Mixture::new(weights, column(means), Covariances::Diag(column(variances))).expect("valid")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn merges_keep_mean_and_covariance_of_the_whole(kind in kind(), k in 2..7_usize, d in 1..6_usize, seed: u64, at in prop::collection::vec(any::<prop::sample::Index>(), 7)) {
        let m = mixture(k, d, kind, seed);
        let pair = (at[0].index(k), at[1].index(k));
        if pair.0 != pair.1 {
            moments_are_kept(&m, &merge_pair(&m, pair.0, pair.1).unwrap());
        }
        // Any clusters: numbers made contiguous.
        let raw: Vec<usize> = at[..k].iter().map(|i| i.index(k)).collect();
        let mut used = raw.clone();
        used.sort_unstable();
        used.dedup();
        let clusters: Vec<usize> = raw.iter().map(|c| used.binary_search(c).unwrap()).collect();
        let merged = merge(&m, &clusters).unwrap();
        prop_assert_eq!(merged.n_components(), used.len());
        moments_are_kept(&m, &merged);
    }

    #[test]
    fn one_component_left_has_the_moments_of_the_whole(kind in kind(), k in 1..6_usize, d in 1..5_usize, seed: u64) {
        let m = mixture(k, d, kind, seed);
        let one = merge(&m, &vec![0; k]).unwrap();
        all_close(one.means().row(0), &m.mean(), 1e-12);
        all_close(&held(kind, &one.covariances().matrix(0, d)), &held(kind, &m.covariance()), 1e-12);
    }

    #[test]
    fn splits_keep_the_moments_and_a_merge_undoes_them(kind in kind(), k in 1..5_usize, d in 1..6_usize, seed: u64, c in any::<prop::sample::Index>(), share in 0.05..0.95, distance in 0.05..0.95) {
        let (m, c) = (mixture(k, d, kind, seed), c.index(k));
        let two = split(&m, c, &SplitOptions { share, distance }).unwrap();
        prop_assert_eq!(two.n_components(), k + 1);
        moments_are_kept(&m, &two);
        close(two.weights()[c], share * m.weights()[c], 1e-12);
        mixtures_close(&merge_pair(&two, c, k).unwrap(), &m, 1e-12);
    }

    #[test]
    fn divergences_are_those_of_the_full_covariances(kinds in (kind(), kind()), d in 1..6_usize, seed: u64) {
        let (f, g) = (mixture(2, d, kinds.0, seed), mixture(3, d, kinds.1, seed ^ 1));
        let (ff, gg) = (full(&f), full(&g));
        close(kl(&f, 1, &g, 2).unwrap(), kl(&ff, 1, &gg, 2).unwrap(), 1e-11);
        close(symmetric_kl(&f, 1, &g, 2).unwrap(), symmetric_kl(&ff, 1, &gg, 2).unwrap(), 1e-11);
        close(symmetric_kl(&f, 1, &g, 2).unwrap(), kl(&f, 1, &g, 2).unwrap() + kl(&g, 2, &f, 1).unwrap(), 1e-11);
        close(bhattacharyya(&f, 1, &g, 2).unwrap(), bhattacharyya(&gg, 2, &ff, 1).unwrap(), 1e-11);
        close(kl(&f, 0, &f, 0).unwrap(), 0.0, 1e-12);
        close(bhattacharyya(&f, 0, &f, 0).unwrap(), 0.0, 1e-12);
    }

    #[test]
    fn divergences_do_not_change_under_an_affine_map(d in 1..5_usize, seed: u64) {
        let m = mixture(2, d, CovarianceType::Full, seed);
        // A lower triangle with positive diagonal, from another mixture's factor.
        let map = mixture(1, d, CovarianceType::Full, seed ^ 3).factors().dense(0, d);
        let mut all = Array3::zeros((2, d, d));
        all.outer_iter_mut().enumerate().for_each(|(c, mut slot)| {
            let a = map.dot(&m.covariances().matrix(c, d)).dot(&map.t());
            slot.assign(&(0.5 * (&a + &a.t())));
        });
        let moved = Mixture::new(m.weights().to_owned(), m.means().dot(&map.t()) + 7.0, Covariances::Full(all)).unwrap();
        close(kl(&m, 0, &m, 1).unwrap(), kl(&moved, 0, &moved, 1).unwrap(), 1e-9);
        close(bhattacharyya(&m, 0, &m, 1).unwrap(), bhattacharyya(&moved, 0, &moved, 1).unwrap(), 1e-9);
        close(runnalls(&m, 0, 1).unwrap(), runnalls(&moved, 0, 1).unwrap(), 1e-9);
    }

    #[test]
    fn the_bound_of_runnalls_is_the_weighted_divergence_of_the_parts(kind in kind(), k in 2..5_usize, d in 1..5_usize, seed: u64) {
        // Runnalls 2007, in the derivation of his bound: B = Σ w KL(f_c ‖ g_c), where g_c is what the merge made of component c.
        let m = mixture(k, d, kind, seed);
        let merged = merge_pair(&m, 0, 1).unwrap();
        let parts = (0..k).map(|c| m.weights()[c] * kl(&m, c, &merged, c.saturating_sub(1)).unwrap());
        close(runnalls(&m, 0, 1).unwrap(), parts.sum::<f64>(), 1e-11);
        close(runnalls(&m, 0, 1).unwrap(), runnalls(&m, 1, 0).unwrap(), 1e-12);
    }

    #[test]
    fn combinations_are_those_of_the_definition(k in 1..6_usize, n in 5..40_usize, seed: u64, cut in any::<prop::sample::Index>()) {
        let m = mixture(k, 2, CovarianceType::Full, seed);
        let r = reference::responsibilities(&m, rows(&m, n, seed).view());
        let found = combined(&r, CombineBy::Entropy, &[cut.index(n + 1)]);
        let (entropy, joins) = clust_combi(&r);
        all_close(&found.entropy, &entropy, 1e-11);
        let values: Vec<f64> = found.tree.joins().iter().map(|join| join.value).collect();
        all_close(&values, &joins, 1e-10);
        close(found.entropy[k - 1], 0.0, 0.0);
    }
}

/// The combination of these responsibilities, in blocks that begin at the given rows.
fn combined(r: &Array2<f64>, by: CombineBy, cuts: &[usize]) -> Combination {
    let mut combining = Combining::new(r.ncols(), by);
    while !combining.is_done() {
        let mut start = 0;
        for &end in cuts.iter().chain([&r.nrows()]) {
            combining.add(r.slice(ndarray::s![start..end, ..]), None).expect("k columns");
            start = end;
        }
        combining.end_pass().expect("two clusters");
    }
    combining.finish()
}

fn x_ln_x(x: f64) -> f64 {
    if x > 0.0 { x * x.ln() } else { 0.0 }
}

/// Baudry et al. 2010, section 3, literally: the entropies with k, .., 1 clusters, and their drops.
fn clust_combi(r: &Array2<f64>) -> (Vec<f64>, Vec<f64>) {
    let entropy = |t: &Array2<f64>| -t.iter().map(|&t| x_ln_x(t)).sum::<f64>();
    let joined = |t: &Array2<f64>, i: usize, j: usize| {
        let sum = &t.column(i) + &t.column(j);
        let mut next = t.clone();
        next.column_mut(i).assign(&sum);
        next.remove_index(Axis(1), j);
        next
    };
    let mut t = r.clone();
    let (mut entropies, mut drops) = (vec![entropy(&t)], Vec::new());
    while t.ncols() > 1 {
        let pairs = (0..t.ncols()).flat_map(|i| (i + 1..t.ncols()).map(move |j| (i, j)));
        let of_pairs = pairs.map(|(i, j)| entropy(&joined(&t, i, j)));
        let ((i, j), least) = (0..t.ncols())
            .flat_map(|i| (i + 1..t.ncols()).map(move |j| (i, j)))
            .zip(of_pairs)
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .expect("two columns");
        drops.push(entropies.last().expect("k clusters") - least);
        entropies.push(if t.ncols() == 2 { 0.0 } else { least });
        t = joined(&t, i, j);
    }
    (entropies, drops)
}

#[test]
fn divergences_in_one_dimension_are_their_formulas() {
    let m = line(array![0.5, 0.5], &[0.0, 3.0], &[4.0, 0.25]);
    let (s1, s2, delta) = (2.0_f64, 0.5_f64, 3.0_f64);
    let expected = (s2 / s1).ln() + (s1 * s1 + delta * delta) / (2.0 * s2 * s2) - 0.5;
    close(kl(&m, 0, &m, 1).unwrap(), expected, 1e-14);
    // Bhattacharyya 1943, for normal densities.
    let v = s1 * s1 + s2 * s2;
    close(bhattacharyya(&m, 0, &m, 1).unwrap(), 0.25 * delta * delta / v + 0.5 * (v / (2.0 * s1 * s2)).ln(), 1e-14);
    // Runnalls 2007: the merged variance is the mean of the variances plus a quarter of δ².
    let merged = 0.5 * (4.0 + 0.25) + 0.25 * 9.0;
    let bound = 0.5 * (f64::ln(merged) - 0.5 * f64::ln(4.0) - 0.5 * f64::ln(0.25));
    close(runnalls(&m, 0, 1).unwrap(), bound, 1e-14);
}

#[test]
fn divergences_of_components_agree_with_draws() {
    for (seed, kind) in CovarianceType::ALL.into_iter().enumerate() {
        let m = mixture(2, 3, kind, seed as u64);
        let (f, g) = (m.component(0).unwrap(), m.component(1).unwrap());
        let drawn = kl_monte_carlo(&f, &g, 40_000, 1).unwrap();
        let exact = kl(&m, 0, &m, 1).unwrap();
        assert!((drawn.estimate - exact).abs() < 4.0 * drawn.standard_error, "{kind}: {drawn:?} {exact}");
        // exp(−D) is the mean of √(g/f) under f.
        let x = rows(&f, 40_000, 2);
        let overlap = (0.5 * (reference::log_densities(&g, x.view()) - reference::log_densities(&f, x.view())))
            .mapv(f64::exp)
            .mean()
            .unwrap();
        close(overlap, (-bhattacharyya(&m, 0, &m, 1).unwrap()).exp(), 0.01);
    }
}

#[test]
fn the_upper_bound_bounds_and_the_approximation_is_near() {
    for (seed, kind) in CovarianceType::ALL.into_iter().enumerate() {
        let (f, g) = (mixture(4, 2, kind, seed as u64), mixture(3, 2, kind, 10 + seed as u64));
        let drawn = kl_monte_carlo(&f, &g, 40_000, 1).unwrap();
        let (bound, near) = (kl_upper_bound(&f, &g).unwrap(), kl_variational(&f, &g).unwrap());
        assert!(bound >= drawn.estimate - 4.0 * drawn.standard_error, "{kind}: {bound} {drawn:?}");
        // Hershey and Olsen 2007 report errors of this size between speech models.
        assert!((near - drawn.estimate).abs() < 0.35 * drawn.estimate.max(1.0), "{kind}: {near} {drawn:?}");
        // The bound without improvement is the convexity bound, Σ π ω KL.
        let apart = |a, b| f.weights()[a] * g.weights()[b] * kl(&f, a, &g, b).unwrap();
        let convexity: f64 = (0..4).flat_map(|a| (0..3).map(move |b| (a, b))).map(|(a, b)| apart(a, b)).sum();
        assert!(bound <= convexity);
    }
}

#[test]
fn divergences_of_single_and_of_equal_mixtures_are_exact() {
    let m = mixture(3, 2, CovarianceType::Full, 5);
    let (f, g) = (m.component(0).unwrap(), m.component(2).unwrap());
    let exact = kl(&m, 0, &m, 2).unwrap();
    close(kl_variational(&f, &g).unwrap(), exact, 1e-12);
    close(kl_upper_bound(&f, &g).unwrap(), exact, 1e-12);
    close(kl_variational(&m, &m).unwrap(), 0.0, 1e-14);
    close(kl_upper_bound(&m, &m).unwrap(), 0.0, 1e-9);
    assert_eq!(kl_monte_carlo(&m, &m, 1000, 0).unwrap().estimate, 0.0);
}

#[test]
fn the_bound_of_mixtures_far_apart_is_the_chain_rule() {
    // Components that do not overlap: KL = Σ π (ln π/ω + KL_c) exactly.
    let f = line(array![0.2, 0.8], &[0.0, 1e4], &[1.0, 1.0]);
    let g = line(array![0.5, 0.5], &[0.5, 1e4 + 1.0], &[1.0, 2.0]);
    let parts = [(0.2_f64, 0), (0.8_f64, 1)].map(|(w, c)| w * ((w / 0.5).ln() + kl(&f, c, &g, c).unwrap()));
    close(kl_upper_bound(&f, &g).unwrap(), parts.iter().sum(), 1e-12);
    close(kl_variational(&f, &g).unwrap(), parts.iter().sum(), 1e-12);
}

#[test]
fn weights_of_zero_and_densities_of_zero_have_defined_divergences() {
    let f = line(array![1.0, 0.0], &[0.0, 5.0], &[1.0, 1.0]);
    let g = line(array![0.5, 0.5], &[0.0, 1e200], &[1.0, 1e-200]);
    close(kl_upper_bound(&f, &g).unwrap(), 2f64.ln(), 1e-12);
    close(kl_variational(&f, &g).unwrap(), 2f64.ln(), 1e-12);
    let merged = merge_pair(&line(array![1.0, 0.0, 0.0], &[0.0, 1.0, 3.0], &[1.0; 3]), 1, 2).unwrap();
    assert_eq!((merged.weights()[1], merged.means()[[1, 0]]), (0.0, 2.0));
    let far = line(array![1.0], &[1e300], &[1e-10]);
    assert_eq!(kl_monte_carlo(&f, &far, 10, 0).unwrap().estimate, f64::INFINITY);
}

#[test]
fn the_bound_of_runnalls_is_no_less_than_the_divergence_of_the_merge() {
    for (seed, kind) in CovarianceType::ALL.into_iter().enumerate() {
        let m = mixture(3, 2, kind, 20 + seed as u64);
        let drawn = kl_monte_carlo(&m, &merge_pair(&m, 0, 2).unwrap(), 40_000, 1).unwrap();
        let bound = runnalls(&m, 0, 2).unwrap();
        assert!(bound >= drawn.estimate - 4.0 * drawn.standard_error, "{kind}: {bound} {drawn:?}");
        assert!(bound > 0.0);
        let change = bound_of_change(&m, 0, 2, 1000.0).unwrap();
        close(change.log_likelihood, -1000.0 * bound, 1e-12);
    }
}

#[test]
fn agglomeration_joins_the_closest_and_its_heights_do_not_fall() {
    for by in PairDistance::ALL {
        for kind in CovarianceType::ALL {
            let m = mixture(7, 2, kind, 3);
            let tree = agglomerate(&m, by).unwrap();
            assert_eq!((tree.joins().len(), tree.n_clusters()), (6, 1));
            assert!(tree.joins().windows(2).all(|j| j[0].height <= j[1].height), "{by} {kind}");
            let table = distances(&m, by).unwrap();
            let least =
                table.indexed_iter().filter(|((i, j), _)| i != j).map(|(_, v)| *v).fold(f64::INFINITY, f64::min);
            assert_eq!(tree.joins()[0].value, least);
            // Merging by the tree is merging step by step.
            let mut now = m.clone();
            for join in tree.joins().iter().take(3) {
                let table = distances(&now, by).unwrap();
                let pairs = table.indexed_iter().filter(|((i, j), _)| i < j);
                let ((i, j), value) = pairs.min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
                close(join.value, *value, 1e-12);
                now = merge_pair(&now, i, j).unwrap();
            }
            mixtures_close(&merge(&m, &tree.clusters(4).unwrap()).unwrap(), &now, 1e-12);
        }
    }
}

#[test]
fn the_sum_of_the_bounds_bounds_the_divergence_of_an_agglomeration() {
    let m = mixture(6, 2, CovarianceType::Full, 8);
    let tree = agglomerate(&m, PairDistance::Runnalls).unwrap();
    for count in 1..6 {
        let merged = merge(&m, &tree.clusters(count).unwrap()).unwrap();
        let drawn = kl_monte_carlo(&m, &merged, 20_000, 0).unwrap();
        assert!(tree.joins()[5 - count].height >= drawn.estimate - 4.0 * drawn.standard_error);
    }
}

#[test]
fn a_tree_numbers_nodes_as_scipy_and_cuts_at_any_count() {
    let mut tree = Tree::new(4);
    tree.join(1, 3, 0.5, 0.5).unwrap();
    tree.join(0, 2, 0.7, 0.2).unwrap();
    tree.join(1, 0, 0.9, 0.9).unwrap();
    let nodes: Vec<_> = tree.joins().iter().map(|join| (join.left, join.right)).collect();
    assert_eq!(nodes, [(1, 3), (0, 2), (5, 4)]);
    assert_eq!(tree.clusters(4).unwrap(), [0, 1, 2, 3]);
    assert_eq!(tree.clusters(3).unwrap(), [0, 1, 2, 1]);
    assert_eq!(tree.clusters(2).unwrap(), [0, 1, 0, 1]);
    assert_eq!(tree.clusters(1).unwrap(), [0, 0, 0, 0]);
    assert_eq!(tree.order(), [0, 2, 1, 3]);
    for count in [0, 5] {
        assert!(matches!(tree.clusters(count), Err(ModelError::Range { .. })));
    }
    assert!(tree.join(0, 0, 0.0, 0.0).is_err());
}

/// Six components like those of ex4.1 in Baudry et al. 2010 (two crosses of two components each, and two more), as
/// estimated from that data set's rows, to two digits.
fn crosses() -> Mixture {
    let covariances = array![
        [[0.94, 0.01], [0.01, 0.12]],
        [[0.10, 0.07], [0.07, 1.10]],
        [[0.39, 0.51], [0.51, 1.06]],
        [[0.30, -0.36], [-0.36, 0.75]],
        [[1.11, -0.04], [-0.04, 0.06]],
        [[0.08, -0.02], [-0.02, 1.06]],
    ];
    let means = array![[1.02, 4.96], [8.11, 0.16], [0.0, 0.09], [8.07, 4.99], [7.89, -0.03], [1.10, 5.16]];
    Mixture::new(array![0.20, 0.09, 0.22, 0.20, 0.11, 0.18], means, Covariances::Full(covariances)).expect("valid")
}

#[test]
fn the_crosses_of_baudry_et_al_are_combined_to_four_clusters() {
    // Their section 4.1: BIC selects six components; the entropy falls steeply to four clusters, each cross one of them.
    let m = crosses();
    let r = reference::responsibilities(&m, rows(&m, 600, 0).view());
    let found = combined(&r, CombineBy::Entropy, &[]);
    assert_eq!(found.tree.clusters(4).unwrap(), [0, 1, 2, 3, 1, 0]);
    assert_eq!(found.elbow(), 4);
    // Hennig 2010: DEMP stops there too, at 0.025, the default of his R package fpc.
    let found = combined(&r, CombineBy::Demp, &[]);
    assert_eq!(found.separated(0.025), 4);
    assert_eq!(found.tree.clusters(4).unwrap(), [0, 1, 2, 3, 1, 0]);
}

#[test]
fn the_change_point_of_the_entropies_of_ex4_1_is_four() {
    // Entropies with 1 to 6 clusters of mclust's ex4.1 under its best six full components, computed with NumPy from
    // scikit-learn's fit by the formulas of Baudry et al. 2010.
    let entropy = [0.0, 1.259e-6, 1.040_746, 4.730_963, 40.897_203, 122.219_266];
    assert_eq!(change_point(&entropy), 4);
    assert_eq!([&[][..], &[0.0], &[0.0, 3.0]].map(change_point), [0, 1, 2]);
    // Two exact lines.
    assert_eq!(change_point(&[0.0, 1.0, 2.0, 12.0, 22.0]), 3);
}

#[test]
fn misclassification_probabilities_are_the_estimates_of_hennig() {
    let r = array![[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.2, 0.7, 0.1], [0.0, 0.2, 0.8]];
    let found = combined(&r, CombineBy::Demp, &[2]);
    // P(assigned to 1 | from 0) = (0.4 + 0.2) / 1.5, the largest of the six.
    close(found.tree.joins()[0].value, 0.6 / 1.5, 1e-14);
    assert_eq!(found.tree.clusters(2).unwrap(), [0, 0, 1]);
    close(found.joined_weight[0], 3.0, 0.0);
    // Then from 2 to the union: 0.1 of 0.9; from the union to 2: 0.2 of 3.1.
    close(found.tree.joins()[1].value, 0.1 / 0.9, 1e-14);
    assert_eq!(found.separated(0.2), 2);
}

#[test]
fn a_row_of_weight_two_counts_as_two_rows_in_a_combination() {
    let m = mixture(4, 2, CovarianceType::Full, 2);
    let r = reference::responsibilities(&m, rows(&m, 30, 4).view());
    let twice = ndarray::concatenate(Axis(0), &[r.view(), r.view()]).unwrap();
    let weighted = |r: ArrayView2<'_, f64>, w: f64| {
        let mut combining = Combining::new(4, CombineBy::Entropy);
        while !combining.is_done() {
            combining.add(r, Some(&vec![w; r.nrows()])).unwrap();
            combining.end_pass().unwrap();
        }
        combining.finish()
    };
    let (a, b) = (weighted(r.view(), 2.0), weighted(twice.view(), 1.0));
    all_close(&a.entropy, &b.entropy, 1e-12);
    assert_eq!(a.tree.clusters(2), b.tree.clusters(2));
}

#[test]
fn the_widest_component_is_split_until_there_are_enough() {
    let m = line(array![0.5, 0.5], &[0.0, 9.0], &[1.0, 3.0]);
    assert_eq!(widest(&m), 1);
    let four = split_to(&m, 4, &SplitOptions::default()).unwrap();
    // 1.5 is split into two of 0.5625 each; then the first, of 0.5, is not yet the widest.
    all_close(four.weights(), &array![0.5, 0.125, 0.25, 0.125], 1e-14);
    moments_are_kept(&m, &four);
    assert_eq!(split_to(&m, 2, &SplitOptions::default()).unwrap(), m);
}

#[test]
fn the_axis_of_a_split_is_the_principal_one() {
    // Variances 9 and 1 along the diagonals.
    let a = array![[[5.0, 4.0], [4.0, 5.0]]];
    let m = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Full(a)).unwrap();
    let two = split(&m, 0, &SplitOptions::default()).unwrap();
    let step = 0.5 * 3.0 / 2f64.sqrt();
    all_close(&two.means().mapv(f64::abs), &Array2::from_elem((2, 2), step), 1e-12);
    all_close(&two.covariances().matrix(0, 2), &array![[3.875, 2.875], [2.875, 3.875]], 1e-12);
}

#[test]
fn the_change_of_the_criteria_is_their_difference() {
    let m = mixture(3, 2, CovarianceType::Full, 1);
    let merged = merge_pair(&m, 0, 1).unwrap();
    let x = rows(&m, 200, 3);
    let log_likelihood = |m: &Mixture| reference::log_densities(m, x.view()).sum();
    let change = MergeChange::new(&m, &merged, 200.0, log_likelihood(&merged) - log_likelihood(&m));
    let bic = |m: &Mixture| gmm_model::criteria(m, x.view(), None).bic;
    close(change.bic, bic(&merged) - bic(&m), 1e-12);
    let length = |m: &Mixture| description_length(m.n_parameters(), log_likelihood(m), 200.0, 2);
    close(change.description_length, length(&merged) - length(&m), 1e-12);
}

#[test]
fn wrong_arguments_are_errors() {
    let (m, other) = (mixture(3, 2, CovarianceType::Full, 1), mixture(3, 4, CovarianceType::Full, 1));
    assert!(matches!(kl(&m, 0, &other, 0), Err(ModelError::Shape { .. })));
    assert!(matches!(kl_upper_bound(&m, &other), Err(ModelError::Shape { .. })));
    assert!(matches!(kl(&m, 3, &m, 0), Err(ModelError::Range { what: "component", .. })));
    assert!(matches!(runnalls(&m, 0, 3), Err(ModelError::Range { .. })));
    assert!(matches!(merge(&m, &[0, 1]), Err(ModelError::Shape { .. })));
    for clusters in [[0, 2, 0], [1, 1, 1], [0, 1, usize::MAX]] {
        assert!(matches!(merge(&m, &clusters), Err(ModelError::Range { .. })), "{clusters:?}");
    }
    assert!(merge_pair(&m, 1, 1).is_err() && merge_pair(&m, 0, 3).is_err());
    assert!(split(&m, 3, &SplitOptions::default()).is_err());
    for share in [0.0, 1.0, f64::NAN] {
        assert!(split(&m, 0, &SplitOptions { share, ..SplitOptions::default() }).is_err());
    }
    assert!(split_to(&m, 2, &SplitOptions::default()).is_err());
    assert!(kl_monte_carlo(&m, &m, 1, 0).is_err());
    assert!(bound_of_change(&m, 0, 1, f64::NAN).is_err());
    let mut combining = Combining::new(3, CombineBy::Entropy);
    assert!(combining.add(Array2::zeros((4, 2)).view(), None).is_err());
    assert!(combining.add(Array2::zeros((4, 3)).view(), Some(&[1.0])).is_err());
    assert!("ward".parse::<PairDistance>().is_err() && "icl".parse::<CombineBy>().is_err());
}
