//! Items in the order of a key, and the neighbours that tasks found.

/// Items sorted by a key below `k`, those of a key in their order.
pub(super) struct Sorted {
    /// The items of key `c` are from `starts[c]` to `starts[c + 1]`; `(k + 1,)`.
    pub(super) starts: Vec<usize>,
    /// Indices of the items.
    pub(super) items: Vec<u32>,
}

impl Sorted {
    pub(super) fn new(k: usize, keys: impl Iterator<Item = u32> + Clone) -> Self {
        let mut starts = vec![0; k + 1];
        keys.clone().for_each(|key| starts[key as usize + 1] += 1);
        for c in 0..k {
            starts[c + 1] += starts[c];
        }
        let mut next = starts[..k].to_vec();
        let mut items = vec![0; starts[k]];
        for (item, key) in keys.enumerate() {
            let place = &mut next[key as usize];
            items[*place] = item as u32;
            *place += 1;
        }
        Self { starts, items }
    }
}

/// What the rows of one component tried: the component, the sum of the log joint densities over its own, and the number of
/// rows.
pub(super) type Tried = (u32, f64, u32);

/// The components that the rows of component `of` tried.
pub(super) struct Found {
    pub(super) of: u32,
    pub(super) tried: Vec<Tried>,
}

impl Found {
    /// Adds what further rows of the same component tried.
    fn add(&mut self, mut other: Self) {
        self.tried.append(&mut other.tried);
        self.tried.sort_by_key(|one| one.0);
        self.tried.dedup_by(|next, one| {
            let same = next.0 == one.0;
            if same {
                one.1 += next.1;
                one.2 += next.2;
            }
            same
        });
    }

    /// Writes the neighbours, `(h,)`: the component, then those of the largest means. If fewer were tried, the last ones stay.
    fn write(mut self, neighbours: &mut [u32]) {
        let mean = |one: &Tried| one.1 / f64::from(one.2);
        self.tried.retain(|one| one.0 != self.of);
        let (own, others) = neighbours.split_first_mut().expect("a component is the first of its neighbours");
        *own = self.of;
        let closer = |a: &Tried, b: &Tried| mean(b).total_cmp(&mean(a)).then(a.0.cmp(&b.0));
        if self.tried.len() > others.len() {
            self.tried.select_nth_unstable_by(others.len(), closer);
            self.tried.truncate(others.len());
        }
        self.tried.sort_by(closer);
        others.iter_mut().zip(&self.tried).for_each(|(slot, one)| *slot = one.0);
    }
}

/// Writes the neighbours, `(k, h)`, that the tasks found, in their order: a component's rows may lie in several tasks. Components
/// without rows keep theirs.
pub(super) fn write_neighbours(found: impl Iterator<Item = Found>, h: usize, neighbours: &mut [u32]) {
    let mut last: Option<Found> = None;
    let mut write = |one: Found| {
        let at = one.of as usize * h;
        one.write(&mut neighbours[at..][..h]);
    };
    for next in found {
        match &mut last {
            Some(one) if one.of == next.of => one.add(next),
            _ => {
                if let Some(one) = last.replace(next) {
                    write(one);
                }
            }
        }
    }
    if let Some(one) = last {
        write(one);
    }
}
