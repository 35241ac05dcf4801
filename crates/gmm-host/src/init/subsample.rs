//! The sample of rows on which k-means runs if there are many.

use gmm_model::Draws;
use ndarray::Array2;

use crate::{Data, Error, shift};

/// Smallest sample: a cluster of a thousandth of the rows has about 30 rows in it.
const LEAST: usize = 1 << 15;

/// Smallest number of sampled rows per centre: the error of a cluster's mean is then an eighth of its spread. The means
/// from which EM starts are computed from all rows.
const EACH: usize = 64;

/// The default number of rows on which k-means runs: the larger of 32768 and `64 k` if there are more than twice as
/// many rows, else all.
pub(crate) fn rows_for(n: usize, k: usize) -> usize {
    let some = LEAST.max(EACH.saturating_mul(k));
    if n / 2 > some { some } else { n }
}

/// Most rows among which seeds are drawn: a GPU draws all seeds among them in one go.
const MOST_SEEDED: usize = 1 << 17;

/// Fewest rows for each seed.
const EACH_SEED: usize = 6;

/// The number of rows, of `n` on which k-means runs, among which its `k` seeds are drawn. k-means++ costs `n k` distances, which
/// for thousands of seeds take far longer than all that follows.
pub(super) fn seeded_rows(n: usize, k: usize) -> usize {
    n.min(MOST_SEEDED.max(EACH_SEED.saturating_mul(k)))
}

/// One row, drawn at random, of each of `count` equal ranges of `n` rows.
fn strata(n: usize, count: usize, draws: &mut Draws) -> Vec<usize> {
    // Range `i` begins at `⌊i n / count⌋`, computed incrementally: divisions would take longer than the draws.
    let (mut first, mut left) = (0, 0);
    let (whole, rest) = (n / count, n % count);
    let one = |bits: u64| {
        left += rest;
        let more = usize::from(left >= count);
        left -= more * count;
        let (start, long) = (first, whole + more);
        first += long;
        // The upper 64 bits of the product: each row has the same share of the 2⁶⁴ values, up to rounding.
        start + ((u128::from(bits) * long as u128) >> 64) as usize
    };
    draws.scattered(count).map(one).collect()
}

/// All rows of a data set, or a sample of them.
pub(super) struct RowSample<'a> {
    data: Data<'a>,
    /// Indices of the sampled rows, ascending; `None` for all rows.
    chosen: Option<Vec<usize>>,
    /// Weights of the sampled rows.
    weights: Option<Vec<f64>>,
    /// What missing values are replaced by in [`pick`](Self::pick), `(d,)`: medians of the observed ones. `None` if all
    /// values are observed.
    fill: Option<Vec<f64>>,
}

/// The medians of the columns, if values are missing.
fn medians(data: Data<'_>) -> Option<Vec<f64>> {
    match data {
        Data::Host(data) if data.has_missing() => Some(shift::of_data(data)),
        _ => None,
    }
}

impl<'a> RowSample<'a> {
    pub(super) fn all(data: Data<'a>) -> Self {
        Self { data, chosen: None, weights: None, fill: medians(data) }
    }

    /// Draws one row from each of `count` equal ranges of rows, so that the sample covers data in any order evenly.
    pub(super) fn some(data: Data<'a>, count: usize, draws: &mut Draws) -> Self {
        let chosen = strata(data.dim().0, count, draws);
        let weights = data.weights().map(|all| chosen.iter().map(|&row| all[row]).collect());
        Self { data, chosen: Some(chosen), weights, fill: medians(data) }
    }

    /// A sample of `count` of these `n` rows, drawn in the same way, and their indices among these.
    pub(super) fn fewer(&self, n: usize, count: usize, draws: &mut Draws) -> (Self, Vec<usize>) {
        let among = strata(n, count, draws);
        let of_data = |&i: &usize| self.chosen.as_ref().map_or(i, |chosen| chosen[i]);
        let weights = self.weights().map(|all| among.iter().map(|&i| all[i]).collect());
        let chosen = Some(among.iter().map(of_data).collect());
        (Self { data: self.data, chosen, weights, fill: self.fill.clone() }, among)
    }

    /// Indices of the rows in the data set; `None` for all rows.
    pub(super) fn chosen(&self) -> Option<&[usize]> {
        self.chosen.as_deref()
    }

    /// The weights of the rows, if any.
    pub(super) fn weights(&self) -> Option<&[f64]> {
        if self.chosen.is_some() { self.weights.as_deref() } else { self.data.weights() }
    }

    /// [`Data::pick`] with indices among these rows, and medians in place of missing values.
    pub(super) fn pick(&self, rows: &[usize]) -> Result<Array2<f64>, Error> {
        let mut picked = self.pick_with_holes(rows)?;
        if let Some(fill) = &self.fill {
            for mut row in picked.outer_iter_mut() {
                row.iter_mut().zip(fill).filter(|(v, _)| v.is_nan()).for_each(|(v, fill)| *v = *fill);
            }
        }
        Ok(picked)
    }

    /// As [`pick`](Self::pick), with NaN in place of missing values.
    pub(super) fn pick_with_holes(&self, rows: &[usize]) -> Result<Array2<f64>, Error> {
        match &self.chosen {
            None => self.data.pick(rows),
            Some(chosen) => self.data.pick(&rows.iter().map(|&row| chosen[row]).collect::<Vec<_>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::Dataset;

    use super::*;

    #[test]
    fn a_sample_has_one_row_of_each_stretch() {
        let data = Dataset::new(Array2::from_shape_fn((1003, 1), |(i, _)| i as f64)).unwrap();
        let data = data.with_weights((0..1003).map(|i| 1.0 + i as f64).collect()).unwrap();
        let mut draws = Draws::new(1, 0);
        let some = RowSample::some(Data::Host(&data), 100, &mut draws);
        let chosen = some.chosen().unwrap();
        assert_eq!(chosen.len(), 100);
        for (i, &row) in chosen.iter().enumerate() {
            assert!((i * 1003 / 100..(i + 1) * 1003 / 100).contains(&row), "{row} of stretch {i}");
        }
        assert_eq!(some.weights().unwrap()[99], 1.0 + chosen[99] as f64);
        assert_eq!(some.pick(&[7, 3]).unwrap().column(0).to_vec(), [chosen[7] as f64, chosen[3] as f64]);
        let others = RowSample::some(Data::Host(&data), 100, &mut draws);
        assert_ne!(others.chosen(), some.chosen(), "each start has a sample of its own");
    }

    #[test]
    fn a_sample_of_a_sample_has_rows_and_weights_of_the_data() {
        let data = Dataset::new(Array2::from_shape_fn((1003, 1), |(i, _)| i as f64)).unwrap();
        let data = data.with_weights((0..1003).map(|i| 1.0 + i as f64).collect()).unwrap();
        let mut draws = Draws::new(1, 0);
        let some = RowSample::some(Data::Host(&data), 100, &mut draws);
        let (fewer, among) = some.fewer(100, 10, &mut draws);
        for (i, &at) in among.iter().enumerate() {
            assert!((10 * i..10 * i + 10).contains(&at), "{at} of stretch {i}");
            let row = some.chosen().unwrap()[at];
            assert_eq!((fewer.chosen().unwrap()[i], fewer.weights().unwrap()[i]), (row, 1.0 + row as f64));
        }
        assert_eq!(fewer.pick(&[2]).unwrap()[[0, 0]], fewer.chosen().unwrap()[2] as f64);
        assert_eq!(
            [seeded_rows(1000, 8), seeded_rows(1 << 20, 8), seeded_rows(1 << 20, 50_000)],
            [1000, 131_072, 300_000]
        );
    }

    #[test]
    fn few_rows_are_all_taken() {
        assert_eq!([rows_for(1000, 8), rows_for(65_537, 8), rows_for(65_538, 8)], [1000, 65_537, 32_768]);
        assert_eq!([rows_for(1_000_000, 1024), rows_for(100_000, 1024)], [65_536, 100_000]);
    }
}
