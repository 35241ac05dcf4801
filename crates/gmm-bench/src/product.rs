//! Products of matrices: A, `(n, k)`, times B, `(k, d)`, with all that has to be moved and with A resident.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use gmm_data::Table;
use gmm_host::products::Scalar;
use gmm_host::{Engine, ResidentMatrix};
use gmm_model::{Draws, Matrix, Precision};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};
use rayon::prelude::*;

use crate::Shape;
use crate::peer::{Peer, TOGETHER, Turn};
use crate::row::{Row, digits, ms};
use crate::spread::Spread;
use crate::task::{LONG, Task, Turns};
use crate::timing::{Limits, Together, once};

/// Entries that are summed naively.
const ENTRIES: usize = 512;

/// Two factors, and what is known of their product.
pub(crate) struct Product<T: Scalar> {
    a: Array2<T>,
    b: Array2<T>,
    precision: Precision,
    truth: Truth,
}

/// What a right product has: some entries, and the image of a vector of signs, which has to do with all of them.
struct Truth {
    places: Vec<(usize, usize)>,
    entries: Vec<f64>,
    signs: Array1<f64>,
    image: Array1<f64>,
}

impl Truth {
    /// Cost: `512*k + k*d + n*k` multiplications, in f64.
    fn of<T: Scalar>(a: &Array2<T>, b: &Array2<T>, seed: u64) -> Self {
        let (n, d) = (a.nrows(), b.ncols());
        let mut draws = Draws::for_purpose("product probes", seed, 0);
        // The corners are where a tile's edge would be missing.
        let mut places = vec![(0, 0), (0, d - 1), (n - 1, 0), (n - 1, d - 1)];
        places.extend((0..ENTRIES).map(|_| (draws.index(n), draws.index(d))));
        let entry = |(i, j): &(usize, usize)| -> f64 {
            a.row(*i).iter().zip(b.column(*j)).map(|(x, y)| x.to_f64() * y.to_f64()).sum()
        };
        let entries = places.iter().map(entry).collect();
        let signs = Array1::from_shape_fn(d, |_| if draws.index(2) == 0 { -1.0 } else { 1.0 });
        let image = apply(a.view(), apply(b.view(), signs.view()).view());
        Self { places, entries, signs, image }
    }

    /// The largest difference of an entry relative to the largest entry, or of the image's relative to its largest.
    fn error<T: Scalar>(&self, product: ArrayView2<'_, T>) -> f64 {
        let found: Vec<f64> = self.places.iter().map(|at| product[*at].to_f64()).collect();
        let image = apply(product, self.signs.view());
        self.error_of(&found).max(difference(image.iter(), self.image.iter()))
    }

    /// The same of the entries alone.
    fn error_of(&self, found: &[f64]) -> f64 {
        difference(found.iter(), self.entries.iter())
    }
}

/// `|found - truth|` over `|truth|`, each at its largest; infinite where anything is not a number.
fn difference<'a>(found: impl Iterator<Item = &'a f64>, truth: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut off, mut largest) = (0.0, f64::MIN_POSITIVE);
    for (found, truth) in found.zip(truth) {
        let distance = (found - truth).abs();
        if !distance.is_finite() {
            return f64::INFINITY;
        }
        off = f64::max(off, distance);
        largest = f64::max(largest, truth.abs());
    }
    off / largest
}

/// A matrix times a vector, in f64.
fn apply<T: Scalar>(matrix: ArrayView2<'_, T>, vector: ArrayView1<'_, f64>) -> Array1<f64> {
    let dot = |i| matrix.row(i).iter().zip(&vector).map(|(x, y)| x.to_f64() * y).sum();
    (0..matrix.nrows()).into_par_iter().map(dot).collect::<Vec<f64>>().into()
}

/// Entries between -1 and 1, each row from a stream of its own.
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
    /// Factors of a size.
    pub(crate) fn new(Shape { n, k, d }: Shape, seed: u64, precision: Precision) -> Self {
        let (a, b) = (draw("product A", (n, k), seed), draw("product B", (k, d), seed));
        let truth = Truth::of(&a, &b, seed);
        Self { a, b, precision, truth }
    }
}

/// Files of the factors that peers read.
const FILES: [&str; 2] = ["a.npy", "b.npy"];

/// An engine's products.
struct Calls<'a, T: Scalar> {
    task: &'a Product<T>,
    engine: &'a dyn Engine,
    /// A, resident.
    matrix: ResidentMatrix<T>,
    together: Together,
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
        let mut calls = Calls { task: self, engine, matrix, together: Together::ONE, whole, load, resident };
        let (mut seconds, load) = calls.whole()?;
        row.first_ms = ms(seconds);
        if seconds > LONG {
            (calls.whole, calls.load) = (vec![seconds], vec![load]);
            return Ok(Box::new(calls));
        }
        for _ in 0..warm_up.max(1) {
            seconds = calls.whole()?.0;
        }
        calls.together = Together::taking(seconds);
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
        row.first_ms = ms(peer.product(WHOLE, ONE)?);
        row.error = digits(self.truth.error_of(&peer.entries(&self.truth.places)?), 2);
        let parts = std::iter::once(WHOLE.to_owned()).chain(parts).map(|part| (part, Vec::new())).collect();
        Ok(Box::new(PeerProducts { peer, parts }))
    }
}

impl<T: Scalar> Calls<'_, T> {
    /// From factors to product in host memory: mean seconds, and what of them took A to the engine. The engine is given a
    /// copy of A, which is made before; neither A nor its copies are freed meanwhile.
    fn whole(&self) -> Result<(f64, f64)> {
        let Together(often) = self.together;
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
        let (began, mut done) = (Instant::now(), 0);
        while limits.more_in_turn(done, began) {
            let (whole, load) = self.whole()?;
            self.whole.push(whole);
            self.load.push(load);
            let Self { matrix, task, .. } = self;
            let once = Limits { repeats: 1, seconds: 0.0 };
            let seconds = self.together.turn(once, || Ok(matrix.matmul(task.b.view()).map(drop)?))?;
            self.resident.extend(seconds);
            done += 1;
        }
        Ok(())
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

/// The part of a peer's way that every peer has: from and to host memory.
const WHOLE: &str = "whole";
const ONE: Turn = Turn { at_least: 1, at_most: 1, seconds: 0.0 };

/// A peer's products, by what is in the time.
struct PeerProducts<'a> {
    peer: &'a mut Peer,
    parts: Vec<(String, Vec<f64>)>,
}

impl Turns for PeerProducts<'_> {
    fn turn(&mut self, limits: Limits) -> Result<()> {
        let (began, mut done) = (Instant::now(), 0);
        while limits.more_in_turn(done, began) {
            for (part, seconds) in &mut self.parts {
                let turn = Turn { at_least: 1, at_most: 10_000, seconds: TOGETHER };
                seconds.push(self.peer.product(part, turn)?);
            }
            done += 1;
        }
        Ok(())
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
                other => anyhow::bail!("the peer timed '{other}', of which nothing is known"),
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
        // Not among the entries that are looked at, but its row's sum is.
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
