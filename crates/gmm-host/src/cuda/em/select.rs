//! Which EM path runs a shape: the list of [`PATHS`], each with the reasons against it. A pure function of shape and
//! device.

use gmm_kernels::em::m_step::Matrices;
use gmm_kernels::layout::Kind;
use gmm_kernels::ptx;
use gmm_model::Precision;

use super::path::{EmPath, Reason, Request};
use super::paths::PATHS;
use crate::cuda::driver::device::{Gpu, Limits};
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::shape::Shape;
use crate::described::LoopCandidate;
use crate::{Error, path_names};

/// A path, and the reasons against it.
pub(crate) struct Candidate {
    pub(crate) path: &'static dyn EmPath,
    /// Why it cannot run, or which setting excludes it.
    pub(crate) excluded: Option<Reason>,
    /// Why another path is faster.
    pub(crate) slower: Option<Reason>,
}

impl Candidate {
    pub(crate) fn runs(&self) -> bool {
        self.excluded.is_none() && self.slower.is_none()
    }
}

/// Lists all paths, best first. The first that runs is taken. The later ones that run are its fallbacks, and after them
/// the host.
pub(crate) fn select(request: &Request<'_>, forced: &ForcedPlan) -> Vec<Candidate> {
    let on_device = on_device(request, forced).err();
    let candidate = |path: &'static dyn EmPath| {
        let other = forced.path().is_some_and(|name| name != path.name());
        let excluded = on_device.clone().or_else(|| path.supports(request).err());
        let excluded = excluded.or_else(|| other.then_some(Reason::OtherForced));
        let dense = forced.dense && path.leaves_out_components();
        let excluded = excluded.or_else(|| dense.then_some(Reason::Dense));
        let slower = if forced.path().is_none() { path.slower(request) } else { None };
        Candidate { path, excluded, slower }
    };
    let mut all: Vec<Candidate> = PATHS.into_iter().map(candidate).collect();
    if split_fp16_is_faster_than_fused(&request.shape) {
        let at =
            |name: &str| all.iter().position(|candidate| candidate.path.name() == name).expect("a path of the list");
        let (fused, split) = (at(path_names::FUSED), at(path_names::CHUNKED_SPLIT_FP16));
        all[fused..=split].rotate_left(1);
    }
    all
}

/// Checks whether iterations can run on the device at all: they need its M-step, whose matrices must fit into memory.
fn on_device(request: &Request<'_>, forced: &ForcedPlan) -> Result<(), Reason> {
    if forced.host_loop() {
        return Err(Reason::HostForced);
    }
    let (room, d) = (u64::from(request.limits.shared_bytes), request.shape.d);
    Matrices::of(request.shape.kernel_kind(), d, room).map(drop).map_err(|wanted| Reason::MStep { d, wanted, room })
}

/// Whether chunks with split fp16 are faster for `f32` rows than one fused kernel per pass. The benchmark W2, with 30
/// columns and 30 components, takes 0.170 ms an iteration on an H200 with split fp16. If it lacks precision or is
/// unavailable, the fused pass follows.
fn split_fp16_is_faster_than_fused(shape: &Shape) -> bool {
    use gmm_kernels::em::fused::Instance;
    let (kind, f32_rows) = (shape.kernel_kind(), shape.precision == Precision::F32);
    f32_rows
        && kind == Kind::Full
        && Instance::of(kind, shape.k, shape.d).is_some_and(|of| of.size >= 6 && of.groups >= 4)
}

/// See [`loop_candidates`](crate::loop_candidates).
///
/// # Errors
/// [`Error::Option`] if `GMM_PLAN` is invalid.
pub(crate) fn described(gpu: Option<&Gpu>, shape: Shape, fast: bool) -> Result<Vec<LoopCandidate>, Error> {
    const H200: Limits = Limits { multiprocessors: 132, shared_bytes: 232_448, l2_bytes: 62_914_560, f32_to_f64: 2 };
    let has = |name: &'static str| match gpu {
        Some(gpu) => gpu.has(name),
        None => ptx::MODULES[0].has(name),
    };
    let limits = gpu.map_or(H200, |gpu| gpu.limits);
    let request = Request { shape, weighted: false, whole: true, fast, limits, has: &has };
    let all = select(&request, &ForcedPlan::from_environment()?);
    let best = all.iter().position(Candidate::runs);
    let describe = |(i, candidate): (usize, &Candidate)| {
        let reason = candidate.excluded.as_ref().or(candidate.slower.as_ref());
        let name = candidate.path.name();
        let reason = reason.map_or_else(|| candidate.path.describe(&shape), Reason::to_string);
        LoopCandidate { name, runs: best == Some(i), reason, fast: crate::fast::is_fast(name) }
    };
    let mut out: Vec<_> = all.iter().enumerate().map(describe).collect();
    let why = "passes about the means, M-step on the host; also if the other paths lose precision";
    let reason = format!("{why}; {} sums", shape.statistics());
    out.push(LoopCandidate { name: path_names::HOST, runs: best.is_none(), reason, fast: false });
    Ok(out)
}

#[cfg(test)]
mod tests;
