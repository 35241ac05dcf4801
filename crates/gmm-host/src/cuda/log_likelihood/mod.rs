//! Log-likelihoods of many mixtures: coefficients in, one number each out, with one host synchronisation for hundreds.

mod buffers;
pub(crate) mod coefficients;
pub(crate) mod columns;
pub(crate) mod expectation;
pub(crate) mod fixed_point;
pub(crate) mod single_mixture;

use cust::memory::AsyncCopyDestination;
use gmm_kernels::THREADS;
use gmm_kernels::log_likelihood::{self, Columns, Form, NOTHING};
use gmm_model::{CovarianceType, Mixture};

use crate::Error;
use crate::cuda::launch::LogLikelihoodPlan;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;
use buffers::{AT_A_TIME, Buffers, Expected, typical};
use coefficients::{CoefficientLayout, Work, most_terms};
use fixed_point::FixedPoint;
use single_mixture::SingleMixture;

/// Memory and plans of all likelihood kernels, including those for gradients.
pub(crate) struct Likelihoods {
    buffers: Buffers,
    /// The last shape that was planned, and its plan.
    planned: Option<(Shape, Option<LogLikelihoodPlan>)>,
    single_mixture: SingleMixture,
    fixed_point: FixedPoint,
}

impl Likelihoods {
    pub(crate) fn empty() -> Self {
        Self {
            buffers: Buffers::empty(),
            planned: None,
            single_mixture: SingleMixture::empty(),
            fixed_point: FixedPoint::empty(),
        }
    }

    /// Discards what depends on the rows' shift, which has changed.
    pub(crate) fn forget(&mut self) {
        self.fixed_point.forget();
    }
}

/// Most coefficients that wait to be copied, unless a single unit has more: 4 MiB.
const WAITING: u64 = 1 << 19;

/// Largest remainder of mixtures, short of a unit of eight, that become units of one each. A unit of eight takes the
/// tensor cores as long as eight units of one, but each of those reads the rows again.
const FEW: usize = 4;

/// Growth of each piece over the one before. The device takes many times as long per mixture as the host takes to write
/// it, and each piece costs a launch.
const GROWTH: usize = 8;

impl Likelihoods {
    /// Plans the log-likelihoods of a shape; `None` if there is no kernel for it.
    fn score_plan<T: Number>(&mut self, data: &mut Rows<T>, shape: Shape) -> Result<Option<LogLikelihoodPlan>, Error> {
        match self.planned {
            Some((known, plan)) if known == shape => Ok(plan),
            _ => {
                let plan = self.new_score_plan(data, shape)?;
                tracing::debug!(plan = format!("{plan:?}"), "likelihoods on the device");
                self.planned = Some((shape, plan));
                Ok(plan)
            }
        }
    }

    fn new_score_plan<T: Number>(&self, data: &mut Rows<T>, shape: Shape) -> Result<Option<LogLikelihoodPlan>, Error> {
        let room = u64::from(data.gpu.limits.shared_bytes);
        let Some(form) = Form::of(shape.kernel_kind(), shape.d) else { return Ok(None) };
        let shared = |columns| log_likelihood::shared_bytes::<T>(form, columns, shape.k);
        let there = |columns| data.gpu.has(log_likelihood::kernel::<T>(form, columns).name);
        if data.forced.host_loop() || shared(Columns::Components) > room || !there(Columns::Components) {
            return Ok(None);
        }
        // At least two blocks per multiprocessor, whose shared memory is little more than one block can opt in to.
        let eights = 2 * shared(Columns::Mixtures) <= room && there(Columns::Mixtures);
        // The number of blocks affects the result's bits, so it is the same for every unit of a shape: as many as run
        // concurrently with units of eight mixtures, or twice as many if units of one leave room.
        let together =
            |columns| data.gpu.occupancy(log_likelihood::kernel::<T>(form, columns).name, THREADS, shared(columns));
        let one = together(Columns::Components)?;
        let eight = if eights { together(Columns::Mixtures)? } else { one };
        let each = if one >= 2 * eight { 2 * eight } else { eight };
        let groups = shape.n.div_ceil(gmm_kernels::em::fused::rows_of_block(THREADS));
        let blocks = u64::from(data.gpu.limits.multiprocessors * each).min(groups) as u32;
        Ok(Some(LogLikelihoodPlan { shape, form, eights, blocks }))
    }

    /// Σ w ln p(x) under each mixture. A value is not finite if the caller has to compute it otherwise: there is no
    /// kernel or not enough memory, precision would be lost, or a row has no density.
    pub(crate) fn log_likelihoods<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        mixtures: &[Mixture],
    ) -> Result<Vec<f64>, Error> {
        let mut out = vec![f64::NAN; mixtures.len()];
        let mut first = 0;
        let alike = |a: &Mixture, b: &Mixture| {
            (a.covariance_type(), a.n_components()) == (b.covariance_type(), b.n_components())
        };
        for run in mixtures.chunk_by(alike) {
            let out = &mut out[first..][..run.len()];
            first += run.len();
            let shape = data.shape(run[0].covariance_type(), run[0].n_components());
            self.single_mixture.log_likelihoods(data, shape, run, out)?;
            self.fixed_point.log_likelihoods(data, &mut self.buffers, shape, run, out)?;
            if out.iter().all(|value| !value.is_nan()) {
                continue;
            }
            let Some(plan) = self.score_plan(data, shape)? else { continue };
            let one = plan.unit(Columns::Components);
            let each = if plan.eights { one.max(plan.unit(Columns::Mixtures) / 8) } else { one };
            let most = ((WAITING / each) as usize / 8 * 8).clamp(8, AT_A_TIME);
            // The mixtures without a value so far.
            let mut from = 0;
            for alike in out.chunk_by_mut(|a, b| a.is_nan() == b.is_nan()) {
                let mixtures = &run[from..][..alike.len()];
                from += alike.len();
                if !alike[0].is_nan() {
                    continue;
                }
                for (mixtures, out) in mixtures.chunks(most).zip(alike.chunks_mut(most)) {
                    match self.scores_at_once(data, &plan, mixtures, out) {
                        // Evaluation in chunks needs less memory.
                        Err(Error::Memory { .. }) => {}
                        other => other?,
                    }
                }
            }
        }
        Ok(out)
    }

    /// Evaluates mixtures of one shape that fit into memory together.
    fn scores_at_once<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        plan: &LogLikelihoodPlan,
        mixtures: &[Mixture],
        out: &mut [f64],
    ) -> Result<(), Error> {
        if plan.shape.kind == CovarianceType::Tied {
            data.know_scatter()?;
        }
        let pieces = pieces(mixtures.len(), plan.eights);
        let coefficients: u64 = pieces.iter().map(|p| u64::from(p.units) * plan.unit(p.columns)).sum();
        let stride: usize = pieces.iter().map(|p| p.mixtures()).sum();
        let (coefficients, partials) = (coefficients as usize, plan.blocks as usize * stride);
        self.buffers.reserve(data, coefficients + partials, coefficients, stride)?;
        let numbers = self.buffers.numbers.first(coefficients + partials);
        let (mut at, mut first) = (0, 0);
        let places = places(plan);
        for piece in pieces {
            let here = &mixtures[first..mixtures.len().min(first + piece.mixtures())];
            let len = (u64::from(piece.units) * plan.unit(piece.columns)) as usize;
            let memory = &mut self.buffers;
            let host = &mut memory.coefficients.as_mut_slice()[at..][..len];
            let tied = data.scatter.as_deref().filter(|_| plan.shape.kind == CovarianceType::Tied);
            fill(
                plan,
                piece,
                here,
                &data.shift,
                &places,
                &mut memory.work,
                tied,
                data.total_weight,
                host,
                &mut out[first..],
            );
            let mut device = numbers.index(at..at + len);
            // SAFETY: the host buffer is pinned. It is written again or freed only after a value arrived that was
            // computed from it, or after the stream was waited for.
            let copied = unsafe { device.async_copy_from(&*host, &data.queue.stream) };
            data.gpu.check("a copy of parameters to the device", copied)?;
            let to = numbers.index(coefficients + first..);
            data.launcher().scores(plan, piece.columns, piece.units, &data.whole(), &device, &to, stride as u64)?;
            at += len;
            first += piece.mixtures();
        }
        let sums = self.buffers.values.on_device(stride);
        let partials = numbers.index(coefficients..);
        let expected = Expected::of_few(&mut self.buffers.values, stride);
        data.launcher().reduce_blocks(&partials, plan.blocks.into(), stride as u64, &sums, false)?;
        if !expected.is_some_and(|few| few.come(&mut self.buffers.values, stride)) {
            data.queue.wait(&data.gpu)?;
        }
        let values = self.buffers.values.as_slice();
        out.iter_mut().zip(values).for_each(|(out, value)| *out += value);
        Ok(())
    }
}

/// Units of one kind that are copied and launched together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    columns: Columns,
    units: u32,
}

impl Piece {
    /// Number of mixtures that fit.
    const fn mixtures(self) -> usize {
        (self.units * self.columns.mixtures()) as usize
    }
}

/// Splits mixtures into units, in order. Each piece is [`GROWTH`] times the one before: the host fills the next piece
/// while the device works on one, so only the first keeps the device waiting.
fn pieces(mixtures: usize, eights: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut left, mut most) = (mixtures, 1);
    while left > 0 {
        let columns = if eights && left > FEW { Columns::Mixtures } else { Columns::Components };
        let each = columns.mixtures() as usize;
        // Only the last unit of a piece may be partly empty. A small remainder is left to units of one.
        let units = if eights && left > 8 && left % 8 <= FEW { left / each } else { left.div_ceil(each) };
        let units = units.min(most * 8 / each);
        pieces.push(Piece { columns, units: units as u32 });
        left = left.saturating_sub(units * each);
        most *= GROWTH;
    }
    pieces
}

/// Positions of a component's coefficients in a tile's first column.
fn places(plan: &LogLikelihoodPlan) -> CoefficientLayout {
    let (form, d) = (plan.form, plan.shape.d);
    CoefficientLayout::of(
        plan.shape.kernel_kind(),
        d,
        |j| form.entry(j, 0),
        |i, j| form.product(i, j, 0),
        || form.entry(d, 0),
    )
}

/// Writes a piece's coefficients, and the term to add to each mixture's value: the part that the components share, or
/// NaN if precision would be lost.
#[allow(clippy::too_many_arguments)]
fn fill(
    plan: &LogLikelihoodPlan,
    piece: Piece,
    mixtures: &[Mixture],
    shift: &[f64],
    places: &CoefficientLayout,
    work: &mut Work,
    scatter: Option<&[f64]>,
    total_weight: f64,
    out: &mut [f64],
    values: &mut [f64],
) {
    let (tile, form, most) = (plan.form.tile() as usize, plan.form, most_terms(&plan.shape));
    let tiles = piece.columns.tiles(plan.shape.k) as usize;
    // Zeros: columns past the last component or mixture and features past the last entry contribute nothing.
    out.fill(0.0);
    for (i, (mixture, value)) in mixtures.iter().zip(values).enumerate() {
        work.begin(mixture);
        let typical = if form.is_whole() { typical(mixture) } else { 0.0 };
        let mut good = true;
        for c in 0..tiles * 8 / piece.columns.mixtures() as usize {
            let (tile_at, column) = match piece.columns {
                Columns::Components => (i * tiles + c / 8, c % 8),
                Columns::Mixtures => (i / 8 * tiles + c, i % 8),
            };
            let mut constant = NOTHING;
            if c < mixture.n_components() {
                let own = tile_at * tile + 8 * column;
                let expanded = work.component(mixture, c, shift, places, own, out);
                // A component without weight contributes nothing, so it loses no precision.
                good &= expanded.terms <= most || expanded.constant == f64::NEG_INFINITY;
                constant = (expanded.constant - typical).max(NOTHING);
            }
            out[tile_at * tile + form.constant(column as u32) as usize] = constant;
        }
        *value = match (good, scatter) {
            (false, _) => f64::NAN,
            (true, None) => typical * total_weight,
            (true, Some(scatter)) => work.shared(scatter, &plan.shape, total_weight).unwrap_or(f64::NAN),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaEngine;
    use crate::cuda::driver::buffers::{pin, pinned_empty};
    use crate::cuda::driver::fake::{Fake, Machine};

    #[test]
    fn values_are_there_when_they_were_written_and_not_before() {
        let fake = Fake::install(Machine::default());
        let engine = CudaEngine::new(0).unwrap();
        let mut values = pinned_empty();
        let most = 200;
        pin(&engine.gpu, &mut values, most).unwrap();
        for count in [1, 3, most] {
            // Earlier values do not count, and all values must arrive.
            values.as_mut_slice().fill(1.0);
            assert!(!Expected::of(&mut values, count).come(&mut values, count), "{count}: none came");
            let expected = Expected::of(&mut values, count);
            values.as_mut_slice()[..count - 1].fill(2.0);
            assert!(!expected.come(&mut values, count), "{count}: one did not come");
            let expected = Expected::of(&mut values, count);
            values.as_mut_slice()[..count].fill(f64::NAN);
            assert!(expected.come(&mut values, count), "{count}: all came, and are NaN");
        }
        assert!(Expected::of_few(&mut values, Expected::FEW).is_some());
        assert!(Expected::of_few(&mut values, Expected::FEW + 1).is_none(), "many are waited for");
        drop((values, engine));
        fake.0.assert_clean("values");
    }

    #[test]
    fn every_mixture_has_its_place_in_one_piece() {
        for eights in [false, true] {
            for mixtures in 1..200 {
                let all = pieces(mixtures, eights);
                let room: usize = all.iter().map(|p| p.mixtures()).sum();
                let full: usize = all[..all.len() - 1].iter().map(|p| p.mixtures()).sum();
                assert!(room >= mixtures && full < mixtures, "{mixtures}: {all:?}");
                assert!(all.iter().all(|p| p.units > 0 && (eights || p.columns == Columns::Components)));
                assert!(room == mixtures || (eights && room == mixtures.next_multiple_of(8)), "{mixtures}: {all:?}");
            }
        }
    }

    #[test]
    fn a_few_are_units_of_their_own_and_pieces_grow() {
        let units = |mixtures| pieces(mixtures, true).iter().map(|p| (p.columns, p.units)).collect::<Vec<_>>();
        assert_eq!(units(1), [(Columns::Components, 1)]);
        assert_eq!(units(5), [(Columns::Mixtures, 1)]);
        assert_eq!(units(10), [(Columns::Mixtures, 1), (Columns::Components, 2)]);
        let eights = [1, 7].map(|units| (Columns::Mixtures, units));
        assert_eq!(units(64), eights);
    }
}
