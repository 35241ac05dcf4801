//! The options that say which tables a command reads, and how.

use std::path::PathBuf;

use clap::Args;
use gmm_data::{Decimal, Format, ReadOptions, Separator};
use gmm_model::shown;

use crate::args::{Words, words};
use crate::exit;
use crate::exit::Failure;
use crate::measured::MeasuredArgs;
use crate::missing::Missing;
use crate::output;

/// The input tables and how they are read.
#[derive(Args)]
pub(crate) struct InputArgs {
    /// Input table: csv, tsv, txt, npy, npz (FILE.npz:NAME), parquet or arrow; - is standard input. Several files, a
    /// folder, or a quoted pattern ('part-*.parquet') are read as one table, with columns matched by name
    #[arg(value_name = "INPUT", required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
}

impl InputArgs {
    /// What the rows are read from.
    pub(crate) fn source(&self) -> Source<'_> {
        Source::new(&self.inputs, &self.table)
    }
}

/// As [`InputArgs`], for commands whose other arguments follow the input.
#[derive(Args)]
pub(crate) struct OneInputArgs {
    /// Input table: csv, tsv, txt, npy, npz (FILE.npz:NAME), parquet or arrow; - is standard input. A folder or a
    /// quoted pattern ('part-*.parquet') is read as one table, with columns matched by name
    input: PathBuf,
    #[command(flatten)]
    table: TableArgs,
}

impl OneInputArgs {
    /// What the rows are read from.
    pub(crate) fn source(&self) -> Source<'_> {
        Source::new(std::slice::from_ref(&self.input), &self.table)
    }
}

/// Input tables of a command that can do without.
#[derive(Args)]
pub(crate) struct DataArgs {
    /// Rows: a table in any format that gmm fit reads; - is standard input. Several are read as one table
    #[arg(long = "data", value_name = "ROWS", num_args = 1..)]
    data: Vec<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
}

impl DataArgs {
    /// What the rows are read from, if rows were given.
    pub(crate) fn source(&self) -> Option<Source<'_>> {
        (!self.data.is_empty()).then_some(Source::new(&self.data, &self.table))
    }
}

/// As [`DataArgs`], where the rows follow another argument.
#[derive(Args)]
pub(crate) struct RowsArgs {
    /// Rows: a table in any format that gmm fit reads; - is standard input. Several are read as one table
    #[arg(value_name = "ROWS")]
    rows: Vec<PathBuf>,
    #[command(flatten)]
    table: TableArgs,
}

impl RowsArgs {
    /// What the rows are read from, if rows were given.
    pub(crate) fn source(&self) -> Option<Source<'_>> {
        (!self.rows.is_empty()).then_some(Source::new(&self.rows, &self.table))
    }

    /// Errors if it is said how rows are read, and there are none.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.rows.is_empty() { self.table.refuse("without ROWS") } else { Ok(()) }
    }
}

/// The inputs of a command as they were given, and how they are read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    inputs: &'a [PathBuf],
    table: &'a TableArgs,
    /// A column that is not one of the rows, unless it is selected.
    without: Option<&'a str>,
    /// What is done with missing values.
    pub(crate) missing: Missing,
    /// The measurement errors or limits of the rows, if the command takes them.
    pub(crate) measured: Option<&'a MeasuredArgs>,
}

impl<'a> Source<'a> {
    const fn new(inputs: &'a [PathBuf], table: &'a TableArgs) -> Self {
        Self { inputs, table, without: None, missing: Missing::Refused, measured: None }
    }

    /// The same tables without a column, an entry of [`ReadOptions::columns`], if none are selected.
    pub(crate) const fn without(self, column: &'a str) -> Self {
        Self { without: Some(column), ..self }
    }

    /// How the rows are read.
    pub(crate) fn options(self) -> ReadOptions {
        let mut options = self.table.options();
        let only_excludes = |columns: &Vec<String>| columns.iter().all(|word| word.trim_start().starts_with('!'));
        if let Some(column) = self.without.filter(|_| options.columns.as_ref().is_none_or(only_excludes)) {
            options.columns.get_or_insert_default().push(format!("!{column}"));
        }
        let has_open_ends = self.measured.is_some_and(MeasuredArgs::have_intervals);
        ReadOptions { missing: self.missing.is_read() || has_open_ends, ..options }
    }

    /// The same rows, of a command with the option `--missing`.
    pub(crate) const fn with_missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    /// The same rows, of a command with the options of measurement errors.
    pub(crate) const fn with_measured(self, measured: &'a MeasuredArgs) -> Self {
        Self { measured: Some(measured), ..self }
    }

    /// The value of `--memory`.
    pub(crate) fn memory(self) -> Option<u64> {
        self.table.reading.memory
    }

    /// The files to read, with folders and patterns resolved.
    ///
    /// # Errors
    /// Errors if a folder or a pattern has no files, if standard input is given twice, or if an input is the file of a prior.
    pub(crate) fn files(self) -> anyhow::Result<Vec<PathBuf>> {
        if self.inputs.iter().filter(|input| output::is_stdio(input)).count() > 1 {
            return Err(exit::Failure::Usage("only one input can come from standard input".to_owned()).into());
        }
        if let Some(prior) =
            self.inputs.iter().find(|input| input.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")))
        {
            // The value of --prior is optional, so that it has to be joined by =.
            let why =
                format!("{0}: a toml file is no table: the file of a prior is given as --prior={0}", prior.display());
            return Err(exit::Failure::Usage(why).into());
        }
        Ok(gmm_data::find_inputs(self.inputs)?)
    }

    /// Whether one of the inputs is standard input.
    pub(crate) fn is_stdin(self) -> bool {
        self.inputs.iter().any(|input| output::is_stdio(input))
    }

    /// The name of the rows in messages: the input, or the number of inputs.
    pub(crate) fn display(self) -> String {
        match self.inputs {
            [input] => crate::input::display(input),
            inputs => format!("{} inputs", inputs.len()),
        }
    }

    /// The file name of a single input, for captions; else the number of inputs.
    pub(crate) fn caption(self) -> String {
        match self.inputs {
            [input] if output::is_stdio(input) => "standard input".to_owned(),
            [input] => match input.file_name() {
                Some(name) => shown(&name.to_string_lossy()).into_owned(),
                None => self.display(),
            },
            _ => self.display(),
        }
    }
}

/// How one table is read, and which columns are used.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Columns to use, by name or 0-based index, in the given order. Ranges include both ends (0..59, a..f); a name
    /// that contains a comma needs quotes ('"income, net",age'); ! excludes a column ('!id') [default: all]
    #[arg(long, value_name = "A,B,..", value_parser = Words::new)]
    columns: Vec<Words>,
    #[command(flatten)]
    reading: ReadingArgs,
}

impl TableArgs {
    /// How the table is read.
    pub(crate) fn options(&self) -> ReadOptions {
        let columns = self.columns.iter().flat_map(|words| words.0.clone()).collect();
        ReadOptions { columns: (!self.columns.is_empty()).then_some(columns), ..self.reading.options() }
    }

    /// Errors if any option is given where no table is read; `place` says where.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub(crate) fn refuse(&self, place: &str) -> Result<(), Failure> {
        if self.options() == ReadOptions::default() {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "{place}, --columns, --header and the other options of tables have no effect: leave them out"
        )))
    }
}

/// How tables are read; applies to all inputs of a command.
#[derive(Args)]
pub(crate) struct ReadingArgs {
    /// Whether the first line of a text file holds column names, as in `--header yes` [default: auto, which treats a
    /// first line of numbers as data]
    #[arg(
        long,
        value_name = "yes|no|auto",
        value_parser = ["yes", "no", "auto"],
        hide_possible_values = true,
        help_heading = "Reading"
    )]
    header: Option<String>,
    /// Field separator of a text file: one character, the word tab, or the word blank (any run of spaces and tabs), as
    /// in `--separator ';'` [default: detected from the first lines]
    #[arg(long, value_name = "C", help_heading = "Reading")]
    separator: Option<Separator>,
    /// Decimal separator of a text file: a point or a comma, as in `--separator ';' --decimal ,` [default: detected
    /// from the first lines]
    #[arg(long, value_name = ".|,", help_heading = "Reading")]
    decimal: Option<Decimal>,
    /// Input format, regardless of the file name: csv, tsv, txt, npy, npz, parquet or arrow, as in `--format csv`
    /// [default: from the extension; for standard input, from its first bytes]
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = words::<Format>(&FORMATS),
        hide_possible_values = true,
        help_heading = "Reading"
    )]
    format: Option<Format>,
    /// Limit of the memory for rows, such as 8GiB or 500M, on the host and on each GPU. Rows beyond it are in a
    /// temporary file on the host (in TMPDIR, if set), and pass through the GPU in every pass [default: half of the
    /// free memory of the host; the free memory of each GPU]
    #[arg(long, value_name = "SIZE", value_parser = gmm_data::parse_size, help_heading = "Reading")]
    pub(crate) memory: Option<u64>,
}

const FORMATS: [&str; 7] = ["csv", "tsv", "txt", "npy", "npz", "parquet", "arrow"];

impl ReadingArgs {
    /// How a table is read; all columns are used.
    pub(crate) fn options(&self) -> ReadOptions {
        let header = match self.header.as_deref() {
            Some("yes") => Some(true),
            Some("no") => Some(false),
            _ => None,
        };
        let Self { separator, decimal, format, memory, .. } = *self;
        ReadOptions { header, separator, decimal, format, memory, ..ReadOptions::default() }
    }
}
