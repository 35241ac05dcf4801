//! `gmm matmul`: products of matrices in files.

use gmm_data::{ReadOptions, read_table};
use gmm_model::Matrix;
use gmm_tests::{Folder, f4, f8, npy};
use ndarray::{Array2, array};

/// `a.npy`, 2 × 3 in f64, and `b.csv`, 3 × 2 with names.
fn folder() -> Folder {
    let folder = Folder::with("b.csv", "u,v\n1,0\n0,1\n2,-1\n");
    folder.write("a.npy", npy("<f8", false, "(2, 3)", &f8(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])));
    folder
}

/// The matrix in `c.npy`.
fn written(folder: &Folder) -> Matrix {
    read_table(folder.path("c.npy"), &ReadOptions::default()).unwrap().matrix
}

#[test]
fn a_product_is_that_of_its_factors_and_has_the_names_of_the_right_one() {
    let folder = folder();
    let text = folder.gmm("matmul a.npy b.csv").ok().stdout;
    assert_eq!(text, "u,v\n7.0,-1.0\n16.0,-1.0\n");
    folder.gmm("matmul a.npy b.csv -o c.npy").ok();
    assert_eq!(written(&folder), array![[7.0, -1.0], [16.0, -1.0]].into());
    for format in ["parquet", "arrow"] {
        folder.gmm(&format!("matmul a.npy b.csv -o c.{format}")).ok();
        folder.write("one.csv", "1,0\n0,1\n");
        assert_eq!(folder.gmm(&format!("matmul c.{format} one.csv")).ok().stdout, "7.0,-1.0\n16.0,-1.0\n");
    }
}

#[test]
fn the_transpose_gives_inner_products_of_rows() {
    let folder = folder();
    folder.write("q.csv", "1,0,0\n1,1,1\n");
    assert_eq!(folder.gmm("matmul a.npy q.csv --transpose-b").ok().stdout, "1.0,6.0\n4.0,15.0\n");
    assert_eq!(folder.piped("matmul a.npy - --transpose-b", "1,0,0\n1,1,1\n").ok().stdout, "1.0,6.0\n4.0,15.0\n");
}

#[test]
fn f32_factors_give_an_f32_product_whose_sums_are_f64() {
    let folder = Folder::new();
    // A sum in f32 would lose the ones beside 2²⁴.
    let row: Vec<f32> = [16_777_216.0].into_iter().chain([1.0; 1000]).chain([-16_777_216.0]).collect();
    folder.write("a.npy", npy("<f4", false, "(1, 1002)", &f4(&row)));
    folder.write("one.npy", npy("<f4", false, "(1, 1002)", &f4(&[1.0; 1002])));
    folder.gmm("matmul a.npy one.npy --transpose-b -o c.npy").ok();
    assert_eq!(written(&folder), array![[1000.0f32]].into());
    folder.gmm("matmul a.npy one.npy --transpose-b --precision f64 -o c.npy").ok();
    assert_eq!(written(&folder), array![[1000.0]].into());
    assert_eq!(folder.gmm("matmul a.npy one.npy --transpose-b --device reference").ok().stdout, "1000.0\n");
}

#[test]
fn products_are_the_same_for_any_number_of_threads() {
    let folder = Folder::new();
    folder.gmm("generate -n 700 -k 2 -d 90 --seed 1 -o a.npy").ok();
    for (threads, fast) in [(1, ""), (3, ""), (1, "--fast"), (3, "--fast")] {
        folder.gmm(&format!("matmul a.npy a.npy --transpose-b --threads {threads} {fast} -o c{threads}.npy")).ok();
        if threads == 3 {
            assert_eq!(folder.read("c1.npy"), folder.read("c3.npy"));
        }
    }
}

#[test]
fn a_fast_product_says_by_how_much_it_may_be_off() {
    let folder = folder();
    folder.write("f.npy", npy("<f4", false, "(1, 2)", &f4(&[1.0, 2.0])));
    let said = |command: &str| folder.gmm(&format!("matmul {command} --device cpu")).ok().stderr;
    let fast = said("f.npy f.npy --transpose-b --fast");
    assert!(fast.starts_with("fast: ") && fast.contains("2^-16") && fast.lines().count() == 1, "{fast}");
    assert!(said("a.npy a.npy --transpose-b --fast --precision f64").contains("no effect on the accuracy"));
    assert_eq!(said("f.npy f.npy --transpose-b --fast -q"), "");
    assert_eq!(said("f.npy f.npy --transpose-b"), "");
}

#[test]
fn factors_that_do_not_fit_are_named_with_what_may_help() {
    let folder = folder();
    // b is 3 × 2 and a is 2 × 3: the product b a exists, a a does not.
    folder.gmm("matmul b.csv a.npy").ok();
    folder.refuses("matmul a.npy a.npy -o c.npy", 3, &["a.npy has 3 columns, but a.npy has 2 rows", "--transpose-b"]);
    folder.refuses("matmul a.npy b.csv --transpose-b -o c.npy", 3, &["b.csv has 2 columns: omit --transpose-b"]);
    folder.write("long.csv", "1\n2\n3\n4\n");
    let run = folder.gmm("matmul a.npy long.csv -o c.npy");
    assert!(!run.stderr.contains("transpose"), "{}", run.stderr);
    run.failed(3, &["a.npy has 3 columns, but long.csv has 4 rows"]);
}

#[test]
fn what_cannot_be_read_or_written_is_refused_and_leaves_nothing() {
    let folder = folder();
    folder.refuses("matmul a.npy missing.npy -o c.npy", 6, &["missing.npy"]);
    folder.refuses("matmul - - -o c.npy", 2, &["standard input"]);
    folder.refuses("matmul a.npy b.csv -o c.npz", 2, &["c.npz", "csv, tsv, npy"]);
    folder.refuses("matmul a.npy b.csv -o nowhere/c.npy", 6, &["there is no folder 'nowhere'"]);
    folder.refuses("matmul a.npy b.csv -o ./a.npy", 2, &["would be overwritten"]);
    folder.refuses("matmul a.npy b.csv --device tpu -o c.npy", 2, &["tpu", "cuda"]);
    folder.write("text.csv", "1,2\n3,x\n");
    folder.refuses("matmul text.csv b.csv -o c.npy", 3, &["text.csv: line 2, column 1", "'x' is not a number"]);
    folder.write("flat.npy", npy("<f8", false, "(3,)", &f8(&[1.0, 2.0, 3.0])));
    folder.refuses("matmul a.npy flat.npy -o c.npy", 3, &["flat.npy", "one-dimensional", "reshape"]);
}

#[test]
fn numbers_that_are_none_go_through_and_are_counted() {
    let folder = folder();
    folder.write("odd.csv", "1,0\nnan,0\n0,inf\n");
    let run = folder.gmm("matmul a.npy odd.csv").ok();
    assert_eq!(run.stdout, "NaN,inf\nNaN,inf\n");
    assert!(run.stderr.contains("4 of 4 entries of the product are NaN or infinite"), "{}", run.stderr);
    // A value beyond f32's range is reported, although it is finite in the file.
    folder.write("large.csv", "1,0\n0,1e300\n0,1\n");
    folder.refuses("matmul a.npy large.csv --precision f32", 3, &["large.csv: row 1, column 1", "--precision f64"]);
}

#[test]
fn sides_of_zero_are_sizes_like_others() {
    let folder = Folder::new();
    folder.write("none.npy", npy("<f8", false, "(2, 0)", &[]));
    folder.gmm("matmul none.npy none.npy --transpose-b -o c.npy").ok();
    assert_eq!(written(&folder), Array2::<f64>::zeros((2, 2)).into());
    folder.write("short.npy", npy("<f4", false, "(0, 2)", &[]));
    folder.gmm("matmul short.npy none.npy -o c.npy").ok();
    assert_eq!(written(&folder), Array2::<f64>::zeros((0, 0)).into());
}

#[test]
fn a_product_that_no_memory_holds_is_refused_before_anything_is_computed() {
    let folder = Folder::new();
    folder.gmm("generate -n 4e6 -k 1 -d 1 -o a.npy").ok();
    folder.refuses("matmul a.npy a.npy --transpose-b -o c.npy", 5, &["a.npy", "bytes of memory", "free"]);
}
