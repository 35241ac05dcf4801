//! Some columns of a factor times a few differences: the floor of [`few`](super).

use gmm_model::FactorShape;

use super::super::simd::{Kernel, Real, Words};

/// Rows of the factor that are taken at a time: as many products for one load and store of a sum.
const ROWS: usize = 4;

/// Differences that share what was loaded of the factor.
const SIDES: usize = 4;

/// The most lanes of any machine's words.
const LANES: usize = 16;

/// Where there are entries other than 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) below: bool,
    pub(super) above: bool,
}

impl Seen {
    pub(super) const fn shape(self) -> FactorShape {
        match (self.below, self.above) {
            (false, _) => FactorShape::Upper,
            (true, false) => FactorShape::Lower,
            (true, true) => FactorShape::General,
        }
    }
}

/// `y = (Uᵀz)[first..end]` of each difference `z`. Where `shape` is upper it returns what the columns have beside the diagonal: if
/// there is something below it, `y` is worth nothing.
pub(super) struct Panel<'a, T> {
    /// `(d, d)`.
    pub(super) u: &'a [T],
    pub(super) d: usize,
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) shape: FactorShape,
    /// `(sides, d)`.
    pub(super) z: &'a [T],
    /// `(sides, pitch)`, zeros at first.
    pub(super) y: &'a mut [T],
}

impl<T> Panel<'_, T> {
    /// From one row of `y` to the next: a whole number of vectors.
    pub(super) const fn pitch(first: usize, end: usize) -> usize {
        (end - first).next_multiple_of(LANES)
    }
}

impl<T: Real> Kernel<T> for Panel<'_, T> {
    type Output = Seen;

    #[inline(always)]
    fn run<W: Words<T>>(mut self, w: W) -> Seen {
        let (d, sides) = (self.d, self.z.len() / self.d);
        assert!(W::LANES <= LANES && self.u.len() == d * d && self.first < self.end && self.end <= d);
        assert!(self.z.len() == sides * d && self.y.len() == sides * Self::pitch(self.first, self.end));
        let rows = self.shape.rows(self.first, self.end, d);
        let mut seen = Seen::default();
        let mut j = rows.start;
        while j + ROWS <= rows.end {
            self.look(j, j + ROWS, &mut seen);
            self.all_sides::<W, ROWS>(w, j);
            j += ROWS;
        }
        while j < rows.end {
            self.look(j, j + 1, &mut seen);
            self.all_sides::<W, 1>(w, j);
            j += 1;
        }
        self.look(rows.end, d, &mut seen);
        seen
    }
}

impl<T: Real> Panel<'_, T> {
    /// Where rows have entries in these columns, if they are taken to be upper. This is also what brings them into the cache,
    /// in the order in which they lie: the products take several rows at a time.
    #[inline(always)]
    fn look(&self, from: usize, to: usize, seen: &mut Seen) {
        if self.shape != FactorShape::Upper {
            return;
        }
        for j in from..to {
            let row = &self.u[j * self.d..][self.first..self.end];
            let (below, rest) = row.split_at(j.clamp(self.first, self.end) - self.first);
            let above = if j < self.first { rest } else { rest.get(1..).unwrap_or(&[]) };
            seen.below |= T::any_is_not_zero(below);
            seen.above |= T::any_is_not_zero(above);
        }
    }

    #[inline(always)]
    fn all_sides<W: Words<T>, const R: usize>(&mut self, w: W, j: usize) {
        let sides = self.z.len() / self.d;
        let mut side = 0;
        while side + SIDES <= sides {
            self.rows::<W, R, SIDES>(w, j, side);
            side += SIDES;
        }
        while side < sides {
            self.rows::<W, R, 1>(w, j, side);
            side += 1;
        }
    }

    /// Adds the products of rows `j` to `j + R` of the factor to `S` sums, in the order of the rows.
    #[inline(always)]
    fn rows<W: Words<T>, const R: usize, const S: usize>(&mut self, w: W, j: usize, side: usize) {
        let (d, first) = (self.d, self.first);
        let pitch = Self::pitch(first, self.end);
        // Entries outside are 0, those of rows that a vector holds beside the others too: they add nothing.
        let (from, to) = match self.shape {
            FactorShape::Upper => (j.saturating_sub(first) / W::LANES * W::LANES, self.end - first),
            FactorShape::Lower => (0, self.end.min(j + R) - first),
            FactorShape::General => (0, self.end - first),
        };
        let mut z = [[w.splat(T::ZERO); R]; S];
        for s in 0..S {
            for r in 0..R {
                z[s][r] = w.splat(self.z[(side + s) * d + j + r]);
            }
        }
        let y = self.y[side * pitch..(side + S) * pitch].as_mut_ptr();
        for at in (from..to).step_by(W::LANES) {
            let mut u = [w.splat(T::ZERO); R];
            for r in 0..R {
                u[r] = self.load(w, (j + r) * d + first + at);
            }
            for s in 0..S {
                // SAFETY: `at` is a vector of a row of y, whose pitch is a whole number of vectors.
                unsafe {
                    let y = y.add(s * pitch + at);
                    let mut sum = w.load(y);
                    for r in 0..R {
                        sum = w.fma(u[r], z[s][r], sum);
                    }
                    w.store(y, sum);
                }
            }
        }
    }

    /// A vector of the factor from entry `at`; zeros where it ends. The lanes past a row hold what comes next, and are dropped.
    #[inline(always)]
    fn load<W: Words<T>>(&self, w: W, at: usize) -> W::V {
        if at + W::LANES <= self.u.len() {
            // SAFETY: as compared.
            return unsafe { w.load(self.u.as_ptr().add(at)) };
        }
        let mut last = [T::ZERO; LANES];
        last[..self.u.len() - at].copy_from_slice(&self.u[at..]);
        // SAFETY: no words have more lanes, as asserted.
        unsafe { w.load(last.as_ptr()) }
    }
}

/// Adds the squares of each of `S` rows to its sum, one after another.
#[inline(always)]
pub(super) fn squares<T: Real, W: Words<T>, const S: usize>(w: W, y: [&[T]; S], sums: &mut [T; S]) {
    let mut all = [w.splat(T::ZERO); S];
    for s in 0..S {
        all[s] = w.splat(sums[s]);
        assert!(y[s].len() == y[0].len());
    }
    for i in 0..y[0].len() {
        for s in 0..S {
            let v = w.splat(y[s][i]);
            all[s] = w.fma(v, v, all[s]);
        }
    }
    for s in 0..S {
        let mut lanes = [T::ZERO; LANES];
        // SAFETY: no words have more lanes.
        unsafe { w.store(lanes.as_mut_ptr(), all[s]) };
        sums[s] = lanes[0];
    }
}
