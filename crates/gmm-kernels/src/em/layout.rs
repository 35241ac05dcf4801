//! Where each feature lies: in the coefficients that the densities read, and in the sums that the pass leaves.
//!
//! Shared by kernels and host. A feature is at `(step, index)`, `index < 16`, of the operands of
//! [`Features`](crate::em::features::Features); components lie in groups of eight, `NT` of them.

/// Slot of `u[i]` times its `m`th partner among the features of half a class, as sums have them: entries two by two, and
/// for each two all partners.
#[inline(always)]
pub const fn slot_down(c: u32, m: u32, i: u32) -> u32 {
    if i.is_multiple_of(2) && i + 1 == c { i * (c + 1) + m } else { (i - i % 2) * (c + 1) + 2 * m + i % 2 }
}

/// Column of component `k` among the eight of its group, as sums have them: the even ones, then the odd.
#[inline(always)]
const fn among_sums(k: u32) -> u32 {
    k % 2 * 4 + k % 8 / 2
}

/// A family of features, as numbers that a kernel can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Groups of sixteen features.
    pub steps: u32,
    /// Groups of eight components.
    pub groups: u32,
    /// Columns of a class for products of entries ([`Full`](crate::em::features::Full)); 0 where there are none.
    pub classes: u32,
}

impl Place {
    /// Products of entries of up to `4 c` columns.
    #[inline(always)]
    pub const fn full(c: u32, groups: u32) -> Self {
        Self { steps: c * (c + 1) / 2, groups, classes: c }
    }

    /// Products of entries of up to `4 c + 1` columns.
    #[inline(always)]
    pub const fn full_and_one(c: u32, groups: u32) -> Self {
        Self { steps: c * (c + 1) / 2 + 1, groups, classes: c }
    }

    /// `steps` times sixteen columns.
    #[inline(always)]
    pub const fn linear(steps: u32, groups: u32) -> Self {
        Self { steps, groups, classes: 0 }
    }

    /// Numbers in the coefficients: `128*steps*groups`.
    #[inline(always)]
    pub const fn coefficients(self) -> u64 {
        128 * self.steps as u64 * self.groups as u64
    }

    /// Numbers in the sums: of features, then Σ r of each component, then Σ w ln p(x).
    #[inline(always)]
    pub const fn sums(self) -> u64 {
        self.coefficients() + 8 * self.groups as u64 + 1
    }

    /// Position of Σ r of component `k`.
    #[inline(always)]
    pub const fn weight(self, k: u32) -> u64 {
        self.coefficients() + (k / 8 * 8 + among_sums(k)) as u64
    }

    /// Position of Σ w ln p(x).
    #[inline(always)]
    pub const fn log_likelihood(self) -> u64 {
        self.coefficients() + 8 * self.groups as u64
    }

    /// Slot of the product of entries `a` and `b`: class, half, `m`, `i`.
    #[inline(always)]
    const fn product(a: u32, b: u32) -> (u32, u32, u32, u32) {
        let ((qa, ia), (qb, ib)) = ((a % 4, a / 4), (b % 4, b / 4));
        match (qb + 4 - qa) % 4 {
            0 if ia < ib => (qa, 1, ib + 1, ia),
            0 => (qa, 1, ia + 1, ib),
            1 => (qa, 0, ib, ia),
            3 => (qb, 0, ia, ib),
            // Classes two apart: the larger index is `i`, and of two alike the class below 2 counts.
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
        ((step * self.groups + k / 8) as u64 * 4 + register as u64) * 32 + lane as u64
    }

    /// Where component `k`'s coefficient of column `f` lies ([`linear`](Self::linear)).
    #[inline(always)]
    pub const fn column_coefficient(self, f: u32, k: u32) -> u64 {
        self.coefficient(f / 16, f % 16, k)
    }

    /// Where component `k`'s sum of column `f` lies ([`linear`](Self::linear)).
    #[inline(always)]
    pub const fn column_sum(self, f: u32, k: u32) -> u64 {
        self.sum(f / 16, f % 16, k)
    }

    /// The column of entry `j`'s square, where half of the steps are squares.
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

    /// Index among the last sixteen features of the product of `a` and `b`, if one of them is the entry past the
    /// classes' ([`full_and_one`](Self::full_and_one)).
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

    /// Where component `k`'s coefficient of the product of entries `a` and `b` lies ([`full`](Self::full)).
    #[inline(always)]
    pub const fn product_coefficient(self, a: u32, b: u32, k: u32) -> u64 {
        if let Some(index) = self.with_one(a, b) {
            return self.coefficient(self.steps - 1, index, k);
        }
        self.slot_coefficient(Self::product(a, b), k)
    }

    /// Where component `k`'s sum of the product of entries `a` and `b` lies ([`full`](Self::full)).
    #[inline(always)]
    pub const fn product_sum(self, a: u32, b: u32, k: u32) -> u64 {
        if let Some(index) = self.with_one(a, b) {
            return self.sum(self.steps - 1, index, k);
        }
        self.slot_sum(Self::product(a, b), k)
    }

    /// Where component `k`'s coefficient of entry `a` lies ([`full`](Self::full)).
    #[inline(always)]
    pub const fn entry_coefficient(self, a: u32, k: u32) -> u64 {
        if a == 4 * self.classes {
            return self.coefficient(self.steps - 1, a + 1, k);
        }
        self.slot_coefficient((a % 4, 0, self.classes, a / 4), k)
    }

    /// Where component `k`'s sum of entry `a` lies ([`full`](Self::full)).
    #[inline(always)]
    pub const fn entry_sum(self, a: u32, k: u32) -> u64 {
        if a == 4 * self.classes {
            return self.sum(self.steps - 1, a + 1, k);
        }
        self.slot_sum((a % 4, 0, self.classes, a / 4), k)
    }
}
