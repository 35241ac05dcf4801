//! Models of the groups of a table, in one JSON file.
//!
//! ```json
//! {"format": "gmm-models", "version": 1, "by": "species", "groups": [
//!   {"group": "setosa", "model": {"format": "gmm-model", ..}},
//!   {"group": "virginica", "error": "3 components for 2 rows"}]}
//! ```

use std::io::Write;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::parts::Fields;
use super::{Content, ModelFile, check_columns, content, json};
use crate::error::Fault;
use crate::labels::GroupLabel;
use crate::{FileError, Problem, atomic};

/// The value of the `format` field that identifies a file with models of groups.
pub const MODELS_FORMAT: &str = "gmm-models";

/// The models of the groups of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupModels {
    /// The column whose values are the groups; `None` if each column of the table was fitted alone: the groups are then
    /// the columns.
    pub by: Option<String>,
    /// Each group and its model, or why it has none. No two have the same label.
    pub groups: Vec<(GroupLabel, Result<ModelFile, String>)>,
}

impl GroupModels {
    /// The model of a group; `None` if there is no such group.
    pub fn get(&self, label: &GroupLabel) -> Option<&Result<ModelFile, String>> {
        self.groups.iter().find(|(group, _)| group == label).map(|(_, model)| model)
    }
}

/// What a file with one model or with the models of groups contains.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelOrGroups {
    /// One model.
    Model(Box<ModelFile>),
    /// Models of groups.
    Groups(GroupModels),
}

/// Reads a model, or the models of groups, from bytes that are called `name` in errors.
///
/// # Errors
/// As [`read_model_bytes`](crate::read_model_bytes), with the index of the group.
pub fn read_model_or_groups(bytes: &[u8], name: &str) -> Result<ModelOrGroups, FileError> {
    parse(bytes).map_err(|fault| fault.in_named(name))
}

/// Writes the models of groups as JSON. Equal models give equal bytes.
///
/// # Errors
/// [`FileError`] if the extension is not json, if a model is invalid, or from the system; the file appears whole or not
/// at all.
pub fn write_group_models(path: impl AsRef<Path>, models: &GroupModels) -> Result<(), FileError> {
    let path = path.as_ref();
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("json")) {
        let extension = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
        return Err(Fault::from(Problem::Extension { extension, choices: "json" }).in_file(path));
    }
    let text = group_models_to_json(models)?;
    atomic::stage(path, |out| out.write_all(text.as_bytes()).map_err(|e| Fault::from(e).in_file(path)))?.publish()
}

/// The JSON text of the models of groups, as [`write_group_models`] writes it.
///
/// # Errors
/// [`FileError`] if a model is invalid.
pub fn group_models_to_json(models: &GroupModels) -> Result<String, FileError> {
    let mut out = format!("{{\n\"format\": \"{MODELS_FORMAT}\",\n\"version\": {VERSION},\n");
    out += &format!("\"by\": {},\n\"groups\": [", serde_json::Value::from(models.by.clone()));
    for (i, (group, model)) in models.groups.iter().enumerate() {
        let label = serde_json::to_string(group).expect("a number or text");
        out += if i == 0 { "\n" } else { ",\n" };
        match model {
            Ok(model) => {
                check_columns(model).map_err(|fault| fault.in_named(&format!("<model of group {group}>")))?;
                out += &format!("{{\"group\": {label}, \"model\": {}}}", json::to_string(model).trim_end());
            }
            Err(error) => out += &format!("{{\"group\": {label}, \"error\": {}}}", serde_json::Value::from(&**error)),
        }
    }
    Ok(out + "\n]}\n")
}

/// The version that this program writes; the latest that it can read.
const VERSION: u64 = 1;

#[derive(Deserialize)]
struct Entry<'a> {
    group: GroupLabel,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    error: Option<String>,
}

fn parse(bytes: &[u8]) -> Result<ModelOrGroups, Fault> {
    let text = match content(bytes)? {
        Content::Json(text) => text,
        Content::Safetensors(_) | Content::Kaldi(_) => return Ok(ModelOrGroups::Model(Box::new(super::parse(bytes)?))),
    };
    let Ok(text) = std::str::from_utf8(text) else { return Ok(ModelOrGroups::Model(Box::new(super::parse(bytes)?))) };
    if !Fields::has_format(text, MODELS_FORMAT) {
        return Ok(ModelOrGroups::Model(Box::new(json::parse(text.as_bytes())?)));
    }
    let fields = Fields::parse_as(text, (MODELS_FORMAT, VERSION))?;
    let by: Option<String> = fields.optional("by")?;
    let raw: &RawValue = fields.raw("groups")?;
    let wrong = |why: String| Fault::field("groups", Problem::Field(why));
    let entries: Vec<Entry<'_>> = serde_json::from_str(raw.get()).map_err(|e| wrong(e.to_string()))?;
    let mut groups: Vec<(GroupLabel, Result<ModelFile, String>)> = Vec::with_capacity(entries.len());
    for (i, Entry { group, model, error }) in entries.into_iter().enumerate() {
        let model = match (model, error) {
            (Some(model), None) => Ok(json::parse(model.get().as_bytes()).map_err(|mut fault| {
                let field = fault.place.field.take().map(|field| format!(".model.{field}")).unwrap_or_default();
                fault.place.field = Some(format!("groups[{i}]{field}"));
                fault
            })?),
            (None, Some(error)) => Err(error),
            _ => return Err(wrong(format!("entry {i} must have either a model or an error"))),
        };
        groups.push((group, model));
    }
    let mut labels: Vec<&GroupLabel> = groups.iter().map(|(group, _)| group).collect();
    labels.sort_unstable();
    if let Some(pair) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(wrong(format!("two entries have the group {}", pair[0])));
    }
    Ok(ModelOrGroups::Groups(GroupModels { by, groups }))
}
