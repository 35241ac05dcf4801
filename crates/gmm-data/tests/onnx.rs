//! ONNX files: their structure, and what is refused. `crates/gmm-python/tests/test_onnx.py` runs them in onnxruntime.

use crate::common::message;
use gmm_data::{ModelFile, ONNX_OPSET, model_to_onnx, write_onnx};
use gmm_model::bayes::{BayesPrior, WeightPrior};
use gmm_model::{
    CovarianceType, Covariances, Mixture, Precision, PriorScale, SyntheticOptions, inverse_transposed, reference,
    synthetic,
};
use ndarray::{Array2, Array3, array};
use prost::Message;

/// The parts of `onnx.proto` that these tests read, declared apart from the writer's.
#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(message, optional, tag = "7")]
    graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    opsets: Vec<Opset>,
}

#[derive(Clone, PartialEq, Message)]
struct Opset {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(int64, tag = "2")]
    version: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Graph {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    constants: Vec<Tensor>,
}

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(string, repeated, tag = "1")]
    inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    outputs: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw: Vec<u8>,
}

fn model(covariances: Covariances) -> ModelFile {
    let means = array![[1e4 + 0.1, -2.0], [1e4 - 0.3, 1.0 / 3.0]];
    ModelFile::from(Mixture::new(array![1.0, 0.0], means, covariances).unwrap())
}

fn kinds() -> [ModelFile; 4] {
    let matrix = array![[2.0, 0.5], [0.5, 1.0]];
    let full = Array3::from_shape_fn((2, 2, 2), |(_, i, j)| matrix[[i, j]]);
    [
        Covariances::Full(full),
        Covariances::Tied(matrix),
        Covariances::Diag(array![[1.0, 2.0], [3.0, 4.0]]),
        Covariances::Spherical(array![1.0, 0.5]),
    ]
    .map(model)
}

fn graph(model: &ModelFile, precision: Precision) -> Graph {
    let read = Model::decode(model_to_onnx(model, precision).unwrap().as_slice()).unwrap();
    assert_eq!(read.opsets, [Opset { domain: String::new(), version: ONNX_OPSET }]);
    read.graph.unwrap()
}

/// The shape and the values of a constant of the given type, 1 for float or 11 for double.
fn constant(graph: &Graph, name: &str, data_type: i32) -> (Vec<i64>, Vec<f64>) {
    let tensor = graph.constants.iter().find(|tensor| tensor.name == name).expect(name);
    assert_eq!(tensor.data_type, data_type, "{name}");
    let values = match data_type {
        1 => tensor.raw.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        _ => tensor.raw.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
    };
    (tensor.dims.clone(), values)
}

fn check_refused(model: &ModelFile, precision: Precision, pieces: &[&str]) {
    let text = message(model_to_onnx(model, precision).unwrap_err());
    pieces.iter().for_each(|piece| assert!(text.contains(piece), "'{piece}' is not in: {text}"));
}

#[test]
fn every_value_is_computed_before_it_is_used() {
    for model in kinds() {
        for precision in [Precision::F32, Precision::F64] {
            let graph = graph(&model, precision);
            let mut known: Vec<String> = graph.constants.iter().map(|constant| constant.name.clone()).collect();
            known.push("X".to_owned());
            for node in graph.nodes {
                node.inputs.iter().for_each(|input| assert!(known.contains(input), "{input}"));
                node.outputs.iter().for_each(|output| assert!(!known.contains(output), "{output} twice"));
                known.extend(node.outputs);
            }
            for name in ["label", "responsibilities", "log_density"] {
                assert!(known.iter().any(|known| known == name), "{name}");
            }
        }
    }
}

#[test]
fn constants_are_those_of_the_mixture() {
    for model in kinds() {
        let (mixture, graph) = (&model.mixture, graph(&model, Precision::F64));
        let (shape, constants) = constant(&graph, "constants", 11);
        let (_, largest) = constant(&graph, "largest_constant", 11);
        assert_eq!((shape, constants[0] + largest[0]), (vec![2], mixture.log_normalizer(0)));
        assert_eq!(constants[1], f64::NEG_INFINITY, "a weight of 0");
    }
}

/// The factors of precisions in a graph, which stand side by side and transposed for one product of all components.
#[test]
fn factors_invert_the_cholesky_factors() {
    for (model, count) in kinds().iter().zip([2, 1]) {
        let (shape, values) = constant(&graph(model, Precision::F64), "precision_factors", 11);
        assert_eq!(shape, [2, 2 * count]);
        let all = Array2::from_shape_vec((2, 2 * count as usize), values).unwrap();
        let inverse = all.slice(ndarray::s![.., ..2]).t().to_owned();
        let product = inverse.dot(&model.mixture.factors().dense(0, 2));
        assert!((product - Array2::<f64>::eye(2)).iter().all(|v| v.abs() < 4.0 * f64::EPSILON));
        assert_eq!(inverse, inverse_transposed(model.mixture.factors().dense(0, 2).view()).t());
    }
}

/// Two components of variance 1 at this distance.
fn apart(distance: f64, kind: CovarianceType) -> ModelFile {
    let identity = Array2::<f64>::eye(2);
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((2, 2, 2), |(_, i, j)| identity[[i, j]])),
        CovarianceType::Tied => Covariances::Tied(identity),
        CovarianceType::Diag => Covariances::Diag(Array2::ones((2, 2))),
        CovarianceType::Spherical => Covariances::Spherical(array![1.0, 1.0]),
    };
    let means = array![[1e4, 0.0], [1e4 + distance, 1.0 / 3.0]];
    Mixture::new(array![0.5, 0.5], means, covariances).unwrap().into()
}

#[test]
fn components_far_from_the_others_take_differences_from_each_mean() {
    let is_product = |distance: f64, kind, precision| {
        let graph = graph(&apart(distance, kind), precision);
        let has = |name: &str| graph.constants.iter().any(|constant| constant.name == name);
        assert_ne!(has("shift"), has("means"));
        has("shift")
    };
    for kind in CovarianceType::ALL {
        // The bound is 1024, of squares for variances. Graphs of f32 take distances in f64 too.
        let is_square = matches!(kind, CovarianceType::Diag | CovarianceType::Spherical);
        let at = |distance: f64| if is_square { distance.sqrt() } else { distance };
        for precision in [Precision::F32, Precision::F64] {
            assert!(is_product(at(1020.0), kind, precision), "{kind}");
            assert!(!is_product(at(1030.0), kind, precision), "{kind}");
        }
    }
}

/// What is left of exponents in f64 less the largest is all that a graph of f32 rounds.
#[test]
fn exponents_are_taken_in_f64() {
    for model in kinds() {
        let graph = graph(&model, Precision::F32);
        constant(&graph, "constants", 11);
        assert!(graph.nodes.iter().any(|node| node.outputs == ["X_in_f64"]));
        assert!(graph.nodes.iter().any(|node| node.inputs == ["differences"]));
    }
}

#[test]
fn numbers_beyond_f32_are_refused_in_f32_only() {
    for covariances in [Covariances::Spherical(array![1e-90, 1.0]), Covariances::Diag(Array2::from_elem((2, 2), 1e90))]
    {
        let model = model(covariances);
        check_refused(&model, Precision::F32, &["precision factor", "exceeds the range of f32", "use precision f64"]);
        model_to_onnx(&model, Precision::F64).unwrap();
    }
}

#[test]
fn posteriors_are_refused() {
    let start = synthetic(3, 2, CovarianceType::Diag, 1, &SyntheticOptions::default()).unwrap();
    let prior = BayesPrior {
        weights: WeightPrior::Dirichlet { concentration: 0.5 },
        mean: array![0.0, 0.0],
        mean_precision: 1.0,
        degrees_of_freedom: 3.0,
        scale: PriorScale::Variances(array![1.0, 2.0]),
    };
    let rows = array![[0.3, 1.0], [2.0, 5.0], [-1.0, 0.5]];
    let posterior = prior.update(&reference::statistics(&start, rows.view(), None), 0.0).unwrap();
    let model = ModelFile { posterior: Some(posterior.clone()), ..ModelFile::from(posterior.mixture().clone()) };
    check_refused(&model, Precision::F64, &["'posterior'", "t distributions", "delete this field"]);
}

#[test]
fn a_refused_model_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    write_onnx(&path, &model(Covariances::Spherical(array![1e-90, 1.0])), Precision::F32).unwrap_err();
    assert!(!path.exists());
}
