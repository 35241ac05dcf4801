//! Figures published by others: `benches/published/*.toml`. They are shown with their source; ours are never judged by
//! them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::Shape;

/// A publication.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What was published.
    pub title: String,
    /// Authors, place of publication, year.
    pub source: String,
    /// Web address, or `none`.
    pub url: String,
    /// The hardware that it used.
    pub hardware: String,
    /// The name of the definition that repeats its sizes.
    pub definition: String,
    /// Whether its figures can be compared with ours directly.
    pub comparable: bool,
    /// Why they can, or cannot.
    pub why: String,
    /// Information that the source does not give, if any.
    #[serde(default)]
    pub missing: Option<String>,
    /// The figures; empty if the source has only pictures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it measures, in the source's words as far as they fit on a line.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit: `ms`, `s`, or `times`.
    pub unit: String,
    /// Rows, if the source states the size.
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
    /// The size, if the source states all of it.
    pub fn shape(&self) -> Option<Shape> {
        Some(Shape { n: self.n?, k: self.k?, d: self.d? })
    }
}

/// Reads all publications in a folder, ordered by file name.
///
/// # Errors
/// If a file cannot be read or parsed, lacks its source, hardware or reason, or has neither figures nor a statement of
/// what is missing.
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
    ensure!(!figures.is_empty() || missing.is_some(), "no figures, and 'missing' does not say why");
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
