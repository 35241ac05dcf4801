//! Text tables: csv, tsv and their relatives.

mod lines;
mod read;
mod write;

pub(crate) use read::read;
pub(crate) use write::{write_column, write_table};
