//! The sizes at which growth is measured, and the floor of each.

use gmm_model::{CovarianceType, Precision};

use crate::definition::Shape;
use gmm_bench::flops;

/// Numbers of rows, from a thousand to a hundred million.
const ROWS: [usize; 11] =
    [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000];
/// Numbers of components: powers of two, and neighbouring sizes between which kernels change.
const COMPONENTS: [usize; 29] = [
    1, 2, 4, 8, 9, 13, 14, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 80, 81, 104, 105, 127, 128, 129, 256, 512, 1024,
    2048, 4096,
];
/// Numbers of columns, chosen likewise.
const COLUMNS: [usize; 25] =
    [1, 2, 4, 8, 13, 14, 16, 17, 31, 32, 33, 55, 56, 63, 64, 65, 96, 97, 127, 128, 129, 192, 256, 384, 512];

/// Groups of neighbouring sizes, whose costs per operation should be about the same.
pub(super) const NEIGHBOURS: [(Sweep, &[usize]); 14] = [
    (Sweep::Components, &[8, 9]),
    (Sweep::Components, &[13, 14, 16, 17]),
    (Sweep::Components, &[31, 32, 33]),
    (Sweep::Components, &[48, 49]),
    (Sweep::Components, &[63, 64, 65]),
    (Sweep::Components, &[80, 81]),
    (Sweep::Components, &[104, 105]),
    (Sweep::Components, &[127, 128, 129]),
    (Sweep::Columns, &[13, 14, 16, 17]),
    (Sweep::Columns, &[31, 32, 33]),
    (Sweep::Columns, &[55, 56]),
    (Sweep::Columns, &[63, 64, 65]),
    (Sweep::Columns, &[96, 97]),
    (Sweep::Columns, &[127, 128, 129]),
];

/// The default number of components.
pub(super) const USUAL_COMPONENTS: usize = 16;

/// The size that grows while the others are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// `n`, at d=16 and a given number of components.
    Rows,
    /// `k`, at N=1e5 and d=16.
    Components,
    /// `d`, at N=1e5 and a given number of components.
    Columns,
}

impl Sweep {
    pub(super) const ALL: [Self; 3] = [Self::Rows, Self::Components, Self::Columns];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rows => "n",
            Self::Components => "k",
            Self::Columns => "d",
        }
    }

    /// Its shapes in ascending order; `components` is the number of components unless that is what grows.
    pub(super) fn shapes(self, components: usize) -> Vec<Shape> {
        match self {
            Self::Rows => ROWS.iter().map(|n| Shape { n: *n, k: components, d: 16 }).collect(),
            Self::Components => COMPONENTS.iter().map(|k| Shape { n: 100_000, k: *k, d: 16 }).collect(),
            Self::Columns => COLUMNS.iter().map(|d| Shape { n: 100_000, k: components, d: *d }).collect(),
        }
    }

    /// The growing size of a shape.
    pub(super) const fn of(self, shape: Shape) -> usize {
        match self {
            Self::Rows => shape.n,
            Self::Components => shape.k,
            Self::Columns => shape.d,
        }
    }

    /// Its kinds and precisions. Rows are swept only in `f32`, which halves the memory of the largest size.
    pub(super) fn series(self) -> Vec<(CovarianceType, Precision)> {
        let kinds = [CovarianceType::Full, CovarianceType::Diag];
        let precisions: &[Precision] =
            if self == Self::Rows { &[Precision::F32] } else { &[Precision::F32, Precision::F64] };
        kinds.into_iter().flat_map(|kind| precisions.iter().map(move |precision| (kind, *precision))).collect()
    }
}

/// Minimum milliseconds on an H200: the larger of counted operations at the measured ceiling and one read of the rows
/// at 4 TB/s.
pub(super) fn floor_ms(kind: CovarianceType, precision: Precision, shape: Shape) -> f64 {
    // As in the table of workloads: f64 on the tensor cores (W4-full-f64), and f32 as three fp16 products
    // (W4-full-f32).
    let (ceiling, bytes) = match precision {
        Precision::F32 => (142e12, 4.0),
        Precision::F64 => (61e12, 8.0),
    };
    let read = bytes * shape.n as f64 * shape.d as f64 / 4e12;
    1e3 * read.max(flops::per_iteration(kind, shape) / ceiling)
}

/// Number of distinct rows with which the answer is checked: as many as the reference sums in about a second on 16
/// cores. It divides every `n` above, and is not a multiple of a tile's size.
pub(super) fn checked(shape: Shape) -> usize {
    let each = (shape.k * shape.d * shape.d) as f64;
    [1000, 500, 250, 125].into_iter().find(|rows| *rows as f64 * each <= 1e9).unwrap_or(50)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_neighbour_is_measured_and_checked_rows_repeat_without_a_rest() {
        for (sweep, sizes) in NEIGHBOURS {
            let measured: Vec<usize> =
                sweep.shapes(USUAL_COMPONENTS).into_iter().map(|shape| sweep.of(shape)).collect();
            assert!(sizes.iter().all(|size| measured.contains(size)), "{sizes:?}");
        }
        for shape in
            Sweep::ALL.into_iter().flat_map(|sweep| [sweep.shapes(USUAL_COMPONENTS), sweep.shapes(64)].concat())
        {
            let checked = checked(shape);
            assert!(shape.n.is_multiple_of(checked) && !checked.is_multiple_of(128), "{shape:?}");
        }
    }

    #[test]
    fn floors_are_those_of_the_table_of_workloads() {
        let w4 = Shape { n: 1_000_000, k: 64, d: 32 };
        assert!((floor_ms(CovarianceType::Full, Precision::F32, w4) - 0.95).abs() < 0.01);
        assert!((floor_ms(CovarianceType::Full, Precision::F64, w4) - 2.2).abs() < 0.03);
        // With few components, reading the rows takes longer than the arithmetic.
        let one = Shape { n: 1_000_000, k: 1, d: 1 };
        assert_eq!(floor_ms(CovarianceType::Diag, Precision::F64, one), 8e6 / 4e12 * 1e3);
    }
}
