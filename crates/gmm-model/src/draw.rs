//! Seeded, portable random draws: the same seed gives the same bits on any machine.
//!
//! The generator is ChaCha with 8 rounds, whose output is fixed by its definition. The distributions are implemented
//! here rather than taken from `rand_distr`, because `rand_distr` uses the platform's elementary functions as soon as
//! any crate in the build enables the feature `std` of `num-traits`. Here `ln`, `exp`, `sin` and `cos` always come from
//! the pure-Rust crate `libm`. `sqrt` and the four basic operations are correctly rounded everywhere.

use std::collections::HashMap;
use std::f64::consts::TAU;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Number of 32-bit words per uniform.
const WORDS: u128 = 2;

/// A stream of random draws, determined by a purpose, a seed and a stream number.
///
/// Give every sub-task (restart `i`, row block `j`) its own stream: streams are independent, so the result does not
/// depend on which thread runs what. Within a stream draw `i` can be reached directly ([`seek`](Self::seek),
/// [`uniform_at`](Self::uniform_at)), so that the draws of row `i` do not depend on how rows are divided into chunks.
///
/// ```
/// use gmm_model::Draws;
///
/// let mut draws = Draws::new(42, 0);
/// let third = (draws.uniform(), draws.uniform(), draws.uniform()).2;
/// assert_eq!(draws.uniform_at(2), third);
/// assert_ne!(Draws::new(42, 1).uniform_at(2), third);
/// ```
#[derive(Clone, Debug)]
pub struct Draws {
    rng: ChaCha8Rng,
    /// The second normal of the last pair, if not used yet.
    spare: Option<f64>,
}

/// Output `i`, from 1, of SplitMix64 with the given seed.
fn split_mix(seed: u64, i: u64) -> u64 {
    let bits = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

impl Draws {
    /// Stream `stream` of `seed`, at its beginning.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self::for_purpose("", seed, stream)
    }

    /// As [`new`](Self::new), but independent of the streams of every other purpose: rows sampled with seed 0 share no
    /// draws with a fit started from seed 0.
    pub fn for_purpose(purpose: &str, seed: u64, stream: u64) -> Self {
        // The key is set explicitly, not by `seed_from_u64`, so that the stream is defined by the cipher only.
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&crate::statistics::fnv1a(purpose.bytes()).to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(stream);
        Self { rng, spare: None }
    }

    /// Moves to the position after `uniforms` calls of [`uniform`](Self::uniform) from the beginning.
    pub fn seek(&mut self, uniforms: u64) {
        self.rng.set_word_pos(u128::from(uniforms) * WORDS);
        self.spare = None;
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Uniform in `[0, 1)`, a multiple of 2⁻⁵³. Takes 64 bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (f64::EPSILON / 2.0)
    }

    /// `count` words of 64 random bits by SplitMix64, with this stream's next word as the key (Steele, Lea and Flood
    /// 2014). Takes a fraction of the time of as many words of the stream. For draws that only need to be evenly
    /// spread, such as the rows of a sample.
    pub fn scattered(&mut self, count: usize) -> impl Iterator<Item = u64> + use<> {
        let key = self.bits();
        (1..=count as u64).map(move |i| split_mix(key, i))
    }

    /// Uniform number `index` of this stream, independent of what was drawn before; the next draw follows it.
    pub fn uniform_at(&mut self, index: u64) -> f64 {
        self.seek(index);
        self.uniform()
    }

    /// Uniform in `(0, 1]`: its logarithm is finite.
    fn uniform_above_zero(&mut self) -> f64 {
        1.0 - self.uniform()
    }

    /// Uniform among `0..n`, without modulo bias (Lemire 2019, "Fast random integer generation in an interval").
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn index(&mut self, n: usize) -> usize {
        assert!(n > 0, "an index among none");
        let n = n as u64;
        // Of the 2⁶⁴ words, 2⁶⁴ mod n would favour some indices; these are rejected and drawn again.
        let refused = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.bits()) * u128::from(n);
            if product as u64 >= refused {
                return (product >> 64) as usize;
            }
        }
    }

    /// Index `i` with probability `(c[i] − c[i−1]) / c[last]`, where `c` are cumulative weights, ascending.
    ///
    /// Never returns an entry of weight 0, unless all are 0: then index 0. Takes 64 bits; cost `O(ln n)`.
    ///
    /// # Panics
    /// If `cumulative` is empty.
    pub fn weighted_index(&mut self, cumulative: &[f64]) -> usize {
        Self::index_at(cumulative, self.uniform())
    }

    /// The index that [`weighted_index`](Self::weighted_index) returns if it draws `uniform`, in `[0, 1)`.
    ///
    /// # Panics
    /// If `cumulative` is empty.
    pub fn index_at(cumulative: &[f64], uniform: f64) -> usize {
        let total = *cumulative.last().expect("an index among no weights");
        let mark = uniform * total;
        let found = cumulative.partition_point(|&c| c <= mark);
        // Rounding can make the mark equal to the total (if that is subnormal): then the last entry with positive
        // weight.
        if found < cumulative.len() { found } else { cumulative.partition_point(|&c| c < total) }
    }

    /// `k` distinct indices among `0..n`, in random order; every ordered selection is equally likely.
    ///
    /// The first `k` steps of a Fisher-Yates shuffle, storing only the moved entries: memory `O(k)`, not `O(n)`.
    ///
    /// # Panics
    /// If `k > n`.
    pub fn distinct_indices(&mut self, n: usize, k: usize) -> Vec<usize> {
        assert!(k <= n, "{k} different indices among {n}");
        let mut moved: HashMap<usize, usize> = HashMap::with_capacity(k);
        (0..k)
            .map(|i| {
                let j = i + self.index(n - i);
                let at_i = moved.get(&i).copied().unwrap_or(i);
                moved.insert(j, at_i).unwrap_or(j)
            })
            .collect()
    }

    /// Standard normal (Box and Muller 1958). Two uniforms give a pair; the second normal is stored for the next call.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (first, second) = self.normal_pair();
        self.spare = Some(second);
        first
    }

    /// Fills `out` with standard normals. Takes exactly [`normal_uniforms(len)`](Self::normal_uniforms) uniforms.
    pub fn fill_normal(&mut self, out: &mut [f64]) {
        for two in out.chunks_mut(2) {
            let pair = self.normal_pair();
            two[0] = pair.0;
            if let Some(second) = two.get_mut(1) {
                *second = pair.1;
            }
        }
    }

    /// Number of uniforms that [`fill_normal`](Self::fill_normal) takes for `len` normals: `len` rounded up to even.
    pub const fn normal_uniforms(len: usize) -> usize {
        len.next_multiple_of(2)
    }

    fn normal_pair(&mut self) -> (f64, f64) {
        let radius = (-2.0 * libm::log(self.uniform_above_zero())).sqrt();
        let (sin, cos) = libm::sincos(TAU * self.uniform());
        (radius * cos, radius * sin)
    }

    /// Gamma with the given shape and scale 1. NaN if the shape is not positive.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        libm::exp(self.ln_gamma(shape))
    }

    /// Logarithm of a gamma draw of scale 1, which does not underflow for small shapes.
    ///
    /// Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; below shape 1, a draw of shape + 1
    /// times `u^(1/shape)`.
    pub fn ln_gamma(&mut self, shape: f64) -> f64 {
        if shape.is_nan() || shape <= 0.0 {
            return f64::NAN;
        }
        if shape < 1.0 {
            return self.ln_gamma(shape + 1.0) + libm::log(self.uniform_above_zero()) / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            // The second normal is not stored across a rejection, so that the next draw depends only on the word
            // position.
            let x = self.normal_pair().0;
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let ln_v = 3.0 * libm::log(v);
            if libm::log(self.uniform_above_zero()) < 0.5 * x * x + d - d * v * v * v + d * ln_v {
                return libm::log(d) + ln_v;
            }
        }
    }

    /// Chi-square with `nu > 0` degrees of freedom: twice a gamma of shape `nu/2`.
    pub fn chi_square(&mut self, nu: f64) -> f64 {
        2.0 * self.gamma(nu / 2.0)
    }

    /// Dirichlet with `k` equal concentrations: `k` non-negative weights that sum to 1.
    ///
    /// Gammas divided by their sum, in log space, so that a small concentration gives a corner of the simplex and not
    /// 0/0.
    pub fn dirichlet(&mut self, k: usize, concentration: f64) -> Vec<f64> {
        let logs: Vec<f64> = (0..k).map(|_| self.ln_gamma(concentration)).collect();
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> = logs.iter().map(|v| libm::exp(v - top)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_words_are_those_of_split_mix() {
        // Outputs for seed 1234567, published with the generator's reference implementation.
        let words = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([1, 2, 3].map(|i| split_mix(1_234_567, i)), words);
        let (mut draws, mut same) = (Draws::new(5, 0), Draws::new(5, 0));
        let all: Vec<u64> = draws.scattered(4).collect();
        let key = same.bits();
        assert_eq!(all, [1, 2, 3, 4].map(|i| split_mix(key, i)));
        assert_eq!(draws.bits(), same.bits(), "one word of the stream");
    }
}
