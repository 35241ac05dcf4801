//! Standard output and standard error, colours, and checks of output paths.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use gmm_data::atomic::Staged;
use gmm_data::{FileError, Format, ModelFile, Problem};
use gmm_host::Warning;
use gmm_host::spikes::places;
use gmm_model::{Statistics, shown};

use crate::exit::Failure;
use crate::interrupt::{self, Hold};
use crate::progress::ProgressMode;

/// The verbosity, and the progress bar that messages must not overwrite.
pub(crate) struct Console {
    /// Whether to print only results and errors.
    pub(crate) quiet: bool,
    /// Whether to print progress and timings.
    pub(crate) verbose: bool,
    /// Whether standard output supports colours.
    pub(crate) colour: bool,
    progress: ProgressMode,
    bar: RefCell<Option<indicatif::ProgressBar>>,
}

impl Console {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let colour = wants_colour() && io::stdout().is_terminal();
        Self { quiet, verbose, colour, progress: ProgressMode::Auto, bar: RefCell::new(None) }
    }

    /// The same console with another way to show progress.
    pub(crate) fn with_progress(self, progress: ProgressMode) -> Self {
        Self { progress, ..self }
    }

    /// How progress is shown.
    pub(crate) const fn progress(&self) -> ProgressMode {
        self.progress
    }

    /// Prints a warning, unless quiet.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            self.line(&format!("{} {}", paint(stderr_has_colour(), "1;33", "warning:"), safe(text)));
        }
    }

    /// Prints requested information that is not a result, unless quiet.
    pub(crate) fn tell(&self, text: &str) {
        if !self.quiet {
            self.line(&safe(text));
        }
    }

    /// Prints progress information, with `-v` only.
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            self.line(&paint(stderr_has_colour(), "2", &safe(&text())));
        }
    }

    /// Prints one step of long work, with `-v` only, unless its progress is shown otherwise or not at all.
    pub(crate) fn step_note(&self, text: impl FnOnce() -> String) {
        if self.progress == ProgressMode::Auto {
            self.note(text);
        }
    }

    /// Prints a line of progress, even if quiet: it was asked for.
    pub(crate) fn json_line(&self, line: &serde_json::Value) {
        self.line(&line.to_string());
    }

    /// Whether to show a progress bar.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && self.progress == ProgressMode::Auto && io::stderr().is_terminal()
    }

    /// Attaches a progress bar: messages are then printed above it.
    pub(crate) fn attach(&self, bar: &indicatif::ProgressBar) {
        self.bar.replace(Some(bar.clone()));
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match self.bar.borrow().as_ref() {
            Some(bar) => bar.println(text),
            // A closed standard error must not end a fit.
            None => drop(writeln!(io::stderr(), "{text}")),
        }
    }
}

/// Escapes control characters, so that the text is safe to print on a terminal; keeps line breaks.
fn safe(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// Writes all of `text` to standard output and flushes it.
///
/// # Errors
/// The stream's I/O error, with the name `<stdout>`; after a closed pipe the program ends quietly.
pub(crate) fn print(text: &str) -> Result<(), FileError> {
    flushed(io::stdout().lock().write_all(text.as_bytes()))
}

/// Flushes standard output after a successful write.
///
/// # Errors
/// As [`print()`].
pub(crate) fn flushed(written: io::Result<()>) -> Result<(), FileError> {
    written.and_then(|()| io::stdout().flush()).map_err(on_stdout)
}

/// An error of standard output, with the name `<stdout>`.
pub(crate) fn on_stdout(error: io::Error) -> FileError {
    file_error(Path::new("<stdout>"), error.into())
}

/// Writes one JSON object, indented, to standard output.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), FileError> {
    print(&format!("{value:#}\n"))
}

/// Writes a model to a file, or as JSON to standard output if `path` is `-`.
///
/// # Errors
/// [`FileError`], also for standard output.
pub(crate) fn write_model(path: &Path, model: &ModelFile) -> anyhow::Result<()> {
    if is_stdio(path) {
        return Ok(print(&gmm_data::model_to_json(model)?)?);
    }
    let _whole = hold(path);
    Ok(gmm_data::write_model(path, model)?)
}

/// Creates a folder for models, and those that it is in, if they do not exist.
///
/// # Errors
/// [`FileError`].
pub(crate) fn create_folder(folder: &Path) -> Result<(), FileError> {
    std::fs::create_dir_all(folder).map_err(|error| file_error(folder, Problem::from(error)))
}

/// Writes statistics to a file, or to standard output if `path` is `-`.
///
/// # Errors
/// [`FileError`], also for standard output.
pub(crate) fn write_statistics(path: &Path, statistics: &Statistics) -> Result<(), FileError> {
    if is_stdio(path) {
        return flushed(io::stdout().lock().write_all(&statistics.to_bytes()));
    }
    let _whole = hold(path);
    gmm_data::write_statistics(path, statistics)
}

/// Writes a model to a temporary file that is not yet published under its name, or as JSON to standard output if `path`
/// is `-`.
///
/// # Errors
/// As [`write_model`].
pub(crate) fn stage_model(path: &Path, model: &ModelFile) -> anyhow::Result<Option<Staged>> {
    if is_stdio(path) {
        print(&gmm_data::model_to_json(model)?)?;
        return Ok(None);
    }
    Ok(Some(gmm_data::stage_model(path, model)?))
}

/// Defers signals until a file is complete. Does not defer them for pipes and devices: a write to those may block
/// forever.
pub(crate) fn hold(path: &Path) -> Option<Hold> {
    let file = !is_stdio(path) && path.metadata().map_or(true, |there| there.is_file());
    file.then(interrupt::hold)
}

/// Checks, before any work is done, that a model can be written to `path`.
///
/// # Errors
/// [`FileError`] if `path` is a folder, has an unknown extension, or is in a folder that does not exist.
pub(crate) fn check_model_path(path: &Path) -> Result<(), FileError> {
    check_folder(path)?;
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if !is_stdio(path) && !is_model_path(path) {
        return Err(file_error(path, Problem::Extension { extension, choices: "json or safetensors" }));
    }
    Ok(())
}

/// Checks, before any work is done, that a table can be written to `path`.
///
/// # Errors
/// As [`check_model_path`].
pub(crate) fn check_table_path(path: &Path) -> Result<(), FileError> {
    check_folder(path)?;
    if !is_stdio(path) {
        Format::of_output(path).map_err(|problem| file_error(path, problem))?;
    }
    Ok(())
}

/// Checks that `--json` and the output do not both go to standard output.
///
/// # Errors
/// [`Failure::Usage`] if they do.
pub(crate) fn check_json_apart(json: bool, output: &Path) -> Result<(), Failure> {
    if json && is_stdio(output) {
        return Err(Failure::Usage("--json and -o - cannot both write to standard output".to_owned()));
    }
    Ok(())
}

/// Checks, before any work is done, that the output is not one of the inputs, also through another spelling or a link:
/// writing it would destroy the input.
///
/// # Errors
/// [`Failure::Usage`] with both names.
pub(crate) fn check_apart(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    // Only existing regular files can be lost; pipes and devices such as /dev/null are not replaced.
    let place = |path: &Path| (!is_stdio(path) && path.is_file()).then(|| path.canonicalize().ok()).flatten();
    let Some(target) = place(output) else { return Ok(()) };
    match inputs.iter().find(|input| place(&gmm_data::file_of(input)).as_ref() == Some(&target)) {
        Some(input) => Err(Failure::Usage(format!(
            "the output {} is the input {}, which would be overwritten: give it another name",
            output.display(),
            input.display()
        ))),
        None => Ok(()),
    }
}

/// Whether writes to both paths would go to the same file, also through links, and even if it does not exist yet.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        let path = gmm_data::atomic::target_of(path).ok()?;
        path.canonicalize().ok().or_else(|| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(folder.canonicalize().ok()?.join(path.file_name()?))
        })
    };
    a == b || place(a).is_some_and(|a| Some(a) == place(b))
}

/// Whether a path has the extension of a model: json or safetensors.
pub(crate) fn is_model_path(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json") || e.eq_ignore_ascii_case("safetensors"))
}

/// Checks, before any work is done, that `path` is not a folder, and that its folder exists and can be written to.
/// For a pipe, waits for its reader.
///
/// # Errors
/// [`FileError`] with the folder.
pub(crate) fn check_folder(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Err(file_error(path, io::Error::from(io::ErrorKind::IsADirectory).into()));
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            let why = format!("there is no folder '{}'", name(folder));
            Err(file_error(path, io::Error::new(io::ErrorKind::NotFound, why).into()))
        }
        _ if is_stdio(path) => Ok(()),
        _ => gmm_data::atomic::check(path, || {
            if io::stderr().is_terminal() {
                let _ = writeln!(io::stderr(), "waiting for a process to read the pipe {}", shown(&name(path)));
            }
        }),
    }
}

/// Checks that a checkpoint is a regular file: it is rewritten repeatedly, and read by the next run.
///
/// # Errors
/// [`Failure::Usage`] if it is not; and as [`check_folder`].
pub(crate) fn check_checkpoint(path: &Path) -> anyhow::Result<()> {
    if is_stdio(path) || path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Err(Failure::Usage("--checkpoint must be a regular file".to_owned()).into());
    }
    Ok(check_folder(path)?)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// An error about a file, with its path.
pub(crate) fn file_error(path: &Path, problem: Problem) -> FileError {
    FileError { path: path.display().to_string(), place: Box::default(), problem }
}

/// Whether a path means a standard stream.
pub(crate) fn is_stdio(path: &Path) -> bool {
    path.as_os_str() == OsStr::new("-")
}

/// A warning in terms of command-line options, with column names if there are any.
pub(crate) fn warning(warning: &Warning, names: Option<&[String]>) -> String {
    match (warning, names) {
        (Warning::RegularisationDominates { reg_covar, columns }, Some(names)) => {
            let columns: Vec<_> = columns.iter().map(|&i| format!("'{}'", shown(&names[i]))).collect();
            format!(
                "--reg-covar {reg_covar:e} is larger than the variance of {} and dominates the fit there: rescale the \
                 data or lower --reg-covar",
                columns.join(", ")
            )
        }
        (Warning::Spikes { reg_covar, spikes }, names) => {
            let column =
                |j: usize| names.map_or_else(|| format!("column {j}"), |n| format!("column '{}'", shown(&n[j])));
            format!(
                "--reg-covar {reg_covar:e} is more than half the variance of {} in some direction, so the likelihood \
                 depends on it; likely causes are repeated values, linearly dependent columns or too few rows: drop \
                 repeats or columns, raise --reg-covar or use fewer components",
                places(spikes, column)
            )
        }
        (Warning::NotConverged { iterations }, _) => {
            format!("not converged after {iterations} iterations: raise --max-iter or --tol")
        }
        _ => warning.to_string(),
    }
}

/// Text in the ANSI style `code` if colours are on, else unchanged.
pub(crate) fn paint(on: bool, code: &str, text: &str) -> String {
    if on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Whether standard error supports colours.
pub(crate) fn stderr_has_colour() -> bool {
    wants_colour() && io::stderr().is_terminal()
}

/// Whether the environment permits colours: `NO_COLOR` is unset or empty (<https://no-color.org>), and `TERM` is not
/// `dumb`.
fn wants_colour() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
