//! Written tables are read back bit for bit.

use crate::common;
use gmm_data::{
    Format, ModelFile, ReadOptions, Table, model_to_json, model_to_safetensors, read_model_bytes, read_stream,
    read_table, write_csv, write_table,
};
use gmm_model::{Covariances, Matrix, Mixture};
use ndarray::{Array1, Array2};
use proptest::prelude::*;

/// Any number except NaN, whose bits text does not preserve.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>().prop_filter("a number", |v| !v.is_nan()), -1e3..1e3f64, Just(-0.0), Just(5e-324)]
}

fn matrix() -> impl Strategy<Value = Matrix> {
    (1..20usize, 1..8usize, any::<bool>()).prop_flat_map(|(n, d, single)| {
        prop::collection::vec(number(), n * d).prop_map(move |values| {
            let rows = Array2::from_shape_vec((n, d), values).unwrap();
            if single { Matrix::from(rows.mapv(|v| v as f32)) } else { Matrix::from(rows) }
        })
    })
}

fn table() -> impl Strategy<Value = Table> {
    (matrix(), any::<bool>(), "[^\r\n]{0,6}").prop_map(|(matrix, named, stem)| {
        let d = matrix.dim().1;
        let names = named.then(|| (0..d).map(|i| format!("{stem}{i}{stem}")).collect());
        Table { names, ..Table::new(matrix) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn csv(table in table()) {
        let mut out = Vec::new();
        write_csv(&mut out, &table).unwrap();
        let options = ReadOptions { format: Some(Format::Csv), ..ReadOptions::default() };
        let again = read_stream(&out[..], "csv", &options).unwrap();
        // Text is read as f64; rounding that to f32 gives back the f32 that was written.
        let again_bits = match &table.matrix {
            Matrix::F32(_) => common::bits(&Matrix::from(again.matrix.to_f64().mapv(|v| v as f32))),
            Matrix::F64(_) => common::bits(&again.matrix),
        };
        prop_assert_eq!(again_bits, common::bits(&table.matrix));
        prop_assert_eq!(again.names, table.names);
    }

    #[test]
    fn npy_parquet_and_arrow(table in table()) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.npy", "a.parquet", "a.arrow"] {
            let path = folder.path().join(name);
            write_table(&path, &table).unwrap();
            let again = read_table(&path, &ReadOptions::default()).unwrap();
            prop_assert_eq!(common::bits(&again.matrix), common::bits(&table.matrix));
            prop_assert_eq!(again.matrix.precision(), table.matrix.precision());
            if name != "a.npy" && table.names.is_some() {
                prop_assert_eq!(&again.names, &table.names);
            }
        }
    }

    #[test]
    fn models(
        (k, d) in (1..6usize, 1..6usize),
        values in prop::collection::vec(number().prop_filter("finite", |v| v.is_finite()), 36),
        kind in 0..4,
    ) {
        let weights = Array1::from_elem(k, 1.0 / k as f64);
        let means = Array2::from_shape_fn((k, d), |(c, j)| values[c * 6 + j]);
        let variance = |c: usize, j: usize| values[c * 6 + j].abs().clamp(1e-300, 1e150);
        let square = |c| Array2::from_shape_fn((d, d), |(i, j)| if i == j { variance(c, i) } else { 0.0 });
        let covariances = match kind {
            0 => Covariances::Full(ndarray::Array3::from_shape_fn((k, d, d), |(c, i, j)| square(c)[[i, j]])),
            1 => Covariances::Tied(square(0)),
            2 => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| variance(c, j))),
            _ => Covariances::Spherical(Array1::from_shape_fn(k, |c| variance(c, 0))),
        };
        let model = ModelFile::from(Mixture::new(weights, means, covariances).unwrap());
        for bytes in [model_to_json(&model).unwrap().into_bytes(), model_to_safetensors(&model).unwrap()] {
            let again = read_model_bytes(&bytes, "model").unwrap();
            prop_assert_eq!(&again, &model);
            let bits = |m: &ModelFile| m.mixture.means().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&again), bits(&model));
        }
    }
}
