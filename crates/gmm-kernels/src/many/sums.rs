//! Sums over the rows: weights, first and second moments of each component about its mean.

use super::{Block, has_matrix, split};
use crate::device::thread;

/// A sum over the rows of Σ r, Σ r z_i or Σ r z_i z_j.
#[derive(Clone, Copy)]
struct Sum {
    component: u32,
    /// The columns, if the sum has them.
    columns: [Option<u32>; 2],
}

impl Sum {
    /// Number `at` of a component's: its weight, then `d` first moments, then the second ones.
    #[inline(always)]
    fn of(component: u32, at: u32, d: u32, has_matrix: bool) -> Self {
        if at == 0 {
            return Self { component, columns: [None, None] };
        }
        if at <= d {
            return Self { component, columns: [Some(at - 1), None] };
        }
        let at = at - 1 - d;
        if !has_matrix {
            return Self { component, columns: [Some(at), Some(at)] };
        }
        let mut i = 0;
        while (i + 1) * (i + 2) / 2 <= at {
            i += 1;
        }
        Self { component, columns: [Some(i), Some(at - i * (i + 1) / 2)] }
    }
}

impl Block<'_> {
    /// Computes the first `per` sums of each component. If there are fewer sums than threads, several threads share one.
    #[inline(always)]
    pub(super) fn sum_up(&self, per: u32) {
        let tasks = self.a.k * per;
        thread::sync_threads();
        let (together, _) = split(self.threads, tasks);
        if together < 2 {
            self.share(tasks, |at| self.sums.store(at, self.sum(split(at, per), 0, 1)));
        } else {
            if self.t < together * tasks {
                let (part, at) = split(self.t, tasks);
                self.parts.store(self.t, self.sum(split(at, per), part, together));
            }
            thread::sync_threads();
            self.share(tasks, |at| {
                let (mut sum, mut part) = (0.0, 0);
                while part < together {
                    sum += self.parts.load(part * tasks + at);
                    part += 1;
                }
                self.sums.store(at, sum);
            });
        }
        thread::sync_threads();
    }

    /// A sum over every `step`-th row from `first` on.
    #[inline(always)]
    fn sum(&self, (component, at): (u32, u32), first: u32, step: u32) -> f64 {
        let d = self.a.d;
        let sum = Sum::of(component, at, d, has_matrix(self.a.kind));
        let r = self.responsibilities.skip(sum.component * self.stride);
        let column = |side: usize| {
            let j = sum.columns[side].unwrap_or(0);
            (self.rows.skip(j * self.stride), self.means.load(sum.component * d + j), sum.columns[side].is_some())
        };
        let ((x, mean, has_x), (y, other, has_y)) = (column(0), column(1));
        let (mut out, mut row) = (0.0, first);
        while row < self.n {
            let a = if has_x { x.load(row) - mean } else { 1.0 };
            let b = if has_y { y.load(row) - other } else { 1.0 };
            out += r.load(row) * a * b;
            row += step;
        }
        out
    }
}
