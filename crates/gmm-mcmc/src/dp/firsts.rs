//! The rows that keep their cluster while all others draw theirs: see [`Chain::draw_labels`](super::chain::Chain).

/// The first row of each cluster in a random order, which is that of the keys, ties by index.
pub(super) struct Firsts {
    /// `(k,)`
    each: Vec<(u64, usize)>,
    /// The last of them.
    last: (u64, usize),
}

impl Firsts {
    pub(super) fn new(keys: &[u64], labels: &[u32], k: usize) -> Self {
        let mut each = vec![(u64::MAX, usize::MAX); k];
        for (i, (&key, &label)) in keys.iter().zip(labels).enumerate() {
            let first = &mut each[label as usize];
            *first = (*first).min((key, i));
        }
        let last = each.iter().copied().max().expect("at least one cluster");
        Self { each, last }
    }

    /// The label of a row, among the clusters that it may join, with probabilities in proportion to `r`, which sum to 1.
    pub(super) fn draw(&self, r: &[f64], at: (u64, usize), now: u32, uniform: f64) -> u32 {
        let own = now as usize;
        if self.each[own] == at {
            return now;
        }
        // Most rows stay, so their cluster comes first.
        if at > self.last {
            let others = r.iter().enumerate().filter(|(c, _)| *c != own);
            return Self::among(others, uniform - r[own]).unwrap_or(now);
        }
        let allowed = || r.iter().enumerate().filter(|(c, _)| *c != own && self.each[*c] < at);
        let total = r[own] + allowed().map(|(_, r)| r).sum::<f64>();
        Self::among(allowed(), uniform * total - r[own]).unwrap_or(now)
    }

    /// The first cluster whose probability exceeds what is left of the mark after those before it; `None` if the mark
    /// is below 0, or by rounding above all.
    fn among<'r>(others: impl Iterator<Item = (usize, &'r f64)>, mut left: f64) -> Option<u32> {
        if left < 0.0 {
            return None;
        }
        for (c, r) in others {
            left -= r;
            if left < 0.0 {
                return Some(c as u32);
            }
        }
        None
    }
}
