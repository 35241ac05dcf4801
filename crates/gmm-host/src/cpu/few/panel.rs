//! The inner kernel of [`few`](super): multiplies some columns of a factor by a few vectors.

use gmm_model::FactorShape;

use super::super::simd::{Kernel, Real, Words};

/// Rows of the factor processed together: as many products per load and store of a sum.
const ROWS: usize = 4;

/// Vectors that share each load of the factor.
const SIDES: usize = 4;

/// Largest vector length of any instruction set.
const LANES: usize = 16;

/// Whether a factor has nonzero entries below and above the diagonal.
#[derive(Clone, Copy, Default)]
pub(super) struct FactorScan {
    pub(super) below: bool,
    pub(super) above: bool,
}

impl FactorScan {
    pub(super) const fn shape(self) -> FactorShape {
        match (self.below, self.above) {
            (false, _) => FactorShape::Upper,
            (true, false) => FactorShape::Lower,
            (true, true) => FactorShape::General,
        }
    }
}

/// Computes `y = (Uᵀz)[first..end]` for each vector `z`. If `shape` is upper, returns where the columns have nonzero
/// off-diagonal entries; if there are any below the diagonal, `y` is invalid.
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
    /// Distance between rows of `y`: a whole number of vectors.
    pub(super) const fn pitch(first: usize, end: usize) -> usize {
        (end - first).next_multiple_of(LANES)
    }
}

impl<T: Real> Kernel<T> for Panel<'_, T> {
    type Output = FactorScan;

    #[inline(always)]
    fn run<W: Words<T>>(mut self, w: W) -> FactorScan {
        let (d, sides) = (self.d, self.z.len() / self.d);
        assert!(W::LANES <= LANES && self.u.len() == d * d && self.first < self.end && self.end <= d);
        assert!(self.z.len() == sides * d && self.y.len() == sides * Self::pitch(self.first, self.end));
        let rows = self.shape.rows(self.first, self.end, d);
        let mut seen = FactorScan::default();
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
    /// If `shape` is upper, records where the rows have nonzero entries in these columns. This also loads the rows into
    /// the cache in memory order; the products then read several rows at a time.
    #[inline(always)]
    fn look(&self, from: usize, to: usize, seen: &mut FactorScan) {
        if self.shape != FactorShape::Upper {
            return;
        }
        for j in from..to {
            let row = &self.u[j * self.d..][self.first..self.end];
            let (below, rest) = row.split_at(j.clamp(self.first, self.end) - self.first);
            let above = if j < self.first { rest } else { rest.get(1..).unwrap_or(&[]) };
            seen.below = seen.below || T::any_is_not_zero(below);
            seen.above = seen.above || T::any_is_not_zero(above);
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

    /// Adds the products of rows `j` to `j + R` of the factor to `S` sums, in row order.
    #[inline(always)]
    fn rows<W: Words<T>, const R: usize, const S: usize>(&mut self, w: W, j: usize, side: usize) {
        let (d, first) = (self.d, self.first);
        let pitch = Self::pitch(first, self.end);
        // Vectors may include entries outside the shape: these are 0 and add nothing.
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
        // The last vector of the last row may extend past the end of the factor.
        let last = (j + R - 1) * d + first;
        let inside = (self.u.len() - last) / W::LANES * W::LANES;
        let whole = to.next_multiple_of(W::LANES).min(inside).max(from);
        let u = &self.u[j * d + first..];
        for at in (from..whole).step_by(W::LANES) {
            // SAFETY: `at + LANES <= inside`, so the vector of row j + r (r < R) is within u; it is also within a row
            // of y, since the pitch is a whole number of vectors.
            unsafe {
                let u = std::array::from_fn(|r| w.load(u.as_ptr().add(r * d + at)));
                add::<T, W, R, S>(w, &u, &z, y.add(at), pitch);
            }
        }
        for at in (whole..to).step_by(W::LANES) {
            let u = std::array::from_fn(|r| padded(w, &u[r * d + at..]));
            // SAFETY: `at < to <= pitch`, a multiple of LANES, so the vector is within a row of y.
            unsafe { add::<T, W, R, S>(w, &u, &z, y.add(at), pitch) };
        }
    }
}

/// Adds the products of one vector of each of `R` rows to a vector of each of `S` sums, `pitch` apart.
///
/// # Safety
/// A vector must be readable and writable at `y` and at each of the next `S − 1` multiples of `pitch` after it.
#[inline(always)]
unsafe fn add<T: Real, W: Words<T>, const R: usize, const S: usize>(
    w: W,
    u: &[W::V; R],
    z: &[[W::V; R]; S],
    y: *mut T,
    pitch: usize,
) {
    for s in 0..S {
        // SAFETY: the caller upholds `# Safety`: there is a vector at `y + s*pitch`.
        unsafe {
            let y = y.add(s * pitch);
            let mut sum = w.load(y);
            for r in 0..R {
                sum = w.fma(u[r], z[s][r], sum);
            }
            w.store(y, sum);
        }
    }
}

/// The first vector of `u`, padded with zeros.
#[inline(always)]
fn padded<T: Real, W: Words<T>>(w: W, u: &[T]) -> W::V {
    let mut vector = [T::ZERO; LANES];
    let there = u.len().min(W::LANES);
    vector[..there].copy_from_slice(&u[..there]);
    // SAFETY: `vector` has LANES (16) values, the largest vector length, as asserted in `run`.
    unsafe { w.load(vector.as_ptr()) }
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
        // SAFETY: `lanes` has LANES (16) values, the largest vector length.
        unsafe { w.store(lanes.as_mut_ptr(), all[s]) };
        sums[s] = lanes[0];
    }
}
