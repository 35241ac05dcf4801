//! Standard output and standard error: who gets what, and in which colour.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use gmm_data::atomic::Staged;
use gmm_data::{FileError, Format, ModelFile, Problem};
use gmm_host::Warning;
use gmm_host::spikes::places;
use gmm_model::shown;

use crate::exit::Failure;
use crate::interrupt::{self, Hold};

/// What the user wants to see, and the progress bar through which messages must pass while there is one.
pub(crate) struct Console {
    /// Nothing but results and errors.
    pub(crate) quiet: bool,
    /// What is being done.
    pub(crate) verbose: bool,
    /// Whether standard output takes colours.
    pub(crate) colour: bool,
    bar: RefCell<Option<indicatif::ProgressBar>>,
}

impl Console {
    pub(crate) fn new(quiet: bool, verbose: bool) -> Self {
        let colour = wants_colour() && io::stdout().is_terminal();
        Self { quiet, verbose, colour, bar: RefCell::new(None) }
    }

    /// Something that is not an error but should be seen.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            self.line(&format!("{} {}", paint(stderr_has_colour(), "1;33", "warning:"), safe(text)));
        }
    }

    /// What was asked for and is no result, unless it is to be quiet.
    pub(crate) fn tell(&self, text: &str) {
        if !self.quiet {
            self.line(&safe(text));
        }
    }

    /// What is being done, with `-v`.
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            self.line(&paint(stderr_has_colour(), "2", &safe(&text())));
        }
    }

    /// Whether a progress bar would be seen.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// From here on, messages are printed above this bar.
    pub(crate) fn attach(&self, bar: &indicatif::ProgressBar) {
        self.bar.replace(Some(bar.clone()));
    }

    /// Takes the bar away.
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

/// Lines that a terminal can be given.
fn safe(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// Writes to standard output, whole.
///
/// # Errors
/// The stream's own, by its name; a closed pipe ends the program quietly.
pub(crate) fn print(text: &str) -> Result<(), FileError> {
    flushed(io::stdout().lock().write_all(text.as_bytes()))
}

/// What was written to standard output, once all of it is there.
///
/// # Errors
/// As [`print()`].
pub(crate) fn flushed(written: io::Result<()>) -> Result<(), FileError> {
    written.and_then(|()| io::stdout().flush()).map_err(on_stdout)
}

/// A failure of standard output, by its name.
pub(crate) fn on_stdout(error: io::Error) -> FileError {
    file_error(Path::new("<stdout>"), error.into())
}

/// Writes one JSON object on a line of its own to standard output.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), FileError> {
    print(&format!("{value:#}\n"))
}

/// Writes a model to a file, or as JSON to standard output where `path` is `-`.
///
/// # Errors
/// [`FileError`], or the stream's own.
pub(crate) fn write_model(path: &Path, model: &ModelFile) -> anyhow::Result<()> {
    if is_stdio(path) {
        return Ok(print(&gmm_data::model_to_json(model)?)?);
    }
    let _whole = hold(path);
    Ok(gmm_data::write_model(path, model)?)
}

/// Writes a model but for its name, or as JSON to standard output where `path` is `-`.
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

/// Holds signals back until a file is whole. What is no file (a pipe, a device) never is: a signal then ends at once, also
/// while nobody reads.
pub(crate) fn hold(path: &Path) -> Option<Hold> {
    let file = !is_stdio(path) && path.metadata().map_or(true, |there| there.is_file());
    file.then(interrupt::hold)
}

/// Refuses, before any work is done, a model path that could not be written in the end.
///
/// # Errors
/// [`FileError`] for a folder, an unknown extension, or a folder that is not there.
pub(crate) fn check_model_path(path: &Path) -> Result<(), FileError> {
    check_folder(path)?;
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if !is_stdio(path) && !is_model_path(path) {
        return Err(file_error(path, Problem::Extension { extension, choices: "json or safetensors" }));
    }
    Ok(())
}

/// Refuses, before any work is done, a table's path that could not be written in the end.
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

/// Refuses, before any work is done, an output that is one of the inputs by another spelling or through a link: reading
/// it to the end and then replacing it would lose what the user has.
///
/// # Errors
/// [`Failure::Usage`] with both names.
pub(crate) fn check_apart(output: &Path, inputs: &[&Path]) -> Result<(), Failure> {
    // What is no regular file (a pipe, /dev/null) is not replaced; what is not there is not lost.
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

/// Whether what is written to two paths would be one file, also through links and whether or not it is there yet.
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

/// Whether a path's extension is that of a model.
pub(crate) fn is_model_path(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json") || e.eq_ignore_ascii_case("safetensors"))
}

/// Refuses, before any work is done, a folder, and a path in a folder that is not there or cannot be written to.
/// Of a pipe it waits for the reader.
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
                let _ = writeln!(io::stderr(), "waiting for a process that reads the pipe {}", shown(&name(path)));
            }
        }),
    }
}

/// Refuses a checkpoint that is no file: it is written again and again, and read by the next run.
///
/// # Errors
/// [`Failure::Usage`], and as [`check_folder`].
pub(crate) fn check_checkpoint(path: &Path) -> anyhow::Result<()> {
    if is_stdio(path) || path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Err(Failure::Usage("--checkpoint needs a file".to_owned()).into());
    }
    Ok(check_folder(path)?)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// What is wrong with a file, by its name.
pub(crate) fn file_error(path: &Path, problem: Problem) -> FileError {
    FileError { path: path.display().to_string(), place: Box::default(), problem }
}

/// Whether a path means a standard stream.
pub(crate) fn is_stdio(path: &Path) -> bool {
    path.as_os_str() == OsStr::new("-")
}

/// A warning in the words of the command line, columns by name where they have one.
pub(crate) fn warning(warning: &Warning, names: Option<&[String]>) -> String {
    match (warning, names) {
        (Warning::RegularisationDominates { reg_covar, columns }, Some(names)) => {
            let columns: Vec<_> = columns.iter().map(|&i| format!("'{}'", shown(&names[i]))).collect();
            format!(
                "--reg-covar {reg_covar:e} is larger than the variance of {}: it decides the fit there; rescale the \
                 data or lower it",
                columns.join(", ")
            )
        }
        (Warning::Spikes { reg_covar, spikes }, names) => {
            let column =
                |j: usize| names.map_or_else(|| format!("column {j}"), |n| format!("column '{}'", shown(&n[j])));
            format!(
                "--reg-covar {reg_covar:e} is more than half the variance of {} in some direction: repeated values, linearly \
                 dependent columns, or too few rows; the likelihood then depends on --reg-covar; drop repeats or \
                 columns, raise --reg-covar or use fewer components",
                places(spikes, column)
            )
        }
        (Warning::NotConverged { iterations }, _) => {
            format!("not converged after {iterations} iterations: raise --max-iter or --tol")
        }
        _ => warning.to_string(),
    }
}

/// Text in a colour or weight, by its ANSI code, where colours are on.
pub(crate) fn paint(on: bool, code: &str, text: &str) -> String {
    if on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Whether standard error takes colours.
pub(crate) fn stderr_has_colour() -> bool {
    wants_colour() && io::stderr().is_terminal()
}

/// <https://no-color.org>: any value that is not empty turns colours off.
fn wants_colour() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
