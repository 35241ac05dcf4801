//! The order in which the densities read their coefficients, part by part, so that they are one stream.

use crate::device::ring::{MOST, Stream};

/// Coefficients of columns: for each piece of components its steps, for each step the piece's groups.
pub(super) struct Linear {
    at: u32,
    groups: u32,
    all: u32,
}

impl Linear {
    #[inline(always)]
    pub(super) fn new(steps: u32, groups: u32, at_once: u32) -> Self {
        Self { at: 0, groups: at_once, all: steps * groups }
    }
}

impl Stream for Linear {
    #[inline(always)]
    fn next(&mut self) -> (u32, u32) {
        let at = self.at;
        self.at = if at + self.groups == self.all { 0 } else { at + self.groups };
        (at, self.groups)
    }
}

/// Triangular factors: some components at a time, so that their rows make eight tiles; of long ones 64 rows at a time.
/// A part has all tiles of sixteen columns that are not above the diagonal.
#[derive(Clone, Copy)]
pub(super) struct Full {
    d: u32,
    /// Tiles of eight rows that a component has at a time: 2, 4 or 8.
    pub(super) tiles: u32,
}

impl Full {
    #[inline(always)]
    pub(super) const fn of(d: u32) -> Self {
        let tiles = if d <= 16 {
            2
        } else if d <= 32 {
            4
        } else {
            8
        };
        Self { d, tiles }
    }

    /// Rows of a component's factor, filled up.
    pub(super) const fn rows(self) -> u32 {
        8 * self.tiles * self.blocks()
    }

    /// Components at a time.
    #[inline(always)]
    pub(super) const fn components(self) -> u32 {
        match self.tiles {
            2 => MOST / 2,
            4 => MOST / 4,
            _ => MOST / 8,
        }
    }

    /// Times 64 rows of a component.
    #[inline(always)]
    pub(super) const fn blocks(self) -> u32 {
        if self.tiles == 8 { self.d.div_ceil(64) } else { 1 }
    }

    /// Steps of sixteen columns that a block of rows has.
    #[inline(always)]
    pub(super) const fn steps(self, block: u32) -> u32 {
        let (here, all) = (4 * block + 4, self.d.div_ceil(16));
        if here < all { here } else { all }
    }

    /// The first tile of a component's block whose rows reach the columns of a step.
    #[inline(always)]
    pub(super) const fn first(self, block: u32, step: u32) -> u32 {
        (2 * step).saturating_sub(8 * block)
    }

    /// The tile past the last of a component's block.
    #[inline(always)]
    pub(super) const fn end(self, block: u32) -> u32 {
        let left = self.d.div_ceil(8) - 8 * block;
        if left < self.tiles { left } else { self.tiles }
    }

    /// Operands of a component in a step.
    #[inline(always)]
    pub(super) const fn width(self, block: u32, step: u32) -> u32 {
        self.end(block) - self.first(block, step)
    }

    /// Operands of so many components, a multiple of [`components`](Self::components).
    pub(super) const fn all(self, components: u32) -> u32 {
        let (mut sum, mut block) = (0, 0);
        while block < self.blocks() {
            let mut step = 0;
            while step < self.steps(block) {
                sum += self.width(block, step);
                step += 1;
            }
            block += 1;
        }
        components * sum
    }
}

/// All components' factors.
pub(super) struct Factors {
    order: Full,
    at: u32,
    block: u32,
    step: u32,
    all: u32,
}

impl Factors {
    #[inline(always)]
    pub(super) fn new(order: Full, components: u32) -> Self {
        Self { order, at: 0, block: 0, step: 0, all: order.all(components) }
    }
}

impl Stream for Factors {
    #[inline(always)]
    fn next(&mut self) -> (u32, u32) {
        let (order, at) = (self.order, self.at);
        let count = order.components() * order.width(self.block, self.step);
        self.at = if at + count == self.all { 0 } else { at + count };
        self.step += 1;
        if self.step == order.steps(self.block) {
            self.step = 0;
            self.block = if self.block + 1 == order.blocks() { 0 } else { self.block + 1 };
        }
        (at, count)
    }
}
