//! Components as coefficients of features about the rows' shift, and how much precision they lose.
//!
//! ln w N(x | μ, Σ) = constant + Σ⁻¹m·x − ½ x·Σ⁻¹x with m and x minus the shift. If a component is narrow and far from
//! the shift, the terms are large and cancel; [`Expanded::terms`] is their magnitude. For a tied covariance, −½ x·Σ⁻¹x
//! is common to all components and not part of the coefficients: see [`Work::shared`].

use gmm_kernels::layout::{Kind, packed_index, packed_len};
use gmm_model::{Cholesky, Factors, Mixture, Precision};

use crate::cuda::em::error_bounds::{self, MOST_SHARED};
use crate::cuda::shape::Shape;

/// Positions of a component's coefficients, relative to the component's base position.
pub(crate) struct CoefficientLayout {
    /// Positions of the entries, `(d,)`.
    entries: Vec<usize>,
    /// Positions of the second moments: full: products, packed; diag: squares; spherical: the norm; tied: none.
    seconds: Vec<usize>,
}

impl CoefficientLayout {
    /// Collects the positions, given functions for those of entries, products of entries and the norm.
    pub(crate) fn of(
        kind: Kind,
        d: u32,
        entry: impl Fn(u32) -> u64,
        product: impl Fn(u32, u32) -> u64,
        norm: impl Fn() -> u64,
    ) -> Self {
        let seconds = match kind {
            Kind::Full => (0..d).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| product(i, j)).collect(),
            Kind::Diag => (0..d).map(|j| product(j, j)).collect(),
            Kind::Spherical => vec![norm()],
            Kind::Tied => Vec::new(),
        };
        let up = |places: Vec<u64>| places.into_iter().map(|at| at as usize).collect();
        Self { entries: up((0..d).map(entry).collect()), seconds: up(seconds) }
    }
}

/// A component's constant, and the magnitude of its terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Expanded {
    /// The log joint density at the shift: −∞ for a weight of 0.
    pub(crate) constant: f64,
    /// Sum of the magnitudes of a log density's terms before they cancel, for rows within four standard deviations.
    /// Times the rounding error of `f64` it bounds the error. Not finite if a coefficient is not.
    pub(crate) terms: f64,
}

/// Scratch for one component, and the inverse of its factor.
#[derive(Default)]
pub(crate) struct Work {
    mean: Vec<f64>,
    reach: Vec<f64>,
    scaled: Vec<f64>,
    /// `L⁻¹`, `(d, d)` row-major, and `L⁻ᵀL⁻¹`, packed.
    root: Vec<f64>,
    precision: Vec<f64>,
}

impl Work {
    /// Prepares for the components of a mixture: inverts the factor of a tied covariance.
    pub(crate) fn begin(&mut self, mixture: &Mixture) {
        let d = mixture.n_features();
        for v in [&mut self.mean, &mut self.reach, &mut self.scaled] {
            v.resize(d, 0.0);
        }
        if let Factors::Tied(l) = mixture.factors() {
            self.invert(l);
        }
    }

    /// Computes `L⁻¹` and the precision.
    fn invert(&mut self, l: &Cholesky) {
        let d = l.dim();
        self.root.clear();
        self.root.resize(d * d, 0.0);
        let root = &mut self.root[..];
        for i in 0..d {
            let (before, row) = root.split_at_mut(i * d);
            let (row, pivot) = (&mut row[..d], 1.0 / l.at(i, i));
            for (k, known) in before.chunks_exact(d).enumerate() {
                let by = -l.at(i, k) * pivot;
                row[..=k].iter_mut().zip(known).for_each(|(v, known)| *v += by * known);
            }
            row[i] = pivot;
        }
        self.precision.clear();
        self.precision.resize(packed_len(d as u32) as usize, 0.0);
        for row in root.chunks_exact(d).enumerate().map(|(i, row)| &row[..=i]) {
            for (a, v) in row.iter().enumerate() {
                let at = packed_index(a as u32, 0) as usize;
                self.precision[at..].iter_mut().zip(&row[..=a]).for_each(|(p, u)| *p += v * u);
            }
        }
    }

    /// Writes the coefficients of component `c` to `out`, from `own` on; other numbers stay unchanged.
    pub(crate) fn component(
        &mut self,
        mixture: &Mixture,
        c: usize,
        shift: &[f64],
        places: &CoefficientLayout,
        own: usize,
        out: &mut [f64],
    ) -> Expanded {
        let out = &mut out[own..];
        self.mean.iter_mut().zip(mixture.means().row(c)).zip(shift).for_each(|((m, mean), s)| *m = mean - s);
        let (square, terms) = match mixture.factors() {
            Factors::Full(all) => {
                self.invert(&all[c]);
                places.seconds.iter().zip(&self.precision).for_each(|(at, p)| out[*at] = -p);
                (0..shift.len()).for_each(|i| out[places.seconds[packed_index(i as u32, i as u32) as usize]] *= 0.5);
                self.matrix(&all[c], places, out)
            }
            Factors::Tied(l) => self.matrix(l, places, out),
            Factors::Diag(sd) => {
                let mut totals = (0.0, 0.0);
                for (j, sd) in sd.row(c).iter().enumerate() {
                    let precision = sd.powi(-2);
                    out[places.seconds[j]] = -0.5 * precision;
                    self.variance(j, *sd, precision, places, out, &mut totals);
                }
                totals
            }
            Factors::Spherical(sd) => {
                let (sd, precision) = (sd[c], sd[c].powi(-2));
                out[places.seconds[0]] = -0.5 * precision;
                let mut totals = (0.0, 0.0);
                (0..shift.len()).for_each(|j| self.variance(j, sd, precision, places, out, &mut totals));
                totals
            }
        };
        let scale = mixture.log_weight(c) + mixture.log_normalizer(c);
        Expanded { constant: scale - 0.5 * square, terms }
    }

    fn variance(
        &self,
        j: usize,
        sd: f64,
        precision: f64,
        places: &CoefficientLayout,
        out: &mut [f64],
        (square, terms): &mut (f64, f64),
    ) {
        let m = self.mean[j];
        out[places.entries[j]] = m * precision;
        *square += m * m * precision;
        let reach = m.abs() / sd + 4.0;
        *terms += reach * reach;
    }

    /// Writes the coefficients of the entries. Returns mΣ⁻¹m, and the terms: the squared norm of |L⁻¹| times the rows'
    /// reach, which also bounds the terms of the precision's entries before they cancel.
    fn matrix(&mut self, l: &Cholesky, places: &CoefficientLayout, out: &mut [f64]) -> (f64, f64) {
        let d = l.dim();
        for i in 0..d {
            let variance: f64 = (0..=i).map(|j| l.at(i, j).powi(2)).sum();
            self.reach[i] = self.mean[i].abs() + 4.0 * variance.sqrt();
        }
        let (mut square, mut terms) = (0.0, 0.0);
        for (i, row) in self.root.chunks_exact(d).enumerate() {
            let row = &row[..=i];
            let scaled: f64 = row.iter().zip(&self.mean).map(|(v, m)| v * m).sum();
            let reach: f64 = row.iter().zip(&self.reach).map(|(v, r)| v.abs() * r).sum();
            self.scaled[i] = scaled;
            square += scaled * scaled;
            terms += reach * reach;
        }
        for (j, at) in places.entries.iter().enumerate() {
            out[*at] = (j..d).map(|i| self.root[i * d + j] * self.scaled[i]).sum();
        }
        (square, terms)
    }

    /// Σ w over rows of −½ x·Σ⁻¹x, the part that all components of a tied covariance share, from Σ w x xᵀ about the
    /// shift, packed. `None` if it would lose too much precision: see [`MOST_SHARED`].
    pub(crate) fn shared(&self, scatter: &[f64], shape: &Shape, total_weight: f64) -> Option<f64> {
        let d = self.mean.len() as u32;
        let (mut off, mut size) = (0.0, 0.0);
        for (p, s) in self.precision.iter().zip(scatter) {
            off += p * s;
            size += (p * s).abs();
        }
        let on = |i: u32| packed_index(i, i) as usize;
        let half_on = 0.5 * (0..d).map(|i| self.precision[on(i)] * scatter[on(i)]).sum::<f64>();
        // The terms on the diagonal are positive, and count half.
        let lost = shape.precision == Precision::F32 && size - half_on > MOST_SHARED * total_weight;
        (!lost).then_some(half_on - off)
    }
}

/// The largest allowed [`Expanded::terms`]: an error of 1e-9 in a log density in `f64`, and for `f32` rows no more than
/// the rounding of the rows causes. EM's loop has the same limits.
pub(crate) const fn most_terms(shape: &Shape) -> f64 {
    error_bounds::of_features(shape.precision, shape.kind).most_terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_model::{CovarianceType, Covariances, reference};
    use ndarray::{Array1, Array2, array};

    /// A layout for tests: entries, then products row by row, then the norm.
    fn plain(kind: Kind, d: u32) -> (CoefficientLayout, usize) {
        let norm = u64::from(d) + packed_len(d);
        let product = |i, j| u64::from(d) + packed_index(i, j);
        (CoefficientLayout::of(kind, d, u64::from, product, || norm), norm as usize + 1)
    }

    #[test]
    fn expanded_densities_are_densities() {
        let shift = [10.0, -3.0, 0.5];
        let means = array![[11.0, -2.0, 0.0], [9.5, -3.0, 4.0]];
        let matrix = array![[2.0, 0.3, 0.1], [0.3, 1.0, -0.4], [0.1, -0.4, 0.7]];
        let all = [
            (Kind::Full, Covariances::Full(ndarray::stack![ndarray::Axis(0), matrix, &matrix * 0.5])),
            (Kind::Tied, Covariances::Tied(matrix.clone())),
            (Kind::Diag, Covariances::Diag(array![[1.0, 2.0, 0.25], [0.5, 3.0, 1.0]])),
            (Kind::Spherical, Covariances::Spherical(array![0.7, 2.0])),
        ];
        for (kind, covariances) in all {
            let mixture = Mixture::new(array![0.25, 0.75], means.clone(), covariances).unwrap();
            let (places, len) = plain(kind, 3);
            let mut work = Work::default();
            work.begin(&mixture);
            for c in 0..2 {
                let mut out = vec![0.0; len];
                let Expanded { constant, terms } = work.component(&mixture, c, &shift, &places, 0, &mut out);
                for x in [[10.0, -3.0, 0.5], [12.0, 0.0, -1.0], [8.0, -7.0, 3.0]] {
                    let z: Vec<f64> = x.iter().zip(&shift).map(|(x, s)| x - s).collect();
                    let mut got = constant + (0..3).map(|j| out[j] * z[j]).sum::<f64>();
                    let mut scatter = Vec::new();
                    for i in 0..3 {
                        for j in 0..=i {
                            scatter.push(z[i] * z[j]);
                            got += out[3 + packed_index(i as u32, j as u32) as usize] * z[i] * z[j];
                        }
                    }
                    got += out[len - 1] * z.iter().map(|v| v * v).sum::<f64>();
                    if kind == Kind::Tied {
                        let shape = Shape { kind: CovarianceType::Tied, precision: Precision::F32, n: 1, k: 2, d: 3 };
                        got += work.shared(&scatter, &shape, 1.0).expect("little precision is lost");
                        // As if a thousand rows weighed next to nothing.
                        assert_eq!(work.shared(&scatter, &shape, 1e-6).is_none(), z.iter().any(|v| *v != 0.0));
                        let double = Shape { precision: Precision::F64, ..shape };
                        assert!(work.shared(&scatter, &double, 1e-6).is_some());
                    }
                    let want = reference::log_joint(&mixture, c, Array1::from(x.to_vec()).view());
                    assert!((got - want).abs() < 1e-13 * terms, "{kind:?} {c}: {got} is not {want}");
                }
                assert!(terms >= 3.0 * 16.0, "{kind:?}: {terms}");
            }
        }
    }

    #[test]
    fn terms_grow_with_the_distance_and_with_what_cancels() {
        let terms = |at: f64, covariances: Covariances| {
            let kind = match covariances.kind() {
                CovarianceType::Diag => Kind::Diag,
                _ => Kind::Full,
            };
            let mixture = Mixture::new(array![1.0], Array2::from_elem((1, 2), at), covariances).unwrap();
            let ((places, len), mut work) = (plain(kind, 2), Work::default());
            work.begin(&mixture);
            work.component(&mixture, 0, &[0.0; 2], &places, 0, &mut vec![0.0; len]).terms
        };
        let diag = |v: f64| Covariances::Diag(array![[v, 1.0]]);
        assert_eq!(terms(0.0, diag(1.0)), 32.0);
        assert!((terms(100.0, diag(1e-4)) / 1e8 - 1.0).abs() < 1e-2);
        let full = |r: f64| Covariances::Full(array![[[1.0, r], [r, 1.0]]]);
        assert!(terms(0.0, full(0.999_999)) > 1e6 * terms(0.0, full(0.5)) / 100.0);
    }

    #[test]
    fn a_weight_of_0_has_no_density() {
        let mixture = Mixture::new(array![0.0, 1.0], Array2::zeros((2, 1)), Covariances::Spherical(array![1.0, 1.0]));
        let (mixture, (places, len)) = (mixture.unwrap(), plain(Kind::Spherical, 1));
        let mut work = Work::default();
        work.begin(&mixture);
        let got = work.component(&mixture, 0, &[0.0], &places, 0, &mut vec![0.0; len]);
        assert_eq!(got.constant, f64::NEG_INFINITY);
    }
}
