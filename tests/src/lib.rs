//! Helpers of the end-to-end tests, which run the program as a user does, each in its own folder.

#[cfg(doctest)]
mod book;
pub mod browser;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

/// Timeout of a call, so that a test that hangs fails and does not block the others.
const PATIENCE: Duration = Duration::from_secs(120);

/// The root folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is below the root").to_owned()
}

/// Path of a file in the repository's `data/`.
pub fn data(name: &str) -> String {
    root().join("data").join(name).display().to_string()
}

/// Path of a file written by another program, from gmm-data's tests.
pub fn golden(name: &str) -> String {
    root().join("crates/gmm-data/tests/golden").join(name).display().to_string()
}

/// Path of the program, built with the profile of this test. It is built first if it is missing or older than its
/// source.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own path");
        let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned();
        let program = folder.join(format!("gmm{}", std::env::consts::EXE_SUFFIX));
        // `cargo test --workspace` has built it already; a build here could select other features of the dependencies.
        let parts = ["gmm-model", "gmm-data", "gmm-host", "gmm-mcmc", "gmm-plot", "gmm-bench", "gmm-serve", "gmm-cli"]
            .map(|name| root().join("crates").join(name));
        let newest = parts.iter().map(|part| newest_source(part)).max().expect("crates");
        if modified(&program).is_none_or(|built| built < newest) {
            let mut build = Command::new(env!("CARGO"));
            build.current_dir(root()).args(["build", "--quiet", "--package", "gmm-cli", "--target-dir"]);
            build.arg(folder.parent().expect("target/PROFILE"));
            if folder.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().expect("cargo starts").success(), "gmm does not build");
        }
        program
    })
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|m| m.modified()).ok()
}

/// Time of the last change to a crate's source files, without tests and examples.
fn newest_source(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder).expect("a folder of sources").map(|e| e.expect("an entry").path());
    let times = entries.filter_map(|path| match path.is_dir() {
        true if path.ends_with("tests") || path.ends_with("examples") => None,
        true => Some(newest_source(&path)),
        false => modified(&path)
            .filter(|_| path.extension().is_some_and(|e| ["rs", "toml", "html", "css"].iter().any(|own| e == *own))),
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The result of one call of the program.
pub struct Run {
    /// The exit code; `None` if a signal ended the process.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Standard output as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// Asserts that the call succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// Asserts this exit code, and an error on one line that contains all of `parts`.
    #[track_caller]
    pub fn failed(&self, code: i32, parts: &[&str]) {
        let stderr = self.stderr.trim_end();
        assert_eq!(self.code, Some(code), "{stderr}");
        // Warnings may precede the error.
        let error = stderr.lines().last().unwrap_or_default();
        assert!(error.starts_with("error: "), "{stderr}");
        assert!(stderr.lines().rev().skip(1).all(|line| line.starts_with("warning: ")), "{stderr}");
        for part in parts {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
        assert_eq!(self.stdout, "", "an error leaves standard output empty");
    }
}

/// A temporary folder in which the program runs.
pub struct Folder(TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// An empty folder, which is deleted with the value.
    pub fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    /// An empty folder with one text file in it.
    pub fn with(name: &str, text: &str) -> Self {
        let folder = Self::new();
        folder.write(name, text);
        folder
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("the file can be written");
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Reads a text file.
    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("text")
    }

    /// Reads a JSON file, such as a model.
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).expect("JSON")
    }

    /// The names of the files, sorted.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the folder is there");
        let mut names: Vec<_> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The program with these arguments, split at blanks, in this folder, without colours or a terminal.
    pub fn command(&self, arguments: &str) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::new(program());
        command.current_dir(self.0.path()).args(arguments.split_whitespace());
        command.env_remove("NO_COLOR").env("LC_ALL", "C").timeout(PATIENCE);
        command
    }

    /// Runs the program.
    pub fn gmm(&self, arguments: &str) -> Run {
        run(&mut self.command(arguments))
    }

    /// Runs the program with text on its standard input.
    pub fn piped(&self, arguments: &str, input: impl Into<Vec<u8>>) -> Run {
        run(self.command(arguments).write_stdin(input))
    }

    /// Runs a line of bash in the folder, in which `$GMM` is the program.
    pub fn bash(&self, line: &str) -> Run {
        let mut command = assert_cmd::Command::new("bash");
        command.current_dir(self.0.path()).args(["-c", line]).env("GMM", program()).timeout(PATIENCE);
        run(&mut command)
    }

    /// Asserts that the program fails with this exit code and a one-line error that contains all of `parts`, and that
    /// no file is created, deleted or changed.
    #[track_caller]
    pub fn refuses(&self, arguments: &str, code: i32, parts: &[&str]) {
        let contents = || self.files().into_iter().map(|name| (self.read(&name), name)).collect::<Vec<_>>();
        let before = contents();
        self.gmm(arguments).failed(code, parts);
        assert!(before == contents(), "files changed: {:?}", self.files());
    }
}

fn run(command: &mut assert_cmd::Command) -> Run {
    let output = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The bytes of an npy file, version 1.
pub fn npy(descr: &str, fortran: bool, shape: &str, values: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out.extend(values);
    out
}

/// The bytes of values as `<f8`.
pub fn f8(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The bytes of values as `<f4`.
pub fn f4(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// The bytes of an npz file: arrays of `f8` with their names and shapes, as NumPy's `savez` writes them.
pub fn npz(arrays: &[(&str, &[usize], &[f64])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, shape, values) in arrays {
        let shape: String = shape.iter().map(|len| format!("{len},")).collect();
        archive.start_file(format!("{name}.npy"), stored).expect("a new member");
        archive.write_all(&npy("<f8", false, &format!("({shape})"), &f8(values))).expect("memory takes all");
    }
    archive.finish().expect("memory takes all").into_inner()
}

/// All numbers of a JSON value, in order.
pub fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap_or(f64::NAN)],
    }
}

/// Asserts that two lists of numbers agree, each relative to its magnitude or to 1, whichever is larger.
#[track_caller]
pub fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{found:?} and {expected:?}");
    for (a, b) in found.iter().zip(expected) {
        // Written so that NaN fails.
        let agree = (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(agree, "{found:?} is not {expected:?} within {tolerance:e}");
    }
}

/// Runs a command, sends it a signal once its standard error contains `when`, and returns exit code and standard error.
pub fn stopped(folder: &Folder, command: &str, signal: &str, when: &str) -> (Option<i32>, String) {
    let mut child = Command::new(program());
    child.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.args(command.split_whitespace()).spawn().unwrap();
    let mut said = String::new();
    let mut words = BufReader::new(child.stderr.take().unwrap());
    while !said.contains(when) {
        assert!(words.read_line(&mut said).unwrap() > 0, "it ended before it said '{when}': {said}");
    }
    Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    words.read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}
