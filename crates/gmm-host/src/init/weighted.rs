//! Drawing rows with probability proportional to their weights.

use gmm_model::Draws;

/// 2⁵³: sums of integers up to this are exact in f64.
const EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// Draws `k` of `n` rows of positive weight without replacement, with probability proportional to weight.
///
/// Integer weights count as repeated rows: the draw is that from the repeated rows, so two drawn rows may be copies of
/// one. With other weights no row is drawn twice. Cost: `O(n)`.
pub(super) fn random_rows(n: usize, weights: Option<&[f64]>, k: usize, draws: &mut Draws) -> Vec<usize> {
    let Some(weights) = weights else { return draws.distinct_indices(n, k) };
    let total: f64 = weights.iter().sum();
    if total < EXACT && weights.iter().all(|w| w.fract() == 0.0) {
        let mut ends = Vec::with_capacity(n);
        let mut end = 0;
        ends.extend(weights.iter().map(|&w| {
            end += w as usize;
            end
        }));
        let copies = draws.distinct_indices(end, k);
        return copies.into_iter().map(|copy| ends.partition_point(|&end| end <= copy)).collect();
    }
    // Efraimidis and Spirakis 2006: the k smallest of exponential variables with rates w, in ascending order, are such
    // draws.
    let mut times: Vec<(f64, usize)> =
        weights.iter().enumerate().map(|(row, w)| (-libm::log(1.0 - draws.uniform()) / w, row)).collect();
    times.select_nth_unstable_by(k - 1, |a, b| a.0.total_cmp(&b.0));
    times.truncate(k);
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    times.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64) -> Draws {
        Draws::for_purpose("test", seed, 0)
    }

    #[test]
    fn whole_weights_draw_what_the_repeated_rows_draw() {
        let weights = [2.0, 1.0, 5.0, 1.0, 3.0];
        let repeated: Vec<usize> = weights.iter().enumerate().flat_map(|(i, &w)| vec![i; w as usize]).collect();
        for seed in 0..50 {
            let copies = random_rows(repeated.len(), None, 3, &mut draws(seed));
            let want: Vec<usize> = copies.into_iter().map(|copy| repeated[copy]).collect();
            assert_eq!(random_rows(5, Some(&weights), 3, &mut draws(seed)), want);
        }
    }

    #[test]
    fn other_weights_draw_different_rows_in_proportion() {
        let weights = [0.5, 1.5, 8.0];
        let mut first = [0.0; 3];
        for seed in 0..4000 {
            let rows = random_rows(3, Some(&weights), 2, &mut draws(seed));
            assert_ne!(rows[0], rows[1]);
            first[rows[0]] += 1.0 / 4000.0;
        }
        for (found, weight) in first.iter().zip(weights) {
            // Five standard deviations of a relative frequency among 4000 draws.
            assert!((found - weight / 10.0).abs() < 0.04, "{first:?}");
        }
    }
}
