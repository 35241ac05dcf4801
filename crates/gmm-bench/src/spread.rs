//! Median, quartiles, minimum and maximum of several measurements.

/// Summary of several measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; of an even number, the mean of the middle two.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// The medians of the lower and the upper half; a middle value belongs to both.
    pub quartiles: [f64; 2],
}

impl Spread {
    /// Summarises measurements.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let middle = |values: &[f64]| (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        let half = n.div_ceil(2);
        let quartiles = [middle(&values[..half]), middle(&values[n - half..])];
        Self { median: middle(&values), min: values[0], max: values[n - 1], quartiles }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        let even = Spread { median: 3.0, min: 1.0, max: 9.0, quartiles: [1.5, 6.5] };
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 9.0]), even);
        let odd = Spread { median: 2.0, min: 1.0, max: 4.0, quartiles: [1.5, 3.0] };
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0]), odd);
    }
}
