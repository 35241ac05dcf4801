//! The benchmark harness that `gmm bench` and `cargo xtask bench` share.
//!
//! A [`Definition`] lists what to run: sizes, covariance kinds, precisions, engines and numbers of measurements. A
//! [`Session`] checks each answer against the naive reference before it times anything, and returns a
//! [`Record`](record::Record) of [`Row`]s. A record is written as CSV and JSON, headed by a description of the machine.
//! [`report`] makes one page of all records, with [`published`] figures of other programs beside ours.
//!
//! Benchmarks that are not definitions (`benches/src`) use the same parts: [`timing`], [`pairs`], [`spread`] and
//! [`quiet`] for measuring, [`difference`] and [`parameters`] for checking answers, [`machine`], [`hardware`] and
//! [`record`] for recording. [`peer`] drives the other program, and [`source`] generates the data.

mod check;
pub mod definition;
pub mod difference;
mod em;
pub mod flops;
pub mod hardware;
mod likelihood;
pub mod machine;
mod overtaking;
pub mod pairs;
pub mod parameters;
pub mod peer;
mod product;
mod programs;
pub mod published;
pub mod quiet;
pub mod record;
pub mod report;
mod row;
mod run;
mod session;
mod sizes;
pub mod source;
pub mod spread;
mod table;
mod task;
pub mod timing;

pub use check::REG_COVAR;
pub use definition::Definition;
pub use row::{Row, Status};
pub use session::{Options, Session};
pub use sizes::Shape;
