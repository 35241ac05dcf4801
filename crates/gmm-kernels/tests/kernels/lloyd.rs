//! Lloyd's iterations as the device does them: labels, sums, moves and the end, against plain loops in `f64`.

use std::ptr::null;

use gmm_kernels::Real;
use gmm_kernels::device::Buffer;
use gmm_kernels::fused::state::{DONE, FINISHED, STATE_LEN, TROUBLE};
use gmm_kernels::lloyd::assign::{self, Assign};
use gmm_kernels::lloyd::centres::{MoveCentres, SEEN, Settle, lloyd_move, lloyd_settle};
use gmm_kernels::lloyd::end::{EndOfPass, MOST, lloyd_end};
use gmm_kernels::lloyd::sums::{HardSums, hard_sums};
use gmm_kernels::lloyd::{Cut, NONE, Place, labels_len};
use gmm_model::CovarianceType;
use ndarray::{Array2, ArrayView1, array};

use crate::compare::{close, tolerance};
use crate::data::{Random, column_means, mixture, rows};
use crate::harness::{poison, reduced, tiled};

/// What ends a pass, after labels and partial sums.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Launches,
    /// One block, for sums.
    OneBlock,
    /// One block, for partial sums.
    OneBlockOfAll,
}

const ENDS: [End; 3] = [End::Launches, End::OneBlock, End::OneBlockOfAll];

/// A loop's buffers, and how its launches are cut.
struct Loop<T: Real> {
    n: usize,
    k: usize,
    d: usize,
    place: Place,
    cut: Cut,
    resident: bool,
    end: End,
    blocks: u32,
    rest: f64,
    x: Buffer<T>,
    row_weights: Option<Buffer<f64>>,
    state: Buffer<u32>,
    labels: Buffer<u32>,
    centres: Buffer<f64>,
    weights: Buffer<f64>,
    moved: Buffer<f64>,
    coefficients: Buffer<f64>,
    constants: Buffer<f64>,
    partials: Buffer<f64>,
    sums: Vec<f64>,
    seen: Buffer<f64>,
}

impl<T: Real> Loop<T> {
    /// Centres and rows are relative to the shift.
    fn new(rows: &Array2<f64>, row_weights: Option<&[f64]>, centres: &Array2<f64>, cut: Cut, resident: bool) -> Self {
        let ((n, d), k) = (rows.dim(), centres.nrows());
        let place = Place::of(k as u32, d as u32);
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

    fn assign(&mut self, iteration: u32) {
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
        // SAFETY: buffers of these lengths.
        unsafe { assign::kernel::<T>(self.place.at_once).emulate((self.blocks, 1), arguments) };
    }

    fn add_up(&mut self, iteration: u32) {
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
        // SAFETY: buffers of these lengths.
        unsafe { hard_sums::<T>().emulate(grid, arguments) };
        self.sums = reduced(&self.partials, self.cut.splits.into(), self.cut.len(self.k as u32), false);
    }

    /// What [`update`](Self::update) does, by one block.
    fn end(&mut self, iteration: u32) {
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
        assert!(arguments.len <= MOST.0);
        // SAFETY: buffers of these lengths.
        unsafe { lloyd_end().emulate((1, 1), arguments) };
    }

    fn update(&mut self, iteration: u32) {
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
        // SAFETY: buffers of these lengths.
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
        // SAFETY: buffers of these lengths.
        unsafe { lloyd_settle().emulate((1, 1), arguments) };
    }

    fn pass(&mut self, iteration: u32) {
        self.assign(iteration);
        self.add_up(iteration);
        match self.end {
            End::Launches => self.update(iteration),
            End::OneBlock | End::OneBlockOfAll => self.end(iteration),
        }
    }

    fn centres(&self) -> Array2<f64> {
        Array2::from_shape_vec((self.k, self.d), self.centres.to_vec()).unwrap()
    }

    fn state(&self, at: u64) -> u32 {
        self.state.to_vec()[at as usize]
    }
}

fn squared(a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Rows as they are held, less the shift and rounded, and centres among them.
fn problem<T: Real>(n: usize, d: usize, k: usize, offset: f64) -> (Array2<f64>, Array2<f64>) {
    let random = &mut Random((n + 31 * d + 977 * k) as u64);
    let mixture = mixture(CovarianceType::Spherical, k, d, offset, random);
    let all = rows::<T>(&mixture, n, random);
    let shift = column_means(&all);
    let relative = Array2::from_shape_fn((n, d), |(i, j)| T::from_f64(all[[i, j]] - shift[j]).to_f64());
    let centres = Array2::from_shape_fn((k, d), |(c, j)| mixture.means()[[c, j]] - shift[j]);
    (relative, centres)
}

/// One pass with second moments against plain loops.
fn check<T: Real>(
    (n, d, k): (usize, usize, usize),
    weighted: bool,
    ranges: u32,
    splits: u32,
    resident: bool,
    end: End,
) {
    let what = format!("{} n={n} d={d} k={k} weighted={weighted} {ranges} {splits} {resident} {end:?}", T::NAME);
    let (rows, start) = problem::<T>(n, d, k, 1e3);
    let row_weights: Vec<f64> = (0..n).map(|i| if weighted { 0.5 * ((i + 1) % 4) as f64 } else { 1.0 }).collect();
    let columns = 2 * d as u32 + 1;
    let cut = Cut { columns, ranges, splits };
    let mut device = Loop::<T>::new(&rows, weighted.then_some(&row_weights[..]), &start, cut, resident);
    device.end = end;
    device.pass(1);
    let labels = device.labels.to_vec();
    assert!(labels[n..].iter().all(|l| *l == NONE), "{what}: rows past the last");
    let (mut weight, mut first) = (vec![0.0; k], Array2::<f64>::zeros((k, d)));
    let (mut second, mut inertia) = (Array2::<f64>::zeros((k, d)), 0.0);
    for (i, row) in rows.outer_iter().enumerate() {
        let w = row_weights[i];
        if w == 0.0 {
            assert_eq!(labels[i], NONE, "{what}: row {i} weighs nothing");
            continue;
        }
        let label = labels[i] as usize;
        let best = start.outer_iter().map(|p| squared(row, p)).fold(f64::INFINITY, f64::min);
        // The product is in f64 in both precisions.
        let scale = best + row.dot(&row);
        close(squared(row, start.row(label)), best, scale, 1e-13, &format!("{what}: row {i}"));
        weight[label] += w;
        inertia += w * squared(row, start.row(label));
        for j in 0..d {
            let z = row[j] - start[[label, j]];
            first[[label, j]] += w * z;
            second[[label, j]] += w * z * z;
        }
    }
    let spread = inertia.max(1e-300).sqrt() * (n as f64).sqrt();
    for c in 0..k {
        close(device.sums[d * k + c], weight[c], n as f64, 1e-14, &format!("{what}: weight of {c}"));
        for j in 0..d {
            close(device.sums[j * k + c], first[[c, j]], spread, 1e-13, &format!("{what}: first {c} {j}"));
            let got = device.sums[(d + 1 + j) * k + c];
            close(got, second[[c, j]], inertia, 1e-13, &format!("{what}: second {c} {j}"));
        }
    }
    let seen = device.seen.to_vec();
    close(seen[2], inertia, inertia, 1e-13, &format!("{what}: inertia"));
    let empty = weight.iter().filter(|w| **w == 0.0).count();
    assert_eq!((seen[0], seen[1]), (1.0, empty as f64), "{what}: iteration and empty centres");
    assert_eq!(device.state(TROUBLE), u32::from(empty > 0), "{what}: trouble");
    assert_eq!((device.state(FINISHED), device.state(DONE)), (1, 0), "{what}: it goes on");
    let (after, mut moved) = (device.centres(), 0.0);
    for c in 0..k {
        for j in 0..d {
            let by = if weight[c] > 0.0 { first[[c, j]] / weight[c] } else { 0.0 };
            moved += by * by;
            close(after[[c, j]], start[[c, j]] + by, 1.0 + start[[c, j]].abs(), 1e-12, &format!("{what}: centre {c}"));
        }
    }
    close(seen[3], moved, moved, 1e-9, &format!("{what}: moved"));
}

#[test]
fn a_pass_is_what_plain_loops_say() {
    let sizes = [(1, 1, 1), (127, 3, 2), (129, 16, 8), (300, 17, 9), (515, 33, 16), (700, 2, 33), (130, 140, 5)];
    for (i, size) in sizes.into_iter().enumerate() {
        for weighted in [false, true] {
            let splits = 1 + i as u32 % 3;
            check::<f32>(size, weighted, 1, splits, true, End::Launches);
            check::<f64>(size, weighted, 1, splits, false, End::Launches);
        }
    }
}

#[test]
fn many_centres_are_taken_in_ranges_and_coefficients_a_step_at_a_time() {
    for (size, ranges, resident) in [((1100, 5, 300), 2, true), ((640, 35, 100), 7, false), ((200, 20, 12), 5, false)] {
        check::<f32>(size, true, ranges, 2, resident, End::Launches);
        check::<f64>(size, false, ranges, 1, !resident, End::Launches);
    }
}

#[test]
fn one_block_ends_passes_of_few_centres() {
    let cases = [
        ((1, 1, 1), 1, 1),
        ((127, 3, 2), 1, 1),
        ((515, 33, 7), 1, 2),
        ((300, 17, 19), 1, 1),
        ((9000, 1, 40), 3, 18),
        ((900, 11, 40), 1, 2),
    ];
    for (size, ranges, splits) in cases {
        for end in [End::OneBlock, End::OneBlockOfAll] {
            check::<f32>(size, size.0 % 2 == 0, ranges, splits, true, end);
            check::<f64>(size, size.0 % 2 == 1, ranges, splits, true, end);
        }
    }
    // More partial results than the block reads together: 128 of few sums, 8 of many.
    check::<f32>((19_000, 2, 3), false, 1, 140, true, End::OneBlockOfAll);
    check::<f32>((2000, 11, 40), false, 1, 15, true, End::OneBlockOfAll);
}

#[test]
fn the_first_of_equal_centres_wins() {
    let rows = Array2::from_shape_fn((200, 1), |(i, _)| f64::from(i as u32 % 40));
    // Twice in one lane's pair, in other lanes, in other groups, and in other pieces.
    let points: Vec<f64> = (0..70).map(|c| [10.0, 20.0, 10.0, 30.0, 20.0][c % 5]).collect();
    let points = Array2::from_shape_vec((70, 1), points).unwrap();
    let cut = Cut { columns: 2, ranges: 1, splits: 1 };
    let mut device = Loop::<f64>::new(&rows, None, &points, cut, true);
    device.assign(1);
    for (i, label) in device.labels.to_vec()[..200].iter().enumerate() {
        let want = match i % 40 {
            0..=15 => 0,
            16..=25 => 1,
            _ => 3,
        };
        assert_eq!(*label, want, "row {i}");
    }
}

#[test]
fn passes_go_on_until_the_centres_rest_and_later_launches_change_nothing() {
    fn run<T: Real>(end: End) {
        let rows = Array2::from_shape_fn((260, 2), |(i, j)| {
            T::from_f64((i % 2) as f64 * 8.0 + 0.01 * ((i * 7 + j * 3) % 50) as f64).to_f64()
        });
        let mut centres = array![[3.0, 1.0], [5.5, 4.0]];
        let cut = Cut { columns: 3, ranges: 1, splits: 2 };
        let mut device = Loop::<T>::new(&rows, None, &centres, cut, true);
        device.rest = 1e-12;
        device.end = end;
        let mut iteration = 0;
        loop {
            iteration += 1;
            let mut sums = Array2::<f64>::zeros((2, 3));
            for row in rows.outer_iter() {
                let c = usize::from(squared(row, centres.row(1)) < squared(row, centres.row(0)));
                (0..2).for_each(|j| sums[[c, j]] += row[j]);
                sums[[c, 2]] += 1.0;
            }
            let next = Array2::from_shape_fn((2, 2), |(c, j)| sums[[c, j]] / sums[[c, 2]]);
            let moved: f64 = (&next - &centres).iter().map(|v| v * v).sum();
            centres = next;
            device.pass(iteration);
            close(device.seen.to_vec()[3], moved, 1.0 + moved, tolerance::<f64>(), "moved");
            assert!(iteration < 20);
            if moved <= device.rest {
                break;
            }
            assert_eq!(device.state(DONE), 0, "iteration {iteration}");
        }
        assert!(iteration > 1, "a start that is no end");
        assert_eq!((device.state(DONE), device.state(TROUBLE)), (iteration, 0));
        for (a, b) in device.centres().iter().zip(&centres) {
            close(*a, *b, 10.0, tolerance::<f64>(), "centres");
        }
        let before = (device.centres(), device.seen.to_vec(), device.labels.to_vec(), device.state.to_vec());
        device.centres = Buffer::new(&[0.0; 4]);
        device.pass(iteration + 1);
        assert_eq!(device.centres.to_vec(), [0.0; 4], "later launches do nothing");
        assert_eq!(
            (before.1, before.2, before.3),
            (device.seen.to_vec(), device.labels.to_vec(), device.state.to_vec())
        );
    }
    for end in ENDS {
        run::<f32>(end);
        run::<f64>(end);
    }
}

#[test]
fn a_centre_without_rows_stays_and_stops_the_loop_as_does_a_number_that_is_none() {
    let rows = Array2::from_shape_fn((150, 2), |(i, j)| (i % 3 + j) as f64);
    let far = array![[0.0, 0.0], [1e3, 1e3], [2.0, 2.0]];
    let cut = Cut { columns: 3, ranges: 2, splits: 1 };
    for end in ENDS {
        let mut device = Loop::<f64>::new(&rows, None, &far, cut, true);
        device.end = end;
        device.pass(1);
        assert_eq!((device.state(TROUBLE), device.state(FINISHED)), (1, 1));
        assert_eq!(device.seen.to_vec()[1], 1.0, "one has no rows");
        assert_eq!(device.centres().row(1), far.row(1), "and stays");
        assert_eq!(device.weights.to_vec()[1], 0.0);
        let before = device.centres();
        device.pass(2);
        assert_eq!((device.centres(), device.state(FINISHED)), (before, 1), "nothing comes after");
        let huge = rows.mapv(|v| if v == 3.0 { 1e200 } else { v });
        let near = array![[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]];
        let mut device = Loop::<f64>::new(&huge, None, &near, cut, true);
        device.end = end;
        device.pass(1);
        assert_eq!(device.state(TROUBLE), 1, "an infinite sum");
    }
}
