//! Finds the files that a user means, and reads several of them as one table.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use gmm_model::DataError;

use crate::compressed::Compression;
use crate::error::{Fault, one_line};
use crate::memory::Limit;
use crate::rows::RowGatherer;
use crate::{FileError, Format, Problem, ReadOptions, Table, file_of, read_table};

/// Several files read as one table.
#[derive(Clone, Debug)]
pub struct JoinedTable {
    /// The rows of all files, in the order of the files; names and order of the columns are those of the first file.
    pub table: Table,
    /// The files that have rows, in order.
    pub parts: Vec<FilePart>,
}

/// A file of a [`JoinedTable`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The file as it was named; `<stdin>` for standard input.
    pub path: String,
    /// Its first row in the joined table.
    pub first: usize,
}

impl JoinedTable {
    /// First row of each file after the first, for [`Dataset::with_parts`](gmm_model::Dataset::with_parts).
    pub fn later_parts(&self) -> Vec<usize> {
        self.parts.iter().skip(1).map(|part| part.first).collect()
    }
}

/// The file that a row of the joined table comes from, and its row there.
pub fn part_of(parts: &[FilePart], row: usize) -> Option<(&FilePart, usize)> {
    let at = parts.partition_point(|part| part.first <= row).checked_sub(1)?;
    Some((&parts[at], row - parts[at].first))
}

/// An error about a value with the row within its file, and that file.
pub fn placed(parts: &[FilePart], error: DataError) -> (DataError, Option<&FilePart>) {
    match error {
        DataError::NotFinite { row, column, value } => match part_of(parts, row) {
            Some((part, row)) => (DataError::NotFinite { row, column, value }, Some(part)),
            None => (error, None),
        },
        DataError::Weight { row, value } => match part_of(parts, row) {
            Some((part, row)) => (DataError::Weight { row, value }, Some(part)),
            None => (error, None),
        },
        error => (error, None),
    }
}

/// Resolves inputs to files: a folder to all files in it whose extension names a format, a pattern with `*`, `?` or
/// `[..]` to the files that match, each sorted by the bytes of their names; anything else is kept. Hidden files are
/// left out, and a file whose name is a pattern stands for itself. `FILE.npz:NAME` may be a pattern too.
///
/// # Errors
/// [`FileError`] if a folder or pattern gives no file, or cannot be read.
pub fn find_inputs<P: AsRef<Path>>(inputs: &[P]) -> Result<Vec<PathBuf>, FileError> {
    let mut found = Vec::new();
    for input in inputs.iter().map(AsRef::as_ref) {
        let file = file_of(input);
        let is_pattern = input.to_str().is_some_and(|text| text.contains(['*', '?', '[']));
        if input.is_dir() {
            found.extend(in_folder(input).map_err(|fault| fault.in_file(input))?);
        } else if is_pattern && !input.exists() && !file.exists() {
            let array = input.to_str().and_then(|text| text.strip_prefix(file.to_str()?));
            let files = matching(&file).map_err(|fault| fault.in_file(input))?;
            found.extend(files.into_iter().map(|file| match array {
                Some(array) if !array.is_empty() => {
                    let mut named = file.into_os_string();
                    named.push(array);
                    named.into()
                }
                _ => file,
            }));
        } else {
            found.push(input.to_owned());
        }
    }
    Ok(found)
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, Fault> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let inner = Compression::inner_path(&path);
        if Format::of_path(inner.as_deref().unwrap_or(&path)).is_ok() && !is_hidden(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    sorted(files, "no file in this folder has the extension of a table: csv, npy, parquet, ..")
}

fn matching(pattern: &Path) -> Result<Vec<PathBuf>, Fault> {
    let text = pattern.to_str().ok_or_else(|| Problem::Text("the pattern is not UTF-8".to_owned()))?;
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let paths = glob::glob_with(text, options).map_err(|e| Problem::Text(format!("not a pattern of files: {e}")))?;
    let mut files = Vec::new();
    for path in paths {
        let path = path.map_err(|e| Problem::Io(e.into()))?;
        if !path.is_dir() {
            files.push(path);
        }
    }
    sorted(files, "no file matches this pattern")
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn sorted(mut files: Vec<PathBuf>, none: &str) -> Result<Vec<PathBuf>, Fault> {
    if files.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, none).into());
    }
    files.sort_by(|a, b| bytes(a).cmp(bytes(b)));
    Ok(files)
}

fn bytes(path: &Path) -> &[u8] {
    OsStr::as_encoded_bytes(path.as_os_str())
}

/// Reads files one after another as one table; `-` is standard input. Columns are matched by name, whatever their order
/// in later files; those of a file without names by position. Columns chosen by number are those of the first file with
/// names. The matrix is `f32` if those of all files are, else `f64`. A
/// single file is read as by [`read_table`].
///
/// # Errors
/// As [`read_table`]; and if a file lacks a column of the first or has others, with the name of both.
///
/// Cost: as [`read_table`] for each file, and one copy of its values. Memory: the matrix within
/// [`ReadOptions::memory`], and up to an eighth of it beside: a file whose matrix is larger goes through a temporary
/// file.
pub fn read_tables<P: AsRef<Path>>(paths: &[P], options: &ReadOptions) -> Result<JoinedTable, FileError> {
    let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
    if let [path] = paths[..] {
        let table = read_table(path, options)?;
        return Ok(JoinedTable { table, parts: vec![FilePart { path: shown(path), first: 0 }] });
    }
    let mut joined = Joining {
        rows: RowGatherer::new(options.memory),
        first: None,
        named: None,
        parts: Vec::new(),
        warnings: Vec::new(),
    };
    for path in &paths {
        joined.add(path, options)?;
    }
    let Some(first) = joined.first else {
        return Err(Fault::from(Problem::Text("no files to read".to_owned())).in_named("the input"));
    };
    let names = joined.named.map(|(_, names)| names);
    let finished = joined.rows.finish_with_storage().map_err(|problem| Fault::from(problem).in_named(&first));
    let (matrix, storage) = finished?;
    Ok(JoinedTable { table: Table { matrix, names, warnings: joined.warnings, storage }, parts: joined.parts })
}

struct Joining {
    rows: RowGatherer,
    /// The first file.
    first: Option<String>,
    /// The first file with names, and these: files without names have the same columns by position.
    named: Option<(String, Vec<String>)>,
    parts: Vec<FilePart>,
    warnings: Vec<crate::DataWarning>,
}

impl Joining {
    fn add(&mut self, path: &Path, options: &ReadOptions) -> Result<(), FileError> {
        let mut table = match self.by_name(options) {
            Some(named) => match self.read(path, &named) {
                // A file without names has the columns of the given numbers.
                Err(FileError { problem: Problem::Column(_), .. }) if path.is_file() => self.read(path, options)?,
                read => read?,
            },
            None => self.read(path, options)?,
        };
        let name = shown(path);
        let failed = |problem: Problem| Fault::from(problem).in_named(&name);
        self.warnings.append(&mut table.warnings);
        let order = match (&self.first, &self.named) {
            (Some(_), Some((first, names))) => order(first, names, &table),
            (Some(first), None) => same_number(first, self.rows.n_columns(), &table).map(|()| None),
            (None, _) => Ok(None),
        };
        let order = order.map_err(|why| failed(Problem::Text(why)))?;
        self.first.get_or_insert_with(|| name.clone());
        if let (None, Some(names)) = (&self.named, table.names.take()) {
            self.named = Some((name.clone(), names));
        }
        let (first, n) = (self.rows.n_rows(), table.n_rows());
        self.rows.push_columns(table.matrix, order.as_deref()).map_err(failed)?;
        if n > 0 {
            self.parts.push(FilePart { path: name, first });
        }
        Ok(())
    }

    /// The options for later files if columns were chosen, by number or otherwise: the names that they have in the
    /// first file with names.
    fn by_name(&self, options: &ReadOptions) -> Option<ReadOptions> {
        let (_, names) = self.named.as_ref().filter(|_| options.columns.is_some())?;
        let exact = |name: &String| format!("\"{name}\"");
        let (columns, last) = match (&options.last, names.split_last()) {
            (Some(_), Some((last, columns))) => (columns, Some(exact(last))),
            _ => (&names[..], None),
        };
        let can_be_quoted = names.iter().all(|name| !name.contains('"'));
        can_be_quoted.then(|| ReadOptions {
            columns: Some(columns.iter().map(exact).collect()),
            last,
            ..options.clone()
        })
    }

    /// Reads one file. Its matrix is not in memory if it is large beside the rows so far.
    fn read(&self, path: &Path, options: &ReadOptions) -> Result<Table, FileError> {
        /// So many bytes are never large.
        const LITTLE: u128 = 64 << 20;
        if self.first.is_none() {
            return read_table(path, options);
        }
        let beside = Limit::of(options.memory).fitting(0, u128::MAX) / 8;
        let most = beside.min((self.rows.bytes() / 8).max(LITTLE));
        let limited = ReadOptions { memory: Some(u64::try_from(most).unwrap_or(u64::MAX)), ..options.clone() };
        match read_table(path, &limited) {
            // Without a disk, memory that is free may be used up.
            Err(FileError { problem: Problem::Disk { .. }, .. }) if options.memory.is_none() && path.is_file() => {
                read_table(path, options)
            }
            result => result,
        }
    }
}

/// The columns of a later file in the order of the first with names; `None` if it is the same.
///
/// # Errors
/// If the columns differ, with the first name that does.
fn order(first: &str, names: &[String], table: &Table) -> Result<Option<Vec<usize>>, String> {
    let Some(found) = table.names.as_deref() else {
        return same_number(first, names.len(), table).map(|()| None);
    };
    if names == found {
        return Ok(None);
    }
    let only = |names: &[String], name: &String| names.iter().filter(|other| *other == name).count() == 1;
    if let Some(name) = names.iter().find(|name| !found.contains(name)) {
        return Err(format!("no column '{}', which {first} has", one_line(name)));
    }
    if let Some(name) = found.iter().find(|name| !names.contains(name)) {
        return Err(format!("column '{}' is not in {first}: leave it out with --columns", one_line(name)));
    }
    if let Some(name) = found.iter().find(|name| !only(found, name) || !only(names, name)) {
        return Err(format!("several columns are called '{}', in another order than in {first}", one_line(name)));
    }
    Ok(names.iter().map(|name| found.iter().position(|other| other == name)).collect())
}

/// # Errors
/// If the number of columns is not `d`.
fn same_number(first: &str, d: usize, table: &Table) -> Result<(), String> {
    match table.n_columns() {
        found if found == d => Ok(()),
        found => Err(format!("{found} columns, but {first} has {d}")),
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "<stdin>".to_owned() } else { path.display().to_string() }
}
