//! An order of rows in which tiles of consecutive rows are near each other: a k-d tree whose leaves are tiles.

/// Rows of a node that decide along which column it is divided.
const SAMPLE: usize = 64;

/// Rows that decide the scales of the columns.
const SCALE_SAMPLE: usize = 1024;

/// Larger nodes are divided on two threads.
const LARGE: usize = 1 << 14;

/// Indices of `n` rows of `d` columns, tile by tile: every tile has `tile` rows but the last. `value(row, column)` must
/// not be NaN.
///
/// A node is divided along the column in which it extends most, in units of the column's range over all rows (without
/// the outer sixteenths, so that one far row does not matter). The result depends only on the values. Cost: `n ln(n /
/// tile)` comparisons.
pub(crate) fn order<F: Fn(usize, usize) -> f64 + Sync>(n: usize, d: usize, tile: usize, value: F) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..n as u32).collect();
    let scales: Vec<f64> = (0..d).map(|j| scale(n, |row| value(row, j))).collect();
    let mut keys = vec![(0.0, 0); n];
    divide(&mut rows, &mut keys, tile, &scales, &value);
    rows
}

/// The reciprocal range of a column; 0 if it is constant.
fn scale(n: usize, value: impl Fn(usize) -> f64) -> f64 {
    let mut some: Vec<f64> = (0..n).step_by(n.div_ceil(SCALE_SAMPLE)).map(value).collect();
    some.sort_unstable_by(f64::total_cmp);
    let (count, outer) = (some.len(), some.len() / 16);
    let inner = some[count - 1 - outer] - some[outer];
    let range = if inner > 0.0 { inner } else { some[count - 1] - some[0] };
    if range > 0.0 && range.is_finite() { 1.0 / range } else { 0.0 }
}

fn divide<F: Fn(usize, usize) -> f64 + Sync>(
    rows: &mut [u32],
    keys: &mut [(f64, u32)],
    tile: usize,
    scales: &[f64],
    value: &F,
) {
    let n = rows.len();
    if n <= tile {
        // Near each other in memory too.
        rows.sort_unstable();
        return;
    }
    let widest = widest(rows, scales, value);
    for (key, &row) in keys.iter_mut().zip(rows.iter()) {
        *key = (value(row as usize, widest), row);
    }
    let half = n.div_ceil(tile) / 2 * tile;
    keys.select_nth_unstable_by(half, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    rows.iter_mut().zip(keys.iter()).for_each(|(row, key)| *row = key.1);
    let (left, right) = rows.split_at_mut(half);
    let (left_keys, right_keys) = keys.split_at_mut(half);
    if n > LARGE {
        rayon::join(|| divide(left, left_keys, tile, scales, value), || divide(right, right_keys, tile, scales, value));
    } else {
        divide(left, left_keys, tile, scales, value);
        divide(right, right_keys, tile, scales, value);
    }
}

/// The column in which a sample of the rows extends most, the first among equals.
fn widest(rows: &[u32], scales: &[f64], value: &impl Fn(usize, usize) -> f64) -> usize {
    let step = rows.len().div_ceil(SAMPLE);
    let extent = |j: usize| {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for &row in rows.iter().step_by(step) {
            let v = value(row as usize, j);
            (low, high) = (low.min(v), high.max(v));
        }
        (high - low) * scales[j]
    };
    let mut best = (0, extent(0));
    for j in 1..scales.len() {
        let here = extent(j);
        if here > best.1 {
            best = (j, here);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_occurs_once_and_tiles_of_a_line_are_its_intervals() {
        for n in [1, 5, 8, 9, 1000, 40_001] {
            let value = |row: usize, column: usize| if column == 1 { ((row * 7919) % n) as f64 } else { 3.0 };
            let found = order(n, 2, 8, value);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..n as u32), "{n}");
            for (tile, rows) in found.chunks(8).enumerate() {
                assert!(rows.iter().all(|&r| value(r as usize, 1) as usize / 8 == tile), "{n} tile {tile}");
            }
        }
    }

    #[test]
    fn equal_rows_keep_their_order() {
        assert!(order(100, 3, 16, |_, _| 1.0).into_iter().eq(0..100));
    }
}
