//! Figures that others published: `benches/published/*.toml`. They are data with a source, and never judge ours.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::Shape;

/// One source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What was published.
    pub title: String,
    /// Authors, place, year.
    pub source: String,
    /// Where it can be read.
    pub url: String,
    /// What it ran on.
    pub hardware: String,
    /// The definition that repeats its sizes.
    pub definition: String,
    /// Whether its figures may be held against ours as they stand.
    pub comparable: bool,
    /// Why, or why not.
    pub why: String,
    /// What was looked for and not found, if anything was.
    #[serde(default)]
    pub missing: Option<String>,
    /// Figures; none where the source gives pictures alone.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it tells, in the source's words as far as they fit a line.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit: `ms`, `s`, or `times`.
    pub unit: String,
    /// Rows, where the source tells the size.
    #[serde(default)]
    pub n: Option<usize>,
    /// Components.
    #[serde(default)]
    pub k: Option<usize>,
    /// Dimensions.
    #[serde(default)]
    pub d: Option<usize>,
}

impl Figure {
    /// The size, where all of it is told.
    pub fn shape(&self) -> Option<Shape> {
        Some(Shape { n: self.n?, k: self.k?, d: self.d? })
    }
}

/// Reads all sources of a folder, by file name.
///
/// # Errors
/// Where one cannot be read, or claims figures without telling why they may or may not be compared.
pub fn read(folder: &Path) -> Result<Vec<Published>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    let one = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&text).with_context(|| format!("in {}", path.display()))
    };
    paths.iter().map(one).collect()
}

fn parse(text: &str) -> Result<Published> {
    let published: Published = toml::from_str(text)?;
    let Published { source, url, hardware, why, figures, missing, .. } = &published;
    ensure!([source, url, hardware, why].iter().all(|text| !text.trim().is_empty()), "a figure needs its source");
    ensure!(!figures.is_empty() || missing.is_some(), "no figures, and not a word on what is missing");
    ensure!(figures.iter().all(|f| ["ms", "s", "times"].contains(&f.unit.as_str())), "units are ms, s or times");
    Ok(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_here_has_its_source_and_a_definition() {
        let all = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/published")).unwrap();
        assert!(!all.is_empty());
        for published in all {
            assert!(crate::Definition::open(&published.definition).is_ok(), "{}", published.title);
        }
    }

    #[test]
    fn a_figure_without_a_source_is_refused() {
        let text = |source: &str, rest: &str| {
            format!(
                "title = 't'\nsource = '{source}'\nurl = 'u'\nhardware = 'h'\ndefinition = 'likelihood-sweep'\n\
                 comparable = false\nwhy = 'w'\n{rest}"
            )
        };
        let figure = "[[figure]]\nwhat = 'a'\nvalue = 1.0\nunit = 'ms'\n";
        assert!(parse(&text("s", figure)).is_ok());
        assert!(parse(&text(" ", figure)).is_err() && parse(&text("s", "")).is_err());
        assert!(parse(&text("s", &figure.replace("ms", "parsecs"))).is_err());
    }
}
