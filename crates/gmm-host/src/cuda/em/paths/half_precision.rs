//! Shared by the paths with half-precision operands: which requests they support, and the scales of the columns.

use cust::memory::DeviceSlice;
use gmm_kernels::em::chunked::half_precision::scales::{Norms, Scales, chunked_half_norms, chunked_half_scales};
use gmm_kernels::layout::tiles;

use super::super::path::{Launch, Operand, PathBuffers, Reason, Request};
use crate::Error;
use crate::cuda::launch::{Chunk, pointer};

/// Checks the conditions that all half-precision paths share.
pub(super) fn takes_half_precision(request: &Request<'_>, operand: Operand) -> Result<(), Reason> {
    if request.shape.number_bytes() != 4 {
        return Err(Reason::Only("float32 rows"));
    }
    if operand == Operand::Fp16 && !request.fast {
        return Err(Reason::NotAskedFor);
    }
    if request.weighted { Err(Reason::RowWeights) } else { Ok(()) }
}

/// Computes the squared norms of a section's rows, if norms are a feature.
pub(super) fn half_precision_norms(launch: &Launch<'_>, rows: &Chunk<f32>) -> Result<(), Error> {
    let norms = first_norm(&launch.buffers.own, launch.norms_from).cast_mut();
    if norms.is_null() {
        return Ok(());
    }
    let (x, n, d) = (pointer(&rows.x).cast_const(), rows.n, launch.plan.shape.d);
    let grid = (tiles(n).min(1 << 16) as u32, 1);
    // SAFETY: `norms` has the length that `workspace` states, and `rows` has `n` tiled rows of `d` columns.
    unsafe { launch.launcher.launch(chunked_half_norms(), grid, Norms { x, n, d, norms }) }
}

/// Computes powers of two that scale a section's columns, and its norms if they are a feature, into half precision's
/// range.
pub(super) fn half_precision_scales(launch: &Launch<'_>, rows: &Chunk<f32>) -> Result<(), Error> {
    let (d, own) = (launch.plan.shape.d, &launch.buffers.own);
    let (x, n, norms) = (pointer(&rows.x).cast_const(), rows.n, first_norm(own, launch.norms_from));
    let a = Scales { x, norms, n, d, scales: pointer(&own.scales).cast() };
    // SAFETY: `scales` has `d + 1` numbers, as `workspace` states; rows and norms are those of `half_precision_norms`.
    unsafe { launch.launcher.launch(chunked_half_scales(), (d + 1, 1), a) }
}

/// Pointer to the norm of row `start`; null if norms are not a feature.
pub(super) fn first_norm(own: &PathBuffers<DeviceSlice<f64>>, start: u64) -> *const f32 {
    if own.norms.is_empty() {
        return std::ptr::null();
    }
    pointer(&own.norms).cast_const().cast::<f32>().wrapping_add(start as usize)
}
