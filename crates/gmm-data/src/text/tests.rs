//! Reading in blocks gives the same table, warnings and errors as reading line by line.

use std::fmt::Write;
use std::io::{self, BufReader, Cursor, Read};

use proptest::prelude::*;
use proptest::sample::select;

use super::blocks::Blocks;
use super::read::read_in;
use super::{Decimal, Separator};
use crate::{Format, ReadOptions};

/// A reader that fails at its end.
struct Failing<R>(R);

impl<R: Read> Read for Failing<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "cut short")),
            n => Ok(n),
        }
    }
}

/// A text's reader and the options it is read with.
#[derive(Clone, Debug)]
struct ReadCase {
    options: ReadOptions,
    format: Format,
    /// The length of the text that the reader is given.
    size: Option<u64>,
    /// Bytes per read.
    buffer: usize,
    /// Whether the reader fails at the end of the text.
    fails: bool,
}

/// Everything that a user sees of the table or the error.
fn read(text: &[u8], case: &ReadCase, blocks: Option<Blocks>) -> Result<String, String> {
    let reader: Box<dyn Read> = if case.fails { Box::new(Failing(text)) } else { Box::new(Cursor::new(text)) };
    let reader = BufReader::with_capacity(case.buffer, reader);
    let table = read_in(reader, case.size, case.format, &case.options, |_| blocks);
    let table = table.map_err(|fault| fault.in_named("input").to_string())?.of("input");
    let mut shown = format!("{:?} {:?}\n", table.names, table.matrix.dim());
    for warning in &table.warnings {
        writeln!(shown, "{warning}").unwrap();
    }
    let (n, d) = table.matrix.dim();
    for i in 0..n {
        let row: Vec<u64> = (0..d).map(|j| table.matrix.at(i, j).to_bits()).collect();
        writeln!(shown, "{row:x?}").unwrap();
    }
    Ok(shown)
}

fn check(text: &[u8], case: &ReadCase, blocks: &Blocks) -> Result<(), TestCaseError> {
    let line_by_line = read(text, case, None);
    let in_blocks = read(text, case, Some(blocks.clone()));
    prop_assert_eq!(line_by_line, in_blocks, "{:?}", String::from_utf8_lossy(text));
    Ok(())
}

fn numbers() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => any::<f64>().prop_map(|v| format!("{v:?}")),
        8 => (-1000..1000i32).prop_map(|v| v.to_string()),
        4 => (-1e3..1e3f64).prop_map(|v| format!("{v:.3}")),
        1 => select(vec!["nan", "inf", "-Infinity", "NaN", "+1", "1.", ".5", "-0", "1e5", "1E-5", "007", "1e-400"])
            .prop_map(str::to_owned),
    ]
}

/// Lines and fields that are not plain, or are errors. `_` stands for the separator.
const ODD: [&str; 36] = [
    "",
    "  ",
    "\t",
    "\r",
    "\u{c}",
    "_",
    "#",
    "# a remark",
    "#N/A_1",
    "1",
    "1_2_3_4_5",
    "\"1\"_\"2\"",
    "\"1\n2\"_3",
    "\"1",
    "\"\n\n1\"_\"2\r\n\"",
    "x_1",
    "1_x",
    "NA_1",
    "1_",
    "_1",
    "1e999_1",
    "1_-1e309",
    "1,5_2",
    "1,234_2",
    "1.5_2",
    "é_1",
    "1_é",
    "1 _ 2",
    "1\r2_3",
    "1_2\r",
    "1_2\r\r",
    "0x1_2",
    "1 \u{c}_2",
    "1_2 \u{c}",
    "1_2_",
    "1__2",
];

/// A table with oddities in places.
fn tables() -> impl Strategy<Value = Vec<u8>> {
    let row = proptest::collection::vec(numbers(), 4);
    let odd = proptest::collection::vec((0..200usize, select(&ODD[..])), 0..3);
    let head =
        select(vec!["", "", "a_b_c_d", "# a_b_c_d", "\u{feff}a_\"b\nb\"_c_d", "# x\n\n", "sep=_", "\"r\"_a_b_c"]);
    let layout = (1..5usize, select(vec![",", ";", "\t", " ", "  ", "|"]), select(vec!["\n", "\r\n", "\r"]));
    let style = (any::<bool>(), any::<bool>(), 0..6u8, 0..8u8);
    (proptest::collection::vec(row, 0..90), odd, head, layout, style).prop_map(
        |(rows, odd, head, (d, separator, end), (whole, last, names, encoding))| {
            let mut lines: Vec<String> = Vec::new();
            if !head.is_empty() {
                lines.push(head.split('_').take(d).collect::<Vec<_>>().join(separator));
            }
            for (i, row) in rows.iter().enumerate() {
                let is_whole = |v: &&String| !whole || v.bytes().all(|b| b.is_ascii_digit());
                let fields: Vec<&str> =
                    row[..d].iter().map(|v| Some(v).filter(is_whole).map_or("7", String::as_str)).collect();
                let fields = fields.join(separator);
                lines.push(match names {
                    0 => format!("{}{separator}{fields}", i + 1),
                    1 => format!("\"{}\"{separator}{fields}", i + 1),
                    2 => format!("\"{}\"", fields.replace(separator, &format!("\"{separator}\""))),
                    _ => fields,
                });
            }
            for (at, line) in odd {
                let at = at.min(lines.len());
                lines.insert(at, line.replace('_', separator));
            }
            let mut text = lines.join(end);
            if last {
                text.push_str(end);
            }
            match encoding {
                0 => [0xfeffu16].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect(),
                // Windows-1252.
                1 => text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect(),
                _ => text.into_bytes(),
            }
        },
    )
}

fn read_cases() -> impl Strategy<Value = ReadCase> {
    let columns = select(vec![None, None, None, Some("0"), Some("1,0"), Some("!0"), Some("..1"), Some("a"), Some("3")]);
    let given = (
        columns,
        select(vec![None, None, None, Some("0")]),
        select(vec![None, None, Some(true), Some(false)]),
        select(vec![None, None, None, Some(Decimal::Point), Some(Decimal::Comma)]),
        prop_oneof![
            6 => Just(None),
            2 => select(&[Separator::Blanks, Separator::Byte(b',')][..]).prop_map(Some),
            // Some of these only a program can set.
            1 => select(&b"5.e-\" \x0c\r\n\0:"[..]).prop_map(|b| Some(Separator::Byte(b))),
        ],
    );
    let reader = (proptest::option::of(0..9000u64), select(vec![1, 2, 7, 64, 8192]), proptest::bool::weighted(0.1));
    (given, select(vec![Format::Csv, Format::Csv, Format::Txt, Format::Tsv]), reader).prop_map(
        |((columns, last, header, decimal, separator), format, (size, buffer, fails))| {
            let columns = columns.map(|c| c.split(',').map(str::to_owned).collect());
            let last = last.map(str::to_owned);
            let options = ReadOptions { columns, last, header, decimal, separator, ..ReadOptions::default() };
            ReadCase { options, format, size, buffer, fails }
        },
    )
}

fn blocks() -> impl Strategy<Value = Blocks> {
    let size = prop_oneof![1..40usize, 40..400usize, 400..4000usize];
    (size, 1..4usize, 0..3usize, select(vec![0, 0, 300])).prop_map(|(size, threads, alone, after)| Blocks {
        size,
        after,
        threads: Some(threads),
        alone,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_and_lines_give_the_same_table_or_the_same_error(
        text in tables(),
        case in read_cases(),
        blocks in blocks(),
    ) {
        check(&text, &case, &blocks)?;
    }

    #[test]
    fn numbers_are_those_that_the_standard_library_reads(
        text in prop_oneof![numbers(), "[-+]?[0-9]{0,22}[.]?[0-9]{0,22}([eE][-+]?[0-9]{0,4})?", "[-+.0-9eEinfaNI_ x]{0,9}"],
    ) {
        let wanted: Option<f64> = text.parse().ok();
        prop_assert_eq!(super::number::plain(text.as_bytes()).map(f64::to_bits), wanted.map(f64::to_bits), "{}", text);
    }
}

const CASE: ReadCase = ReadCase {
    options: ReadOptions {
        columns: None,
        last: None,
        array: None,
        header: None,
        separator: None,
        decimal: None,
        format: None,
        missing: false,
        memory: None,
    },
    format: Format::Csv,
    size: None,
    buffer: 64,
    fails: false,
};

#[test]
fn each_oddity_deep_in_a_table_is_read_or_reported_as_without_blocks() {
    for odd in ODD {
        for separator in [",", ";", "\t", " "] {
            for whole in [false, true] {
                let row = |i: usize| if whole { format!("{i}_{}", 2 * i) } else { format!("{i}.5_-{i}e-3") };
                let mut lines: Vec<String> = (0..200).map(row).collect();
                lines.insert(150, odd.to_owned());
                let text = lines.join("\n").replace('_', separator);
                for blocks in [
                    Blocks { size: 100, after: 0, threads: Some(2), alone: 1 },
                    Blocks { size: 700, after: 0, threads: Some(3), alone: 0 },
                ] {
                    check(text.as_bytes(), &CASE, &blocks).unwrap();
                }
            }
        }
    }
}

#[test]
fn most_lines_may_be_odd() {
    let text: String = (0..500).map(|i| format!("{i},\"{i}.5\"\n\n")).collect();
    for size in [10, 100, 1000] {
        check(text.as_bytes(), &CASE, &Blocks { size, after: 0, threads: Some(2), alone: 0 }).unwrap();
    }
}
