//! Work on several devices at once, each on a thread of its own.

use std::thread;

use crate::Error;

/// Runs `work` on each item, each on a thread of its own; the results in order.
pub(crate) fn on_threads<A: Send, B: Send>(
    items: Vec<A>,
    work: impl Fn(A) -> Result<B, Error> + Sync,
) -> Result<Vec<B>, Error> {
    if items.len() == 1 {
        return items.into_iter().map(work).collect();
    }
    #[cfg(test)]
    let (fake, forced) = (crate::cuda::driver::fake::here(), super::sections::FORCED.get());
    let work = &|item| {
        #[cfg(test)]
        let _fake = fake.as_ref().map(|fake| fake.enter());
        #[cfg(test)]
        super::sections::FORCED.set(forced);
        work(item)
    };
    thread::scope(|scope| {
        let started: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let done = started.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        done.collect::<Vec<_>>().into_iter().collect()
    })
}
