//! Every EM path on a device, best first. If all fail, the host runs the iterations with passes about the means.

mod chunked;
mod double_precision;
pub(crate) mod fused;
mod half_precision;
pub(crate) mod nearby;
mod small_d;
mod wgmma;

use super::path::EmPath;

/// All paths, best first; [`select`](mod@super::select) changes the order for some shapes.
pub(crate) static PATHS: [&dyn EmPath; 8] = [
    &nearby::Nearby,
    &small_d::SmallD,
    &fused::Fused,
    &wgmma::FP16,
    &chunked::FP16,
    &wgmma::SPLIT_FP16,
    &chunked::SPLIT_FP16,
    &chunked::F64,
];
