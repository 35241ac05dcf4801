//! Columns that name the groups of rows, and files with the models of groups.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Float64Array, LargeStringArray, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use gmm_data::{
    FileError, GroupLabel, GroupModels, ModelFile, ModelOrGroups, ReadOptions, Words, group_models_to_json,
    read_model_or_groups, read_words, write_group_models,
};
use gmm_model::{CovarianceType, SyntheticOptions, synthetic};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

/// Reads the column of a file with this name and content.
fn words(name: &str, content: &[u8], column: &str) -> Result<Option<Words>, FileError> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    read_words(&[path], column, &ReadOptions::default())
}

fn values(found: Result<Option<Words>, FileError>) -> Vec<String> {
    found.unwrap().expect("text").values
}

#[test]
fn a_column_of_text_is_read_whatever_the_dialect() {
    for (text, column) in [
        ("x,who,y\n1,ann,2\n3,bob,4\n5,ann,6\n", "who"),
        ("x;who;y\r\n1,5;ann;2\r\n3;bob;4\r\n\r\n5;ann;6\r\n", "who"),
        ("1 ann\n3 bob\n5 ann\n", "1"),
        ("\u{feff}\"who\",\"x\"\n\"ann\",1\n bob ,2\n\"ann\",3", "who"),
        ("who x\nr1 ann 1\nr2 bob 2\nr3 ann 3\n", "who"),
        ("# two columns\nwho,x\nann,1\nbob,2\nann,3\n", "0"),
    ] {
        let extension = if column == "1" || text.starts_with("who x") { "txt" } else { "csv" };
        assert_eq!(values(words(&format!("t.{extension}"), text.as_bytes(), column)), ["ann", "bob", "ann"], "{text}");
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(b"who,x\n\"a, b\",1\n7,2\n").unwrap();
    assert_eq!(values(words("t.csv.gz", &packed.finish().unwrap(), "who")), ["a, b", "7"]);
    // More lines than decide the dialect.
    let long: String = (0..5000).map(|i| format!("{i},g{}\n", i % 7)).collect();
    let found = words("t.csv", format!("x,g\n{long}").as_bytes(), "g").unwrap().unwrap();
    assert_eq!((found.values.len(), found.values[4999].as_str(), found.index), (5000, "g1", 1));
    assert_eq!(found.name.as_deref(), Some("g"));
}

#[test]
fn numbers_are_left_to_the_table() {
    assert_eq!(words("t.csv", b"x,g\n1,1\n2,2.5\n", "g").unwrap(), None);
    assert_eq!(words("t.npy", b"", "0").unwrap(), None);
    let folder = TempDir::new().unwrap();
    let paths: Vec<PathBuf> = ["a.csv", "b.csv"].iter().map(|name| folder.path().join(name)).collect();
    std::fs::write(&paths[0], "x,g\n1,a\n").unwrap();
    std::fs::write(&paths[1], "g,x\n1,7\n").unwrap();
    // The first file decides, and columns are found by name.
    assert_eq!(values(read_words(&paths, "g", &ReadOptions::default())), ["a", "1"]);
    assert_eq!(read_words(&[&paths[1], &paths[0]], "g", &ReadOptions::default()).unwrap(), None);
}

#[test]
fn a_missing_name_has_its_line() {
    for text in ["x,g\n1,a\n2,\n", "x,g\n1,a\n2\n"] {
        let error = words("t.csv", text.as_bytes(), "g").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
    }
    let error = words("t.csv", b"x,g\n1,a\n", "h").unwrap_err().to_string();
    assert!(error.contains('h') && error.contains("x"), "{error}");
}

#[test]
fn text_of_parquet_is_read_in_every_form() {
    let file = |array: ArrayRef| {
        let numbers: ArrayRef = Arc::new(Float64Array::from_iter_values((0..array.len()).map(|i| i as f64)));
        let fields =
            vec![Field::new("x", numbers.data_type().clone(), false), Field::new("g", array.data_type().clone(), true)];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![numbers, array]).unwrap();
        let mut out = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        out
    };
    let dictionary: DictionaryArray<Int8Type> = vec!["a", "b", "a"].into_iter().collect();
    let forms: [ArrayRef; 3] = [
        Arc::new(StringArray::from(vec!["a", "b", "a"])),
        Arc::new(LargeStringArray::from(vec!["a", "b", "a"])),
        Arc::new(dictionary),
    ];
    for form in forms {
        assert_eq!(values(words("t.parquet", &file(form.clone()), "g")), ["a", "b", "a"], "{}", form.data_type());
    }
    assert_eq!(words("t.parquet", &file(Arc::new(StringArray::from(vec!["a"]))), "x").unwrap(), None);
    let error = words("t.parquet", &file(Arc::new(StringArray::from(vec![Some("a"), None]))), "g").unwrap_err();
    assert!(error.to_string().contains("row 1"), "{error}");
}

fn models() -> GroupModels {
    let model = |seed| {
        let options = SyntheticOptions::default();
        ModelFile::from(synthetic(2, 3, CovarianceType::Full, seed, &options).unwrap())
    };
    let groups = vec![
        (GroupLabel::number(-0.0), Ok(model(1))),
        (GroupLabel::number(2.5), Err("3 components for 2 \"rows\"".to_owned())),
        (GroupLabel::Text("a \"b\"\n".to_owned()), Ok(model(2))),
    ];
    GroupModels { by: Some("who".to_owned()), groups }
}

fn parsed(text: &str) -> Result<GroupModels, FileError> {
    read_model_or_groups(text.as_bytes(), "m").map(|found| match found {
        ModelOrGroups::Groups(models) => models,
        ModelOrGroups::Model(_) => panic!("one model"),
    })
}

#[test]
fn models_of_groups_round_trip_to_the_bit() {
    let (models, folder) = (models(), TempDir::new().unwrap());
    let path = folder.path().join("m.json");
    write_group_models(&path, &models).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(parsed(&text).unwrap(), models);
    assert!(text.contains("{\"group\": 0, \"model\""), "{text}");
    assert_eq!(models.get(&GroupLabel::number(0.0)), Some(&models.groups[0].1));
    assert_eq!(models.get(&GroupLabel::Text("0".to_owned())), None);
    let error = write_group_models(folder.path().join("m.safetensors"), &models).unwrap_err().to_string();
    assert!(error.contains("json"), "{error}");
}

#[test]
fn damaged_models_name_the_group_and_the_field() {
    let text = group_models_to_json(&models()).unwrap();
    let damaged = [
        ("\"means\": [", "\"means\": [[1],", "groups[0].model.means"),
        ("\"error\"", "\"reason\"", "entry 1"),
        ("\"group\": 2.5", "\"group\": 0", "two entries have the group 0"),
        ("\"group\": 2.5", "\"group\": null", "groups"),
        ("\"version\": 1,\n\"by\"", "\"version\": 2,\n\"by\"", "version is 2"),
    ];
    for (from, to, what) in damaged {
        assert!(text.contains(from), "{from}");
        let error = parsed(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    // A file with one model is no file of groups, and the other way round.
    let one = gmm_data::model_to_json(models().groups[0].1.as_ref().unwrap()).unwrap();
    assert!(matches!(read_model_or_groups(one.as_bytes(), "m"), Ok(ModelOrGroups::Model(_))));
    let error = gmm_data::read_model_bytes(text.as_bytes(), "m").unwrap_err().to_string();
    assert!(error.contains("models of groups"), "{error}");
}
