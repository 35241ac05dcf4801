//! Reads and writes data sets and models.
//!
//! - Tables: [`read_table`] reads csv, tsv, npy, npz, parquet and Arrow IPC into a [`Table`], [`read_tables`] several
//!   files into one. What exceeds [`ReadOptions::memory`] is written to a temporary file and mapped. [`table_of_batches`]
//!   copies Arrow record batches that another library holds in memory. [`write_table`] and [`write_column`] write whole
//!   tables and single columns; [`write_table_chunks`] writes a table too large for memory, chunk by chunk.
//! - Models: [`read_model`] and [`write_model`] use JSON or safetensors. [`read_mixtures`] reads many mixtures from one
//!   file, for example one written by [`write_draws`].
//!   [`write_onnx`] writes a model as an ONNX graph, and [`write_exchange`] in the forms of Kaldi and mclust, which
//!   [`read_model`] reads too.
//! - Statistics: [`read_statistics`] and [`write_statistics`] use the byte form of [`gmm_model::Statistics`].
//!
//! Writes are atomic: a file appears whole or not at all ([`atomic`]). Every failure is a [`FileError`], which names
//! the file, the place in it, and what to try.
//!
//! ```
//! use gmm_data::{ReadOptions, read_stream};
//!
//! let text = "eruptions,waiting\n3.6,79\n1.8,54\n";
//! let table = read_stream(text.as_bytes(), "faithful", &ReadOptions::default())?;
//! assert_eq!(table.matrix.dim(), (2, 2));
//! assert_eq!(table.names.unwrap(), ["eruptions", "waiting"]);
//!
//! let error = read_stream("a,b\n1,2\n3,x\n".as_bytes(), "bad", &ReadOptions::default()).unwrap_err();
//! assert!(error.to_string().starts_with("bad: line 3, column 1 ('b'): 'x' is not a number"));
//! # Ok::<(), gmm_data::FileError>(())
//! ```

pub mod atomic;
mod chunks;
mod columnar;
mod columns;
mod compressed;
mod content;
mod draws;
mod error;
mod format;
mod input;
mod labels;
mod latched;
mod mapped;
mod memory;
mod model;
mod npy;
mod onnx;
mod parallel;
mod read;
mod rows;
mod size;
mod sources;
mod spill;
mod statistics;
mod store;
mod table;
mod text;
mod warning;
mod write;

pub use chunks::{TableHead, rows_at_a_time, write_table_chunks};
pub use columnar::{table_of_batches, table_of_batches_with_nulls};
pub use columns::find_columns;
pub use draws::{DrawsFile, check_draws_path, write_draws};
pub use error::{ColumnError, FileError, Location, Problem};
pub use format::Format;
pub use labels::{GroupLabel, Words, read_words};
pub use memory::memory_limit;
pub use model::{
    ExchangeFormat, GroupModels, MODEL_FORMAT, MODEL_VERSION, MODELS_FORMAT, ModelFile, ModelOrGroups,
    group_models_to_json, model_and_state, model_to_exchange, model_to_json, model_to_safetensors, read_mixtures,
    read_model, read_model_bytes, read_model_or_groups, stage_model, write_exchange, write_group_models, write_model,
    write_model_and_state,
};
pub use npy::npz::{Array, read_npy_array, read_npz, read_npz_array};
pub use onnx::{ONNX_OPSET, model_to_onnx, write_onnx};
pub use read::{ReadOptions, file_of, read_bytes, read_stream, read_table};
pub use rows::RowGatherer;
pub use size::parse_size;
pub use sources::{FilePart, JoinedTable, find_inputs, part_of, placed, read_tables};
pub use spill::folder as temporary_folder;
pub use statistics::{read_statistics, write_statistics};
pub use table::{Storage, Table};
pub use text::{Decimal, Separator};
pub use warning::DataWarning;
pub use write::{Column, write_column, write_csv, write_csv_column, write_table};
