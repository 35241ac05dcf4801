//! Threads, blocks, and the scheduler that runs threads between barriers.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use corosensei::stack::{self, DefaultStack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::shadow::SharedMemory;
use crate::device::WARP;

/// Ample for a kernel, whose state fits into registers; a panic message needs some of it.
const STACK_BYTES: usize = 256 * 1024;

/// Bytes between the first frames of neighbouring threads, of the order of what a kernel's frames take; an odd number of cache
/// lines.
const FRAMES_APART: usize = 17 * 64;

/// The remainder of [`STACK_BYTES`] is still ample.
const MOST_UNUSED: usize = 64 * 1024;

/// Grid and block size of one launch.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) grid: (u32, u32),
    pub(super) threads: u32,
}

/// The reason why a thread has stopped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Stop {
    Barrier,
    /// A warp-wide primitive, by name: all lanes must call the same one.
    Warp(&'static str),
}

pub(super) struct Block {
    pub(super) shape: Shape,
    pub(super) at: (u32, u32),
    pub(super) shared: SharedMemory,
    /// Barriers passed so far.
    pub(super) epoch: Cell<u32>,
    /// Number of `sync_warp`s passed, per warp.
    pub(super) warp_epochs: Vec<Cell<u32>>,
    /// Each thread's operands of a warp-wide primitive, twice: a fast lane may already be at the next one.
    pub(super) slots: Vec<[[Cell<u64>; 12]; 2]>,
    /// As `slots`, for operands of any number.
    pub(super) wide: Vec<[RefCell<Vec<f64>>; 2]>,
}

pub(super) struct Thread<'a> {
    pub(super) index: u32,
    pub(super) block: &'a Block,
    /// Number of warp-wide primitives called so far, modulo 2.
    pub(super) turn: Cell<usize>,
    /// Copies that this thread started and has not waited for.
    coming: RefCell<Vec<Copy>>,
    /// Number of copy groups that this thread ended.
    pub(super) groups: Cell<u32>,
    yielder: Cell<*const Yielder<(), Stop>>,
}

/// A copy in flight to shared memory: its first `len` words are valid; `group` is its copy group.
struct Copy {
    offset: u32,
    words: [u32; 4],
    len: usize,
    group: u32,
}

thread_local!(static NOW: Cell<*const Thread<'static>> = const { Cell::new(std::ptr::null()) });

// Mapping a stack costs more than a small block's work, so stacks are cached for the next launch.
thread_local!(static STACKS: Cell<Vec<Stack>> = const { Cell::new(Vec::new()) });

/// A thread's stack. Its first frame begins elsewhere within the mapped pages than its neighbours': at the same place in each,
/// the stacks of a warp would push one another out of the processor's caches.
struct Stack {
    pages: DefaultStack,
    unused: usize,
}

impl Stack {
    fn new(index: usize) -> Self {
        let pages = DefaultStack::new(STACK_BYTES).expect("memory for a coroutine's stack");
        Self { pages, unused: index * FRAMES_APART % MOST_UNUSED }
    }
}

// SAFETY: a part of another stack, whose first address stays a multiple of 64 bytes; nothing else uses that stack.
unsafe impl stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.pages.base().get() - self.unused).expect("an address within the pages")
    }

    fn limit(&self) -> StackPointer {
        self.pages.limit()
    }

    #[cfg(windows)]
    fn teb_fields(&self) -> stack::StackTebFields {
        self.pages.teb_fields()
    }

    #[cfg(windows)]
    fn update_teb_fields(&mut self, stack_limit: usize, guaranteed_stack_bytes: usize) {
        self.pages.update_teb_fields(stack_limit, guaranteed_stack_bytes);
    }
}

/// Returns the running thread.
#[inline]
pub(super) fn me() -> &'static Thread<'static> {
    let now = NOW.get();
    assert!(!now.is_null(), "a device word was said outside `emulate`");
    // SAFETY: set by `schedule` to a thread in `run_block`, which outlives its turn; only code in that turn calls this.
    unsafe { &*now }
}

impl Thread<'_> {
    pub(super) fn warp(&self) -> u32 {
        self.index / WARP
    }

    pub(super) fn stop(&self, why: Stop) {
        // SAFETY: set at the start of the running coroutine to its own yielder, which lives as long as the coroutine.
        unsafe { (*self.yielder.get()).suspend(why) };
    }

    /// Starts copying words to shared memory.
    pub(super) fn send<const N: usize>(&self, offset: u32, numbers: [u32; N]) {
        self.block.shared.expect::<N>(offset, self);
        let mut words = [0; 4];
        words[..N].copy_from_slice(&numbers);
        self.coming.borrow_mut().push(Copy { offset, words, len: N, group: self.groups.get() });
    }

    /// Completes the copies for which `is_there(group, groups ended)` is true.
    pub(super) fn arrive(&self, is_there: impl Fn(u32, u32) -> bool) {
        let ended = self.groups.get();
        self.coming.borrow_mut().retain(|copy| {
            let arrives = is_there(copy.group, ended);
            if arrives {
                self.block.shared.arrive(copy.offset, &copy.words[..copy.len], self);
            }
            !arrives
        });
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Ready,
    Stopped(Stop),
    Returned,
}

/// Runs `kernel` once per thread of a `grid` (x, y) of blocks of `threads` threads with `shared_bytes` of shared
/// memory.
///
/// Blocks run one after another, and threads in index order between waits, so a run is reproducible.
///
/// # Panics
/// Panics where a GPU would hang, race, or read memory that was never written; see the documentation of this module.
/// The message names block and thread.
pub fn emulate(grid: (u32, u32), threads: u32, shared_bytes: u32, kernel: impl Fn()) {
    assert!(threads > 0 && threads.is_multiple_of(WARP) && threads <= 1024, "{threads} threads are no block");
    super::buffer::snapshot();
    let shape = Shape { grid, threads };
    let kernel: &dyn Fn() = &kernel;
    // SAFETY: coroutines need `'static`, but none outlives `run_block`, which returns before this borrow ends.
    let kernel = unsafe { std::mem::transmute::<&dyn Fn(), &'static dyn Fn()>(kernel) };
    let mut cached = STACKS.take();
    let others = cached.split_off(cached.len().min(threads as usize));
    let mut stacks = cached;
    stacks.extend((stacks.len()..threads as usize).map(Stack::new));
    for y in 0..grid.1 {
        for x in 0..grid.0 {
            stacks = run_block(shape, (x, y), shared_bytes, kernel, stacks);
        }
    }
    stacks.extend(others);
    STACKS.set(stacks);
}

type Fiber = Coroutine<(), Stop, (), Stack>;

fn run_block(shape: Shape, at: (u32, u32), bytes: u32, kernel: &'static dyn Fn(), stacks: Vec<Stack>) -> Vec<Stack> {
    let block = Block {
        shape,
        at,
        shared: SharedMemory::poisoned(bytes),
        epoch: Cell::new(0),
        warp_epochs: (0..shape.threads / WARP).map(|_| Cell::new(0)).collect(),
        slots: (0..shape.threads).map(|_| Default::default()).collect(),
        wide: (0..shape.threads).map(|_| Default::default()).collect(),
    };
    let threads: Vec<Thread<'_>> = (0..shape.threads)
        .map(|index| Thread {
            index,
            block: &block,
            turn: Cell::new(0),
            coming: RefCell::default(),
            groups: Cell::new(0),
            yielder: Cell::new(std::ptr::null()),
        })
        .collect();
    let mut fibers: Vec<Fiber> = threads
        .iter()
        .zip(stacks)
        .map(|(thread, stack)| {
            let thread = std::ptr::from_ref(thread).cast::<Thread<'static>>();
            Coroutine::with_stack(stack, move |yielder: &Yielder<(), Stop>, ()| {
                // SAFETY: `threads` outlives the coroutines: `run_block` consumes them before it returns.
                unsafe { (*thread).yielder.set(yielder) };
                kernel();
            })
        })
        .collect();

    let outcome = catch_unwind(AssertUnwindSafe(|| schedule(&block, &threads, &mut fibers)));
    NOW.set(std::ptr::null());
    if let Err(panic) = outcome {
        for fiber in &mut fibers {
            // SAFETY: a kernel's frames own nothing that needs dropping.
            unsafe { fiber.force_reset() };
        }
        resume_unwind(panic);
    }
    fibers.into_iter().map(Fiber::into_stack).collect()
}

fn schedule(block: &Block, threads: &[Thread<'_>], fibers: &mut [Fiber]) {
    let mut states = vec![State::Ready; threads.len()];
    loop {
        for warp in 0..block.warp_epochs.len() {
            let lanes = warp * WARP as usize..(warp + 1) * WARP as usize;
            while run_lanes(threads, fibers, &mut states, lanes.clone()) {
                meet(block, &mut states[lanes.clone()], lanes.start);
            }
        }
        let waits = states.iter().position(|s| *s == State::Stopped(Stop::Barrier));
        let left = states.iter().position(|s| *s == State::Returned);
        match (waits, left) {
            (None, _) => return,
            (Some(_), None) => {}
            (Some(waits), Some(left)) => {
                panic!("block {:?}: thread {left} returned while thread {waits} waits at a barrier", block.at)
            }
        }
        block.epoch.set(block.epoch.get() + 1);
        states.fill(State::Ready);
    }
}

/// Runs each ready lane until it stops. Returns whether some lane waits at a warp-wide primitive.
fn run_lanes(
    threads: &[Thread<'_>],
    fibers: &mut [Fiber],
    states: &mut [State],
    lanes: std::ops::Range<usize>,
) -> bool {
    let mut at_warp_word = false;
    for i in lanes {
        if states[i] == State::Ready {
            NOW.set(std::ptr::from_ref(&threads[i]).cast());
            states[i] = match fibers[i].resume(()) {
                CoroutineResult::Yield(stop) => State::Stopped(stop),
                CoroutineResult::Return(()) => State::Returned,
            };
        }
        at_warp_word |= matches!(states[i], State::Stopped(Stop::Warp(_)));
    }
    at_warp_word
}

/// Lets a warp pass a warp-wide primitive. Panics unless all its lanes have reached the same one.
fn meet(block: &Block, states: &mut [State], first: usize) {
    let Some((waits, State::Stopped(Stop::Warp(word)))) =
        states.iter().copied().enumerate().find(|(_, s)| matches!(s, State::Stopped(Stop::Warp(_))))
    else {
        unreachable!("called where a lane waits at a warp word");
    };
    for (lane, state) in states.iter().enumerate() {
        let does = match state {
            // Most lanes name it by the same constant, which needs no comparison of texts.
            State::Stopped(Stop::Warp(other)) if std::ptr::eq(*other, word) || *other == word => continue,
            State::Stopped(Stop::Warp(other)) => format!("waits in {other}"),
            State::Stopped(Stop::Barrier) => "waits at a barrier".to_owned(),
            State::Returned => "returned".to_owned(),
            State::Ready => unreachable!("every lane was run until it stopped"),
        };
        panic!("block {:?}: thread {} {does} while thread {} waits in {word}", block.at, first + lane, first + waits);
    }
    if word == "sync_warp" {
        let epoch = &block.warp_epochs[first / WARP as usize];
        epoch.set(epoch.get() + 1);
    }
    states.fill(State::Ready);
}
