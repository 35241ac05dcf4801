//! Moments of the rows of each centre: how their products are divided into blocks, and the statistics that they make.

use gmm_kernels::THREADS;
use gmm_kernels::layout::tiles;
use gmm_kernels::seeding::lloyd::products;
use gmm_model::{CovarianceType, Statistics};
use ndarray::{Array2, ArrayView2};

use crate::Error;
use crate::cuda::launch::{LloydPlan, ProductSplits};
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::shape::Shape;

/// Fewest centres of a range of products, unless a block holds no more.
const FEW: u32 = 8;

/// Blocks of the products of `shape`: as many at a time as the device runs together.
pub(crate) fn product_splits<T: Number>(data: &Rows<T>, shape: &Shape) -> Result<ProductSplits, Error> {
    let (kernel, limits) = (products::hard_products::<T>().name, data.gpu.limits);
    let tied = shape.kind == CovarianceType::Tied;
    let shared = |range: u32| products::shared_len(tied, range, shape.d, data.row_weights.is_some());
    // With a tied covariance the memory does not depend on the number of centres.
    let range = if tied { shape.k } else { range(shape.k, limits.shared_bytes, shared) };
    let units = products::pieces(shape.d) * shape.k.div_ceil(range);
    let blocks = data.gpu.occupancy(kernel, THREADS, shared(range))? * limits.multiprocessors;
    let splits = u64::from(blocks / units).clamp(1, tiles(shape.n)) as u32;
    Ok(ProductSplits { tied, range, splits })
}

/// Centres whose products a block sums: what half of the shared memory holds, so that two blocks run on a multiprocessor; or,
/// where that is few, all of it.
fn range(k: u32, shared_bytes: u32, shared: impl Fn(u32) -> u64) -> u32 {
    let of = |bytes: u32| (1..=k).take_while(|&sums| shared(sums) <= bytes.into()).last();
    let half = of(shared_bytes / 2).filter(|&range| range >= FEW.min(k));
    half.or(of(shared_bytes)).unwrap_or(1)
}

/// Statistics about `centres` from the reduced sums and, from number `products` on, products.
pub(crate) fn statistics_of(
    plan: &LloydPlan,
    kind: CovarianceType,
    centres: ArrayView2<'_, f64>,
    sums: &[f64],
    products: usize,
) -> Statistics {
    let (k, d) = centres.dim();
    let mut out = Statistics::zero(kind, centres.to_owned());
    out.weight.copy_from_slice(&sums[d * k..(d + 1) * k]);
    out.first = Array2::from_shape_fn((k, d), |(c, j)| sums[j * k + c]);
    let second = |c: usize, j: usize| sums[(d + 1 + j) * k + c];
    match (plan.products, kind) {
        (Some(cut), _) => out.second.copy_from_slice(&sums[products..][..cut.len(&plan.shape) as usize]),
        (None, CovarianceType::Diag) => (0..k * d).for_each(|i| out.second[i] = second(i / d, i % d)),
        (None, _) => (0..k).for_each(|c| out.second[c] = (0..d).map(|j| second(c, j)).sum()),
    }
    out
}
