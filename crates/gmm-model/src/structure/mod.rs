//! Mixtures as structure: how far components and mixtures are from one another, merges that keep the moments, trees of
//! merges, components combined into clusters, and splits.
//!
//! ```
//! use gmm_model::structure::{PairDistance, agglomerate, merge};
//! use gmm_model::{Covariances, Mixture};
//! use ndarray::array;
//!
//! let mixture = Mixture::new(
//!     array![0.25, 0.25, 0.5],
//!     array![[0.0], [1.0], [9.0]],
//!     Covariances::Diag(array![[1.0], [1.0], [1.0]]),
//! )?;
//! let tree = agglomerate(&mixture, PairDistance::Runnalls)?;
//! let clusters = tree.clusters(2)?;
//! assert_eq!(clusters, [0, 0, 1]);
//! let merged = merge(&mixture, &clusters)?;
//! assert_eq!(merged.means(), array![[0.5], [9.0]]);
//! # Ok::<(), gmm_model::ModelError>(())
//! ```

mod agglomerate;
mod combine;
mod distance;
mod divergence;
mod merge;
mod split;
mod tree;

pub use agglomerate::{MergeChange, PairDistance, agglomerate, bound_of_change, description_length};
pub use combine::{Combination, CombineBy, Combining, change_point};
pub use distance::{bhattacharyya, distances, kl, runnalls, symmetric_kl};
pub use divergence::{MonteCarlo, kl_monte_carlo, kl_upper_bound, kl_variational};
pub use merge::{merge, merge_pair};
pub use split::{SplitOptions, split, split_to, widest};
pub use tree::{Join, Tree};
