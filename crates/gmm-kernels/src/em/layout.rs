//! Position of each feature in the coefficients that the densities read, and in the sums that a pass writes.
//!
//! Shared by kernels and host. A feature is at `(step, index)`, `index < 16`, of the operands of
//! [`Features`](crate::em::features::Features). Components are in groups of eight; there are `groups` of them.
//!
//! **Coefficients** are tiles of 16 features by 8 components; tile `(step, group)` starts at
//! `128*(step*groups + group)`. In a tile, each lane of a warp reads two values at a time. `f/c` is feature `f` of
//! component `c`:
//!
//! ```text
//!  number     0     1      2     3      4     5      6     7      8     9    ..       63
//!           0/0   4/0    1/0   5/0    2/0   6/0    3/0   7/0    0/1   4/1    ..      7/7
//!  number    64    65     66    67     68    69     70    71     72    73    ..      127
//!           8/0  12/0    9/0  13/0   10/0  14/0   11/0  15/0    8/1  12/1    ..     15/7
//! ```
//!
//! **Sums** are tiles of 128 values too: four registers of 32 lanes, in the order of the mma result, even components
//! before odd:
//!
//! ```text
//!  lane             0     1     2     3      4     5     6     7     ..      31
//!  register 0     0/0   0/4   0/1   0/5    1/0   1/4   1/1   1/5     ..     7/5
//!  register 1     0/2   0/6   0/3   0/7    1/2   1/6   1/3   1/7     ..     7/7
//!  register 2     8/0   8/4   8/1   8/5    9/0   ..                        15/5
//!  register 3     8/2   8/6   8/3   8/7    9/2   ..                        15/7
//! ```
//! After all tiles follow Σ r of each component, and Σ w ln p(x).
//!
//! **Order of features.** [`linear`](FeatureLayout::linear): column `f` is feature `(f/16, f%16)`.
//! [`full`](FeatureLayout::full): entry `a` is in class `a%4`, so that four lanes form four features at once, from
//! their neighbours by shuffles. Four columns need one step:
//!
//! ```text
//!  index    0     1     2     3      4    5    6    7      8     9    10   11     12    13    14    15
//!         x0x1  x1x2  x2x3  x3x0    x0   x1   x2   x3    x0x2  x1x3   -    -     x0²   x1²   x2²   x3²
//! ```

/// Sums of sixteen features and eight components, which lie side by side.
pub const TILE: usize = 128;

/// Slot of `u[i]` times its `m`th partner, within one half of one class, in the order of the sums: entries in pairs,
/// and for each pair all partners.
#[inline(always)]
pub const fn slot_down(c: u32, m: u32, i: u32) -> u32 {
    if i.is_multiple_of(2) && i + 1 == c { i * (c + 1) + m } else { (i - i % 2) * (c + 1) + 2 * m + i % 2 }
}

/// Column of component `k` within its group of eight in the sums: even components first, then odd.
#[inline(always)]
const fn among_sums(k: u32) -> u32 {
    k % 2 * 4 + k % 8 / 2
}

/// Layout of a feature family, as integers that can be kernel parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureLayout {
    /// Groups of sixteen features.
    pub steps: u32,
    /// Groups of eight components.
    pub groups: u32,
    /// Columns of a class for products of entries ([`Full`](crate::em::features::Full)); 0 without products.
    pub classes: u32,
}

impl FeatureLayout {
    /// Layout of products of entries of up to `4 c` columns.
    #[inline(always)]
    pub const fn full(c: u32, groups: u32) -> Self {
        Self { steps: c * (c + 1) / 2, groups, classes: c }
    }

    /// Layout of products of entries of up to `4 c + 1` columns.
    #[inline(always)]
    pub const fn full_and_one(c: u32, groups: u32) -> Self {
        Self { steps: c * (c + 1) / 2 + 1, groups, classes: c }
    }

    /// Layout of `steps` times sixteen columns.
    #[inline(always)]
    pub const fn linear(steps: u32, groups: u32) -> Self {
        Self { steps, groups, classes: 0 }
    }

    /// Length of the coefficients: `128*steps*groups`.
    #[inline(always)]
    pub const fn coefficients(self) -> u64 {
        128 * self.steps as u64 * self.groups as u64
    }

    /// Length of the sums: features, then Σ r of each component, then Σ w ln p(x).
    #[inline(always)]
    pub const fn sums(self) -> u64 {
        self.coefficients() + 8 * self.groups as u64 + 1
    }

    /// Position of Σ r of component `k`.
    #[inline(always)]
    pub const fn weight(self, k: u32) -> u64 {
        self.weights_of(k / 8) + among_sums(k) as u64
    }

    /// Position of the first of the eight Σ r of a group.
    #[inline(always)]
    pub const fn weights_of(self, group: u32) -> u64 {
        self.coefficients() + (8 * group) as u64
    }

    /// Position of Σ w ln p(x).
    #[inline(always)]
    pub const fn log_likelihood(self) -> u64 {
        self.coefficients() + 8 * self.groups as u64
    }

    /// Slot of the product of entries `a` and `b`: `(class, half, m, i)`.
    #[inline(always)]
    const fn product(a: u32, b: u32) -> (u32, u32, u32, u32) {
        let ((qa, ia), (qb, ib)) = ((a % 4, a / 4), (b % 4, b / 4));
        match (qb + 4 - qa) % 4 {
            0 if ia < ib => (qa, 1, ib + 1, ia),
            0 => (qa, 1, ia + 1, ib),
            1 => (qa, 0, ib, ia),
            3 => (qb, 0, ia, ib),
            // Classes two apart: `i` is the larger index; if the indices are equal, the class below 2 forms the
            // product.
            _ => {
                if ia > ib || (ia == ib && qa < 2) {
                    (qa, 1, ib, ia)
                } else {
                    (qb, 1, ia, ib)
                }
            }
        }
    }

    #[inline(always)]
    const fn coefficient(self, step: u32, index: u32, k: u32) -> u64 {
        let lane = k % 8 * 4 + index % 4;
        let quarter = index / 4;
        let tile = (step * self.groups + k / 8) as u64;
        (tile * 2 + (quarter / 2) as u64) * 64 + (lane * 2 + quarter % 2) as u64
    }

    #[inline(always)]
    const fn sum(self, step: u32, index: u32, k: u32) -> u64 {
        let column = among_sums(k);
        let lane = index % 8 * 4 + column / 2;
        let register = index / 8 * 2 + column % 2;
        self.sum_tile(step, k) + (register * 32 + lane) as u64
    }

    /// Position of the [`TILE`] sums of step `step` and of component `k`'s group of eight.
    #[inline(always)]
    pub const fn sum_tile(self, step: u32, k: u32) -> u64 {
        (step * self.groups + k / 8) as u64 * TILE as u64
    }

    /// Position of component `k`'s coefficient of column `f` ([`linear`](Self::linear)).
    #[inline(always)]
    pub const fn column_coefficient(self, f: u32, k: u32) -> u64 {
        self.coefficient(f / 16, f % 16, k)
    }

    /// Position of component `k`'s sum of column `f` ([`linear`](Self::linear)).
    #[inline(always)]
    pub const fn column_sum(self, f: u32, k: u32) -> u64 {
        self.sum(f / 16, f % 16, k)
    }

    /// Column of entry `j`'s square, in layouts whose second half of steps is squares.
    #[inline(always)]
    pub const fn square(self, j: u32) -> u32 {
        8 * self.steps + j
    }

    #[inline(always)]
    const fn slot_coefficient(self, (q, h, m, i): (u32, u32, u32, u32), k: u32) -> u64 {
        let slot = (h * (self.classes + 1) + m) * self.classes + i;
        self.coefficient(slot / 4, slot % 4 * 4 + q, k)
    }

    #[inline(always)]
    const fn slot_sum(self, (q, h, m, i): (u32, u32, u32, u32), k: u32) -> u64 {
        let slot = slot_down(self.classes, m, i);
        self.sum(slot / 2, slot % 2 * 8 + 4 * h + q, k)
    }

    /// Index, within the last sixteen features, of the product of `a` and `b`, if one of them is the entry past the
    /// classes ([`full_and_one`](Self::full_and_one)).
    #[inline(always)]
    const fn with_one(self, a: u32, b: u32) -> Option<u32> {
        let last = 4 * self.classes;
        if a == last {
            Some(b)
        } else if b == last {
            Some(a)
        } else {
            None
        }
    }

    /// Position of component `k`'s coefficient of the product of entries `a` and `b` ([`full`](Self::full)).
    #[inline(always)]
    pub const fn product_coefficient(self, a: u32, b: u32, k: u32) -> u64 {
        if let Some(index) = self.with_one(a, b) {
            return self.coefficient(self.steps - 1, index, k);
        }
        self.slot_coefficient(Self::product(a, b), k)
    }

    /// Position of component `k`'s sum of the product of entries `a` and `b` ([`full`](Self::full)).
    #[inline(always)]
    pub const fn product_sum(self, a: u32, b: u32, k: u32) -> u64 {
        if let Some(index) = self.with_one(a, b) {
            return self.sum(self.steps - 1, index, k);
        }
        self.slot_sum(Self::product(a, b), k)
    }

    /// Position of component `k`'s coefficient of entry `a` ([`full`](Self::full)).
    #[inline(always)]
    pub const fn entry_coefficient(self, a: u32, k: u32) -> u64 {
        if a == 4 * self.classes {
            return self.coefficient(self.steps - 1, a + 1, k);
        }
        self.slot_coefficient((a % 4, 0, self.classes, a / 4), k)
    }

    /// Position of component `k`'s sum of entry `a` ([`full`](Self::full)).
    #[inline(always)]
    pub const fn entry_sum(self, a: u32, k: u32) -> u64 {
        if a == 4 * self.classes {
            return self.sum(self.steps - 1, a + 1, k);
        }
        self.slot_sum((a % 4, 0, self.classes, a / 4), k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pictures_are_true() {
        let place = FeatureLayout::full(1, 1);
        let at = |numbers: [(u32, u32); 8]| numbers.map(|(index, k)| place.coefficient(0, index, k));
        assert_eq!(at([(0, 0), (4, 0), (1, 0), (5, 0), (2, 0), (6, 0), (3, 0), (7, 0)]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(
            at([(8, 0), (12, 0), (9, 0), (13, 0), (8, 1), (12, 1), (7, 7), (15, 7)]),
            [64, 65, 66, 67, 72, 73, 63, 127]
        );
        let at = |numbers: [(u32, u32); 8]| numbers.map(|(index, k)| place.sum(0, index, k));
        assert_eq!(at([(0, 0), (0, 4), (0, 1), (0, 5), (1, 0), (7, 5), (0, 2), (0, 6)]), [0, 1, 2, 3, 4, 31, 32, 33]);
        assert_eq!(
            at([(0, 3), (0, 7), (7, 7), (8, 0), (15, 5), (8, 2), (8, 6), (15, 7)]),
            [34, 35, 63, 64, 95, 96, 97, 127]
        );
        let index =
            |a: u32, b: u32| (0..16).find(|&i| place.coefficient(0, i, 0) == place.product_coefficient(a, b, 0));
        let pairs = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3), (0, 0), (1, 1), (2, 2), (3, 3)];
        assert_eq!(pairs.map(|(a, b)| index(a, b).unwrap()), [0, 1, 2, 3, 8, 9, 12, 13, 14, 15]);
        let entries =
            [0, 1, 2, 3].map(|a| (0..16).find(|&i| place.coefficient(0, i, 0) == place.entry_coefficient(a, 0)));
        assert_eq!(entries, [4, 5, 6, 7].map(Some));
    }
}
