//! A loop of Lloyd's iterations on the emulated device, launch by launch.

use std::ptr::null;

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::em::state::STATE_LEN;
use gmm_kernels::layout::packed_len;
use gmm_kernels::seeding::lloyd::assign::{self, Assign};
use gmm_kernels::seeding::lloyd::centres::{MoveCentres, SEEN, Settle, lloyd_move, lloyd_settle};
use gmm_kernels::seeding::lloyd::end::{EndOfPass, MOST_NUMBERS, lloyd_end};
use gmm_kernels::seeding::lloyd::products::{HardProducts, hard_products, pieces};
use gmm_kernels::seeding::lloyd::sums::{HardSums, hard_sums};
use gmm_kernels::seeding::lloyd::{CentreLayout, SumSplits, labels_len};
use ndarray::Array2;

use crate::harness::{poison, reduced, tiled};

/// The kernels that end a pass, after labels and partial sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Launches,
    /// One block, given the sums.
    OneBlock,
    /// One block, given the partial sums.
    OneBlockOfAll,
}

pub(super) const ENDS: [End; 3] = [End::Launches, End::OneBlock, End::OneBlockOfAll];

/// Buffers of a loop, and the division of its work.
pub(super) struct Loop<T: Real> {
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) d: usize,
    pub(super) place: CentreLayout,
    pub(super) cut: SumSplits,
    pub(super) resident: bool,
    pub(super) end: End,
    pub(super) blocks: u32,
    pub(super) rest: f64,
    pub(super) x: Buffer<T>,
    pub(super) row_weights: Option<Buffer<f64>>,
    pub(super) state: Buffer<u32>,
    pub(super) labels: Buffer<u32>,
    pub(super) centres: Buffer<f64>,
    pub(super) weights: Buffer<f64>,
    pub(super) moved: Buffer<f64>,
    pub(super) coefficients: Buffer<f64>,
    pub(super) constants: Buffer<f64>,
    pub(super) partials: Buffer<f64>,
    pub(super) sums: Vec<f64>,
    pub(super) seen: Buffer<f64>,
}

impl<T: Real> Loop<T> {
    /// Centres and rows are relative to the shift.
    pub(super) fn new(
        rows: &Array2<f64>,
        row_weights: Option<&[f64]>,
        centres: &Array2<f64>,
        cut: SumSplits,
        resident: bool,
    ) -> Self {
        let ((n, d), k) = (rows.dim(), centres.nrows());
        let place = CentreLayout::of(k as u32, d as u32);
        let mut it = Self {
            n,
            k,
            d,
            place,
            cut,
            resident,
            end: End::Launches,
            blocks: 3,
            rest: 0.0,
            x: tiled::<T>(rows, None, None),
            row_weights: row_weights.map(Buffer::new),
            state: Buffer::new(&[0; STATE_LEN]),
            labels: Buffer::new(&vec![7777; labels_len(n as u64) as usize]),
            centres: Buffer::new(&centres.iter().copied().collect::<Vec<_>>()),
            weights: poison(k as u64),
            moved: poison(k as u64),
            coefficients: Buffer::new(&vec![0.0; place.coefficients() as usize]),
            constants: poison(8 * u64::from(place.groups)),
            partials: poison(u64::from(cut.splits) * cut.len(k as u32)),
            sums: vec![f64::NAN; cut.len(k as u32) as usize],
            seen: poison(SEEN as u64),
        };
        it.update(0);
        it
    }

    pub(super) fn assign(&mut self, iteration: u32) {
        let arguments = Assign {
            state: self.state.pointer(),
            iteration,
            x: self.x.pointer(),
            row_weights: self.row_weights.as_ref().map_or(null(), Buffer::pointer),
            n: self.n as u64,
            d: self.d as u32,
            steps: self.place.steps,
            groups: self.place.groups,
            resident: self.resident.into(),
            coefficients: self.coefficients.pointer(),
            constants: self.constants.pointer(),
            labels: self.labels.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { assign::kernel::<T>(self.place.at_once).emulate((self.blocks, 1), arguments) };
    }

    pub(super) fn add_up(&mut self, iteration: u32) {
        let arguments = HardSums {
            state: self.state.pointer(),
            iteration,
            x: self.x.pointer(),
            row_weights: self.row_weights.as_ref().map_or(null(), Buffer::pointer),
            n: self.n as u64,
            d: self.d as u32,
            k: self.k as u32,
            labels: self.labels.pointer(),
            centres: self.centres.pointer(),
            columns: self.cut.columns,
            ranges: self.cut.ranges,
            splits: self.cut.splits,
            partials: self.partials.pointer_mut(),
        };
        let grid = (self.cut.warps().div_ceil(4) as u32, 1);
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { hard_sums::<T>().emulate(grid, arguments) };
        self.sums = reduced(&self.partials, self.cut.splits.into(), self.cut.len(self.k as u32), false);
    }

    /// Products of clusters by the labels: `(k, packed_len(d))`, or of all clusters together.
    pub(super) fn products(&self, tied: bool, range: u32, splits: u32) -> Vec<f64> {
        let len = packed_len(self.d as u32) * if tied { 1 } else { self.k as u64 };
        let mut partials: Buffer<f64> = poison(u64::from(splits) * len);
        let arguments = HardProducts {
            x: self.x.pointer(),
            row_weights: self.row_weights.as_ref().map_or(null(), Buffer::pointer),
            n: self.n as u64,
            d: self.d as u32,
            k: self.k as u32,
            tied: tied.into(),
            labels: self.labels.pointer(),
            centres: self.centres.pointer(),
            range,
            partials: partials.pointer_mut(),
        };
        let blocks = pieces(self.d as u32) * (self.k as u32).div_ceil(range);
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { hard_products::<T>().emulate((blocks, splits), arguments) };
        reduced(&partials, splits.into(), len, false)
    }

    /// Does the same as [`update`](Self::update), in one block.
    pub(super) fn end(&mut self, iteration: u32) {
        let sums = Buffer::new(&self.sums);
        let all = self.end == End::OneBlockOfAll;
        let arguments = EndOfPass {
            state: self.state.pointer_mut(),
            iteration,
            k: self.k as u32,
            d: self.d as u32,
            at_once: self.place.at_once,
            groups: self.place.groups,
            steps: self.place.steps,
            rest: self.rest,
            partials: if all { self.partials.pointer() } else { sums.pointer() },
            splits: if all { self.cut.splits } else { 1 },
            len: self.cut.len(self.k as u32) as u32,
            parts: self.cut.columns * self.cut.ranges,
            centres: self.centres.pointer_mut(),
            weights: self.weights.pointer_mut(),
            coefficients: self.coefficients.pointer_mut(),
            constants: self.constants.pointer_mut(),
            seen: self.seen.pointer_mut(),
        };
        assert!(arguments.len <= MOST_NUMBERS);
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { lloyd_end().emulate((1, 1), arguments) };
    }

    pub(super) fn update(&mut self, iteration: u32) {
        let sums = Buffer::new(&self.sums);
        let arguments = MoveCentres {
            state: self.state.pointer(),
            iteration,
            k: self.k as u32,
            d: self.d as u32,
            at_once: self.place.at_once,
            groups: self.place.groups,
            steps: self.place.steps,
            sums: sums.pointer(),
            centres: self.centres.pointer_mut(),
            weights: self.weights.pointer_mut(),
            moved: self.moved.pointer_mut(),
            coefficients: self.coefficients.pointer_mut(),
            constants: self.constants.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { lloyd_move().emulate((8 * self.place.groups, 1), arguments) };
        if iteration == 0 {
            return;
        }
        let inertia = Buffer::new(&self.sums[self.cut.columns as usize * self.k..]);
        let arguments = Settle {
            state: self.state.pointer_mut(),
            iteration,
            k: self.k as u32,
            rest: self.rest,
            weights: self.weights.pointer(),
            moved: self.moved.pointer(),
            inertia: inertia.pointer(),
            parts: self.cut.columns * self.cut.ranges,
            seen: self.seen.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernel's arguments document.
        unsafe { lloyd_settle().emulate((1, 1), arguments) };
    }

    pub(super) fn pass(&mut self, iteration: u32) {
        self.assign(iteration);
        self.add_up(iteration);
        match self.end {
            End::Launches => self.update(iteration),
            End::OneBlock | End::OneBlockOfAll => self.end(iteration),
        }
    }

    pub(super) fn centres(&self) -> Array2<f64> {
        Array2::from_shape_vec((self.k, self.d), self.centres.to_vec()).unwrap()
    }

    pub(super) fn state(&self, at: u64) -> u32 {
        self.state.to_vec()[at as usize]
    }
}
