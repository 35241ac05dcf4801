//! The matrix's state on the device, and how a batch of queries is processed.

use cust::event::Event;
use gmm_kernels::products::multiply::multiply_halves;
use gmm_kernels::products::scales::pieces;
use gmm_kernels::products::{BLOCK, Form};
use ndarray::s;

use super::plan::{self, Needs};
use super::question::{Question, WHAT};
use super::room::{HeldOperand, Room, as_f32, reserve};
use super::transfer::{is_by_columns, take};
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::{receive, send};
use crate::cuda::launch::{Factor, Launcher, ProductShape, Raw, Side};
use crate::cuda::number::Number;
use crate::products::Operand;

/// The matrix's operands on the device, and the buffers of queries.
pub(super) struct State<T: Number> {
    pub(super) queue: Queue,
    pub(super) doubles: Option<HeldOperand>,
    pub(super) halves: Option<HeldOperand>,
    pub(super) heads: Option<HeldOperand>,
    /// Whether the matrix has rows that fp16 cannot represent.
    pub(super) troubled: bool,
    pub(super) room: Room<T>,
}

/// How a batch is processed.
#[derive(Clone, Copy)]
pub(super) struct Batch {
    cut: ProductShape,
    pub(super) needs: Needs,
    pub(super) chunk: usize,
}

impl<T: Number> State<T> {
    pub(super) fn new(queue: Queue) -> Self {
        Self { queue, doubles: None, halves: None, heads: None, troubled: false, room: Room::empty() }
    }

    /// Waits until the stream is idle.
    pub(super) fn come_to_rest(&mut self) {
        self.queue.come_to_rest();
    }

    /// Finishes a query. After a failure, waits until the stream is idle and frees the queries' buffers.
    pub(super) fn settle<A>(&mut self, gpu: &Gpu, done: Result<A, Error>) -> Result<A, Error> {
        if done.is_err() {
            self.queue.recover();
            self.room = Room::empty();
            if matches!(done, Err(Error::Memory { .. })) {
                gpu.pool.drain();
            }
        }
        done
    }

    /// Chooses the form in which factors of this shape are multiplied.
    pub(super) fn form(
        &self,
        gpu: &Gpu,
        asked: &Question<'_, T>,
        (m, k): (usize, usize),
        n: usize,
        fast: bool,
    ) -> Form {
        let sums = matches!(asked, Question::Product(_) | Question::Largest { .. });
        if T::BYTES == 8 || self.troubled || !sums || !gpu.has(multiply_halves().name) {
            return Form::Double;
        }
        #[cfg(test)]
        if let Some(form) = super::question::FORM.get() {
            return form;
        }
        plan::form((m as u64, k as u64), n as u64, fast)
    }

    pub(super) fn ask(
        &mut self,
        gpu: &Gpu,
        matrix: &Operand<'_, T>,
        x: &Operand<'_, T>,
        asked: &mut Question<'_, T>,
        fast: bool,
    ) -> Result<(), Error> {
        x.check(gpu)?;
        let form = self.form(gpu, asked, matrix.dim(), x.dim().0, fast);
        if form != Form::Double {
            if self.answer(gpu, form, matrix, x, asked)? {
                return Ok(());
            }
            // Repeats the whole batch, so that no result depends on how queries were divided into chunks.
            tracing::debug!("a product falls back to f64: fp16 would lose precision");
        }
        let done = self.answer(gpu, Form::Double, matrix, x, asked)?;
        assert!(done, "f64 represents all numbers");
        Ok(())
    }

    /// Runs the query in one form. Returns false if fp16 would lose precision.
    fn answer(
        &mut self,
        gpu: &Gpu,
        form: Form,
        matrix: &Operand<'_, T>,
        x: &Operand<'_, T>,
        asked: &mut Question<'_, T>,
    ) -> Result<bool, Error> {
        if !self.hold(gpu, form, matrix)? {
            return Ok(false);
        }
        let n = x.dim().0;
        let batch = self.plan(gpu, form, matrix.dim(), x, asked)?;
        if let Question::Norms(_, Some(shift)) = asked {
            let mut to = self.room.shift.first(shift.len());
            send(gpu, &self.queue, &mut to, 1, |piece, chunk: &mut [f64]| chunk.copy_from_slice(&shift[piece]))?;
        }
        for first in (0..n).step_by(batch.chunk) {
            let here = first..n.min(first + batch.chunk);
            let raw = self.bring(gpu, &x.rows(here.clone()))?;
            self.compute(gpu, &batch, &raw, asked, None)?;
            if form != Form::Double && self.is_troubled(gpu)? {
                return Ok(false);
            }
            self.fetch(gpu, asked, here)?;
        }
        self.queue.rest(gpu)?;
        Ok(true)
    }

    /// Plans slices and chunks, and reserves their buffers, before anything runs.
    pub(super) fn plan(
        &mut self,
        gpu: &Gpu,
        form: Form,
        (m, k): (usize, usize),
        x: &Operand<'_, T>,
        asked: &Question<'_, T>,
    ) -> Result<Batch, Error> {
        let n = x.dim().0;
        let slice = plan::slice(form, m as u64, n as u64, k as u64, gpu.limits.multiprocessors);
        let triangle = matches!(asked, Question::Forms(_) | Question::Norms(..));
        let cut = ProductShape { form, k: k as u64, slice, triangle };
        // Numbers that are selected for each query.
        let count = if let Question::Largest { indices, .. } = asked { indices.ncols() } else { 0 };
        let needs = Needs {
            form,
            m: m as u64,
            k: k as u64,
            slices: cut.slices(),
            number: x.number_bytes(),
            product: matches!(asked, Question::Product(_) | Question::Largest { .. }),
            count: count as u64,
        };
        let shift = if matches!(asked, Question::Norms(_, Some(_))) { k } else { 0 };
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
            // The existing buffers may have other sizes, and old and new ones together might not fit.
            self.room = Room::empty();
        }
        let (c, words) = (chunk as u64, if form == Form::Double { 2 } else { 1 });
        let room = &mut self.room;
        reserve(gpu, &mut room.raw, x.room(chunk))?;
        reserve(gpu, &mut room.operands, form.words(c, k as u64) as usize)?;
        let sums = gmm_kernels::products::sums_len(m as u64, c) * u64::from(needs.slices) * words;
        reserve(gpu, &mut room.sums, sums as usize)?;
        if form != Form::Double {
            reserve(gpu, &mut room.scales, chunk)?;
            reserve(gpu, &mut room.largest, pieces(k as u64) as usize * chunk)?;
            reserve(gpu, &mut room.trouble, 1)?;
        }
        match asked {
            Question::Product(_) => reserve(gpu, &mut room.product, m * chunk)?,
            Question::Forms(_) | Question::Norms(..) => reserve(gpu, &mut room.numbers, chunk)?,
            Question::Largest { .. } => {
                reserve(gpu, &mut room.product, m * chunk)?;
                reserve(gpu, &mut room.indices, chunk * count)?;
                reserve(gpu, &mut room.found, chunk * count)?;
            }
        }
        reserve(gpu, &mut room.shift, shift)?;
        Ok(Batch { cut, needs, chunk })
    }

    /// Enqueues the work from uploaded queries to results on the device. Records `events`, if given, between the steps.
    pub(super) fn compute(
        &mut self,
        gpu: &Gpu,
        batch: &Batch,
        raw: &Raw<T>,
        asked: &Question<'_, T>,
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
            Question::Norms(_, Some(shift)) => Some(self.room.shift.first(shift.len())),
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
            Question::Product(out) => finish(is_by_columns(out.view()))?,
            Question::Forms(_) => {
                launcher.forms(slices, (m, n), &sums, Some(raw), &self.room.numbers.first(n as usize))?;
            }
            Question::Norms(..) => {
                launcher.forms::<T>(slices, (m, n), &sums, None, &self.room.numbers.first(n as usize))?;
            }
            Question::Largest { count, segment, .. } => {
                finish(true)?;
                self.select(launcher, needs, n as usize, *count, *segment)?;
            }
        }
        record(3)
    }

    /// Selects the largest products of each segment of each of `n` queries.
    fn select(
        &self,
        launcher: Launcher<'_>,
        needs: &Needs,
        n: usize,
        count: usize,
        segment: usize,
    ) -> Result<(), Error> {
        let (m, width) = (needs.m as usize, needs.count as usize);
        let values = self.room.product.first(m * n);
        let (indices, found) = (self.room.indices.first(n * width), self.room.found.first(n * width));
        if segment == m {
            return launcher.select((n as u64, m as u32), count as u32, &values, &indices, &found);
        }
        for query in 0..n {
            let values = values.index(query * m..(query + 1) * m);
            let own = query * width..(query + 1) * width;
            let (indices, found) = (indices.index(own.clone()), found.index(own));
            let (segments, whole) = (m / segment, m / segment * segment);
            launcher.select((segments as u64, segment as u32), count as u32, &values, &indices, &found)?;
            let (rest, done) = (m - whole, segments * count);
            if rest > 0 {
                let (indices, found) = (indices.index(done..width), found.index(done..width));
                let values = values.index(whole..m);
                launcher.select((1, rest as u32), (width - done) as u32, &values, &indices, &found)?;
            }
        }
        Ok(())
    }

    /// Copies the results of some queries to the host.
    fn fetch(&self, gpu: &Gpu, asked: &mut Question<'_, T>, here: std::ops::Range<usize>) -> Result<(), Error> {
        let n = here.len();
        match asked {
            Question::Product(out) => {
                let out = out.slice_mut(s![.., here]);
                let from = self.room.product.first(out.len());
                // The layout that `compute` chose for the whole output.
                let by_columns = is_by_columns(out.view());
                let mut dense = if by_columns { out.reversed_axes() } else { out };
                receive(gpu, &self.queue, &from, |piece, numbers| take(dense.view_mut(), piece.start, numbers))
            }
            Question::Forms(out) | Question::Norms(out, _) => {
                let out = &mut out[here];
                receive(gpu, &self.queue, &self.room.numbers.first(n), |piece, numbers: &[f64]| {
                    out[piece].copy_from_slice(numbers);
                })
            }
            Question::Largest { indices, found, .. } => {
                let len = n * indices.ncols();
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

    pub(super) fn forget_trouble(&self, gpu: &Gpu) -> Result<(), Error> {
        send(gpu, &self.queue, &mut self.room.trouble.first(1), 1, |_, chunk: &mut [u32]| chunk.fill(0))
    }

    pub(super) fn is_troubled(&self, gpu: &Gpu) -> Result<bool, Error> {
        let mut word = 0;
        receive(gpu, &self.queue, &self.room.trouble.first(1), |_, numbers: &[u32]| word = numbers[0])?;
        Ok(word != 0)
    }
}
