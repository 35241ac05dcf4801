//! Text tables: what is read, and error messages.

use crate::common::{self, check, read, rows, text};
use gmm_data::{Decimal, ReadOptions, read_stream, read_table, write_csv};

const WITH: fn(&[&str]) -> ReadOptions = |columns| ReadOptions::default().with_columns(columns.iter().copied());

#[test]
fn a_header_is_told_from_a_row() {
    let table = text("a,b\n1,2\n3,4\n").unwrap();
    assert_eq!(table.names.as_deref(), Some(&["a".to_owned(), "b".to_owned()][..]));
    assert_eq!(rows(&table), [[1.0, 2.0], [3.0, 4.0]]);
    let table = text("1,2\n3,4\n").unwrap();
    assert_eq!((table.names.clone(), table.n_rows()), (None, 2));
}

#[test]
fn a_first_row_with_a_label_is_not_taken_for_a_header() {
    let input = "5.1,3.5,setosa\n4.9,3.0,setosa\n";
    let table = read_stream(input.as_bytes(), "input", &WITH(&["0", "1"])).unwrap();
    assert_eq!(rows(&table), [[5.1, 3.5], [4.9, 3.0]]);
    check(text(input), &["line 1, column 2", "'setosa' is not a number"]);
}

#[test]
fn separators_blank_lines_line_ends_quotes_and_marks_are_tolerated() {
    let want = [[1.0, 2.5], [3.0, -4.0]];
    for input in [
        "\u{feff}a,b\r\n1,2.5\r\n\r\n3,-4\r\n",
        "a;b\n1;2.5\n\n\n3;-4",
        "a\tb\n1\t2.5\n3\t-4\n",
        "\n\n\"a\",\"b\"\n\"1\", 2.5 \n 3 ,\"-4\"\n",
        "\"a \"\"x\"\"\nb\",b\n1,2.5\n3,-4\n",
        "\"0\",\"1\"\n1,2.5\n3,-4\n",
    ] {
        let table = text(input).unwrap();
        assert_eq!(rows(&table), want, "{input:?}");
        assert!(table.names.is_some(), "{input:?}");
    }
}

#[test]
fn numpy_savetxt_and_pandas_to_csv_are_read() {
    let table = read("savetxt.txt").unwrap();
    assert_eq!(table.matrix.dim(), (5, 3));
    assert_eq!(table.matrix.at(4, 2), 10.0 / 8.0);
    for name in ["pandas.csv", "pandas_semicolon.csv"] {
        let table = read_table(common::golden(name), &WITH(&["c", "a", "b"])).unwrap();
        assert_eq!(rows(&table)[4], [10.0 / 8.0, 1.0, 9.0]);
        assert_eq!(table.names.unwrap(), ["c", "a", "b"]);
    }
}

#[test]
fn comments_above_the_first_row_are_read_over_and_the_last_may_name_the_columns() {
    let names = |input: &str| {
        let table = text(input).unwrap_or_else(|e| panic!("{input:?}: {e}"));
        assert_eq!(rows(&table), [[1.0, 2.0], [3.0, 4.0]], "{input:?}");
        table.names.map(|names| names.join("|"))
    };
    // What `np.savetxt(.., delimiter=",", header="a,b")` writes, and similar headers.
    for input in [
        "# a,b\n1,2\n3,4\n",
        "#a,b\r\n1,2\r\n3,4\r\n",
        "\u{feff}# made by hand, of \"two parts\n#\n## \"a\", b\n\n1,2\n3,4\n",
        "# x,y\na,b\n1,2\n3,4\n",
        "# a\tb\n1\t2\n3\t4\n",
    ] {
        assert_eq!(names(input).as_deref(), Some("a|b"), "{input:?}");
    }
    // A remark, a wrong number of names, and a row that was commented out are not headers.
    for input in ["# made by hand\n1,2\n3,4\n", "# a,b,c\n1,2\n3,4\n", "# a,b\n# 0,0\n1,2\n3,4\n", "#\n1,2\n3,4\n"] {
        assert_eq!(names(input), None, "{input:?}");
    }
    assert_eq!(text("# height\n1\n2\n").unwrap().names.unwrap(), ["height"]);
    assert_eq!(text("# of last week\n1\n2\n").unwrap().names, None);
    // Line numbers count comments too, and below the first row `#` does not begin a comment.
    check(text("# a,b\n1,2\n3,x\n"), &["line 3, column 1 ('b'): 'x' is not a number"]);
    check(text("1,2\n# a\n3,4\n"), &["input: line 2: a comment", "above the first row only"]);
    check(text("# a,b\n"), &["no data rows"]);
}

#[test]
fn what_is_no_table_is_not_called_a_model() {
    for input in ["a,\"b\n1,2\n", "a,1\n1,2\n"] {
        let error = text(input).unwrap_err().to_string();
        assert!(!error.contains("model"), "{error}");
    }
}

#[test]
fn names_that_begin_with_a_hash_come_back_as_names() {
    let table = text("\"#a\",b\n1,2\n").unwrap();
    assert_eq!(table.names.as_deref().unwrap(), ["#a", "b"]);
    let mut out = Vec::new();
    write_csv(&mut out, &table).unwrap();
    assert_eq!(text(std::str::from_utf8(&out).unwrap()).unwrap(), table);
}

#[test]
fn row_11_text_names_line_and_column() {
    check(text("a,b\n1,2\n\n3,x\n"), &["input: line 4, column 1 ('b'): 'x' is not a number"]);
    check(read("pandas.csv"), &["pandas.csv: line 2, column 1 ('text'): 'v' is not a number"]);
}

#[test]
fn row_52_ragged_csv_names_line() {
    check(text("a,b\n1,2\n\n3\n"), &["line 4", "1 fields", "2"]);
    check(text("1,2\n1,2,3\n"), &["line 2", "3 fields"]);
    check(text("1,2\n1,x,3\n"), &["line 2", "3 fields"]);
}

#[test]
fn row_52_header_only_csv_is_an_error() {
    check(text("a,b\n"), &["no data rows"]);
    check(text("a,b\r\n\r\n"), &["no data rows"]);
}

#[test]
fn row_1_an_empty_file_is_an_error() {
    check(text(""), &["no data rows"]);
    check(text("\n  \n"), &["no data rows"]);
}

#[test]
fn a_missing_value_names_line_and_column() {
    check(text("a,b\n1,2\n,3\n"), &["line 3, column 0 ('a'): missing value"]);
    check(text("1,2\n1,NA\n"), &["line 2, column 1: missing value"]);
}

#[test]
fn a_separator_at_the_end_of_each_line_is_named_with_what_leaves_it_out() {
    let advice =
        |column: &str| format!("(does each line end with a separator?): use --columns '!{column}' to leave it out");
    for (input, column) in
        [("1,2,\n3,4,\n", "2"), ("a,b,\n1,2,\n3,4,\n", "2"), ("1;2;\n3;4;\n", "2"), ("1\t\n3\t\n", "1")]
    {
        check(text(input), &["the last column is empty in all sampled rows", &advice(column)]);
        let word = format!("!{column}");
        let table = read_stream(input.as_bytes(), "input", &WITH(&[&word])).unwrap();
        assert_eq!(table.matrix.at(1, 0), 3.0, "{input:?}");
        assert_eq!(table.n_columns(), if column == "2" { 2 } else { 1 });
    }
    // Several empty columns, in any position, with and without names.
    for (input, parts) in [
        (
            "1,2,,\n3,4,,\n",
            ["the last 2 columns are empty", "end with separators?): use --columns '!2..3' to leave them out"],
        ),
        ("a,b,,\n1,2,,\n3,4,,\n", ["the last 2 columns are empty", "--columns '!2..3'"]),
        (",1,2\n,3,4\n", ["the first column is empty", "begin with a separator?): use --columns '!0' to leave it out"]),
        (",a,b\n,1,2\n,3,4\n", ["the first column is empty", "--columns '!0'"]),
        ("a,b,c,d,e\n,1,,,2\n,3,,,4\n", ["3 columns are empty", "--columns '!a,!c..d' to leave them out"]),
        ("a,b,c\n1,,2\n3,,4\n", ["this column is empty", "--columns '!b'"]),
        ("a,b,c\n1,NA,2\n3,?,4\n", ["this column is empty", "--columns '!b'"]),
        ("a,\"b, c\",d\n1,,2\n3,,4\n", ["this column is empty", "--columns '!\"b, c\"'"]),
    ] {
        check(text(input), &parts);
        let message = text(input).unwrap_err().to_string();
        let words = message.split("--columns '").nth(1).unwrap().split('\'').next().unwrap();
        let words = if words.contains('"') { vec![words] } else { words.split(',').collect() };
        let table = read_stream(input.as_bytes(), "input", &WITH(&words)).unwrap();
        assert_eq!(rows(&table), [[1.0, 2.0], [3.0, 4.0]], "{input:?}");
    }
    // Advice names only columns that were selected, and none is given if no column would be left.
    check(read_stream("a,b,c\n1,,\n3,,\n".as_bytes(), "input", &WITH(&["a", "b"])), &["'!b' to leave it out"]);
    check(read_stream("a,b\n1,\n3,\n".as_bytes(), "input", &WITH(&["b"])), &["missing value"]);
    let weights = ReadOptions { last: Some("w".to_owned()), ..ReadOptions::default() };
    check(read_stream("a,b,w\n1,2,\n3,4,\n".as_bytes(), "input", &weights), &["column 2 ('w'): missing value"]);
    // An empty column with a name, and a line with one field too many.
    check(text("a,b,c\n1,2,\n3,4,\n"), &["line 2, column 2 ('c')", "empty in all sampled rows: use --columns '!c'"]);
    check(text("a,b\n1,2,\n3,4,\n"), &["line 2", "3 fields, of which the last is empty", "remove the separator"]);
    check(
        text("a,b\n1,2,,\n3,4,,\n"),
        &["4 fields, of which the last 2 are empty", "remove the separators at the end"],
    );
    check(text("a,b\n,1,2\n,3,4\n"), &["3 fields, of which the first is empty", "remove the separator at the start"]);
    let header = "but the first line has 3, of which the";
    check(text("a,b,\n1,2\n3,4\n"), &["line 2: 2 fields", header, "last is empty: remove the separator at its end"]);
    check(text(",a,b\n1,2\n3,4\n"), &["line 2: 2 fields", header, "first is empty: remove the separator at its start"]);
    // A single gap is a missing value.
    check(text("1,2\n3,\n"), &["line 2, column 1: missing value"]);
}

#[test]
fn names_in_latin_1_are_read_as_windows_1252_with_a_warning() {
    let read = |bytes: &[u8]| read_stream(bytes, "input", &ReadOptions::default());
    let table = read(b"gr\xf6\xdfe,\x80/kg,caf\xe9\n1,2,3\n4,5,6\n").unwrap();
    assert_eq!(table.names.unwrap(), ["größe", "€/kg", "café"]);
    let warning = table.warnings[0].to_string();
    assert!(warning.contains("not UTF-8") && warning.contains("Windows-1252"), "{warning}");
    let chosen = read_stream(&b"gr\xf6\xdfe,b\n1,2\n"[..], "input", &WITH(&["größe"])).unwrap();
    assert_eq!(rows(&chosen), [[1.0]]);
    assert_eq!(text("größe,b\n1,2\n3,4\n").unwrap().warnings, []);
    // A cell quoted in a message is decoded the same way.
    check(read(b"a,b\n1,2\n3,gr\xfcn\n"), &["'grün' is not a number"]);
}

#[test]
fn advice_on_decimal_signs_never_goes_in_a_circle() {
    let with = |input: &str, decimal| {
        read_stream(input.as_bytes(), "input", &ReadOptions { decimal, ..ReadOptions::default() })
    };
    let signs = [None, Some(Decimal::Point), Some(Decimal::Comma)];
    for input in ["1.626;7,8989\n1.5;2,5\n", "a;b\n1.5;2\n2,5;3\n", "7,5\t1\n2\t1.25\n"] {
        for decimal in signs {
            let text = with(input, decimal).unwrap_err().to_string();
            assert!(text.contains("other numbers have") && text.contains("the same sign"), "{text}");
            assert!(!text.contains("--decimal"), "{text}");
        }
    }
    for (input, number) in [
        ("\"1,234,567\",1\n\"2,5\",2\n", "1,234,567"),
        ("1.234.567,8;1\n2,5;2\n", "1.234.567,8"),
        ("1'000;2\n3;4\n", "1'000"),
        ("1.234,5;1\n2,5;2\n", "1.234,5"),
    ] {
        for decimal in signs {
            let result = with(input, decimal);
            check(result, &[&format!("'{number}' has '"), "as thousands separator", "remove it from all numbers"]);
            // Advises --decimal ',' if the number also has a decimal comma, and a point was given that no number has.
            let text = with(input, decimal).unwrap_err().to_string();
            let other = number.ends_with(",5") || number.ends_with(",8");
            assert_eq!(text.contains("--decimal ','"), other && decimal == Some(Decimal::Point), "{text}");
        }
    }
    // The decimal sign that was given is not the one in the numbers.
    check(with("1,5;2\n2,5;3\n", Some(Decimal::Point)), &["decimal sign '.': use --decimal ','"]);
    check(with("1.5;2\n2.5;3\n", Some(Decimal::Comma)), &["decimal sign ',': use --decimal '.'"]);
}

#[test]
fn commas_that_could_stand_between_thousands_are_read_as_decimal_with_a_warning() {
    let read = |input: &str, decimal| {
        let options = ReadOptions { decimal, ..ReadOptions::default() };
        let table = read_stream(input.as_bytes(), "input", &options).unwrap();
        assert!(table.matrix.at(0, 0).abs() < 1e3, "{input:?}");
        table.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let whole: String = "1;2\n".repeat(50);
    for (input, example) in [
        ("1,000;2\n3;4\n", "'1,000' (line 1)"),
        ("a;b\n-12,500;2\n3;999,250\n", "'-12,500' (line 2)"),
        ("1,000\t2\n1,500\t3\n", "'1,000' (line 1)"),
        (&(whole.clone() + "1,500;3\n"), "'1,500' (line 51)"),
    ] {
        let warnings = read(input, None);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for part in ["input: numbers such as", example, "thousands", "use --decimal , if", "else remove them"] {
            assert!(warnings[0].contains(part), "'{part}' is not in: {}", warnings[0]);
        }
        assert_eq!(read(input, Some(Decimal::Comma)), [""; 0], "{input:?}");
    }
    // One comma that is certainly a decimal sign decides for all, wherever it occurs.
    for proof in ["0,125", "-0,125", "1234,567", "1,5", "1,2345", "1,000e0"] {
        assert_eq!(read(&format!("1,000;2\n3;{proof}\n"), None), [""; 0], "{proof}");
        assert_eq!(read(&format!("{}1,000;{proof}\n", whole), None), [""; 0], "{proof}");
        let left_out = read_stream(format!("1,000;2\n3;{proof}\n").as_bytes(), "input", &WITH(&["0"])).unwrap();
        assert_eq!(left_out.warnings, [], "{proof}");
    }
}

#[test]
fn row_9_and_10_nan_and_infinity_reach_the_data_set() {
    let table = text("a,b\n1,nan\n-inf,3\n").unwrap();
    assert!(table.matrix.at(0, 1).is_nan());
    assert_eq!(table.matrix.at(1, 0), f64::NEG_INFINITY);
    assert!(table.into_dataset().unwrap_err().to_string().contains("row 0, column 1"));
}

#[test]
fn row_50_columns_not_there_or_twice_list_the_names() {
    let table = text("a,b,c\n1,2,3\n").unwrap();
    assert_eq!(rows(&table.select(&["c", "0"]).unwrap()), [[3.0, 1.0]]);
    for (wanted, why) in [(&["z"][..], "no column 'z': there are a, b, c"), (&["a", "b", "0"], "'0' is selected twice")]
    {
        assert!(table.select(wanted).unwrap_err().to_string().contains(why));
        check(read_stream("a,b,c\n1,2,3\n".as_bytes(), "input", &WITH(wanted)), &[why, "a, b, c"]);
    }
    let unnamed = text("1,2\n").unwrap();
    assert!(unnamed.select(&["a"]).unwrap_err().to_string().contains("2 columns without names"));
    assert!(text("a,a\n1,2\n").unwrap().select(&["a"]).unwrap_err().to_string().contains("several columns"));
}

#[test]
fn a_column_of_weights_is_taken_out() {
    let mut table = text("a,w,b\n1,0.5,2\n3,1,4\n").unwrap();
    assert_eq!(table.take_column("w").unwrap(), [0.5, 1.0]);
    assert_eq!(table.names.as_deref().unwrap(), ["a", "b"]);
    assert_eq!(rows(&table), [[1.0, 2.0], [3.0, 4.0]]);
    table.take_column("0").unwrap();
    assert!(table.take_column("b").unwrap_err().to_string().contains("no columns are left"));
}

#[test]
fn names_that_look_like_numbers_come_back_as_names() {
    let table = text("\"0\",\"1\"\n1,2\n").unwrap();
    let mut out = Vec::new();
    write_csv(&mut out, &table).unwrap();
    assert_eq!(text(std::str::from_utf8(&out).unwrap()).unwrap(), table);
}

#[test]
fn the_data_folder_is_read() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    for (name, n, d) in [("old_faithful.csv", 272, 2), ("iris.csv", 150, 4), ("wine.csv", 178, 13)] {
        let table = read_table(data.join(name), &ReadOptions::default()).unwrap();
        assert_eq!((table.matrix.dim(), table.names.map(|n| n.len())), ((n, d), Some(d)), "{name}");
    }
}

#[test]
fn a_long_table_is_read_whole_and_an_error_deep_in_it_names_its_line() {
    let line = |i: usize| match i {
        // A line break in quotes.
        70_000 => format!("{i},\"0.5\n\",{}\n", -(i as f64) / 3.0),
        90_000 => format!("\n{i},0.5,{}\r\n", -(i as f64) / 3.0),
        _ => format!("{i},0.5,{}\n", -(i as f64) / 3.0),
    };
    let rows: String = (0..200_000).map(line).collect();
    let whole = format!("a,b,c\n{rows}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.csv");
    std::fs::write(&path, &whole).unwrap();
    for table in [read_table(&path, &ReadOptions::default()).unwrap(), text(&whole).unwrap()] {
        assert_eq!(table.matrix.dim(), (200_000, 3));
        for i in 0..200_000 {
            let row = [0, 1, 2].map(|j| table.matrix.at(i, j));
            assert_eq!(row, [i as f64, 0.5, -(i as f64) / 3.0]);
        }
    }
    check(text(&format!("{whole}1,x,2\n{rows}")), &["line 200004, column 1 ('b'): 'x' is not a number"]);
    let table = read_table(&path, &WITH(&["c", "a"])).unwrap();
    assert_eq!((table.matrix.at(199_999, 0), table.matrix.at(199_999, 1)), (-199_999.0 / 3.0, 199_999.0));
}
