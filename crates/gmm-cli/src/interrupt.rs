//! SIGINT, SIGTERM and SIGHUP: at once where nothing would be lost, else at the next iteration or when the file is whole.
//!
//! SIGHUP stays ignored where it was ignored at the start, as `nohup` has it. SIGXFSZ is no end: the write that goes beyond
//! the limit on file sizes fails, as on a full disk. SIGQUIT is left to the system, for those who want an end at any cost.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

struct State {
    /// How many [`Hold`]s there are.
    holds: usize,
    /// The first signal that came.
    received: Option<i32>,
}

static STATE: Mutex<State> = Mutex::new(State { holds: 0, received: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to listen. A first signal ends the process at once unless it is held; a second one does always.
pub(crate) fn install() {
    // Without the handler a signal still ends the process, as the system does it.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGXFSZ]) else { return };
    if !is_ignored(SIGHUP) {
        // As above.
        let _ = signals.add_signal(SIGHUP);
    }
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGXFSZ {
                continue;
            }
            let mut state = state();
            if state.holds == 0 || state.received.is_some() {
                // No destructor will run: what a write has begun would stay.
                let _abandoned = gmm_data::atomic::abandon();
                let _ = writeln!(io::stderr(), "error: interrupted");
                // The lock is kept, so that no file is begun while the process ends.
                std::process::exit(i32::from(code(signal)));
            }
            state.received = Some(signal);
        }
    });
}

/// Whether this process was started with a signal ignored; false where the system does not say.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// While it lives, a signal is only noted; see [`received`].
pub(crate) struct Hold(());

/// Holds the first signal back.
pub(crate) fn hold() -> Hold {
    state().holds += 1;
    Hold(())
}

impl Drop for Hold {
    fn drop(&mut self) {
        state().holds -= 1;
    }
}

/// The signal that was held back, if one was.
pub(crate) fn received() -> Option<i32> {
    state().received
}

/// The exit code of a process that a signal ended.
pub(crate) fn code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
