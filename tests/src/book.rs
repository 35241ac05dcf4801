//! The book's Rust examples, which run as documentation tests. `tests/book.rs` runs its commands, and the Python
//! package's tests run its Python examples.

/// docs/src/first-fit.md
#[doc = include_str!("../../docs/src/first-fit.md")]
pub struct FirstFit;

/// docs/src/products.md
#[doc = include_str!("../../docs/src/products.md")]
pub struct Products;

/// docs/src/likelihood.md
#[doc = include_str!("../../docs/src/likelihood.md")]
pub struct Likelihood;

/// docs/src/censored.md
#[doc = include_str!("../../docs/src/censored.md")]
pub struct Censored;
