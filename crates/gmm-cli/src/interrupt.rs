//! Handling of SIGINT, SIGTERM and SIGHUP: the program ends at once if nothing would be lost, else after the current
//! iteration or once the file is complete.
//!
//! SIGHUP stays ignored if it was ignored at the start, as under `nohup`. SIGXFSZ does not end the program: the write
//! that exceeds the file size limit fails, as on a full disk. SIGQUIT keeps its default action and always ends it.
//!
//! All of this is for Unix. On Windows Ctrl-C ends the process at once; the next write to a folder deletes its temporary files.

use std::sync::{Mutex, MutexGuard, PoisonError};

struct State {
    /// Number of live [`Hold`]s.
    holds: usize,
    /// The first signal received.
    received: Option<i32>,
}

static STATE: Mutex<State> = Mutex::new(State { holds: 0, received: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does nothing: only Unix has these signals.
#[cfg(not(unix))]
pub(crate) const fn install() {}

/// Installs the handlers. The first signal ends the process at once unless a [`Hold`] is alive; the second always does.
#[cfg(unix)]
pub(crate) fn install() {
    use std::io::{self, Write};

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
    use signal_hook::iterator::Signals;

    // Without the handler the default action of the signal still ends the process.
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
                // No destructor will run, so temporary files are deleted here.
                let _abandoned = gmm_data::atomic::abandon();
                let _ = writeln!(io::stderr(), "error: interrupted");
                // The lock is held so that no file is created while the process ends.
                std::process::exit(i32::from(code(signal)));
            }
            state.received = Some(signal);
        }
    });
}

/// Whether this process was started with a signal ignored; false if `/proc` does not tell.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// A guard that defers signals: while it is alive, a signal is only recorded; see [`received`].
pub(crate) struct Hold(());

/// Defers the first signal until the guard is dropped.
pub(crate) fn hold() -> Hold {
    state().holds += 1;
    Hold(())
}

impl Drop for Hold {
    fn drop(&mut self) {
        state().holds -= 1;
    }
}

/// The deferred signal, if any.
pub(crate) fn received() -> Option<i32> {
    state().received
}

/// Takes the deferred signal back: what it asked for is done, and the process ends as if it had finished.
pub(crate) fn obeyed() {
    state().received = None;
}

/// The exit code for a process ended by a signal: 128 + `signal`.
pub(crate) fn code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
