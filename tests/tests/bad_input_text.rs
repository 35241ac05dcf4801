//! Bad input, rows 75 to 85: text tables as they occur in practice.

use gmm_tests::{Folder, Run, close, data, numbers};

/// Fits one component; returns its means, which are the columns' means, and the run.
fn fitted(folder: &Folder, arguments: &str) -> (Vec<f64>, Run) {
    let run = folder.gmm(&format!("fit {arguments} -k 1 --device cpu -o m.json")).ok();
    (numbers(&folder.json("m.json")["means"]), run)
}

/// Asserts the means of a file's columns, and that it is read without a warning.
#[track_caller]
fn plain(name: &str, content: impl AsRef<[u8]>, arguments: &str, means: &[f64]) {
    let folder = Folder::new();
    folder.write(name, content);
    let (found, run) = fitted(&folder, &format!("{name} {arguments}"));
    close(&found, means, 1e-12);
    // A fit of two rows may give other warnings, which do not name the file.
    assert!(!run.stderr.contains(&format!("warning: {name}")), "{}", run.stderr);
}

/// Asserts that reading a file gives one warning, on one line that contains all of `parts`, and that `-q` suppresses
/// it.
#[track_caller]
fn warns(content: &str, parts: &[&str]) {
    let folder = Folder::with("x.csv", content);
    let run = folder.gmm("convert x.csv y.npy").ok();
    assert_eq!(run.stderr.lines().count(), 1, "{content:?}: {}", run.stderr);
    assert!(run.stderr.starts_with("warning: x.csv: "), "{}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "'{part}' is not in: {}", run.stderr);
    }
    assert_eq!(folder.gmm("convert x.csv y.npy -q").ok().stderr, "");
}

/// Asserts that a file is read without any message.
#[track_caller]
fn silent(content: &str) {
    let run = Folder::with("x.csv", content).gmm("convert x.csv y.npy").ok();
    assert_eq!(run.stderr, "", "{content:?}");
}

const IRIS: &str = "0,1,2\n5.1,3.5,1.4\n4.9,3.0,1.4\n4.7,3.2,1.3\n4.6,3.1,1.5\n";

#[test]
fn row_75_a_first_line_of_numbers_is_names_where_the_user_says_so() {
    plain("x.csv", IRIS, "--header yes", &[4.825, 3.2, 1.4]);
    plain("x.csv", IRIS, "--header no", &[3.86, 2.76, 1.52]);
    let folder = Folder::with("x.csv", IRIS);
    folder.gmm("fit x.csv -k 1 --header yes -o m.json --device cpu").ok();
    assert_eq!(folder.json("m.json")["feature_names"], serde_json::json!(["0", "1", "2"]));
    folder.refuses("fit x.csv -k 1 -o n.json --header maybe", 2, &["--header", "yes, no, auto"]);
}

#[test]
fn row_75_a_first_line_of_numbers_that_look_like_names_is_warned_about() {
    let parts = ["the first line", "--header yes", "--header no"];
    warns(IRIS, &parts);
    warns("0\n1.5\n-0.25\n0.75\n", &parts);
    warns("0,1\n0.1,0.2\n-1.3,2.5\n0.5,0.7\n", &parts);
    // Wavelengths, and decreasing wave numbers.
    warns("400,410.5,421\n0.1,0.2,0.3\n0.2,0.3,0.3\n0.1,0.4,0.2\n", &parts);
    warns("4000;3000;2000;1000\n0,1;0,2;0,3;1\n0,2;0,3;0,3;1\n0,1;0,4;0,2;1\n", &parts);
}

#[test]
fn row_75_rows_that_only_begin_low_are_not_warned_about() {
    silent("0,1\n1,0\n1,1\n0,0\n");
    silent("0,1,2\n3,4,5\n6,7,8\n9,10,11\n");
    silent("0\n1\n2\n3\n");
    silent("1.1,2.2,3.3\n1.5,2.5,3.5\n1.0,2.0,3.0\n1.2,2.9,3.1\n");
    silent("5,3,1\n4,4,1\n6,2,0\n5,5,2\n");
    silent("1,2\n");
}

#[test]
fn row_76_an_index_under_an_empty_name_is_warned_about_and_can_be_left_out() {
    warns(",0,1\n0,5.1,3.5\n1,4.9,3.0\n2,4.7,3.2\n", &["the first column", "index", "--columns '!\"\"'"]);
    warns(",a,b\n0,5.1,3.5\n1,4.9,3.0\n2,4.7,3.2\n", &["the first column", "counts the rows from 0", "--columns '!0'"]);
    // An index that does not count up, and one with only two rows.
    warns(",a,b\n17,5.1,3.5\n4,4.9,3.0\n", &["the first column has no name", "--columns '!0'"]);
    warns(",0,1,target\n0,5.1,3.5,1\n1,4.9,3.0,0\n", &["the first column has no name"]);
    plain("x.csv", ",0,1\n0,5.5,3.5\n1,4.5,3.0\n2,3.5,2.5\n", "--columns !\"\"", &[4.5, 3.0]);
    plain("x.csv", ",a,b\n0,5.5,3.5\n1,4.5,3.0\n2,3.5,2.5\n", "--columns !0", &[4.5, 3.0]);
}

#[test]
fn row_77_a_first_column_that_counts_the_rows_is_warned_about() {
    let table = |name: &str, from: usize| {
        let rows: String = (0..6).map(|i| format!("{},{},{}\n", from + i, i * i, 7 % (i + 1))).collect();
        if name.is_empty() { rows } else { format!("{name},a,b\n{rows}") }
    };
    warns(&table("id", 0), &["column 'id'", "counts the rows from 0", "used as a feature", "--columns '!id'"]);
    warns(&table("id", 1), &["column 'id'", "counts the rows from 1", "--columns '!id'"]);
    warns(&table("\"my, id\"", 1), &["column 'my, id'", "--columns '!\"my, id\"'"]);
    warns(&table("", 1), &["the first column", "--columns '!0'"]);
    plain("x.csv", table("id", 1), "--columns !id", &[55.0 / 6.0, 8.0 / 6.0]);
    // No warning if the user selects the column by name.
    let (_, run) = fitted(&Folder::with("x.csv", &table("id", 1)), "x.csv --columns id,a");
    assert!(!run.stderr.contains("counts the rows"), "{}", run.stderr);
}

#[test]
fn row_77_other_tables_are_read_without_a_word() {
    silent("x\n0\n1\n2\n3\n");
    silent("a,b\n0,4.5\n1,2.5\n");
    silent("a,b\n2,4.5\n3,2.5\n4,5.5\n5,1\n");
    silent("a,b\n0,0\n1,1\n2,2\n3,3\n");
    silent("a,b\n0,4.5\n1,2.5\n2,1.5\n2,1.5\n");
    for name in ["iris.csv", "old_faithful.csv", "wine.csv"] {
        let folder = Folder::new();
        assert_eq!(folder.gmm(&format!("convert {} y.csv", data(name))).ok().stderr, "", "{name}");
        assert_eq!(folder.gmm("convert y.csv z.csv").ok().stderr, "", "{name}");
    }
}

#[test]
fn row_78_separators_are_judged_on_several_lines_with_quotes_respected() {
    let means = [2.0, 3.5];
    for content in [
        "a;b\n1,5;3\n2,5;4\n",
        "\"income, net\";\"b,c\"\n1,5;3\n2,5;4\n",
        "\"income; net\",\"b;c\"\n1.5,3\n2.5,4\n",
        "\"a\tb\",\"c\td\"\n1.5,3\n2.5,4\n",
        "income, net;age\n1.5;3\n2.5;4\n",
        "a\tb\n1,5\t3\n2,5\t4\n",
        "1,5;3\n2,5;4\n",
        "1.5|3\n2.5|4\n",
        "a, b\n1.5, 3\n2.5, 4\n",
        "a,\tb\n1.5,\t3\n2.5,\t4\n",
        // The first numbers are whole, and a decimal comma occurs only later.
        "a;b\n1;3\n1;3\n1;3\n1;3\n1;3\n4,5;5\n4,5;5\n",
    ] {
        let late = content.matches('\n').count() > 4;
        plain("x.csv", content, "", if late { &[2.0, 25.0 / 7.0] } else { &means });
    }
    let late: String = "1;2\n".repeat(40) + "1,5;2\n1,5;2\n";
    plain("x.csv", late, "", &[43.0 / 42.0, 2.0]);
    // One column with decimal commas.
    plain("x.csv", "x\n1,5\n2,5\n", "", &[2.0]);
}

#[test]
fn row_78_separator_and_decimal_sign_can_be_given() {
    plain("x.csv", "1:2\n3:5\n", "--separator :", &[2.0, 3.5]);
    plain("x.csv", "1,5\n2,5\n", "--decimal ,", &[2.0]);
    plain("x.csv", "1,5 3\n2,5 4\n", "--separator blank --decimal ,", &[2.0, 3.5]);
    plain("x.csv", "a\tb\n1.5\t3\n2.5\t4\n", "--separator tab", &[2.0, 3.5]);
    plain("x.csv", "\"1,5\",\"3\"\n\"2,5\",\"4\"\n", "--decimal ,", &[2.0, 3.5]);
    let folder = Folder::with("x.csv", "1,5;2\n1.234,5;3\n");
    folder.refuses("fit x.csv -k 1 -o m.json --separator ; --decimal ,", 3, &["line 2, column 0", "1.234,5"]);
    folder.refuses("fit x.csv -k 1 -o m.json --separator , --decimal ,", 3, &["both ','"]);
    folder.refuses("fit x.csv -k 1 -o m.json --separator ab", 2, &["--separator", "one character"]);
    folder.refuses("fit x.csv -k 1 -o m.json --decimal ;", 2, &["--decimal", "'.' or ','"]);
    let folder = Folder::with("x.csv", "a;b\n1.5;2\n2,5;3\n");
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["line 3, column 0 ('a')", "'2,5'", "other numbers have '.'"]);
}

#[test]
fn row_78_commas_that_could_stand_between_thousands_are_warned_about() {
    warns("1,000;2\n1,500;3\n", &["'1,000' (line 1)", "decimal comma", "thousands", "--decimal ,"]);
    silent("1,000;2\n0,125;3\n");
    silent("1,000;2\n1234,567;3\n");
    let folder = Folder::with("x.csv", "1,000;2\n1,500;3\n");
    let run = folder.gmm("convert x.csv y.csv --decimal ,").ok();
    assert_eq!((run.stderr.as_str(), folder.text("y.csv").as_str()), ("", "1.0,2.0\n1.5,3.0\n"));
}

#[test]
fn row_78_empty_columns_are_named_with_what_leaves_them_out() {
    let folder = Folder::with("x.csv", "a,b,,\n1,2,,\n3,4,,\n");
    folder.refuses(
        "fit x.csv -k 1 -o m.json",
        3,
        &["x.csv: line 2, column 2", "the last 2 columns", "--columns '!2..3'"],
    );
    close(&fitted(&folder, "x.csv --columns !2..3").0, &[2.0, 3.0], 1e-12);
    let folder = Folder::with("x.csv", "a,b,\n1,2\n3,4\n");
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv: line 2", "2 fields", "of which the last is empty"]);
}

#[test]
fn row_79_columns_are_chosen_by_quoted_name_range_and_exclusion_in_every_format() {
    let content = "id,\"income, net\",a,b c,d\n9,1,2,3,4\n7,3,4,5,6\n8,2,3,4,5\n";
    let folder = Folder::with("x.csv", content);
    for to in ["x.parquet", "x.arrow", "x.npy", "x.tsv"] {
        folder.gmm(&format!("convert x.csv {to}")).ok();
    }
    let check = |file: &str, columns: &str, means: &[f64]| {
        let mut command = folder.command(&format!("fit {file} -k 1 --device cpu -o m.json --columns"));
        command.arg(columns).assert().success();
        close(&numbers(&folder.json("m.json")["means"]), means, 1e-12);
    };
    for file in ["x.csv", "x.parquet", "x.arrow", "x.tsv"] {
        check(file, "\"income, net\",d", &[2.0, 5.0]);
        check(file, "a..d", &[3.0, 4.0, 5.0]);
        check(file, "!id", &[2.0, 3.0, 4.0, 5.0]);
        check(file, "a..d,!b c", &[3.0, 5.0]);
    }
    for file in ["x.csv", "x.npy", "x.parquet"] {
        check(file, "0..2", &[8.0, 2.0, 3.0]);
        check(file, "!0,!4", &[2.0, 3.0, 4.0]);
        check(file, "3..", &[4.0, 5.0]);
    }
    folder.refuses("fit x.csv -k 1 -o n.json --columns d..a", 3, &["'d..a' runs backwards"]);
    folder.refuses("fit x.csv -k 1 -o n.json --columns !z", 3, &["no column 'z'", "id"]);
    folder.refuses("fit x.csv -k 1 -o n.json --columns \"a", 2, &["--columns", "quote"]);
}

#[test]
fn row_79_weights_stay_weights_beside_ranges_and_exclusions() {
    let folder = Folder::with("x.csv", "w,a,b\n1,1,5\n3,2,9\n1,1,5\n");
    for columns in ["a..b", "!w", "0..2", "1..2", "w,a,b", "!0"] {
        let (means, _) = fitted(&folder, &format!("x.csv --weights w --columns {columns}"));
        close(&means, &[8.0 / 5.0, 37.0 / 5.0], 1e-12);
    }
}

#[test]
fn row_80_the_format_of_streams_and_odd_names_can_be_given() {
    let folder = Folder::with("iris.data", "5.1,3.5\n4.9,3.0\n");
    folder.refuses("fit iris.data -k 1 -o m.json", 2, &["iris.data", "'data'", "--format"]);
    close(&fitted(&folder, "iris.data --format csv").0, &[5.0, 3.25], 1e-12);
    folder.gmm("convert iris.data y.npy --format csv").ok();
    folder.bash("cp y.npy y.dump").ok();
    close(&fitted(&folder, "y.dump --format npy").0, &[5.0, 3.25], 1e-12);
    folder.refuses("fit y.dump -k 1 -o n.json --format csv", 3, &["NumPy", "--format npy"]);
    folder.refuses("fit y.dump -k 1 -o n.json --format xls", 2, &["--format", "csv, tsv, txt"]);
    let means = |input: &str, options: &str| {
        folder.piped(&format!("fit - -k 1 --device cpu -o m.json {options}"), input).ok();
        numbers(&folder.json("m.json")["means"])
    };
    let blanks = "  1.5  3\n2.5   4\n";
    assert_eq!(means(blanks, ""), [2.0, 3.5]);
    assert_eq!(means(blanks, "--format txt"), [2.0, 3.5]);
    assert_eq!(means("a b\n1.5 3\n2.5 4\n", ""), [2.0, 3.5]);
    assert_eq!(means("1.5\t3\n2.5\t4\n", "--format tsv"), [2.0, 3.5]);
}

#[test]
fn row_80_every_command_that_reads_rows_takes_the_options() {
    let folder = Folder::with("x.data", "0;1\n1,5;2\n2,5;3\n4,5;1\n0,5;2,5\n");
    let options = "--header yes --separator ; --decimal , --format csv";
    folder.gmm(&format!("fit x.data -k 1 -o m.json --device cpu {options}")).ok();
    folder.gmm(&format!("fit x.data -k 1 -o n.json --device cpu {options}")).ok();
    for command in [
        "predict m.json x.data",
        "score m.json x.data",
        "loglik x.data m.json",
        "mcmc x.data -k 1 -o draws.npz --draws 5 --warmup 20 --chains 1",
        "classify x.data --model a=m.json --model b=n.json",
        "matmul x.data x.data --transpose-b",
        "select x.data -k 1..2",
        "plot fit m.json x.data -o y.svg",
        "convert x.data y.csv",
    ] {
        folder.gmm(&format!("{command} {options}")).ok();
    }
    assert_eq!(folder.text("y.csv"), "\"0\",\"1\"\n1.5,2.0\n2.5,3.0\n4.5,1.0\n0.5,2.5\n");
}

/// A Zstandard frame with the text uncompressed.
fn zst(text: &str) -> Vec<u8> {
    let size = u8::try_from(text.len()).expect("a short text");
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, size];
    out.extend_from_slice(&((u32::from(size) << 3) | 1).to_le_bytes()[..3]);
    out.extend_from_slice(text.as_bytes());
    out
}

#[test]
fn row_81_gzip_and_zstd_are_read_by_extension_or_magic_and_through_a_pipe() {
    let folder = Folder::with("x.csv", "a,b\n1.5,3\n2.5,4\n");
    folder.bash("gzip -k x.csv && cp x.csv.gz y.csv && cp x.csv.gz z.gz && cp x.csv.gz w.data").ok();
    let packed = zst("a,b\n1.5,3\n2.5,4\n");
    ["x.csv.zst", "v.csv", "v.zstd"].iter().for_each(|name| folder.write(name, &packed));
    for file in ["x.csv.gz", "y.csv", "z.gz", "w.data --format csv", "x.csv.zst", "v.csv", "v.zstd"] {
        close(&fitted(&folder, file).0, &[2.0, 3.5], 1e-12);
    }
    for bytes in [folder.read("x.csv.gz"), packed] {
        folder.piped("fit - -k 1 --device cpu -o m.json", bytes.clone()).ok();
        assert_eq!(numbers(&folder.json("m.json")["means"]), [2.0, 3.5]);
        folder.write("cut.csv.gz", &bytes[..bytes.len() - 3]);
        folder.refuses("fit cut.csv.gz -k 1 -o n.json", 3, &["cut.csv.gz", "truncated or corrupt"]);
    }
    // Several concatenated gzip members.
    folder.bash("printf '5,6\\n' | gzip >> x.csv.gz").ok();
    close(&fitted(&folder, "x.csv.gz").0, &[3.0, 13.0 / 3.0], 1e-12);
    for (magic, word) in [(&b"BZh91AY"[..], "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"PK\x03\x04", "zip")] {
        folder.write("o.csv", magic);
        folder.refuses("fit o.csv -k 1 -o n.json", 3, &["o.csv", word]);
    }
}

#[test]
fn row_82_utf_16_and_cr_only_line_ends_are_read() {
    let text = "größe,b\r\n1.5,3\r\n2.5,4\r\n";
    let units: Vec<u16> = text.encode_utf16().collect();
    let little: Vec<u8> = units.iter().flat_map(|u| u.to_le_bytes()).collect();
    let big: Vec<u8> = units.iter().flat_map(|u| u.to_be_bytes()).collect();
    for bytes in [[&[0xff, 0xfe][..], &little].concat(), [&[0xfe, 0xff][..], &big].concat(), little, big] {
        let folder = Folder::new();
        folder.write("x.csv", &bytes);
        assert_eq!(fitted(&folder, "x.csv").0, [2.0, 3.5]);
        assert_eq!(folder.json("m.json")["feature_names"], serde_json::json!(["größe", "b"]));
        folder.write("y.csv", &bytes[..bytes.len() - 1]);
        folder.refuses("fit y.csv -k 1 -o n.json", 3, &["y.csv", "UTF-16"]);
    }
    plain("x.csv", "a,b\r1.5,3\r2.5,4\r", "", &[2.0, 3.5]);
    plain("x.csv", "a,b\r1.5,3\n2.5,4", "", &[2.0, 3.5]);
    let folder = Folder::with("x.csv", "a,b\r1,2\r3,x\r");
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["line 3, column 1 ('b')"]);
    folder.write("x.csv", "a,b\n1,2\n".chars().flat_map(|c| (c as u32).to_le_bytes()).collect::<Vec<_>>());
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "NUL"]);
    folder.write("x.csv", b"\xff\xfe\0\0a\0\0\0");
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "UTF-32"]);
}

#[test]
fn row_83_the_row_names_of_rs_write_table_are_no_column() {
    let means = [2.0, 3.5];
    plain("x.txt", "\"a\" \"b\"\n\"1\" 1.5 3\n\"2\" 2.5 4\n", "", &means);
    plain("x.csv", "\"a\",\"b\"\n\"Mazda RX4\",1.5,3\n\"Datsun, 710\",2.5,4\n", "", &means);
    plain("x.txt", "a b\nMazda 1.5 3\nDatsun 2.5 4\n", "", &means);
    plain("x.txt", "\"a\" \"b\"\n\"1\" 1.5 3\n\"2\" 2.5 4\n", "--columns b,a", &[3.5, 2.0]);
    warns("a,b\n1,1.5,3\n2,2.5,4\n3,2,3\n", &["row's name", "left out"]);
    // Neither a trailing separator nor an overlong line is read as row names.
    let check =
        |text: &str| Folder::with("x.csv", text).refuses("fit x.csv -k 1 -o m.json", 3, &["line 2", "3 fields"]);
    check("a,b\n1,2,\n3,4,\n");
    check("a,b\n1,2,3\n4,5\n");
    check("a,b\n7,2,3\n4,5,6\n");
    Folder::with("x.csv", "1,2\n1,2,3\n2,3,4\n").refuses("fit x.csv -k 1 -o m.json", 3, &["3 fields"]);
}

#[test]
fn row_84_excels_line_with_the_separator_is_no_row() {
    for first in ["sep=;", "SEP=;"] {
        plain("x.csv", format!("{first}\r\na;b\r\n1,5;3\r\n2,5;4\r\n"), "", &[2.0, 3.5]);
    }
    plain("x.csv", "sep=\t\na\tb\n1.5\t3\n2.5\t4\n", "", &[2.0, 3.5]);
    plain("x.csv", "sep=,\na,b\n1.5,3\n2.5,4\n", "", &[2.0, 3.5]);
    plain("x.csv", "\u{feff}sep=:\na:b\n1.5:3\n2.5:4\n", "", &[2.0, 3.5]);
    Folder::with("x.csv", "sep=;\na;b\n1;x\n").refuses("fit x.csv -k 1 -o m.json", 3, &["line 3, column 1 ('b')"]);
}

#[test]
fn row_84_a_quoted_line_sep_is_a_name() {
    let folder = Folder::with("x.csv", "\"sep=;\"\n1\n3\n");
    folder.gmm("fit x.csv -k 1 -o m.json --device cpu").ok();
    assert_eq!(folder.json("m.json")["feature_names"], serde_json::json!(["sep=;"]));
    folder.gmm("convert x.csv y.csv").ok();
    assert_eq!(folder.text("y.csv"), "\"sep=;\"\n1.0\n3.0\n");
    folder.gmm("predict m.json y.csv").ok();
}

#[test]
fn row_79_blanks_inside_quotes_are_part_of_a_name() {
    let folder = Folder::with("x.csv", "\" a\",b,\"c  \"\n1,\" 2.5 \",3\n3,4.5,5\n");
    let names = |fit: &str| {
        folder.gmm(&format!("{fit} -k 1 -o m.json --device cpu")).ok();
        folder.json("m.json")["feature_names"].clone()
    };
    assert_eq!(names("fit x.csv"), serde_json::json!([" a", "b", "c  "]));
    assert_eq!(numbers(&folder.json("m.json")["means"]), [2.0, 3.5, 4.0]);
    for file in ["y.csv", "y.tsv", "y.parquet"] {
        folder.gmm(&format!("convert x.csv {file}")).ok();
        folder.gmm(&format!("predict m.json {file}")).ok();
        assert_eq!(names(&format!("fit {file} --columns a,c")), serde_json::json!([" a", "c  "]), "{file}");
        assert_eq!(names(&format!("fit {file} --columns !c")), serde_json::json!([" a", "b"]), "{file}");
        names("fit x.csv");
    }
    // The argument as the shell passes --columns '"c  "'.
    folder.command("convert x.csv z.csv --columns").arg("\"c  \"").assert().success();
    assert_eq!(folder.text("z.csv"), "\"c  \"\n3.0\n5.0\n");
    // A table with other column names does not match the model's.
    folder.write("z.csv", "a,b,c\n1,2.5,3\n3,4.5,5\n");
    folder.refuses("predict m.json z.csv", 3, &["'a'", "' a'"]);
}

#[test]
fn row_85_a_first_cell_of_excels_loses_no_row() {
    let missing = ["line 1, column 0", "missing value"];
    Folder::with("x.csv", "#N/A,2\n1,3\n2,4\n").refuses("fit x.csv -k 1 -o m.json", 3, &missing);
    Folder::with("x.csv", "#N/A\n1\n2\n").refuses("fit x.csv -k 1 -o m.json", 3, &missing);
    Folder::with("x.csv", "#DIV/0!,2\n1,3\n").refuses("fit x.csv -k 1 -o m.json", 3, &["line 1", "#DIV/0!"]);
    Folder::with("x.csv", "a,b\n1,#N/A\n").refuses(
        "fit x.csv -k 1 -o m.json",
        3,
        &["line 2, column 1", "missing value"],
    );
    Folder::with("x.csv", "1,2\n#N/A,3\n").refuses(
        "fit x.csv -k 1 -o m.json",
        3,
        &["line 2, column 0", "missing value"],
    );
    plain("x.csv", "#N/A,2\n1,3\n2,4\n", "--columns 1", &[3.0]);
}

#[test]
fn lines_and_tables_beyond_memory_are_refused_before_it_is_gone() {
    let folder = Folder::new();
    let wide = |d: usize, word: &dyn Fn(usize) -> String| (0..d).map(word).collect::<Vec<_>>().join(",");
    folder.write(
        "wide.csv",
        format!("{}\n{}\n", wide(200_000, &|i| format!("c{i}")), wide(200_000, &|_| "1.5".to_owned())),
    );
    folder.bash("head -c 1500000000 /dev/zero | tr '\\0' '1' > line.csv").ok();
    folder.bash("head -c 200000000 /dev/zero | tr '\\0' ',' > commas.csv").ok();
    let limited = |kib: usize, command: &str| folder.bash(&format!("ulimit -v {kib}; $GMM {command}"));
    for (kib, command) in [
        (1_000_000, "convert line.csv y.csv"),
        (1_000_000, "fit line.csv -k 1 -o m.json"),
        (1_000_000, "convert - y.csv < line.csv"),
        (1_000_000, "convert commas.csv y.csv"),
        (1_000_000, "convert wide.csv y.parquet"),
        (200_000, "convert wide.csv y.arrow"),
    ] {
        let run = limited(kib, command);
        assert_eq!(run.code, Some(5), "{command}: {}", run.stderr);
        assert!(run.stderr.contains("memory") && run.stderr.lines().count() == 1, "{command}: {}", run.stderr);
    }
    limited(1_000_000, "convert wide.csv y.npy").ok();
    limited(1_000_000, "convert wide.csv z.csv").ok();
}

#[test]
fn a_stream_that_grows_beyond_memory_is_refused() {
    let folder = Folder::new();
    let run = folder.bash("ulimit -v 400000; yes 1,2,3 | $GMM convert - y.npy");
    run.failed(5, &["<stdin>", "line", "memory"]);
    let run = folder.bash("yes 1,2,3 | gzip -1 | (ulimit -v 400000; $GMM convert - y.npy)");
    run.failed(5, &["<stdin>", "line", "memory"]);
    assert!(folder.files().is_empty(), "{:?}", folder.files());
}
