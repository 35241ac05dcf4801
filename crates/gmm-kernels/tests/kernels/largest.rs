//! Responsibilities among the largest components, against a sort of each row.

use std::ptr::{null, null_mut};

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::chunked::double_precision::largest::{Largest, largest};
use gmm_kernels::em::chunked::double_precision::{DoublePrecision, likelihoods};
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::state::{STATE_LEN, TROUBLE};
use gmm_kernels::layout::{Kind, TILE_ROWS};
use gmm_model::Draws;

/// Position of a row's exponential for a component, and of the factor of both.
fn places(of: DoublePrecision, row: usize, c: usize) -> [usize; 2] {
    let (groups, tile, pieces) = (of.place.groups as usize, TILE_ROWS as usize, of.pieces() as usize);
    // Columns of a group are in the order of the sums.
    let order = FeatureLayout { steps: 0, groups: 0, classes: 0 };
    let (group, column) = (c / 8, order.weight(c as u32 % 8) as usize);
    let exponential = row / 16 * 128 * groups + 128 * group + 16 * column + row % 16;
    let piece = group / of.at_once as usize;
    [exponential, row / tile * tile * pieces + piece * tile + row % tile]
}

fn check<T: Real>(n: usize, k: usize, count: usize, weighted: bool, (equal, none): (bool, bool)) {
    let what = format!("{n} rows, {k} components, {count}, weighted {weighted}, equal {equal}");
    let of = DoublePrecision::of(Kind::Diag, k as u32, 3);
    let draws = &mut Draws::new(7, (n + k + count) as u64);
    let weights: Vec<f64> = (0..n).map(|_| if draws.uniform() < 0.2 { 0.0 } else { 3.0 * draws.uniform() }).collect();
    let weight = |row: usize| if weighted { weights[row] } else { 1.0 };
    let mut exponentials = vec![T::from_f64(0.0); of.exponentials(n as u64) as usize];
    let mut factors = vec![0.0; of.factors(n as u64) as usize];
    let before: Vec<f64> = (0..likelihoods(n as u64)).map(|i| -10.0 * i as f64).collect();
    for row in 0..n {
        let logs: Vec<f64> = (0..k).map(|_| if equal { 0.0 } else { 40.0 * (draws.uniform() - 1.0) }).collect();
        let total: f64 = logs.iter().map(|v| T::from_f64(v.exp()).to_f64()).sum();
        for c in 0..k {
            let [at, factor] = places(of, row, c);
            exponentials[at] = T::from_f64(logs[c].exp());
            factors[factor] = weight(row) / total;
        }
    }
    let nothing = if none { (0..n).filter(|row| row % 7 == 3 && weight(*row) > 0.0).count() } else { 0 };
    if none {
        // Only the first component has a density.
        (0..n)
            .filter(|row| row % 7 == 3)
            .for_each(|row| (1..k).for_each(|c| exponentials[places(of, row, c)[0]] = T::from_f64(0.0)));
    }
    let of_all = (exponentials.clone(), factors.clone());
    let (mut e, mut f, mut l) = (Buffer::new(&exponentials), Buffer::new(&factors), Buffer::new(&before));
    let row_weights = Buffer::new(&weights);
    let mut state = Buffer::new(&[0_u32; STATE_LEN]);
    // No more are listed than there are.
    let mut listed = Buffer::new(&vec![u32::MAX; if count <= k { n.next_multiple_of(128) * count } else { 0 }]);
    let arguments = Largest::<T> {
        n: n as u64,
        groups: of.place.groups,
        at_once: of.at_once,
        count: count as u32,
        row_weights: if weighted { row_weights.pointer() } else { null() },
        exponentials: e.pointer_mut(),
        factors: f.pointer_mut(),
        likelihoods: l.pointer_mut(),
        components: if count <= k { listed.pointer_mut() } else { null_mut() },
        state: state.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { largest::<T>().emulate((2, 1), arguments) };
    let (got_e, got_f, got_l) = (e.to_vec(), f.to_vec(), l.to_vec());
    let mut want_l = before;
    for row in 0..n {
        let r = |c: usize| {
            let [at, factor] = places(of, row, c);
            of_all.0[at].to_f64() * of_all.1[factor]
        };
        let mut order: Vec<usize> = (0..k).collect();
        // Stable: of equal ones the first.
        order.sort_by(|&a, &b| r(b).total_cmp(&r(a)));
        let kept: f64 = order.iter().take(count).map(|&c| r(c)).sum();
        for (rank, &c) in order.iter().enumerate() {
            let [at, factor] = places(of, row, c);
            let got = got_e[at].to_f64() * got_f[factor];
            let want = if rank < count && weight(row) > 0.0 { r(c) * weight(row) / kept } else { 0.0 };
            assert!((got - want).abs() <= 1e-14 * weight(row), "{what}: row {row}, component {c}: {got}, not {want}");
        }
        if count <= k {
            let mut kept = order[..count].to_vec();
            kept.sort_unstable();
            let got: Vec<usize> = listed.to_vec()[row * count..][..count].iter().map(|&c| c as usize).collect();
            assert_eq!(got, kept, "{what}: row {row}");
        }
        if weight(row) > 0.0 {
            want_l[row / 16] += weight(row) * (kept / weight(row)).ln();
        }
    }
    let is_listed = count <= k;
    assert_eq!(state.to_vec()[TROUBLE as usize] == 1, is_listed && nothing > 0 && count > 1, "{what}: trouble");
    for (got, want) in got_l.iter().zip(&want_l) {
        assert!((got - want).abs() <= 1e-12 * (1.0 + want.abs()), "{what}: {got}, not {want}");
    }
}

#[test]
fn rows_keep_their_largest_components() {
    for (n, k) in [(1, 3), (40, 16), (130, 33), (300, 70), (129, 200)] {
        for count in [1, 2, k / 2 + 1, k, k + 5] {
            check::<f64>(n, k, count, count % 2 == 0, (false, false));
            check::<f32>(n, k, count, count % 2 == 1, (false, false));
            check::<f32>(n, k, count, false, (false, true));
        }
    }
}

#[test]
fn of_equal_components_the_first_stay() {
    for count in [1, 3, 8, 9, 40] {
        check::<f64>(17, 41, count, false, (true, false));
    }
}
