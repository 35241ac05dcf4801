//! Log densities of a mixture from those of its components, ln Σ_c w_c N(x|c), with vector operations.

use super::math;
use super::simd::{Dispatch, Kernel, Machine, Words};

/// Mixes columns of log densities. The bits depend only on the processor's instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixing(Machine);

impl Mixing {
    /// Rows mixed at a time; a multiple of every instruction set's vector length.
    pub(crate) const ROWS: usize = 256;

    /// Uses the best instruction set that this processor supports.
    pub(crate) fn detect() -> Self {
        Self(Machine::detect())
    }

    /// Length of a column of `n` rows, rounded up to a multiple of [`ROWS`](Self::ROWS).
    pub(crate) const fn column_len(n: usize) -> usize {
        n.next_multiple_of(Self::ROWS)
    }

    /// `out[i] = ln Σ_c exp(log_weights[c] + columns[c][first + i])`, computed relative to the exact maximum; −∞ if all
    /// terms are.
    ///
    /// Columns have [`column_len`](Self::column_len) values, none of them NaN or +∞; `first` is a multiple of
    /// [`ROWS`](Self::ROWS). Cost: one `exp` per row and component.
    pub(crate) fn log_densities(
        self,
        columns: &[Vec<f64>],
        log_weights: &[f64],
        first: usize,
        out: &mut [f64; Self::ROWS],
    ) {
        f64::dispatch(self.0, Mix { columns, log_weights, first, out });
    }
}

struct Mix<'a> {
    columns: &'a [Vec<f64>],
    log_weights: &'a [f64],
    first: usize,
    out: &'a mut [f64; Mixing::ROWS],
}

impl Kernel<f64> for Mix<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<f64>>(self, w: W) {
        let Self { columns, log_weights, first, out } = self;
        assert!(columns.len() == log_weights.len() && Mixing::ROWS.is_multiple_of(W::LANES));
        assert!(columns.iter().all(|column| column.len() >= first + Mixing::ROWS));
        let lowest = w.splat(-f64::MAX);
        for row in (0..Mixing::ROWS).step_by(W::LANES) {
            // SAFETY: row + LANES <= ROWS, and columns reach to first + ROWS, as asserted.
            unsafe {
                let mut top = lowest;
                for (column, &weight) in columns.iter().zip(log_weights) {
                    let joint = w.add(w.load(column.as_ptr().add(first + row)), w.splat(weight));
                    top = w.max(joint, top);
                }
                let mut sum = w.splat(0.0);
                for (column, &weight) in columns.iter().zip(log_weights) {
                    let joint = w.add(w.load(column.as_ptr().add(first + row)), w.splat(weight));
                    let [e] = math::exp::<f64, W, 1>(w, [w.sub(joint, top)]);
                    sum = w.add(sum, e);
                }
                w.store(out.as_mut_ptr().add(row), w.add(top, math::ln(w, sum)));
                // A sum below 1 means that all densities of a row are 0.
                let empty = w.lt_bits(sum, w.splat(0.5));
                for lane in (0..W::LANES).filter(|lane| empty >> lane & 1 == 1) {
                    out[row + lane] = f64::NEG_INFINITY;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::reference::log_sum_exp;

    use super::*;

    #[test]
    fn mixed_columns_are_the_log_sum_exp_of_each_row() {
        let value = |c: usize, i: usize| match (i + c) % 11 {
            0 => f64::NEG_INFINITY,
            1 => -1e300,
            m => (m as f64 - 5.0) * 30.0 + (i as f64).sin(),
        };
        let log_weights = [0.2f64.ln(), 0.5f64.ln(), f64::NEG_INFINITY, 0.3f64.ln()];
        let column = |c: usize| (0..512).map(|i| if i % 13 == 5 { f64::NEG_INFINITY } else { value(c, i) }).collect();
        let columns: Vec<Vec<f64>> = (0..4).map(column).collect();
        for machine in Machine::all() {
            let mut out = [0.0; Mixing::ROWS];
            Mixing(machine).log_densities(&columns, &log_weights, 256, &mut out);
            for (i, &got) in out.iter().enumerate() {
                let joint: Vec<f64> = columns.iter().zip(&log_weights).map(|(c, w)| c[256 + i] + w).collect();
                let want = log_sum_exp(&joint);
                let close = (got - want).abs() <= 8.0 * f64::EPSILON * want.abs().max(1.0);
                assert!(got == want || close, "{machine:?} row {i}: {got:e} and {want:e}");
            }
        }
    }
}
