//! Every EM path on a device, best first. Where all fail, the host makes the iterations from passes about the means.

mod chunked;
pub(crate) mod fused;
mod half_precision;
mod small_d;
mod wgmma;

use super::path::EmPath;

/// Best first; [`select`](mod@super::select) says where the order differs.
pub(crate) static PATHS: [&dyn EmPath; 7] = [
    &small_d::SmallD,
    &fused::Fused,
    &wgmma::FP16,
    &chunked::FP16,
    &wgmma::SPLIT_FP16,
    &chunked::SPLIT_FP16,
    &chunked::F64,
];
