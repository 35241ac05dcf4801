//! Two kernels for each chunk of rows, densities and moments, where sums are too many for registers: one algorithm with operands in
//! double precision, in split half precision and in half precision.

pub mod double_precision;
pub mod half_precision;
