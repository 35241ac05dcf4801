//! Runs chains on separate threads and evaluates their requests in batches.
//!
//! A chain requests the density at one point and waits for it. The engine is most efficient for many points at once. So
//! the requests are collected until every running chain has made one, and are then answered in one call, in the order
//! of the chains. The answer to a chain depends only on its own request, so the draws do not depend on timing.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::Error;
use crate::target::Evaluated as Answer;

/// A message from a chain.
enum ChainMessage<R> {
    Ask(Vec<f64>),
    Tell(R),
    End(Result<(), Error>),
}

/// A chain's connection to the thread that evaluates.
pub(crate) struct Line<R> {
    chain: usize,
    out: Sender<(usize, ChainMessage<R>)>,
    answers: Receiver<Answer>,
    closed: Cell<bool>,
}

impl<R> Line<R> {
    /// The density at a point. Waits until all other chains have made a request or ended.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the run was stopped.
    pub(crate) fn ask(&self, point: &[f64]) -> Result<Answer, Error> {
        let sent = self.out.send((self.chain, ChainMessage::Ask(point.to_vec())));
        let answer = sent.ok().and_then(|()| self.answers.recv().ok());
        self.closed.set(answer.is_none());
        answer.ok_or(Error::Stopped)
    }

    /// Whether the last request was not answered because the run was stopped.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Sends a message without waiting.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the run was stopped.
    pub(crate) fn tell(&self, what: R) -> Result<(), Error> {
        self.out.send((self.chain, ChainMessage::Tell(what))).map_err(|_| Error::Stopped)
    }
}

/// Runs `chain(i, line)` for each of `chains` on its own thread. On the calling thread, answers their requests by
/// `answer` and passes their messages to `heard`. Once `heard` breaks, chains stop at their next request or message.
///
/// # Errors
/// [`Error::Stopped`] if `heard` broke; an error of `answer`, which stops all chains; else the first error of a chain.
pub(crate) fn together<R: Send>(
    chains: usize,
    chain: impl Fn(usize, &Line<R>) -> Result<(), Error> + Sync,
    mut answer: impl FnMut(&[Vec<f64>]) -> Result<Vec<Answer>, Error>,
    mut heard: impl FnMut(usize, R) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let (out, said) = channel();
        let mut lines = Vec::with_capacity(chains);
        for i in 0..chains {
            let (reply, answers) = channel();
            lines.push(reply);
            let line = Line { chain: i, out: out.clone(), answers, closed: Cell::new(false) };
            let chain = &chain;
            scope.spawn(move || {
                // A chain that panics must also report its end, so that the others do not wait for it. The scope
                // propagates the panic.
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| chain(i, &line)));
                let (said, panic) = match result {
                    Ok(result) => (result, None),
                    Err(panic) => (Err(Error::Stopped), Some(panic)),
                };
                let _ = line.out.send((i, ChainMessage::End(said)));
                if let Some(panic) = panic {
                    std::panic::resume_unwind(panic);
                }
            });
        }
        drop(out);
        serve(&said, &lines, &mut answer, &mut heard)
        // Dropping the lines and the receiver here stops the chains that still run; the scope then waits for them.
    })
}

fn serve<R>(
    said: &Receiver<(usize, ChainMessage<R>)>,
    lines: &[Sender<Answer>],
    answer: &mut impl FnMut(&[Vec<f64>]) -> Result<Vec<Answer>, Error>,
    heard: &mut impl FnMut(usize, R) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let mut running = lines.len();
    let mut waiting: Vec<Option<Vec<f64>>> = lines.iter().map(|_| None).collect();
    let mut failed = None;
    while running > 0 {
        let Ok((chain, what)) = said.recv() else { break };
        match what {
            ChainMessage::Ask(point) => waiting[chain] = Some(point),
            ChainMessage::Tell(what) => {
                if heard(chain, what)?.is_break() {
                    return Err(Error::Stopped);
                }
            }
            ChainMessage::End(result) => {
                running -= 1;
                if let Err(error) = result {
                    failed.get_or_insert(error);
                }
            }
        }
        let asked: Vec<usize> = (0..lines.len()).filter(|&i| waiting[i].is_some()).collect();
        if failed.is_some() {
            break;
        }
        if running > 0 && asked.len() == running {
            let points: Vec<Vec<f64>> = asked.iter().filter_map(|&i| waiting[i].take()).collect();
            for (i, found) in asked.into_iter().zip(answer(&points)?) {
                // Fails if the chain has ended: its message about that has been or will be received.
                let _ = lines[i].send(found);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs chains that make `10 + i` requests each, and returns the sizes of the batches.
    fn batches(chains: usize) -> Vec<usize> {
        let mut sizes = Vec::new();
        let chain = |i: usize, line: &Line<usize>| {
            for step in 0..10 + i {
                let (value, gradient) = line.ask(&[i as f64, step as f64])?.expect("an answer");
                assert_eq!((value, gradient), (i as f64 + step as f64, vec![i as f64]));
            }
            line.tell(i)
        };
        let answer = |points: &[Vec<f64>]| {
            sizes.push(points.len());
            Ok(points.iter().map(|p| Some((p[0] + p[1], vec![p[0]]))).collect())
        };
        together(chains, chain, answer, |_, _| Ok(ControlFlow::Continue(()))).unwrap();
        sizes
    }

    #[test]
    fn every_batch_has_a_question_of_every_chain_that_still_runs() {
        let sizes = batches(4);
        assert_eq!(sizes, [vec![4; 10], vec![3, 2, 1]].concat());
        assert_eq!(batches(1), [1; 10]);
    }

    #[test]
    fn what_fails_or_breaks_stops_all_and_is_told() {
        let forever = |_: usize, line: &Line<()>| -> Result<(), Error> {
            loop {
                line.ask(&[0.0])?;
                line.tell(())?;
            }
        };
        let nothing = |points: &[Vec<f64>]| Ok(points.iter().map(|_| None).collect());
        let stopped = together(3, forever, nothing, |_, ()| Ok(ControlFlow::Break(())));
        assert!(matches!(stopped, Err(Error::Stopped)));
        let failing = |_: &[Vec<f64>]| Err(Error::Prior("no".to_owned()));
        let failed = together(3, forever, failing, |_, ()| Ok(ControlFlow::Continue(())));
        assert!(matches!(failed, Err(Error::Prior(_))));
        let one_fails = |i: usize, line: &Line<()>| {
            if i == 1 { Err(Error::Start { chain: 1, why: "no".to_owned() }) } else { forever(i, line) }
        };
        let failed = together(3, one_fails, nothing, |_, ()| Ok(ControlFlow::Continue(())));
        assert!(matches!(failed, Err(Error::Start { chain: 1, .. })));
    }
}
