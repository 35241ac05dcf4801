//! Names, quotes and characters of text files that could be taken for something else.

use crate::common::{check, rows, text};
use gmm_data::{ReadOptions, read_stream, read_table, write_csv};

#[test]
fn characters_that_cannot_be_seen_are_named_in_a_bad_field() {
    for (mark, name) in [
        ('\u{a0}', "U+00A0 (a no-break space)"),
        ('\u{202f}', "U+202F (a narrow no-break space)"),
        ('\u{2009}', "U+2009 (a thin space)"),
    ] {
        let escape = mark.escape_unicode();
        let expected = format!("'1{escape}234,5' has {name} as thousands separator: remove it");
        check(text(&format!("1{mark}234,5;2\n2,5;3\n")), &[&expected]);
        check(text(&format!("a\n1{mark}234\n")), &[&format!("'1{escape}234' has {name}")]);
        check(text(&format!("a\n1.5{mark}\n")), &[&format!("'1.5{escape}' is not a number")]);
    }
    // Also in Latin-1; and characters without width.
    check(read_stream(&b"a\n1\xa0234\n"[..], "input", &ReadOptions::default()), &["'1\\u{a0}234' has U+00A0"]);
    for hidden in ['\u{200b}', '\u{200d}', '\u{feff}', '\u{ad}', '\u{3000}', '\u{2028}'] {
        let escape = hidden.escape_unicode();
        check(text(&format!("a\n1{hidden}5\n")), &[&format!("'1{escape}5' is not a number")]);
    }
}

#[test]
fn archives_that_are_not_unpacked_are_named_by_extension_whatever_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    for (name, word) in
        [("x.csv.bz2", "bzip2 -d"), ("x.csv.xz", "xz -d"), ("x.csv.zip", "unpack"), ("x.BZ2", "bzip2 -d")]
    {
        let path = folder.path().join(name);
        for content in [&b""[..], b"BZ", b"1,2\n"] {
            std::fs::write(&path, content).unwrap();
            check(read_table(&path, &ReadOptions::default()), &[name, "by its name a", word, "--format"]);
        }
    }
}

#[test]
fn zero_bytes_after_gzip_are_read_over_and_other_bytes_are_not() {
    use std::io::Write;
    let pack = |text: &str| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap()
    };
    let read = |bytes: &[u8]| read_stream(bytes, "input", &ReadOptions::default());
    let (first, second) = (pack("a,b\n1,2\n"), pack("3,4\n"));
    for zeros in [0, 1, 10_000, 100_000] {
        let table = read(&[&first[..], &second, &vec![0; zeros]].concat()).unwrap();
        assert_eq!(rows(&table), [[1.0, 2.0], [3.0, 4.0]], "{zeros}");
    }
    check(read(&[&first[..], b"\0\0x"].concat()), &["gzip: data after the end of the compressed stream"]);
    check(read(&[&first[..], b"x,y"].concat()), &["truncated or corrupt: gzip"]);
    check(read(&first[..first.len() - 3]), &["truncated or corrupt"]);
}

#[test]
fn a_number_beyond_the_range_is_refused_and_an_infinity_is_read() {
    for number in ["1e400", "-1e999"] {
        check(text(&format!("a,b\n1,2\n3,{number}\n")), &["line 3, column 1 ('b')", number, "beyond float64's range"]);
    }
    assert_eq!(rows(&text("a\ninf\n-inf\n").unwrap()), [[f64::INFINITY], [f64::NEG_INFINITY]]);
}

#[test]
fn a_line_sep_with_what_cannot_separate_is_a_name() {
    for first in ["sep=e", "sep=1", "sep=."] {
        let table = text(&format!("{first}\n1e5\n2e7\n")).unwrap();
        assert_eq!((rows(&table), table.names), (vec![vec![1e5], vec![2e7]], Some(vec![first.to_owned()])));
    }
    assert_eq!(rows(&text("sep=|\na|b\n1|2\n").unwrap()), [[1.0, 2.0]]);
}

#[test]
fn blanks_inside_quotes_belong_to_a_name_and_not_to_a_number() {
    let table = text("\" a\", \"b \" ,\"c\"\n\" 1.5 \",\"\t-2\", 3 \n").unwrap();
    assert_eq!(
        (rows(&table), table.names.unwrap()),
        (vec![vec![1.5, -2.0, 3.0]], [" a", "b ", "c"].map(str::to_owned).to_vec())
    );
    check(text("a\n\" x \"\n"), &["line 2, column 0 ('a'): 'x' is not a number"]);
    check(text("\" a\",b\n1,2\nx,2\n"), &["line 3, column 0 (' a')"]);
}

#[test]
fn a_quoted_line_sep_is_a_name() {
    let table = text("\"sep=;\"\n1\n2\n").unwrap();
    assert_eq!((rows(&table), table.names.unwrap()), (vec![vec![1.0], vec![2.0]], vec!["sep=;".to_owned()]));
}

#[test]
fn an_html_page_that_is_called_csv_is_named() {
    for page in ["<!DOCTYPE html>\n<html><body>404</body></html>\n", "\n  <HTML>\n<p>a,b</p>\n"] {
        check(text(page), &["not a text table, but an HTML page"]);
    }
}

#[test]
fn names_that_are_the_first_bytes_of_another_format_are_names() {
    for name in [
        "PAR1",
        "ARROW1",
        "FEA1",
        "BZh",
        "BZh91AY",
        "%PDF-1.7",
        "<html>",
        "P*M\u{18}",
        "a|b",
        "sep=",
        "Sep=;",
        "sep=|",
        " a",
        "a ",
        " sep=;",
        "\n a",
        "\u{a0}a",
        "a\0b",
        "\x003\x00;\x003\x00,\x005\x00;\x001\x00",
    ] {
        let mut table = text("a,b\n1,2\n3,4\n").unwrap();
        table.names = Some(vec![name.to_owned(), "b".to_owned()]);
        let mut out = Vec::new();
        write_csv(&mut out, &table).unwrap();
        assert_eq!(text(std::str::from_utf8(&out).unwrap()).unwrap(), table, "{name}");
    }
    for name in ["NA", "?", "null", "sep=;", "SEP=,", " ", " NA ", " 1.5 ", "\0"] {
        let mut table = text("a\n1\n3\n").unwrap();
        table.names = Some(vec![name.to_owned()]);
        let mut out = Vec::new();
        write_csv(&mut out, &table).unwrap();
        assert_eq!(text(std::str::from_utf8(&out).unwrap()).unwrap(), table, "{name}");
    }
    for name in ["PAR1", "ARROW1", "FEA1", "BZh"] {
        assert_eq!(text(&format!("{name},b\n1,2\n3,4\n")).unwrap().names.unwrap(), [name, "b"]);
        assert_eq!(text(&format!("{name}\n1\n3\n")).unwrap().names.unwrap(), [name]);
    }
}
