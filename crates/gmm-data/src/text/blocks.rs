//! Reads text in blocks of whole lines, and parses plain blocks on several threads.

use std::collections::VecDeque;
use std::io::{self, BufRead, ErrorKind, Read};
use std::sync::{Mutex, mpsc};
use std::thread;

use memchr::memrchr;

use super::block::{Layout, rows};
use super::unread::Unread;
use crate::memory;

/// How to read a text in blocks.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// Bytes per block.
    pub(super) size: usize,
    /// Bytes to read line by line before the first block: many tables are that small.
    pub(super) after: u64,
    /// Number of threads that parse; `None` for one per core. This thread reads, and parses too if it is the only one.
    pub(super) threads: Option<usize>,
    /// Number of blocks to parse on this thread before others are started: a small table does not need them.
    pub(super) alone: usize,
}

/// What [`Blocks::fill`] parsed.
pub(super) struct Filled {
    pub(super) rows: usize,
    /// Number of lines, blank ones included.
    pub(super) lines: u64,
    blocks: usize,
    pub(super) end: End,
}

/// Why a call of [`Blocks::fill`] ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// Everything was parsed.
    Text,
    /// There is no room for the next block, or other threads are needed for it.
    Room,
    /// The next block is not plain, has no line end, could not be read, or has no memory.
    Odd,
}

/// A block to parse.
struct Job<'v> {
    block: Vec<u8>,
    values: &'v mut [f64],
    done: mpsc::Sender<Done>,
}

/// A parsed block, with its number of lines if it is plain.
struct Done {
    block: Vec<u8>,
    lines: Option<u64>,
}

impl Job<'_> {
    fn run(self, layout: Layout<'_>) {
        let lines = layout.parse(&self.block, self.values);
        // The receiver is gone only if the thread that reads has panicked.
        let _ = self.done.send(Done { block: self.block, lines });
    }
}

impl Blocks {
    /// For text whose longest line so far has `line` bytes.
    pub(super) fn new(line: usize) -> Self {
        /// Large enough that handing a block to a thread costs nothing; small enough that those in flight stay small
        /// beside the table, and one stays in the L2 cache.
        const SIZE: usize = 1 << 18;
        /// Maximum size, for long lines.
        const MOST: usize = 1 << 22;
        Self { size: (4 * line).clamp(SIZE, MOST), after: 1 << 16, threads: None, alone: 2 }
    }

    /// Number of bytes that are held at a time.
    pub(super) fn window(&mut self) -> usize {
        (self.in_flight() + 2) * self.size
    }

    /// Number of blocks that are parsed or wait for it at a time.
    fn in_flight(&mut self) -> usize {
        match self.threads() {
            1 => 1,
            threads => threads + threads / 2 + 1,
        }
    }

    fn threads(&mut self) -> usize {
        /// Address space for a thread: its stack, and the heap that glibc reserves for it and keeps. Threads take at
        /// most a quarter of what is available, which a limit may make scarce.
        const THREAD: u64 = 4 * (128 << 20);
        let available = || {
            let most =
                memory::available().map_or(usize::MAX, |free| usize::try_from(free / THREAD).unwrap_or(usize::MAX));
            thread::available_parallelism().map_or(1, usize::from).min(most).max(1)
        };
        if self.alone > 0 { 1 } else { *self.threads.get_or_insert_with(available) }
    }

    /// Parses rows into `room`, in row-major order, until a block is not plain or does not fit. The text from there on
    /// is returned to the reader.
    ///
    /// The threads live only during the call: those of a pool would not exist in a forked process.
    pub(super) fn fill<'v, R: BufRead>(
        &mut self,
        text: &mut Unread<R>,
        layout: Layout<'_>,
        room: &'v mut [f64],
    ) -> Filled {
        let (jobs, queue) = mpsc::channel();
        let queue = Mutex::new(queue);
        let (threads, in_flight) = (self.threads(), self.in_flight());
        let most = if self.alone > 0 { self.alone } else { usize::MAX };
        let filled = thread::scope(|scope| {
            let start = |_: &usize| thread::Builder::new().spawn_scoped(scope, || work(&queue, layout)).is_ok();
            let started = if threads > 1 { (0..threads).take_while(start).count() } else { 0 };
            // Moved in, so that the threads end when it is dropped.
            let jobs = jobs;
            let run = |job: Job<'v>| match started {
                0 => job.run(layout),
                _ => jobs.send(job).expect("the queue outlives the threads"),
            };
            let in_flight = if started == 0 { 1 } else { in_flight };
            feed(Cutter::new(text, self.size), (layout.d(), room), (in_flight, most), run)
        });
        self.alone = self.alone.saturating_sub(filled.blocks);
        filled
    }
}

/// Parses jobs until there are no more.
fn work(queue: &Mutex<mpsc::Receiver<Job<'_>>>, layout: Layout<'_>) {
    loop {
        // The lock is released before the block is parsed.
        let next = queue.lock().expect("no thread panics with the lock").recv();
        let Ok(job) = next else { return };
        job.run(layout);
    }
}

/// Hands blocks to `run`, at most `in_flight` at a time and `most` in all, and takes the results in order.
fn feed<'v, R: BufRead>(
    mut cutter: Cutter<'_, R>,
    (d, mut room): (usize, &'v mut [f64]),
    (in_flight, most): (usize, usize),
    run: impl Fn(Job<'v>),
) -> Filled {
    let mut filled = Filled { rows: 0, lines: 0, blocks: 0, end: End::Text };
    let mut pending = VecDeque::new();
    // Set once no more blocks are handed out.
    let mut end = None;
    // Blocks to return to the reader: the first that was not accepted, and all after it.
    let mut again = Vec::new();
    let mut unused = None;
    loop {
        while end.is_none() && pending.len() < in_flight {
            if filled.blocks + pending.len() == most {
                end = Some(End::Room);
                break;
            }
            match cutter.next() {
                Ok(block) => {
                    let rows = rows(&block);
                    if rows * d > room.len() {
                        unused = Some(block);
                        end = Some(End::Room);
                        break;
                    }
                    let values;
                    (values, room) = room.split_at_mut(rows * d);
                    let (done, result) = mpsc::channel();
                    run(Job { block, values, done });
                    pending.push_back((rows, result));
                }
                Err(why) => end = Some(why),
            }
        }
        let Some((rows, result)) = pending.pop_front() else { break };
        let Done { block, lines } = result.recv().expect("a thread that parses does not panic");
        match lines {
            Some(lines) if again.is_empty() => {
                filled.rows += rows;
                filled.lines += lines;
                filled.blocks += 1;
                cutter.free.push(block);
            }
            _ => {
                end = Some(End::Odd);
                again.push(block);
            }
        }
    }
    again.extend(unused);
    cutter.give_back(again);
    filled.end = end.unwrap_or(End::Text);
    filled
}

/// Cuts text into blocks of whole lines.
struct Cutter<'r, R> {
    text: &'r mut Unread<R>,
    size: usize,
    /// Text that was read but not returned in a block, without a line end or before an error.
    rest: Vec<u8>,
    error: Option<io::Error>,
    /// Buffers of blocks that are no longer needed.
    free: Vec<Vec<u8>>,
}

impl<'r, R: BufRead> Cutter<'r, R> {
    const fn new(text: &'r mut Unread<R>, size: usize) -> Self {
        Self { text, size, rest: Vec::new(), error: None, free: Vec::new() }
    }

    /// Returns the next lines, at most `size` bytes. Only the last line of the text may lack its end.
    fn next(&mut self) -> Result<Vec<u8>, End> {
        let mut block = self.free.pop().unwrap_or_default();
        let more = self.size - block.len();
        memory::reserve(&mut block, more, "a block of text").map_err(|_| End::Odd)?;
        block.resize(self.size, 0);
        let mut len = self.rest.len();
        block[..len].copy_from_slice(&self.rest);
        self.rest.clear();
        let mut ended = false;
        while len < self.size && !ended {
            match self.text.read(&mut block[len..]) {
                Ok(n) => {
                    len += n;
                    ended = n == 0;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    block.truncate(len);
                    self.rest = block;
                    self.error = Some(e);
                    return Err(End::Odd);
                }
            }
        }
        block.truncate(len);
        if ended {
            return if len == 0 { Err(End::Text) } else { Ok(block) };
        }
        let end = memrchr(b'\n', &block).map(|end| end + 1);
        let room = |end: &usize| memory::reserve(&mut self.rest, block.len() - end, "a block of text").is_ok();
        let Some(end) = end.filter(room) else {
            self.rest = block;
            return Err(End::Odd);
        };
        self.rest.extend_from_slice(&block[end..]);
        block.truncate(end);
        Ok(block)
    }

    /// Returns these blocks, and what follows them, to the reader.
    fn give_back(self, blocks: Vec<Vec<u8>>) {
        self.text.take_back(blocks.into_iter().chain([self.rest]), self.error);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Separator;
    use super::super::dialect::Dialect;
    use super::super::number::Notation;
    use super::*;

    const fn blocks(size: usize, threads: usize, alone: usize) -> Blocks {
        Blocks { size, after: 0, threads: Some(threads), alone }
    }

    /// Parses text with 2 values per row, and returns what was parsed and the text that is left.
    fn filled(text: &str, blocks: &mut Blocks, room: &mut [f64]) -> (usize, u64, End, String) {
        let dialect = Dialect { separator: Separator::Byte(b','), notation: Notation::Open };
        let mut reader = Unread::new(text.as_bytes());
        let filled = blocks.fill(&mut reader, Layout::new(dialect, 2, None, 2).unwrap(), room);
        let position = reader.position() as usize;
        let mut left = String::new();
        reader.read_to_string(&mut left).unwrap();
        assert_eq!(left, text[position..]);
        (filled.rows, filled.lines, filled.end, left)
    }

    #[test]
    fn rows_are_parsed_in_order_by_several_threads_or_one() {
        let text: String = (0..1000).map(|i| format!("{i},{}\n\n", -i)).collect();
        for (size, threads) in [(12, 1), (100, 1), (100, 3), (999, 2), (1 << 20, 2)] {
            let mut room = vec![0.0; 2000];
            let parsed = filled(&text, &mut blocks(size, threads, 0), &mut room);
            assert_eq!(parsed, (1000, 2000, End::Text, String::new()), "{size} {threads}");
            assert!((0..1000).all(|i| room[2 * i..2 * i + 2] == [i as f64, -(i as f64)]));
        }
    }

    #[test]
    fn what_cannot_be_parsed_is_returned_from_a_line_start() {
        let text: String = (0..1000).map(|i| if i == 500 { "x,1\n".to_owned() } else { format!("{i},1\n") }).collect();
        for threads in [1, 3] {
            let (rows, lines, end, left) = filled(&text, &mut blocks(64, threads, 0), &mut [0.0; 2000]);
            assert_eq!((end, lines), (End::Odd, rows as u64));
            assert!((480..=500).contains(&rows) && left.starts_with(&format!("{},1\n", rows)) || rows == 500, "{rows}");
            let (rows, _, end, left) = filled(&text, &mut blocks(64, threads, 0), &mut [0.0; 100]);
            assert_eq!(end, End::Room);
            assert!((30..=50).contains(&rows) && left.starts_with(&format!("{rows},1\n")), "{rows}");
            let mut alone = blocks(64, threads, 2);
            assert_eq!(filled(&text, &mut alone, &mut [0.0; 2000]).2, End::Room);
            assert_eq!(alone.alone, 0);
        }
        let long = "1".repeat(200);
        assert_eq!(filled(&long, &mut blocks(64, 2, 0), &mut [0.0; 9]), (0, 0, End::Odd, long.clone()));
    }
}
