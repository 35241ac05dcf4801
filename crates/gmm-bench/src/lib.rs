//! The benchmark harness that `gmm bench` and `cargo xtask bench` share.
//!
//! A [`Definition`] says what is run: sizes, kinds, precisions, engines and how often. [`run`](run::run()) checks each
//! answer against the naive reference before it times anything, and gives [`Row`]s; a [`Record`](record::Record) keeps them
//! as CSV and JSON under a head that says on what they were made. [`report`] makes one page of all records, with
//! [`published`] figures of other programs beside ours.

mod check;
pub mod definition;
mod em;
pub mod flops;
pub mod hardware;
mod likelihood;
pub mod machine;
pub mod overtaking;
pub mod parameters;
pub mod peer;
mod product;
pub mod published;
pub mod quiet;
pub mod record;
pub mod report;
mod row;
pub mod run;
pub mod source;
pub mod spread;
mod table;
mod task;
pub mod timing;

pub use definition::{Definition, Shape};
pub use row::{Row, Status};
