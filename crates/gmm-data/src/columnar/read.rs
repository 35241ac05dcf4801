//! Opens Parquet and Arrow IPC files, and contains panics of the libraries that read them.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::batch::Plan;
use super::footer::check_footer;
use super::gather::Receive;
use super::message::CONTINUATION;
use super::pages::check_pages;
use crate::error::{Fault, first_line};
use crate::input::Input;
use crate::read::read_whole;
use crate::{Problem, ReadOptions, Table};

/// Reads a Parquet file, on all cores if it has several row groups.
pub(crate) fn read_parquet(input: &Input, options: &ReadOptions) -> Result<Table, Fault> {
    contained(|| parquet(input, options))
}

fn parquet(input: &Input, options: &ReadOptions) -> Result<Table, Fault> {
    let corrupt = |e: parquet::errors::ParquetError| Fault::from(Problem::Corrupt(first_line(e)));
    // The footer is at the end, so an error about a missing footer names the file's length as the offset.
    let len = input.len();
    check_footer(input)?;
    let load = |options| ArrowReaderMetadata::load(input, options);
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
    let groups = metadata.metadata().row_groups();
    let rows: Option<Vec<usize>> = groups.iter().map(|group| usize::try_from(group.num_rows()).ok()).collect();
    let total = rows.as_ref().and_then(|rows| rows.iter().try_fold(0usize, |total, rows| total.checked_add(*rows)));
    let wrong = || Problem::Corrupt("a wrong number of rows in the footer".to_owned());
    let (rows, total) = rows.zip(total).ok_or_else(wrong)?;
    let build = |plan: &Plan, group: Option<usize>| {
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(input.clone(), metadata.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), plan.projection());
        let builder = builder.with_projection(mask);
        let builder = match group {
            Some(group) => builder.with_row_groups(vec![group]),
            None => builder,
        };
        let batches = builder.build().map_err(corrupt)?;
        Ok::<_, Fault>(batches.map(|batch| batch.map_err(|e| Fault::from(Problem::Corrupt(first_line(e))))))
    };
    let read = |plan: &Plan| {
        let mask = ProjectionMask::roots(metadata.parquet_schema(), plan.projection());
        check_pages(input, metadata.metadata(), &mask)?;
        let decode = |group, receive: &mut Receive<'_>| {
            contained(|| build(plan, Some(group))?.try_for_each(|batch| receive(&batch?)))
        };
        let groups = metadata.metadata().row_groups();
        let largest = groups.iter().map(|group| group.total_byte_size().max(0) as u128).max().unwrap_or(0);
        match plan.collect_parts(&rows, largest, decode) {
            Some(table) => Ok(table),
            None => plan.collect(build(plan, None)?, total),
        }
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
pub(crate) fn read_arrow(input: &Input, options: &ReadOptions) -> Result<Table, Fault> {
    contained(|| super::ipc::read(input, options))
}

/// Reads Arrow IPC from a stream: message by message, or from a copy in memory if messages are marked as before 2019.
pub(crate) fn read_arrow_stream(mut reader: impl BufRead, options: &ReadOptions) -> Result<Table, Fault> {
    let start = reader.fill_buf()?;
    if start.starts_with(&CONTINUATION) {
        contained(|| super::ipc_stream::read(reader, options))
    } else if super::ipc_stream::is_file(start) {
        contained(|| super::ipc_stream::read_file(reader, options))
    } else {
        read_arrow(&read_whole(reader, options)?.into(), options)
    }
}

impl Length for Input {
    fn len(&self) -> u64 {
        self.len()
    }
}

impl ChunkReader for Input {
    type T = BufReader<Tail>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::new(Tail { input: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if let Self::Memory(bytes) = self {
            return bytes.get_bytes(start, length);
        }
        let mut bytes = vec![0; length];
        let read = self.read_at(start, &mut bytes)?;
        if read < length {
            return Err(ParquetError::EOF(format!("Expected to read {length} bytes, read only {read}")));
        }
        Ok(bytes.into())
    }
}

/// Reads the bytes of a file from an offset on.
pub(crate) struct Tail {
    input: Input,
    at: u64,
}

impl Read for Tail {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read_at(self.at, out)?;
        self.at += read as u64;
        Ok(read)
    }
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
pub(super) fn contained<T>(read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
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
