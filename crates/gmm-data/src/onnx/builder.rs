//! Builds a graph of standard operators, node by node. A value is known by its name.

use gmm_model::Precision;

use super::messages::{
    AttributeProto, DataType, DimensionProto, GraphProto, NodeProto, TensorProto, TensorShapeProto, TensorTypeProto,
    TypeProto, ValueInfoProto,
};

/// `AttributeProto.AttributeType` of the schema.
const INT: i32 = 2;
const INTS: i32 = 7;

/// Nodes and constants so far.
pub(crate) struct Builder {
    /// The precision of the real numbers that are added.
    pub(crate) precision: Precision,
    graph: GraphProto,
}

impl Builder {
    pub(crate) fn new(name: &str, precision: Precision) -> Self {
        Self { precision, graph: GraphProto { name: name.to_owned(), ..GraphProto::default() } }
    }

    /// The type of the real numbers.
    pub(crate) const fn real(&self) -> DataType {
        match self.precision {
            Precision::F32 => DataType::Float,
            Precision::F64 => DataType::Double,
        }
    }

    /// Applies an operator to values of the given names; the result has the name `output`, which is returned.
    pub(crate) fn apply<'a>(
        &mut self,
        operator: &str,
        inputs: &[&str],
        output: &'a str,
        attributes: &[(&str, Attribute<'_>)],
    ) -> &'a str {
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|&name| name.to_owned()).collect(),
            output: vec![output.to_owned()],
            name: output.to_owned(),
            op_type: operator.to_owned(),
            attribute: attributes.iter().map(|(name, value)| value.proto(name)).collect(),
        });
        output
    }

    /// Converts real numbers to the precision; the result has the name `output`, which is returned.
    pub(crate) fn cast<'a>(&mut self, input: &str, output: &'a str) -> &'a str {
        let to = Attribute::Int(self.real() as i64);
        self.apply("Cast", &[input], output, &[("to", to)])
    }

    /// Adds a constant of real numbers, of which there are as many as the shape says, rounded to the precision.
    pub(crate) fn reals(&mut self, name: &str, shape: &[usize], values: impl IntoIterator<Item = f64>) {
        let bytes = match self.precision {
            Precision::F32 => values.into_iter().flat_map(|v| (v as f32).to_le_bytes()).collect(),
            Precision::F64 => values.into_iter().flat_map(f64::to_le_bytes).collect(),
        };
        self.constant(name, shape, self.real(), bytes);
    }

    /// Adds a constant of integers, a scalar if `shape` is empty.
    pub(crate) fn integers(&mut self, name: &str, shape: &[usize], values: &[i64]) {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(name, shape, DataType::Int64, bytes);
    }

    fn constant(&mut self, name: &str, shape: &[usize], data_type: DataType, raw_data: Vec<u8>) {
        let dims = shape.iter().map(|&len| len as i64).collect();
        let (name, data_type) = (name.to_owned(), data_type as i32);
        self.graph.initializer.push(TensorProto { dims, data_type, name, raw_data });
    }

    /// The finished graph. Inputs and outputs are given as name, type and shape.
    pub(crate) fn finish(mut self, input: Value<'_>, outputs: &[Value<'_>]) -> GraphProto {
        self.graph.input = vec![input.proto()];
        self.graph.output = outputs.iter().map(Value::proto).collect();
        self.graph
    }
}

/// The value of an attribute.
pub(crate) enum Attribute<'a> {
    Int(i64),
    Ints(&'a [i64]),
}

impl Attribute<'_> {
    fn proto(&self, name: &str) -> AttributeProto {
        let name = name.to_owned();
        match self {
            Self::Int(i) => AttributeProto { name, i: Some(*i), ints: Vec::new(), r#type: INT },
            Self::Ints(ints) => AttributeProto { name, i: None, ints: ints.to_vec(), r#type: INTS },
        }
    }
}

/// An input or output: the rows, and the lengths of the further axes.
pub(crate) struct Value<'a> {
    pub(crate) name: &'a str,
    pub(crate) data_type: DataType,
    pub(crate) columns: Option<usize>,
}

impl Value<'_> {
    fn proto(&self) -> ValueInfoProto {
        let rows = DimensionProto { dim_value: None, dim_param: Some("N".to_owned()) };
        let columns = self.columns.map(|len| DimensionProto { dim_value: Some(len as i64), dim_param: None });
        let shape = TensorShapeProto { dim: [rows].into_iter().chain(columns).collect() };
        let tensor = TensorTypeProto { elem_type: self.data_type as i32, shape: Some(shape) };
        ValueInfoProto { name: self.name.to_owned(), r#type: Some(TypeProto { tensor_type: Some(tensor) }) }
    }
}
