//! Sizes in bytes as messages show them.

/// A size for people: `1.5 GiB`.
pub(crate) fn shown(bytes: u128) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| bytes >= 1 << bits) {
        Some((name, bits)) => format!("{:.1} {name}", bytes as f64 / (1u64 << bits) as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_they_fill() {
        for (bytes, text) in [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")] {
            assert_eq!(shown(bytes), text);
        }
    }
}
