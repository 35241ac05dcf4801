//! Order in which the densities of full covariances read their coefficients, so that they form one stream.

/// Tiles at a time: with 32 rows, as many as fit in a warp's registers.
const MOST: u32 = 8;

/// Order of triangular factors: several components at a time, so that their rows make eight tiles; for long rows, 64
/// rows of one component at a time. Each part has all tiles of sixteen columns that are not above the diagonal.
#[derive(Clone, Copy)]
pub(crate) struct Full {
    d: u32,
    /// Tiles of eight rows per component at a time: 2, 4 or 8.
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

    /// Rows of a component's factor, padded.
    pub(crate) const fn rows(self) -> u32 {
        8 * self.tiles * self.blocks()
    }

    /// Components processed at a time.
    #[inline(always)]
    pub(crate) const fn components(self) -> u32 {
        match self.tiles {
            2 => MOST / 2,
            4 => MOST / 4,
            _ => MOST / 8,
        }
    }

    /// Blocks of 64 rows per component.
    #[inline(always)]
    pub(crate) const fn blocks(self) -> u32 {
        if self.tiles == 8 { self.d.div_ceil(64) } else { 1 }
    }

    /// Steps of sixteen columns in a block of rows.
    #[inline(always)]
    pub(crate) const fn steps(self, block: u32) -> u32 {
        let (here, all) = (4 * block + 4, self.d.div_ceil(16));
        if here < all { here } else { all }
    }

    /// First tile of a component's block whose rows reach the columns of `step`.
    #[inline(always)]
    pub(crate) const fn first(self, block: u32, step: u32) -> u32 {
        (2 * step).saturating_sub(8 * block)
    }

    /// One past the last tile of a component's block. Tiles are processed in pairs, so that consecutive products do not
    /// depend on each other.
    #[inline(always)]
    pub(crate) const fn end(self, block: u32) -> u32 {
        let left = 2 * self.d.div_ceil(16) - 8 * block;
        if left < self.tiles { left } else { self.tiles }
    }

    /// Operands of one component in a step.
    #[inline(always)]
    pub(crate) const fn width(self, block: u32, step: u32) -> u32 {
        self.end(block) - self.first(block, step)
    }

    /// Operands of `components` components, a multiple of [`components`](Self::components).
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
