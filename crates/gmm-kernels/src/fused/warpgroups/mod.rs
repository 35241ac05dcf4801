//! The fast mode's passes on Hopper: products of heads by whole warpgroups, whose right operands the tensor cores read from
//! shared memory by themselves.
//!
//! What a lane does beside a product is then a fraction of what the kernels of [`halves`](super::halves) do, and nothing of
//! size n×k is written: where that would take more time than products, densities are computed once more.

pub mod linear;
