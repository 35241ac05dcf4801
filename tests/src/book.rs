//! The book's examples in Rust, which run as documentation tests; `tests/book.rs` runs its commands, and the Python
//! package's tests the rest.

/// docs/src/first-fit.md
#[doc = include_str!("../../docs/src/first-fit.md")]
pub struct FirstFit;

/// docs/src/products.md
#[doc = include_str!("../../docs/src/products.md")]
pub struct Products;

/// docs/src/likelihood.md, from which the README shows a million evaluations
#[doc = include_str!("../../docs/src/likelihood.md")]
pub struct Likelihood;
