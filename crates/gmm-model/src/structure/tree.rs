//! The tree of an agglomeration: which clusters were joined, in which order and at what cost.

use crate::ModelError;

/// One step of an agglomeration. Nodes `0..k` are the components; step `s` makes node `k + s`, as in SciPy's linkage
/// matrices and, up to the numbering, R's `hclust`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Join {
    /// The joined node with the smaller first component.
    pub left: usize,
    /// The other joined node.
    pub right: usize,
    /// The criterion of this step alone.
    pub value: f64,
    /// Height of the new node in a dendrogram: no less than that of the nodes below it.
    pub height: f64,
}

/// A tree over `k` components, complete or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    leaves: usize,
    joins: Vec<Join>,
    /// The node of each current cluster, ordered by first component.
    current: Vec<usize>,
}

impl Tree {
    /// The tree in which every component is a cluster of its own.
    pub fn new(n_components: usize) -> Self {
        Self { leaves: n_components, joins: Vec::new(), current: (0..n_components).collect() }
    }

    /// Joins the current clusters of index `i` and `j`. The new cluster takes the place of the one with the smaller
    /// index, the other is removed, as in [`merge_pair`](super::merge_pair). The height is the given one, or that of
    /// the node below it if that is larger.
    ///
    /// # Errors
    /// [`ModelError::Range`] if there is no such cluster or both are the same.
    pub fn join(&mut self, i: usize, j: usize, value: f64, height: f64) -> Result<(), ModelError> {
        let (first, second) = (i.min(j), i.max(j));
        if first == second || second >= self.current.len() {
            let must = "two different ones of the current clusters";
            return Err(ModelError::Range { what: "clusters to join", value: format!("{i} and {j}"), must });
        }
        let (left, right) = (self.current[first], self.current[second]);
        let below = self.height(left).max(self.height(right));
        self.current[first] = self.leaves + self.joins.len();
        self.current.remove(second);
        self.joins.push(Join { left, right, value, height: height.max(below) });
        Ok(())
    }

    /// Number of components.
    pub const fn n_components(&self) -> usize {
        self.leaves
    }

    /// Number of clusters after all joins.
    pub const fn n_clusters(&self) -> usize {
        self.current.len()
    }

    /// The joins in order.
    pub fn joins(&self) -> &[Join] {
        &self.joins
    }

    /// Height of a node: 0 for a component.
    pub fn height(&self, node: usize) -> f64 {
        node.checked_sub(self.leaves).map_or(0.0, |step| self.joins[step].height)
    }

    /// The cluster of each component, `(k,)`, when `count` clusters are left, numbered from 0 in the order of their
    /// first components.
    ///
    /// # Errors
    /// [`ModelError::Range`] if the tree has no such state: `count` is above `k` or below
    /// [`n_clusters`](Self::n_clusters).
    pub fn clusters(&self, count: usize) -> Result<Vec<usize>, ModelError> {
        if !(self.current.len().max(1)..=self.leaves).contains(&count) {
            let must = "between the number of clusters at the root and the number of components";
            return Err(ModelError::Range { what: "number of clusters", value: count.to_string(), must });
        }
        // The first component of every node, then of the cluster that each component is in.
        let mut first: Vec<usize> = (0..self.leaves).collect();
        let mut of_node = first.clone();
        for join in &self.joins[..self.leaves - count] {
            let (left, right) = (of_node[join.left], of_node[join.right]);
            let (kept, gone) = (left.min(right), left.max(right));
            first.iter_mut().filter(|f| **f == gone).for_each(|f| *f = kept);
            of_node.push(kept);
        }
        let mut firsts = first.clone();
        firsts.sort_unstable();
        firsts.dedup();
        Ok(first.iter().map(|f| firsts.binary_search(f).expect("every first component is listed")).collect())
    }

    /// The components from left to right in a drawing without crossings: the members of each node are neighbours.
    pub fn order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.leaves);
        let mut open: Vec<usize> = self.current.iter().rev().copied().collect();
        while let Some(node) = open.pop() {
            match node.checked_sub(self.leaves) {
                None => order.push(node),
                Some(step) => open.extend([self.joins[step].right, self.joins[step].left]),
            }
        }
        order
    }
}
