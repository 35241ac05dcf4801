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
        // The last vector of the last row may end past the factor.
        let last = (j + R - 1) * d + first;
        let inside = (self.u.len() - last) / W::LANES * W::LANES;
        let whole = to.next_multiple_of(W::LANES).min(inside).max(from);
        let u = &self.u[j * d + first..];
        for at in (from..whole).step_by(W::LANES) {
            // SAFETY: `at` is below `inside`, so that a vector of row j + r, whose r is below R, is in u; and it is a vector of a
            // row of y, whose pitch is a whole number of vectors.
            unsafe {
                let u = std::array::from_fn(|r| w.load(u.as_ptr().add(r * d + at)));
                add::<T, W, R, S>(w, &u, &z, y.add(at), pitch);
            }
        }
        for at in (whole..to).step_by(W::LANES) {
            let u = std::array::from_fn(|r| padded(w, &u[r * d + at..]));
            // SAFETY: `at` is a vector of a row of y, as above.
            unsafe { add::<T, W, R, S>(w, &u, &z, y.add(at), pitch) };
        }
    }
}

/// Adds the products of one vector of `R` rows to one of each of `S` sums, `pitch` apart.
///
/// # Safety
/// There is a vector at `y` and at the `S − 1` multiples of `pitch` after it.
#[inline(always)]
unsafe fn add<T: Real, W: Words<T>, const R: usize, const S: usize>(
    w: W,
    u: &[W::V; R],
    z: &[[W::V; R]; S],
    y: *mut T,
    pitch: usize,
) {
    for s in 0..S {
        // SAFETY: the caller's.
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

/// The first vector of `u`; zeros where it ends.
#[inline(always)]
fn padded<T: Real, W: Words<T>>(w: W, u: &[T]) -> W::V {
    let mut vector = [T::ZERO; LANES];
    let there = u.len().min(W::LANES);
    vector[..there].copy_from_slice(&u[..there]);
    // SAFETY: no words have more lanes, as asserted.
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
        // SAFETY: no words have more lanes.
        unsafe { w.store(lanes.as_mut_ptr(), all[s]) };
        sums[s] = lanes[0];
    }
}
