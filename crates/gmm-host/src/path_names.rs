//! Names of the EM paths, as people read and write them: in `gmm doctor --plan`, `GMM_PLAN` and the file of timings.

pub(crate) const SMALL_D: &str = "small-d";
pub(crate) const FUSED: &str = "fused";
pub(crate) const WGMMA_FP16: &str = "wgmma-fp16";
pub(crate) const CHUNKED_FP16: &str = "chunked-fp16";
pub(crate) const WGMMA_SPLIT_FP16: &str = "wgmma-split-fp16";
pub(crate) const CHUNKED_SPLIT_FP16: &str = "chunked-split-fp16";
pub(crate) const CHUNKED_F64: &str = "chunked-f64";
/// The host makes the iterations, pass by pass.
pub(crate) const HOST: &str = "host";

/// Those that run on a device.
pub(crate) const ON_DEVICE: [&str; 7] =
    [SMALL_D, FUSED, WGMMA_FP16, CHUNKED_FP16, WGMMA_SPLIT_FP16, CHUNKED_SPLIT_FP16, CHUNKED_F64];
