//! Kernels on a device: each is loaded on first use, as machine code or else as PTX, and its occupancy is cached.

use std::collections::hash_map::Entry;
use std::sync::{Arc, MutexGuard, PoisonError};

use cust::module::Module;
use cust::sys::{CUfunction, CUfunction_attribute, cuFuncSetAttribute, cuOccupancyMaxActiveBlocksPerMultiprocessor};
use gmm_kernels::ptx;

use super::device::Gpu;
use super::device_state::{Functions, Images, KernelHandle, LoadedKernel};
use super::fault;
use super::ptx::Choice;
use super::table::{self, code};
use crate::Error;

/// Shared memory per block that needs no opt-in.
const SHARED_WITHOUT_ASKING: u64 = 48 << 10;

impl Gpu {
    fn functions(&self) -> MutexGuard<'_, Functions> {
        self.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the device's module has the kernel.
    pub(crate) fn has(&self, kernel: &'static str) -> bool {
        self.choice.module.has(kernel)
    }

    /// Returns a kernel for launches with `shared` bytes of shared memory; loads it on first use.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn function(&self, kernel: &'static str, shared: u64) -> Result<KernelHandle, Error> {
        let mut functions = self.functions();
        let Functions { loaded, images } = &mut *functions;
        let loaded = match loaded.entry(kernel) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(self.load(images, kernel)?),
        };
        if shared > loaded.shared {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: a function of a loaded module; the driver checks the value.
            let code = unsafe { cuFuncSetAttribute(loaded.entry.function, attribute, shared as i32) };
            self.check_code(|| format!("shared memory of kernel {kernel}"), code)?;
            loaded.shared = shared;
        }
        Ok(loaded.entry)
    }

    /// Number of blocks of a kernel that run concurrently on a multiprocessor.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn occupancy(&self, kernel: &'static str, threads: u32, shared: u64) -> Result<u32, Error> {
        let function = self.function(kernel, shared)?.function;
        let known = |(t, s, _): &&(u32, u64, u32)| (*t, *s) == (threads, shared);
        if let Some(&(.., blocks)) = self.functions().loaded.get(kernel).and_then(|l| l.together.iter().find(known)) {
            return Ok(blocks);
        }
        let mut blocks = 0;
        // SAFETY: the call writes one integer to `blocks`.
        let code = unsafe {
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, threads as i32, shared as usize)
        };
        self.check_code(|| format!("blocks of kernel {kernel}"), code)?;
        let blocks = blocks.max(1) as u32;
        if let Some(loaded) = self.functions().loaded.get_mut(kernel) {
            loaded.together.push((threads, shared, blocks));
        }
        Ok(blocks)
    }
}

impl Gpu {
    fn load(&self, images: &mut Images, kernel: &'static str) -> Result<LoadedKernel, Error> {
        let what = format!("loading kernel {kernel} of module {}", self.choice.module.target);
        let Some(waits) = self.choice.module.waits(kernel) else {
            return Err(Error::Device(format!("{what}: the module has no kernel of that name")));
        };
        let (module, function) = match self.machine_code(images, kernel) {
            Some(found) => found,
            None => compile(&self.choice, kernel, &what)?,
        };
        let entry = KernelHandle { function, waits };
        Ok(LoadedKernel { entry, shared: SHARED_WITHOUT_ASKING, together: Vec::new(), _module: module })
    }

    /// Loads the machine code of a kernel's family, unless it is loaded. `None` if there is no code for this device, or
    /// the driver does not accept it (`CUDA_FORCE_PTX_JIT=1` forbids it): the kernel's PTX is compiled then.
    fn machine_code(&self, images: &mut Images, kernel: &'static str) -> Option<(Arc<Module>, CUfunction)> {
        if self.driver < ptx::MACHINE_CODE_DRIVER {
            return None;
        }
        let (major, minor) = self.capability;
        let image = self.choice.module.machine_code(kernel, 10 * major + minor)?;
        let load = || {
            let module = Module::from_cubin(image.code(), &[]);
            if module.is_err() {
                let code = table::take_failure().map(|failure| failure.code);
                tracing::debug!(kernel, ?code, "the driver does not accept the machine code");
            }
            module.ok().map(Arc::new)
        };
        let module = images.entry(std::ptr::from_ref(image).addr()).or_insert_with(load).clone()?;
        let function = module.get_function(kernel).map(|function| function.to_raw());
        if function.is_err() {
            table::take_failure();
            tracing::debug!(kernel, "the machine code has no such kernel");
        }
        function.ok().map(|function| (module, function))
    }
}

/// Passes a kernel's PTX to the driver, which compiles it for the device and stores the result in the driver's own
/// cache.
fn compile(choice: &Choice, kernel: &'static str, what: &str) -> Result<(Arc<Module>, CUfunction), Error> {
    let text = choice.module.alone(kernel).expect("a kernel of the module");
    let module = Module::from_ptx(&text, &[]).map_err(|error| {
        let failure = table::take_failure();
        match failure {
            Some(f) if f.code == code::INVALID_PTX => {
                let log = compiler_log(&text).unwrap_or_default();
                Error::Device(format!("{}{log}", fault::text(what, f.function, f.code)))
            }
            Some(f) => Error::Device(fault::text(what, f.function, f.code)),
            None => Error::Device(format!("{what}: {error:?}")),
        }
    })?;
    let function = module.get_function(kernel).map(|f| f.to_raw()).map_err(|e| fault::error(what, e))?;
    Ok((Arc::new(module), function))
}

/// The driver's compiler log for a kernel that it rejected.
fn compiler_log(text: &str) -> Option<String> {
    use cust::sys::CUjit_option::{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    let driver = table::open().ok()?;
    let source = std::ffi::CString::new(text).ok()?;
    let mut log = vec![0_u8; 4096];
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), log.len() as *mut std::ffi::c_void];
    let mut module = std::ptr::null_mut();
    // SAFETY: `options` and `values` have two entries each, and the log has the stated length. The driver takes this
    // size by value, cast to a pointer.
    let code = unsafe {
        (driver.cuModuleLoadDataEx)(
            &raw mut module,
            source.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if code == 0 {
        // SAFETY: the module was just loaded, and nothing refers to it.
        unsafe { (driver.cuModuleUnload)(module) };
        return None;
    }
    let text = String::from_utf8_lossy(&log);
    let text = text.trim_end_matches('\0').trim();
    (!text.is_empty()).then(|| format!("\n{text}"))
}

#[cfg(test)]
mod tests {
    use gmm_kernels::ptx::MODULES;

    use super::*;

    /// The instruction with which a kernel waits for the preceding grids. Modules for devices that lack it do not
    /// contain it.
    const WAITS: &str = "griddepcontrol.wait;";

    /// Names and PTX texts of a module's kernels.
    fn kernels(module: &'static ptx::Module) -> impl Iterator<Item = (&'static str, String)> {
        module.kernels().map(|name| {
            let text = module.alone(name).unwrap();
            (name, text[text.find(".visible .entry").unwrap()..].to_owned())
        })
    }

    /// Whether the load at `at` reads the module's constant table `POWERS`: its address is a sum of the table's address
    /// and an offset.
    fn reads_a_table(text: &str, at: usize) -> bool {
        let address = text[at..].split(['[', ']', '+']).nth(1).unwrap_or_default();
        let sum = text[..at].lines().rev().find_map(|line| line.trim().strip_prefix(&format!("add.s64 \t{address}, ")));
        sum.is_some_and(|sum| {
            sum.trim_end_matches(';').split(", ").any(|term| {
                let mut sources =
                    text.lines().filter_map(|line| line.trim().strip_prefix(&format!("mov.b64 \t{term}, ")));
                sources.any(|source| source.contains("POWERS"))
            })
        })
    }

    #[test]
    fn a_kernel_that_waits_by_itself_does_so_before_it_touches_memory_that_others_write() {
        let reads_or_writes =
            ["bar.", "ld.global", "st.global", "ld.shared", "atom", "\tred.", "mma", "ld.local", "st.local"];
        let before_all = ["bra", "st.shared", "cp.async"];
        for module in &MODULES {
            let mut waiting = 0;
            for (name, text) in kernels(module) {
                assert_eq!(module.waits(name), Some(text.contains(WAITS)), "{name}");
                let Some(wait) = text.find(WAITS) else { continue };
                waiting += 1;
                // Without its own name, which parameters begin with.
                let before = text[text.find('{').unwrap()..wait].replace(name, "");
                let word = |words: &[&'static str]| words.iter().find(|word| before.contains(**word)).copied();
                assert_eq!(word(&reads_or_writes), None, "{}: {name}", module.target);
                // A fused pass prefetches its first rows, which no kernel of a loop writes. It uses `cp.async.cg` for
                // them, unlike for coefficients.
                if name.starts_with("fused_") {
                    let copies = |what: &str| before.matches(what).count();
                    assert!(copies("cp.async") > 0, "{}: {name}", module.target);
                    assert_eq!(copies("cp.async"), copies("cp.async.cg.shared.global"), "{name}");
                } else {
                    assert_eq!(word(&before_all), None, "{}: {name}", module.target);
                }
                // `ld.global.nc` requires data that does not change while the kernel runs, but the preceding grids may
                // still write.
                let changes = text.match_indices("ld.global.nc").find(|(at, _)| !reads_a_table(&text, *at));
                assert_eq!(changes, None, "{}: {name}", module.target);
            }
            assert_eq!(waiting > 0, module.target == "sm_90a", "{}", module.target);
        }
    }

    #[test]
    fn the_kernels_between_which_the_loop_does_not_pause_wait_by_themselves() {
        let module = MODULES.iter().find(|m| m.target == "sm_90a").unwrap();
        let fused = |name: &str| {
            name.starts_with("fused_full") || matches!(name, "reduce_blocks" | "reduce_many_blocks" | "update")
        };
        let all: Vec<_> = kernels(module).filter(|(name, _)| fused(name)).collect();
        assert!(all.len() > 10 && all.iter().all(|(_, text)| text.contains(WAITS)));
    }
}
