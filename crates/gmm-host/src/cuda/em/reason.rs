//! Why a path does not run. The words stand here alone: `gmm doctor --plan` prints them.

use std::fmt;

/// Why a path does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// `GMM_PLAN` sets `loop=host`.
    HostForced,
    /// `GMM_PLAN` names another path.
    OtherForced,
    /// The matrices of the M-step need more shared memory than a block can have.
    MStep {
        d: u32,
        wanted: u64,
        room: u64,
    },
    SharedMemory {
        wanted: u64,
        room: u64,
    },
    /// The device's module lacks the kernel; `since` says which devices have it.
    NoKernel {
        since: &'static str,
    },
    /// The sums of a pass do not fit into registers.
    Registers {
        k: u32,
        d: u32,
    },
    /// The path supports only the problems that the text names.
    Only(&'static str),
    /// Rows have weights, whose range may exceed that of half precision.
    RowWeights,
    /// The engine is to evaluate all components.
    Dense,
    /// The path is less precise, and the user did not opt in.
    NotAskedFor,
    F64IsSlow {
        times: u32,
    },
    /// It takes more of something to be faster; the text names what.
    TooFew {
        what: &'static str,
        least: u64,
    },
    /// Most of the work would be on padding; the text names what is padded.
    Padding(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostForced => f.write_str("GMM_PLAN sets loop=host"),
            Self::OtherForced => f.write_str("GMM_PLAN names another path"),
            Self::MStep { d, wanted, room } => {
                write!(f, "the M-step of {d} columns needs {wanted} bytes of shared memory, the GPU has {room}")
            }
            Self::SharedMemory { wanted, room } => {
                write!(f, "a block needs {wanted} bytes of shared memory, the GPU has {room}")
            }
            Self::NoKernel { since } => write!(f, "the GPU's module lacks its kernel: {since}"),
            Self::Registers { k, d } => {
                write!(f, "the sums of {k} components of {d} columns do not fit into registers")
            }
            Self::Only(what) => write!(f, "it supports only {what}"),
            Self::RowWeights => f.write_str("rows have weights, which may exceed the range of half precision"),
            Self::Dense => f.write_str("the engine is to evaluate all components"),
            Self::NotAskedFor => f.write_str("it is less precise; --precision fast enables it"),
            Self::F64IsSlow { times } => {
                write!(f, "it computes in f64, and f32 is {times} times as fast on this GPU")
            }
            Self::TooFew { what, least } => write!(f, "it is slower with fewer than {least} {what}"),
            Self::Padding(of) => write!(f, "padding would be most of its {of}"),
        }
    }
}

/// The devices that have tensor cores for f64.
pub(crate) const SINCE_AMPERE: &str = "f64 tensor cores need compute capability 8.0";
pub(crate) const SINCE_HOPPER: &str = "warpgroup instructions (wgmma) need a Hopper GPU";
