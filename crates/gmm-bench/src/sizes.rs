//! The sizes of a definition: lists of rows, components and columns, and the shapes that they make.

use serde::Deserialize;

/// A sweep: all combinations of its lists of sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Short name, used in the record.
    pub name: String,
    /// Rows.
    pub n: Sizes,
    /// Components.
    pub k: Sizes,
    /// Columns.
    pub d: Sizes,
}

/// One size or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Sizes {
    /// Always equal to the number of rows.
    Same(Same),
    /// A fixed size.
    One(usize),
    /// Several sizes.
    Many(Vec<usize>),
}

/// The size that another one equals.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Same {
    /// `"n"`: the rows.
    #[serde(rename = "n")]
    Rows,
}

impl Sizes {
    /// The listed sizes; empty for [`Sizes::Same`].
    pub fn all(&self) -> &[usize] {
        match self {
            Self::Same(Same::Rows) => &[],
            Self::One(size) => std::slice::from_ref(size),
            Self::Many(sizes) => sizes,
        }
    }

    /// The sizes; a single `None` for [`Sizes::Same`].
    fn each(&self) -> Vec<Option<usize>> {
        match self {
            Self::Same(Same::Rows) => vec![None],
            _ => self.all().iter().copied().map(Some).collect(),
        }
    }
}

/// A size: rows, components, dimensions.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Rows.
    pub n: usize,
    /// Components.
    pub k: usize,
    /// Dimensions.
    pub d: usize,
}

impl Shape {
    /// The product `n*k*d`.
    pub const fn work(self) -> f64 {
        self.n as f64 * self.k as f64 * self.d as f64
    }
}

impl Sweep {
    /// The combinations of its sizes, `d` outermost and `n` innermost.
    pub fn shapes(&self) -> Vec<Shape> {
        let n = |d, k: Option<usize>| self.n.all().iter().map(move |n| (*n, k.unwrap_or(*n), d));
        let nk = |d| self.k.each().into_iter().flat_map(move |k| n(d, k));
        let all = self.d.each().into_iter().flat_map(nk);
        all.map(|(n, k, d): (_, _, Option<usize>)| Shape { n, k, d: d.unwrap_or(n) }).collect()
    }

    /// Restricts a sweep of products to sizes with at most this work, or, if there are none, to its first size with a
    /// `k` small enough.
    pub(crate) fn quick_product(&mut self, work: f64) {
        let first = self.shapes()[0];
        let small: Vec<usize> =
            self.shapes().into_iter().filter(|shape| shape.work() <= work).map(|shape| shape.n).collect();
        if small.is_empty() {
            let k = (work / (first.n * first.d) as f64) as usize;
            (self.n, self.k, self.d) = (Sizes::One(first.n), Sizes::One(k.max(1)), Sizes::One(first.d));
        } else {
            self.n = Sizes::Many(small);
        }
    }
}
