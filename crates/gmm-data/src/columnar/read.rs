//! Opens Parquet and Arrow IPC files, and contains panics of the libraries that read them.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ProjectionMask};
use parquet::file::reader::ChunkReader;

use super::batch::Plan;
use super::footer::check_footer;
use super::pages::check_pages;
use crate::error::{Fault, first_line};
use crate::{Problem, ReadOptions, Table};

/// A Parquet file, on disk or in memory; reading it needs random access.
pub(crate) enum Input {
    Disk(File),
    Memory(Vec<u8>),
}

impl From<File> for Input {
    fn from(file: File) -> Self {
        Self::Disk(file)
    }
}

impl From<Vec<u8>> for Input {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes)
    }
}

/// Reads a Parquet file, row group by row group.
pub(crate) fn read_parquet(input: Input, options: &ReadOptions) -> Result<Table, Fault> {
    contained(|| match input {
        Input::Disk(file) => parquet(|| file.try_clone(), options),
        Input::Memory(bytes) => {
            let bytes = bytes::Bytes::from(bytes);
            parquet(|| Ok(bytes.clone()), options)
        }
    })
}

fn parquet<R: ChunkReader + 'static>(open: impl Fn() -> io::Result<R>, options: &ReadOptions) -> Result<Table, Fault> {
    let corrupt = |e: parquet::errors::ParquetError| Fault::from(Problem::Corrupt(first_line(e)));
    // The footer is at the end, so an error about a missing footer names the file's length as the offset.
    let input = open()?;
    let len = input.len();
    check_footer(&input)?;
    let load = |options| ArrowReaderMetadata::load(&input, options);
    let metadata = load(ArrowReaderOptions::new()).map_err(|e| {
        // If loading works without the copy of Arrow's schema in the metadata, then that copy is broken.
        match load(ArrowReaderOptions::new().with_skip_arrow_metadata(true)) {
            Ok(_) => Problem::Corrupt(format!(
                "the Arrow schema in the file's metadata ({ARROW_SCHEMA_META_KEY}): write the file again"
            ))
            .into(),
            Err(_) => corrupt(e).offset(len),
        }
    })?;
    let plan = Plan::new(metadata.schema(), options)?;
    let rows = metadata
        .metadata()
        .row_groups()
        .iter()
        .try_fold(0usize, |rows, group| rows.checked_add(usize::try_from(group.num_rows()).ok()?));
    let rows = rows.ok_or_else(|| Problem::Corrupt("a wrong number of rows in the footer".to_owned()))?;
    let read = |plan: &Plan| {
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(open()?, metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), plan.projection());
        check_pages(&open()?, metadata.metadata(), &mask)?;
        let batches = builder.with_projection(mask).build().map_err(corrupt)?;
        plan.collect(batches.map(|batch| batch.map_err(|e| Problem::Corrupt(first_line(e)).into())), rows)
    };
    read(&plan).map_err(|fault| {
        let Problem::Corrupt(_) = fault.problem else { return fault };
        // Reads each column separately to find the broken one.
        let alone = |&i: &usize| {
            let name = metadata.schema().field(i).name().clone();
            let plan = Plan::new(metadata.schema(), &ReadOptions::default().with_columns([i.to_string()])).ok()?;
            let mut fault = contained(|| read(&plan)).err()?;
            (fault.place.column, fault.place.name) = (Some(i), Some(name));
            Some(fault)
        };
        plan.fields.iter().find_map(alone).unwrap_or(fault)
    })
}

/// Reads Arrow IPC, file or stream form.
pub(crate) fn read_arrow(reader: impl Read + Seek, options: &ReadOptions) -> Result<Table, Fault> {
    contained(|| super::ipc::read(reader, options))
}

thread_local! {
    /// Whether this thread is inside [`contained`].
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Turns a panic of the parquet and arrow crates into an error: both can still panic on corrupt files. Partial results
/// are dropped, so no inconsistent state is visible. (A program built with `panic = "abort"` is not protected.)
///
/// The panic message would also be printed, which would confuse the user. The first call therefore installs a panic
/// hook that suppresses these panics and passes all others on to the previous hook.
fn contained(read: impl FnOnce() -> Result<Table, Fault>) -> Result<Table, Fault> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !CONTAINED.get() {
                before(panic);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    CONTAINED.set(outer);
    result.unwrap_or_else(|_| Err(Problem::Corrupt("the file's structure contradicts itself".to_owned()).into()))
}
