//! Log densities of rows with listed components, under several mixtures, against sums in the order of the components.

use std::ptr::null;

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::chunked::double_precision::trials::{Trials, trials};
use gmm_kernels::layout::{packed_len, tiled_index, tiled_len};
use gmm_model::Draws;

struct Case {
    n: usize,
    d: usize,
    k: usize,
    count: usize,
    triangles: bool,
    of_each: bool,
    weighted: bool,
}

fn check<T: Real>(Case { n, d, k, count, triangles, of_each, weighted }: Case) {
    let what = format!("{n} rows, {d} columns, {count} of {k}, triangles {triangles}, of each {of_each}");
    let draws = &mut Draws::new(3, (n + 10 * d + k) as u64);
    let (mixtures, splits) = (3, 2);
    let mut x = vec![T::from_f64(0.0); tiled_len(n as u64, d as u32) as usize];
    for row in 0..n {
        for j in 0..d {
            x[tiled_index(row as u64, j as u32, d as u32) as usize] = T::from_f64(draws.normal());
        }
    }
    let of_component = if triangles { packed_len(d as u32) as usize } else { d };
    let owners = if of_each { mixtures } else { 1 };
    let mut normals = |len: usize| -> Vec<f64> { (0..len).map(|_| draws.normal()).collect() };
    let (means, scales) = (normals(mixtures * k * d), normals(owners * k * of_component));
    // So far apart that some densities are 0 relative to others.
    let constants: Vec<f64> = normals(owners * k).iter().map(|v| 300.0 * v).collect();
    let components: Vec<u32> = (0..n * count).map(|i| ((i * 7 + i / count) % k) as u32).collect();
    let weights: Vec<f64> = (0..n).map(|row| [0.0, 1.0, 2.5][row % 3]).collect();
    let mixtures_of = [2, 0, 1, 2];
    let before = vec![0.5; mixtures_of.len() * splits];

    let (x_there, means_there, scales_there) = (Buffer::new(&x), Buffer::new(&means), Buffer::new(&scales));
    let (constants_there, listed) = (Buffer::new(&constants), Buffer::new(&components));
    let (row_weights, trials_there, mut sums) =
        (Buffer::new(&weights), Buffer::new(&mixtures_of), Buffer::new(&before));
    let arguments = Trials::<T> {
        x: x_there.pointer(),
        n: n as u64,
        d: d as u32,
        k: k as u32,
        row_weights: if weighted { row_weights.pointer() } else { null() },
        components: listed.pointer(),
        count: count as u32,
        mixtures: trials_there.pointer(),
        means: means_there.pointer(),
        scales: scales_there.pointer(),
        has_triangles: triangles.into(),
        constants: constants_there.pointer(),
        of_each: of_each.into(),
        accumulate: weighted.into(),
        sums: sums.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { trials::<T>().emulate((splits as u32, mixtures_of.len() as u32), arguments) };
    let got = sums.to_vec();

    for (trial, &mixture) in mixtures_of.iter().enumerate() {
        let (mixture, owner) = (mixture as usize, if of_each { mixture as usize } else { 0 });
        let (mut want, mut size) = (if weighted { 0.5 * splits as f64 } else { 0.0 }, 1.0);
        for row in 0..n {
            let at = |j: usize| x[tiled_index(row as u64, j as u32, d as u32) as usize].to_f64();
            let log = |c: usize| {
                let z = |j: usize| at(j) - means[(mixture * k + c) * d + j];
                let scales = &scales[(owner * k + c) * of_component..][..of_component];
                let distance: f64 = (0..d)
                    .map(|i| match triangles {
                        // Columns before `j` have d, d − 1, .. entries.
                        true => (0..=i).map(|j| z(j) * scales[j * d - j * j.saturating_sub(1) / 2 + i - j]).sum(),
                        false => z(i) * scales[i],
                    })
                    .map(|z: f64| z * z)
                    .sum();
                constants[owner * k + c] - 0.5 * distance
            };
            let logs: Vec<f64> = components[row * count..][..count].iter().map(|&c| log(c as usize)).collect();
            let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let all = top + logs.iter().map(|v| (v - top).exp()).sum::<f64>().ln();
            let weight = if weighted { weights[row] } else { 1.0 };
            want += weight * all;
            size += weight * all.abs();
        }
        let found: f64 = got[trial * splits..][..splits].iter().sum();
        let allowed = 4.0 * f64::EPSILON * (n + d * d + count) as f64 * size;
        assert!((found - want).abs() <= allowed, "{what}: trial {trial}: {found}, not {want}");
    }
    assert_eq!(got[..splits], got[3 * splits..], "{what}: equal trials");
}

#[test]
fn rows_are_scored_among_their_components() {
    for (n, d, k, count) in [(1, 1, 1, 1), (40, 3, 9, 4), (130, 33, 70, 37), (129, 70, 5, 5)] {
        for (triangles, of_each) in [(false, false), (false, true), (true, false), (true, true)] {
            check::<f64>(Case { n, d, k, count, triangles, of_each, weighted: n % 2 == 0 });
            check::<f32>(Case { n, d, k, count, triangles, of_each, weighted: n % 2 == 1 });
        }
    }
}

/// A row so far away that its squared distance overflows has density 0, and so do all rows with it.
#[test]
fn a_density_of_zero_is_minus_infinity() {
    let (x, one, zero) = (Buffer::new(&[1e300; 128]), Buffer::new(&[1.0]), Buffer::new(&[0.0]));
    let (listed, mut sums) = (Buffer::new(&[0_u32]), Buffer::new(&[0.0]));
    let arguments = Trials::<f64> {
        x: x.pointer(),
        n: 1,
        d: 1,
        k: 1,
        row_weights: null(),
        components: listed.pointer(),
        count: 1,
        mixtures: listed.pointer(),
        means: zero.pointer(),
        scales: one.pointer(),
        has_triangles: 0,
        constants: zero.pointer(),
        of_each: 0,
        accumulate: 0,
        sums: sums.pointer_mut(),
    };
    // SAFETY: as above.
    unsafe { trials::<f64>().emulate((1, 1), arguments) };
    assert_eq!(sums.to_vec(), [f64::NEG_INFINITY]);
}
