//! The order in which the densities of full covariances read their coefficients, so that they are one stream.

/// Tiles at a time: with 32 rows, what a warp has registers for.
const MOST: u32 = 8;

/// Triangular factors: some components at a time, so that their rows make eight tiles; of long ones 64 rows at a time.
/// A part has all tiles of sixteen columns that are not above the diagonal.
#[derive(Clone, Copy)]
pub(crate) struct Full {
    d: u32,
    /// Tiles of eight rows that a component has at a time: 2, 4 or 8.
    pub(crate) tiles: u32,
}

impl Full {
    #[inline(always)]
    pub(crate) const fn of(d: u32) -> Self {
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
    pub(crate) const fn rows(self) -> u32 {
        8 * self.tiles * self.blocks()
    }

    /// Components at a time.
    #[inline(always)]
    pub(crate) const fn components(self) -> u32 {
        match self.tiles {
            2 => MOST / 2,
            4 => MOST / 4,
            _ => MOST / 8,
        }
    }

    /// Times 64 rows of a component.
    #[inline(always)]
    pub(crate) const fn blocks(self) -> u32 {
        if self.tiles == 8 { self.d.div_ceil(64) } else { 1 }
    }

    /// Steps of sixteen columns that a block of rows has.
    #[inline(always)]
    pub(crate) const fn steps(self, block: u32) -> u32 {
        let (here, all) = (4 * block + 4, self.d.div_ceil(16));
        if here < all { here } else { all }
    }

    /// The first tile of a component's block whose rows reach the columns of a step.
    #[inline(always)]
    pub(crate) const fn first(self, block: u32, step: u32) -> u32 {
        (2 * step).saturating_sub(8 * block)
    }

    /// The tile past the last of a component's block. Tiles are taken two by two, so that products do not wait for one
    /// another.
    #[inline(always)]
    pub(crate) const fn end(self, block: u32) -> u32 {
        let left = 2 * self.d.div_ceil(16) - 8 * block;
        if left < self.tiles { left } else { self.tiles }
    }

    /// Operands of a component in a step.
    #[inline(always)]
    pub(crate) const fn width(self, block: u32, step: u32) -> u32 {
        self.end(block) - self.first(block, step)
    }

    /// Operands of so many components, a multiple of [`components`](Self::components).
    pub(crate) const fn all(self, components: u32) -> u32 {
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
