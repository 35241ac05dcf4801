//! Times matrix products A B, of A `(n, k)` and B `(k, d)`, with all transfers and with A resident.

use std::path::Path;

use anyhow::Result;
use gmm_data::Table;
use gmm_host::products::Scalar;
use gmm_host::{Engine, ResidentMatrix};
use gmm_model::{Draws, Matrix, Precision};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

use crate::Shape;
use crate::difference::largest;
use crate::peer::Peer;
use crate::row::{Row, digits, ms};
use crate::spread::Spread;
use crate::task::{LONG, Task, Turns};
use crate::timing::{CallsPerSample, Limits, once};

/// Number of random entries that are computed naively.
const ENTRIES: usize = 512;

/// Two factors, and the known values of their product.
pub(crate) struct Product<T: Scalar> {
    a: Array2<T>,
    b: Array2<T>,
    precision: Precision,
    truth: Truth,
}

/// Known values of the product C: some entries, and its image C x of a vector x of random signs, which depends on every
/// entry.
struct Truth {
    places: Vec<(usize, usize)>,
    entries: Vec<f64>,
    signs: Vec<f64>,
    image: Vec<f64>,
}

impl Truth {
    /// Computes them in f64. Cost: `512*k + k*d + n*k` multiplications.
    fn of<T: Scalar>(a: &Array2<T>, b: &Array2<T>, seed: u64) -> Self {
        let (n, d) = (a.nrows(), b.ncols());
        let mut draws = Draws::for_purpose("product probes", seed, 0);
        // The corners, where errors at the edges of tiles would show.
        let mut places = vec![(0, 0), (0, d - 1), (n - 1, 0), (n - 1, d - 1)];
        places.extend((0..ENTRIES).map(|_| (draws.index(n), draws.index(d))));
        let entry = |(i, j): &(usize, usize)| -> f64 {
            a.row(*i).iter().zip(b.column(*j)).map(|(x, y)| x.to_f64() * y.to_f64()).sum()
        };
        let entries = places.iter().map(entry).collect();
        let signs: Vec<f64> = (0..d).map(|_| if draws.index(2) == 0 { -1.0 } else { 1.0 }).collect();
        let image = apply(a.view(), &apply(b.view(), &signs));
        Self { places, entries, signs, image }
    }

    /// The larger of two errors: the largest difference of an entry relative to the largest entry, and the same for the
    /// image.
    fn error<T: Scalar>(&self, product: ArrayView2<'_, T>) -> f64 {
        let found: Vec<f64> = self.places.iter().map(|at| product[*at].to_f64()).collect();
        let image = apply(product, &self.signs);
        self.error_of(&found).max(largest(&image, &self.image))
    }

    /// The error of the entries only.
    fn error_of(&self, found: &[f64]) -> f64 {
        largest(found, &self.entries)
    }
}

/// A matrix times a vector, in f64.
fn apply<T: Scalar>(matrix: ArrayView2<'_, T>, vector: &[f64]) -> Vec<f64> {
    let dot = |i| matrix.row(i).iter().zip(vector).map(|(x, y)| x.to_f64() * y).sum();
    (0..matrix.nrows()).into_par_iter().map(dot).collect()
}

/// A matrix of random entries between -1 and 1, each row from its own random stream.
fn draw<T: Scalar>(purpose: &str, (rows, columns): (usize, usize), seed: u64) -> Array2<T> {
    let mut out = Array2::zeros((rows, columns));
    let entries = out.as_slice_mut().expect("row-major");
    entries.par_chunks_mut(columns).enumerate().for_each(|(i, row)| {
        let mut draws = Draws::for_purpose(purpose, seed, i as u64);
        row.iter_mut().for_each(|entry| *entry = T::of(2.0 * draws.uniform() - 1.0));
    });
    out
}

impl<T: Scalar> Product<T> {
    /// Draws the factors of a size.
    pub(crate) fn new(Shape { n, k, d }: Shape, seed: u64, precision: Precision) -> Self {
        let (a, b) = (draw("product A", (n, k), seed), draw("product B", (k, d), seed));
        let truth = Truth::of(&a, &b, seed);
        Self { a, b, precision, truth }
    }
}

/// The files from which peers read the factors.
const FILES: [&str; 2] = ["a.npy", "b.npy"];

/// The timed products of an engine.
struct Calls<'a, T: Scalar> {
    task: &'a Product<T>,
    engine: &'a dyn Engine,
    /// A, resident.
    matrix: ResidentMatrix<T>,
    together: CallsPerSample,
    whole: Vec<f64>,
    load: Vec<f64>,
    resident: Vec<f64>,
}

impl<T: Scalar> Task for Product<T>
where
    Matrix: From<Array2<T>>,
{
    fn error(&self, engine: &dyn Engine) -> Result<f64> {
        let product = ResidentMatrix::new(engine, self.a.clone())?.matmul(self.b.view())?;
        Ok(self.truth.error(product.view()))
    }

    fn begin<'a>(&'a self, engine: &'a dyn Engine, warm_up: usize, row: &mut Row) -> Result<Box<dyn Turns + 'a>> {
        let matrix = ResidentMatrix::new(engine, self.a.clone())?;
        let (whole, load, resident) = (Vec::new(), Vec::new(), Vec::new());
        let mut calls = Calls { task: self, engine, matrix, together: CallsPerSample::ONE, whole, load, resident };
        let (mut seconds, load) = calls.whole()?;
        row.first_ms = ms(seconds);
        if seconds > LONG {
            (calls.whole, calls.load) = (vec![seconds], vec![load]);
            return Ok(Box::new(calls));
        }
        for _ in 0..warm_up.max(1) {
            seconds = calls.whole()?.0;
        }
        calls.together = CallsPerSample::taking(seconds);
        Ok(Box::new(calls))
    }

    fn hand_out(&self, folder: &Path) -> Result<()> {
        for (name, matrix) in FILES.into_iter().zip([&self.a, &self.b]) {
            gmm_data::write_table(folder.join(name), &Table::new(matrix.clone()))?;
        }
        Ok(())
    }

    fn begin_peer<'a>(
        &'a self,
        peer: &'a mut Peer,
        folder: &Path,
        _: Option<f64>,
        row: &mut Row,
    ) -> Result<Box<dyn Turns + 'a>> {
        let [a, b] = FILES.map(|name| folder.join(name));
        let parts = peer.load_factors([&a, &b], self.precision)?;
        row.first_ms = ms(peer.product(WHOLE, Limits::ONE)?);
        row.error = digits(self.truth.error_of(&peer.entries(&self.truth.places)?), 2);
        let parts = std::iter::once(WHOLE.to_owned()).chain(parts).map(|part| (part, Vec::new())).collect();
        Ok(Box::new(PeerProducts { peer, parts }))
    }
}

impl<T: Scalar> Calls<'_, T> {
    /// Times products from host memory to host memory. Returns mean seconds, and those spent loading A. The engine gets
    /// a copy of A, made before the clock starts; no copy is freed while it runs.
    fn whole(&self) -> Result<(f64, f64)> {
        let CallsPerSample(often) = self.together;
        let copies: Vec<Array2<T>> = vec![self.task.a.clone(); often];
        let (mut kept, mut load) = (Vec::with_capacity(often), 0.0);
        let (seconds, ()) = once(|| {
            copies.into_iter().try_for_each(|copy| {
                let (loaded, matrix) = once(|| Ok(ResidentMatrix::new(self.engine, copy)?))?;
                load += loaded;
                matrix.matmul(self.task.b.view())?;
                kept.push(matrix);
                Ok(())
            })
        })?;
        Ok((seconds / often as f64, load / often as f64))
    }
}

impl<T: Scalar> Turns for Calls<'_, T> {
    fn turn(&mut self, limits: Limits) -> Result<()> {
        let measure = || {
            let (whole, load) = self.whole()?;
            self.whole.push(whole);
            self.load.push(load);
            let Self { matrix, task, .. } = self;
            self.resident.push(self.together.mean(|| Ok(matrix.matmul(task.b.view()).map(drop)?))?);
            Ok(())
        };
        limits.turn(measure).map(drop)
    }

    fn measured(&self) -> f64 {
        self.whole.iter().chain(&self.resident).sum::<f64>() * self.together.0 as f64
    }

    fn finish(mut self: Box<Self>, _: Limits, row: &mut Row) -> Result<()> {
        if self.resident.is_empty() {
            let (seconds, _) = once(|| Ok(self.matrix.matmul(self.task.b.view())?))?;
            self.resident.push(seconds);
        }
        row.time(self.whole);
        row.load_ms = ms(Spread::of(self.load).median);
        row.resident_ms = ms(Spread::of(self.resident).median);
        Ok(())
    }
}

/// The variant that every peer can time: from host memory to host memory.
const WHOLE: &str = "whole";

/// The timed products of a peer, by what the time includes.
struct PeerProducts<'a> {
    peer: &'a mut Peer,
    parts: Vec<(String, Vec<f64>)>,
}

impl Turns for PeerProducts<'_> {
    fn turn(&mut self, limits: Limits) -> Result<()> {
        let Self { peer, parts } = self;
        let mut each = || {
            parts.iter_mut().try_for_each(|(part, seconds)| {
                seconds.push(peer.product(part, Limits::SHORT)?);
                Ok(())
            })
        };
        limits.turn(&mut each).map(drop)
    }

    fn measured(&self) -> f64 {
        self.parts.iter().flat_map(|(_, seconds)| seconds).sum()
    }

    fn finish(self: Box<Self>, _: Limits, row: &mut Row) -> Result<()> {
        for (part, seconds) in self.parts {
            match part.as_str() {
                WHOLE => row.time(seconds),
                "resident" => row.resident_ms = ms(Spread::of(seconds).median),
                "device" => row.device_ms = ms(Spread::of(seconds).median),
                other => anyhow::bail!("the peer timed an unknown part '{other}'"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gmm_host::{CpuEngine, ReferenceEngine};

    use super::*;

    #[test]
    fn right_products_pass_and_one_wrong_entry_or_rounded_factors_do_not() {
        let shape = Shape { n: 70, k: 300, d: 90 };
        let product = Product::<f64>::new(shape, 1, Precision::F64);
        for engine in [&CpuEngine::new(2).unwrap() as &dyn Engine, &ReferenceEngine] {
            assert!(product.error(engine).unwrap() < 1e-13);
        }
        let right = product.a.dot(&product.b);
        assert!(product.truth.error(right.view()) < 1e-13);
        // An entry that is not checked directly, but contributes to the image.
        let hidden = (0..shape.n).flat_map(|i| (0..shape.d).map(move |j| (i, j)));
        let hidden = hidden.into_iter().find(|at| !product.truth.places.contains(at)).unwrap();
        let mut wrong = right.clone();
        wrong[hidden] += 0.01;
        assert!(product.truth.error(wrong.view()) > 1e-5);
        let (a, b) = (product.a.mapv(|v| f64::from(v as f32)), product.b.mapv(|v| f64::from(v as f32)));
        assert!(product.truth.error(a.dot(&b).view()) > 1e-9);
        wrong[hidden] = f64::NAN;
        assert_eq!(product.truth.error(wrong.view()), f64::INFINITY);
    }

    #[test]
    fn f32_is_held_against_the_product_of_the_numbers_that_it_holds() {
        let product = Product::<f32>::new(Shape { n: 33, k: 2000, d: 17 }, 1, Precision::F32);
        assert!(product.error(&CpuEngine::new(1).unwrap()).unwrap() < 1e-7);
    }
}
