//! One pass under a mixture in one kernel, for a gradient: sums about the rows' shift, moved to the means here.

use cust::memory::AsyncCopyDestination;
use gmm_kernels::fused::place::Place;
use gmm_kernels::fused::{self, Variant};
use gmm_kernels::layout::{Kind, packed_index};
use gmm_model::{CovarianceType, Mixture, Statistics};

use super::em::limits_of_features;
use super::expand::{Places, most_terms};
use super::launch::Kernels;
use super::rows::CudaRows;
use super::shape::Shape;
use super::upload::Number;
use crate::Error;

impl<T: Number> CudaRows<T> {
    /// [`Resident::expectation`](crate::Resident::expectation); none where there is no such kernel for the shape, no memory,
    /// or digits would be lost.
    pub(super) fn expectation_here(&mut self, mixture: &Mixture) -> Result<Option<Statistics>, Error> {
        let shape = self.shape(mixture.covariance_type(), mixture.n_components());
        let Some(variant) = Variant::of(shape.kernel_kind(), shape.k, shape.d) else { return Ok(None) };
        let there = self.gpu.has(fused::kernel::<T>(variant).name);
        let fits = fused::shared_bytes::<T>(variant) <= u64::from(self.gpu.limits.shared_bytes);
        if self.forced.host_loop() || !there || !fits {
            return Ok(None);
        }
        match self.fused_expectation(&shape, variant, mixture) {
            Err(Error::Memory { .. }) => Ok(None),
            other => other,
        }
    }

    fn fused_expectation(
        &mut self,
        shape: &Shape,
        variant: Variant,
        mixture: &Mixture,
    ) -> Result<Option<Statistics>, Error> {
        let tied = shape.kind == CovarianceType::Tied;
        if tied {
            self.know_scatter()?;
        }
        let Kernels::Fused(_, blocks) = self.fused_kernels(shape, variant)? else { return Ok(None) };
        let place = variant.place();
        let (coefficients, sums) = (place.coefficients() as usize, place.sums() as usize);
        let parameters = coefficients + 8 * place.groups as usize;
        let partials = blocks as usize * sums;
        self.reserve_scores(parameters + partials, parameters, sums)?;
        let memory = &mut self.score_memory;
        let host = &mut memory.coefficients.as_mut_slice()[..parameters];
        memory.work.begin(mixture);
        let (places, most) = (places(shape, place), most_terms(shape));
        host.fill(0.0);
        host[coefficients..].fill(f64::NEG_INFINITY);
        for c in 0..mixture.n_components() {
            // A component's place from that of the first: a tile on, or some columns.
            let own = c / 8 * 128 + c % 8 * 8;
            let expanded = memory.work.component(mixture, c, &self.shift, &places, own, host);
            if expanded.terms.is_nan() || expanded.terms > most {
                return Ok(None);
            }
            host[coefficients + c] = expanded.constant;
        }
        let shared = self.loop_memory.scatter.as_deref().filter(|_| tied).map_or(0.0, |s| memory.work.shared(s));
        let numbers = memory.numbers.first(parameters + partials);
        // SAFETY: pinned, and neither written again nor freed before the stream was waited for: `run` sees to it.
        let copied = unsafe { numbers.index(..parameters).async_copy_from(&*host, &self.queue.stream) };
        self.gpu.check("a copy of parameters to the device", copied)?;
        let (from, out) = (numbers.index(parameters..), memory.values.on_device(sums));
        let (theta, constants) = (numbers.index(..coefficients), numbers.index(coefficients..parameters));
        let launcher = self.launcher();
        launcher.expect(shape, variant, blocks, &self.whole(), &theta, &constants, &from)?;
        launcher.add_blocks(&from, blocks, sums as u64, &out)?;
        self.queue.wait(&self.gpu)?;
        let values = &self.score_memory.values.as_slice()[..sums];
        let scatter = self.loop_memory.scatter.as_deref().unwrap_or_default();
        let mut out = about_the_means(shape, place, mixture, &self.shift, values, scatter);
        if let Some(out) = &mut out {
            (out.total_weight, out.n_rows) = (self.total_weight, self.n as u64);
            out.log_likelihood += shared;
        }
        Ok(out.filter(Statistics::is_finite))
    }
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
    let least_left = limits_of_features(shape.precision).1;
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
