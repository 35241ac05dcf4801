//! Passes under mixtures in one kernel each, for gradients: sums about the rows' shift, moved to the means here.

use cust::memory::AsyncCopyDestination;
use gmm_kernels::em::layout::Place;
use gmm_kernels::layout::{Kind, packed_index};
use gmm_model::{CovarianceType, Mixture, Statistics};

use super::Likelihoods;
use super::coefficients::{Places, Work, most_terms};
use crate::Error;
use crate::cuda::em::error_bounds;
use crate::cuda::em::paths::fused::Instance;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;

/// Bytes of parameters that wait in pinned memory together.
const WAITING: usize = 4 << 20;

impl Likelihoods {
    /// [`Passes::passes`](crate::Passes::passes): those of a kind and of as many components that follow one another go to
    /// the device together, which is waited for once. None where there is no such kernel for the shape, no memory, or digits
    /// would be lost.
    pub(crate) fn expectations<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        mixtures: &[Mixture],
    ) -> Result<Vec<Option<Statistics>>, Error> {
        let like = |a: &Mixture, b: &Mixture| {
            a.covariance_type() == b.covariance_type() && a.n_components() == b.n_components()
        };
        let mut out = Vec::with_capacity(mixtures.len());
        for alike in mixtures.chunk_by(like) {
            let shape = data.shape(alike[0].covariance_type(), alike[0].n_components());
            let instance = Instance::of(&shape, data.gpu.limits.shared_bytes);
            let instance = instance.filter(|instance| {
                instance.shared <= u64::from(data.gpu.limits.shared_bytes) && data.gpu.has(instance.kernel)
            });
            let Some(instance) = instance.filter(|_| !data.forced.host_loop()) else {
                out.extend(alike.iter().map(|_| None));
                continue;
            };
            for some in alike.chunks((WAITING / 8 / parameters(instance.variant.place())).max(1)) {
                match self.fused_expectations(data, &shape, &instance, some) {
                    Ok(all) => out.extend(all),
                    Err(Error::Memory { .. }) => {
                        // What is still on its way reads what the next ones are written to.
                        data.queue.wait(&data.gpu)?;
                        out.extend(some.iter().map(|_| None));
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(out)
    }

    /// While the device works on one mixture the host makes the next one's coefficients.
    fn fused_expectations<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        shape: &Shape,
        instance: &Instance,
        mixtures: &[Mixture],
    ) -> Result<Vec<Option<Statistics>>, Error> {
        let tied = shape.kind == CovarianceType::Tied;
        if tied {
            data.know_scatter()?;
        }
        let (variant, blocks) = (instance.variant, instance.blocks(shape, &data.gpu)?);
        let place = variant.place();
        let (each, sums, count) = (parameters(place), place.sums() as usize, mixtures.len());
        // One mixture's partial results at a time: kernels of a stream follow one another.
        let partials = blocks as usize * sums;
        self.buffers.reserve(data, count * each + partials, count * each, count * sums)?;
        let places = places(shape, place);
        let numbers = self.buffers.numbers.first(count * each + partials);
        let (from, values) = (numbers.index(count * each..), self.buffers.values.on_device(count * sums));
        // What is to be added to each log-likelihood, where it can be had so.
        let mut more = Vec::with_capacity(count);
        for (i, mixture) in mixtures.iter().enumerate() {
            let memory = &mut self.buffers;
            let host = &mut memory.coefficients.as_mut_slice()[i * each..(i + 1) * each];
            memory.work.begin(mixture);
            if !expand(shape, place, &places, mixture, &data.shift, &mut memory.work, host) {
                more.push(None);
                continue;
            }
            let scatter = data.scatter.as_deref().filter(|_| tied);
            more.push(match scatter {
                Some(scatter) => memory.work.shared(scatter, shape, data.total_weight),
                None => Some(0.0),
            });
            let mut own = numbers.index(i * each..(i + 1) * each);
            // SAFETY: pinned, and neither written again nor freed before the stream was waited for: `run` sees to it.
            let copied = unsafe { own.async_copy_from(&*host, &data.queue.stream) };
            data.gpu.check("a copy of parameters to the device", copied)?;
            let coefficients = place.coefficients() as usize;
            let (theta, constants) = (own.index(..coefficients), own.index(coefficients..));
            let launcher = data.launcher();
            launcher.expect(shape, variant, blocks, &data.whole(), &theta, &constants, &from)?;
            launcher.reduce_blocks(&from, blocks.into(), sums as u64, &values.index(i * sums..(i + 1) * sums))?;
        }
        data.queue.wait(&data.gpu)?;
        let scatter = data.scatter.as_deref().unwrap_or_default();
        let values = self.buffers.values.as_slice().chunks_exact(sums);
        let about = |((mixture, values), more): ((&Mixture, &[f64]), Option<f64>)| {
            let mut out = about_the_means(shape, place, mixture, &data.shift, values, scatter)?;
            (out.total_weight, out.n_rows) = (data.total_weight, data.n as u64);
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
    let least_left = error_bounds::of_features(shape.precision, shape.kind).least_left;
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
