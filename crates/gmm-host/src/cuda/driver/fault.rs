//! What a failed driver call means, and what the user can do.

use cust::error::CudaError;

use super::table::{self, Absent, Code, Failure, code};
use crate::Error;

/// Whether a code means that the context is unusable: every later call would return the same code.
pub(crate) const fn is_fatal(code: Code) -> bool {
    matches!(
        code,
        code::ECC_UNCORRECTABLE
            | code::NVLINK_UNCORRECTABLE
            | code::CONTAINED
            | code::ILLEGAL_ADDRESS
            | code::LAUNCH_TIMEOUT
            | code::CONTEXT_IS_DESTROYED
            | code::ASSERT
            | code::HARDWARE_STACK_ERROR..=code::LAUNCH_FAILED
    )
}

/// What to try, by code; empty if the driver's own text says enough.
const fn advice(code: Code) -> &'static str {
    match code {
        code::STUB_LIBRARY => STUB,
        code::NO_DEVICE => "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
        code::INVALID_DEVICE => "no such device: check nvidia-smi -L and CUDA_VISIBLE_DEVICES",
        code::NO_BINARY_FOR_GPU => "no kernel module of this program runs on this device",
        code::INVALID_PTX | code::UNSUPPORTED_PTX_VERSION => {
            "the driver is older than this program's kernels: update the NVIDIA driver"
        }
        code::SYSTEM_DRIVER_MISMATCH => {
            "the driver's library and its kernel module are of different versions: restart the machine after an update"
        }
        code::ECC_UNCORRECTABLE => "the device's memory failed: see nvidia-smi -q -d ECC; reset or replace the device",
        code::NVLINK_UNCORRECTABLE => "a link between devices failed: see nvidia-smi nvlink --errorcounters",
        code::CONTAINED => {
            "the device stopped this process after a hardware fault: see dmesg and the output of nvidia-smi -q"
        }
        code::CONTEXT_IS_DESTROYED => "the device was lost or reset: see dmesg for lines with 'NVRM: Xid'",
        code::UNKNOWN => "the device may have been lost: see dmesg for lines with 'NVRM: Xid', and nvidia-smi",
        code::LAUNCH_OUT_OF_RESOURCES => {
            "this is a bug in this program's launch plan; please report it with the sizes and the device"
        }
        code::LAUNCH_TIMEOUT => {
            "the kernel exceeded the system's time limit for a device with a display: use another device or fewer rows"
        }
        code::ILLEGAL_ADDRESS | code::ASSERT | code::HARDWARE_STACK_ERROR..=code::LAUNCH_FAILED => {
            "this is a bug in a kernel of this program; please report it with the sizes and the device"
        }
        _ => "",
    }
}

const STUB: &str = "the library is the CUDA toolkit's stub, which has no driver behind it: take its directory \
                    (.../stubs) out of LD_LIBRARY_PATH, or install the NVIDIA driver";

/// Converts a driver call that failed while doing `what` into an error that says which call failed, why, and what to
/// try.
pub(crate) fn error(what: &str, error: CudaError) -> Error {
    let Some(Failure { function, code }) = table::take_failure() else {
        // cust itself rejects sizes that overflow, without calling the driver.
        return Error::Device(format!("{what}: {error:?}"));
    };
    Error::Device(text(what, function, code))
}

/// Formats `what: function: NAME: text; advice`.
pub(crate) fn text(what: &str, function: &str, code: Code) -> String {
    let mut text = format!("{what}: {function}: {}", table::describe(code));
    if !advice(code).is_empty() {
        text.push_str("; ");
        text.push_str(advice(code));
    }
    text
}

/// Explains why there is no usable driver.
pub(crate) fn absent(absent: &Absent) -> String {
    match absent {
        Absent::Library(why) => format!(
            "no NVIDIA driver: {} cannot be opened ({why}): install the NVIDIA driver for this machine's GPU, or, in a \
             container, start it with the GPU (--gpus all)",
            table::LIBRARY
        ),
        Absent::Function(name) => {
            format!(
                "the NVIDIA driver is too old: {} has no {name}; at least CUDA {} is needed",
                table::LIBRARY,
                super::ptx::version_text(super::ptx::oldest_driver())
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_illegal_address_is_fatal_and_want_of_memory_is_not() {
        assert!(is_fatal(code::ILLEGAL_ADDRESS) && is_fatal(716) && is_fatal(719) && is_fatal(code::ECC_UNCORRECTABLE));
        assert!(
            !is_fatal(code::OUT_OF_MEMORY) && !is_fatal(code::NO_DEVICE) && !is_fatal(code::LAUNCH_OUT_OF_RESOURCES)
        );
    }

    #[test]
    fn the_stub_is_called_one() {
        assert!(text("start", "cuInit", code::STUB_LIBRARY).contains("stub"));
    }

    #[test]
    fn a_missing_library_says_what_to_install() {
        let text = absent(&Absent::Library("not found".to_owned()));
        assert!(text.contains("install the NVIDIA driver") && text.contains("not found"), "{text}");
    }

    #[test]
    fn a_library_without_a_function_is_too_old() {
        assert!(absent(&Absent::Function("cuX")).contains("too old: libcuda.so.1 has no cuX"));
    }
}
