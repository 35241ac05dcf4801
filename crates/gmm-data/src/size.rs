//! Sizes in bytes as users write them.

/// Units and their bytes. `K`, `M`, `G` and `T` are powers of 1024, as in `ulimit` and `dd`.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Parses a size such as `8GiB`, `500M`, `1.5 GB` or `1000000`, at least one byte.
///
/// # Errors
/// A text that says what a size looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || "it must be a size in bytes, such as 8GiB, 500M (MiB) or 2000000".to_owned();
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim().to_uppercase());
    let unit = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?.1;
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.saturating_mul(unit),
        // The conversion saturates, and no number of only digits and a point is NaN.
        Err(_) => (number.parse::<f64>().map_err(|_| bad())? * unit as f64) as u64,
    };
    if bytes == 0 { Err("it must be at least one byte".to_owned()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("1", 1),
            ("2000000", 2_000_000),
            ("8GiB", 8 << 30),
            ("8g", 8 << 30),
            ("500M", 500 << 20),
            ("500 MB", 500_000_000),
            ("1.5KiB", 1536),
            ("0.5T", 1 << 39),
            ("99999999999999999999", u64::MAX),
            ("99999999999G", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "1e9", "8 apples", "1..5", "0", "0.1", "0GiB", "inf", "."] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
