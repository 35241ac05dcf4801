//! Missing values as NaN, where that is asked for: text, Parquet and Arrow of every numeric type.

use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float64Builder};
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Float16Array, Float32Array, Float64Array, Int8Array,
    Int64Array, RecordBatch, RecordBatchIterator, UInt64Array,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{Field, Schema};
use gmm_data::{ReadOptions, Table, read_stream, table_of_batches, table_of_batches_with_nulls};
use gmm_model::Precision;
use parquet::arrow::ArrowWriter;

fn with_nan() -> ReadOptions {
    ReadOptions { missing: true, ..ReadOptions::default() }
}

/// Panics unless the table has these values; `None` is NaN.
fn check(table: &Table, rows: &[&[Option<f64>]], what: &str) {
    let found = table.matrix.to_f64();
    assert_eq!(found.dim(), (rows.len(), rows[0].len()), "{what}");
    for (found, want) in found.outer_iter().zip(rows) {
        for (found, want) in found.iter().zip(*want) {
            assert!(want.map_or(found.is_nan(), |want| *found == want), "{what}: {found} {want:?}");
        }
    }
}

#[test]
fn markers_and_empty_fields_of_text_are_nan() {
    let rows: &[&[Option<f64>]] = &[&[Some(1.0), None], &[None, Some(2.5)], &[Some(3.0), Some(4.0)]];
    for text in [
        "a,b\n1,\n,2.5\n3,4\n",
        "a,b\n1,NA\nNULL,2.5\n3,4\n",
        "a;b\n1;?\n\"\";2,5\n3;4\n",
        "a\tb\n1\tn/a\n<NA>\t2.5\n3\t4\n",
        "a b\n1 #N/A\nNone 2.5\n3 4\n",
        "a,b\n1,nan\nNaN,2.5\n3,4\n",
    ] {
        let table = read_stream(text.as_bytes(), "x", &with_nan()).unwrap();
        check(&table, rows, text);
        let refused = read_stream(text.as_bytes(), "x", &ReadOptions::default());
        assert!(text.contains("nan") || refused.unwrap_err().to_string().contains("missing value"), "{text}");
    }
}

#[test]
fn long_text_with_gaps_is_read_in_blocks_with_the_same_values() {
    let field = |i: usize, j: usize| match (i * 31 + j * 17) % 10 {
        0 => String::new(),
        1 => "NA".to_owned(),
        v => format!("{}.{v}", i % 100),
    };
    let n = 60_000;
    let text: String = (0..n).map(|i| format!("{},{},{}\n", field(i, 0), field(i, 1), field(i, 2))).collect();
    let table = read_stream(text.as_bytes(), "x", &with_nan()).unwrap();
    let found = table.matrix.to_f64();
    assert_eq!(found.dim(), (n, 3));
    for ((i, j), found) in found.indexed_iter() {
        let want = field(i, j).parse::<f64>().ok();
        assert!(want.map_or(found.is_nan(), |want| *found == want), "{i} {j}: {found} {want:?}");
    }
}

#[test]
fn text_that_is_no_marker_is_still_an_error() {
    for text in ["a,b\n1,x\n2,3\n", "1,2\n3\n", "a,b\n1,-\n2,2\n"] {
        assert!(read_stream(text.as_bytes(), "x", &with_nan()).is_err(), "{text}");
    }
}

/// Reads the same batch from an Arrow file, an Arrow stream, Parquet and memory.
fn read_all(columns: Vec<(&str, ArrayRef)>, options: &ReadOptions) -> Vec<(&'static str, Result<Table, String>)> {
    let fields: Vec<Field> = columns.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, a)| a).collect()).unwrap();
    let (mut file, mut stream, mut parquet) = (Vec::new(), Vec::new(), Vec::new());
    let mut writer = FileWriter::try_new(&mut file, &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = StreamWriter::try_new(&mut stream, &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = ArrowWriter::try_new(&mut parquet, schema.clone(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let read = |bytes: &[u8]| read_stream(bytes, "X", options).map_err(|e| e.to_string());
    let batches = RecordBatchIterator::new([Ok(batch)], schema);
    let memory = match options.missing {
        true => table_of_batches_with_nulls(batches, "X"),
        false => table_of_batches(batches, "X"),
    };
    vec![
        ("file", read(&file)),
        ("stream", read(&stream)),
        ("parquet", read(&parquet)),
        ("memory", memory.map_err(|e| e.to_string())),
    ]
}

#[test]
fn nulls_of_every_numeric_type_are_nan() {
    let of = |array: ArrayRef| array;
    let keys = Int8Array::from(vec![Some(0), None, Some(1)]);
    let values: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5]));
    let columns: Vec<(&str, ArrayRef, [Option<f64>; 3])> = vec![
        ("f64", of(Arc::new(Float64Array::from(vec![Some(1.5), None, Some(2.5)]))), [Some(1.5), None, Some(2.5)]),
        ("i64", of(Arc::new(Int64Array::from(vec![None, Some(7), Some(-8)]))), [None, Some(7.0), Some(-8.0)]),
        ("u64", of(Arc::new(UInt64Array::from(vec![Some(7), Some(8), None]))), [Some(7.0), Some(8.0), None]),
        ("bool", of(Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))), [Some(1.0), None, Some(0.0)]),
        (
            "decimal",
            of(Arc::new(
                Decimal128Array::from(vec![Some(125), None, Some(-50)]).with_precision_and_scale(10, 2).unwrap(),
            )),
            [Some(1.25), None, Some(-0.5)],
        ),
        ("key", of(Arc::new(DictionaryArray::<Int8Type>::new(keys, values))), [Some(0.5), None, Some(1.5)]),
    ];
    for (name, array, want) in columns {
        let rows: Vec<[Option<f64>; 1]> = want.iter().map(|v| [*v]).collect();
        let rows: Vec<&[Option<f64>]> = rows.iter().map(<[Option<f64>; 1]>::as_slice).collect();
        for (form, table) in read_all(vec![(name, array.clone())], &with_nan()) {
            check(&table.unwrap(), &rows, &format!("{name} {form}"));
        }
        for (form, table) in read_all(vec![(name, array)], &ReadOptions::default()) {
            assert!(table.unwrap_err().contains("missing value"), "{name} {form}");
        }
    }
}

#[test]
fn nulls_of_single_precision_leave_the_table_in_single_precision() {
    let half: ArrayRef = Arc::new(Float16Array::from(vec![None, Some(half::f16::from_f32(0.5))]));
    let single: ArrayRef = Arc::new(Float32Array::from(vec![Some(2.0), None]));
    for (form, table) in read_all(vec![("a", half), ("b", single)], &with_nan()) {
        let table = table.unwrap();
        assert_eq!(table.matrix.precision(), Precision::F32, "{form}");
        check(&table, &[&[None, Some(2.0)], &[Some(0.5), None]], form);
    }
}

#[test]
fn a_null_in_a_list_is_nan_and_a_null_list_is_an_error() {
    let lists = |whole: bool| -> ArrayRef {
        let mut builder = FixedSizeListBuilder::new(Float64Builder::new(), 2);
        builder.values().append_value(1.0);
        builder.values().append_null();
        builder.append(true);
        builder.values().append_value(3.0);
        builder.values().append_value(4.0);
        builder.append(whole);
        Arc::new(builder.finish())
    };
    for (form, table) in read_all(vec![("e", lists(true))], &with_nan()) {
        check(&table.unwrap(), &[&[Some(1.0), None], &[Some(3.0), Some(4.0)]], form);
    }
    for (form, table) in read_all(vec![("e", lists(false))], &with_nan()) {
        assert!(table.unwrap_err().contains("row 1, column 0 ('e"), "{form}");
    }
}
