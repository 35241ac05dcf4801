//! Times two programs in pairs of turns, and repeats the pairs that other processes disturbed.
//!
//! A definition's [run](crate::Session) times any number of engines and peers in few turns, and only reports
//! disturbances in its rows. This module measures the ratio of two programs pair by pair, however long that takes.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use crate::quiet::{DISTURBED, Watch};
use crate::row::Status;
use crate::spread::Spread;

/// Time for the other program's threads to stop spinning.
const PAUSE: Duration = Duration::from_millis(300);
/// Maximum number of pairs measured for each pair wanted.
const ATTEMPTS: usize = 3;
/// Time for other processes to finish.
const RESPITE: Duration = Duration::from_millis(1500);

/// Times of the two programs, in seconds per iteration.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Ours.
    pub ours: Spread,
    /// The peer's.
    pub peer: Spread,
    /// The peer's time divided by ours, pair by pair.
    pub ratio: Spread,
    /// The largest share of the machine that other processes took during one of the pairs used.
    pub others: f64,
}

impl Times {
    /// [`Status::Disturbed`] if other processes disturbed the measurement, else [`Status::Ok`].
    pub fn status(&self) -> Status {
        if self.others > DISTURBED { Status::Disturbed } else { Status::Ok }
    }
}

/// One turn of each program.
struct Pair {
    ours: f64,
    peer: f64,
    /// Share of the machine that other processes took; 0 if unknown.
    others: f64,
}

/// Times both programs in alternating turns, so that other activity on the machine slows both.
///
/// Pairs in which other processes took more than [`DISTURBED`] are repeated, up to three measurements per pair wanted;
/// then the least disturbed pairs are used, whatever times they measured. `peer` is the id of the process that does
/// `theirs`.
pub fn time(
    wanted: usize,
    peer: u32,
    mut ours: impl FnMut() -> Result<f64>,
    mut theirs: impl FnMut() -> Result<f64>,
) -> Result<Times> {
    let mut pairs = Vec::new();
    let mut quiet = 0;
    while quiet < wanted && pairs.len() < ATTEMPTS * wanted {
        let pair = pair(peer, &mut ours, &mut theirs)?;
        if pair.others <= DISTURBED {
            quiet += 1;
        } else {
            sleep(RESPITE);
        }
        pairs.push(pair);
    }
    pairs.sort_by(|a, b| a.others.total_cmp(&b.others));
    pairs.truncate(wanted);
    let spread = |of: fn(&Pair) -> f64| Spread::of(pairs.iter().map(of).collect());
    Ok(Times {
        ours: spread(|pair| pair.ours),
        peer: spread(|pair| pair.peer),
        ratio: spread(|pair| pair.peer / pair.ours),
        others: spread(|pair| pair.others).max,
    })
}

fn pair(peer: u32, ours: &mut impl FnMut() -> Result<f64>, theirs: &mut impl FnMut() -> Result<f64>) -> Result<Pair> {
    sleep(PAUSE);
    let watch = Watch::begin(Some(peer));
    let peer = theirs()?;
    sleep(PAUSE);
    let ours = ours()?;
    Ok(Pair { ours, peer, others: watch.others().unwrap_or(0.0) })
}
