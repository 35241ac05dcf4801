//! `gmm pass`, `gmm add` and `gmm maximise`: the steps of a fit over many files.

use gmm_data::{ModelFile, Table, read_model, write_model, write_table};
use gmm_host::{CpuEngine, FitOptions, Init, fit};
use gmm_model::{CovarianceType, Dataset, Matrix, Precision, SyntheticOptions, sample, synthetic};
use gmm_tests::{Folder, program, root};
use ndarray::{Array2, s};

/// Sizes of ten files, uneven, one with a single row.
const SIZES: [usize; 10] = [300, 1, 255, 256, 257, 900, 40, 513, 128, 90];
const D: usize = 3;
const K: usize = 3;

/// The rows of all files, the last column positive, for use as weights.
fn rows(precision: Precision) -> Matrix {
    let mixture = synthetic(K, D + 1, CovarianceType::Full, 5, &SyntheticOptions::default()).unwrap();
    let (mut rows, _) = sample(&mixture, SIZES.iter().sum(), 8).unwrap();
    rows.column_mut(D).mapv_inplace(|v| 0.5 + v.abs());
    // Away from 0, so that the shift matters.
    rows.slice_mut(s![.., ..D]).mapv_inplace(|v| v + 40.0);
    match precision {
        Precision::F32 => Matrix::from(rows.mapv(|v| v as f32)),
        Precision::F64 => Matrix::from(rows),
    }
}

/// Writes the rows to ten files, `part-0.npy` and so on, and returns them as one data set in parts.
fn files(folder: &Folder, precision: Precision, weighted: bool) -> Dataset {
    let rows = rows(precision);
    let mut starts = vec![0];
    for (i, n) in SIZES.iter().enumerate() {
        let first = starts[i];
        let matrix = rows.part(first..first + n);
        let matrix = if weighted { matrix } else { matrix.select_columns(&[0, 1, 2]) };
        write_table(folder.path(&format!("part-{i}.npy")), &Table::new(matrix)).unwrap();
        starts.push(first + n);
    }
    let data = Dataset::new(rows.select_columns(&[0, 1, 2])).unwrap().with_parts(starts[1..10].to_vec());
    let weights = (0..data.n_rows()).map(|i| rows.at(i, D)).collect();
    if weighted { data.with_weights(weights).unwrap() } else { data }
}

/// Fits ten files as a whole, and by a loop of the three commands over them; both from one start.
fn check(kind: CovarianceType, precision: Precision, asked: Option<Precision>, weighted: bool, threads: usize) {
    let what = format!("{kind} {precision} {asked:?} {weighted} {threads}");
    let folder = Folder::new();
    let data = files(&folder, precision, weighted);
    let engine = CpuEngine::new(threads).unwrap();
    let options = FitOptions { covariance_type: kind, precision: asked, max_iter: 0, ..FitOptions::new(K) };
    let start = fit(&engine, &data, &options).unwrap();
    let model = ModelFile { storage: Some(start.storage), fit: Some(start.summary), ..ModelFile::from(start.mixture) };
    write_model(folder.path("model.json"), &model).unwrap();
    let weights = if weighted { "--weights 3" } else { "" };
    let mut trace = Vec::new();
    for _ in 0..3 {
        let mut names = String::new();
        for i in 0..SIZES.len() {
            let given = format!("--device cpu --threads {threads} {weights} -o part-{i}.stats");
            folder.gmm(&format!("pass model.json part-{i}.npy {given}")).ok();
            names += &format!("part-{i}.stats ");
        }
        folder.gmm(&format!("add {names} -o all.stats")).ok();
        let step = folder.gmm("maximise all.stats --from model.json -o model.json --json").ok().json();
        trace.push(step["mean_log_likelihood"].as_f64().unwrap());
    }
    let found = read_model(folder.path("model.json")).unwrap();
    let whole = fit(&engine, &data, &FitOptions { max_iter: 3, tol: 0.0, ..options }).unwrap();
    assert_eq!(found.trace, whole.summary.trace, "{what}");
    assert_eq!(trace, whole.summary.trace, "{what}");
    assert_eq!(found.mixture, whole.mixture, "{what}");
    assert_eq!(found.storage, Some(whole.storage), "{what}");
}

#[test]
fn a_loop_over_ten_files_has_the_bits_of_one_fit() {
    for kind in CovarianceType::ALL {
        check(kind, Precision::F64, None, false, 2);
        check(kind, Precision::F32, None, true, 1);
    }
}

#[test]
fn the_precision_of_the_fit_is_that_of_the_passes() {
    check(CovarianceType::Full, Precision::F64, Some(Precision::F32), true, 2);
    check(CovarianceType::Diag, Precision::F32, Some(Precision::F64), false, 1);
}

#[test]
fn a_loop_that_starts_from_gmm_fit_converges_where_the_fit_does() {
    let folder = Folder::new();
    let data = files(&folder, Precision::F64, false);
    write_table(folder.path("all.npy"), &Table::new(data.rows().clone())).unwrap();
    folder.gmm("fit all.npy -k 3 --device cpu --threads 1 --max-iter 0 -o loop.json -q").ok();
    let mut iterations = 0;
    loop {
        folder.gmm("pass loop.json all.npy --device cpu --threads 1 -o all.stats").ok();
        let step = folder.gmm("maximise all.stats --from loop.json -o loop.json --json").ok().json();
        iterations += 1;
        assert_eq!(step["iterations"].as_u64(), Some(iterations));
        if step["converged"].as_bool().unwrap() {
            break;
        }
    }
    folder.gmm("fit all.npy -k 3 --device cpu --threads 1 -o fit.json").ok();
    let (of_loop, of_fit) =
        (read_model(folder.path("loop.json")).unwrap(), read_model(folder.path("fit.json")).unwrap());
    assert_eq!(of_loop.mixture, of_fit.mixture);
    assert_eq!(of_loop.trace, of_fit.fit.unwrap().trace);
}

/// Runs commands with the program on the path and the folder of the examples in `$E`.
fn bash(folder: &Folder, commands: &str) -> String {
    let place = program().parent().expect("the program lies in a folder").display();
    let examples = root().join("examples/cluster");
    let set = format!("set -eu; export PATH=\"{place}:$PATH\" E='{}'", examples.display());
    folder.bash(&format!("{set}\n{commands}")).ok().stdout
}

#[cfg(unix)]
#[test]
fn the_example_scripts_fit_ten_files_as_one_fit_does() {
    let folder = Folder::new();
    let data = files(&folder, Precision::F64, false);
    let (engine, options) = (CpuEngine::new(1).unwrap(), FitOptions { max_iter: 0, ..FitOptions::new(K) });
    let start = fit(&engine, &data, &options).unwrap();
    let model = ModelFile { storage: Some(start.storage), ..ModelFile::from(start.mixture) };
    write_model(folder.path("start.json"), &model).unwrap();
    let whole = fit(&engine, &data, &FitOptions { max_iter: 3, tol: 0.0, ..options }).unwrap();
    let loops = [
        "JOBS=3 MAX_ITER=3 TOL=0 $E/loop.sh start.json model.json part-?.npy",
        "cp start.json model.json; for i in 1 2 3; do make -s -j 3 -f $E/Makefile iteration; done",
    ];
    for commands in loops {
        let printed = bash(&folder, commands);
        let steps = printed.lines().filter(|line| line.contains("\"mean_log_likelihood\""));
        assert_eq!(steps.count(), 3, "{printed}");
        let found = read_model(folder.path("model.json")).unwrap();
        assert_eq!((found.trace, found.mixture), (whole.summary.trace.clone(), whole.mixture.clone()), "{commands}");
        std::fs::remove_file(folder.path("model.json")).unwrap();
    }
    assert!(folder.files().iter().all(|name| !name.ends_with("stats")));
}

#[test]
fn statistics_pass_through_pipes() {
    let folder = Folder::new();
    files(&folder, Precision::F64, false);
    folder.gmm("fit part-0.npy -k 2 --max-iter 0 -o m.json -q").ok();
    let pass = folder.command("pass m.json part-0.npy -o - --threads 1").output().unwrap();
    folder.gmm("pass m.json part-0.npy -o s.stats --threads 1").ok();
    assert_eq!(pass.stdout, folder.read("s.stats"));
    let sum = folder.command("add - -o -").write_stdin(pass.stdout).output().unwrap();
    let next = folder.command("maximise - --from m.json -o -").write_stdin(sum.stdout).output().unwrap();
    folder.gmm("maximise s.stats --from m.json -o next.json").ok();
    assert_eq!(next.stdout, folder.read("next.json"));
}

#[test]
fn a_model_without_a_fit_is_passed_over_about_its_means() {
    let folder = Folder::new();
    let data = files(&folder, Precision::F64, false);
    let mixture = synthetic(K, D, CovarianceType::Full, 5, &SyntheticOptions::default()).unwrap();
    write_model(folder.path("m.json"), &mixture.clone().into()).unwrap();
    folder.gmm("pass m.json part-0.npy -o s.stats --threads 1").ok();
    folder.gmm("maximise s.stats --from m.json -o m.json").ok();
    let init = Init::Given(Box::new(mixture));
    let options = FitOptions { init, max_iter: 1, ..FitOptions::new(K) };
    let whole = fit(&CpuEngine::new(1).unwrap(), &data.part(0..SIZES[0]), &options).unwrap().mixture;
    let found = read_model(folder.path("m.json")).unwrap().mixture;
    // The shift differs, so only rounding does.
    let difference: Array2<f64> = &found.means() - &whole.means();
    assert!(difference.iter().all(|v| v.abs() < 1e-9), "{difference}");
}

#[test]
fn errors_of_statistics_name_the_file() {
    let folder = Folder::new();
    files(&folder, Precision::F64, false);
    folder.gmm("fit part-0.npy -k 2 --max-iter 0 -o a.json -q").ok();
    folder.gmm("fit part-3.npy -k 2 --max-iter 0 -o b.json -q").ok();
    folder.gmm("fit part-0.npy -k 3 --covariance diag --max-iter 0 -o c.json -q").ok();
    for name in ["a", "b", "c"] {
        folder.gmm(&format!("pass {name}.json part-0.npy -o {name}.stats")).ok();
    }
    folder.gmm("add a.stats b.stats -o x").failed(3, &["b.stats cannot be added to a.stats", "different centres"]);
    let shape = ["c.stats cannot be added to a.stats", "full k=2 d=3 and diag k=3 d=3"];
    folder.gmm("add a.stats c.stats -o x").failed(3, &shape);
    folder.gmm("maximise b.stats --from a.json -o x.json").failed(3, &["b.stats with --from a.json", "centres"]);
    folder.gmm("maximise a.stats --from a.json --reg-covar 1 -o d.json -q").ok();
    let mut same_means = folder.json("d.json");
    same_means["means"] = folder.json("a.json")["means"].clone();
    folder.write("d.json", same_means.to_string());
    folder
        .gmm("maximise a.stats --from d.json -o x.json")
        .failed(3, &["a.stats with --from d.json", "different mixtures"]);
    let bytes = folder.read("a.stats");
    folder.write("short.stats", &bytes[..bytes.len() - 9]);
    folder.gmm("add a.stats short.stats -o x").failed(3, &["short.stats", "truncated or corrupt"]);
    let mut damaged = bytes.clone();
    damaged[60] ^= 1;
    folder.write("damaged.stats", &damaged);
    folder.gmm("maximise damaged.stats --from a.json -o x.json").failed(3, &["damaged.stats", "checksum differs"]);
    folder.gmm("add part-0.npy -o x").failed(3, &["part-0.npy", "not statistics"]);
    folder.write("empty", "");
    folder.gmm("add empty -o x").failed(3, &["the file is empty"]);
    folder.gmm("add none.stats -o x").failed(6, &["none.stats"]);
    folder.gmm("add a.stats -o a.stats").failed(2, &["a.stats", "overwritten"]);
    folder.gmm("maximise a.stats --from a.json -o x.json --reg-covar -1").failed(2, &["--reg-covar is -1"]);
    folder.gmm("pass a.json part-0.npy -o nowhere/x").failed(6, &["there is no folder 'nowhere'"]);
    assert!(!folder.files().iter().any(|name| name.starts_with('x')));
}

#[test]
fn a_storage_of_another_width_is_an_error_of_the_model() {
    let folder = Folder::new();
    files(&folder, Precision::F64, false);
    folder.gmm("fit part-0.npy -k 2 --max-iter 0 -o a.json -q").ok();
    let mut model = folder.json("a.json");
    model["storage"]["shift"].as_array_mut().unwrap().pop();
    folder.write("a.json", model.to_string());
    folder.gmm("pass a.json part-0.npy -o x").failed(3, &["a.json", "'storage'", "3 finite numbers"]);
}
