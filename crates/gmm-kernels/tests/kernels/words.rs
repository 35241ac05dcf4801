//! The device primitives, and the tables that describe kernels.

use crate::compare::close;
use crate::data::Random;
use crate::harness::poison;
use gmm_kernels::device::Buffer;
use gmm_kernels::layout::{Kind, factor_len, packed_len, panel_index, panel_len};
use gmm_kernels::probe::{Probe, ProbeMma, probe_mma, probe_words};
use gmm_kernels::{ptx, signatures};
use std::collections::BTreeSet;

#[test]
fn shuffles_sums_and_shared_memory() {
    let x: Vec<f64> = (0..128).map(|i| 0.25 + f64::from(i)).collect();
    let from = Buffer::new(&x);
    let mut to = poison::<f64>(128 * 8);
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { probe_words().emulate((1, 1), Probe { x: from.pointer(), out: to.pointer_mut() }) };
    for (t, out) in to.to_vec().chunks_exact(8).enumerate() {
        close(out[0], x[t].exp(), x[t].exp(), 1e-15, "exp");
        close(out[1], x[t].ln(), 1.0, 1e-15, "ln");
        close(out[3], x[t].ln(), 1.0, 1e-6, "ln in f32");
        assert_eq!(out[4..], [x[t ^ 5], x[t ^ 5], x.iter().sum(), x[(t + 1) % 128]]);
    }
}

#[test]
fn mma_words_are_matrix_products() {
    let random = &mut Random(7);
    // 8-bit numbers, which every operand type represents exactly.
    let mut number = || (random.uniform() * 255.0).floor() / 16.0 - 8.0;
    let a: Vec<f64> = (0..256).map(|_| number()).collect();
    let b: Vec<f64> = (0..128).map(|_| number()).collect();
    let (left, right, mut to) = (Buffer::new(&a), Buffer::new(&b), poison::<f64>(512));
    let arguments = ProbeMma { a: left.pointer(), b: right.pointer(), out: to.pointer_mut() };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { probe_mma().emulate((1, 1), arguments) };
    let out = to.to_vec();
    for (which, (rows, depth)) in [(16, 8), (16, 16), (8, 4), (16, 16)].into_iter().enumerate() {
        for row in 0..rows {
            for column in 0..8 {
                let want: f64 = (0..depth).map(|k| a[row * 16 + k] * b[k * 8 + column]).sum();
                close(out[(which * 16 + row) * 8 + column], want, 1.0, 1e-5, &format!("product {which}"));
            }
        }
    }
}

#[test]
fn panels_hold_every_entry_once() {
    for d in [1_u32, 7, 8, 9, 40] {
        let side = d.div_ceil(8) * 8;
        let places: BTreeSet<u64> =
            (0..side).flat_map(|i| (0..i / 8 * 8 + 8).map(move |j| panel_index(i, j))).collect();
        assert_eq!(places.len() as u64, panel_len(d));
        assert_eq!(places.last(), Some(&(panel_len(d) - 1)));
    }
    assert_eq!(factor_len(Kind::Full, 3, 9), 3 * 192);
    assert_eq!(packed_len(70_000), 70_000 * 70_001 / 2);
}

#[test]
fn every_module_has_every_kernel_with_these_parameters() {
    let all = signatures();
    let names: BTreeSet<&str> = all.iter().map(|s| s.name).collect();
    assert_eq!(names.len(), all.len(), "two kernels of one name");
    for module in &ptx::MODULES {
        let found: BTreeSet<&str> = module.kernels().collect();
        let capability = |target| ptx::MODULES.iter().find(|module| module.target == target).map(|m| m.capability);
        let here = |s: &&gmm_kernels::Signature| capability(s.oldest_target()) <= Some(module.capability);
        let names: BTreeSet<&str> = all.iter().filter(here).map(|s| s.name).collect();
        assert_eq!(found, names, "{}: run `cargo xtask build-ptx`", module.target);
        for kernel in all.iter().filter(here) {
            let text = module.alone(kernel.name).expect("a kernel that was found");
            let parameters = text.matches(&format!("{}_param_", kernel.name)).count();
            assert!(parameters >= kernel.parameters.len(), "{}: {}", module.target, kernel.name);
            // The PTX declares an array with its size in bytes after its name.
            let length =
                kernel.parameters.last().map_or("", |(_, kind)| if kind.starts_with('[') { "[" } else { "\n)" });
            let last = format!("{}_param_{}{length}", kernel.name, kernel.parameters.len() - 1);
            assert!(text.contains(&last), "{}: {} has other parameters", module.target, kernel.name);
        }
    }
}
