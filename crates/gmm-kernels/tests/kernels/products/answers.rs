//! Results computed from sums: quadratic forms, distances from a shift, the largest numbers of a row.

use gmm_kernels::products::forms::{Forms, forms};
use gmm_kernels::products::select::{Select, select};

use super::*;

#[test]
fn forms_are_those_of_naive_sums() {
    for (d, n, slices) in [(1, 1, 1), (9, 40, 1), (150, 33, 2)] {
        let (mut a, x) = (Matrix::random::<f64>(d, d, 1), Matrix::random::<f32>(n, d, 2));
        for i in 0..d {
            a.entries[i * d + i + 1..(i + 1) * d].fill(0.0);
        }
        for by_columns in [false, true] {
            for plain in [false, true] {
                let cut = Parts { slices, triangle: true };
                let (left, right) = (packed::<f64>(&a, false, true, None), packed::<f32>(&x, by_columns, false, None));
                let (sums, slices) = sums_of(left, right, (d, n, d), cut, plain);
                let (mut to, from) = (Buffer::unwritten(n), x.buffer::<f32>(by_columns));
                let args = |x: *const f32, to: *mut f64| Forms {
                    sums: sums.pointer(),
                    slices,
                    d: d as u64,
                    n: n as u64,
                    x,
                    by_columns: by_columns.into(),
                    to,
                };
                let mut norms = Buffer::unwritten(n);
                // SAFETY: every buffer has the length that the kernel's arguments document.
                unsafe {
                    forms::<f32>().emulate((2, 1), args(from.pointer(), to.pointer_mut()));
                    forms::<f32>().emulate((1, 1), args(std::ptr::null(), norms.pointer_mut()));
                }
                for (j, (form, norm)) in to.to_vec().into_iter().zip(norms.to_vec()).enumerate() {
                    let products: Vec<f64> = (0..d).map(|i| naive(&a, &x, i, j).0).collect();
                    let sizes: Vec<f64> = (0..d).map(|i| naive(&a, &x, i, j).1).collect();
                    let want: f64 = products.iter().enumerate().map(|(i, p)| 2.0 * x.at(j, i) * p).sum();
                    let size: f64 = sizes.iter().enumerate().map(|(i, p)| (2.0 * x.at(j, i) * p).abs()).sum();
                    let limit = 3.0 * d as f64 * f64::EPSILON;
                    assert!((form - want).abs() <= limit * size, "{d} {n}: {form} is not {want}");
                    let want: f64 = products.iter().map(|p| p * p).sum();
                    let size: f64 = sizes.iter().map(|p| p * p).sum();
                    assert!((norm - want).abs() <= 2.0 * limit * size, "{d} {n}: {norm} is not {want}");
                }
            }
        }
    }
}

#[test]
fn a_shift_is_taken_off_in_f64() {
    let (a, mut x) = (Matrix::random::<f64>(3, 5, 1), Matrix::random::<f32>(4, 5, 2));
    let shift = [1e6, -0.1, 0.0, 3.0, 1e-3];
    for row in x.entries.chunks_mut(5) {
        row[0] = f64::from((1e6 + row[0]) as f32);
    }
    let mut moved = x.clone();
    moved.entries.iter_mut().enumerate().for_each(|(i, v)| *v -= shift[i % 5]);
    let right = packed::<f32>(&x, true, false, Some(&shift));
    assert_eq!(right.to_vec(), packed::<f64>(&moved, false, false, None).to_vec());
    let (sums, slices) = sums_of(packed::<f64>(&a, false, true, None), right, (3, 4, 5), WHOLE, false);
    let product = finished::<f64>(&sums, slices, 3, 4, false);
    for (at, found) in product.into_iter().enumerate() {
        let (want, size) = naive(&a, &moved, at / 4, at % 4);
        assert!((found - want).abs() <= 5.0 * f64::EPSILON * size);
    }
}

fn selected<T: Real>(rows: &[Vec<f64>], count: usize) {
    let m = rows[0].len();
    let all: Vec<T> = rows.iter().flatten().map(|v| T::from_f64(*v)).collect();
    let (values, mut indices) = (Buffer::new(&all), Buffer::<u32>::unwritten(rows.len() * count));
    let mut found = Buffer::<T>::unwritten(rows.len() * count);
    let args = Select {
        values: values.pointer(),
        rows: rows.len() as u64,
        m: m as u32,
        count: count as u32,
        indices: indices.pointer_mut(),
        found: found.pointer_mut(),
    };
    // SAFETY: every buffer has the length that the kernel's arguments document.
    unsafe { select::<T>().emulate((2, 1), args) };
    let (indices, found) = (indices.to_vec(), found.to_vec());
    for (r, values) in all.chunks(m).enumerate() {
        let mut want: Vec<usize> = (0..m).collect();
        let key = |i: usize| (values[i].to_f64().is_nan(), values[i].to_f64());
        want.sort_by(|&i, &j| {
            let ((a_none, a), (b_none, b)) = (key(i), key(j));
            a_none.cmp(&b_none).then(b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal)).then(i.cmp(&j))
        });
        want.truncate(count);
        want.sort_unstable();
        let here = r * count..(r + 1) * count;
        let mut got: Vec<usize> = indices[here.clone()].iter().map(|i| *i as usize).collect();
        for (&i, v) in got.iter().zip(&found[here]) {
            assert_eq!(v.to_f64().to_bits(), values[i].to_f64().to_bits());
        }
        got.sort_unstable();
        assert_eq!(got, want, "row {r}, {count} of {m}");
    }
}

#[test]
fn the_largest_are_those_of_a_sort_the_first_among_equals() {
    let mut random = Random(5);
    for m in [1, 7, 128, 300, 1000] {
        // Rows with few distinct values, so that there are many ties, and rows with many.
        let mut rows: Vec<Vec<f64>> = vec![
            (0..m).map(|_| (2.0 * random.normal()).round()).collect(),
            (0..m).map(|_| random.normal()).collect(),
            (0..m).map(|_| random.normal() * 1e30).collect(),
        ];
        let strange = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY, -0.0, 0.0, 1.0, f64::NAN];
        rows.push((0..m).map(|i| strange[i % strange.len()]).collect());
        for count in [1, 2, m / 3, m] {
            if count > 0 && count <= m {
                selected::<f32>(&rows, count);
                selected::<f64>(&rows, count);
            }
        }
    }
}
