//! Moments of a set of rows: count, mean and scatter about the mean.

use gmm_model::{CovarianceType, packed_index};

/// The number of rows of a set, their mean `(d,)`, and their scatter `Σ (x − x̄)(x − x̄)ᵀ` in the packing of
/// [`Statistics`](gmm_model::Statistics): the triangle, the diagonal, or the trace.
///
/// Scatter about the mean, not about a common point: nothing cancels, however far apart the clusters are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Moments {
    pub(super) kind: CovarianceType,
    /// Number of rows, or sum of responsibilities.
    pub(super) n: f64,
    pub(super) mean: Vec<f64>,
    pub(super) scatter: Vec<f64>,
}

impl Moments {
    /// Of no rows.
    pub(super) fn empty(kind: CovarianceType, d: usize) -> Self {
        Self { kind, n: 0.0, mean: vec![0.0; d], scatter: vec![0.0; kind.second_len(1, d)] }
    }

    /// Of sums about a centre.
    pub(super) fn about(centre: &[f64], sums: &Sums) -> Self {
        let mut out = Self::empty(sums.kind, centre.len());
        if sums.n == 0.0 {
            return out;
        }
        out.n = sums.n;
        let moved: Vec<f64> = sums.first.iter().map(|f| f / sums.n).collect();
        out.mean.iter_mut().zip(centre).zip(&moved).for_each(|((m, c), v)| *m = c + v);
        out.scatter.copy_from_slice(&sums.second);
        out.add_square(&moved, -sums.n);
        out.keep_positive();
        out
    }

    /// Adds `times δ δᵀ` to the scatter.
    fn add_square(&mut self, delta: &[f64], times: f64) {
        match self.kind {
            CovarianceType::Diag => self.scatter.iter_mut().zip(delta).for_each(|(s, v)| *s += times * v * v),
            CovarianceType::Spherical => self.scatter[0] += times * delta.iter().map(|v| v * v).sum::<f64>(),
            CovarianceType::Full | CovarianceType::Tied => {
                for (i, v) in delta.iter().enumerate() {
                    let row = &mut self.scatter[packed_index(i, 0)..][..=i];
                    row.iter_mut().zip(delta).for_each(|(s, w)| *s += times * v * w);
                }
            }
        }
    }

    /// A difference may round to a variance below 0.
    fn keep_positive(&mut self) {
        match self.kind {
            CovarianceType::Diag | CovarianceType::Spherical => {
                self.scatter.iter_mut().for_each(|s| *s = s.max(0.0));
            }
            CovarianceType::Full | CovarianceType::Tied => {
                (0..self.mean.len()).for_each(|i| {
                    let at = packed_index(i, i);
                    self.scatter[at] = self.scatter[at].max(0.0);
                });
            }
        }
    }

    /// With another row. Source: Welford 1962.
    pub(super) fn with(&self, x: &[f64]) -> Self {
        let mut out = self.clone();
        let delta: Vec<f64> = x.iter().zip(&self.mean).map(|(x, m)| x - m).collect();
        out.n += 1.0;
        out.mean.iter_mut().zip(&delta).for_each(|(m, v)| *m += v / out.n);
        out.add_square(&delta, self.n / out.n);
        out
    }

    /// Without one of its rows.
    pub(super) fn without(&self, x: &[f64]) -> Self {
        if self.n < 1.5 {
            return Self::empty(self.kind, x.len());
        }
        let mut out = self.clone();
        let delta: Vec<f64> = x.iter().zip(&self.mean).map(|(x, m)| x - m).collect();
        out.n -= 1.0;
        out.mean.iter_mut().zip(&delta).for_each(|(m, v)| *m -= v / out.n);
        out.add_square(&delta, -self.n / out.n);
        out.keep_positive();
        out
    }

    /// Of the rows of both sets. Source: Chan, Golub and LeVeque 1979.
    pub(super) fn merged(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.n += other.n;
        let delta: Vec<f64> = other.mean.iter().zip(&self.mean).map(|(b, a)| b - a).collect();
        out.mean.iter_mut().zip(&delta).for_each(|(m, v)| *m += v * (other.n / out.n));
        out.scatter.iter_mut().zip(&other.scatter).for_each(|(a, b)| *a += b);
        out.add_square(&delta, self.n * other.n / out.n);
        out
    }
}

/// Sums over rows about a centre: `Σ r`, `Σ r z` and packed `Σ r z zᵀ` with `z = x − centre`.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    pub(super) kind: CovarianceType,
    pub(super) n: f64,
    pub(super) first: Vec<f64>,
    pub(super) second: Vec<f64>,
}

impl Sums {
    pub(super) fn zero(kind: CovarianceType, d: usize) -> Self {
        Self { kind, n: 0.0, first: vec![0.0; d], second: vec![0.0; kind.second_len(1, d)] }
    }

    /// Adds one row of responsibility 1; `z`, `(d,)`.
    #[inline]
    pub(super) fn add_row(&mut self, z: &[f64]) {
        self.n += 1.0;
        self.first.iter_mut().zip(z).for_each(|(s, v)| *s += v);
        match self.kind {
            CovarianceType::Diag => self.second.iter_mut().zip(z).for_each(|(s, v)| *s += v * v),
            CovarianceType::Spherical => self.second[0] += z.iter().map(|v| v * v).sum::<f64>(),
            CovarianceType::Full | CovarianceType::Tied => {
                let mut rest = self.second.as_mut_slice();
                for (i, v) in z.iter().enumerate() {
                    let (row, below) = rest.split_at_mut(i + 1);
                    row.iter_mut().zip(z).for_each(|(s, w)| *s += v * w);
                    rest = below;
                }
            }
        }
    }

    /// Adds a block of `m` rows given by columns: `z` is `(d, m)`, `r` their responsibilities; `scratch` has `m` numbers.
    #[inline(always)]
    pub(super) fn add_block(&mut self, z: &[f64], r: &[f64], scratch: &mut [f64]) {
        let m = r.len();
        self.n += sum(r);
        for i in 0..self.first.len() {
            let zi = &z[i * m..][..m];
            scratch.iter_mut().zip(zi).zip(r).for_each(|((s, z), r)| *s = r * z);
            self.first[i] += sum(scratch);
            match self.kind {
                CovarianceType::Diag => self.second[i] += dot(scratch, zi),
                CovarianceType::Spherical => self.second[0] += dot(scratch, zi),
                CovarianceType::Full | CovarianceType::Tied => {
                    for j in 0..=i {
                        self.second[packed_index(i, j)] += dot(scratch, &z[j * m..][..m]);
                    }
                }
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.n += other.n;
        self.first.iter_mut().zip(&other.first).for_each(|(a, b)| *a += b);
        self.second.iter_mut().zip(&other.second).for_each(|(a, b)| *a += b);
    }
}

/// Σ a in eight independent sums, whose order depends on the length only.
#[inline(always)]
fn sum(a: &[f64]) -> f64 {
    let (blocks, rest) = a.as_chunks::<8>();
    let mut sums = [0.0; 8];
    blocks.iter().for_each(|a| (0..8).for_each(|lane| sums[lane] += a[lane]));
    sums.iter().sum::<f64>() + rest.iter().sum::<f64>()
}

/// Σ a b in eight independent sums, whose order depends on the length only.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_blocks, a_rest) = a.as_chunks::<8>();
    let (b_blocks, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        (0..8).for_each(|lane| sums[lane] += a[lane] * b[lane]);
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [CovarianceType; 3] = [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical];

    fn close(a: &Moments, b: &Moments) {
        assert_eq!((a.kind, a.n), (b.kind, b.n));
        for (a, b) in a.mean.iter().chain(&a.scatter).zip(b.mean.iter().chain(&b.scatter)) {
            assert!((a - b).abs() <= 1e-13 * (1.0 + a.abs()), "{a} {b}");
        }
    }

    #[test]
    fn rows_added_taken_out_and_merged_have_the_moments_of_their_sums() {
        let rows = [[1.0, 2.0], [0.5, -3.0], [7.0, 1.0], [2.5, 2.0], [-1.0, 4.0]];
        for kind in KINDS {
            let of = |rows: &[[f64; 2]]| {
                let mut sums = Sums::zero(kind, 2);
                rows.iter().for_each(|x| sums.add_row(&[x[0] - 3.0, x[1] + 1.0]));
                Moments::about(&[3.0, -1.0], &sums)
            };
            let one_by_one = rows.iter().fold(Moments::empty(kind, 2), |m, x| m.with(x));
            close(&one_by_one, &of(&rows));
            close(&one_by_one.without(&rows[4]).without(&rows[3]), &of(&rows[..3]));
            close(&of(&rows[..2]).merged(&of(&rows[2..])), &of(&rows));
            let mut block = Sums::zero(kind, 2);
            let columns: Vec<f64> = (0..2).flat_map(|j| rows.map(|x| x[j])).collect();
            block.add_block(&columns, &[1.0; 5], &mut [0.0; 5]);
            close(&Moments::about(&[0.0; 2], &block), &of(&rows));
        }
    }
}
