//! The fast mode's passes on Hopper: products of heads by whole warpgroups, whose right operands the tensor cores read from
//! shared memory by themselves.

pub mod full;
