//! Rows at some strides as few blocks, each of which one copy brings.

use crate::shift::Strided;

/// Bytes of a block's rows side by side: a wider piece takes longer than a copy of its own.
const BLOCK_BYTES: usize = 1 << 16;

/// The most of them.
const MOST_WIDE: usize = 16;

/// Rows that a block is wide at most, of so many bytes each.
pub(super) fn widest(row_bytes: usize) -> usize {
    (BLOCK_BYTES / row_bytes).clamp(1, MOST_WIDE)
}

/// Rows `first + i*pitch + j`, `i < height`, `j < width`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) first: usize,
    pub(super) pitch: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

impl Block {
    pub(super) const fn rows(&self) -> usize {
        self.height * self.width
    }
}

/// The blocks, at most `wide` rows wide, in which all rows at some strides lie, and for each row its block and which of
/// that block's rows it is. Where such blocks would overlap, one of all rows is no more.
pub(super) fn blocks_of(strided: Strided, wide: usize) -> (Vec<Block>, Vec<(usize, usize)>) {
    let pitch = strided.pitch();
    if pitch < wide {
        let all = Block { first: 0, pitch: 1, height: 1, width: strided.of };
        return (vec![all], strided.rows().map(|row| (0, row)).collect());
    }
    let (mut blocks, mut places) = (Vec::<Block>::new(), Vec::new());
    for row in strided.rows() {
        let joined = blocks.last_mut().and_then(|block| {
            let (i, start) = (block.height, block.first + block.height * pitch);
            let width = block.width.max(row - start + 1);
            // No block may end behind the rows.
            (width <= wide && start + width <= strided.of).then(|| {
                (block.height, block.width) = (i + 1, width);
                (i, row - start)
            })
        });
        let (i, j) = joined.unwrap_or_else(|| {
            blocks.push(Block { first: row, pitch, height: 1, width: 1 });
            (0, 0)
        });
        places.push((blocks.len() - 1, i, j));
    }
    let picks = places.iter().map(|&(block, i, j)| (block, i * blocks[block].width + j)).collect();
    (blocks, picks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_every_row_that_is_asked_for_and_none_behind_the_last() {
        for n in [1, 2, 1022, 1023, 1024, 1535, 2000, 2045, 2046, 2047, 5000, 17_000, 100_003, 1_000_000] {
            for wide in [1, 2, 16] {
                let strided = Strided { of: n };
                let (blocks, picks) = blocks_of(strided, wide);
                let rows_of = |block: &Block| -> Vec<usize> {
                    let Block { first, pitch, height, width } = *block;
                    (0..height).flat_map(|i| (0..width).map(move |j| first + i * pitch + j)).collect()
                };
                let all: Vec<Vec<usize>> = blocks.iter().map(rows_of).collect();
                assert!(all.iter().flatten().all(|&row| row < n), "{n} {wide}");
                let brought: usize = blocks.iter().map(Block::rows).sum();
                assert!(brought <= (wide * (strided.len() + 1)).max(n.min(wide * 1024)), "{n} {wide}: {brought}");
                assert!(blocks.iter().all(|b| b.height == 1 || b.width <= b.pitch), "{n} {wide}");
                assert!(picks.iter().map(|&(block, at)| all[block][at]).eq(strided.rows()), "{n} {wide}");
            }
        }
        // A thousand rows take some dozens of copies.
        assert!(blocks_of(Strided { of: 1_000_000 }, MOST_WIDE).0.len() < 70);
    }
}
