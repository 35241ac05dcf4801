//! Which components can matter in a tile of rows: exact EM with thousands of components.
//!
//! With many components nearly every responsibility is zero, yet a dense pass computes them all. Here rows are
//! [reordered](order()) once into tiles of rows that are near each other, and every tile has a bounding box.
//! [`Bounds`] limits the log density of a component anywhere in a box. A pass treats a tile like this:
//!
//! 1. Evaluate the components with the largest bounds. The largest joint density of each row so far is a lower bound of
//!    its mixture density; `low` is the smallest of these over the rows of the tile.
//! 2. Add every component whose bound is at least `low − FLOOR`, and repeat, until all of them were evaluated.
//! 3. Leave out the others: densities, responsibilities and sums run over the list.
//!
//! **What is left out.** With `p_c(x) = N(x; μ_c, Σ_c)` and `p(x) = Σ w_c p_c(x)`, a component
//! `c` is left out of a tile only if `p_c(x) < 2⁻⁶⁰ p(x)` for each of its rows (with a
//! margin for rounding). Its responsibility there is below `2⁻⁶⁰ w_c`. So all that is left out of a component's weight
//! sums to less than 2⁻⁶⁰ of `n w_c`, and a row's density changes by less than 2⁻⁶⁰ of itself, a hundredth of one
//! rounding error. It is the floor that dense passes have for moments ([`FLOOR_BITS`]).
//!
//! Nothing depends on earlier passes: the list follows from rows and mixture. [`Selection`] finds it for a tile without
//! a look at every component: the bounds in the box of [`GROUP`] tiles rank the components, and a tile considers them in
//! that order until the bound of the group is too low.

mod bounds;
mod order;
mod probe;
mod select;

pub(crate) use bounds::{Bounds, Boxes, RowBox};
pub(crate) use order::order;
pub(crate) use probe::Probe;
pub(crate) use select::Selection;

/// Responsibilities below `2^-FLOOR_BITS` of the component's weight are left out of sums.
pub(crate) const FLOOR_BITS: f64 = 60.0;

/// [`FLOOR_BITS`] as a difference of log densities.
pub(crate) const FLOOR: f64 = FLOOR_BITS * std::f64::consts::LN_2;

/// Whether passes leave out components that are far from a tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Skip {
    /// If [`choice`] expects it to be faster.
    #[default]
    Auto,
    Never,
    Always,
}

/// Tiles whose common box ranks the components.
pub(crate) const GROUP: usize = 16;

/// Whether a pass over `(n, d)` rows leaves out components of `k`, or does not and why.
/// `skip` is what the caller asks for.
///
/// The rows are reordered once, which takes as long as some hundred components of a pass. In many columns boxes are far
/// larger than clusters. `are_few_near` is what a [`Probe`] finds; it is asked last, and only if the numbers do not
/// decide.
pub(crate) fn choice(
    skip: Skip,
    (n, k, d): (usize, usize, usize),
    are_few_near: impl FnOnce() -> bool,
) -> Result<(), &'static str> {
    match () {
        () if skip == Skip::Never => Err("not asked for"),
        () if d > MOST_COLUMNS => Err("too many columns"),
        () if u32::try_from(n).is_err() => Err("too many rows"),
        () if skip == Skip::Always => Ok(()),
        () if k < LEAST_COMPONENTS => Err("too few components"),
        () if n < LEAST_ROWS => Err("too few rows"),
        () if !are_few_near() => Err("too many components are near a tile of rows"),
        () => Ok(()),
    }
}

const LEAST_COMPONENTS: usize = 512;
const MOST_COLUMNS: usize = 32;
const LEAST_ROWS: usize = 16 * 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_follows_from_the_numbers_and_at_last_from_the_sample() {
        let of = |skip, shape| choice(skip, shape, || true);
        assert_eq!(of(Skip::Auto, (1_000_000, 1000, 3)), Ok(()));
        assert_eq!(
            choice(Skip::Auto, (1_000_000, 1000, 3), || false),
            Err("too many components are near a tile of rows")
        );
        let unasked = || panic!("the sample is not needed");
        assert_eq!(choice(Skip::Auto, (1_000_000, 511, 3), unasked), Err("too few components"));
        assert_eq!(choice(Skip::Auto, (1_000_000, 1000, 33), unasked), Err("too many columns"));
        assert_eq!(choice(Skip::Auto, (4000, 1000, 3), unasked), Err("too few rows"));
        assert_eq!(choice(Skip::Never, (1_000_000, 1000, 3), unasked), Err("not asked for"));
        assert_eq!(choice(Skip::Always, (5, 2, 3), unasked), Ok(()));
        assert_eq!(choice(Skip::Always, (5, 2, 33), unasked), Err("too many columns"));
    }
}
