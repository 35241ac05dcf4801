//! Shows records of `gmm bench` as tables with the engines side by side.

use super::stored::Stored;
use super::table;
use crate::overtaking::{self, Point};
use crate::table::short;

/// A table for each sweep, kind and precision; `None` if the record is not one of `gmm bench`.
pub(super) fn tables(record: &Stored) -> Option<String> {
    let known = ["sweep", "engine", "device_ms", "batch_ms"];
    if !known.iter().all(|name| record.columns.iter().any(|column| column == name)) {
        return None;
    }
    let field = |row: &[String], name: &str| record.field(row, name).unwrap_or_default().to_owned();
    let key = |row: &Vec<String>| ["sweep", "covariance", "precision"].map(|name| field(row, name));
    let mut out = String::new();
    for group in unique(record.rows.iter().map(key)) {
        let rows: Vec<&Vec<String>> = record.rows.iter().filter(|row| key(row) == group).collect();
        let engines = unique(rows.iter().map(|row| field(row, "engine")));
        let sizes = unique(rows.iter().map(|row| ["n", "k", "d"].map(|name| field(row, name))));
        let mut heading: Vec<String> = ["n", "k", "d"].map(str::to_owned).into();
        // Columns without any value are not shown.
        let has = |engine: &str, name: &str| {
            rows.iter().any(|row| field(row, "engine") == engine && record.field(row, name).is_some())
        };
        let mut columns: Vec<(&str, &str)> = Vec::new();
        for engine in &engines {
            columns.push((engine, "ms"));
            for name in ["load_ms", "resident_ms", "device_ms", "batch_ms", "way"] {
                if has(engine, name) {
                    columns.push((engine, name));
                }
            }
        }
        heading.extend(columns.iter().map(|(engine, name)| format!("{engine} {}", name.replace('_', " "))));
        let line = |size: &[String; 3]| {
            let of = |engine: &str| {
                let same = |row: &&&Vec<String>| {
                    field(row, "engine") == engine && ["n", "k", "d"].map(|name| field(row, name)) == *size
                };
                rows.iter().find(same)
            };
            let cells =
                columns.iter().map(|(engine, name)| of(engine).map_or_else(String::new, |row| cell(record, row, name)));
            size.iter().cloned().chain(cells).collect::<Vec<_>>()
        };
        let [sweep, covariance, precision] = &group;
        let words: Vec<&str> = [covariance.as_str(), precision].into_iter().filter(|word| !word.is_empty()).collect();
        out += &format!("\n**{sweep}**, {}, milliseconds\n", words.join(", "));
        out += &table(&heading, sizes.iter().map(line).collect());
    }
    out += &overtaking(record);
    Some(out)
}

/// A table of the sizes from which a GPU is faster than the CPU; empty unless the record is of products.
fn overtaking(record: &Stored) -> String {
    let square = |row: &Vec<String>| {
        let field = |name: &str| record.field(row, name);
        let [n, k, d] = ["n", "k", "d"].map(|name| field(name).and_then(|size| size.parse::<usize>().ok()));
        (field("what") == Some("product") && n == k && n == d).then_some(n).flatten()
    };
    let points: Vec<Point<'_>> = record
        .rows
        .iter()
        .filter_map(|row| {
            let ms = overtaking::columns().map(|name| record.field(row, name).and_then(|time| time.parse().ok()));
            let (engine, precision) = (record.field(row, "engine")?, record.field(row, "precision")?);
            Some(Point { engine, precision, n: square(row)?, ms })
        })
        .collect();
    let found = overtaking::of(&points);
    if found.is_empty() {
        return String::new();
    }
    let heading = ["on a GPU", "precision", "time", "faster than cpu from n", "cpu ms over it, at n"];
    let rows = found.into_iter().map(|one| {
        let from = one.from.map_or_else(|| "not at the largest".to_owned(), |n| n.to_string());
        vec![one.engine, one.precision, one.with.to_owned(), from, format!("{:.2}, {}", one.ratio, one.largest)]
    });
    let text = table(&heading.map(str::to_owned), rows.collect());
    format!("\n**Where a GPU overtakes the CPU**, square products, both as in the tables above\n{text}")
}

/// A time, with its status if that is not `ok`; only the status if there is no time.
fn cell(record: &Stored, row: &[String], name: &str) -> String {
    let value = record.field(row, name).unwrap_or_default();
    let text = value.parse::<f64>().map_or_else(|_| value.to_owned(), short);
    match (name, record.field(row, "status").unwrap_or_default()) {
        ("ms", "ok") | ("load_ms" | "resident_ms" | "device_ms" | "batch_ms" | "way", _) => text,
        ("ms", status) => format!("{text} {status}").trim().to_owned(),
        _ => text,
    }
}

/// Removes duplicates, keeping the order of first appearance.
fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::stored::Stored;
    use super::*;

    #[test]
    fn engines_stand_side_by_side_and_what_was_left_says_so() {
        let head = "sweep,engine,covariance,precision,n,k,d,status,ms,load_ms,device_ms,batch_ms,way";
        let rows = "n,cpu,full,f64,10,2,3,ok,1.23456,0.5,,,\nn,cuda:0,full,f64,10,2,3,ok,0.5,0.25,0.125,,fused\n\
                    n,cpu,full,f64,20,2,3,left,,,,,\n";
        let record = Stored::parse(&format!("# what: x\n{head}\n{rows}"), "x", "x.csv".to_owned()).unwrap();
        let text = tables(&record).unwrap();
        assert!(
            text.contains("| n | k | d | cpu ms | cpu load ms | cuda:0 ms | cuda:0 load ms | cuda:0 device ms"),
            "{text}"
        );
        assert!(text.contains("| 10 | 2 | 3 | 1.235 | 0.5000 | 0.5000 | 0.2500 | 0.1250 | fused |"), "{text}");
        assert!(text.contains("| 20 | 2 | 3 | left |"), "{text}");
        let other = Stored::parse("# what: x\na,b\n1,2\n", "x", "x.csv".to_owned()).unwrap();
        assert!(tables(&other).is_none());
    }

    #[test]
    fn of_products_the_page_says_where_the_gpu_overtakes() {
        let head = "what,sweep,engine,covariance,precision,n,k,d,status,ms,resident_ms,device_ms,batch_ms";
        let rows = "product,s,cpu,,f64,64,64,64,ok,1.0,,,\nproduct,s,cuda:0,,f64,64,64,64,ok,2.0,0.5,,\n\
                    product,s,cpu,,f64,128,128,128,ok,8.0,,,\nproduct,s,cuda:0,,f64,128,128,128,ok,4.0,0.5,,\n\
                    product,l,cuda:0,,f64,128,9,128,ok,4.0,0.5,,\n";
        let record = Stored::parse(&format!("# what: x\n{head}\n{rows}"), "x", "x.csv".to_owned()).unwrap();
        let text = tables(&record).unwrap();
        assert!(text.contains("**s**, f64, milliseconds"), "{text}");
        assert!(text.contains("| cuda:0 | f64 | with all transfers | 128 | 2.00, 128 |"), "{text}");
        assert!(text.contains("| cuda:0 | f64 | A resident | 64 | 16.00, 128 |"), "{text}");
    }
}
