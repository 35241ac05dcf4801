//! The state of the search for the components of each row.

use std::sync::Arc;

use gmm_model::Draws;

use super::join::Sorted;
use crate::{Error, memory};

/// Neighbours of a component, beside as many as a row has components.
const MORE_NEIGHBOURS: usize = 3;

/// The components of each row of a truncated fit, and the neighbours of each component: what one pass hands to the next.
///
/// Made by [`new`](Self::new), then filled by the first pass. A clone shares the memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Components of a row, `G`.
    pub(super) listed: usize,
    seed: u64,
    /// Number of passes made.
    pub(super) passes: u64,
    /// `None` before the first pass.
    pub(super) lists: Option<Lists>,
    /// The mean number of components that the last pass tried for a row.
    pub(super) tried: f64,
}

/// `(n, G)` components of the rows, and `(k, H)` neighbours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lists {
    /// Rows in the order of their best components, `(n,)`; rows of the same best component in ascending order.
    pub(crate) order: Arc<Vec<u32>>,
    /// The components of each row by its position in `order`, the best first, `(n, g)`.
    pub(crate) components: Arc<Vec<u32>>,
    /// The neighbours of each component, itself first, then by their divergence, `(k, h)`.
    pub(crate) neighbours: Arc<Vec<u32>>,
    pub(crate) g: usize,
    pub(crate) h: usize,
}

impl Search {
    /// A search that has not begun. `listed` is the number of components of a row, at least 1; `seed` that of its random draws.
    pub fn new(listed: usize, seed: u64) -> Self {
        Self { listed: listed.max(1), seed, passes: 0, lists: None, tried: 0.0 }
    }

    /// The mean number of components that the last pass tried for a row.
    pub const fn tried(&self) -> f64 {
        self.tried
    }

    /// The random draws of this pass for a purpose.
    pub(crate) fn draws(&self, purpose: &str) -> Draws {
        Draws::for_purpose(purpose, self.seed, self.passes)
    }

    /// The numbers of components of a row and of neighbours of a component, `(g, h)`; no neighbours if every row has all
    /// components.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Option`] for more than 2³² rows.
    pub(crate) fn sizes(&self, n: usize, k: usize) -> Result<(usize, usize), Error> {
        if u32::try_from(n).is_err() {
            let must = "at most 4294967295 with truncated EM".to_owned();
            return Err(Error::Option { option: "rows", value: n.to_string(), must });
        }
        let g = self.listed.min(k);
        let h = if g == k { 0 } else { (g + MORE_NEIGHBOURS).min(k) };
        // Lists before and after, responsibilities, and the order of the sums.
        memory::check("the components of each row", n as u128 * (8 + 24 * g as u128) + 4 * k as u128 * h as u128)?;
        Ok((g, h))
    }
}

impl Lists {
    /// The same lists with the rows in the order of their best components.
    pub(super) fn sorted(self, k: usize) -> Self {
        let Self { order, components, neighbours, g, h } = self;
        let by_best = Sorted::new(k, components.iter().step_by(g).copied());
        let mut rows = vec![0; order.len()];
        let mut moved = vec![0; components.len()];
        for (to, &from) in by_best.items.iter().enumerate() {
            let from = from as usize;
            rows[to] = order[from];
            moved[to * g..][..g].copy_from_slice(&components[from * g..][..g]);
        }
        Self { order: Arc::new(rows), components: Arc::new(moved), neighbours, g, h }
    }

    pub(super) fn of_component(&self, c: u32) -> &[u32] {
        &self.neighbours[c as usize * self.h..][..self.h]
    }
}
