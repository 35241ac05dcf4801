//! Partitions: numbering, distances, and a partition that represents many.

use rayon::prelude::*;

use super::DpDraws;

/// Appends labels numbered from 0 in the order of the clusters' first rows.
pub(super) fn push_canonical(labels: &[u32], k: usize, out: &mut Vec<u32>) {
    let mut names = vec![u32::MAX; k];
    let mut next = 0;
    out.extend(labels.iter().map(|&label| {
        let name = &mut names[label as usize];
        if *name == u32::MAX {
            *name = next;
            next += 1;
        }
        *name
    }));
}

/// The variation of information between two partitions of the same rows, in nats: 0 if they are equal, at most `ln n`.
///
/// Cost: `O(n + K K')`. Source: Meilă 2007, Comparing clusterings.
///
/// # Panics
/// If the lengths differ.
pub fn variation_of_information(a: &[u32], b: &[u32]) -> f64 {
    assert_eq!(a.len(), b.len(), "partitions of the same rows");
    let count = |labels: &[u32]| labels.iter().max().map_or(0, |most| *most as usize + 1);
    let (ka, kb) = (count(a), count(b));
    let mut table = vec![0u32; ka * kb];
    a.iter().zip(b).for_each(|(&a, &b)| table[a as usize * kb + b as usize] += 1);
    let n = a.len() as f64;
    let part = |count: u32| if count == 0 { 0.0 } else { f64::from(count) / n * libm::log(f64::from(count) / n) };
    let row = |i: usize| table[i * kb..][..kb].iter().sum::<u32>();
    let column = |j: usize| (0..ka).map(|i| table[i * kb + j]).sum::<u32>();
    // H(a) + H(b) − 2 I = 2 H(a, b) − H(a) − H(b).
    let joint: f64 = table.iter().map(|&count| part(count)).sum();
    let (of_a, of_b): (f64, f64) = ((0..ka).map(|i| part(row(i))).sum(), (0..kb).map(|j| part(column(j))).sum());
    (of_a + of_b - 2.0 * joint).max(0.0)
}

/// Most draws that are compared with one another.
const MOST: usize = 200;

/// The draw of smallest posterior expected variation of information, and that expectation. Of many draws, 200 at
/// equal distances are candidates, and represent the posterior.
///
/// Cost: at most 19,900 times [`variation_of_information`].
///
/// Source: Wade and Ghahramani 2018, Bayesian cluster analysis: point estimation and credible balls.
pub fn vi_estimate(draws: &DpDraws) -> (usize, f64) {
    let total = draws.clusters.len();
    let count = total.min(MOST);
    let candidates: Vec<usize> = (0..count).map(|i| i * total / count).collect();
    // The distances to the candidates before each.
    let before = |i: usize| -> Vec<f64> {
        let own = draws.partition(candidates[i]);
        candidates[..i].iter().map(|&other| variation_of_information(own, draws.partition(other))).collect()
    };
    let distances: Vec<Vec<f64>> = (0..count).into_par_iter().map(before).collect();
    let between = |a: usize, b: usize| if a == b { 0.0 } else { distances[a.max(b)][a.min(b)] };
    let expected = |a: usize| (0..count).map(|b| between(a, b)).sum::<f64>() / count as f64;
    let each: Vec<f64> = (0..count).map(expected).collect();
    let best = (0..count).min_by(|&a, &b| each[a].total_cmp(&each[b]).then(a.cmp(&b))).unwrap_or(0);
    (candidates[best], each[best])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variation_of_information_is_a_metric_with_known_values() {
        let (a, b, c) = ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 3]);
        let ln2 = std::f64::consts::LN_2;
        assert_eq!(variation_of_information(&a, &a), 0.0);
        assert_eq!(variation_of_information(&a, &[1, 1, 0, 0]), 0.0);
        // Independent halves: H = ln 2 each, no information.
        assert!((variation_of_information(&a, &b) - 2.0 * ln2).abs() < 1e-15);
        assert!((variation_of_information(&a, &c) - ln2).abs() < 1e-15);
    }

    #[test]
    fn labels_are_numbered_by_first_row() {
        let mut out = Vec::new();
        push_canonical(&[3, 1, 3, 0, 1], 4, &mut out);
        assert_eq!(out, [0, 1, 0, 2, 1]);
    }
}
