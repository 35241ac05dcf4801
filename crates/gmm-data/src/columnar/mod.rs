//! Parquet and Arrow IPC: tables in columns.

mod batch;
mod read;
mod write;

pub(crate) use read::{read_arrow, read_parquet};
pub(crate) use write::{Kind, write_batch, write_column, write_table};
