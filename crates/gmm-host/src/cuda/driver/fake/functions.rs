//! The fake's implementation of each driver function.

use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_uchar, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cust::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute,
    CUjit_option, CUmodule, CUpointer_attribute, CUstream,
};
use gmm_kernels::device::Buffer;

use super::{CURRENT, MOST_SHARED, NEXT, call, give_back, write};
use crate::cuda::driver::table::{Code, Functions, LaunchConfig, code};

extern "C" fn init(_: c_uint) -> Code {
    call("cuInit", false, |s| s.machine.init)
}

extern "C" fn version(out: *mut c_int) -> Code {
    call("cuDriverGetVersion", false, |s| write(out, s.machine.version))
}

extern "C" fn error_name(_: Code, _: *mut *const c_char) -> Code {
    code::NOT_SUPPORTED
}

extern "C" fn device_count(out: *mut c_int) -> Code {
    call("cuDeviceGetCount", false, |s| write(out, s.machine.devices))
}

extern "C" fn device_get(out: *mut CUdevice, ordinal: c_int) -> Code {
    call("cuDeviceGet", false, |s| if ordinal < s.machine.devices { write(out, ordinal) } else { code::INVALID_DEVICE })
}

extern "C" fn device_name(out: *mut c_char, len: c_int, _: CUdevice) -> Code {
    call("cuDeviceGetName", false, |_| {
        let name = b"Made-up GPU\0";
        assert!(name.len() <= len as usize);
        // SAFETY: the caller's buffer has `len` bytes, and the assert checked that the name fits.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len()) };
        0
    })
}

extern "C" fn device_memory(out: *mut usize, _: CUdevice) -> Code {
    call("cuDeviceTotalMem", false, |s| write(out, s.machine.memory))
}

extern "C" fn device_attribute(out: *mut c_int, attribute: CUdevice_attribute, _: CUdevice) -> Code {
    call("cuDeviceGetAttribute", false, |s| {
        let value = match attribute as u32 {
            75 => s.machine.capability.0,
            76 => s.machine.capability.1,
            16 => s.machine.multiprocessors,
            38 => 1 << 20, // L2
            97 => s.machine.shared,
            87 => s.machine.f32_to_f64,
            other => return s.complain(format!("attribute {other} is not made up")),
        };
        write(out, value)
    })
}

extern "C" fn context_retain(out: *mut CUcontext, _: CUdevice) -> Code {
    call("cuDevicePrimaryCtxRetain", false, |s| {
        s.contexts += 1;
        write(out, 8 as CUcontext)
    })
}

extern "C" fn context_release(_: CUdevice) -> Code {
    call("cuDevicePrimaryCtxRelease", false, |s| {
        if s.contexts == 0 {
            return s.complain("a context too many was released".to_owned());
        }
        s.contexts -= 1;
        0
    })
}

extern "C" fn context_set(context: CUcontext) -> Code {
    call("cuCtxSetCurrent", false, |_| {
        CURRENT.set(!context.is_null());
        0
    })
}

extern "C" fn context_wait() -> Code {
    call("cuCtxSynchronize", true, |_| 0)
}

extern "C" fn memory_info(free: *mut usize, total: *mut usize) -> Code {
    call("cuMemGetInfo", true, |s| {
        write(free, s.machine.memory.saturating_sub(s.taken()));
        write(total, s.machine.memory)
    })
}

extern "C" fn module_load(
    out: *mut CUmodule,
    image: *const c_void,
    _: c_uint,
    _: *mut CUjit_option,
    _: *mut *mut c_void,
) -> Code {
    call("cuModuleLoadDataEx", true, |s| {
        assert!(!image.is_null());
        match s.machine.load {
            0 => write(out, s.handle() as CUmodule),
            code => code,
        }
    })
}

extern "C" fn module_unload(module: CUmodule) -> Code {
    give_back("cuModuleUnload", module as usize)
}

extern "C" fn module_function(out: *mut CUfunction, module: CUmodule, name: *const c_char) -> Code {
    call("cuModuleGetFunction", true, |s| {
        assert!(s.handles.contains(&(module as usize)));
        // SAFETY: the caller passes a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        match gmm_kernels::signatures().iter().position(|k| k.name == name) {
            Some(index) => write(out, (index + 1) as CUfunction),
            None => s.complain(format!("no kernel {name}")),
        }
    })
}

extern "C" fn function_set(_: CUfunction, _: CUfunction_attribute, value: c_int) -> Code {
    call("cuFuncSetAttribute", true, |_| if value <= MOST_SHARED { 0 } else { 1 })
}

extern "C" fn occupancy(out: *mut c_int, _: CUfunction, _: c_int, _: usize) -> Code {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", true, |_| write(out, 1))
}

#[allow(clippy::too_many_arguments)]
extern "C" fn launch(
    function: CUfunction,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
    _: *mut *mut c_void,
) -> Code {
    let mut next = None;
    let code = call("cuLaunchKernel", true, |s| {
        let (name, grid, threads, run) = NEXT.take().expect("launches go through the launcher");
        let wanted = &gmm_kernels::signatures()[function as usize - 1];
        assert_eq!((wanted.name, (x, y, z), (block_x, block_y, block_z)), (name, (grid.0, grid.1, 1), (threads, 1, 1)));
        assert!(x > 0 && y > 0 && y < 65_536 && shared <= MOST_SHARED as c_uint && !parameters.is_null());
        assert!(s.handles.contains(&(stream as usize)));
        *s.launches.entry(name).or_default() += 1;
        next = Some((name, run));
        0
    });
    // Outside the lock: a kernel's panic must not cross the driver's boundary or poison the lock.
    if let Some((name, run)) = next
        && catch_unwind(AssertUnwindSafe(run)).is_err()
    {
        return call("complaint", false, |s| s.complain(format!("kernel {name} panicked")));
    }
    code
}

/// A launch with attributes: checks the attributes, then launches.
extern "C" fn launch_ex(
    config: *const LaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    // SAFETY: the caller passes a valid configuration with `attributes_len` attributes.
    let (config, attributes) = unsafe {
        let config = &*config;
        (config, std::slice::from_raw_parts(config.attributes, config.attributes_len as usize))
    };
    assert!(attributes.iter().all(|a| (a.id, a.value.allowed) == (6, 1)));
    super::note_waiting_launch();
    let ([x, y, z], [block_x, block_y, block_z]) = (config.grid, config.block);
    launch(function, x, y, z, block_x, block_y, block_z, config.shared, config.stream, parameters, extra)
}

extern "C" fn stream_new(out: *mut CUstream, _: c_uint, _: c_int) -> Code {
    call("cuStreamCreate", true, |s| write(out, s.handle() as CUstream))
}

extern "C" fn stream_destroy(stream: CUstream) -> Code {
    give_back("cuStreamDestroy", stream as usize)
}

extern "C" fn stream_wait(stream: CUstream) -> Code {
    call("cuStreamSynchronize", true, |s| {
        assert!(s.handles.contains(&(stream as usize)));
        0
    })
}

/// The fake runs everything at once, in the order of the calls.
extern "C" fn stream_wait_event(stream: CUstream, event: CUevent, _: c_uint) -> Code {
    call("cuStreamWaitEvent", true, |s| {
        assert!(s.handles.contains(&(stream as usize)) && s.handles.contains(&(event as usize)));
        0
    })
}

extern "C" fn event_new(out: *mut CUevent, _: c_uint) -> Code {
    call("cuEventCreate", true, |s| write(out, s.handle() as CUevent))
}

extern "C" fn event_record(event: CUevent, stream: CUstream) -> Code {
    call("cuEventRecord", true, |s| {
        assert!(s.handles.contains(&(event as usize)) && s.handles.contains(&(stream as usize)));
        0
    })
}

extern "C" fn event_wait(event: CUevent) -> Code {
    call("cuEventSynchronize", true, |s| {
        assert!(s.handles.contains(&(event as usize)));
        0
    })
}

extern "C" fn event_elapsed(out: *mut f32, _: CUevent, _: CUevent) -> Code {
    call("cuEventElapsedTime", true, |s| {
        let elapsed = s.elapsed();
        write(out, elapsed)
    })
}

extern "C" fn event_destroy(event: CUevent) -> Code {
    give_back("cuEventDestroy", event as usize)
}

extern "C" fn allocate(out: *mut CUdeviceptr, bytes: usize) -> Code {
    call("cuMemAlloc", true, |s| {
        if s.taken() + bytes > s.machine.memory {
            return code::OUT_OF_MEMORY;
        }
        let buffer = Buffer::unwritten(bytes.div_ceil(16));
        let at = buffer.pointer() as u64;
        s.memory.insert(at, (bytes, buffer));
        write(out, at)
    })
}

extern "C" fn free(at: CUdeviceptr) -> Code {
    call("cuMemFree", true, |s| match s.memory.remove(&at) {
        Some(_) => 0,
        None => s.complain("a free of what is not there".to_owned()),
    })
}

extern "C" fn allocate_pinned(out: *mut *mut c_void, bytes: usize) -> Code {
    call("cuMemAllocHost", true, |s| {
        let mut block = Buffer::unwritten(bytes.div_ceil(16));
        let at = block.pointer_mut();
        s.pinned.insert(at as usize, block);
        write(out, at.cast())
    })
}

extern "C" fn free_pinned(at: *mut c_void) -> Code {
    call("cuMemFreeHost", true, |s| match s.pinned.remove(&(at as usize)) {
        Some(_) => 0,
        None => s.complain("a free of pinned memory that is not there".to_owned()),
    })
}

/// Memory of others is as it is.
extern "C" fn pin(_: *mut c_void, _: usize, _: c_uint) -> Code {
    call("cuMemHostRegister", true, |_| 0)
}

extern "C" fn unpin(_: *mut c_void) -> Code {
    call("cuMemHostUnregister", true, |_| 0)
}

extern "C" fn copy_in(to: CUdeviceptr, from: *const c_void, bytes: usize, _: CUstream) -> Code {
    call("cuMemcpyHtoDAsync", true, |s| {
        if !s.holds(to, bytes) {
            return s.complain(format!("a copy of {bytes} bytes to outside of every allocation"));
        }
        // SAFETY: `holds` checked the device range; the caller's memory has `bytes` bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to as *mut u8, bytes) };
        0
    })
}

extern "C" fn copy_within(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, _: CUstream) -> Code {
    call("cuMemcpyDtoDAsync", true, |s| {
        if !s.holds(to, bytes) || !s.holds(from, bytes) {
            return s.complain(format!("a copy of {bytes} bytes to or from outside of every allocation"));
        }
        // SAFETY: both ranges are within allocations of the fake, which are host memory.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        0
    })
}

extern "C" fn copy_out(to: *mut c_void, from: CUdeviceptr, bytes: usize, _: CUstream) -> Code {
    call("cuMemcpyDtoHAsync", true, |s| {
        if !s.holds(from, bytes) {
            return s.complain(format!("a copy of {bytes} bytes from outside of every allocation"));
        }
        // SAFETY: as for `copy_in`.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.cast(), bytes) };
        match s.spoilt.take() {
            Some((1, word)) => {
                assert!(8 * (word + 1) <= bytes, "word {word} is past {bytes} bytes");
                // SAFETY: the word is within the bytes just written; the write does not require alignment.
                unsafe { to.cast::<f64>().add(word).write_unaligned(f64::NAN) };
            }
            Some((copies, word)) => s.spoilt = Some((copies - 1, word)),
            None => {}
        }
        0
    })
}

/// Copies a 2D block from the device to the host, or within the device.
extern "C" fn copy_block(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Code {
    call("cuMemcpy2DAsync", true, |s| {
        assert!(s.handles.contains(&(stream as usize)));
        // SAFETY: the caller passes a valid copy description.
        let copy = unsafe { &*copy };
        let to_host = copy.dstMemoryType as u32 == 1;
        assert!(copy.srcMemoryType as u32 == 2 && (to_host || copy.dstMemoryType as u32 == 2));
        if copy.srcPitch < copy.WidthInBytes || copy.dstPitch < copy.WidthInBytes {
            return 1;
        }
        for row in 0..copy.Height {
            let from = copy.srcDevice + (row * copy.srcPitch) as u64;
            if !s.holds(from, copy.WidthInBytes) {
                return s.complain(format!("row {row} of a copied block is outside of every allocation"));
            }
            let into = copy.dstDevice + (row * copy.dstPitch) as u64;
            if !to_host && !s.holds(into, copy.WidthInBytes) {
                return s.complain(format!("row {row} of a copied block goes outside of every allocation"));
            }
            // SAFETY: `holds` checked the device ranges; the caller's host memory has the size that it states.
            unsafe {
                let to = if to_host { copy.dstHost.cast::<u8>().add(row * copy.dstPitch) } else { into as *mut u8 };
                std::ptr::copy_nonoverlapping(from as *const u8, to, copy.WidthInBytes);
            }
        }
        0
    })
}

extern "C" fn set(to: CUdeviceptr, value: c_uchar, bytes: usize, _: CUstream) -> Code {
    call("cuMemsetD8Async", true, |s| {
        if !s.holds(to, bytes) {
            return s.complain(format!("setting {bytes} bytes outside of every allocation"));
        }
        // SAFETY: `holds` checked the range just above.
        unsafe { std::ptr::write_bytes(to as *mut u8, value, bytes) };
        0
    })
}

/// All memory belongs to device 0.
extern "C" fn pointer_attribute(out: *mut c_void, attribute: CUpointer_attribute, at: CUdeviceptr) -> Code {
    call("cuPointerGetAttribute", true, |s| {
        assert_eq!(attribute as u32, 9, "the device's ordinal");
        // CUDA_ERROR_INVALID_VALUE for any address that the driver did not allocate.
        if s.holds(at, 1) { write(out.cast::<c_int>(), 0) } else { 1 }
    })
}

pub(crate) static FUNCTIONS: Functions = Functions {
    cuInit: init,
    cuDriverGetVersion: version,
    cuGetErrorName: error_name,
    cuGetErrorString: error_name,
    cuDeviceGetCount: device_count,
    cuDeviceGet: device_get,
    cuDeviceGetName: device_name,
    cuDeviceTotalMem_v2: device_memory,
    cuDeviceGetAttribute: device_attribute,
    cuDevicePrimaryCtxRetain: context_retain,
    cuDevicePrimaryCtxRelease_v2: context_release,
    cuCtxSetCurrent: context_set,
    cuCtxSynchronize: context_wait,
    cuMemGetInfo_v2: memory_info,
    cuModuleLoadDataEx: module_load,
    cuModuleUnload: module_unload,
    cuModuleGetFunction: module_function,
    cuFuncSetAttribute: function_set,
    cuOccupancyMaxActiveBlocksPerMultiprocessor: occupancy,
    cuLaunchKernel: launch,
    cuStreamCreateWithPriority: stream_new,
    cuStreamDestroy_v2: stream_destroy,
    cuStreamSynchronize: stream_wait,
    cuStreamWaitEvent: stream_wait_event,
    cuEventCreate: event_new,
    cuEventRecord: event_record,
    cuEventSynchronize: event_wait,
    cuEventElapsedTime: event_elapsed,
    cuEventDestroy_v2: event_destroy,
    cuMemAlloc_v2: allocate,
    cuMemFree_v2: free,
    cuMemAllocHost_v2: allocate_pinned,
    cuMemFreeHost: free_pinned,
    cuMemHostRegister_v2: pin,
    cuMemHostUnregister: unpin,
    cuMemcpyHtoDAsync_v2: copy_in,
    cuMemcpyDtoHAsync_v2: copy_out,
    cuMemcpyDtoDAsync_v2: copy_within,
    cuMemsetD8Async: set,
    cuMemcpy2DAsync_v2: copy_block,
    cuPointerGetAttribute: pointer_attribute,
    cuLaunchKernelEx: Some(launch_ex),
};
