//! The log joint density of a row under one component, by one lane.

use crate::Real;
use crate::device::{self, Shared, WARP, warp};
use crate::truncated::{Truncated, form};

/// A row in shared memory, and room for the factors of each lane.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) x: Shared<f64>,
    pub(super) factors: Shared<f64>,
}

/// The log joint density of the row under component `c`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Truncated`] document, and `c < k`.
#[inline(always)]
pub(super) unsafe fn log_joint(a: &Truncated, row: Row, c: u32) -> f64 {
    let c = c as u64;
    let (line, d) = (a.padded as u64, a.d);
    // SAFETY: columns are below `d ≤ padded`, lines below `lines`, factors below `factors`, and `c < k`.
    unsafe {
        let z = |j: u32| row.x.load(j) - device::load(a.means, c * line + j as u64);
        let mut square = 0.0;
        match a.form {
            form::FULL => {
                let mut i = 0;
                while i < d {
                    let at = (c * a.lines as u64 + i as u64) * line;
                    let (mut v, mut j) = (0.0, 0);
                    while j <= i {
                        v = Real::fma(device::load(a.lines_of, at + j as u64), z(j), v);
                        j += 1;
                    }
                    square = Real::fma(v, v, square);
                    i += 1;
                }
            }
            form::FACTORS => {
                let mine = row.factors.skip(warp::lane_id());
                let mut e = 0;
                while e < a.factors {
                    let at = (c * a.lines as u64 + e as u64) * line;
                    let (mut v, mut j) = (0.0, 0);
                    while j < d {
                        v = Real::fma(device::load(a.lines_of, at + j as u64), z(j), v);
                        j += 1;
                    }
                    mine.store(WARP * e, v);
                    square = Real::fma(v, v, square);
                    e += 1;
                }
                let mut j = 0;
                while j < d {
                    let (mut rest, mut e) = (z(j), 0);
                    while e < a.factors {
                        let loading = device::load(a.loadings, (c * a.factors as u64 + e as u64) * line + j as u64);
                        rest = Real::fma(-loading, mine.load(WARP * e), rest);
                        e += 1;
                    }
                    let v = rest * device::load(a.scales, c * line + j as u64);
                    square = Real::fma(v, v, square);
                    j += 1;
                }
            }
            form::SPHERICAL => {
                let scale = device::load(a.scales, c);
                let mut j = 0;
                while j < d {
                    let v = z(j) * scale;
                    square = Real::fma(v, v, square);
                    j += 1;
                }
            }
            _ => {
                let mut j = 0;
                while j < d {
                    let v = z(j) * device::load(a.scales, c * line + j as u64);
                    square = Real::fma(v, v, square);
                    j += 1;
                }
            }
        }
        device::load(a.constants, c) - 0.5 * square
    }
}
