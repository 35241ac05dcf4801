//! Columnar tables: Parquet, Arrow IPC, and Arrow record batches in memory.

mod batch;
mod bounds;
mod footer;
mod gather;
mod ipc;
mod ipc_stream;
mod message;
mod pages;
mod read;
mod stream;
mod thrift;
mod values;
mod words;
mod write;

pub(crate) use read::{read_arrow, read_arrow_stream, read_parquet};
pub use stream::{table_of_batches, table_of_batches_with_nulls};
pub(crate) use words::parquet_words;
pub(crate) use write::{Batches, Kind, write_batch, write_column, write_table};
