//! Maps values to positions along an axis, and chooses round values for its ticks.

use crate::font;
use crate::style::SMALL;

/// The range of values of an axis, linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

/// The ticks of an axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ticks {
    /// Values with their labels.
    pub(crate) major: Vec<(f64, String)>,
    /// Values of the unlabelled ticks between them.
    pub(crate) minor: Vec<f64>,
    /// The offset subtracted from every value before it is labelled, as text: ` − 1000000`. Empty unless the values
    /// differ only in late digits.
    pub(crate) less: String,
}

/// Number of characters beyond which a label is written relative to an offset.
const LONG: i32 = 7;

impl Scale {
    /// A linear scale over the finite values, extended by `share` of their span on either side. If all values are
    /// equal, a span around them is chosen.
    pub(crate) fn linear(values: impl IntoIterator<Item = f64>, share: f64) -> Self {
        let (least, most) = ends(values.into_iter().filter(|v| v.is_finite())).unwrap_or((0.0, 1.0));
        let size = least.abs().max(most.abs());
        let span = match most / 2.0 - least / 2.0 {
            0.0 if size == 0.0 => 0.5,
            0.0 => 0.05 * size,
            // At least large enough to be divided in f64.
            span => span.max(1e-13 * size),
        };
        let span = span.max(1e-290);
        let middle = least / 2.0 + most / 2.0;
        let half = span * (1.0 + 2.0 * share);
        Self { from: (middle - half).max(f64::MIN), to: (middle + half).min(f64::MAX), log: false }
    }

    /// A logarithmic scale over the finite values above 0, extended by `share` of their logarithmic span on either
    /// side.
    pub(crate) fn logarithmic(values: impl IntoIterator<Item = f64>, share: f64) -> Self {
        let logs = values.into_iter().filter(|v| v.is_finite() && *v > 0.0).map(f64::log10);
        let (least, most) = ends(logs).unwrap_or((0.0, 1.0));
        let span = (most - least).max(0.1);
        let half = span * (0.5 + share);
        let middle = f64::midpoint(least, most);
        let of = |v: f64| 10f64.powf(v.clamp(-307.0, 308.0));
        Self { from: of(middle - half), to: of(middle + half), log: true }
    }

    /// A linear scale from one value to another.
    pub(crate) const fn between(from: f64, to: f64) -> Self {
        Self { from, to, log: false }
    }

    /// The position of a value on the axis: 0 at the start, 1 at the end.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let Self { from, to, log } = *self;
        if log {
            return (value.log10() - from.log10()) / (to.log10() - from.log10());
        }
        // Computed from halves, since the span itself may overflow.
        (value / 2.0 - from / 2.0) / (to / 2.0 - from / 2.0)
    }

    /// Whether the value lies on the axis.
    pub(crate) fn has(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.share(value))
    }

    pub(crate) const fn ends(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// As many ticks as fit on an axis of this length, in pixels. `across` is whether the axis is horizontal, so that
    /// labels are side by side.
    pub(crate) fn ticks(&self, length: f64, across: bool) -> Ticks {
        self.ticks_where(length, across, |_| true)
    }

    /// As [`ticks`](Self::ticks), but only ticks for which `allowed` is true.
    pub(crate) fn ticks_where(&self, length: f64, across: bool, allowed: impl Fn(&Ticks) -> bool) -> Ticks {
        // Short horizontal axes still try four ticks, which fit if the labels are short.
        let most = if across { (length / 44.0).max(4.0) } else { (length / 26.0).max(2.0) }.min(9.0) as usize;
        let fits = |ticks: &Ticks| {
            let mut end = f64::NEG_INFINITY;
            ticks.major.iter().all(|(value, label)| {
                let (at, half) =
                    (self.share(*value) * length, if across { font::width(label, SMALL) / 2.0 } else { SMALL / 2.0 });
                let room = at - half >= end;
                end = at + half + if across { 8.0 } else { 4.0 };
                room
            })
        };
        let of = |count| if self.log { self.decades(count) } else { self.steps(count) };
        (2..=most).rev().map(of).find(|ticks| fits(ticks) && allowed(ticks)).unwrap_or_else(|| {
            let mut ticks = of(2);
            ticks.major.truncate(1);
            ticks
        })
    }

    /// At most `count` ticks at multiples of 1, 2 or 5 times a power of ten (one more if both ends are multiples).
    fn steps(&self, count: usize) -> Ticks {
        // Computed from half the span, since the span itself may overflow.
        let wanted = (self.to / 2.0 - self.from / 2.0) * (2.0 / count as f64);
        let power = wanted.log10().floor() as i32;
        let of = |digit: i32| f64::from(digit) * 10f64.powi(power);
        let digit = [1, 2, 5, 10].into_iter().find(|digit| of(*digit) >= wanted * (1.0 - 1e-9)).unwrap_or(10);
        let step = of(digit);
        if !step.is_normal() {
            return Ticks::default();
        }
        let (first, last) = ((self.from / step - 1e-9).ceil(), (self.to / step + 1e-9).floor());
        let indices: Vec<f64> = (0..=(last - first).clamp(0.0, 20.0) as usize).map(|i| first + i as f64).collect();
        // Power of ten of the last digit in which ticks differ.
        let digits = power + i32::from(digit == 10);
        let largest = (first.abs().max(last.abs()) * step).max(step);
        let magnitude = largest.log10().floor() as i32;
        // If the labels would be long, the roundest tick is subtracted from all of them.
        let long = if magnitude >= 6 || digits < -5 { LONG - 3 } else { LONG - 1 };
        let (base, less) = if magnitude - digits >= long {
            let multiple = |power: i32| (first / 10f64.powi(power)).ceil() * 10f64.powi(power);
            let base = (0..=15).rev().map(multiple).find(|index| *index <= last).unwrap_or(first);
            let value = base * step;
            (base, format!(" {} {}", if value < 0.0 { '+' } else { '−' }, exact(value.abs(), digits)))
        } else {
            (0.0, String::new())
        };
        let rest: Vec<f64> = indices.iter().map(|i| (i - base) * step).collect();
        let most = rest.iter().fold(0.0_f64, |most, v| most.max(v.abs())).max(step);
        let label = |v: &f64| number(*v, most, digits);
        Ticks { major: indices.iter().zip(&rest).map(|(i, v)| (i * step, label(v))).collect(), minor: Vec::new(), less }
    }

    /// At most `count` ticks at powers of ten; if there are few powers, also at multiples of them.
    fn decades(&self, count: usize) -> Ticks {
        let (low, high) = (self.from.log10(), self.to.log10());
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let within = |v: &f64| self.has(*v);
        let powers: Vec<i32> = (first..=last).filter(|p| self.has(10f64.powi(*p))).collect();
        let times = |digits: &[u32]| -> Vec<f64> {
            (first..=last)
                .flat_map(|p| digits.iter().map(move |d| f64::from(*d) * 10f64.powi(p)))
                .filter(within)
                .collect()
        };
        let values = if powers.len() >= 3 || (powers.len() == 2 && count < 4) {
            let every = powers.len().div_ceil(count).max(1) as i32;
            powers.iter().filter(|p| p.rem_euclid(every) == 0).map(|p| 10f64.powi(*p)).collect()
        } else {
            // As fine as `count` allows.
            let [some, most] = [times(&[1, 2, 5]), times(&[1, 2, 3, 4, 5, 6, 7, 8, 9])];
            match (most.len() <= count, some.len() <= count && some.len() > 1) {
                (true, _) => most,
                (_, true) => some,
                _ => {
                    let coarse = times(&[1, 3]);
                    if coarse.len() > 1 && coarse.len() <= count {
                        coarse
                    } else {
                        powers.iter().map(|p| 10f64.powi(*p)).collect()
                    }
                }
            }
        };
        let minor = if powers.len() <= 10 { times(&[2, 3, 4, 5, 6, 7, 8, 9]) } else { Vec::new() };
        let minor = minor.into_iter().filter(|v| !values.contains(v)).collect();
        // All labels have the same notation: an axis with both 0.01 and 10⁵ is hard to read.
        let plain = first >= -4 && last <= 6;
        let label = |v: f64| if plain { plain_number(v) } else { power_number(v) };
        Ticks { major: values.iter().map(|v| (*v, label(*v))).collect(), minor, less: String::new() }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, v| Some(ends.map_or((v, v), |(least, most): (f64, f64)| (least.min(v), most.max(v)))))
}

/// Formats a multiple of `10^last` with the decimals and power of ten that suit `most`, the largest tick value, so that
/// all labels of an axis have the same notation.
fn number(value: f64, most: f64, last: i32) -> String {
    let magnitude = most.log10().floor() as i32;
    let text = if magnitude >= 6 || last < -5 {
        if value == 0.0 {
            return "0".to_owned();
        }
        let decimals = (magnitude - last).clamp(0, 17) as usize;
        // Scaled in two steps: 10^magnitude alone would underflow to 0.
        let scaled =
            if magnitude < -290 { value * 1e300 / 10f64.powi(magnitude + 300) } else { value / 10f64.powi(magnitude) };
        format!("{scaled:.decimals$}×10{}", raised(magnitude))
    } else {
        let decimals = (-last).clamp(0, 17) as usize;
        format!("{value:.decimals$}")
    };
    let text =
        if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') { text.replace('-', "") } else { text };
    text.replace('-', "−")
}

/// Formats a number exactly down to the digit `10^last`.
fn exact(value: f64, last: i32) -> String {
    let decimals = (-last).clamp(0, 17) as usize;
    let magnitude = value.log10().floor() as i32;
    if (-5..15).contains(&magnitude) {
        let text = format!("{value:.decimals$}");
        return if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    }
    let text = format!("{value:e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{digits}×10{}", raised(power.parse().unwrap_or(0)))
}

/// Formats a number of one significant digit in plain notation: 0.02, 500.
pub(crate) fn plain_number(value: f64) -> String {
    let decimals = (-(value.abs().log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize;
    format!("{value:.decimals$}").replace('-', "−")
}

/// Formats a number of one significant digit as a digit and a power of ten: 10⁵, 2×10⁵.
fn power_number(value: f64) -> String {
    let power = (value.log10() + 1e-9).floor() as i32;
    let digit = (value / 10f64.powi(power)).round();
    let ten = format!("10{}", raised(power));
    if digit == 1.0 { ten } else { format!("{digit}×{ten}") }
}

/// An integer in superscript.
fn raised(power: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let of = |c: char| c.to_digit(10).map_or('⁻', |d| DIGITS[d as usize]);
    power.to_string().chars().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, length: f64) -> Vec<String> {
        scale.ticks(length, true).major.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_lie_on_the_axis() {
        assert_eq!(labels(Scale::between(0.0, 10.0), 300.0), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(Scale::between(-0.3, 0.31), 300.0), ["−0.2", "0.0", "0.2"]);
        assert_eq!(labels(Scale::between(1e6, 5e6), 400.0), ["1×10⁶", "2×10⁶", "3×10⁶", "4×10⁶", "5×10⁶"]);
        assert_eq!(labels(Scale::between(-2e-9, 2e-9), 300.0), ["−2×10⁻⁹", "−1×10⁻⁹", "0", "1×10⁻⁹", "2×10⁻⁹"]);
        for (from, to) in
            [(0.1, 0.7), (-1e200, 3e200), (1e-200, 2e-200), (f64::MIN, f64::MAX), (-7.0, 1e-3), (1e9, 1e9 + 3.0)]
        {
            let scale = Scale::linear([from, to], 0.05);
            for across in [true, false] {
                let ticks = scale.ticks(260.0, across);
                assert!(
                    ticks.major.len() > 1 && ticks.major.iter().all(|(v, _)| scale.has(*v)),
                    "{from:e} {to:e}: {ticks:?}"
                );
                let mut labels: Vec<_> = ticks.major.iter().map(|(_, label)| label).collect();
                labels.dedup();
                assert_eq!(labels.len(), ticks.major.len(), "labels differ: {ticks:?}");
                assert!(labels.iter().all(|label| label.chars().count() <= 10), "{labels:?}");
            }
        }
    }

    #[test]
    fn digits_that_do_not_differ_are_taken_out_of_the_labels() {
        let ticks = Scale::between(1e9, 1e9 + 4.0).ticks(300.0, true);
        assert_eq!(ticks.less, " − 1000000000");
        assert_eq!(Scale::between(1e8 - 700.0, 1e8 + 50.0).ticks(300.0, true).less, " − 100000000");
        assert_eq!(ticks.major.iter().map(|(_, l)| l.as_str()).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
        let ticks = Scale::between(-1e9 - 4.0, -1e9).ticks(300.0, true);
        assert!(ticks.less == " + 1000000000", "{ticks:?}");
    }

    #[test]
    fn a_constant_has_an_axis_about_it() {
        for value in [0.0, 5.0, -1e300, 1e-300, 1e9] {
            let scale = Scale::linear([value, value], 0.05);
            assert!((scale.share(value) - 0.5).abs() < 1e-3, "{value}: {scale:?}");
            assert!(!scale.ticks(300.0, true).major.is_empty(), "{value}: {scale:?}");
        }
        // No finite value at all.
        assert_eq!(Scale::linear([f64::NAN], 0.0).share(0.5), 0.5);
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten_where_there_are_some() {
        assert_eq!(labels(Scale::logarithmic([1.0, 1000.0], 0.0), 300.0), ["1", "10", "100", "1000"]);
        let few = Scale::logarithmic([1e-9, 1e9], 0.02);
        assert_eq!(labels(few, 250.0), ["10⁻⁸", "10⁻⁴", "1×10⁰", "10⁴", "10⁸"].map(|l| l.replace("1×10⁰", "10⁰")));
        assert_eq!(labels(Scale::logarithmic([1.0, 20.0], 0.0), 300.0), ["1", "2", "5", "10", "20"]);
        // Less than a decade.
        assert_eq!(labels(Scale::logarithmic([1.1, 6.5], 0.0), 300.0), ["2", "3", "4", "5", "6"]);
        let scale = Scale::logarithmic([1.0, 100.0], 0.0);
        assert!((scale.share(10.0) - 0.5).abs() < 1e-12);
        assert_eq!(scale.ticks(300.0, true).minor.len(), 16);
    }

    #[test]
    fn labels_keep_their_distance() {
        for length in [60.0, 100.0, 160.0, 300.0, 700.0] {
            for scale in [
                Scale::linear([-1.234e-7, 9.9e-7], 0.05),
                Scale::logarithmic([0.003, 7e5], 0.1),
                Scale::between(0.0, 99_999.0),
            ] {
                let mut end = f64::NEG_INFINITY;
                for (value, label) in scale.ticks(length, true).major {
                    let (at, half) = (scale.share(value) * length, font::width(&label, SMALL) / 2.0);
                    assert!(at - half > end, "{label} at {length}");
                    end = at + half;
                }
            }
        }
    }
}
