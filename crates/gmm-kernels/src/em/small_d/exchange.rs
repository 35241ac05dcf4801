//! Reduction of per-row values over the warps of a block.

use crate::device::{self, Shared, WARP, thread};
use crate::em::features::each;
use crate::em::small_d::MOST_WARPS;
use crate::em::small_d::memory::{SHARES, shares_len};

/// One warp's values for a lane's rows: adjacent in shared memory, read as one vector.
struct Share;

impl Share {
    #[inline(always)]
    fn store<const R: usize>(at: u32, v: [f32; R]) {
        match R {
            2 => {
                let both = (v[R - 1].to_bits() as u64) << 32 | v[0].to_bits() as u64;
                Shared::<f64>::at(at).store(0, f64::from_bits(both));
            }
            4 => Shared::<f32>::at(at).store4(0, [v[0], v[1 % R], v[2 % R], v[3 % R]]),
            _ => each(R, |r| Shared::<f32>::at(at).store(r as u32, v[r])),
        }
    }

    #[inline(always)]
    fn load<const R: usize>(at: u32) -> [f32; R] {
        let mut out = [0.0; R];
        match R {
            2 => {
                let both = Shared::<f64>::at(at).load(0).to_bits();
                out[0] = f32::from_bits(both as u32);
                out[R - 1] = f32::from_bits((both >> 32) as u32);
            }
            4 => {
                let all = Shared::<f32>::at(at).load4(0);
                each(R, |r| out[r] = all[r % 4]);
            }
            _ => each(R, |r| out[r] = Shared::<f32>::at(at).load(r as u32)),
        }
        out
    }
}

/// Combines the warps' values of each row by `with`, in the order of the warps.
#[inline(always)]
pub(crate) fn exchange<const R: usize>(
    which: u32,
    warps: u32,
    own: [f32; R],
    with: impl Fn(f32, f32) -> f32,
) -> [f32; R] {
    let t = thread::thread_idx_x_anew();
    let bytes = 4 * R as u32;
    let at = device::unknown(SHARES + which % 2 * shares_len(R as u32) + t % WARP * bytes);
    Share::store(at + t / WARP * WARP * bytes, own);
    thread::sync_threads();
    let (at, warps) = (device::unknown(at), device::unknown(warps));
    let mut all = [0.0; R];
    // Unrolled by hand, in fours: a loop counter and an address would take registers.
    each(MOST_WARPS as usize / 4, |four| {
        if 4 * (four as u32) < warps {
            each(4, |i| {
                let w = (4 * four + i) as u32;
                if w < warps {
                    let some = Share::load::<R>(at + w * WARP * bytes);
                    each(R, |r| all[r] = if w == 0 { some[r] } else { with(all[r], some[r]) });
                }
            });
        }
    });
    all
}
