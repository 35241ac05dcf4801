//! What `gmm merge` prints: the tree and its trace.

use gmm_host::structure::Criteria;
use gmm_model::structure::{Combination, MergeChange, Tree};
use serde_json::{Value, json};

use crate::render;

/// The result of the merges.
pub(super) struct Report<'a> {
    pub(super) by: &'static str,
    pub(super) tree: &'a Tree,
    /// Largest changes since the first for each number of components, without rows; or empty.
    pub(super) bounds: &'a [MergeChange],
    pub(super) criteria: Option<&'a Criteria>,
    pub(super) combination: Option<&'a Combination>,
    /// The cluster of each component.
    pub(super) clusters: &'a [usize],
    pub(super) count: usize,
}

impl Report<'_> {
    /// One object: nodes `0..k` of the tree are components, step `s` makes node `k + s`.
    pub(super) fn json(&self) -> Value {
        let tree: Vec<Value> = self
            .tree
            .joins()
            .iter()
            .map(|join| json!({"left": join.left, "right": join.right, "value": join.value, "height": join.height}))
            .collect();
        let k = self.tree.n_components();
        let trace: Vec<Value> = (0..k).map(|step| self.step(step)).collect();
        let mut all = json!({
            "criterion": self.by,
            "n_components": k,
            "count": self.count,
            "clusters": self.clusters,
            "tree": tree,
            "trace": trace,
        });
        if let Some(combination) = self.combination {
            all["elbow"] = combination.elbow().into();
        }
        all
    }

    /// What is known with `k − step` clusters. A number that is not finite is null.
    fn step(&self, step: usize) -> Value {
        let mut one = json!({"count": self.tree.n_components() - step});
        if let Some(criteria) = self.criteria {
            one["log_likelihood"] = criteria.log_likelihood[step].into();
            one["bic"] = criteria.bic[step].into();
            one["description_length"] = criteria.description_length[step].into();
        }
        if let Some(bound) = self.bounds.get(step) {
            one["bic_change_at_most"] = bound.bic.into();
            one["description_length_change_at_most"] = bound.description_length.into();
        }
        if let Some(combination) = self.combination {
            one["entropy"] = combination.entropy[step].into();
            if let Some(before) = step.checked_sub(1) {
                one["joined_weight"] = combination.joined_weight[before].into();
            }
        }
        one
    }

    /// A line per number of clusters, the chosen one marked, then the members of each cluster.
    pub(super) fn text(&self) -> String {
        let k = self.tree.n_components();
        let mut heads = vec!["count".to_owned(), "joined".to_owned(), self.by.to_owned()];
        if self.criteria.is_some() {
            heads.extend(["BIC", "description length"].map(str::to_owned));
        }
        if !self.bounds.is_empty() {
            heads.extend(["BIC by at most", "description length by at most"].map(str::to_owned));
        }
        if self.combination.is_some() {
            heads.push("entropy left".to_owned());
        }
        let mut lines = vec![heads];
        for step in 0..k {
            let join = step.checked_sub(1).map(|before| self.tree.joins()[before]);
            let mark = if k - step == self.count { "*" } else { "" };
            let mut line = vec![format!("{}{mark}", k - step)];
            line.push(join.map_or_else(
                || "-".to_owned(),
                |join| format!("{} + {}", self.members(join.left), self.members(join.right)),
            ));
            line.push(join.map_or_else(|| "-".to_owned(), |join| render::short(join.value)));
            if let Some(criteria) = self.criteria {
                line.push(render::fixed(criteria.bic[step]));
                line.push(render::fixed(criteria.description_length[step]));
            }
            if let Some(bound) = self.bounds.get(step) {
                line.push(render::fixed(bound.bic));
                line.push(render::fixed(bound.description_length));
            }
            if let Some(combination) = self.combination {
                line.push(render::fixed(combination.entropy[step]));
            }
            lines.push(line);
        }
        let mut text = aligned(&lines);
        text.push('\n');
        text += &render::clusters(self.clusters);
        text
    }

    /// The components below a node: all of few, else their number.
    fn members(&self, node: usize) -> String {
        const FEW: usize = 4;
        let (mut found, mut open) = (Vec::new(), vec![node]);
        while let Some(node) = open.pop() {
            match node.checked_sub(self.tree.n_components()) {
                None => found.push(node),
                Some(step) => open.extend([self.tree.joins()[step].left, self.tree.joins()[step].right]),
            }
        }
        found.sort_unstable();
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        match names.as_slice() {
            [one] => one.clone(),
            few if few.len() <= FEW => format!("({})", few.join(" ")),
            many => format!("({} and {} more)", many[..FEW - 1].join(" "), many.len() - (FEW - 1)),
        }
    }
}

/// Columns of text, padded to the widest cell; the first two to the left, numbers to the right.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|j| lines.iter().map(|line| line[j].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(j, (cell, &width))| match j {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}
