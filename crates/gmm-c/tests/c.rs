//! The interface as C, C++ and R see it: the examples are compiled with the system's compiler and run.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gmm_data::{ModelFile, write_model};
use gmm_model::{CovarianceType, Noise, SyntheticOptions, reference, synthetic};
use ndarray::{Array2, array};
use regex_lite::Regex;

/// A folder with a model `m.json`, and rows near its means.
fn model(folder: &Path, kind: CovarianceType) -> (ModelFile, Array2<f64>) {
    let model = ModelFile::from(synthetic(3, 2, kind, 1, &SyntheticOptions::default()).unwrap());
    write_model(folder.join("m.json"), &model).unwrap();
    let shift = array![[0.25, -0.5]];
    (model.clone(), &model.mixture.means() + &shift)
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of this crate's libraries, which cargo has built for this test.
fn libraries() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libgmm_c.so").exists() || folder.join("libgmm_c.dylib").exists(), "{}", folder.display());
    folder
}

/// Whether a program is there. A test that lacks one says so.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("note: NOT tested, because there is no {program}");
    }
    found
}

/// Runs a command, and checks that it succeeds without a word on standard error.
fn run(command: &mut Command) -> Output {
    // Cargo puts a folder first that may have a library of an earlier build.
    let output = command.env("LD_LIBRARY_PATH", libraries()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{command:?}: {:?}\n{text}", output.status);
    output
}

fn compile(compiler: &str, options: &[&str], out: &Path) {
    let libraries = libraries();
    let mut command = Command::new(compiler);
    command.args(options).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(package().join("include"));
    command.arg(package().join("examples/score.c")).arg("-L").arg(&libraries).arg("-lgmm_c");
    command.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-o").arg(out);
    run(&mut command);
}

/// Label, log density and responsibilities of each row, as the example prints them.
fn numbers(output: &Output) -> Vec<Vec<f64>> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| line.split_whitespace().map(|v| v.parse().unwrap()).collect()).collect()
}

/// Checks what an example printed against the reference. `first` is the number of the first component.
fn check(model: &ModelFile, rows: &Array2<f64>, found: &[Vec<f64>], first: i32) {
    assert_eq!(found.len(), rows.nrows());
    for (found, x) in found.iter().zip(rows.outer_iter()) {
        let (log_density, r) = match &model.noise {
            Some(noise) => noise.reference(&model.mixture, x),
            None => {
                let (log_density, r) = reference::posterior(&model.mixture, x);
                (log_density, r.to_vec())
            }
        };
        let best = reference::argmax(ndarray::aview1(&r));
        let label = if best == model.mixture.n_components() { -1 } else { best as i32 };
        assert_eq!(found[0], f64::from(label + first));
        assert_eq!(found.len(), 2 + r.len());
        let within = 64.0 * f64::EPSILON;
        assert!((found[1] - log_density).abs() <= within * log_density.abs().max(1.0), "{} {log_density}", found[1]);
        for (found, expected) in found[2..].iter().zip(&r) {
            assert!((found - expected).abs() <= within * log_density.abs().max(1.0), "{found} {expected}");
        }
    }
}

fn write_rows(path: &Path, rows: &Array2<f64>) {
    let mut text = "a,b\n".to_owned();
    rows.outer_iter().for_each(|row| writeln!(text, "{},{}", row[0], row[1]).unwrap());
    std::fs::write(path, text).unwrap();
}

fn arguments(rows: &Array2<f64>) -> Vec<String> {
    rows.iter().map(f64::to_string).collect()
}

#[test]
fn the_example_in_c_has_the_results_of_the_reference() {
    if cfg!(windows) || !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("score");
    compile("cc", &["-std=c99"], &program);
    for kind in CovarianceType::ALL {
        let (model, rows) = model(folder.path(), kind);
        let output = run(Command::new(&program).arg(folder.path().join("m.json")).args(arguments(&rows)));
        check(&model, &rows, &numbers(&output), 0);
    }
}

/// A model with noise, and rows of which the last is noise.
fn noisy(folder: &Path) -> (ModelFile, Array2<f64>) {
    let (model, mut rows) = model(folder, CovarianceType::Full);
    let noise = Some(Noise { weight: 0.25, log_volume: 6.0, region: None });
    let model = ModelFile { noise, ..model };
    write_model(folder.join("m.json"), &model).unwrap();
    let last = rows.nrows() - 1;
    rows.row_mut(last).fill(50.0);
    (model, rows)
}

#[test]
fn the_example_in_c_knows_noise() {
    if cfg!(windows) || !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("score");
    compile("cc", &["-std=c99"], &program);
    let (model, rows) = noisy(folder.path());
    let found = numbers(&run(Command::new(&program).arg(folder.path().join("m.json")).args(arguments(&rows))));
    check(&model, &rows, &found, 0);
    assert_eq!(found[rows.nrows() - 1][0], -1.0);
}

#[test]
fn the_example_in_c_leaks_nothing_under_valgrind() {
    if cfg!(windows) || !has("cc") || !has("valgrind") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("score");
    compile("cc", &["-std=c99", "-g"], &program);
    let (model, rows) = model(folder.path(), CovarianceType::Full);
    // A thread of the engine may end after the program: its memory is "possibly lost".
    let valgrind = |arguments: &[String]| {
        let mut command = Command::new("valgrind");
        command.args([
            "--quiet",
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            "--show-leak-kinds=definite",
        ]);
        command.arg(&program).arg(folder.path().join("m.json")).args(arguments);
        command.env("LD_LIBRARY_PATH", libraries());
        command
    };
    let output = run(&mut valgrind(&arguments(&rows)));
    check(&model, &rows, &numbers(&output), 0);
    // A failure frees what it made too.
    let failed = valgrind(&["NaN".to_owned(), "1".to_owned()]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(text.starts_with("gmm_score_samples: row 0, column 0 is NaN") && !text.contains("=="), "{text}");
}

#[test]
fn the_header_is_also_one_of_cpp() {
    if cfg!(windows) || !has("c++") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("uses.cc");
    std::fs::write(&source, "#include \"gmm.h\"\nint main() { gmm_free(nullptr); return gmm_n_features(nullptr); }\n")
        .unwrap();
    let (program, libraries) = (folder.path().join("uses"), libraries());
    let mut command = Command::new("c++");
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(package().join("include")).arg(&source);
    command.arg("-L").arg(&libraries).arg("-lgmm_c").arg(format!("-Wl,-rpath,{}", libraries.display()));
    run(command.arg("-o").arg(&program));
    run(&mut Command::new(&program));
}

#[test]
fn the_example_in_r_has_the_results_of_the_reference() {
    if cfg!(windows) || !has("Rscript") || !has("make") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (model, rows) = model(folder.path(), CovarianceType::Full);
    let example = package().join("examples/r");
    std::fs::copy(example.join("gmm.c"), folder.path().join("gmm.c")).unwrap();
    let build = Command::new("R")
        .args(["CMD", "SHLIB", "gmm.c"])
        .current_dir(folder.path())
        .env("PKG_CPPFLAGS", format!("-I{}", package().join("include").display()))
        .env("PKG_LIBS", format!("-L{} -lgmm_c", libraries().display()))
        .output()
        .unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    write_rows(&folder.path().join("x.csv"), &rows);
    let r = |rows: &str| {
        let mut command = Command::new("Rscript");
        command.arg(example.join("gmm.R")).args(["m.json", rows]).current_dir(folder.path());
        command.env("LD_LIBRARY_PATH", libraries());
        command
    };
    check(&model, &rows, &numbers(&run(&mut r("x.csv"))), 1);
    let (model, rows) = noisy(folder.path());
    write_rows(&folder.path().join("noisy.csv"), &rows);
    check(&model, &rows, &numbers(&run(&mut r("noisy.csv"))), 1);
    std::fs::write(folder.path().join("bad.csv"), "a\n1\n").unwrap();
    let failed = r("bad.csv").output().unwrap();
    assert!(!failed.status.success());
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(text.contains("the rows have 1 columns, the model has 2"), "{text}");
}

/// `cargo xtask c-header --check` compares the whole header with a new one. This needs no other program.
#[test]
fn the_header_declares_every_function_and_constant() {
    let names = |text: &str, pattern: &str| {
        let found: Vec<String> =
            Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect();
        assert!(!found.is_empty(), "{pattern}");
        found
    };
    let source = include_str!("../src/lib.rs");
    let header = include_str!("../include/gmm.h");
    assert_eq!(names(source, r#"extern "C" fn (gmm_\w+)\("#), names(header, r"(?m)^[\w *]*[ *](gmm_\w+)\(\w"));
    let (constants, defines) = (names(source, r"pub const (GMM_\w+): "), names(header, r"(?m)^#define (GMM_\w+) "));
    assert_eq!(constants, defines);
}
