//! Conversion from row-major to tiles and back.

use crate::data::Random;
use crate::harness::{poison, tiled, untiled};
use gmm_kernels::device::Buffer;
use gmm_kernels::layout::{tiled_index, tiled_len};
use gmm_kernels::tile::{Pick, Tile, pick, tile_from_f32};
use ndarray::{Array2, Axis};
use std::ptr::null;

#[test]
fn tiles_hold_shifted_rows_and_zeros_after_them() {
    for (n, d) in [(1, 1), (128, 32), (129, 33), (300, 5), (40, 70)] {
        let random = &mut Random(n as u64);
        let rows = Array2::from_shape_fn((n, d), |_| 100.0 + random.normal());
        let shift: Vec<f64> = (0..d).map(|j| j as f64).collect();
        let scale: Vec<f64> = (0..n).map(|i| 1.0 + i as f64).collect();
        let got = tiled::<f32>(&rows, Some(&shift), Some(&scale)).to_vec();
        let mut seen = vec![false; got.len()];
        for i in 0..tiled_len(n as u64, 1) {
            for j in 0..d as u32 {
                let at = tiled_index(i, j, d as u32) as usize;
                assert!(!std::mem::replace(&mut seen[at], true), "entry ({i}, {j}) shares its place");
                let (row, column) = (i as usize, j as usize);
                let want = if row < n { ((rows[[row, column]] - shift[column]) * scale[row]) as f32 } else { 0.0 };
                assert_eq!(got[at], want, "entry ({i}, {j}) of ({n}, {d})");
            }
        }
        let plain = tiled::<f64>(&rows, None, None);
        assert_eq!(untiled(&plain, n, d), rows);
    }
}

#[test]
fn f32_rows_widen_exactly() {
    let rows: Vec<f32> = (0..600).map(|i| i as f32 * 0.37).collect();
    let from = Buffer::new(&rows);
    let mut to = poison::<f64>(tiled_len(200, 3));
    let arguments =
        Tile { from: from.pointer().cast(), n: 200, columns: 3, shift: null(), scale: null(), to: to.pointer_mut() };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { tile_from_f32::<f64>().emulate((4, 1), arguments) };
    assert!(untiled(&to, 200, 3).iter().zip(&rows).all(|(a, b)| *a == f64::from(*b)));
}

#[test]
fn picked_rows_are_tiled_with_zeros_after_them() {
    for (n, d, count) in [(1_usize, 1_usize, 1_usize), (300, 5, 129), (1000, 33, 128), (129, 3, 700)] {
        let random = &mut Random(n as u64);
        let rows = Array2::from_shape_fn((n, d), |_| random.normal());
        let chosen: Vec<u64> = (0..count).map(|i| (i * 7919 % n) as u64).collect();
        let want =
            tiled::<f32>(&rows.select(Axis(0), &chosen.iter().map(|&i| i as usize).collect::<Vec<_>>()), None, None);
        let (from, which) = (tiled::<f32>(&rows, None, None), Buffer::new(&chosen));
        for grid in [(1, 1), (3, 2), (9, 40)] {
            let mut to = poison::<f32>(tiled_len(count as u64, d as u32));
            let arguments = Pick {
                from: from.pointer(),
                rows: which.pointer(),
                count: count as u64,
                columns: d as u32,
                to: to.pointer_mut(),
            };
            // SAFETY: every buffer has the length that the kernel's arguments document.
            unsafe { pick::<f32>().emulate(grid, arguments) };
            assert_eq!(to.to_vec(), want.to_vec(), "{count} of ({n}, {d})");
        }
    }
}
