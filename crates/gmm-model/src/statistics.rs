//! Sufficient statistics of one E-step: additive, with a versioned byte form.

use ndarray::Array2;

use crate::{CovarianceType, Mixture, StatisticsError};

/// The result of one pass over rows: everything that the M-step needs, as moments about given centres.
///
/// With `z = x − centre_c` and `r` the responsibility times the row weight: `weight[c] = Σ r`, `first[c] = Σ r z`, and
/// `second` the moments `Σ r z zᵀ` in the packing of the kind (full `(k, d*(d+1)/2)`; tied `(d*(d+1)/2)`, summed over
/// components; diag `(k, d)`, the diagonals; spherical `(k,)`, the traces). The centres are the means that the pass was
/// run with, so nothing cancels near convergence.
///
/// Statistics of chunks, threads, devices and machines are combined by [`add`](Self::add). The caller chooses the order
/// of additions; the same order gives the same bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Covariance kind, which determines the packing of `second`.
    pub kind: CovarianceType,
    /// Points about which the moments are taken, `(k, d)`.
    pub centres: Array2<f64>,
    /// Σ r, `(k,)`.
    pub weight: Vec<f64>,
    /// Σ r z, `(k, d)`.
    pub first: Array2<f64>,
    /// Packed Σ r z zᵀ, `kind.second_len(k, d)`.
    pub second: Vec<f64>,
    /// Σ w ln p(x); 0 if the responsibilities do not come from a density.
    pub log_likelihood: f64,
    /// Σ w, the total row weight.
    pub total_weight: f64,
    /// Number of rows.
    pub n_rows: u64,
    /// [`Mixture::fingerprint`] of the mixture whose responsibilities these are; 0 if it is not recorded. Passes whose
    /// statistics leave the process record it; engines do not.
    pub mixture: u64,
}

impl Statistics {
    /// Statistics of no rows about the given centres, `(k, d)`.
    pub fn zero(kind: CovarianceType, centres: Array2<f64>) -> Self {
        let (k, d) = centres.dim();
        Self {
            kind,
            weight: vec![0.0; k],
            first: Array2::zeros((k, d)),
            second: vec![0.0; kind.second_len(k, d)],
            centres,
            log_likelihood: 0.0,
            total_weight: 0.0,
            n_rows: 0,
            mixture: 0,
        }
    }

    /// The statistics of no rows under `mixture`.
    pub fn of_no_rows(mixture: &Mixture) -> Self {
        let zero = Self::zero(mixture.covariance_type(), mixture.means().to_owned());
        Self { mixture: mixture.fingerprint(), ..zero }
    }

    /// `(k, d)`.
    pub fn dim(&self) -> (usize, usize) {
        self.centres.dim()
    }

    /// Adds the statistics of other rows under the same mixture.
    ///
    /// # Errors
    /// [`StatisticsError`] if kind, shape or centres differ, or the recorded mixtures; `self` is then unchanged.
    pub fn add(&mut self, other: &Self) -> Result<(), StatisticsError> {
        if self.kind != other.kind || self.dim() != other.dim() {
            return Err(StatisticsError::Shape { left: self.shape_text(), right: other.shape_text() });
        }
        let differ = |c: &usize| self.centres.row(*c) != other.centres.row(*c);
        if let Some(component) = (0..self.dim().0).find(differ) {
            return Err(StatisticsError::Centres { component });
        }
        match (self.mixture, other.mixture) {
            (a, b) if a == b => {}
            (0, _) | (_, 0) => self.mixture = 0,
            _ => return Err(StatisticsError::Mixtures),
        }
        for (a, b) in self.weight.iter_mut().zip(&other.weight) {
            *a += b;
        }
        self.first += &other.first;
        for (a, b) in self.second.iter_mut().zip(&other.second) {
            *a += b;
        }
        self.log_likelihood += other.log_likelihood;
        self.total_weight += other.total_weight;
        self.n_rows = self.n_rows.saturating_add(other.n_rows);
        Ok(())
    }

    /// Adds statistics in the given order; `None` if there are none.
    ///
    /// Sums of parts of a data set, added in the order of the parts, are those of the CPU engine for all of it
    /// ([`Dataset::with_parts`](crate::Dataset::with_parts)), to the bit.
    ///
    /// # Errors
    /// [`StatisticsError`] and the index of the first item that cannot be [added](Self::add) to those before it.
    ///
    /// ```
    /// use gmm_model::{Covariances, Mixture, Statistics, reference};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0]))?;
    /// let of = |rows| reference::statistics(&mixture, rows, None);
    /// let (one, other) = (of(array![[1.0], [2.0]].view()), of(array![[5.0]].view()));
    /// let both = Statistics::sum([one, other]).unwrap().unwrap();
    /// assert_eq!((both.n_rows, both.first[[0, 0]]), (3, 8.0));
    /// # Ok::<(), gmm_model::ModelError>(())
    /// ```
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Result<Option<Self>, (usize, StatisticsError)> {
        let mut all = all.into_iter();
        let Some(mut sum) = all.next() else { return Ok(None) };
        for (i, other) in all.enumerate() {
            sum.add(&other).map_err(|error| (i + 1, error))?;
        }
        Ok(Some(sum))
    }

    /// The mean log-likelihood, `log_likelihood / total_weight`.
    pub fn mean_log_likelihood(&self) -> f64 {
        self.log_likelihood / self.total_weight
    }

    /// Whether all moments, the log-likelihood and the total weight are finite.
    pub fn is_finite(&self) -> bool {
        self.log_likelihood.is_finite() && self.total_weight.is_finite() && self.first_not_finite_component().is_none()
    }

    /// The first component whose moments are not finite; for tied second moments, component 0.
    pub fn first_not_finite_component(&self) -> Option<usize> {
        let (k, d) = self.dim();
        let per = self.kind.second_len(k, d) / if self.kind == CovarianceType::Tied { 1 } else { k };
        let second = self.second.iter().position(|v| !v.is_finite()).map(|i| i / per);
        let moments = (0..k).find(|&c| !self.weight[c].is_finite() || self.first.row(c).iter().any(|v| !v.is_finite()));
        moments.into_iter().chain(second).min()
    }

    fn shape_text(&self) -> String {
        let (k, d) = self.dim();
        format!("{} k={k} d={d}", self.kind)
    }

    fn arrays(&self) -> impl Iterator<Item = &f64> {
        self.centres.iter().chain(&self.weight).chain(self.first.iter()).chain(&self.second)
    }

    /// Writes the versioned byte form: magic `GMMSTAT`, version, kind, a zero byte, then `k`, `d`, `n_rows`, `mixture`
    /// as `u64` and all numbers as `f64`, little-endian: total weight, log-likelihood, centres, weight, first, second; last a
    /// checksum (FNV-1a, 64 bit).
    ///
    /// Preserves the bits of every number. Length: `66 + 8*(2*k*d + k + second_len)`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (k, d) = self.dim();
        let mut out = Vec::with_capacity(byte_len(self.kind, k, d).unwrap_or(0));
        out.extend_from_slice(MAGIC);
        out.push(VERSION);
        out.push(kind_code(self.kind));
        out.push(0);
        for v in [k as u64, d as u64, self.n_rows, self.mixture] {
            out.extend_from_slice(&v.to_le_bytes());
        }
        for v in [self.total_weight, self.log_likelihood].iter().chain(self.arrays()) {
            out.extend_from_slice(&v.to_le_bytes());
        }
        let sum = fnv1a(out.iter().copied());
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the byte form.
    ///
    /// # Errors
    /// [`StatisticsError::Bytes`] with the offset of the first invalid byte. Nothing is allocated before the length is
    /// checked against the header.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StatisticsError> {
        let wrong = |offset: usize, why: &str| StatisticsError::Bytes { why: why.to_owned(), offset };
        if bytes.len() < HEADER || &bytes[..MAGIC.len()] != MAGIC {
            return Err(wrong(0, "no header"));
        }
        if bytes[7] != VERSION {
            let why = format!("version {} is not {VERSION}, the one this program reads", bytes[7]);
            return Err(StatisticsError::Bytes { why, offset: 7 });
        }
        let kind = *CovarianceType::ALL.get(bytes[8] as usize).ok_or_else(|| wrong(8, "unknown covariance kind"))?;
        if bytes[9] != 0 {
            return Err(wrong(9, "reserved byte is not zero"));
        }
        let word = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
        let (k, d) = (word(10) as usize, word(18) as usize);
        if k == 0 || d == 0 || byte_len(kind, k, d) != Some(bytes.len()) {
            return Err(wrong(10, "shape does not agree with the length"));
        }
        let body = bytes.len() - 8;
        if word(body) != fnv1a(bytes[..body].iter().copied()) {
            return Err(wrong(body, "checksum differs"));
        }
        let mut numbers =
            bytes[HEADER..body].chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes")));
        let mut next = || numbers.next().expect("the length was checked");
        let (total_weight, log_likelihood) = (next(), next());
        let mut take = |len: usize| (0..len).map(|_| next()).collect::<Vec<_>>();
        let grid = |v: Vec<f64>| Array2::from_shape_vec((k, d), v).expect("k*d numbers");
        let centres = grid(take(k * d));
        let weight = take(k);
        let first = grid(take(k * d));
        let second = take(kind.second_len(k, d));
        Ok(Self {
            kind,
            centres,
            weight,
            first,
            second,
            log_likelihood,
            total_weight,
            n_rows: word(26),
            mixture: word(34),
        })
    }
}

const MAGIC: &[u8; 7] = b"GMMSTAT";
const VERSION: u8 = 2;
/// Magic, version, kind, reserved, `k`, `d`, `n_rows`, `mixture`.
const HEADER: usize = 7 + 3 + 4 * 8;

fn kind_code(kind: CovarianceType) -> u8 {
    CovarianceType::ALL.iter().position(|&k| k == kind).expect("ALL is complete") as u8
}

/// Length of the byte form, or `None` if it overflows `usize`.
fn byte_len(kind: CovarianceType, k: usize, d: usize) -> Option<usize> {
    let kd = k.checked_mul(d)?;
    let triangle = d.checked_mul(d.checked_add(1)?)? / 2;
    let second = match kind {
        CovarianceType::Full => k.checked_mul(triangle)?,
        CovarianceType::Tied => triangle,
        CovarianceType::Diag => kd,
        CovarianceType::Spherical => k,
    };
    let numbers = kd.checked_mul(2)?.checked_add(k)?.checked_add(second)?.checked_add(2)?;
    numbers.checked_mul(8)?.checked_add(HEADER + 8)
}

pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}
