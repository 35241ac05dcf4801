//! A measured size, and reading it back from a record.

use anyhow::{Context, Result, ensure};
use gmm_plot::Record;

use super::points::{NEIGHBOURS, Sweep};
use crate::definition::Shape;
use gmm_bench::flops;

/// Columns of the record.
pub(super) const COLUMNS: &str = "sweep,covariance,precision,n,k,d,verdict,ms,floor_ms,floor_share,gflops,way,clock,samples,\
     checked_rows,sums_error,offset_error,loop_error,note";

/// A size of a sweep, and the time of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) sweep: Sweep,
    /// Covariance kind and precision: `full-f32`.
    pub(super) series: String,
    pub(super) shape: Shape,
    /// Milliseconds; `None` if the answer is wrong or missing, or the size was left out.
    pub(super) ms: Option<f64>,
    pub(super) floor_ms: f64,
}

impl Point {
    pub(super) fn share(&self) -> Option<f64> {
        Some(self.floor_ms / self.ms?)
    }

    /// Picoseconds per counted operation.
    fn cost(&self) -> Option<f64> {
        let kind = self.series.split('-').next()?.parse().ok()?;
        Some(1e9 * self.ms? / flops::per_iteration(kind, self.shape))
    }
}

/// Reads the points of a growth record.
///
/// # Errors
/// If it is another kind of record, or a field cannot be parsed.
pub(super) fn points(record: &Record) -> Result<Vec<Point>> {
    ensure!(record.columns().join(",") == COLUMNS, "these are not the columns of a record of growth");
    record
        .lines()
        .map(|line| {
            let text = |column: &str| line.text(column).with_context(|| format!("a line without {column}"));
            let size = |column: &str| Ok::<usize, anyhow::Error>(text(column)?.parse()?);
            let sweep = text("sweep")?;
            let sweep = Sweep::ALL.into_iter().find(|s| s.name() == sweep).with_context(|| format!("sweep {sweep}"))?;
            let ms = line.text("ms").map(str::parse).transpose()?;
            let shape = Shape { n: size("n")?, k: size("k")?, d: size("d")? };
            let series = format!("{}-{}", text("covariance")?, text("precision")?);
            Ok(Point { sweep, series, shape, ms, floor_ms: text("floor_ms")?.parse()? })
        })
        .collect()
}

/// Ratio of neighbours' costs per operation above which they count as a cliff.
const CLIFF: f64 = 1.5;

/// Describes the groups of neighbours whose costs per operation differ by more than [`CLIFF`]; also returns the number
/// of groups compared.
pub(super) fn cliffs(points: &[Point]) -> (Vec<String>, usize) {
    let (mut out, mut compared) = (Vec::new(), 0);
    let mut series: Vec<&str> = points.iter().map(|point| point.series.as_str()).collect();
    series.sort_unstable();
    series.dedup();
    for (sweep, sizes) in NEIGHBOURS {
        for series in &series {
            let near = points.iter().filter(|p| p.sweep == sweep && p.series == *series);
            let near = near.filter(|p| sizes.contains(&sweep.of(p.shape)));
            let costs: Vec<(usize, f64)> = near.filter_map(|p| Some((sweep.of(p.shape), p.cost()?))).collect();
            let by_cost = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
            let (Some(least), Some(most)) = (costs.iter().min_by(by_cost), costs.iter().max_by(by_cost)) else {
                continue;
            };
            compared += usize::from(costs.len() > 1);
            let factor = most.1 / least.1;
            if factor > CLIFF {
                let name = sweep.name();
                let [dear, cheap] = [most, least].map(|(size, ps)| format!("{name}={size} ({ps:.4} ps an operation)"));
                out.push(format!("{series}: {dear} costs {factor:.2} times {cheap}"));
            }
        }
    }
    (out, compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(k: usize, ms: &str) -> String {
        format!("k,diag,f32,100000,{k},16,ok,{ms},0.03125,0.25,1.0,large,device,5,1000,1e-7,1e-7,1e-7,")
    }

    #[test]
    fn a_record_is_read_back_and_a_cliff_in_it_is_found() {
        let record = |at_33: &str| format!("# date: now\n{COLUMNS}\n{}\n{}\n", line(32, "0.12500"), line(33, at_33));
        let parse = |text: String| points(&Record::parse(&text).unwrap()).unwrap();
        let points = parse(record("0.13000"));
        assert_eq!((points[0].series.as_str(), points[0].share()), ("diag-f32", Some(0.25)));
        assert_eq!(cliffs(&points), (Vec::new(), 1));
        let (found, compared) = cliffs(&parse(record("0.25000")));
        assert!(compared == 1 && found.len() == 1 && found[0].contains("k=33"), "{found:?}");
        assert!(found[0].contains("1.94 times k=32"), "{found:?}");
        // A size without a time is not compared.
        assert_eq!(cliffs(&parse(record(""))), (Vec::new(), 0));
    }

    #[test]
    fn what_is_no_record_of_growth_is_refused() {
        let refused = |text: &str| Record::parse(text).map_or(true, |record| points(&record).is_err());
        assert!(refused("what,ms\nem,1\n") && refused(&format!("{COLUMNS}\nk,diag\n")));
        assert!(
            refused(&format!("{COLUMNS}\n{}\n", line(3, "much"))) && !refused(&format!("{COLUMNS}\n{}\n", line(3, "")))
        );
    }
}
