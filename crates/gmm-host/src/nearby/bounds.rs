//! Upper bounds of a component's log density in a box, and lower bounds of its distance from there.

use gmm_model::{Cholesky, Factors, Mixture};

use super::{FLOOR, MOST_COLUMNS};

/// Bounds of rounding errors, relative to the numbers that are added: far above those of `d` additions, and far below
/// what a bound needs.
const ROUNDING: f64 = 1e-13;

/// A bounding box of rows: `low` and `high` are `(d,)`, less the shift.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBox<'a> {
    pub(crate) low: &'a [f64],
    pub(crate) high: &'a [f64],
}

impl RowBox<'_> {
    /// Squared distance of a point from the box.
    pub(crate) fn distance(&self, point: &[f64]) -> f64 {
        let mut sum = 0.0;
        for (x, (low, high)) in point.iter().zip(self.low.iter().zip(self.high)) {
            let gap = (low - x).max(x - high).max(0.0);
            sum += gap * gap;
        }
        sum
    }
}

/// Bounding boxes of consecutive tiles.
pub(crate) struct Boxes {
    d: usize,
    /// `(tiles, d)` each.
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Boxes {
    /// Empty boxes of `d` columns for `tiles` tiles.
    pub(crate) fn none(tiles: usize, d: usize) -> Self {
        Self { d, low: vec![f64::INFINITY; tiles * d], high: vec![f64::NEG_INFINITY; tiles * d] }
    }

    /// Extends the box of a tile by values of a column.
    pub(crate) fn extend(&mut self, tile: usize, column: usize, values: impl Iterator<Item = f64>) {
        let (low, high) = (&mut self.low[tile * self.d + column], &mut self.high[tile * self.d + column]);
        for v in values {
            (*low, *high) = (low.min(v), high.max(v));
        }
    }

    /// The box of one tile.
    pub(crate) fn of(&self, tile: usize) -> RowBox<'_> {
        let cells = tile * self.d..(tile + 1) * self.d;
        RowBox { low: &self.low[cells.clone()], high: &self.high[cells] }
    }

    /// The box of several tiles, written to `low` and `high`, `(d,)`.
    pub(crate) fn around(&self, tiles: std::ops::Range<usize>, low: &mut [f64], high: &mut [f64]) {
        low.fill(f64::INFINITY);
        high.fill(f64::NEG_INFINITY);
        for tile in tiles {
            let one = self.of(tile);
            low.iter_mut().zip(one.low).for_each(|(a, b)| *a = a.min(*b));
            high.iter_mut().zip(one.high).for_each(|(a, b)| *a = a.max(*b));
        }
    }
}

/// What is bounded.
#[derive(Clone, Copy, PartialEq)]
enum Values {
    LogDensities,
    Distances,
}

/// What the bounds need of the components.
///
/// Without correlations the smallest Mahalanobis distance in a box is that of the mean clamped to the box. With
/// correlations every half-space that contains the box, but not the mean, gives a lower bound: the distance of the mean
/// from `{x: u·x ≥ b}` is `(b − u·μ)² / uᵀΣu`. The half-spaces of the columns come first, since they need no matrix.
/// The best one is normal to `Σ⁻¹(x − μ)`, where `x` is the nearest point; an approximate `x` still gives a bound.
pub(crate) struct Bounds {
    k: usize,
    d: usize,
    /// Less the shift, `(d, k)`.
    means: Vec<f64>,
    /// Reciprocal standard deviations of each column, `(d, k)`.
    scales: Vec<f64>,
    /// The same row by row, `(k, 2*d)`: means, then scales.
    rows: Vec<f64>,
    /// Log normalisers without the components' weights, `(k,)`.
    constants: Vec<f64>,
    /// What the bounds are of.
    of: Values,
    /// For the kinds full and tied: one for each component, or one for all.
    ellipsoids: Vec<Ellipsoid>,
}

struct Ellipsoid {
    /// Lower triangle of the Cholesky factor, packed.
    factor: Vec<f64>,
    /// Its inverse covariance, `(d, d)`, from which directions are found: no result depends on its precision.
    precision: Vec<f64>,
}

impl Ellipsoid {
    fn new(factor: &Cholesky) -> Self {
        let d = factor.dim();
        let mut precision = vec![0.0; d * d];
        for (j, column) in precision.chunks_exact_mut(d).enumerate() {
            column[j] = 1.0;
            factor.solve_lower(column);
            factor.solve_lower_transposed(column);
        }
        Self { factor: factor.packed().to_vec(), precision }
    }
}

impl Bounds {
    /// Bounds of the log densities `ln N(x | c)` of a mixture's components.
    pub(crate) fn of_mixture(mixture: &Mixture, shift: &[f64]) -> Self {
        let (k, d) = mixture.means().dim();
        let mut bounds = Self::of_centres((k, d), |c, j| mixture.means()[[c, j]] - shift[j]);
        bounds.of = Values::LogDensities;
        bounds.constants.iter_mut().enumerate().for_each(|(c, slot)| *slot = mixture.log_normalizer(c));
        let mut set = |c: usize, j: usize, sd: f64| bounds.scales[j * k + c] = 1.0 / sd;
        match mixture.factors() {
            Factors::Full(all) => {
                for (c, factor) in all.iter().enumerate() {
                    (0..d).for_each(|j| set(c, j, deviation(factor, j)));
                }
                bounds.ellipsoids = all.iter().map(Ellipsoid::new).collect();
            }
            Factors::Tied(one) => {
                (0..d).for_each(|j| (0..k).for_each(|c| set(c, j, deviation(one, j))));
                bounds.ellipsoids = vec![Ellipsoid::new(one)];
            }
            Factors::Diag(sd) => (0..k).for_each(|c| (0..d).for_each(|j| set(c, j, sd[[c, j]]))),
            Factors::Spherical(sd) => (0..k).for_each(|c| (0..d).for_each(|j| set(c, j, sd[c]))),
        }
        bounds.rows = row_by_row(&bounds.means, &bounds.scales, k);
        bounds
    }

    /// Bounds of `−½ |x − centre|²`; `centre(c, j)` is less the shift.
    pub(crate) fn of_centres((k, d): (usize, usize), centre: impl Fn(usize, usize) -> f64) -> Self {
        let mut means = vec![0.0; k * d];
        for (j, column) in means.chunks_exact_mut(k).enumerate() {
            column.iter_mut().enumerate().for_each(|(c, slot)| *slot = centre(c, j));
        }
        let scales = vec![1.0; k * d];
        Self {
            k,
            d,
            rows: row_by_row(&means, &scales, k),
            means,
            scales,
            constants: vec![0.0; k],
            of: Values::Distances,
            ellipsoids: Vec::new(),
        }
    }

    /// Of components, at most this mean part may be near a tile if rows in tiles are to be faster. Even a single pass
    /// must pay for the reordering; and while distances cost less than densities, the search costs as much.
    pub(super) fn most_near(&self) -> f64 {
        if self.of == Values::Distances { 0.05 } else { 0.25 }
    }

    /// How far below the smallest value of a tile's rows a bound must be, so that the component can be left out.
    pub(crate) fn floor(&self) -> f64 {
        if self.of == Values::Distances { 0.0 } else { FLOOR }
    }

    /// How far below the largest bound in a tile the first components are that are evaluated: those that are likely to
    /// be needed.
    pub(super) fn reach(&self, tile: RowBox<'_>) -> f64 {
        match self.of {
            Values::LogDensities => FLOOR / 4.0,
            // Half of the square of half a diagonal.
            Values::Distances => tile.low.iter().zip(tile.high).map(|(a, b)| (b - a) * (b - a) / 8.0).sum(),
        }
    }

    /// Number of components.
    pub(crate) const fn components(&self) -> usize {
        self.k
    }

    /// Writes upper bounds of each component's log density in a box into `out`, `(k,)`; +∞ instead of NaN. Cost: `k d`.
    pub(crate) fn all(&self, rows: RowBox<'_>, out: &mut [f64]) {
        assert!(out.len() == self.k && rows.low.len() == self.d && rows.high.len() == self.d);
        let is_sum = self.ellipsoids.is_empty();
        out.fill(0.0);
        let columns = self.means.chunks_exact(self.k).zip(self.scales.chunks_exact(self.k));
        for ((means, scales), (&low, &high)) in columns.zip(rows.low.iter().zip(rows.high)) {
            for ((slot, mean), scale) in out.iter_mut().zip(means).zip(scales) {
                let gap = (low - mean).max(mean - high).max(0.0) * scale;
                let square = gap * gap;
                *slot = if is_sum { *slot + square } else { slot.max(square) };
            }
        }
        for (slot, constant) in out.iter_mut().zip(&self.constants) {
            *slot = value(*constant, *slot);
        }
    }

    /// An upper bound of the log density of component `c` in a box, at least as tight as that of [`all`](Self::all).
    /// Cost: `d`, or some `4 d²` for the kinds full and tied.
    pub(crate) fn one(&self, c: usize, rows: RowBox<'_>) -> f64 {
        let d = self.d;
        // The box relative to the mean, and the point nearest to it.
        let (mut low, mut high, mut near) = ([0.0; MOST_COLUMNS], [0.0; MOST_COLUMNS], [0.0; MOST_COLUMNS]);
        let (mut sum, mut most) = (0.0, 0.0f64);
        let (means, scales) = self.rows[2 * d * c..][..2 * d].split_at(d);
        for j in 0..d {
            let (mean, scale) = (means[j], scales[j]);
            (low[j], high[j]) = (rows.low[j] - mean, rows.high[j] - mean);
            near[j] = if low[j] > 0.0 { low[j] } else { high[j].min(0.0) };
            let square = (near[j] * scale) * (near[j] * scale);
            sum += square;
            most = most.max(square);
        }
        if self.ellipsoids.is_empty() {
            return value(self.constants[c], sum);
        }
        // Otherwise the box contains the mean.
        if sum > 0.0 {
            let ellipsoid = &self.ellipsoids[c.min(self.ellipsoids.len() - 1)];
            let found = ellipsoid.distance(&low[..d], &high[..d], &mut near[..d]);
            if found > most {
                most = found;
            }
        }
        value(self.constants[c], most)
    }
}

/// `(d, k)` means and scales as `(k, 2*d)`.
fn row_by_row(means: &[f64], scales: &[f64], k: usize) -> Vec<f64> {
    let of = |c: usize| [means, scales].into_iter().flat_map(move |all| all[c..].iter().step_by(k).copied());
    (0..k).flat_map(of).collect()
}

/// The standard deviation of column `j`.
fn deviation(factor: &Cholesky, j: usize) -> f64 {
    (0..=j).map(|i| factor.at(j, i)).fold(0.0, f64::hypot)
}

/// The largest log density at a squared distance of at least `square`.
fn value(constant: f64, square: f64) -> f64 {
    let v = constant - 0.5 * square * (1.0 - ROUNDING);
    if v.is_nan() { f64::INFINITY } else { v }
}

impl Ellipsoid {
    /// A lower bound of the squared Mahalanobis distance of 0 from a box. `near` holds a point of the box, and is
    /// improved by a few sweeps of coordinate descent.
    fn distance(&self, low: &[f64], high: &[f64], near: &mut [f64]) -> f64 {
        let d = low.len();
        for _ in 0..2 {
            for j in 0..d {
                let row = &self.precision[j * d..][..d];
                let mut slope = 0.0;
                for i in 0..d {
                    slope += row[i] * near[i];
                }
                let free = near[j] - slope / row[j];
                near[j] = if free > high[j] {
                    high[j]
                } else if free > low[j] {
                    free
                } else {
                    low[j]
                };
            }
        }
        let mut normal = [0.0; MOST_COLUMNS];
        let (mut gap, mut size) = (0.0, 0.0);
        for j in 0..d {
            let row = &self.precision[j * d..][..d];
            let mut u = 0.0;
            for i in 0..d {
                u += row[i] * near[i];
            }
            normal[j] = u;
            gap += (u * low[j]).min(u * high[j]);
            size += (u * low[j]).abs().max((u * high[j]).abs());
        }
        gap -= ROUNDING * size;
        // Σ (Lᵀu)².
        let mut spread = 0.0;
        for i in 0..d {
            let (mut sum, mut size) = (0.0f64, 0.0);
            for j in i..d {
                let term = self.factor[j * (j + 1) / 2 + i] * normal[j];
                sum += term;
                size += term.abs();
            }
            let high = sum.abs() + ROUNDING * size;
            spread += high * high;
        }
        if gap > 0.0 { gap * gap / spread } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, Covariances, Draws, reference};
    use ndarray::{Array1, Array2, Array3};

    use super::*;

    /// Components with long, correlated ellipsoids.
    fn mixture(kind: CovarianceType, k: usize, d: usize, draws: &mut Draws) -> Mixture {
        let means = Array2::from_shape_simple_fn((k, d), || 10.0 * draws.uniform());
        let variances = Array2::from_shape_simple_fn((k, d), || (8.0 * draws.uniform() - 6.0).exp());
        let full = |c: usize, i: usize, j: usize| {
            let size = (variances[[c, i]] * variances[[c, j]]).sqrt();
            if i == j { size } else { 0.95 * size }
        };
        let covariances = match kind {
            CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| full(c, i, j))),
            CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| full(0, i, j))),
            CovarianceType::Diag => Covariances::Diag(variances),
            CovarianceType::Spherical => Covariances::Spherical(variances.column(0).to_owned()),
        };
        Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).unwrap()
    }

    #[test]
    fn no_density_in_a_box_is_above_its_bound_and_a_point_has_its_density() {
        let draws = &mut Draws::for_purpose("bounds", 1, 0);
        for kind in CovarianceType::ALL {
            for d in [1, 2, 3, 7] {
                let (k, shift) = (11, vec![3.0; d]);
                let mixture = mixture(kind, k, d, draws);
                let bounds = Bounds::of_mixture(&mixture, &shift);
                let mut tight = 0;
                for size in [0.0, 0.1, 1.0, 5.0] {
                    let low: Vec<f64> = (0..d).map(|_| 10.0 * draws.uniform() - 3.0).collect();
                    let high: Vec<f64> = low.iter().map(|v| v + size * draws.uniform()).collect();
                    let (tile, mut all) = (RowBox { low: &low, high: &high }, vec![0.0; k]);
                    bounds.all(tile, &mut all);
                    for (c, &of_all) in all.iter().enumerate() {
                        let one = bounds.one(c, tile);
                        assert!(one <= of_all, "{kind} d={d} component {c}: {one} and {of_all}");
                        let mut most = f64::NEG_INFINITY;
                        for _ in 0..200 {
                            // Corners and faces more often than by chance.
                            let x: Vec<f64> = (0..d)
                                .map(|j| low[j] + (high[j] - low[j]) * (2.0 * draws.uniform() - 0.5).clamp(0.0, 1.0))
                                .collect();
                            let moved = x.iter().zip(&shift).map(|(a, b)| a + b).collect::<Array1<f64>>();
                            let log_density = reference::log_joint(&mixture, c, moved.view()) - mixture.log_weight(c);
                            most = most.max(log_density);
                        }
                        let slack = 1e-9 * most.abs().max(1.0);
                        assert!(most <= one + slack, "{kind} d={d} component {c}: {most} above {one}");
                        if size == 0.0 {
                            assert!(most >= one - slack, "{kind} d={d} component {c}: {most} below {one}");
                        }
                        tight += usize::from(one - most < 0.1 * (one - mixture.log_normalizer(c)).abs() + 1.0);
                    }
                }
                // Useful bounds, not only valid ones.
                assert!(d > 3 || tight >= 30, "{kind} d={d}: {tight} of 44 are tight");
            }
        }
    }
}
