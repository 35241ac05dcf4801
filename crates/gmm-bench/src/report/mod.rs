//! Makes one page of all records: `docs/BENCHMARKS.md`. It contains only data from records and publications.

mod pivot;
mod stored;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use self::stored::Stored;
use crate::Definition;
use crate::definition::BUILT_IN;
use crate::published::Published;

const HEAD: &str = "\
<!-- Written by `cargo xtask bench report` from benches/record and benches/published: change those. -->

# Benchmarks

Every figure comes from the record that its section names, made on the machine in the heading. Answers were checked before
anything was timed; a row without a time gives the reason. [benches/README.md](../benches/README.md) explains the columns and
how to make a record of your own machine; `gmm bench` times one on the spot. If there are several records of a kind, the newest
is shown.
";

/// Columns that the page shows for records other than those of `gmm bench`. They are shown in the record's order.
const SHOWN: [&str; 32] = [
    "what",
    "workload",
    "sweep",
    "series",
    "precision",
    "covariance",
    "n",
    "k",
    "d",
    "iterations",
    "status",
    "verdict",
    "ms",
    "best_ms",
    "read_ms",
    "fit_ms",
    "memory_of_matrix",
    "goal_ms",
    "floor_ms",
    "floor_share",
    "peer_ms",
    "python_ms",
    "ratio",
    "ratio_min",
    "ratio_max",
    "sklearn_ms",
    "batch_ms",
    "gradient_ms",
    "ceiling_share",
    "clock",
    "way",
    "note",
];

/// Makes the page from a folder of records (`MACHINE/*.csv`) and the publications of others.
///
/// # Errors
/// If a record cannot be read.
pub fn page(records: &Path, published: &[Published]) -> Result<String> {
    let machines = stored::read_all(records)?;
    let mut page = HEAD.to_owned();
    definitions(&mut page, &machines)?;
    for (machine, all) in &machines {
        let _ = write!(page, "\n## {machine}\n");
        for (newest, older) in stored::by_kind(all) {
            section(&mut page, machine, newest, &older);
        }
    }
    others(&mut page, published, &machines);
    Ok(page)
}

/// Writes the section on what `gmm bench` runs, and which machines have records of it.
fn definitions(page: &mut String, machines: &[(String, Vec<Stored>)]) -> Result<()> {
    let mut rows = Vec::new();
    for (name, _) in BUILT_IN {
        let (_, definition) = Definition::open(name)?;
        let sizes: usize = definition.sweeps.iter().map(|sweep| sweep.shapes().len()).sum();
        let kinds = definition.precisions.len() * definition.covariances.len().max(1);
        let of = machines.iter().filter(|(_, all)| all.iter().any(|record| record.kind == name));
        let of: Vec<String> = of.map(|(machine, _)| format!("[{machine}](#{machine})")).collect();
        let of = if of.is_empty() { "none yet".to_owned() } else { of.join(" ") };
        let link = format!("[{name}](../benches/definitions/{name}.toml)");
        let who = [&definition.engines[..], &definition.peers[..]].concat().join(" ");
        rows.push(vec![link, definition.title, format!("{sizes} × {kinds}"), who, of]);
    }
    let _ = write!(page, "\n## What `gmm bench` runs\n");
    let heading = ["definition", "what", "sizes × kinds and precisions", "engines and peers", "records"];
    page.push_str(&table(&heading.map(str::to_owned), rows));
    Ok(())
}

/// Writes the section of one record: its facts, its tables, and links to older records.
fn section(page: &mut String, machine: &str, record: &Stored, older: &[&Stored]) {
    let link = |record: &Stored| format!("[{0}](../benches/record/{machine}/{0})", record.file);
    let _ = write!(page, "\n### {}: {}\n\n{}", record.kind, record.title(), link(record));
    for fact in ["date", "commit", "processor", "gpu", "driver", "threads", "ours", "peer", "ceiling after"] {
        if let Some(value) = record.fact(fact) {
            let _ = write!(page, " · {fact} {value}");
        }
    }
    for (name, value) in record.facts.iter().filter(|(name, _)| name.starts_with("engine") || name.starts_with("peer "))
    {
        let _ = write!(page, " · {name}: {value}");
    }
    page.push('\n');
    for (_, note) in record.facts.iter().filter(|(name, _)| name == "note") {
        let _ = write!(page, "\n- {note}");
    }
    if record.facts.iter().any(|(name, _)| name == "note") {
        page.push('\n');
    }
    match pivot::tables(record) {
        Some(tables) => page.push_str(&tables),
        None => page.push_str(&plain(record)),
    }
    if !older.is_empty() {
        let links: Vec<String> = older.iter().map(|record| link(record)).collect();
        let _ = write!(page, "\nEarlier: {}\n", links.join(", "));
    }
}

/// The record's rows as a table, reduced to the columns in [`SHOWN`] that are not empty.
fn plain(record: &Stored) -> String {
    let filled = |at: &usize| record.rows.iter().any(|row| row.get(*at).is_some_and(|cell| !cell.is_empty()));
    let shown: Vec<usize> =
        (0..record.columns.len()).filter(|at| SHOWN.contains(&record.columns[*at].as_str())).filter(filled).collect();
    let heading: Vec<String> = shown.iter().map(|at| record.columns[*at].clone()).collect();
    let rows = record.rows.iter().map(|row| shown.iter().map(|at| row.get(*at).cloned().unwrap_or_default()).collect());
    table(&heading, rows.collect())
}

/// A Markdown table, preceded by an empty line.
fn table(heading: &[String], rows: Vec<Vec<String>>) -> String {
    let mut text = format!("\n| {} |\n|{}\n", heading.join(" | "), "---|".repeat(heading.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "/")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Writes the section on figures published by others, each with links to our records of the same definition.
fn others(page: &mut String, published: &[Published], machines: &[(String, Vec<Stored>)]) {
    let _ = write!(
        page,
        "\n## Published by others\n\nData with a source, not measured here. For figures that cannot be compared with ours directly, the reason is given.\n"
    );
    for Published { title, source, url, hardware, definition, comparable, why, missing, figures } in published {
        let place = if url == "none" { source.clone() } else { format!("[{source}]({url})") };
        let _ = write!(page, "\n### {title}\n\n{place}\n\n- Hardware: {hardware}\n");
        let word = if *comparable { "Comparable" } else { "Not comparable" };
        let _ = writeln!(page, "- {word}: {why}");
        if let Some(missing) = missing {
            let _ = writeln!(page, "- Not found: {missing}");
        }
        let ours: Vec<String> = machines
            .iter()
            .flat_map(|(machine, all)| all.iter().map(move |record| (machine, record)))
            .filter(|(_, record)| record.kind == *definition)
            .map(|(machine, record)| format!("[{machine}](../benches/record/{machine}/{})", record.file))
            .collect();
        let ours = if ours.is_empty() { "no record yet".to_owned() } else { ours.join(", ") };
        let _ = writeln!(page, "- Ours: `gmm bench {definition}`, {ours}");
        if !figures.is_empty() {
            let size = |v: Option<usize>| v.map_or_else(String::new, |v| v.to_string());
            let rows = figures
                .iter()
                .map(|f| vec![f.what.clone(), size(f.n), size(f.k), size(f.d), format!("{} {}", f.value, f.unit)]);
            let heading = ["published", "n", "k", "d", "figure"].map(str::to_owned);
            page.push_str(&table(&heading, rows.collect()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_newest_record_of_a_kind_and_names_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path().join("machine");
        std::fs::create_dir(&machine).unwrap();
        let record = |name: &str, ms: &str| {
            let text =
                format!("# what: milliseconds; see x\n# date: 2026-01-02\nprecision,n,ms,error\nf64,10,{ms},1e-9\n");
            std::fs::write(machine.join(name), text).unwrap();
        };
        record("2026-01-02-cpu-9.csv", "9.25");
        record("2026-01-02-cpu-10.csv", "10.25");
        record("2026-01-01-cpu.csv", "1.25");
        let page = page(folder.path(), &[]).unwrap();
        for (name, _) in BUILT_IN {
            assert!(page.contains(&format!("| [{name}](../benches/definitions/{name}.toml) |")), "{page}");
        }
        assert!(page.contains("| f64 | 10 | 10.25 |") && !page.contains("9.25"), "{page}");
        assert!(page.contains("Earlier: [2026-01-02-cpu-9.csv]") && !page.contains("1e-9"), "{page}");
    }
}
