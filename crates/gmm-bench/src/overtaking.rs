//! Finds the size from which a GPU is faster than the CPU, with and without transfers.

use crate::Row;

/// The GPU times that are compared: the column's name, and a description of what the time includes.
const ON_GPU: [(&str, &str); 3] =
    [("ms", "with all transfers"), ("resident_ms", "A resident"), ("device_ms", "all on the device")];

/// The comparison of one of a GPU's times with the CPU's, over all sizes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Overtaking {
    /// Engine or peer on a GPU.
    pub(crate) engine: String,
    /// `f32` or `f64`.
    pub(crate) precision: String,
    /// What the GPU's time includes.
    pub(crate) with: &'static str,
    /// The smallest size from which the GPU is faster at every size; `None` if it is not faster at the largest.
    pub(crate) from: Option<usize>,
    /// The largest size at which both have times.
    pub(crate) largest: usize,
    /// The CPU's time divided by the GPU's at the largest size.
    pub(crate) ratio: f64,
}

/// A measured size, from a [`Row`] or read back from a record.
pub(crate) struct Point<'a> {
    pub(crate) engine: &'a str,
    pub(crate) precision: &'a str,
    pub(crate) n: usize,
    /// Its times in milliseconds, in the order of [`columns`].
    pub(crate) ms: [Option<f64>; 3],
}

/// The columns that are compared.
pub(crate) fn columns() -> [&'static str; 3] {
    ON_GPU.map(|(column, _)| column)
}

/// Compares every engine and peer on a GPU with our CPU engine, over square products.
pub(crate) fn of(points: &[Point<'_>]) -> Vec<Overtaking> {
    let mut out: Vec<Overtaking> = Vec::new();
    let on_gpu = |engine: &str| engine.contains("cuda") || engine == "cupy";
    for point in points.iter().filter(|point| on_gpu(point.engine)) {
        for (at, (_, with)) in ON_GPU.into_iter().enumerate() {
            let same = |other: &Overtaking| {
                (other.engine.as_str(), other.precision.as_str(), other.with) == (point.engine, point.precision, with)
            };
            if out.iter().any(same) {
                continue;
            }
            let like = |engine: &str| {
                let own = points.iter().filter(move |p| (p.engine, p.precision) == (engine, point.precision));
                own.map(|p| (p.n, p.ms)).collect::<Vec<_>>()
            };
            let cpu = like("cpu");
            let mut pairs: Vec<(usize, f64)> = like(point.engine)
                .into_iter()
                .filter_map(|(n, ms)| {
                    let ours = cpu.iter().find(|(size, _)| *size == n)?.1[0]?;
                    Some((n, ours / ms[at]?))
                })
                .collect();
            pairs.sort_by_key(|(n, _)| *n);
            let Some(&(largest, ratio)) = pairs.last() else {
                continue;
            };
            let from = pairs.iter().rev().take_while(|(_, ratio)| *ratio > 1.0).last().map(|(n, _)| *n);
            let (engine, precision) = (point.engine.to_owned(), point.precision.to_owned());
            out.push(Overtaking { engine, precision, with, from, largest, ratio });
        }
    }
    out
}

/// The comparisons for the terminal, one per line; empty if nothing was compared.
pub(crate) fn text(rows: &[Row]) -> String {
    let square = rows.iter().filter(|row| row.what == "product" && row.n == row.k && row.n == row.d);
    let points: Vec<Point<'_>> = square
        .map(|row| {
            let ms = [row.ms, row.resident_ms, row.device_ms];
            Point { engine: &row.engine, precision: row.precision.name(), n: row.n, ms }
        })
        .collect();
    of(&points).into_iter().map(|one| format!("# {}\n", one.sentence())).collect()
}

impl Overtaking {
    /// The comparison as a sentence.
    fn sentence(&self) -> String {
        let Self { engine, precision, with, from, largest, ratio } = self;
        let from = match from {
            Some(from) => format!("faster than cpu from n = {from} upwards"),
            None => "not faster than cpu at the largest".to_owned(),
        };
        format!("{engine}, {precision}, {with}: {from}; {ratio:.2} times as fast at n = {largest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_size_from_which_on_every_one_is_faster_is_found() {
        let point = |engine, n, ms| Point { engine, precision: "f64", n, ms };
        let cpu =
            [(64, 1.0), (128, 2.0), (256, 8.0), (512, 64.0)].map(|(n, ms)| point("cpu", n, [Some(ms), None, None]));
        // Faster at 64 but slower at 128, so 64 does not count.
        let whole = [(64, 0.5), (128, 3.0), (256, 4.0), (512, 16.0)];
        let gpu = whole.map(|(n, ms)| point("cuda:0", n, [Some(ms), Some(10.0 * ms), None]));
        let points: Vec<_> = cpu.into_iter().chain(gpu).collect();
        let found = of(&points);
        let told: Vec<_> = found.iter().map(|one| (one.with, one.from, one.largest, one.ratio)).collect();
        assert_eq!(told, [("with all transfers", Some(256), 512, 4.0), ("A resident", None, 512, 0.4)]);
        assert!(found[0].sentence().contains("from n = 256 upwards; 4.00 times"), "{}", found[0].sentence());
    }
}
