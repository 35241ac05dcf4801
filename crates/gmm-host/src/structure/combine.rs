//! Combination of components into clusters on an engine.

use gmm_model::structure::{Combination, CombineBy, Combining};
use gmm_model::{Mixture, ModelError, Precision};
use ndarray::{ArrayView2, Axis};
use rayon::prelude::*;

use super::blocks::{Block, Blocks};
use crate::{Data, Engine, Error};

/// Rows whose sums a thread takes at a time. Fixed, since it decides the order of additions.
const PIECE: usize = 4096;

/// Combines the components of a mixture into clusters, from `k` clusters to 1: see [`Combination`].
///
/// Responsibilities are evaluated in blocks of 64 MiB; at most one block is in memory. The sums run on the current rayon
/// thread pool, whose number of threads changes no bit.
///
/// # Errors
/// [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Memory`]; any error of the device.
///
/// Cost: `k − 1` evaluations of the rows. By entropy, also `k²/2` logarithms per row in the first, and at most `2 k` in
/// each of the others.
///
/// ```
/// use gmm_host::{CpuEngine, structure::combine};
/// use gmm_model::structure::CombineBy;
/// use gmm_model::{Covariances, Dataset, Mixture, Precision};
/// use ndarray::array;
///
/// let mixture = Mixture::new(
///     array![0.3, 0.3, 0.4],
///     array![[0.0], [1.0], [9.0]],
///     Covariances::Spherical(array![1.0, 1.0, 1.0]),
/// )?;
/// let data = Dataset::new(array![[0.2], [0.5], [1.1], [8.0], [9.5]])?;
/// let found = combine(&CpuEngine::new(1)?, &mixture, &data, Precision::F64, CombineBy::Entropy)?;
/// assert_eq!(found.tree.clusters(2)?, [0, 0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn combine<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: impl Into<Data<'a>>,
    precision: Precision,
    by: CombineBy,
) -> Result<Combination, Error> {
    let mut combining = Combining::new(mixture.n_components(), by);
    let mut blocks = Blocks::new(engine, mixture, data.into(), precision)?;
    while !combining.is_done() {
        blocks.pass(|block| add(&mut combining, &block))?;
        combining.end_pass()?;
    }
    Ok(combining.finish())
}

/// Adds a block of rows, in pieces whose sums are added in their order: the number of threads does not change a bit.
fn add(combining: &mut Combining, block: &Block<'_>) -> Result<(), Error> {
    let pieces: Vec<_> = block.responsibilities.axis_chunks_iter(Axis(0), PIECE).enumerate().collect();
    let sums = |(i, rows): (usize, ArrayView2<'_, f64>)| {
        let mut some = combining.without_rows();
        some.add(rows, block.weights.map(|weights| &weights[i * PIECE..][..rows.nrows()]))?;
        Ok::<_, ModelError>(some)
    };
    let all = pieces.into_par_iter().map(sums).collect::<Result<Vec<_>, _>>()?;
    all.iter().for_each(|some| combining.merge(some));
    Ok(())
}
