//! Two kernels per chunk of rows, densities and moments, for sums that do not fit into registers. The same algorithm
//! with operands in double precision, in split half precision and in half precision.

pub mod double_precision;
pub mod half_precision;
