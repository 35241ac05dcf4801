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
    distance((a, count(a)), (b, count(b)))
}

/// One more than the largest label.
fn count(labels: &[u32]) -> usize {
    labels.iter().fold(0, |count, &label| count.max(label as usize + 1))
}

/// The variation of information between two partitions, each with its [`count`].
fn distance((a, ka): (&[u32], usize), (b, kb): (&[u32], usize)) -> f64 {
    // Four counters per cell, for rows in turns: most rows are in few cells, and an increment of a counter waits for the
    // one before.
    let mut counters = vec![[0u32; 4]; ka * kb];
    let cell = |a: u32, b: u32| a as usize * kb + b as usize;
    let ((a_fours, a_rest), (b_fours, b_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    for (a, b) in a_fours.iter().zip(b_fours) {
        (0..4).for_each(|i| counters[cell(a[i], b[i])][i] += 1);
    }
    a_rest.iter().zip(b_rest).for_each(|(&a, &b)| counters[cell(a, b)][0] += 1);
    let table: Vec<u32> = counters.iter().map(|each| each.iter().sum()).collect();
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
    let some = total.min(MOST);
    let candidates: Vec<usize> = (0..some).map(|i| i * total / some).collect();
    let partition = |i: usize| (draws.partition(i), count(draws.partition(i)));
    let partitions: Vec<_> = candidates.iter().map(|&i| partition(i)).collect();
    // The distances to the candidates before each.
    let before = |i: usize| partitions[..i].iter().map(|&other| distance(partitions[i], other)).collect();
    let distances: Vec<Vec<f64>> = (0..some).into_par_iter().map(before).collect();
    let between = |a: usize, b: usize| if a == b { 0.0 } else { distances[a.max(b)][a.min(b)] };
    let expected = |a: usize| (0..some).map(|b| between(a, b)).sum::<f64>() / some as f64;
    let each: Vec<f64> = (0..some).map(expected).collect();
    let best = (0..some).min_by(|&a, &b| each[a].total_cmp(&each[b]).then(a.cmp(&b))).unwrap_or(0);
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
