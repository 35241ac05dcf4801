//! Names of the EM paths, as used in `gmm doctor --plan`, `GMM_PLAN` and the tuning file.

pub(crate) const NEARBY: &str = "nearby";
pub(crate) const SMALL_D: &str = "small-d";
pub(crate) const FUSED: &str = "fused";
pub(crate) const WGMMA_FP16: &str = "wgmma-fp16";
pub(crate) const CHUNKED_FP16: &str = "chunked-fp16";
pub(crate) const WGMMA_SPLIT_FP16: &str = "wgmma-split-fp16";
pub(crate) const CHUNKED_SPLIT_FP16: &str = "chunked-split-fp16";
pub(crate) const CHUNKED_F64: &str = "chunked-f64";
/// The host runs the EM loop, one pass per iteration.
pub(crate) const HOST: &str = "host";

/// The paths whose EM loop runs on the device.
pub(crate) const ON_DEVICE: [&str; 8] =
    [NEARBY, SMALL_D, FUSED, WGMMA_FP16, CHUNKED_FP16, WGMMA_SPLIT_FP16, CHUNKED_SPLIT_FP16, CHUNKED_F64];
