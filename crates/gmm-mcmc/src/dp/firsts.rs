//! The rows that keep their cluster while all others draw theirs: see [`Chain::draw_labels`](super::chain::Chain).

/// The first row of each cluster in a random order, which is that of the keys, ties by index.
pub(super) struct Firsts {
    /// `(k,)`; after all rows for a cluster without rows.
    each: Vec<(u64, usize)>,
    /// The last of them.
    last: (u64, usize),
}

impl Firsts {
    /// Of the rows from `start` on that have these keys and labels.
    pub(super) fn new(start: usize, keys: &[u64], labels: &[u32], k: usize) -> Self {
        let mut each = vec![(u64::MAX, usize::MAX); k];
        for (i, (&key, &label)) in (start..).zip(keys.iter().zip(labels)) {
            let first = &mut each[label as usize];
            *first = (*first).min((key, i));
        }
        Self::of(each)
    }

    fn of(each: Vec<(u64, usize)>) -> Self {
        let last = each.iter().copied().max().expect("at least one cluster");
        Self { each, last }
    }

    /// Of the rows of both.
    pub(super) fn or(self, other: Self) -> Self {
        Self::of(self.each.into_iter().zip(other.each).map(|(a, b)| a.min(b)).collect())
    }

    /// The label of a row, among the clusters that it may join, with probabilities in proportion to `r`, which sum to 1.
    pub(super) fn draw(&self, r: &[f64], at: (u64, usize), now: u32, uniform: f64) -> u32 {
        let own = now as usize;
        // Most rows stay whatever clusters they may join, since `r` sums to 1; the slack is far above rounding.
        if uniform * (1.0 + 1e-5) < r[own] || self.each[own] == at {
            return now;
        }
        // Their own cluster comes first here too, to the same bits.
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
