//! The matrix as operands in each form that was needed so far, cached on the device.

use cust::memory::DeviceSlice;
use gmm_kernels::products::scales::pieces;
use gmm_kernels::products::{BLOCK, Form};

use super::room::{HeldOperand, Room, as_f32, reserve};
use super::state::State;
use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::{Factor, Launcher, Raw, Side};
use crate::cuda::number::Number;
use crate::products::Operand;

impl<T: Number> State<T> {
    fn slot(&mut self, form: Form) -> &mut Option<HeldOperand> {
        match form {
            Form::Double => &mut self.doubles,
            Form::HalfPrecision => &mut self.halves,
            Form::Heads => &mut self.heads,
        }
    }

    /// Makes sure that the matrix is resident in the given form. Returns false if fp16 cannot represent it.
    pub(super) fn hold(&mut self, gpu: &Gpu, form: Form, matrix: &Operand<'_, T>) -> Result<bool, Error> {
        const WHAT: &str = "the matrix on the GPU";
        /// Bytes of rows that are uploaded at a time.
        const PIECE: usize = 256 << 20;
        if self.slot(form).is_some() {
            return Ok(true);
        }
        let (rows, k) = matrix.dim();
        let (words, is_split) = (form.words(rows as u64, k as u64) as usize, form != Form::Double);
        let one_block = BLOCK as usize * k * T::BYTES as usize;
        let piece = ((PIECE / one_block).max(1) * BLOCK as usize).min(rows);
        let largest = if is_split { pieces(k as u64) as usize * piece } else { 0 };
        let on_the_way = (matrix.room(piece) * T::BYTES as usize + 4 * largest) as u128;
        let wanted = 4 * (words + if is_split { rows } else { 0 }) as u128 + on_the_way;
        match gpu.room(WHAT, wanted, 0) {
            Err(Error::Memory { .. }) => {
                self.room = Room::empty();
                gpu.room(WHAT, wanted, 0)?;
            }
            other => other?,
        }
        *self.slot(form) = Some(HeldOperand {
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

    pub(super) fn kept(&self, form: Form) -> &HeldOperand {
        let slot = match form {
            Form::Double => &self.doubles,
            Form::HalfPrecision => &self.halves,
            Form::Heads => &self.heads,
        };
        slot.as_ref().expect("held just now")
    }

    /// Uploads the matrix if it is not on the device, some rows at a time, and packs its operands.
    fn fill(&mut self, gpu: &Gpu, form: Form, matrix: &Operand<'_, T>, piece: usize) -> Result<bool, Error> {
        let (rows, k) = matrix.dim();
        let whole = self.kept(form).factor();
        let block = form.words(BLOCK.into(), k as u64) as usize;
        reserve(gpu, &mut self.room.raw, matrix.room(piece))?;
        if form != Form::Double {
            reserve(gpu, &mut self.room.trouble, 1)?;
            reserve(gpu, &mut self.room.largest, pieces(k as u64) as usize * piece)?;
            self.forget_trouble(gpu)?;
        }
        for first in (0..rows).step_by(piece) {
            let end = rows.min(first + piece);
            let raw = self.bring(gpu, &matrix.rows(first..end))?;
            let from = first / BLOCK as usize * block;
            let to = Factor {
                operands: whole.operands.index(from..from + (end - first).div_ceil(BLOCK as usize) * block),
                scales: if form == Form::Double { whole.scales } else { whole.scales.index(first..end) },
                rows: (end - first) as u64,
            };
            self.pack(gpu, form, Side::Left, &raw, None, &to)?;
            // The next rows overwrite the buffer that the packing reads.
            self.queue.wait(gpu)?;
        }
        Ok(form == Form::Double || !self.is_troubled(gpu)?)
    }

    /// Packs rows into operands.
    pub(super) fn pack(
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
}
