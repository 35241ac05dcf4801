//! Median, least and largest of several measurements.

/// What is recorded of several measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one measurement.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        Self { median: (values[(n - 1) / 2] + values[n / 2]) / 2.0, min: values[0], max: values[n - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 9.0]), Spread { median: 3.0, min: 1.0, max: 9.0 });
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 4.0 });
    }
}
