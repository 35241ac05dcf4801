//! Likelihoods of many mixtures of diagonal or spherical covariances over `f32` rows, in fixed point: see
//! [`gmm_kernels::log_likelihood::fixed_point`].

use cust::memory::AsyncCopyDestination;
use gmm_kernels::log_likelihood::fixed_point::{self, CONSTANT, HEADER, LARGEST_CONSTANT, LARGEST_STEP, LEVEL, Tile};
use gmm_model::{CovarianceType, Factors, Mixture};

use super::buffers::{AT_A_TIME, Buffers, Expected, typical};
use crate::Error;
use crate::cuda::driver::buffers::{Pinned, pin, pinned_empty};
use crate::cuda::launch::FixedPointPlan;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;

/// State that is kept between calls.
pub(crate) struct FixedPoint {
    /// For each column a power of two that bounds its entries minus the shift; the inner `None` if no such power fits
    /// into `f32`, the outer if it was not computed yet.
    sizes: Option<Option<Vec<f64>>>,
    scales: Pinned<f32>,
    /// The last shape that was planned, and its plan.
    planned: Option<(Shape, Option<FixedPointPlan>)>,
}

impl FixedPoint {
    pub(crate) fn empty() -> Self {
        Self { sizes: None, scales: pinned_empty(), planned: None }
    }

    /// Discards what depends on the rows' shift, which has changed.
    pub(crate) fn forget(&mut self) {
        (self.sizes, self.planned) = (None, None);
    }
}

/// Most mixtures per unit: the work that a warp does once for its rows is small beside that for this many.
const UNIT: u32 = 64;

/// Fewest mixtures for which the kernel is used: it always computes at least eight.
const FEWEST: usize = 4;

/// Mixtures in the first piece, and the growth of later pieces. The device takes several times as long per mixture as
/// the host takes to write its coefficients, and only the first piece keeps the device waiting.
const FIRST: usize = 8;
const GROWTH: usize = 3;

/// A piece of a call's mixtures, in units.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    units: u32,
    /// Mixtures per unit.
    sets: u32,
}

impl Piece {
    fn of(mixtures: usize, most: u32, together: u32) -> Self {
        let units = (mixtures as u32).div_ceil(most);
        Self { units, sets: (mixtures as u32).div_ceil(units).next_multiple_of(together) }
    }

    /// Number of mixtures that fit.
    const fn room(self) -> usize {
        (self.units * self.sets) as usize
    }
}

/// Splits mixtures into pieces. A unit has at most `most` mixtures, in multiples of `together`, which are multiplied
/// together.
fn pieces(mixtures: usize, most: u32, together: u32) -> Vec<Piece> {
    let (mut pieces, mut left, mut next) = (Vec::new(), mixtures, FIRST);
    while left > 0 {
        // A remainder of less than a full piece joins the one before.
        let here = if left < 2 * next { left } else { next };
        pieces.push(Piece::of(here, most, together));
        left -= here;
        next *= GROWTH;
    }
    pieces
}

impl FixedPoint {
    fn plan<T: Number>(&mut self, data: &mut Rows<T>, shape: Shape) -> Result<Option<FixedPointPlan>, Error> {
        if let Some((known, plan)) = self.planned
            && known == shape
        {
            return Ok(plan);
        }
        let plan = self.new_plan(data, shape)?;
        tracing::debug!(plan = format!("{plan:?}"), "likelihoods in fixed point");
        self.planned = Some((shape, plan));
        Ok(plan)
    }

    fn new_plan<T: Number>(&mut self, data: &mut Rows<T>, shape: Shape) -> Result<Option<FixedPointPlan>, Error> {
        let kinds = [CovarianceType::Diag, CovarianceType::Spherical];
        let takes = T::BYTES == 4
            && data.row_weights.is_none()
            && kinds.contains(&shape.kind)
            && shape.d <= fixed_point::COLUMNS;
        let Some(tiles) = fixed_point::tiles(shape.k).filter(|_| takes && !data.forced.host_loop()) else {
            return Ok(None);
        };
        if !data.gpu.has(fixed_point::kernel(tiles, false).name) {
            return Ok(None);
        }
        let (room, together) = (u64::from(data.gpu.limits.shared_bytes), fixed_point::together(tiles));
        let fits = |sets: &u32| fixed_point::shared_len(tiles, *sets) <= room;
        let Some(unit) = (1..=UNIT / together).rev().map(|some| some * together).find(fits) else { return Ok(None) };
        if self.sizes.is_none() {
            let sizes = self.column_sizes(data)?;
            self.sizes = Some(sizes);
        }
        if self.sizes.iter().flatten().next().is_none() {
            return Ok(None);
        }
        // The number of blocks affects the result's bits, so it is the same for every unit of a shape: one block uses
        // all registers of a multiprocessor.
        let groups = shape.n.div_ceil(u64::from(fixed_point::ROWS * fixed_point::THREADS / 128));
        let blocks = u64::from(data.gpu.limits.multiprocessors).min(groups) as u32;
        Ok(Some(FixedPointPlan { shape, tiles, unit, blocks }))
    }

    /// Computes [`FixedPoint::sizes`].
    fn column_sizes<T: Number>(&mut self, data: &mut Rows<T>) -> Result<Option<Vec<f64>>, Error> {
        /// The bound below which the scales kernel brings columns, and the smallest scale that it returns.
        const BELOW: f64 = 128.0;
        const SMALLEST: f32 = 1.0 / (1_u64 << 60) as f32;
        let d = data.d;
        pin(&data.gpu, &mut self.scales, d + 1)?;
        let scales = self.scales.on_device(d + 1);
        data.launcher().column_scales(&data.whole(), d as u32, &scales)?;
        data.queue.wait(&data.gpu)?;
        let scales = &self.scales.as_slice()[..d];
        let large = scales.iter().any(|scale| *scale <= SMALLEST);
        Ok((!large).then(|| scales.iter().map(|scale| BELOW / f64::from(*scale)).collect()))
    }

    /// Σ ln p(x) under those mixtures of a shape for which fixed point is precise enough; the others' values stay
    /// unchanged.
    pub(super) fn log_likelihoods<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        buffers: &mut Buffers,
        shape: Shape,
        mixtures: &[Mixture],
        out: &mut [f64],
    ) -> Result<(), Error> {
        if mixtures.len() < FEWEST {
            return Ok(());
        }
        let Some(plan) = self.plan(data, shape)? else { return Ok(()) };
        for (mixtures, out) in mixtures.chunks(AT_A_TIME).zip(out.chunks_mut(AT_A_TIME)) {
            match self.at_once(data, buffers, &plan, mixtures, out) {
                // The other kernels need less memory.
                Err(Error::Memory { .. }) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn at_once<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        buffers: &mut Buffers,
        plan: &FixedPointPlan,
        mixtures: &[Mixture],
        out: &mut [f64],
    ) -> Result<(), Error> {
        let tiles = plan.tiles;
        let pieces = pieces(mixtures.len(), plan.unit, fixed_point::together(tiles));
        let len = |piece: &Piece| piece.units as usize * fixed_point::unit_len(tiles, piece.sets) as usize;
        let coefficients: usize = pieces.iter().map(len).sum();
        let room: usize = pieces.iter().map(|piece| piece.room()).sum();
        let partials = plan.blocks as usize * room;
        buffers.reserve(data, coefficients + partials, coefficients, room)?;
        let numbers = buffers.numbers.first(coefficients + partials);
        let values = buffers.values.on_device(room);
        // Marks the values, so that results of an earlier call are not mistaken for new ones.
        let expected = Expected::of_few(&mut buffers.values, room);
        let sizes = self.sizes.clone().flatten().expect("a plan has them");
        // For each mixture: its index, the index of its value, and the offset to add for all rows.
        let mut placed = Vec::with_capacity(mixtures.len());
        let mut waiting = mixtures.iter().enumerate();
        let (mut at, mut first) = (0, 0);
        for piece in pieces {
            let host = &mut buffers.coefficients.as_mut_slice()[at..][..len(&piece)];
            let before = placed.len();
            for (u, unit) in host.chunks_exact_mut(fixed_point::unit_len(tiles, piece.sets) as usize).enumerate() {
                unit.fill(0.0);
                unit.iter_mut().zip(&sizes).for_each(|(scale, size)| *scale = f64::from(LEVEL) / size);
                let places = unit[HEADER as usize..].chunks_exact_mut(plan.set_len());
                for (s, place) in places.enumerate() {
                    // A mixture that is skipped leaves its slot to the next one.
                    let taken = waiting.find_map(|(i, mixture)| {
                        let typical = write(mixture, &data.shift, &sizes, place);
                        if typical.is_none() {
                            place.fill(0.0);
                        }
                        typical.map(|typical| (i, first + u * piece.sets as usize + s, typical))
                    });
                    let Some(taken) = taken else { break };
                    placed.push(taken);
                }
            }
            if placed.len() == before {
                break;
            }
            let mut device = numbers.index(at..at + len(&piece));
            // SAFETY: the host buffer is pinned. It is written again or freed only after a value arrived that was
            // computed from it, or after the stream was waited for.
            let copied = unsafe { device.async_copy_from(&*host, &data.queue.stream) };
            data.gpu.check("a copy of parameters to the device", copied)?;
            let (to, values) = (numbers.index(coefficients + first..), values.index(first..));
            data.launcher().fixed_point(
                plan,
                piece.units,
                piece.sets,
                &data.whole(),
                &device,
                &to,
                room as u64,
                &values,
            )?;
            at += len(&piece);
            first += piece.room();
        }
        // Values of pieces that were not launched never arrive.
        let here = expected.filter(|_| first == room).is_some_and(|few| few.come(&mut buffers.values, room));
        if first > 0 && !here {
            data.queue.wait(&data.gpu)?;
        }
        let values = buffers.values.as_slice();
        placed.iter().for_each(|&(i, at, typical)| out[i] = values[at] + typical * plan.shape.n as f64);
        Ok(())
    }
}

/// The least power of two that is not below `v`, a positive normal number.
fn power_above(v: f64) -> f64 {
    const DIGITS: u64 = (1 << 52) - 1;
    f64::from_bits((v.to_bits() + DIGITS) & !DIGITS)
}

/// Writes a mixture's tiles into `out`, which is zero. Returns the offset that was subtracted from its constants;
/// `None` if fixed point is not precise enough for it.
fn write(mixture: &Mixture, shift: &[f64], sizes: &[f64], out: &mut [f64]) -> Option<f64> {
    const LEVEL_F64: f64 = LEVEL as f64;
    const UNIT_F64: f64 = CONSTANT as f64;
    let log2 = std::f64::consts::LOG2_E;
    let (typical, means) = (typical(mixture), mixture.means());
    for (c, eight) in (0..).step_by(8).zip(out.chunks_exact_mut(Tile::LEN as usize)) {
        for column in 0..8 {
            let (c, at) = (c + column as usize, Tile::constant(column) as usize);
            let known = if c < mixture.n_components() { mixture.log_weight(c) } else { f64::NEG_INFINITY };
            if known == f64::NEG_INFINITY {
                // A constant so far below all others that the component contributes nothing.
                (eight[at], eight[Tile::step(column) as usize]) = (-LARGEST_CONSTANT / UNIT_F64, 1.0);
                continue;
            }
            let mut constant = known + mixture.log_normalizer(c) - typical;
            let mut most = 0.0_f64;
            for (j, size) in sizes.iter().enumerate() {
                let sd = match mixture.factors() {
                    Factors::Diag(all) => all[[c, j]],
                    Factors::Spherical(all) => all[c],
                    Factors::Full(_) | Factors::Tied(_) => return None,
                };
                let (m, root) = (means[[c, j]] - shift[j], size / sd);
                let (entry, square) = (m / sd * root, -0.5 * root * root);
                constant -= 0.5 * (m / sd) * (m / sd);
                most = most.max(entry.abs()).max(-square);
                let at = Tile::entry(j as u32, column) as usize;
                (eight[at], eight[at + 1]) = (entry, square);
            }
            let step = (most * (log2 / (LEVEL_F64 * LEVEL_F64))).max((constant * log2).abs() / LARGEST_CONSTANT);
            let step = power_above(step.max(f64::MIN_POSITIVE));
            // The negated comparison also catches NaN.
            if !(step <= LARGEST_STEP && constant.is_finite()) {
                return None;
            }
            let by = log2 / (LEVEL_F64 * step);
            for j in 0..sizes.len() as u32 {
                let at = Tile::entry(j, column) as usize;
                (eight[at], eight[at + 1]) = (eight[at] * by, eight[at + 1] * by);
            }
            let over = constant * log2 / step;
            let whole = (over / UNIT_F64).round();
            (eight[at], eight[at + 1]) = (whole, over - UNIT_F64 * whole);
            eight[Tile::step(column) as usize] = step;
        }
    }
    Some(typical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mixture_has_its_place_and_pieces_grow() {
        for (most, together) in [(8, 8), (64, 8), (12, 4), (1, 1)] {
            for mixtures in 1..=AT_A_TIME {
                let all = pieces(mixtures, most, together);
                assert!(all.iter().map(|p| p.room()).sum::<usize>() >= mixtures);
                let fits = |p: &Piece| p.units > 0 && p.sets <= most && p.sets.is_multiple_of(together);
                assert!(all.iter().all(fits), "{all:?}");
            }
        }
        let sets = |mixtures| pieces(mixtures, 64, 8).iter().map(|p| (p.units, p.sets)).collect::<Vec<_>>();
        assert_eq!(sets(4), [(1, 8)]);
        assert_eq!(sets(15), [(1, 16)]);
        assert_eq!(sets(64), [(1, 8), (1, 24), (1, 32)]);
        assert_eq!(sets(512), [(1, 8), (1, 24), (2, 40), (7, 64)]);
    }

    #[test]
    fn powers_are_not_less() {
        for (v, power) in [(1.0, 1.0), (1.0 + f64::EPSILON, 2.0), (0.3, 0.5), (1e-300, 2.0_f64.powi(-996))] {
            assert_eq!(power_above(v), power, "{v}");
        }
    }
}
