//! Groups rows at regular distances into few 2D blocks, each of which takes one copy.

/// Most bytes of a block's width: a wider piece takes longer than a separate copy.
const BLOCK_BYTES: usize = 1 << 16;

/// Most rows of a block's width.
const MOST_WIDE: usize = 16;

/// Bytes that are copied in the time that an additional copy takes: a microsecond or two.
const COPY_BYTES: usize = 1 << 15;

/// Rows `first + i*pitch + j`, `i < height`, `j < width`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first: usize,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

impl Block {
    pub(crate) const fn rows(&self) -> usize {
        self.height * self.width
    }
}

/// Covers `rows`, ascending and below `of`, with blocks. Returns the blocks, and for each row its block and its index
/// within that block. Rows at about equal distances share blocks. One block spans all rows from the first to the last
/// if the blocks would overlap, or if that copy is no slower.
pub(crate) fn blocks_of(rows: &[usize], of: usize, row_bytes: usize) -> (Vec<Block>, Vec<(usize, usize)>) {
    let &[first, ..] = rows else { return (Vec::new(), Vec::new()) };
    let all = Block { first, pitch: 1, height: 1, width: rows[rows.len() - 1] - first + 1 };
    let pitch = (all.width - 1) / (rows.len() - 1).max(1);
    let wide = (BLOCK_BYTES / row_bytes).clamp(1, MOST_WIDE);
    let (blocks, picks) = narrow(rows, of, pitch, wide);
    let brought: usize = blocks.iter().map(Block::rows).sum();
    let cost = |copies: usize, rows: usize| copies * COPY_BYTES + rows.saturating_mul(row_bytes);
    if pitch < wide || cost(1, all.width) < cost(blocks.len(), brought) {
        return (vec![all], rows.iter().map(|&row| (0, row - first)).collect());
    }
    (blocks, picks)
}

/// The blocks, each at most `wide` rows wide.
fn narrow(rows: &[usize], of: usize, pitch: usize, wide: usize) -> (Vec<Block>, Vec<(usize, usize)>) {
    let (mut blocks, mut places) = (Vec::<Block>::new(), Vec::new());
    for &row in rows {
        let joined = blocks.last_mut().and_then(|block| {
            let (i, start) = (block.height, block.first + block.height * pitch);
            let width = block.width.max(row.checked_sub(start)? + 1);
            // No block may extend past the last row.
            (width <= wide && start + width <= of).then(|| {
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
    use crate::shift::Strided;

    fn check(rows: &[usize], n: usize, wide: usize) -> Vec<Block> {
        let (blocks, picks) = blocks_of(rows, n, BLOCK_BYTES / wide);
        let rows_of = |block: &Block| -> Vec<usize> {
            let Block { first, pitch, height, width } = *block;
            (0..height).flat_map(|i| (0..width).map(move |j| first + i * pitch + j)).collect()
        };
        let all: Vec<Vec<usize>> = blocks.iter().map(rows_of).collect();
        assert!(all.iter().flatten().all(|&row| row < n), "{n} {wide}");
        assert!(blocks.iter().all(|b| b.height == 1 || b.width <= b.pitch), "{n} {wide}");
        assert!(picks.iter().map(|&(block, at)| all[block][at]).eq(rows.iter().copied()), "{n} {wide}");
        blocks
    }

    fn brought(blocks: &[Block]) -> usize {
        blocks.iter().map(Block::rows).sum()
    }

    #[test]
    fn blocks_hold_every_row_that_is_asked_for_and_none_behind_the_last() {
        for n in [1, 2, 1022, 1023, 1024, 1535, 2000, 2045, 2046, 2047, 5000, 17_000, 100_003, 1_000_000] {
            for wide in [1, 2, 16] {
                let rows: Vec<usize> = Strided { of: n }.rows().collect();
                let brought = brought(&check(&rows, n, wide));
                assert!(brought <= (wide * (rows.len() + 1)).max(n.min(wide * 1024)), "{n} {wide}: {brought}");
            }
        }
        // A thousand rows take some dozens of copies.
        let rows: Vec<usize> = Strided { of: 1_000_000 }.rows().collect();
        assert!(check(&rows, 1_000_000, MOST_WIDE).len() < 70);
    }

    #[test]
    fn rows_of_which_some_are_left_out_come_in_blocks_too() {
        for (n, every) in [(1_usize, 1_usize), (3000, 7), (1_000_000, 7), (1_000_000, 3), (1_000_000, 400_000)] {
            for part in [0, 1] {
                // Rows are omitted at regular intervals, or all at the beginning.
                let is_there =
                    |row: usize| if part == 0 { row.is_multiple_of(every) } else { row >= n - n.div_ceil(every) };
                let present: Vec<usize> = (0..n).filter(|&row| is_there(row)).collect();
                let rows: Vec<usize> = Strided { of: present.len() }.rows().map(|row| present[row]).collect();
                let blocks = check(&rows, n, MOST_WIDE);
                assert!(blocks.len() <= rows.len() && brought(&blocks) <= n.min(2 * MOST_WIDE * 1024), "{n} {every}");
            }
        }
    }
}
