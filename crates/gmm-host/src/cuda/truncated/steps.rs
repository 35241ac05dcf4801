//! The steps of a pass: what is copied, and what is launched.

use std::ops::Range;
use std::sync::Arc;

use cust::memory::bytemuck::Pod;
use cust::memory::{DeviceCopy, DeviceSlice};
use gmm_kernels::THREADS;
use gmm_kernels::truncated::{
    Truncated, form, step_blocks, step_bytes, sums_bytes, truncated_starts, truncated_step, truncated_sums,
};
use gmm_model::{Mixture, Statistics};
use ndarray::Array2;

use super::memory::{Memory, Ranges};
use crate::cpu::simd::Machine;
use crate::cuda::driver::staging::{receive, send};
use crate::cuda::launch::{SortBuffers, or_null, pointer};
use crate::cuda::number::Number;
use crate::cuda::rows::{Rows, upload};
use crate::truncated::{
    Lists, Node, Scales, Steps, TREE_OF_PASS, TREES, TREES_OF_FIRST, Terms, Totals, Trees, of_means,
};
use crate::{Error, Search};

/// The steps under one mixture, whose parameters are on the device.
pub(super) struct OnDevice<'a, T: Number> {
    rows: &'a mut Rows<T>,
    memory: &'a mut Memory,
    mixture: &'a Mixture,
    terms: Terms<f64>,
    at: Arena,
    /// The lists that the last step began with.
    before: Option<Lists>,
}

/// Lengths of the arrays of a problem.
#[derive(Clone, Copy)]
struct Sizes {
    n: usize,
    k: usize,
    d: usize,
    g: usize,
    /// Neighbours of a component; 0 if every row has all components.
    h: usize,
    form: u32,
    padded: usize,
    lines: usize,
    factors: usize,
    seconds: usize,
    blocks: usize,
}

/// Where the arrays lie: see [`Truncated`].
struct Arena {
    of: Sizes,
    means: Range<usize>,
    scales: Range<usize>,
    lines_of: Range<usize>,
    loadings: Range<usize>,
    constants: Range<usize>,
    weights: Range<usize>,
    normals: Range<usize>,
    thresholds: Range<usize>,
    responsibilities: Range<usize>,
    totals: Range<usize>,
    counts: Range<usize>,
    first: Range<usize>,
    second: Range<usize>,
    order: Range<usize>,
    before: Range<usize>,
    components: Range<usize>,
    neighbours: Range<usize>,
    next_neighbours: Range<usize>,
    roots: Range<usize>,
    nodes: Range<usize>,
    members: Range<usize>,
    entries: Range<usize>,
    keys: Range<usize>,
    starts: Range<usize>,
    /// Of the sort: counts, totals, two arrays of keys, and items.
    sort: [Range<usize>; 5],
    len: [usize; 2],
}

impl Arena {
    fn of(of: Sizes, trees: usize) -> Self {
        let Sizes { n, k, d, g, h, padded, lines, factors, seconds, blocks, .. } = of;
        let (mut numbers, mut integers) = (Ranges::default(), Ranges::default());
        let scales = match of.form {
            form::SPHERICAL => k,
            form::FULL => 0,
            _ => k * padded,
        };
        // Of a tree: leaves of at least one component each, and one plane less.
        let (planes, nodes) = (trees * k, 2 * trees * k);
        let [counts, totals, each] = SortBuffers::lens((n * g) as u64).map(|len| len as usize);
        Self {
            of,
            means: numbers.take(k * padded),
            scales: numbers.take(scales),
            lines_of: numbers.take(k * lines * padded),
            loadings: numbers.take(k * factors * padded),
            constants: numbers.take(k),
            weights: numbers.take(k),
            normals: numbers.take(planes * padded),
            thresholds: numbers.take(planes),
            responsibilities: numbers.take(n * g),
            totals: numbers.take(4 * blocks),
            counts: numbers.take(k),
            first: numbers.take(k * d),
            second: numbers.take(k * seconds),
            order: integers.take(n),
            before: integers.take(n * g),
            components: integers.take(n * g),
            neighbours: integers.take(k * h),
            next_neighbours: integers.take(k * h),
            roots: integers.take(trees),
            nodes: integers.take(3 * nodes),
            members: integers.take(trees * k),
            entries: integers.take(n * g),
            keys: integers.take(n * g),
            starts: integers.take(k + 1),
            sort: [counts, totals, each, each, each].map(|len| integers.take(len)),
            len: [numbers.len, integers.len],
        }
    }
}

impl<'a, T: Number> OnDevice<'a, T> {
    /// Copies the parameters of a mixture to the device.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(super) fn new(
        rows: &'a mut Rows<T>,
        memory: &'a mut Memory,
        mixture: &'a Mixture,
        search: &Search,
    ) -> Result<Self, Error> {
        let (k, d) = mixture.means().dim();
        let (g, h) = search.sizes(rows.n, k)?;
        let terms = Terms::<f64>::new(mixture, &rows.shift)?;
        let (form, lines, factors) = match &terms.scales {
            Scales::Diag(_) => (form::DIAG, 0, 0),
            Scales::Spherical(_) => (form::SPHERICAL, 0, 0),
            Scales::Full { lines, .. } => (form::FULL, *lines, 0),
            Scales::Factors(all) => (form::FACTORS, all.lines, all.h),
        };
        let (padded, blocks) = (terms.padded, step_blocks(rows.n as u64) as usize);
        let seconds = mixture.covariance_type().second_len(1, d);
        let of = Sizes { n: rows.n, k, d, g, h, form, padded, lines, factors, seconds, blocks };
        let wanted = step_bytes(padded as u32, factors as u32).max(sums_bytes(d as u32));
        let room = u64::from(rows.gpu.limits.shared_bytes);
        if wanted > room {
            let what = format!("truncated EM needs {wanted} bytes of shared memory, and the GPU has {room}");
            return Err(Error::Device(format!("{what}: use the CPU (--device cpu, device=\"cpu\")")));
        }
        // The first lists are those of several trees.
        let at = Arena::of(of, if h > 0 { TREES } else { 0 });
        memory.reserve(rows, at.len[0], at.len[1])?;
        let out = Self { rows, memory, mixture, terms, at, before: None };
        out.send_parameters()?;
        Ok(out)
    }

    fn send_parameters(&self) -> Result<(), Error> {
        let (at, terms) = (&self.at, &self.terms);
        self.put(&at.means, terms.means())?;
        match &terms.scales {
            Scales::Diag(all) | Scales::Spherical(all) => self.put(&at.scales, all)?,
            Scales::Full { rows, .. } => self.put(&at.lines_of, rows)?,
            Scales::Factors(all) => {
                self.put(&at.scales, &all.scales)?;
                self.put(&at.lines_of, &all.posteriors)?;
                self.put(&at.loadings, &all.loadings)?;
            }
        }
        self.put(&at.constants, &terms.constants)?;
        self.put(&at.weights, &terms.weights)
    }

    /// Copies numbers to the beginning of a range.
    fn put(&self, to: &Range<usize>, from: &[f64]) -> Result<(), Error> {
        self.send(self.memory.numbers(to), from)
    }

    fn put_integers(&self, to: &Range<usize>, from: &[u32]) -> Result<(), Error> {
        self.send(self.memory.integers(to), from)
    }

    fn send<A: DeviceCopy + Pod + Send + Sync>(&self, to: DeviceSlice<A>, from: &[A]) -> Result<(), Error> {
        if from.is_empty() {
            return Ok(());
        }
        let mut to = to.index(..from.len());
        send(&self.rows.gpu, &self.rows.queue, &mut to, 1, |piece, chunk| upload::copy(&from[piece], chunk))
    }

    fn get(&self, from: &Range<usize>) -> Result<Vec<f64>, Error> {
        let mut out = Vec::with_capacity(from.len());
        let slice = self.memory.numbers(from);
        receive(&self.rows.gpu, &self.rows.queue, &slice, |_, piece| out.extend_from_slice(piece))?;
        Ok(out)
    }

    fn get_integers(&self, from: &Range<usize>) -> Result<Vec<u32>, Error> {
        let mut out = Vec::with_capacity(from.len());
        if !from.is_empty() {
            let slice = self.memory.integers(from);
            receive(&self.rows.gpu, &self.rows.queue, &slice, |_, piece| out.extend_from_slice(piece))?;
        }
        Ok(out)
    }

    /// Copies trees to the device.
    fn send_trees(&self, trees: &Trees<f64>) -> Result<(), Error> {
        let (mut nodes, mut thresholds) = (Vec::with_capacity(3 * trees.nodes.len()), Vec::new());
        for node in &trees.nodes {
            match *node {
                Node::Plane { at, threshold, sides: [below, above] } => {
                    debug_assert_eq!(at as usize, thresholds.len(), "planes in order");
                    thresholds.push(threshold);
                    nodes.extend([at, below, above]);
                }
                Node::Leaf { first, end } => nodes.extend([u32::MAX, first, end]),
            }
        }
        let at = &self.at;
        self.put(&at.normals, &trees.normals)?;
        self.put(&at.thresholds, &thresholds)?;
        self.put_integers(&at.nodes, &nodes)?;
        self.put_integers(&at.roots, &trees.roots)?;
        self.put_integers(&at.members, &trees.members)
    }

    /// The arguments of all kernels, with some trees, and lists to go on from if there are some.
    fn arguments(&self, trees: usize, goes_on: bool) -> Truncated {
        let (at, chunk) = (&self.at, self.rows.whole());
        let Sizes { n, k, d, g, h, form, padded, lines, factors, .. } = at.of;
        let numbers = |range: &Range<usize>| pointer(&self.memory.numbers(range));
        let integers = |range: &Range<usize>| pointer(&self.memory.integers(range));
        Truncated {
            n: n as u64,
            d: d as u32,
            k: k as u32,
            number_bytes: T::BYTES,
            x: pointer(&chunk.x).cast_const().cast(),
            row_weights: or_null(chunk.row_weights.as_ref()),
            form,
            padded: padded as u32,
            lines: lines as u32,
            factors: factors as u32,
            means: numbers(&at.means),
            scales: numbers(&at.scales),
            lines_of: numbers(&at.lines_of),
            loadings: numbers(&at.loadings),
            constants: numbers(&at.constants),
            weights: numbers(&at.weights),
            listed: g as u32,
            each: h as u32,
            order: integers(&at.order),
            before: if goes_on { integers(&at.before) } else { std::ptr::null() },
            neighbours: integers(&at.neighbours),
            next_neighbours: integers(&at.next_neighbours),
            trees: trees as u32,
            roots: integers(&at.roots),
            nodes: integers(&at.nodes),
            normals: numbers(&at.normals),
            thresholds: numbers(&at.thresholds),
            members: integers(&at.members),
            components: integers(&at.components),
            responsibilities: numbers(&at.responsibilities),
            totals: numbers(&at.totals),
            entries: integers(&at.entries),
            keys: integers(&at.keys),
            starts: integers(&at.starts),
            counts: numbers(&at.counts),
            first: numbers(&at.first),
            second: numbers(&at.second),
        }
    }

    /// Runs the E-step, with the lists that were copied if it goes on from them, and adds up its totals.
    fn run(&self, trees: usize, goes_on: bool) -> Result<Totals, Error> {
        let blocks = self.at.of.blocks;
        // SAFETY: every array has the length that `Truncated` documents, by `Arena`; the lists hold components.
        unsafe {
            let a = self.arguments(trees, goes_on);
            self.rows.launcher().launch(truncated_step(), (blocks as u32, 1), a)?;
        }
        let mut out = Totals::default();
        for block in self.get(&self.at.totals)?.chunks_exact(4) {
            out.free_energy += block[0];
            out.entropy += block[1];
            out.total_weight += block[2];
            out.tried += block[3];
        }
        Ok(out)
    }

    fn tree(&self, count: usize, purpose: &str, search: &Search) -> Trees<f64> {
        Trees::new(self.mixture, &self.rows.shift, (count, self.terms.padded), &mut search.draws(purpose))
    }
}

impl<T: Number> Steps for OnDevice<'_, T> {
    fn n(&self) -> usize {
        self.rows.n
    }

    fn first(&mut self, search: &Search) -> Result<Lists, Error> {
        let Sizes { n, k, g, h, .. } = self.at.of;
        let order: Arc<Vec<u32>> = Arc::new((0..n as u32).collect());
        if h == 0 {
            let components = (0..n * k).map(|i| (i % k) as u32).collect();
            return Ok(Lists { order, components: Arc::new(components), neighbours: Arc::default(), g, h });
        }
        let trees = self.tree(TREES, TREES_OF_FIRST, search);
        self.send_trees(&trees)?;
        self.put_integers(&self.at.order, &order)?;
        self.run(TREES, false)?;
        let components = Arc::new(self.get_integers(&self.at.components)?);
        let neighbours = Arc::new(of_means(Machine::detect(), &trees, &self.terms, h));
        Ok(Lists { order, components, neighbours, g, h })
    }

    fn step(&mut self, before: Lists, search: &Search) -> Result<Totals, Error> {
        let trees = if before.h > 0 { 1 } else { 0 };
        if trees > 0 {
            self.send_trees(&self.tree(trees, TREE_OF_PASS, search))?;
        }
        self.put_integers(&self.at.order, &before.order)?;
        self.put_integers(&self.at.before, &before.components)?;
        self.put_integers(&self.at.neighbours, &before.neighbours)?;
        self.put_integers(&self.at.next_neighbours, &before.neighbours)?;
        self.before = Some(before);
        self.run(trees, true)
    }

    fn sums(&mut self) -> Result<Statistics, Error> {
        let Sizes { n, k, d, g, .. } = self.at.of;
        let at = &self.at;
        let integers = |range: &Range<usize>| self.memory.integers(range);
        let [counts, totals, keys, next_keys, items] = &at.sort;
        let memory = SortBuffers {
            counts: integers(counts),
            totals: integers(totals),
            keys: [integers(keys), integers(next_keys)],
            items: integers(items),
        };
        let (launcher, entries) = (self.rows.launcher(), n * g);
        let sorted = (&integers(&at.entries), Some(&integers(&at.keys)));
        launcher.sort(&integers(&at.components), None, k as u32, &memory, sorted)?;
        // SAFETY: as in `run`; the entries are sorted.
        unsafe {
            let a = self.arguments(0, true);
            launcher.launch(truncated_starts(), (entries.div_ceil(THREADS as usize) as u32, 1), a)?;
            launcher.launch(truncated_sums(), (k as u32, 1), a)?;
        }
        let mut out = Statistics::zero(self.mixture.covariance_type(), self.mixture.means().to_owned());
        out.weight.copy_from_slice(&self.get(&at.counts)?);
        let first = self.get(&at.first)?;
        out.first = Array2::from_shape_vec((k, d), first).expect("a sum for each column");
        out.second.copy_from_slice(&self.get(&at.second)?);
        Ok(out)
    }

    fn lists(&mut self) -> Result<Lists, Error> {
        let before = self.before.take().expect("a step was made");
        let components = Arc::new(self.get_integers(&self.at.components)?);
        let neighbours = Arc::new(self.get_integers(&self.at.next_neighbours)?);
        Ok(Lists { components, neighbours, ..before })
    }
}
