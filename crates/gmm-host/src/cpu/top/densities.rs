//! Log joint densities of rows under components with diagonal covariances, `(rows, k)`, row by row.
//!
//! This is a product of two matrices: a tile of rows and components has its sums in registers, and the parameters of a
//! panel of components stay in the L1 cache while all rows of a block are evaluated. A vector holds components, since
//! the [selection](super::select) that follows reads the densities of a row.

use super::super::layout::Buffer;
use super::super::simd::{Kernel, Real, Words};
use super::super::terms::{Scales, Terms};
use super::width;

/// Components of a panel.
const PANEL: usize = 32;
/// Vectors of components in a register tile. Each needs a scale and an offset, which all rows of the tile share.
const VECTORS: usize = 2;
/// Rows are evaluated in multiples of this: the rows of a register tile with 32 registers.
pub(super) const ROWS: usize = 8;

/// The parameters of components with diagonal covariances, by panels.
pub(super) struct Panels<T> {
    d: usize,
    /// Whether a term is `(x scale + offset)²`, as in [`Scales::Diag`]; or else `((x − mean) scale)²`, where that would
    /// cancel.
    scaled: bool,
    /// For each panel and column `PANEL` scales, then as many offsets or means.
    cells: Buffer<T>,
    /// `ln w_c + log normaliser`; −∞ past `k`.
    constants: Vec<T>,
}

impl<T: Real> Panels<T> {
    /// The parameters of kind diag or spherical; `None` for others.
    pub(super) fn new(terms: &Terms<T>) -> Option<Self> {
        let (k, d) = (terms.k, terms.d);
        let (scales, offsets) = match &terms.scales {
            Scales::Diag(scales, offsets) => (scales.clone(), offsets.as_ref()),
            Scales::Spherical(scales) => (scales.iter().flat_map(|v| std::iter::repeat_n(*v, d)).collect(), None),
            _ => return None,
        };
        let shifts = offsets.unwrap_or(&terms.means);
        let mut cells = Buffer::zeroed(k.div_ceil(PANEL) * d * 2 * PANEL);
        for c in 0..k {
            let panel = &mut cells[c / PANEL * d * 2 * PANEL..][..d * 2 * PANEL];
            for j in 0..d {
                panel[j * 2 * PANEL + c % PANEL] = scales[c * d + j];
                panel[(j * 2 + 1) * PANEL + c % PANEL] = shifts[c * d + j];
            }
        }
        let mut constants = terms.constants.clone();
        constants.resize(pitch(k), T::of(f64::NEG_INFINITY));
        Some(Self { d, scaled: offsets.is_some(), cells, constants })
    }
}

/// Distance between the densities of two rows.
pub(super) const fn pitch(k: usize) -> usize {
    k.next_multiple_of(PANEL)
}

/// Writes the log joint densities of a block of rows; −∞ past `k`, and where a distance overflows.
pub(super) struct Densities<'a, T> {
    pub(super) panels: &'a Panels<T>,
    /// `(rows, width)`.
    pub(super) x: &'a [T],
    /// A multiple of `ROWS`.
    pub(super) rows: usize,
    /// `(rows, pitch)`.
    pub(super) joint: &'a mut [T],
}

impl<T: Real> Kernel<T> for Densities<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        match (W::GROUP == 4, self.panels.scaled) {
            (true, true) => all::<T, W, ROWS, true>(w, self),
            (true, false) => all::<T, W, ROWS, false>(w, self),
            (false, true) => all::<T, W, { ROWS / 2 }, true>(w, self),
            (false, false) => all::<T, W, { ROWS / 2 }, false>(w, self),
        }
    }
}

#[inline(always)]
fn all<T: Real, W: Words<T>, const R: usize, const SCALED: bool>(w: W, block: Densities<'_, T>) {
    let Densities { panels, x, rows, joint } = block;
    let (d, width, pitch) = (panels.d, width(panels.d), panels.constants.len());
    assert!(rows.is_multiple_of(R) && PANEL.is_multiple_of(VECTORS * W::LANES));
    for (panel, cells) in panels.cells.chunks_exact(d * 2 * PANEL).enumerate() {
        for first in (0..PANEL).step_by(VECTORS * W::LANES) {
            let (cells, c) = (&cells[first..], panel * PANEL + first);
            for row in (0..rows).step_by(R) {
                let distances = tile::<T, W, R, SCALED>(w, cells, &x[row * width..], (d, width));
                store(w, distances, &panels.constants[c..], &mut joint[row * pitch + c..], pitch);
            }
        }
    }
}

/// The squared distances of `R` rows to `VECTORS` vectors of components. `cells` begins with the first component.
#[inline(always)]
fn tile<T: Real, W: Words<T>, const R: usize, const SCALED: bool>(
    w: W,
    cells: &[T],
    x: &[T],
    (d, width): (usize, usize),
) -> [[W::V; VECTORS]; R] {
    assert!(cells.len() >= (d * 2 - 1) * PANEL + VECTORS * W::LANES && x.len() >= (R - 1) * width + d);
    let mut sums = [[w.splat(T::ZERO); VECTORS]; R];
    for j in 0..d {
        // SAFETY: column j of the cells has VECTORS vectors of scales and, PANEL further on, as many of offsets, and x has R
        // rows of d values, `width` apart, as asserted.
        unsafe {
            let cells = cells.as_ptr().add(j * 2 * PANEL);
            let (mut scales, mut offsets) = ([w.splat(T::ZERO); VECTORS], [w.splat(T::ZERO); VECTORS]);
            for v in 0..VECTORS {
                scales[v] = w.load(cells.add(v * W::LANES));
                offsets[v] = w.load(cells.add(PANEL + v * W::LANES));
            }
            for r in 0..R {
                let x = w.splat(*x.get_unchecked(r * width + j));
                for v in 0..VECTORS {
                    let t =
                        if SCALED { w.fma(x, scales[v], offsets[v]) } else { w.mul(w.sub(x, offsets[v]), scales[v]) };
                    sums[r][v] = w.fma(t, t, sums[r][v]);
                }
            }
        }
    }
    sums
}

/// `constant − distance/2`; −∞ if the distance is infinite or NaN (a difference of infinities).
#[inline(always)]
fn store<T: Real, W: Words<T>, const R: usize>(
    w: W,
    distances: [[W::V; VECTORS]; R],
    constants: &[T],
    out: &mut [T],
    pitch: usize,
) {
    assert!(constants.len() >= VECTORS * W::LANES && out.len() >= (R - 1) * pitch + VECTORS * W::LANES);
    let (half, least) = (w.splat(T::of(0.5)), w.splat(T::of(f64::NEG_INFINITY)));
    for (r, row) in distances.into_iter().enumerate() {
        for (v, distance) in row.into_iter().enumerate() {
            // SAFETY: constants has VECTORS vectors, and out has them in each of R rows, `pitch` apart, as asserted.
            unsafe {
                let value = w.neg_fma(distance, half, w.load(constants.as_ptr().add(v * W::LANES)));
                w.store(out.as_mut_ptr().add(r * pitch + v * W::LANES), w.max(value, least));
            }
        }
    }
}
