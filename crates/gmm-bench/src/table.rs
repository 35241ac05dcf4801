//! The table printed on the terminal.

use gmm_model::CovarianceType;

use crate::row::{Row, Status};

/// The table's heading.
pub(crate) fn heading() -> String {
    let key = format!("{:17} {:9} {:4} {:>8} {:>5} {:>4}", "engine", "kind", "", "n", "k", "d");
    let times = format!("{:>10} {:>23} {:>9} {:>9} {:>9}", "ms", "(quartiles)", "load", "inner", "device");
    format!("{key} {times} {:>8}  {}", "error", "way, note")
}

/// A row of the table.
pub(crate) fn line(row: &Row) -> String {
    let Row { engine, covariance, precision, n, k, d, .. } = row;
    let covariance = covariance.map_or("", CovarianceType::name);
    let key = format!("{engine:17} {covariance:9} {precision:4} {n:>8} {k:>5} {d:>4}");
    let Some(ms) = row.ms else {
        return format!("{key} {:>10} {}", row.status.name(), row.note);
    };
    let number = |value: Option<f64>| value.map_or_else(String::new, short);
    let quartiles = row.ms_q1.zip(row.ms_q3).map(|(a, b)| format!("({} – {})", short(a), short(b)));
    let error = row.error.map_or_else(String::new, |error| format!("{error:.0e}"));
    let mut notes: Vec<&str> = [row.way.as_str(), &row.note].into_iter().filter(|text| !text.is_empty()).collect();
    if row.status == Status::Disturbed {
        notes.push("disturbed");
    }
    let [load, inner, device] =
        [row.load_ms, row.em_ms.or(row.batch_ms).or(row.resident_ms), row.device_ms].map(number);
    let times = format!("{:>10} {:>23} {load:>9} {inner:>9} {device:>9}", short(ms), quartiles.unwrap_or_default());
    format!("{key} {times} {error:>8}  {}", notes.join(", ")).trim_end().to_owned()
}

/// Formats a number with four significant digits in plain notation.
pub(crate) fn short(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = usize::try_from((3 - magnitude).clamp(0, 7)).unwrap_or(0);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!([0.0012345, 1.0, 12.3456, 123_456.7].map(short), ["0.001234", "1.000", "12.35", "123457"]);
    }

    #[test]
    fn a_row_says_what_there_is_and_why_there_is_nothing() {
        let mut row = Row::new("em", "n", "cpu", Shape { n: 100, k: 8, d: 2 });
        row.note = "a call would take about 90 s".to_owned();
        row.status = Status::Left;
        assert!(line(&row).ends_with("left a call would take about 90 s"), "{}", line(&row));
        row.time(vec![0.002]);
        (row.note, row.way, row.status) = (String::new(), "fused".to_owned(), Status::Disturbed);
        assert!(line(&row).contains(" 2.000 ") && line(&row).ends_with("fused, disturbed"), "{}", line(&row));
    }
}
