//! The driver's functions, loaded at run time. cust is built on them.
//!
//! cust declares the `cu*` functions and expects the linker to find them in `libcuda`. Here they are defined instead,
//! each forwarding to a [`Functions`] table that is filled from `libcuda.so.1` on first use. So the program links and
//! starts on a machine without a driver. Tests replace the table by a driver of their own.
//!
//! Each function records the last failure with its code, because cust maps codes that it does not know to a single one.

use std::cell::Cell;
use std::os::raw::{c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::OnceLock;

use cust::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute,
    CUjit_option, CUmodule, CUpointer_attribute, CUresult, CUstream, cudaError_enum,
};

/// What a driver function returns: 0, or an error code of `cuda.h`.
pub(crate) type Code = c_uint;

/// Error codes of `cuda.h` that are distinguished here.
pub(crate) mod code {
    use super::Code;
    pub(crate) const OUT_OF_MEMORY: Code = 2;
    pub(crate) const STUB_LIBRARY: Code = 34;
    pub(crate) const NO_DEVICE: Code = 100;
    pub(crate) const INVALID_DEVICE: Code = 101;
    pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
    pub(crate) const ECC_UNCORRECTABLE: Code = 214;
    pub(crate) const INVALID_PTX: Code = 218;
    pub(crate) const NVLINK_UNCORRECTABLE: Code = 220;
    pub(crate) const UNSUPPORTED_PTX_VERSION: Code = 222;
    pub(crate) const CONTAINED: Code = 226;
    pub(crate) const ILLEGAL_ADDRESS: Code = 700;
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: Code = 701;
    pub(crate) const LAUNCH_TIMEOUT: Code = 702;
    pub(crate) const CONTEXT_IS_DESTROYED: Code = 709;
    pub(crate) const ASSERT: Code = 710;
    pub(crate) const HARDWARE_STACK_ERROR: Code = 714;
    pub(crate) const LAUNCH_FAILED: Code = 719;
    pub(crate) const NOT_SUPPORTED: Code = 801;
    pub(crate) const SYSTEM_DRIVER_MISMATCH: Code = 803;
    pub(crate) const UNKNOWN: Code = 999;
}

/// Hides a function from other libraries. An extension module that exported these would replace the driver for
/// everything else that the process has loaded.
macro_rules! hidden {
    ($name:ident) => {
        #[cfg(target_os = "linux")]
        std::arch::global_asm!(concat!(".hidden ", stringify!($name)));
    };
}

macro_rules! forwarded {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// The driver functions that this program calls.
        #[derive(Clone, Copy)]
        #[allow(non_snake_case)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> Code,)*
            /// Since CUDA 11.8.
            pub(crate) cuLaunchKernelEx: Option<LaunchKernelEx>,
        }

        impl Functions {
            /// Looks up all functions.
            ///
            /// # Errors
            /// The name of the first function that the library lacks.
            fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the driver's function of this name has this signature; `cuda.h` has not changed them
                        // since CUDA 11. The library stays open as long as the process lives.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($type),*) -> Code>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        };
                        *symbol.map_err(|_| stringify!($name))?
                    },)*
                    // SAFETY: as above, if the library has it.
                    cuLaunchKernelEx: unsafe { library.get::<LaunchKernelEx>(b"cuLaunchKernelEx\0") }.ok().map(|f| *f),
                })
            }
        }

        $(
            hidden!($name);
            // SAFETY: cust_raw declares this name and signature, and nothing else defines it, since the program does
            // not link libcuda.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
                match functions() {
                    // SAFETY: the arguments are passed on unchanged to the driver's function of the same name.
                    Some(driver) => noted(stringify!($name), unsafe { (driver.$name)($($argument),*) }),
                    None => noted(stringify!($name), code::NO_DEVICE),
                }
            }
        )*
    };
}

forwarded! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuGetErrorName(error: Code, name: *mut *const c_char);
    fn cuGetErrorString(error: Code, text: *mut *const c_char);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxSynchronize();
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        n: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    fn cuModuleUnload(module: CUmodule);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: CUfunction, threads: c_int, shared: usize);
    fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(pointer: CUdeviceptr);
    fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize);
    fn cuMemFreeHost(pointer: *mut c_void);
    fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemHostUnregister(pointer: *mut c_void);
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    fn cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr);
    fn cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, bytes: usize, stream: CUstream);
}

/// `cuLaunchKernelEx`, which cust does not declare.
pub(crate) type LaunchKernelEx =
    unsafe extern "C" fn(*const LaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void) -> Code;

/// `CUlaunchConfig` of `cuda.h`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attributes_len: c_uint,
}

/// `CUlaunchAttribute` of `cuda.h`: an id, and a union of 64 bytes that is 8-byte aligned.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_uint,
    pub(crate) value: LaunchValue,
}

/// The union, with the only member that is used here.
#[repr(C, align(8))]
pub(crate) struct LaunchValue {
    pub(crate) allowed: c_int,
    rest: [c_int; 15],
}

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the kernel may start early and waits for the preceding
    /// grids itself.
    pub(crate) const WAITS_BY_ITSELF: Self = Self { id: 6, value: LaunchValue { allowed: 1, rest: [0; 15] } };
}

const _: () = assert!(size_of::<LaunchConfig>() == 56 && size_of::<LaunchAttribute>() == 72);

/// Launches a kernel with attributes; `None` if the driver does not support them.
///
/// # Safety
/// As for `cuLaunchKernel`. A kernel with [`LaunchAttribute::WAITS_BY_ITSELF`] must wait before it accesses memory that
/// the preceding grid may write.
pub(crate) unsafe fn launch_with_attributes(
    config: &LaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
) -> Option<CUresult> {
    let launch = functions()?.cuLaunchKernelEx?;
    // SAFETY: the caller upholds `# Safety`: valid handles and parameters, and a kernel that waits before it accesses
    // shared data.
    let code = unsafe { launch(config, function, parameters, std::ptr::null_mut()) };
    Some(noted("cuLaunchKernelEx", code))
}

macro_rules! refused {
    ($($name:ident)*) => {$(
        hidden!($name);
        // SAFETY: cust_raw declares this name, and nothing else defines it. The arguments are not read.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $name() -> CUresult {
            noted(stringify!($name), code::NOT_SUPPORTED)
        }
    )*};
}

// The remaining functions that cust references, so that it links however its code is split. Nothing here calls them.
refused! {
    cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayDestroy cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxGetApiVersion
    cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice cuCtxGetFlags cuCtxGetLimit cuCtxGetSharedMemConfig
    cuCtxGetStreamPriorityRange cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSetCacheConfig cuCtxSetLimit
    cuCtxSetSharedMemConfig cuDestroyExternalMemory cuDevicePrimaryCtxReset_v2
    cuDevicePrimaryCtxSetFlags_v2 cuEventQuery cuExternalMemoryGetMappedBuffer cuFuncGetAttribute
    cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuGraphAddKernelNode cuGraphCreate cuGraphDebugDotPrint
    cuGraphDestroy cuGraphGetEdges cuGraphGetNodes cuGraphKernelNodeGetParams cuGraphNodeGetType
    cuImportExternalMemory cuLaunchHostFunc cuLinkAddData_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy
    cuMemAdvise cuMemAllocAsync cuMemAllocManaged cuMemFreeAsync cuMemPrefetchAsync cuMemcpy2D_v2
    cuMemcpyAtoH_v2 cuMemcpyDtoD_v2 cuMemcpyDtoH_v2 cuMemcpyHtoA_v2 cuMemcpyHtoD_v2
    cuMemsetD16Async cuMemsetD16_v2 cuMemsetD32Async cuMemsetD32_v2 cuMemsetD8_v2 cuModuleGetGlobal_v2
    cuModuleLoad cuModuleLoadData cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxPotentialBlockSize
    cuStreamGetFlags cuStreamGetPriority cuSurfObjectCreate cuSurfObjectDestroy
    cuSurfObjectGetResourceDesc cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc
    cuTexObjectGetResourceViewDesc
}

/// Why there are no driver functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// The library cannot be opened; the loader's error text.
    Library(String),
    /// The library lacks this function.
    Function(&'static str),
}

static OPENED: OnceLock<Result<Functions, Absent>> = OnceLock::new();

#[cfg(test)]
thread_local! {
    /// A test's replacement for the driver, on its own thread; `Some(None)` is a machine without a driver.
    pub(crate) static INSTEAD: Cell<Option<Option<&'static Functions>>> = const { Cell::new(None) };
}

/// Returns the driver's functions; loads them on first use.
///
/// # Errors
/// [`Absent`], if there is no driver or it lacks a function.
pub(crate) fn open() -> Result<&'static Functions, Absent> {
    #[cfg(test)]
    if let Some(instead) = INSTEAD.get() {
        return instead.ok_or_else(|| Absent::Library("no such file".to_owned()));
    }
    let opened = OPENED.get_or_init(|| {
        // SAFETY: the library's initialisers are those that every CUDA program runs.
        let library = unsafe { libloading::Library::new(LIBRARY) }.map_err(|e| Absent::Library(e.to_string()))?;
        let functions = Functions::find(&library).map_err(Absent::Function);
        // The table keeps pointers into the library, so it is never closed.
        std::mem::forget(library);
        functions
    });
    opened.as_ref().map_err(Clone::clone)
}

/// File name of the driver's library, as the system's loader looks for it.
pub(crate) const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

fn functions() -> Option<&'static Functions> {
    open().ok()
}

/// A driver function that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) function: &'static str,
    pub(crate) code: Code,
}

thread_local! {
    static LAST: Cell<Option<Failure>> = const { Cell::new(None) };
}

/// Takes the last failure on this thread.
pub(crate) fn take_failure() -> Option<Failure> {
    LAST.take()
}

/// Records a failure, and converts its code to a value of cust's enum.
fn noted(function: &'static str, code: Code) -> CUresult {
    if code == 0 {
        return cudaError_enum::CUDA_SUCCESS;
    }
    // Looking up an error's name is part of reporting it, and must not replace the recorded failure.
    if !function.starts_with("cuGetError") {
        LAST.set(Some(Failure { function, code }));
    }
    // A code outside the enum would be undefined behaviour. cust distinguishes those below.
    match code {
        1 => cudaError_enum::CUDA_ERROR_INVALID_VALUE,
        code::OUT_OF_MEMORY => cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY,
        code::NO_DEVICE => cudaError_enum::CUDA_ERROR_NO_DEVICE,
        code::INVALID_DEVICE => cudaError_enum::CUDA_ERROR_INVALID_DEVICE,
        600 => cudaError_enum::CUDA_ERROR_NOT_READY,
        _ => cudaError_enum::CUDA_ERROR_UNKNOWN,
    }
}

/// Formats a code like `CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered`, with the driver's texts.
pub(crate) fn describe(code: Code) -> String {
    let Some(driver) = functions() else { return format!("error {code}") };
    let ask = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a static string, or leaves it null.
        unsafe {
            (function(code, &raw mut text) == 0 && !text.is_null())
                .then(|| std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    match (ask(driver.cuGetErrorName), ask(driver.cuGetErrorString)) {
        (Some(name), Some(text)) => format!("{name}: {text}"),
        (Some(name), None) => name,
        _ => format!("error {code}"),
    }
}

/// The path from which the loader loaded the driver's library (Linux).
pub(crate) fn library_path() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = |line: &str| line.find('/').map(|at| line[at..].to_owned());
    maps.lines().filter_map(path).find(|p| p.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.so")))
}
