//! Draws of mixtures: round trips, and rejection of files that are not draws.

use gmm_data::{DrawsFile, Table, read_mixtures, read_npz_array, read_table, write_draws, write_table};
use gmm_model::{CovarianceType, Covariances, DrawStat, ParameterDraws};
use ndarray::Array2;

/// Two chains of three draws of `k` components in `d` dimensions; all numbers differ.
fn draws(kind: CovarianceType, k: usize, d: usize) -> DrawsFile {
    let (chains, draws) = (2, 3);
    let total = chains * draws;
    let number = |i: usize| (i as f64 * 0.7).sin();
    let weights = (0..total).flat_map(|i| {
        let raw: Vec<f64> = (0..k).map(|c| 1.5 + number(i * k + c)).collect();
        let sum: f64 = raw.iter().sum();
        raw.into_iter().map(move |w| w / sum)
    });
    let matrix = |i: usize| (0..d * d).map(move |at| if at % (d + 1) == 0 { 3.0 + number(i) } else { 0.25 });
    let variance = |i: usize| 2.0 + number(i);
    let covariances = match kind {
        CovarianceType::Full => (0..total * k).flat_map(matrix).collect(),
        CovarianceType::Tied => (0..total).flat_map(matrix).collect(),
        CovarianceType::Diag => (0..total * k * d).map(variance).collect(),
        CovarianceType::Spherical => (0..total * k).map(variance).collect(),
    };
    let stats = vec![
        ("lp".to_owned(), DrawStat::Values((0..total).map(number).collect())),
        ("n_steps".to_owned(), DrawStat::Counts((0..total as i64).collect())),
        ("diverging".to_owned(), DrawStat::Flags((0..total).map(|i| i == 4).collect())),
    ];
    let means = (0..total * k * d).map(|i| 10.0 * number(i + 1000)).collect();
    let parameters = ParameterDraws { kind, chains, draws, k, d, weights: weights.collect(), means, covariances };
    DrawsFile { parameters, stats }
}

#[test]
fn every_kind_comes_back_from_every_format_chain_after_chain() {
    let folder = tempfile::tempdir().unwrap();
    for kind in CovarianceType::ALL {
        for (k, d) in [(1, 1), (2, 2), (3, 2)] {
            let draws = draws(kind, k, d);
            for name in ["a.npz", "a.parquet", "a.arrow"] {
                let path = folder.path().join(name);
                write_draws(&path, &draws).unwrap();
                // An npz of draws states the covariance type.
                let asked = (name != "a.npz").then_some(kind);
                let mixtures = read_mixtures(&path, asked).unwrap();
                assert_eq!(mixtures.len(), 6);
                for (i, mixture) in mixtures.iter().enumerate() {
                    assert_eq!(mixture.covariance_type(), kind, "{name}");
                    assert_eq!(mixture.weights().to_vec(), draws.parameters.weights[i * k..][..k]);
                    assert_eq!(
                        mixture.means().iter().copied().collect::<Vec<_>>(),
                        draws.parameters.means[i * k * d..][..k * d]
                    );
                    let found: Vec<f64> = match mixture.covariances() {
                        Covariances::Full(a) => a.iter().copied().collect(),
                        Covariances::Tied(a) | Covariances::Diag(a) => a.iter().copied().collect(),
                        Covariances::Spherical(a) => a.to_vec(),
                    };
                    assert_eq!(found, draws.parameters.covariances[i * found.len()..][..found.len()], "{kind} {name}");
                }
            }
        }
    }
}

#[test]
fn arrays_have_chain_and_draw_in_front_and_columns_a_row_for_each_draw() {
    let folder = tempfile::tempdir().unwrap();
    let draws = draws(CovarianceType::Full, 3, 2);
    let path = folder.path().join("a.npz");
    write_draws(&path, &draws).unwrap();
    let shape = |name: &str| read_npz_array(&path, name).unwrap().shape().to_vec();
    assert_eq!(shape("weights"), [2, 3, 3]);
    assert_eq!(shape("means"), [2, 3, 3, 2]);
    assert_eq!(shape("covariances"), [2, 3, 3, 2, 2]);
    assert_eq!(read_npz_array(&path, "diverging").unwrap().to_f64()[[1, 1]], 1.0);
    assert_eq!(read_npz_array(&path, "n_steps").unwrap().to_f64()[[1, 2]], 5.0);
    let path = folder.path().join("a.parquet");
    write_draws(&path, &draws).unwrap();
    let table = read_table(&path, &gmm_data::ReadOptions::default()).unwrap();
    let names = table.names.clone().unwrap();
    assert_eq!(names[..6], ["chain", "draw", "weights[0]", "weights[1]", "weights[2]", "means[0,0]"]);
    assert_eq!(names[11..13], ["covariances[0,0,0]", "covariances[0,0,1]"]);
    assert_eq!(names[names.len() - 3..], ["lp", "n_steps", "diverging"]);
    assert_eq!(table.matrix.dim(), (6, 2 + 3 + 6 + 12 + 3));
    assert_eq!((table.matrix.at(4, 0), table.matrix.at(4, 1), table.matrix.at(4, 25)), (1.0, 1.0, 1.0));
}

#[test]
fn columns_that_are_no_draws_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let refused = |names: &[&str], parts: &[&str]| {
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        let table = Table::with_names(Array2::from_elem((2, names.len()), 1.0), names).unwrap();
        write_table(&path, &table).unwrap();
        let error = read_mixtures(&path, None).unwrap_err().to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "'{part}' is not in: {error}"));
    };
    refused(&["x", "y"], &["a.parquet", "weights[..]", "not draws"]);
    refused(&["weights[0]", "means[0,0]"], &["covariances[..]"]);
    refused(&["weights[0]", "weights[2]", "means[0,0]", "covariances[0]"], &["'weights'", "2 columns", "[3]"]);
    refused(&["weights[0]", "means[0,0]", "means[0]", "covariances[0]"], &["'means'"]);
    // The number of columns is right, but one occurs twice.
    let twice = ["weights[0]", "weights[1]", "means[0,0]", "means[0,00]", "means[1,1]", "means[1,0]", "covariances[0]"];
    refused(&twice, &["'means'", "two columns", "[0, 0]"]);
    refused(&["weights[0]", "means[0,0]", "covariances[0,0,0,0]"], &["'covariances'"]);
    refused(&["weights[0]", "means[0,0]", "covariances[99999999999999999999]"], &["covariances"]);
    refused(&["weights[0]", "means[18446744073709551615,0]", "covariances[0]"], &["'means'"]);
}

#[test]
fn a_format_without_room_for_draws_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = write_draws(folder.path().join("a.csv"), &draws(CovarianceType::Diag, 1, 1)).unwrap_err().to_string();
    assert!(error.contains("'csv'") && error.contains("npz, parquet"), "{error}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}
