//! A fake driver for tests: host memory stands in for device memory, `gmm-kernels`' emulator runs the kernels, and
//! faults can be injected.
//!
//! It tracks everything that is allocated, and records errors that a real driver might not report: calls without a
//! current context, copies out of bounds, frees of unknown addresses.

mod functions;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::raw::c_int;
use std::sync::{Arc, Mutex, MutexGuard};

use gmm_kernels::device::Buffer;
use gmm_kernels::{Arguments, Kernel};

use super::fault;
use crate::cuda::driver::table::{Code, INSTEAD, code};
use functions::FUNCTIONS;

/// The upper limit of shared memory per block on any fake machine: Hopper's.
pub(crate) const MOST_SHARED: c_int = 227 << 10;

/// The properties of the fake machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The result of `cuInit`.
    pub(crate) init: Code,
    /// The result of `cuModuleLoadDataEx`.
    pub(crate) load: Code,
    pub(crate) version: c_int,
    pub(crate) devices: c_int,
    pub(crate) capability: (c_int, c_int),
    pub(crate) memory: usize,
    /// Shared memory per block in bytes; at most [`MOST_SHARED`].
    pub(crate) shared: c_int,
    pub(crate) multiprocessors: c_int,
    /// How many times faster it is in f32 than in f64.
    pub(crate) f32_to_f64: c_int,
}

impl Machine {
    /// The default machine of the tests.
    pub(crate) const ONE: Self = Self {
        init: 0,
        load: 0,
        version: 13_000,
        devices: 1,
        capability: (9, 0),
        memory: 1 << 30,
        shared: 99 << 10,
        multiprocessors: 2,
        f32_to_f64: 2,
    };
}

impl Default for Machine {
    fn default() -> Self {
        Self::ONE
    }
}

/// A fault to inject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The index, from 1, of the call to fail, among those that [`Fault::of`] counts.
    pub(crate) at: usize,
    pub(crate) of: Class,
    pub(crate) code: Code,
    /// Whether all later calls of the class fail as well.
    pub(crate) lasting: bool,
}

impl Fault {
    /// Fails one call.
    pub(crate) const fn once(of: Class, at: usize, code: Code) -> Self {
        Self { at, of, code, lasting: false }
    }

    /// Fails every call of the class.
    pub(crate) const fn always(of: Class, code: Code) -> Self {
        Self { at: 1, of, code, lasting: true }
    }
}

/// A class of calls that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Every call except those that release something.
    Any,
    /// Allocations of device memory and of pinned memory.
    Allocation,
    /// Copies between host and device, and memsets.
    Copy,
    Launch,
    /// Waits for streams and events.
    Wait,
}

impl Class {
    fn counts(self, name: &str) -> bool {
        match self {
            Self::Any => {
                !name.contains("Free") && !["Destroy", "Unload", "Release", "GetError"].iter().any(|w| name.contains(w))
            }
            Self::Allocation => matches!(name, "cuMemAlloc" | "cuMemAllocHost"),
            Self::Copy => {
                matches!(
                    name,
                    "cuMemcpyHtoDAsync"
                        | "cuMemcpyDtoHAsync"
                        | "cuMemcpyDtoDAsync"
                        | "cuMemcpy2DAsync"
                        | "cuMemsetD8Async"
                )
            }
            Self::Launch => name == "cuLaunchKernel",
            Self::Wait => name.contains("Synchronize"),
        }
    }
}

#[derive(Default)]
struct State {
    machine: Machine,
    fault: Option<Fault>,
    counted: usize,
    /// The name of the call that was failed.
    failed: Option<&'static str>,
    /// After a fatal fault: the code that every later call returns.
    dead: Option<Code>,
    calls: BTreeMap<&'static str, usize>,
    memory: BTreeMap<u64, (usize, Buffer<u128>)>,
    /// Kernels may write to pinned memory too.
    pinned: BTreeMap<usize, Buffer<u128>>,
    contexts: usize,
    handles: BTreeSet<usize>,
    last_handle: usize,
    complaints: Vec<String>,
    /// Number of launches of each kernel.
    launches: BTreeMap<&'static str, usize>,
    /// Number of launches of kernels that wait for the preceding grids themselves.
    waiting: usize,
    /// Kernels that make a batch slow: prefix of their names, milliseconds, and the number of their launches at the
    /// last query.
    slow: Option<(&'static str, f32, usize)>,
    /// A NaN to inject: the copy to the host, counted from 1 for the next one, and the index of the `f64` in it.
    spoilt: Option<(usize, usize)>,
}

pub(crate) struct Fake {
    state: Mutex<State>,
}

/// A pending launch: kernel, grid, threads per block, and the closure that runs it.
type Next = (&'static str, (u32, u32), u32, Box<dyn FnOnce()>);

thread_local! {
    static HERE: RefCell<Option<Arc<Fake>>> = const { RefCell::new(None) };
    static CURRENT: Cell<bool> = const { Cell::new(false) };
    static NEXT: RefCell<Option<Next>> = const { RefCell::new(None) };
}

/// Replaces the driver by the fake on this thread until dropped.
pub(crate) struct Installed(pub(crate) Arc<Fake>);

impl Drop for Installed {
    fn drop(&mut self) {
        INSTEAD.set(None);
        HERE.set(None);
        CURRENT.set(false);
    }
}

/// The fake of this thread.
pub(crate) fn here() -> Option<Arc<Fake>> {
    HERE.with_borrow(Clone::clone)
}

impl Fake {
    pub(crate) fn install(machine: Machine) -> Installed {
        Self::with(machine, None)
    }

    pub(crate) fn with(machine: Machine, fault: Option<Fault>) -> Installed {
        Arc::new(Self { state: Mutex::new(State { machine, fault, ..State::default() }) }).enter()
    }

    /// Installs it on this thread too.
    pub(crate) fn enter(self: &Arc<Self>) -> Installed {
        INSTEAD.set(Some(Some(&FUNCTIONS)));
        HERE.set(Some(self.clone()));
        CURRENT.set(false);
        Installed(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Injects a fault from now on.
    pub(crate) fn fail(&self, fault: Fault) {
        let mut state = self.state();
        (state.fault, state.counted) = (Some(fault), 0);
    }

    /// Stops injecting faults; a lost device stays lost.
    pub(crate) fn recover(&self) {
        self.state().fault = None;
    }

    /// Sets the device's memory size from now on.
    pub(crate) fn set_memory(&self, bytes: usize) {
        self.state().machine.memory = bytes;
    }

    /// From now on, the time between two events is `milliseconds` if a kernel whose name starts with `prefix` was
    /// launched in between, and 1 ms otherwise.
    pub(crate) fn slow(&self, prefix: &'static str, milliseconds: f32) {
        let before = self.launches(prefix);
        self.state().slow = Some((prefix, milliseconds, before));
    }

    /// Replaces the `f64` at index `word` of the `copy`-th copy to the host from now on by NaN, like a bit error in
    /// memory.
    pub(crate) fn spoil(&self, copy: usize, word: usize) {
        self.state().spoilt = Some((copy, word));
    }

    /// The call that was failed; `None` if none was yet.
    pub(crate) fn failed(&self) -> Option<&'static str> {
        self.state().failed
    }

    /// Calls of one function so far.
    pub(crate) fn calls(&self, name: &str) -> usize {
        self.state().calls.get(name).copied().unwrap_or(0)
    }

    /// Calls of every function so far.
    pub(crate) fn tally(&self) -> BTreeMap<&'static str, usize> {
        self.state().calls.clone()
    }

    /// Launches so far of kernels whose names start with `prefix`.
    pub(crate) fn launches(&self, prefix: &str) -> usize {
        self.state().launches(prefix)
    }

    /// Launches so far of kernels that wait for the preceding grids themselves.
    pub(crate) fn waiting_launches(&self) -> usize {
        self.state().waiting
    }

    /// Calls of a class so far.
    pub(crate) fn calls_of(&self, class: Class) -> usize {
        self.state().calls.iter().filter(|(name, _)| class.counts(name)).map(|(_, n)| n).sum()
    }

    /// Allocated bytes of device memory.
    pub(crate) fn taken(&self) -> usize {
        self.state().taken()
    }

    /// Panics unless everything was released and no error was recorded.
    pub(crate) fn assert_clean(&self, what: &str) {
        let s = self.state();
        assert_eq!(s.complaints, Vec::<String>::new(), "{what}");
        let left = (s.memory.len(), s.pinned.len(), s.contexts, s.handles.len());
        assert_eq!(left, (0, 0, 0, 0), "{what}: buffers, pinned buffers, contexts, other handles left");
    }
}

impl State {
    fn taken(&self) -> usize {
        self.memory.values().map(|(bytes, _)| bytes).sum()
    }

    fn launches(&self, prefix: &str) -> usize {
        self.launches.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, n)| n).sum()
    }

    /// Milliseconds between the last two events; the second one is that of the last call.
    fn elapsed(&mut self) -> f32 {
        let Some((prefix, milliseconds, before)) = self.slow else { return 1.0 };
        let now = self.launches(prefix);
        self.slow = Some((prefix, milliseconds, now));
        if now > before { milliseconds } else { 1.0 }
    }

    fn handle(&mut self) -> usize {
        self.last_handle += 1;
        self.handles.insert(self.last_handle);
        self.last_handle
    }

    /// Whether the bytes are within one live allocation.
    fn holds(&self, at: u64, bytes: usize) -> bool {
        let before = self.memory.range(..=at).next_back();
        before.is_some_and(|(start, (len, _))| at + bytes as u64 <= start + *len as u64)
    }

    fn complain(&mut self, text: String) -> Code {
        self.complaints.push(text);
        code::UNKNOWN
    }
}

/// Counts a call, fails it if a fault is due, and otherwise runs it.
fn call(name: &'static str, needs_context: bool, body: impl FnOnce(&mut State) -> Code) -> Code {
    let Some(fake) = HERE.with_borrow(Clone::clone) else { return code::NO_DEVICE };
    let mut state = fake.state();
    *state.calls.entry(name).or_default() += 1;
    if let Some(fault) = state.fault
        && fault.of.counts(name)
    {
        state.counted += 1;
        if state.counted == fault.at || (fault.lasting && state.counted > fault.at) {
            state.failed = Some(name);
            state.dead = fault::is_fatal(fault.code).then_some(fault.code);
            NEXT.set(None);
            return fault.code;
        }
    }
    let gives_back = !Class::Any.counts(name);
    if let Some(dead) = state.dead
        && !gives_back
    {
        return dead;
    }
    if needs_context && (!CURRENT.get() || state.contexts == 0) {
        return state.complain(format!("{name} with no live context current"));
    }
    body(&mut state)
}

fn note_waiting_launch() {
    HERE.with_borrow(|fake| fake.iter().for_each(|fake| fake.state().waiting += 1));
}

/// Registers what the next launch runs: the driver only receives pointers to the arguments, without their types.
pub(crate) fn launching<A: Arguments + 'static>(kernel: Kernel<A>, grid: (u32, u32), a: A) {
    // SAFETY: `Launcher::launch` requires that pointers and lengths match the arguments' documentation.
    let run = move || unsafe { kernel.emulate(grid, a) };
    NEXT.set(Some((kernel.name, grid, (kernel.threads)(&a), Box::new(run))));
}

/// Writes a function's result to the caller's pointer.
fn write<A>(to: *mut A, value: A) -> Code {
    // SAFETY: callers of the driver pass a valid pointer for each result.
    unsafe { to.write(value) };
    0
}

/// Releases a handle.
fn give_back(name: &'static str, handle: usize) -> Code {
    call(name, true, |s| match s.handles.remove(&handle) {
        true => 0,
        false => s.complain(format!("{name} of what is not there")),
    })
}
