//! Measures how much of the machine other processes used during a measurement.

use std::fs;

/// Clock ticks since boot: of all processors, the busy ones among them, and those of our processes.
#[derive(Clone, Copy)]
struct Ticks {
    all: f64,
    busy: f64,
    own: f64,
}

/// Share of the machine above which other processes count as disturbing: up to a tenth slows neither program much.
pub const DISTURBED: f64 = 0.1;

/// Watches the processors' usage from its creation. Reports nothing if there is no `/proc`.
pub struct Watch {
    peer: Option<u32>,
    begin: Option<Ticks>,
}

impl Watch {
    /// Begins watching. `peer` is the id of another process that counts as ours.
    pub fn begin(peer: Option<u32>) -> Self {
        Self { peer, begin: ticks(peer) }
    }

    /// Share of all cores' time since the beginning that other processes used: neither idle, nor used by this process
    /// or the peer. It includes time stolen from a virtual machine. Resolution: about a hundredth per second and core.
    pub fn others(&self) -> Option<f64> {
        self.spent().share()
    }

    /// Ticks since the beginning.
    pub(crate) fn spent(&self) -> Spent {
        let Some((begin, end)) = self.begin.zip(ticks(self.peer)) else {
            return Spent::default();
        };
        Spent { all: end.all - begin.all, others: (end.busy - begin.busy) - (end.own - begin.own) }
    }
}

/// Ticks of all cores spent in one or several turns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    all: f64,
    others: f64,
}

impl Spent {
    /// Adds the ticks of another turn.
    pub(crate) fn and(self, more: Self) -> Self {
        Self { all: self.all + more.all, others: self.others + more.others }
    }

    /// The share of other processes; `None` if there is no `/proc`, or no tick has passed.
    pub(crate) fn share(self) -> Option<f64> {
        (self.all > 0.0).then(|| (self.others / self.all).clamp(0.0, 1.0))
    }

    /// Whether other processes disturbed the measurement. Up to two ticks are ignored as noise.
    pub(crate) fn disturbed(self) -> bool {
        self.others > 2.0 && self.share().is_some_and(|share| share > DISTURBED)
    }
}

fn ticks(peer: Option<u32>) -> Option<Ticks> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    // user nice system idle iowait irq softirq steal. Guest time, which follows, is already included in user.
    let spent: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
    let all: f64 = spent.iter().sum();
    let own = own_ticks("self")? + peer.map_or(Some(0.0), |peer| own_ticks(&peer.to_string()))?;
    Some(Ticks { all, busy: all - spent.get(3)? - spent.get(4)?, own })
}

/// utime, stime, cutime and cstime of a process, fields 14 to 17 of proc_pid_stat(5). The name before them may contain
/// blanks, and ends with `)`.
fn own_ticks(process: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // User and system time of the process, and of its children that have ended and been waited for.
    fields.get(11..15)?.iter().map(|field| field.parse::<f64>().ok()).sum()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_others_is_a_share() {
        let watch = Watch::begin(None);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let others = watch.others().expect("there is /proc");
        assert!((0.0..=1.0).contains(&others), "{others}");
    }

    #[test]
    fn a_tick_of_others_disturbs_nobody_and_a_tenth_of_many_does() {
        let spent = |all, others| Spent { all, others };
        assert!(!spent(4.0, 1.0).disturbed() && !spent(100.0, 9.0).disturbed());
        assert!(spent(60.0, 3.0).and(spent(40.0, 8.0)).disturbed());
        assert_eq!((Spent::default().share(), spent(10.0, 5.0).share()), (None, Some(0.5)));
    }
}
