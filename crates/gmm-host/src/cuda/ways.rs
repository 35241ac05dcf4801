//! Ways to run EM's loop over a shape: which there are, which would run, and why not the others.

use gmm_kernels::Real;
use gmm_kernels::fused::halves::Halves;
use gmm_kernels::fused::large::{self, Large};
use gmm_kernels::fused::narrow::{self, Cut};
use gmm_kernels::fused::update::Matrices;
use gmm_kernels::fused::warpgroups::Warpgroups;
use gmm_kernels::fused::{self, Family, Variant};
use gmm_kernels::layout::Kind;
use gmm_kernels::ptx;
use gmm_model::{CovarianceType, Precision};

use super::plan::{Forced, Limits, LoopKernels};
use super::shape::Shape;
use super::{CudaEngine, Gpu};
use crate::Error;
use crate::described::LoopCandidate;

/// A way to run the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// On the device, a kernel for a pass.
    Fused(Variant),
    /// On the device, a kernel for a pass whose warps have components of their own.
    Narrow(Cut),
    /// On the device, two kernels for each chunk of rows, whose products are of halves, or of one half for each number.
    Halves(Halves),
    /// On the device, two or three kernels for each chunk of rows, whose products are a warpgroup's, of one half for each number, or
    /// of full covariances two.
    Warpgroups(Warpgroups),
    /// On the device, two kernels for each chunk of rows.
    Large(Large),
    /// By the host, pass by pass.
    Host,
}

/// How many times as fast as f64 f32 may be, for f32 rows to go by f64's tensor cores. There are GPUs of 2, and of 32 and more.
const MOST_F32_TO_F64: u32 = 4;

/// Columns from which on products of halves are a warpgroup's: their kernels multiply 64 at least.
const LEAST_WIDE: u32 = 33;

impl Way {
    /// Its name, for people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fused(_) => FUSED,
            Self::Narrow(_) => "narrow",
            Self::Halves(Halves { one: false, .. }) => "halves",
            Self::Halves(Halves { one: true, .. }) => crate::fast::HEADS,
            Self::Warpgroups(of) if of.one() => crate::fast::WARPGROUPS,
            Self::Warpgroups(_) => "wide-halves",
            Self::Large(_) => "large",
            Self::Host => "host",
        }
    }

    /// Whether numbers are heads alone, or else two halves; none where they are neither.
    pub(super) const fn by_heads(&self) -> Option<bool> {
        match self {
            Self::Halves(halves) => Some(halves.one),
            Self::Warpgroups(of) => Some(of.one()),
            Self::Fused(_) | Self::Narrow(_) | Self::Large(_) | Self::Host => None,
        }
    }
}

/// What is asked of a loop beside its shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Rows have weights.
    pub(super) weighted: bool,
    /// Speed counts more than digits.
    pub(super) fast: bool,
    /// Rules of thumb speak against no way.
    pub(super) slower_too: bool,
}

/// Whether `f32` rows are better off with products of halves than with a kernel for a pass: W2, of 30 columns and components, takes
/// an H200 0.170 ms with them. Where those lack digits or cannot be had, the pass follows.
fn halves_are_faster(shape: &Shape, variant: Variant) -> bool {
    let many = variant.size >= 6 && variant.groups >= 4;
    shape.precision == Precision::F32 && variant.family == Family::Full && many
}

/// Whether warpgroups are faster than single warps, of heads alone or of two halves. Measured on an H200, 2e5 rows. Heads: full
/// covariances of 64 columns and 16 components 0.47 ms for 0.59, of 32 columns and 64 components (1e6 rows) 1.67 for 1.29; diagonal
/// ones of 32 columns and 64 components 0.076 for 0.079, with components filled up to 128. Two halves, which warps multiply for 32
/// components at a time or 64: of 48 columns and 24 components 0.75 for 0.60, 48 components 0.92 for 1.04; of 64 columns 1.03
/// for 0.89 and 1.20 for 1.64; 1e5 rows of 33 columns and 64 components 0.49 for 0.53.
fn worth_warpgroups(kind: Kind, k: u32, d: u32, one: bool) -> bool {
    match (kind, one) {
        (Kind::Full, true) => d > 32 && k >= 16,
        (Kind::Full, false) => k > 32,
        _ => k >= 64,
    }
}

/// All ways, best first, each with what speaks against it; the first with nothing runs. The last always can.
pub(super) fn consider<T: Real>(
    shape: &Shape,
    asked_for: Asked,
    limits: &Limits,
    forced: &Forced,
    has: impl Fn(&'static str) -> bool,
) -> Vec<(Way, Option<String>)> {
    let (kind, k, d) = (shape.kernel_kind(), shape.k, shape.d);
    let Asked { weighted, fast, slower_too } = asked_for;
    let room = u64::from(limits.shared_bytes);
    let loops = match Matrices::of(kind, d, room) {
        _ if forced.host_loop() => Some("GMM_PLAN has loop=host".to_owned()),
        Ok(_) => None,
        Err(wanted) => {
            Some(format!("the M-step of {d} columns wants {wanted} bytes of shared memory, {room} are there"))
        }
    };
    let asked = forced.variant();
    let other = |way: LoopKernels| asked.is_some_and(|asked| asked != way);
    let forced = || Some("GMM_PLAN asks for another variant".to_owned());
    let absent =
        || Some("the module has no kernel for it: tensor cores for f64 came with compute capability 8.0".to_owned());
    // Where f64 is rare, f32 rows are better off without its tensor cores.
    let times = limits.f32_to_f64;
    let f64_is_slow = shape.precision == Precision::F32 && times > MOST_F32_TO_F64 && !slower_too;
    let slow = |way: LoopKernels| {
        (f64_is_slow && asked != Some(way))
            .then(|| format!("it computes in f64, and f32 is {times} times as fast on this GPU"))
    };
    let mut ways = Vec::new();
    if let (Some(cut), Kind::Full, Precision::F32) = (Cut::of(k, d), kind, shape.precision) {
        let shared = narrow::shared_bytes(cut);
        let why_not = || match () {
            () if other(LoopKernels::Narrow) => forced(),
            () if !has(narrow::kernel(cut).name) => absent(),
            () => (shared > room).then(|| format!("it wants {shared} bytes of shared memory, {room} are there")),
        };
        ways.push((Way::Narrow(cut), loops.clone().or_else(why_not)));
    }
    let fused = Variant::of(kind, k, d).map(|variant| variant.fitting::<T>(room)).map(|variant| {
        let (_, shared) = fused::block::<T>(variant);
        let why_not = || match () {
            () if other(LoopKernels::Fused) => forced(),
            () if !has(fused::kernel::<T>(variant).name) => absent(),
            () if shared > room => Some(format!("it wants {shared} bytes of shared memory, {room} are there")),
            () => slow(LoopKernels::Fused),
        };
        (Way::Fused(variant), loops.clone().or_else(why_not))
    });
    let (before, after) = match fused {
        Some((Way::Fused(variant), _)) if halves_are_faster(shape, variant) => (None, fused),
        _ => (fused, None),
    };
    ways.extend(before);
    let of = Large::of(kind, k, d);
    let weights = || Some("rows have weights, whose range halves need not hold".to_owned());
    if shape.precision == Precision::F32 {
        for one in [true, false] {
            if one && !fast {
                continue;
            }
            if let Some(of) = Warpgroups::of(kind, k, d, one).filter(|of| of.one() || d >= LEAST_WIDE) {
                let (first, second) = of.shared_bytes();
                let why_not = || match () {
                    () if other(LoopKernels::Warpgroups) => forced(),
                    () if weighted => weights(),
                    () if !has(of.names().1) => {
                        Some("the module has no kernel for it: warpgroups came with Hopper".to_owned())
                    }
                    () if !slower_too && asked.is_none() && !worth_warpgroups(kind, k, d, one) => {
                        Some("of its components or columns too many would be empty".to_owned())
                    }
                    () => (first.max(second) > room)
                        .then(|| format!("it wants {} bytes of shared memory, {room} are there", first.max(second))),
                };
                ways.push((Way::Warpgroups(of), loops.clone().or_else(why_not)));
            }
            let halves = Halves::of(kind, k, d, one);
            let (first, second) = halves.shared_bytes(kind, d);
            let why_not = || match () {
                () if other(LoopKernels::Halves) => forced(),
                () if weighted => weights(),
                () if !has(halves.densities(d).name) => absent(),
                () if !slower_too && !f64_is_slow && kind == Kind::Full && d < 8 => {
                    Some("of eight rows of a factor most would be empty".to_owned())
                }
                () => (first.max(second) > room)
                    .then(|| format!("it wants {} bytes of shared memory, {room} are there", first.max(second))),
            };
            ways.push((Way::Halves(halves), loops.clone().or_else(why_not)));
        }
    }
    ways.extend(after);
    let why_not = || match () {
        () if other(LoopKernels::Large) => forced(),
        () => {
            if has(large::densities::<T>(of.family, of.at_once).name) {
                slow(LoopKernels::Large)
            } else {
                absent()
            }
        }
    };
    ways.push((Way::Large(of), loops.or_else(why_not)));
    ways.push((Way::Host, None));
    ways
}

/// The ways to run EM over `shape`, `n` rows of `d` columns with `k` components, on `engine`, or, without one, on an H200; best
/// first. One of them runs. Nothing is launched. `fast`: as [`FitOptions::fast`](crate::FitOptions::fast).
///
/// # Errors
/// [`Error::Option`] where `GMM_PLAN` says what cannot be, or a number is beyond what the kernels count with.
pub fn loop_candidates(
    engine: Option<&CudaEngine>,
    kind: CovarianceType,
    precision: Precision,
    shape: (usize, usize, usize),
    fast: bool,
) -> Result<Vec<LoopCandidate>, Error> {
    const H200: Limits = Limits { multiprocessors: 132, shared_bytes: 232_448, l2_bytes: 62_914_560, f32_to_f64: 2 };
    let shape = Shape::new(kind, precision, shape)?;
    let asked_for = Asked { fast, ..Asked::default() };
    let forced = Forced::from_environment()?;
    let limits = engine.map_or(H200, |engine| engine.gpu.limits);
    let has = |name: &'static str| match engine {
        Some(engine) => Gpu::has(&engine.gpu, name),
        None => ptx::MODULES[0].has(name),
    };
    let ways = match precision {
        Precision::F32 => consider::<f32>(&shape, asked_for, &limits, &forced, has),
        Precision::F64 => consider::<f64>(&shape, asked_for, &limits, &forced, has),
    };
    let best = ways.iter().position(|(_, why_not)| why_not.is_none());
    let mut out: Vec<LoopCandidate> = ways
        .into_iter()
        .enumerate()
        .map(|(i, (way, why_not))| {
            let reason = why_not.unwrap_or_else(|| describe(way, &shape));
            LoopCandidate { name: way.name(), runs: best == Some(i), reason, fast: crate::fast::is_fast(way.name()) }
        })
        .collect();
    if Variant::of(shape.kernel_kind(), shape.k, shape.d).is_none() {
        let Shape { k, d, .. } = shape;
        let reason = format!("the sums of {k} components of {d} columns do not fit into registers");
        out.insert(0, LoopCandidate { name: FUSED, runs: false, reason, fast: false });
    }
    Ok(out)
}

const FUSED: &str = "fused";

/// How a way runs, and what decides its cost.
fn describe(way: Way, shape: &Shape) -> String {
    match way {
        Way::Fused(variant) => {
            let (sums, kernel) = (variant.place().sums(), fused::kernel::<f32>(variant).name);
            let kernel = kernel.trim_end_matches("_f32");
            format!("one kernel a pass, {kernel}; its warps hold all {sums} sums in registers")
        }
        Way::Narrow(cut) => {
            let (each, warps) = (cut.each, cut.warps);
            format!("one kernel a pass; {warps} warps of a block take the same rows, each {each} components")
        }
        Way::Halves(Halves { of, one }) => {
            let (sums, at_once) = (of.place.sums(), 8 * of.at_once);
            let how = if one {
                "two kernels for each chunk of rows, products of one half-precision number each, 11 bits"
            } else {
                "two kernels for each chunk of rows, products of two half-precision numbers each, 22 bits"
            };
            format!("{how}; {at_once} components at a time; {sums} sums")
        }
        Way::Warpgroups(of) => {
            let (place, kernels) = (of.place(), if shape.kind == CovarianceType::Full { "three" } else { "two" });
            let numbers =
                if of.one() { "one half-precision number each, 11" } else { "two half-precision numbers each, 22" };
            let sums = place.sums();
            format!("{kernels} kernels for each chunk of rows, products of {numbers} bits, by warpgroups; {sums} sums")
        }
        Way::Large(of) => {
            let (sums, at_once) = (of.place.sums(), 8 * of.at_once);
            format!("two kernels for each chunk of rows, {at_once} components at a time; {sums} sums")
        }
        Way::Host => {
            let statistics = shape.statistics();
            let why = "passes about the means, M-step on the host; also where the others would lose digits";
            format!("{why}; {statistics} sums")
        }
    }
}

#[cfg(test)]
mod tests;
