//! Conversions between `f32` and fp16.

/// Rounds to the nearest fp16 number, ties to even; infinity if too large.
fn to_half(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16) as u16 & 0x8000;
    let size = x.abs();
    let bits = match size {
        _ if size.is_nan() => 0x7e00,
        _ if size >= 65520.0 => 0x7c00,
        // Subnormal, in units of 2⁻²⁴. A size that rounds up to the smallest normal number gets that number's bits.
        _ if size < 6.103_515_6e-5 => (size * 16_777_216.0).round_ties_even() as u16,
        _ => {
            let bits = size.to_bits();
            // Adds half a unit less one, or half a unit if the last remaining bit is odd.
            ((bits + 0xfff + (bits >> 13 & 1) - (112 << 23)) >> 13) as u16
        }
    };
    sign | bits
}

fn from_half(half: u16) -> f32 {
    let digits = u32::from(half & 0x7fff) << 13;
    // The exponent biases differ by 112: multiplying by 2¹¹² is exact for subnormal numbers too.
    let size = if half & 0x7c00 == 0x7c00 {
        f32::from_bits(0x7f80_0000 | digits)
    } else {
        f32::from_bits(digits) * f32::from_bits(239 << 23)
    };
    f32::from_bits(size.to_bits() | u32::from(half & 0x8000) << 16)
}

/// Rounds two numbers to fp16 and packs them, the first in the lower bits.
pub fn to_halves(a: f32, b: f32) -> u32 {
    u32::from(to_half(a)) | u32::from(to_half(b)) << 16
}

/// Converts two packed fp16 numbers to `f32`, the one in the lower bits first.
pub fn from_halves(pair: u32) -> [f32; 2] {
    [from_half(pair as u16), from_half((pair >> 16) as u16)]
}

/// Multiplies two pairs of fp16 numbers, rounding the products to fp16; the products are exact in `f32` before that.
pub fn multiply_halves(a: u32, b: u32) -> u32 {
    let ([p, q], [r, s]) = (from_halves(a), from_halves(b));
    to_halves(p * r, q * s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_comes_back_as_it_was() {
        for half in 0..=u16::MAX {
            let value = from_half(half);
            assert!(value.is_nan() || to_half(value) == half, "{half:#x} {value}");
        }
    }

    #[test]
    fn between_two_halves_the_nearer_is_taken_and_of_two_the_even() {
        for half in (0..0x7bff_u16).step_by(7) {
            let (low, high) = (from_half(half), from_half(half + 1));
            let middle = f32::midpoint(low, high);
            assert_eq!(to_half(middle), half + half % 2, "{half:#x}");
            assert_eq!(to_half(f32::from_bits(middle.to_bits() - 1)), half, "{half:#x}");
            assert_eq!(to_half(-f32::from_bits(middle.to_bits() + 1)), (half + 1) | 0x8000, "{half:#x}");
        }
        assert_eq!(to_half(65519.9), 0x7bff);
        assert_eq!(to_half(1e9), 0x7c00);
        assert!(from_half(to_half(f32::NAN)).is_nan());
    }
}
