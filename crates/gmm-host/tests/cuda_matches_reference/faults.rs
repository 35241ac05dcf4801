//! Errors for invalid data; memory; uploads.

use gmm_host::{CudaEngine, Engine, Error, FitOptions, fit, memory};
use gmm_model::{CovarianceType, Dataset, Precision};
use ndarray::Array2;

use crate::compare::Tally;
use crate::{Bench, common, data};

pub(crate) fn refused(bench: &Bench, tally: &mut Tally) {
    tally.cases += 2;
    let text = CudaEngine::new(99).err().map_or_else(String::new, |e| e.to_string());
    println!("   {text}");
    tally.expect(text.contains("no such device"), || format!("ordinal 99: {text}"));
    // The whole column is too large: for a single such row the fit would switch to f64.
    let rows = Array2::<f64>::from_shape_fn((300, 2), |(i, j)| if j == 1 { 1e30 * i as f64 } else { i as f64 });
    let data = Dataset::new(rows).expect("finite rows");
    let options = FitOptions { precision: Some(Precision::F32), ..FitOptions::new(2) };
    let found = fit(&bench.gpu, &data, &options).err();
    tally.expect(matches!(found, Some(Error::Scale { column: 1, .. })), || format!("1e30 in f32: {found:?}"));
}

/// Statistics that are not finite are reported by component, and the device still works afterwards.
pub(crate) fn not_finite(bench: &Bench, tally: &mut Tally) {
    tally.cases += 1;
    let data = data::dataset(1000, 3, 1);
    let mut rows = bench.gpu.load(&data, Precision::F64, &[0.0; 3]).expect("room on the device");
    let mixture = common::mixture(CovarianceType::Full, 4, 3, 0.0, 1.0, 1);
    let fill = |_: usize, out: &mut [f64]| {
        for (i, r) in out.iter_mut().enumerate() {
            *r = if i % 4 == 2 { f64::NAN } else { 0.25 };
        }
    };
    let found = rows.given(CovarianceType::Full, mixture.means(), &fill).expect("a pass");
    tally.expect(found.first_not_finite_component() == Some(2), || format!("{:?}", found.first_not_finite_component()));
    tally.expect(rows.pass(&mixture).expect("a pass").is_finite(), || "the next pass".to_owned());
}

pub(crate) fn upload_rates(bench: &Bench, tally: &mut Tally) {
    tally.cases += 1;
    let rates = bench.gpu.upload_rates(if bench.quick { 1 << 20 } else { 256 << 20 }).expect("a measurement");
    println!("   pinned {:.1} GB/s, pageable {:.1} GB/s", rates.pinned / 1e9, rates.pageable / 1e9);
    if bench.quick {
        return;
    }
    for (n, d, precision) in [(4_000_000, 16, Precision::F32), (2_000_000, 16, Precision::F64)] {
        let data = data::dataset(n, d, 5);
        let bytes = n * d * if precision == Precision::F32 { 4 } else { 8 };
        for turn in ["first", "again"] {
            let started = std::time::Instant::now();
            drop(bench.gpu.load(&data, precision, &vec![0.0; d]).expect("room on the device"));
            let rate = bytes as f64 / started.elapsed().as_secs_f64() / 1e9;
            println!("   {n} rows of {d} as {precision}, converted and tiled, {turn}: {rate:.1} GB/s");
        }
    }
}

/// Loads rows until memory runs out: an error with the bytes needed and free, after which all memory is freed.
pub(crate) fn memory(bench: &Bench, tally: &mut Tally) {
    let (n, d) = if bench.quick { (10_000, 4) } else { (100_000_000, 8) };
    let most = if bench.quick { 3 } else { 100 };
    if memory::check("the test", (n * d * 4) as u128).is_err() {
        return println!("   not tried: too little memory on the host");
    }
    let data = data::dataset(n, d, 51);
    let mixture = common::mixture(CovarianceType::Diag, 8, d, 0.0, 1.0, 1);
    let before = bench.gpu.free_memory().expect("free memory");
    let mut loaded = Vec::new();
    let mut found = None;
    while loaded.len() < most && found.is_none() {
        match bench.gpu.load(&data, Precision::F32, &vec![0.0; d]) {
            Ok(rows) => loaded.push(rows),
            Err(error) => found = Some(error),
        }
    }
    println!("   {} data sets of {} bytes fit; then: {found:?}", loaded.len(), n * d * 4);
    tally.cases += loaded.len();
    if !bench.quick {
        let right = matches!(&found, Some(Error::Memory { wanted, free, .. }) if wanted > free);
        tally.expect(right, || format!("a full device: {found:?}"));
    }
    // The remaining memory may suffice for a pass in small chunks; if not, the pass returns an error.
    match loaded[0].pass(&mixture) {
        Ok(statistics) => tally.expect(statistics.is_finite(), || "a pass on a full device".to_owned()),
        Err(error) => tally.expect(matches!(error, Error::Memory { .. }), || format!("a pass: {error}")),
    }
    loaded.truncate(1);
    tally.expect(loaded[0].pass(&mixture).is_ok(), || "a pass after memory came back".to_owned());
    drop(loaded);
    let after = bench.gpu.free_memory().expect("free memory");
    // The driver keeps a little memory.
    tally.expect(after + (64 << 20) >= before, || format!("{before} bytes were free, now {after}"));
}
