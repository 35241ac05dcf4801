//! Table of `2^(j/64)`, rounded to nearest.

/// Table entries per power of two.
pub(super) const STEPS: i32 = 64;

/// Bits of `2^(j/64)` as `f64`, for `j` in `0..64`.
#[rustfmt::skip]
pub(super) static POWERS: [u64; STEPS as usize] = [
    0x3ff0_0000_0000_0000, 0x3ff0_2c9a_3e77_8061, 0x3ff0_59b0_d315_8574, 0x3ff0_8745_1875_9bc8,
    0x3ff0_b558_6cf9_890f, 0x3ff0_e3ec_32d3_d1a2, 0x3ff1_1301_d012_5b51, 0x3ff1_429a_aea9_2de0,
    0x3ff1_72b8_3c7d_517b, 0x3ff1_a35b_eb6f_cb75, 0x3ff1_d487_3168_b9aa, 0x3ff2_063b_8862_8cd6,
    0x3ff2_387a_6e75_6238, 0x3ff2_6b45_65e2_7cdd, 0x3ff2_9e9d_f51f_dee1, 0x3ff2_d285_a6e4_030b,
    0x3ff3_06fe_0a31_b715, 0x3ff3_3c08_b264_16ff, 0x3ff3_71a7_373a_a9cb, 0x3ff3_a7db_34e5_9ff7,
    0x3ff3_dea6_4c12_3422, 0x3ff4_160a_21f7_2e2a, 0x3ff4_4e08_6061_892d, 0x3ff4_86a2_b5c1_3cd0,
    0x3ff4_bfda_d536_2a27, 0x3ff4_f9b2_769d_2ca7, 0x3ff5_342b_569d_4f82, 0x3ff5_6f47_36b5_27da,
    0x3ff5_ab07_dd48_5429, 0x3ff5_e76f_15ad_2148, 0x3ff6_247e_b03a_5585, 0x3ff6_6238_8255_2225,
    0x3ff6_a09e_667f_3bcd, 0x3ff6_dfb2_3c65_1a2f, 0x3ff7_1f75_e8ec_5f74, 0x3ff7_5feb_5642_67c9,
    0x3ff7_a114_73eb_0187, 0x3ff7_e2f3_36cf_4e62, 0x3ff8_2589_994c_ce13, 0x3ff8_68d9_9b44_92ed,
    0x3ff8_ace5_422a_a0db, 0x3ff8_f1ae_9915_7736, 0x3ff9_3737_b0cd_c5e5, 0x3ff9_7d82_9fde_4e50,
    0x3ff9_c491_82a3_f090, 0x3ffa_0c66_7b5d_e565, 0x3ffa_5503_b23e_255d, 0x3ffa_9e6b_5579_fdbf,
    0x3ffa_e89f_995a_d3ad, 0x3ffb_33a2_b84f_15fb, 0x3ffb_7f76_f2fb_5e47, 0x3ffb_cc1e_904b_c1d2,
    0x3ffc_199b_dd85_529c, 0x3ffc_67f1_2e57_d14b, 0x3ffc_b720_dcef_9069, 0x3ffd_072d_4a07_897c,
    0x3ffd_5818_dcfb_a487, 0x3ffd_a9e6_03db_3285, 0x3ffd_fc97_337b_9b5f, 0x3ffe_502e_e78b_3ff6,
    0x3ffe_a4af_a2a4_90da, 0x3ffe_fa1b_ee61_5a27, 0x3fff_5076_5b6e_4540, 0x3fff_a7c1_819e_90d8,
];

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;

    #[test]
    fn each_is_the_power_that_it_stands_for() {
        for (j, &bits) in POWERS.iter().enumerate() {
            let (power, exact) = (f64::from_bits(bits), (j as f64 / f64::from(STEPS)).exp2());
            // Both are below 2, where EPSILON is one ulp: the library's result need not be correctly rounded.
            assert!((power - exact).abs() <= f64::EPSILON, "{j}: {power} and {exact}");
        }
    }
}
