//! Passes under mixtures in one kernel each, for gradients: sums about the rows' shift, moved to the means here.

use cust::memory::AsyncCopyDestination;
use gmm_kernels::fused::place::Place;
use gmm_kernels::fused::{self, Variant};
use gmm_kernels::layout::{Kind, packed_index};
use gmm_model::{CovarianceType, Mixture, Statistics};

use super::digits::limits_of_features;
use super::expand::{Places, Work, most_terms};
use super::launch::Kernels;
use super::rows::CudaRows;
use super::shape::Shape;
use super::upload::Number;
use crate::Error;

/// Bytes of parameters that wait in pinned memory together.
const WAITING: usize = 4 << 20;

impl<T: Number> CudaRows<T> {
    /// [`Resident::passes`](crate::Resident::passes): those of a kind and of as many components that follow one another go to
    /// the device together, which is waited for once. None where there is no such kernel for the shape, no memory, or digits
    /// would be lost.
    pub(super) fn expectations_here(&mut self, mixtures: &[Mixture]) -> Result<Vec<Option<Statistics>>, Error> {
        let like = |a: &Mixture, b: &Mixture| {
            a.covariance_type() == b.covariance_type() && a.n_components() == b.n_components()
        };
        let mut out = Vec::with_capacity(mixtures.len());
        for alike in mixtures.chunk_by(like) {
            let shape = self.shape(alike[0].covariance_type(), alike[0].n_components());
            let room = u64::from(self.gpu.limits.shared_bytes);
            let variant = Variant::of(shape.kernel_kind(), shape.k, shape.d).map(|variant| variant.fitting::<T>(room));
            let variant = variant.filter(|&variant| {
                let there = self.gpu.has(fused::kernel::<T>(variant).name);
                there && fused::block::<T>(variant).1 <= room
            });
            let Some(variant) = variant.filter(|_| !self.forced.host_loop()) else {
                out.extend(alike.iter().map(|_| None));
                continue;
            };
            for some in alike.chunks((WAITING / 8 / parameters(variant.place())).max(1)) {
                match self.fused_expectations(&shape, variant, some) {
                    Ok(all) => out.extend(all),
                    Err(Error::Memory { .. }) => {
                        // What is still on its way reads what the next ones are written to.
                        self.queue.wait(&self.gpu)?;
                        out.extend(some.iter().map(|_| None));
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(out)
    }

    /// While the device works on one mixture the host makes the next one's coefficients.
    fn fused_expectations(
        &mut self,
        shape: &Shape,
        variant: Variant,
        mixtures: &[Mixture],
    ) -> Result<Vec<Option<Statistics>>, Error> {
        let tied = shape.kind == CovarianceType::Tied;
        if tied {
            self.know_scatter()?;
        }
        let Kernels::Fused(_, blocks) = self.fused_kernels(shape, variant)? else {
            return Ok(mixtures.iter().map(|_| None).collect());
        };
        let place = variant.place();
        let (each, sums, count) = (parameters(place), place.sums() as usize, mixtures.len());
        // One mixture's partial results at a time: kernels of a stream follow one another.
        let partials = blocks as usize * sums;
        self.reserve_scores(count * each + partials, count * each, count * sums)?;
        let places = places(shape, place);
        let numbers = self.score_memory.numbers.first(count * each + partials);
        let (from, values) = (numbers.index(count * each..), self.score_memory.values.on_device(count * sums));
        // What is to be added to each log-likelihood, where it can be had so.
        let mut more = Vec::with_capacity(count);
        for (i, mixture) in mixtures.iter().enumerate() {
            let memory = &mut self.score_memory;
            let host = &mut memory.coefficients.as_mut_slice()[i * each..(i + 1) * each];
            memory.work.begin(mixture);
            if !expand(shape, place, &places, mixture, &self.shift, &mut memory.work, host) {
                more.push(None);
                continue;
            }
            let scatter = self.loop_memory.scatter.as_deref().filter(|_| tied);
            more.push(match scatter {
                Some(scatter) => memory.work.shared(scatter, shape, self.total_weight),
                None => Some(0.0),
            });
            let mut own = numbers.index(i * each..(i + 1) * each);
            // SAFETY: pinned, and neither written again nor freed before the stream was waited for: `run` sees to it.
            let copied = unsafe { own.async_copy_from(&*host, &self.queue.stream) };
            self.gpu.check("a copy of parameters to the device", copied)?;
            let coefficients = place.coefficients() as usize;
            let (theta, constants) = (own.index(..coefficients), own.index(coefficients..));
            let launcher = self.launcher();
            launcher.expect(shape, variant, blocks, &self.whole(), &theta, &constants, &from)?;
            launcher.reduce_blocks(&from, blocks.into(), sums as u64, &values.index(i * sums..(i + 1) * sums))?;
        }
        self.queue.wait(&self.gpu)?;
        let scatter = self.loop_memory.scatter.as_deref().unwrap_or_default();
        let values = self.score_memory.values.as_slice().chunks_exact(sums);
        let about = |((mixture, values), more): ((&Mixture, &[f64]), Option<f64>)| {
            let mut out = about_the_means(shape, place, mixture, &self.shift, values, scatter)?;
            (out.total_weight, out.n_rows) = (self.total_weight, self.n as u64);
            out.log_likelihood += more?;
            out.is_finite().then_some(out)
        };
        Ok(mixtures.iter().zip(values).zip(more).map(about).collect())
    }
}

/// Numbers of a mixture's parameters: coefficients, then constants.
const fn parameters(place: Place) -> usize {
    place.coefficients() as usize + 8 * place.groups as usize
}

/// Writes a mixture's parameters; whether no digits are lost by them.
fn expand(
    shape: &Shape,
    place: Place,
    places: &Places,
    mixture: &Mixture,
    shift: &[f64],
    work: &mut Work,
    out: &mut [f64],
) -> bool {
    let (coefficients, most) = (place.coefficients() as usize, most_terms(shape));
    out.fill(0.0);
    out[coefficients..].fill(f64::NEG_INFINITY);
    (0..mixture.n_components()).all(|c| {
        // A component's place from that of the first: a tile on, or some columns.
        let own = c / 8 * 128 + c % 8 * 8;
        let expanded = work.component(mixture, c, shift, places, own, out);
        out[coefficients + c] = expanded.constant;
        expanded.terms <= most
    })
}

/// Where the first component's coefficients lie.
fn places(shape: &Shape, place: Place) -> Places {
    let entry = |j| {
        if shape.kind == CovarianceType::Full { place.entry_coefficient(j, 0) } else { place.column_coefficient(j, 0) }
    };
    let product = |i, j| match shape.kind {
        CovarianceType::Full => place.product_coefficient(i, j, 0),
        _ => place.column_coefficient(place.square(j), 0),
    };
    Places::of(shape.kernel_kind(), shape.d, entry, product, || place.column_coefficient(shape.d, 0))
}

/// Statistics about the mixture's means of sums about the shift; none where too little is left of a moment when the mean's
/// square is taken out: S = Q − mFᵀ − Fmᵀ + N mmᵀ with N = Σr, F = Σrx, Q = Σrxxᵀ and m less the shift.
fn about_the_means(
    shape: &Shape,
    place: Place,
    mixture: &Mixture,
    shift: &[f64],
    sums: &[f64],
    scatter: &[f64],
) -> Option<Statistics> {
    let (kind, d) = (shape.kernel_kind(), shape.d as usize);
    let least_left = limits_of_features(shape.precision, shape.kind).1;
    let enough = |about: f64, left: f64| about == 0.0 || left >= least_left * about;
    let mut out = Statistics::zero(shape.kind, mixture.means().to_owned());
    out.log_likelihood = sums[place.log_likelihood() as usize];
    if kind == Kind::Tied {
        out.second.copy_from_slice(scatter);
    }
    let mut good = true;
    for c in 0..mixture.n_components() {
        let at = |place: u64| sums[place as usize];
        let k = c as u32;
        let weight = at(place.weight(k));
        let m: Vec<f64> = mixture.means().row(c).iter().zip(shift).map(|(m, s)| m - s).collect();
        let entry = |j: u32| if kind == Kind::Full { place.entry_sum(j, k) } else { place.column_sum(j, k) };
        let f: Vec<f64> = (0..shape.d).map(|j| at(entry(j))).collect();
        let moved = |i: usize, j: usize| weight * m[i] * m[j] - m[i] * f[j] - f[i] * m[j];
        out.weight[c] = weight;
        out.first.row_mut(c).iter_mut().zip(f.iter().zip(&m)).for_each(|(out, (f, m))| *out = f - weight * m);
        match kind {
            Kind::Full | Kind::Tied => {
                for i in 0..d {
                    for j in 0..=i {
                        let packed = packed_index(i as u32, j as u32) as usize;
                        if kind == Kind::Tied {
                            out.second[packed] += moved(i, j);
                            continue;
                        }
                        let about = at(place.product_sum(i as u32, j as u32, k));
                        let left = about + moved(i, j);
                        good &= i != j || enough(about, left);
                        out.second[c * (d * (d + 1) / 2) + packed] = left;
                    }
                }
            }
            Kind::Diag => {
                for j in 0..d {
                    let about = at(place.column_sum(place.square(j as u32), k));
                    let left = about + moved(j, j);
                    good &= enough(about, left);
                    out.second[c * d + j] = left;
                }
            }
            Kind::Spherical => {
                let about = at(place.column_sum(shape.d, k));
                let left = about + (0..d).map(|j| moved(j, j)).sum::<f64>();
                good &= enough(about, left);
                out.second[c] = left;
            }
        }
    }
    if kind == Kind::Tied {
        let diagonal = |i: usize| packed_index(i as u32, i as u32) as usize;
        good &= (0..d).map(diagonal).all(|at| enough(scatter[at], out.second[at]));
    }
    good.then_some(out)
}
