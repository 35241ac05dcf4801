//! Passes under many mixtures, one kernel each, for gradients: sums about the rows' shift, moved to the means on the
//! host.

use cust::memory::AsyncCopyDestination;
use gmm_kernels::em::layout::FeatureLayout;
use gmm_kernels::layout::{Kind, packed_index};
use gmm_model::{CovarianceType, Mixture, Statistics};

use super::Likelihoods;
use super::coefficients::{CoefficientLayout, Work, most_terms};
use crate::Error;
use crate::cuda::em::error_bounds;
use crate::cuda::em::paths::fused::FusedKernel;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;

/// Bytes of parameters that are staged in pinned memory at a time.
const WAITING: usize = 4 << 20;

impl Likelihoods {
    /// [`Passes::passes`](crate::Passes::passes): consecutive mixtures of the same kind and number of components are
    /// enqueued together, with one wait. An element is `None` if there is no kernel for the shape, not enough memory,
    /// or too much precision would be lost.
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
            let instance = FusedKernel::of(&shape, data.gpu.limits.shared_bytes);
            let instance = instance.filter(|instance| {
                instance.shared <= u64::from(data.gpu.limits.shared_bytes) && data.gpu.has(instance.kernel)
            });
            let Some(instance) = instance.filter(|_| !data.forced.host_loop()) else {
                out.extend(alike.iter().map(|_| None));
                continue;
            };
            for some in alike.chunks((WAITING / 8 / parameters(instance.instance.place())).max(1)) {
                match self.fused_expectations(data, &shape, &instance, some) {
                    Ok(all) => out.extend(all),
                    Err(Error::Memory { .. }) => {
                        // Copies in flight may still read the staging buffer that is written next.
                        data.queue.wait(&data.gpu)?;
                        out.extend(some.iter().map(|_| None));
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(out)
    }

    /// Runs the passes of mixtures of one shape. The host computes the next mixture's coefficients while the device
    /// works.
    fn fused_expectations<T: Number>(
        &mut self,
        data: &mut Rows<T>,
        shape: &Shape,
        instance: &FusedKernel,
        mixtures: &[Mixture],
    ) -> Result<Vec<Option<Statistics>>, Error> {
        let tied = shape.kind == CovarianceType::Tied;
        if tied {
            data.know_scatter()?;
        }
        let (instance, blocks) = (instance.instance, instance.blocks(shape, &data.gpu)?);
        let place = instance.place();
        let (each, sums, count) = (parameters(place), place.sums() as usize, mixtures.len());
        // The partial results of one mixture at a time: the kernels of a stream run one after another.
        let partials = blocks as usize * sums;
        self.buffers.reserve(data, count * each + partials, count * each, count * sums)?;
        let places = places(shape, place);
        let numbers = self.buffers.numbers.first(count * each + partials);
        let (from, values) = (numbers.index(count * each..), self.buffers.values.on_device(count * sums));
        // The term to add to each log-likelihood; `None` if precision would be lost.
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
            // SAFETY: the host buffer is pinned, and `Rows::run` waits for the stream before it is written again or
            // freed.
            let copied = unsafe { own.async_copy_from(&*host, &data.queue.stream) };
            data.gpu.check("a copy of parameters to the device", copied)?;
            let coefficients = place.coefficients() as usize;
            let (theta, constants) = (own.index(..coefficients), own.index(coefficients..));
            let launcher = data.launcher();
            launcher.expect(shape, instance, blocks, &data.whole(), &theta, &constants, &from)?;
            launcher.reduce_blocks(
                &from,
                blocks.into(),
                sums as u64,
                &values.index(i * sums..(i + 1) * sums),
                false,
            )?;
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

/// Length of a mixture's parameters: coefficients, then constants.
const fn parameters(place: FeatureLayout) -> usize {
    place.coefficients() as usize + 8 * place.groups as usize
}

/// Writes a mixture's parameters. Returns whether they keep enough precision.
fn expand(
    shape: &Shape,
    place: FeatureLayout,
    places: &CoefficientLayout,
    mixture: &Mixture,
    shift: &[f64],
    work: &mut Work,
    out: &mut [f64],
) -> bool {
    let (coefficients, most) = (place.coefficients() as usize, most_terms(shape));
    out.fill(0.0);
    out[coefficients..].fill(f64::NEG_INFINITY);
    (0..mixture.n_components()).all(|c| {
        // Offset of a component's coefficients from those of the first: 128 per tile of 8 components, 8 per column in
        // it.
        let own = c / 8 * 128 + c % 8 * 8;
        let expanded = work.component(mixture, c, shift, places, own, out);
        out[coefficients + c] = expanded.constant;
        expanded.terms <= most
    })
}

/// Positions of the first component's coefficients.
fn places(shape: &Shape, place: FeatureLayout) -> CoefficientLayout {
    let entry = |j| {
        if shape.kind == CovarianceType::Full { place.entry_coefficient(j, 0) } else { place.column_coefficient(j, 0) }
    };
    let product = |i, j| match shape.kind {
        CovarianceType::Full => place.product_coefficient(i, j, 0),
        _ => place.column_coefficient(place.square(j), 0),
    };
    CoefficientLayout::of(shape.kernel_kind(), shape.d, entry, product, || place.column_coefficient(shape.d, 0))
}

/// Moves sums about the shift to statistics about the mixture's means; `None` if too little of a second moment remains
/// after the mean's square is subtracted. S = Q − mFᵀ − Fmᵀ + N mmᵀ with N = Σr, F = Σrx, Q = Σrxxᵀ and m minus the
/// shift.
fn about_the_means(
    shape: &Shape,
    place: FeatureLayout,
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
