//! Resident matrices: products and searches, against naive sums.

use ndarray::Array2;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Running, model, output, serve_with};
use gmm_serve::ServeOptions;

const SIDE: usize = 7;

/// A symmetric positive definite matrix of small whole numbers, so that all sums are exact.
fn matrix() -> Array2<f64> {
    Array2::from_shape_fn((SIDE, SIDE), |(i, j)| if i == j { 16.0 } else { ((i * j) % 3) as f64 })
}

fn questions() -> Array2<f64> {
    Array2::from_shape_fn((3, SIDE), |(i, j)| ((5 * i + 3 * j) % 8) as f64 - 3.0)
}

fn with_matrix(options: &mut ServeOptions, folder: &TempDir) {
    let path = folder.path().join("pages.npy");
    gmm_data::write_table(&path, &gmm_data::Table::new(matrix())).unwrap();
    options.matrices.push(format!("pages={}", path.display()).parse().unwrap());
}

fn ask(server: &Running, outputs: &[&str], parameters: Value) -> Value {
    let outputs: Vec<Value> = outputs.iter().map(|name| json!({"name": name})).collect();
    let data: Vec<f64> = questions().into_iter().collect();
    let input = json!({"name": "questions", "shape": [3, SIDE], "datatype": "FP64", "data": data});
    let body = json!({"inputs": [input], "outputs": outputs, "parameters": parameters});
    server.post("/v2/models/pages/infer", &body.to_string()).ok()
}

#[test]
fn products_are_those_of_naive_sums() {
    let server = serve_with(&model(), with_matrix);
    let answer = ask(&server, &["inner", "quadratic_form"], json!({}));
    let inner = questions().dot(&matrix().t());
    assert_eq!(output(&answer, "inner"), inner.iter().copied().collect::<Vec<_>>());
    let forms: Vec<f64> = (0..3).map(|i| questions().row(i).dot(&inner.row(i))).collect();
    assert_eq!(output(&answer, "quadratic_form"), forms);
    let meta = server.get("/v2/models/pages").ok();
    assert_eq!(meta["inputs"], json!([{"name": "questions", "datatype": "FP64", "shape": [-1, SIDE]}]));
}

#[test]
fn distances_solve_the_matrix() {
    let server = serve_with(&model(), with_matrix);
    let found = output(&ask(&server, &["mahalanobis"], json!({})), "mahalanobis");
    for (i, found) in found.into_iter().enumerate() {
        let x = questions().row(i).to_owned();
        let expected = x.dot(&solved(matrix(), x.to_vec()));
        assert!((found - expected).abs() <= 1e-13 * expected, "{found} is not {expected}");
    }
}

/// `A⁻¹ x` by Gauss's elimination.
fn solved(mut a: Array2<f64>, mut x: Vec<f64>) -> ndarray::Array1<f64> {
    let n = x.len();
    for p in 0..n {
        for row in p + 1..n {
            let factor = a[[row, p]] / a[[p, p]];
            (p..n).for_each(|j| a[[row, j]] -= factor * a[[p, j]]);
            x[row] -= factor * x[p];
        }
    }
    for row in (0..n).rev() {
        x[row] = (x[row] - (row + 1..n).map(|j| a[[row, j]] * x[j]).sum::<f64>()) / a[[row, row]];
    }
    x.into()
}

#[test]
fn a_search_finds_the_best_rows_in_order() {
    let server = serve_with(&model(), with_matrix);
    let answer = ask(&server, &[], json!({"count": 4}));
    let inner = questions().dot(&matrix().t());
    let mut expected = Vec::new();
    for i in 0..3 {
        let mut order: Vec<usize> = (0..SIDE).collect();
        order.sort_by(|&a, &b| inner[[i, b]].total_cmp(&inner[[i, a]]).then(a.cmp(&b)));
        expected.extend(order.into_iter().take(4).map(|j| (j as f64, inner[[i, j]])));
    }
    let found: Vec<(f64, f64)> = output(&answer, "indices").into_iter().zip(output(&answer, "values")).collect();
    assert_eq!(found, expected);
    let row: Vec<f64> = questions().row(0).to_vec();
    let plain = server.post("/search", &json!({"row": row, "count": 2}).to_string()).ok();
    let first = json!([{"row": expected[0].0 as u64, "value": expected[0].1},
                       {"row": expected[1].0 as u64, "value": expected[1].1}]);
    assert_eq!(plain["rows"][0], first);
}

#[test]
fn what_does_not_fit_the_matrix_is_refused() {
    let server = serve_with(&model(), with_matrix);
    let search = |body: Value| server.post("/search", &body.to_string());
    search(json!({"row": [1, 2]})).refused(400, &["row 0 has 2 values, and the matrix 7 columns"]);
    search(json!({"row": vec![0; SIDE], "count": 8})).refused(400, &["count", "at most 7"]);
    search(json!({"matrix": "two", "row": vec![0; SIDE]})).refused(400, &["'two' is a model: see /score"]);
    server.post("/score", r#"{"model": "pages", "row": [1]}"#).refused(400, &["'pages' is a matrix: see /search"]);
    server.get("/models/pages").refused(404, &["'pages' is a matrix"]);
    let body = json!({"inputs": [{"name": "questions", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}]});
    server.post("/v2/models/pages/infer", &body.to_string()).refused(400, &["shape [1, 2]", "[n, 7]"]);
}

#[test]
fn an_indefinite_matrix_has_no_distances_but_products() {
    let server = serve_with(&model(), |options, folder| {
        let path = folder.path().join("odd.csv");
        std::fs::write(&path, "1,2\n2,1\n").unwrap();
        options.matrices.push(format!("odd={}", path.display()).parse().unwrap());
    });
    let body = |name: &str| {
        let input = json!({"name": "questions", "shape": [1, 2], "datatype": "FP64", "data": [1, 3]});
        json!({"inputs": [input], "outputs": [{"name": name}]}).to_string()
    };
    assert_eq!(output(&server.post("/v2/models/odd/infer", &body("quadratic_form")).ok(), "quadratic_form"), [22.0]);
    server.post("/v2/models/odd/infer", &body("mahalanobis")).refused(400, &["positive definite"]);
}

/// Serves seven columns of rows as `rows`, in both precisions, beside `pages`.
fn with_rows(options: &mut ServeOptions, folder: &TempDir) {
    with_matrix(options, folder);
    let rows = Array2::from_shape_fn((40, SIDE), |(i, j)| ((7 * i + 5 * j) % 11) as f64 - 5.0);
    for (name, table) in [("rows", gmm_data::Table::new(rows.clone())), ("singles", single(&rows))] {
        let path = folder.path().join(format!("{name}.npy"));
        gmm_data::write_table(&path, &table).unwrap();
        options.matrices.push(format!("{name}={}", path.display()).parse().unwrap());
    }
}

fn single(rows: &Array2<f64>) -> gmm_data::Table {
    gmm_data::Table::new(rows.mapv(|v| v as f32))
}

#[test]
fn forms_and_distances_of_the_rows_that_are_served() {
    let server = serve_with(&model(), with_rows);
    let rows = Array2::from_shape_fn((40, SIDE), |(i, j)| ((7 * i + 5 * j) % 11) as f64 - 5.0);
    let forms: Vec<f64> = rows.outer_iter().map(|x| x.dot(&matrix().dot(&x))).collect();
    let distances: Vec<f64> = rows.outer_iter().map(|x| x.dot(&solved(matrix(), x.to_vec()))).collect();
    let outputs = json!([{"name": "quadratic_form"}, {"name": "mahalanobis"}]);
    let data: Vec<f64> = matrix().into_iter().collect();
    let sent = json!([{"name": "matrix", "shape": [SIDE, SIDE], "datatype": "FP64", "data": data}]);
    for name in ["rows", "singles"] {
        let path = format!("/v2/models/{name}/infer");
        let ask = |body: Value| server.post(&path, &body.to_string());
        for body in [
            json!({"inputs": sent, "outputs": outputs}),
            json!({"inputs": [], "outputs": outputs, "parameters": {"matrix": "pages"}}),
            json!({"inputs": [], "outputs": outputs, "parameters": {"matrix": "pages:1"}}),
        ] {
            let answer = ask(body).ok();
            assert_eq!(output(&answer, "quadratic_form"), forms);
            for (found, expected) in output(&answer, "mahalanobis").into_iter().zip(&distances) {
                assert!((found - expected).abs() <= 1e-13 * expected, "{found} is not {expected}");
            }
        }
        let one = |name: &str| json!([{"name": name}]);
        ask(json!({"inputs": sent, "outputs": one("inner")})).refused(400, &["'inner'", "'questions'"]);
        ask(json!({"inputs": sent, "outputs": one("none")})).refused(400, &["no output 'none'"]);
        ask(json!({"inputs": sent, "parameters": {"matrix": "pages"}})).refused(400, &["replaces the inputs"]);
        let named = |name: &str| json!({"inputs": [], "outputs": outputs, "parameters": {"matrix": name}});
        ask(named("two")).refused(400, &["'two' is a model"]);
        ask(named("rows")).refused(400, &["'rows' is 40 × 7", "must be 7 × 7"]);
        ask(named("pages:9")).refused(404, &["version '9'"]);
        ask(named("nobody")).refused(404, &["no model 'nobody'"]);
        let small = json!([{"name": "matrix", "shape": [2, 2], "datatype": "FP64", "data": [1, 0, 0, 1]}]);
        ask(json!({"inputs": small})).refused(400, &["shape [2, 2]", "[7, 7]"]);
    }
}
