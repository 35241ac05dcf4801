//! How much of the machine other processes took meanwhile.

use std::fs;

/// Ticks of the processors and of ours, up to some moment.
#[derive(Clone, Copy)]
struct Ticks {
    all: f64,
    busy: f64,
    own: f64,
}

/// Share of the machine above which others disturb a measurement: a tenth slows neither program much.
pub const DISTURBED: f64 = 0.1;

/// Watches the processors from its creation on. Knows nothing where there is no `/proc`.
pub struct Watch {
    peer: Option<u32>,
    begin: Option<Ticks>,
}

impl Watch {
    /// Begins; `peer` is the process that counts as ours too, if there is one.
    pub fn begin(peer: Option<u32>) -> Self {
        Self { peer, begin: ticks(peer) }
    }

    /// Share of all cores' time since the beginning that neither this process nor the peer used, nor was idle.
    /// To about a hundredth per second and core. Time that a virtual machine was not given is in it.
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

/// What was spent in several turns, in ticks of all cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    all: f64,
    others: f64,
}

impl Spent {
    /// With those of another turn.
    pub(crate) fn and(self, more: Self) -> Self {
        Self { all: self.all + more.all, others: self.others + more.others }
    }

    /// The share of others; nothing where there is no `/proc`, or not a tick was spent.
    pub(crate) fn share(self) -> Option<f64> {
        (self.all > 0.0).then(|| (self.others / self.all).clamp(0.0, 1.0))
    }

    /// Whether others disturbed. A tick or two may be anybody's.
    pub(crate) fn disturbed(self) -> bool {
        self.others > 2.0 && self.share().is_some_and(|share| share > DISTURBED)
    }
}

fn ticks(peer: Option<u32>) -> Option<Ticks> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    // user nice system idle iowait irq softirq steal; guest time, which follows, is in user already.
    let spent: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|t| t.parse().ok()).collect();
    let all: f64 = spent.iter().sum();
    let own = own_ticks("self")? + peer.map_or(Some(0.0), |peer| own_ticks(&peer.to_string()))?;
    Some(Ticks { all, busy: all - spent.get(3)? - spent.get(4)?, own })
}

/// utime and stime, fields 14 and 15 of proc_pid_stat(5); the name before them may hold blanks, and ends with `)`.
fn own_ticks(process: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
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
