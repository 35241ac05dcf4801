//! A matrix that stays on the device, and the questions to it, in chunks: see [`gmm_kernels::products`].
//!
//! Questions are rows, `(n, k)`, and go to the device as they lie, row by row or column by column; there they are packed,
//! multiplied by the matrix's rows, and made into what was asked. [`plan`] says in which form, slices and chunks: of these
//! only chunks depend on memory, and they change no bit.

mod factor;
mod plan;
mod room;
mod times;
mod transfer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::event::Event;
use cust::memory::DeviceSlice;
use gmm_kernels::products::multiply::multiply_halves;
use gmm_kernels::products::scales::pieces;
use gmm_kernels::products::{BLOCK, Form};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

use super::buffers::Slot;
use super::device::Gpu;
use super::launch::{Cut, Factor, Launcher, Raw, Side};
use super::queue::Queue;
use super::staging::{receive, send};
use super::upload::Number;
use crate::Error;
use plan::Needs;
use room::{Room, reserve};
use transfer::{is_by_columns, put, take};

pub(crate) use factor::CudaFactor;
pub use times::DeviceTime;

const WHAT: &str = "a product on the GPU";

/// What multiplies for a device.
#[derive(Clone)]
pub(crate) struct CudaMultiplier {
    gpu: Arc<Gpu>,
}

impl CudaMultiplier {
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu }
    }
}

/// A matrix, `(m, k)`, on a device: as operands of each form that was asked for so far.
pub(crate) struct CudaMatrix<T: Number> {
    gpu: Arc<Gpu>,
    state: Mutex<State<T>>,
}

/// Operands that stay.
struct Kept {
    operands: Slot<u32>,
    scales: Slot<f32>,
    rows: u64,
    words: usize,
}

impl Kept {
    fn factor(&self) -> Factor {
        let scales = self.scales.first(if self.scales.room() == 0 { 0 } else { self.rows as usize });
        Factor { operands: self.operands.first(self.words), scales, rows: self.rows }
    }
}

struct State<T: Number> {
    queue: Queue,
    doubles: Option<Kept>,
    halves: Option<Kept>,
    heads: Option<Kept>,
    /// Whether the matrix has rows that halves cannot hold.
    troubled: bool,
    room: Room<T>,
}

/// What is asked of each question.
enum Asked<'a, T: Number> {
    /// Its products with the matrix's rows, `(m, n)`.
    Product(ArrayViewMut2<'a, T>),
    /// Σ 2xᵢ(Ax)ᵢ, `(n,)`, of a matrix that is zero above its diagonal.
    Forms(&'a mut [f64]),
    /// |A(x − shift)|², `(n,)`, of such a matrix.
    Norms(&'a mut [f64], Option<&'a [f64]>),
    /// The `count` rows of the largest products: rows and products, in no order.
    Largest { count: usize, indices: Array2<u32>, found: Array2<T> },
}

impl<T: Number> CudaMatrix<T> {
    /// Opens a stream; the matrix comes with the first question.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn new(multiplier: &CudaMultiplier) -> Result<Self, Error> {
        let gpu = multiplier.gpu.clone();
        gpu.enter()?;
        let queue = Queue::new(&gpu)?;
        let state = State { queue, doubles: None, halves: None, heads: None, troubled: false, room: Room::empty() };
        Ok(Self { gpu, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // A panic leaves buffers whose contents are written before they are read.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `matrix xᵀ`, `(m, n)`, of `(m, k)` and `(n, k)`.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn product(
        &self,
        matrix: ArrayView2<'_, T>,
        x: ArrayView2<'_, T>,
        mut out: ArrayViewMut2<'_, T>,
        fast: bool,
    ) -> Result<(), Error> {
        if matrix.is_empty() || x.is_empty() {
            out.fill(T::ZERO);
            return Ok(());
        }
        self.ask(matrix, x, &mut Asked::Product(out), fast)
    }

    /// Quadratic forms, `(n,)`, of a matrix that was folded onto its lower triangle, `(d, d)`, at `(n, d)`.
    ///
    /// # Errors
    /// As for [`product`](Self::product).
    pub(crate) fn forms(&self, folded: ArrayView2<'_, T>, x: ArrayView2<'_, T>, out: &mut [f64]) -> Result<(), Error> {
        if folded.is_empty() || x.is_empty() {
            out.fill(0.0);
            return Ok(());
        }
        self.ask(folded, x, &mut Asked::Forms(out), false)
    }

    /// The `count` rows of the largest products with each question, in no order: rows and products, `(n, count)`.
    ///
    /// # Errors
    /// As for [`product`](Self::product); [`Error::Option`] for more rows than the device counts.
    pub(crate) fn largest(
        &self,
        matrix: ArrayView2<'_, T>,
        x: ArrayView2<'_, T>,
        count: usize,
        fast: bool,
    ) -> Result<(Array2<u32>, Array2<T>), Error> {
        let m = matrix.nrows();
        if i32::try_from(m).is_err() {
            let must = "at most 2147483647".to_owned();
            return Err(Error::Option { option: "rows of the matrix", value: m.to_string(), must });
        }
        let shape = (x.nrows(), count);
        let (indices, mut found) = (Array2::zeros(shape), Array2::from_elem(shape, T::ZERO));
        if shape.0 == 0 || count == 0 {
            return Ok((indices, found));
        }
        if matrix.ncols() == 0 {
            // All products are 0: the first rows.
            found.fill(T::ZERO);
            return Ok((Array2::from_shape_fn(shape, |(_, i)| i as u32), found));
        }
        let mut asked = Asked::Largest { count, indices, found };
        self.ask(matrix, x, &mut asked, fast)?;
        match asked {
            Asked::Largest { indices, found, .. } => Ok((indices, found)),
            _ => unreachable!("what was asked"),
        }
    }

    fn ask(
        &self,
        matrix: ArrayView2<'_, T>,
        x: ArrayView2<'_, T>,
        asked: &mut Asked<'_, T>,
        fast: bool,
    ) -> Result<(), Error> {
        let mut state = self.state();
        self.gpu.enter()?;
        let done = state.ask(&self.gpu, matrix, x, asked, fast);
        state.settle(&self.gpu, done)
    }

    /// As [`product`](Self::product) without bringing the result to the host, or as [`forms`](Self::forms) where `forms`:
    /// times on the device, of each repetition.
    ///
    /// # Errors
    /// As for [`product`](Self::product); [`Error::Memory`] where it does not fit in one chunk.
    pub(crate) fn times(
        &self,
        matrix: ArrayView2<'_, T>,
        x: ArrayView2<'_, T>,
        forms: bool,
        fast: bool,
        repeats: usize,
    ) -> Result<Vec<DeviceTime>, Error> {
        if matrix.is_empty() || x.is_empty() {
            return Ok(Vec::new());
        }
        let mut state = self.state();
        self.gpu.enter()?;
        let done = state.times(&self.gpu, matrix, x, forms, fast, repeats);
        state.settle(&self.gpu, done)
    }
}

impl<T: Number> Drop for CudaMatrix<T> {
    fn drop(&mut self) {
        // The buffers, which are dropped after this, belong to the context, and go where others find them.
        self.gpu.enter_to_drop();
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).queue.come_to_rest();
    }
}

/// How a batch is multiplied.
#[derive(Clone, Copy)]
struct Batch {
    cut: Cut,
    needs: Needs,
    chunk: usize,
}

impl<T: Number> State<T> {
    /// After a failure nothing runs any more, and what questions took goes back to the driver.
    fn settle<A>(&mut self, gpu: &Gpu, done: Result<A, Error>) -> Result<A, Error> {
        if done.is_err() {
            self.queue.recover();
            self.room = Room::empty();
            if matches!(done, Err(Error::Memory { .. })) {
                gpu.pool.drain();
            }
        }
        done
    }

    /// The form in which factors of this shape are multiplied.
    fn form(&self, gpu: &Gpu, asked: &Asked<'_, T>, (m, k): (usize, usize), n: usize, fast: bool) -> Form {
        let sums = matches!(asked, Asked::Product(_) | Asked::Largest { .. });
        if T::BYTES == 8 || self.troubled || !sums || !gpu.has(multiply_halves().name) {
            return Form::Double;
        }
        #[cfg(test)]
        if let Some(form) = FORM.get() {
            return form;
        }
        plan::form((m as u64, k as u64), n as u64, fast)
    }

    fn ask(
        &mut self,
        gpu: &Gpu,
        matrix: ArrayView2<'_, T>,
        x: ArrayView2<'_, T>,
        asked: &mut Asked<'_, T>,
        fast: bool,
    ) -> Result<(), Error> {
        let form = self.form(gpu, asked, matrix.dim(), x.nrows(), fast);
        if form != Form::Double {
            if self.answer(gpu, form, matrix, x, asked)? {
                return Ok(());
            }
            // All again, so that no answer depends on how questions fell into chunks.
            tracing::debug!("a product goes by f64: halves would lose digits");
        }
        let done = self.answer(gpu, Form::Double, matrix, x, asked)?;
        assert!(done, "f64 holds all numbers");
        Ok(())
    }

    /// False where halves would lose digits.
    fn answer(
        &mut self,
        gpu: &Gpu,
        form: Form,
        matrix: ArrayView2<'_, T>,
        x: ArrayView2<'_, T>,
        asked: &mut Asked<'_, T>,
    ) -> Result<bool, Error> {
        if !self.hold(gpu, form, matrix)? {
            return Ok(false);
        }
        let n = x.nrows();
        let batch = self.plan(gpu, form, matrix.dim(), n, asked)?;
        if let Asked::Norms(_, Some(shift)) = asked {
            let mut to = self.room.shift.first(shift.len());
            send(gpu, &self.queue, &mut to, 1, |piece, chunk: &mut [f64]| chunk.copy_from_slice(&shift[piece]))?;
        }
        for first in (0..n).step_by(batch.chunk) {
            let here = first..n.min(first + batch.chunk);
            let raw = self.bring(gpu, x.slice(s![here.clone(), ..]))?;
            self.compute(gpu, &batch, &raw, asked, None)?;
            if form != Form::Double && self.is_troubled(gpu)? {
                return Ok(false);
            }
            self.fetch(gpu, asked, here)?;
        }
        self.queue.rest(gpu)?;
        Ok(true)
    }

    fn slot(&mut self, form: Form) -> &mut Option<Kept> {
        match form {
            Form::Double => &mut self.doubles,
            Form::Halves => &mut self.halves,
            Form::Heads => &mut self.heads,
        }
    }

    /// Sees that the matrix is there in a form; false where halves cannot hold it.
    fn hold(&mut self, gpu: &Gpu, form: Form, matrix: ArrayView2<'_, T>) -> Result<bool, Error> {
        const WHAT: &str = "the matrix on the GPU";
        /// Bytes of rows that are on their way at a time.
        const PIECE: usize = 256 << 20;
        if self.slot(form).is_some() {
            return Ok(true);
        }
        let (rows, k) = matrix.dim();
        let (words, is_split) = (form.words(rows as u64, k as u64) as usize, form != Form::Double);
        let one_block = BLOCK as usize * k * T::BYTES as usize;
        let piece = ((PIECE / one_block).max(1) * BLOCK as usize).min(rows);
        let largest = if is_split { pieces(k as u64) as usize * piece } else { 0 };
        let on_the_way = (piece * k * T::BYTES as usize + 4 * largest) as u128;
        let wanted = 4 * (words + if is_split { rows } else { 0 }) as u128 + on_the_way;
        match gpu.room(WHAT, wanted, 0) {
            Err(Error::Memory { .. }) => {
                self.room = Room::empty();
                gpu.room(WHAT, wanted, 0)?;
            }
            other => other?,
        }
        *self.slot(form) = Some(Kept {
            operands: Slot::taken(gpu, WHAT, words)?,
            scales: Slot::taken(gpu, WHAT, if is_split { rows } else { 0 })?,
            rows: rows as u64,
            words,
        });
        let held = self.fill(gpu, form, matrix, piece);
        if !matches!(held, Ok(true)) {
            self.queue.recover();
            *self.slot(form) = None;
            self.troubled |= held.is_ok();
        }
        held
    }

    fn kept(&self, form: Form) -> &Kept {
        let slot = match form {
            Form::Double => &self.doubles,
            Form::Halves => &self.halves,
            Form::Heads => &self.heads,
        };
        slot.as_ref().expect("held just now")
    }

    /// Sends the matrix, some rows at a time, and makes operands of them.
    fn fill(&mut self, gpu: &Gpu, form: Form, matrix: ArrayView2<'_, T>, piece: usize) -> Result<bool, Error> {
        let (rows, k) = matrix.dim();
        let whole = self.kept(form).factor();
        let block = form.words(BLOCK.into(), k as u64) as usize;
        reserve(gpu, &mut self.room.raw, piece * k)?;
        if form != Form::Double {
            reserve(gpu, &mut self.room.trouble, 1)?;
            reserve(gpu, &mut self.room.largest, pieces(k as u64) as usize * piece)?;
            self.forget_trouble(gpu)?;
        }
        for first in (0..rows).step_by(piece) {
            let end = rows.min(first + piece);
            let raw = self.bring(gpu, matrix.slice(s![first..end, ..]))?;
            let from = first / BLOCK as usize * block;
            let to = Factor {
                operands: whole.operands.index(from..from + (end - first).div_ceil(BLOCK as usize) * block),
                scales: if form == Form::Double { whole.scales } else { whole.scales.index(first..end) },
                rows: (end - first) as u64,
            };
            self.pack(gpu, form, Side::Left, &raw, None, &to)?;
            // Before the next rows come where these lie.
            self.queue.wait(gpu)?;
        }
        Ok(form == Form::Double || !self.is_troubled(gpu)?)
    }

    /// Makes operands of rows.
    fn pack(
        &self,
        gpu: &Gpu,
        form: Form,
        side: Side,
        raw: &Raw<T>,
        shift: Option<&DeviceSlice<f64>>,
        to: &Factor,
    ) -> Result<(), Error> {
        let launcher = Launcher { gpu, queue: &self.queue };
        if form == Form::Double {
            return launcher.pack(raw, side, shift, &to.operands);
        }
        let raw = Raw { numbers: as_f32(&raw.numbers), rows: raw.rows, k: raw.k, by_columns: raw.by_columns };
        let largest = self.room.largest.first((pieces(raw.k) * raw.rows) as usize);
        launcher.split(&raw, side, form, &largest, to, &self.room.trouble.first(1))
    }

    /// Slices, chunks, and the room that they take, before anything runs.
    fn plan(
        &mut self,
        gpu: &Gpu,
        form: Form,
        (m, k): (usize, usize),
        n: usize,
        asked: &Asked<'_, T>,
    ) -> Result<Batch, Error> {
        let slice = plan::slice(form, m as u64, n as u64, k as u64, gpu.limits.multiprocessors);
        let triangle = matches!(asked, Asked::Forms(_) | Asked::Norms(..));
        let cut = Cut { form, k: k as u64, slice, triangle };
        let count = if let Asked::Largest { count, .. } = asked { *count } else { 0 };
        let needs = Needs {
            form,
            m: m as u64,
            k: k as u64,
            slices: cut.slices(),
            number: T::BYTES.into(),
            product: matches!(asked, Asked::Product(_) | Asked::Largest { .. }),
            count: count as u64,
        };
        let shift = if matches!(asked, Asked::Norms(_, Some(_))) { k } else { 0 };
        let have = self.room.bytes();
        let more = 8 * shift as u128 + 4;
        let all = needs.bytes((n as u64).next_multiple_of(BLOCK.into())) + more;
        let free = gpu.within_reach(all, have)?;
        let chunk = needs.chunk(n as u64, free.saturating_sub(more)) as usize;
        let wanted = needs.bytes(chunk as u64) + more;
        if wanted > free {
            return Err(Error::Memory { what: WHAT, wanted, free });
        }
        if wanted > have {
            // What is there may be of other sizes, and both might not fit.
            self.room = Room::empty();
        }
        let (c, words) = (chunk as u64, if form == Form::Double { 2 } else { 1 });
        let room = &mut self.room;
        reserve(gpu, &mut room.raw, chunk * k)?;
        reserve(gpu, &mut room.operands, form.words(c, k as u64) as usize)?;
        let sums = gmm_kernels::products::sums_len(m as u64, c) * u64::from(needs.slices) * words;
        reserve(gpu, &mut room.sums, sums as usize)?;
        if form != Form::Double {
            reserve(gpu, &mut room.scales, chunk)?;
            reserve(gpu, &mut room.largest, pieces(k as u64) as usize * chunk)?;
            reserve(gpu, &mut room.trouble, 1)?;
        }
        match asked {
            Asked::Product(_) => reserve(gpu, &mut room.product, m * chunk)?,
            Asked::Forms(_) | Asked::Norms(..) => reserve(gpu, &mut room.numbers, chunk)?,
            Asked::Largest { .. } => {
                reserve(gpu, &mut room.product, m * chunk)?;
                reserve(gpu, &mut room.indices, chunk * count)?;
                reserve(gpu, &mut room.found, chunk * count)?;
            }
        }
        reserve(gpu, &mut room.shift, shift)?;
        Ok(Batch { cut, needs, chunk })
    }

    /// Rows to the device as they lie: column by column where only columns are in one piece.
    fn bring(&self, gpu: &Gpu, x: ArrayView2<'_, T>) -> Result<Raw<T>, Error> {
        let by_columns = is_by_columns(x);
        let dense = if by_columns { x.reversed_axes() } else { x };
        let mut numbers = self.room.raw.first(x.len());
        send(gpu, &self.queue, &mut numbers, 1, |piece, chunk| put(dense, piece.start, chunk))?;
        Ok(Raw { numbers, rows: x.nrows() as u64, k: x.ncols() as u64, by_columns })
    }

    /// From questions to answers on the device; events, where they are given, are recorded between.
    fn compute(
        &mut self,
        gpu: &Gpu,
        batch: &Batch,
        raw: &Raw<T>,
        asked: &Asked<'_, T>,
        events: Option<&[Event; 4]>,
    ) -> Result<(), Error> {
        let Batch { cut, needs, .. } = batch;
        let (form, m, n) = (cut.form, needs.m, raw.rows);
        let record = |i: usize| match events {
            Some(events) => gpu.check("an event", events[i].record(&self.queue.stream)),
            None => Ok(()),
        };
        let right = Factor {
            operands: self.room.operands.first(form.words(n, raw.k) as usize),
            scales: self.room.scales.first(if form == Form::Double { 0 } else { n as usize }),
            rows: n,
        };
        let shift = match asked {
            Asked::Norms(_, Some(shift)) => Some(self.room.shift.first(shift.len())),
            _ => None,
        };
        if form != Form::Double {
            self.forget_trouble(gpu)?;
        }
        record(0)?;
        self.pack(gpu, form, Side::Right, raw, shift.as_ref(), &right)?;
        record(1)?;
        let launcher = Launcher { gpu, queue: &self.queue };
        let (left, slices) = (self.kept(form).factor(), cut.slices());
        let sums = self.room.sums.first(self.room.sums.room());
        launcher.multiply(cut, &left, &right, &sums)?;
        record(2)?;
        let finish = |by_columns: bool| {
            let to = self.room.product.first((m * n) as usize);
            if form == Form::Double {
                launcher.finish(slices, (m, n), &sums, by_columns, &to)
            } else {
                launcher.finish_halves(slices, &left, &right, &sums, by_columns, &as_f32(&to))
            }
        };
        match asked {
            Asked::Product(out) => finish(is_by_columns(out.view()))?,
            Asked::Forms(_) => {
                launcher.forms(slices, (m, n), &sums, Some(raw), &self.room.numbers.first(n as usize))?;
            }
            Asked::Norms(..) => {
                launcher.forms::<T>(slices, (m, n), &sums, None, &self.room.numbers.first(n as usize))?;
            }
            Asked::Largest { count, .. } => {
                finish(true)?;
                let values = self.room.product.first((m * n) as usize);
                let len = n as usize * count;
                let (indices, found) = (self.room.indices.first(len), self.room.found.first(len));
                launcher.select((n, m as u32), *count as u32, &values, &indices, &found)?;
            }
        }
        record(3)
    }

    /// Brings the answers of some questions.
    fn fetch(&self, gpu: &Gpu, asked: &mut Asked<'_, T>, here: std::ops::Range<usize>) -> Result<(), Error> {
        let n = here.len();
        match asked {
            Asked::Product(out) => {
                let out = out.slice_mut(s![.., here]);
                let from = self.room.product.first(out.len());
                // As `compute` had it from the whole.
                let by_columns = is_by_columns(out.view());
                let mut dense = if by_columns { out.reversed_axes() } else { out };
                receive(gpu, &self.queue, &from, |piece, numbers| take(dense.view_mut(), piece.start, numbers))
            }
            Asked::Forms(out) | Asked::Norms(out, _) => {
                let out = &mut out[here];
                receive(gpu, &self.queue, &self.room.numbers.first(n), |piece, numbers: &[f64]| {
                    out[piece].copy_from_slice(numbers);
                })
            }
            Asked::Largest { count, indices, found } => {
                let len = n * *count;
                let mut to = indices.slice_mut(s![here.clone(), ..]);
                receive(gpu, &self.queue, &self.room.indices.first(len), |piece, numbers| {
                    take(to.view_mut(), piece.start, numbers);
                })?;
                let mut to = found.slice_mut(s![here, ..]);
                receive(gpu, &self.queue, &self.room.found.first(len), |piece, numbers| {
                    take(to.view_mut(), piece.start, numbers);
                })
            }
        }
    }

    fn forget_trouble(&self, gpu: &Gpu) -> Result<(), Error> {
        send(gpu, &self.queue, &mut self.room.trouble.first(1), 1, |_, chunk: &mut [u32]| chunk.fill(0))
    }

    fn is_troubled(&self, gpu: &Gpu) -> Result<bool, Error> {
        let mut word = 0;
        receive(gpu, &self.queue, &self.room.trouble.first(1), |_, numbers: &[u32]| word = numbers[0])?;
        Ok(word != 0)
    }
}

/// Numbers of a matrix of `f32`.
fn as_f32<T: Number>(numbers: &DeviceSlice<T>) -> DeviceSlice<f32> {
    assert!(T::BYTES == 4, "f64 is multiplied in f64");
    // SAFETY: `T` is `f32`.
    unsafe { DeviceSlice::from_raw_parts(numbers.as_device_ptr().cast(), numbers.len()) }
}

#[cfg(test)]
thread_local! {
    /// The form of products, whatever their shape.
    pub(super) static FORM: std::cell::Cell<Option<Form>> = const { std::cell::Cell::new(None) };
}
