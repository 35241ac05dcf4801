//! Runs the parts of a read on all cores.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Number of threads for `tasks` tasks: one per core at most.
pub(crate) fn threads(tasks: usize) -> usize {
    if tasks < 2 { 1 } else { thread::available_parallelism().map_or(1, usize::from).min(tasks) }
}

/// Calls `work` with each task, on up to `threads` threads. Tasks start in their order, and none starts after a failure.
///
/// The threads live only during the call: those of a pool would not exist in a forked process.
///
/// # Errors
/// The first error in the order of the tasks, whichever thread fails first.
pub(crate) fn each<T: Send, E: Send>(
    tasks: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    if threads < 2 {
        return tasks.into_iter().try_for_each(work);
    }
    // The tasks not yet started, and the first failure.
    let state = Mutex::new((tasks.into_iter().enumerate(), None::<(usize, E)>));
    let locked = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let worker = || {
        loop {
            let next = {
                let mut state = locked();
                if state.1.is_some() { None } else { state.0.next() }
            };
            let Some((index, task)) = next else { return };
            if let Err(error) = work(task) {
                let failure = &mut locked().1;
                if failure.as_ref().is_none_or(|(first, _)| index < *first) {
                    *failure = Some((index, error));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If the system cannot start a thread, the others do its work.
            if thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker();
    });
    match state.into_inner().unwrap_or_else(PoisonError::into_inner).1 {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_and_the_first_error_in_order_wins() {
        let mut done = [0; 100];
        each(done.iter_mut().collect(), 4, |slot| -> Result<(), ()> {
            *slot += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(done, [1; 100]);
        for threads in [1, 2, 7] {
            let slow = |i: usize| {
                if i == 20 {
                    thread::sleep(std::time::Duration::from_millis(5));
                }
                if i >= 20 { Err(i) } else { Ok(()) }
            };
            assert_eq!(each((0..100).collect(), threads, slow), Err(20), "{threads} threads");
        }
        assert_eq!(each(Vec::<u8>::new(), 4, |_| Err(())), Ok(()));
    }
}
