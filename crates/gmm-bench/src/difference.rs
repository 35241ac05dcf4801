//! Measures of an answer's error. The error is infinite if a value is NaN or the lengths differ.

/// Returns `|found - truth| / |truth|` for two numbers.
pub fn relative(found: f64, truth: f64) -> f64 {
    largest(&[found], &[truth])
}

/// Returns the largest `|found - truth|` divided by the largest `|truth|`, for two arrays.
pub fn largest(found: &[f64], truth: &[f64]) -> f64 {
    if found.len() != truth.len() || found.iter().zip(truth).any(|(a, b)| !(a - b).is_finite()) {
        return f64::INFINITY;
    }
    let off = found.iter().zip(truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    off / truth.iter().map(|v| v.abs()).fold(f64::MIN_POSITIVE, f64::max)
}

/// Returns the largest difference between entries of two arrays, as measured by `of`.
pub fn largest_of(found: &[f64], truth: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    if found.len() != truth.len() {
        return f64::INFINITY;
    }
    let off = found.iter().zip(truth).map(|(a, b)| of(*a, *b));
    off.map(|v| if v.is_nan() { f64::INFINITY } else { v }).fold(0.0, f64::max)
}

/// Returns `‖found - times*truth‖ / ‖times*truth‖`, in the Frobenius norm, for two arrays.
pub fn frobenius(found: &[f64], truth: &[f64], times: f64) -> f64 {
    if found.len() != truth.len() {
        return f64::INFINITY;
    }
    let off: f64 = found.iter().zip(truth).map(|(f, t)| (f - times * t).powi(2)).sum();
    let size: f64 = truth.iter().map(|t| (times * t).powi(2)).sum();
    let error = (off / size.max(f64::MIN_POSITIVE)).sqrt();
    if error.is_finite() { error } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_relative_to_the_largest_entry_of_the_array() {
        assert_eq!((relative(99.0, 100.0), largest(&[1.0, 200.0], &[2.0, 200.0])), (0.01, 0.005));
        assert_eq!(frobenius(&[6.0, 8.0], &[3.0, 4.0], 2.0), 0.0);
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_wrong() {
        let nan = f64::NAN;
        assert_eq!([relative(nan, 1.0), largest(&[nan], &[1.0]), frobenius(&[nan], &[1.0], 1.0)], [f64::INFINITY; 3]);
        assert_eq!([largest(&[], &[1.0]), frobenius(&[], &[1.0], 1.0)], [f64::INFINITY; 2]);
        let off = |found: &[f64]| largest_of(found, &[1.0, 3.0], |a, b| (a - b).abs());
        assert_eq!([off(&[nan, 3.0]), off(&[1.0]), off(&[1.5, 1.0])], [f64::INFINITY, f64::INFINITY, 2.0]);
    }
}
