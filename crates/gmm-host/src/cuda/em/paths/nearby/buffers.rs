//! The buffers of the path, and the parameters of its kernels.

use std::ops::Range;

use cust::memory::{AsyncCopyDestination, DeviceSlice};
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::em::m_step;
use gmm_kernels::em::nearby::{self, Size, TILES};
use gmm_kernels::layout::{Kind, tiled_len, tiles};

use crate::Error;
use crate::cuda::em::packing::integers;
use crate::cuda::em::path::{LoopBuffers, LoopPlan, LoopRows};
use crate::cuda::launch::{Launcher, SortBuffers, or_null, pointer};
use crate::cuda::shape::Shape;

/// The buffers, in words of 8 bytes from the start of [`PathBuffers::nearby`](crate::cuda::em::path::PathBuffers::nearby).
pub(super) struct Buffers {
    pub(super) order: Range<usize>,
    pub(super) labels: Range<usize>,
    /// The position of each component in the order of a k-d tree.
    pub(super) ranks: Range<usize>,
    /// Memory of the sort: counts, totals, keys of two passes, and items.
    pub(super) sort: [Range<usize>; 5],
    pub(super) best: Range<usize>,
    pub(super) x: Range<usize>,
    pub(super) row_weights: Range<usize>,
    pub(super) boxes: Range<usize>,
    pub(super) records: Range<usize>,
    pub(super) columns: Range<usize>,
    pub(super) lists: Range<usize>,
    pub(super) counts: Range<usize>,
    pub(super) lows: Range<usize>,
    pub(super) listed: Range<usize>,
    /// The sums of each block of a pass.
    pub(super) partials: Range<usize>,
    pub(super) met: Range<usize>,
    /// Of an evaluation: log-likelihood and entropy of each block.
    pub(super) totals: Range<usize>,
    pub(super) len: usize,
}

impl Buffers {
    pub(super) fn of(shape: &Shape, blocks: u32) -> Self {
        let (place, blocks) = (layout(shape), blocks as usize);
        let (n, k, d) = (shape.n as usize, shape.k as usize, shape.d as usize);
        let (of_rows, tiles) = (n.div_ceil(2), tiles(shape.n) as usize);
        let groups = tiles.div_ceil(TILES as usize);
        let [counts, digits, _] = SortBuffers::lens(shape.n).map(|integers| integers.div_ceil(2) as usize);
        let of_sort = [counts, digits, of_rows, of_rows, of_rows];
        let mut len = 0;
        let mut take = |words: usize| {
            let start = len;
            len += words.next_multiple_of(16);
            start..start + words
        };
        Self {
            order: take(of_rows),
            labels: take(of_rows),
            ranks: take(k.div_ceil(2)),
            sort: of_sort.map(&mut take),
            best: take(of_rows),
            x: take(tiled_len(shape.n, shape.d) as usize * shape.number_bytes() as usize / 8),
            row_weights: take(n),
            boxes: take(2 * tiles * d),
            records: take(k * size(shape).record() as usize),
            columns: take((2 * d + 1) * k),
            lists: take((groups * k).div_ceil(2)),
            counts: take(groups.div_ceil(2)),
            lows: take(tiles),
            listed: take(tiles.div_ceil(2)),
            partials: take(blocks * place.sums() as usize),
            met: take((blocks * place.groups as usize).div_ceil(2)),
            totals: take(2 * blocks),
            len,
        }
    }
}

pub(super) fn instance(shape: &Shape) -> Option<Size> {
    Size::of(matches!(shape.kernel_kind(), Kind::Full | Kind::Tied), shape.d)
}

/// As few features as the kind has, since every block of a pass has sums of its own.
pub(super) fn layout(shape: &Shape) -> FeatureLayout {
    let (d, groups) = (shape.d, shape.k.div_ceil(8));
    match shape.kernel_kind() {
        // The moments of a tied covariance are added up when those of the components are known.
        Kind::Full | Kind::Tied => FeatureLayout::full(d.div_ceil(4), groups),
        Kind::Diag => FeatureLayout::linear((2 * d).div_ceil(16), groups),
        Kind::Spherical => FeatureLayout::linear((d + 1).div_ceil(16), groups),
    }
}

pub(super) fn size(shape: &Shape) -> Size {
    instance(shape).expect("a shape that is supported")
}

/// The parameters of all kernels.
pub(super) fn arguments(plan: &LoopPlan, b: &LoopBuffers, iteration: u32) -> nearby::Nearby {
    let (shape, own) = (&plan.shape, Buffers::of(&plan.shape, plan.grid.blocks));
    let at = |range: &Range<usize>| pointer(&b.own.nearby.index(range.clone()));
    nearby::Nearby {
        state: pointer(&b.state),
        iteration,
        n: shape.n,
        k: shape.k,
        d: shape.d,
        kind: m_step::number(shape.kernel_kind()),
        padded: size(shape).columns,
        number_bytes: shape.number_bytes() as u32,
        steps: plan.layout.steps,
        groups: plan.layout.groups,
        classes: plan.layout.classes,
        from: std::ptr::null(),
        from_weights: std::ptr::null(),
        order: at(&own.order).cast(),
        labels: at(&own.labels).cast(),
        x: at(&own.x).cast(),
        row_weights: std::ptr::null_mut(),
        best: at(&own.best).cast(),
        boxes: at(&own.boxes),
        weights: pointer(&b.weights),
        means: pointer(&b.means),
        covariances: pointer(&b.covariances),
        records: at(&own.records),
        columns: at(&own.columns),
        lists: at(&own.lists).cast(),
        counts: at(&own.counts).cast(),
        lows: at(&own.lows),
        listed: at(&own.listed).cast(),
        every: 1,
        blocks: plan.grid.blocks,
        partials: at(&own.partials),
        met: at(&own.met).cast(),
        sums: pointer(&b.partials),
        totals: std::ptr::null_mut(),
        log_densities: std::ptr::null_mut(),
        total_weight: plan.total_weight,
        scatter: or_null(b.scatter.as_ref()),
    }
}

/// The parameters with the rows of the section, in the caller's order.
pub(super) fn with_rows(a: nearby::Nearby, rows: &LoopRows, own: &Buffers, b: &LoopBuffers) -> nearby::Nearby {
    let (from, from_weights) = match rows {
        LoopRows::F32(rows) => (pointer(&rows.x).cast_const().cast::<u8>(), rows.row_weights),
        LoopRows::F64(rows) => (pointer(&rows.x).cast_const().cast::<u8>(), rows.row_weights),
    };
    let row_weights = match from_weights {
        Some(_) => pointer(&b.own.nearby.index(own.row_weights.clone())),
        None => std::ptr::null_mut(),
    };
    nearby::Nearby { from, from_weights: or_null(from_weights.as_ref()), row_weights, ..a }
}

/// Copies numbers to the host, and waits for them.
pub(super) fn download(launcher: Launcher<'_>, from: &DeviceSlice<f64>, to: &mut [f64]) -> Result<(), Error> {
    // SAFETY: the numbers are read only after the wait below.
    let copied = unsafe { from.async_copy_to(to, &launcher.queue.stream) };
    launcher.gpu.check("a copy from the device", copied)?;
    launcher.queue.wait(launcher.gpu)
}

/// Copies `count` integers to the host.
pub(super) fn numbers(launcher: Launcher<'_>, from: &DeviceSlice<f64>, count: usize) -> Result<Vec<u32>, Error> {
    let mut words = vec![0.0; from.len()];
    download(launcher, from, &mut words)?;
    Ok(integers(&words).take(count).collect())
}
