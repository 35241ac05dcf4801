//! Decides from a schema which fields are read, and into which type.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value as Json;

use crate::error::Fault;
use crate::memory::Limit;
use crate::table::find_columns;
use crate::{DataWarning, Location, Problem, ReadOptions, Table};

/// The fields to read and the type to read them into, decided from the schema before any data are read.
pub(super) struct Plan {
    /// Index in the file's schema of each field of the table, in the table's order.
    pub(super) fields: Vec<usize>,
    pub(super) names: Vec<String>,
    /// Number of table columns of each field, if the schema determines it: a field of lists has one for each element.
    pub(super) widths: Vec<Option<usize>>,
    /// Whether the table is `f32`.
    pub(super) single: bool,
    /// The selected columns, if single elements of lists are among them.
    chosen: Option<Vec<Pick>>,
    pub(super) warnings: Vec<DataWarning>,
    /// How much memory the table may take.
    pub(super) limit: Limit,
    /// Whether nulls are read as NaN.
    pub(super) missing: bool,
}

/// A column of the table, or all columns of a field.
enum Pick {
    Column(String),
    Field(usize),
}

impl Plan {
    /// # Errors
    /// If a selected column does not exist or does not hold numbers.
    pub(super) fn new(schema: &Schema, options: &ReadOptions) -> Result<Self, Fault> {
        let all: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
        let index = pandas_index(schema);
        let mut usual: Vec<_> = (0..all.len()).filter(|&i| !index.contains(&all[i])).collect();
        if usual.is_empty() {
            // If the index is all there is, it is data.
            usual = (0..all.len()).collect();
        }
        let (fields, chosen) = choose(schema, &all, usual, options)?;
        // A name that pandas generated for an index needs no warning: no user takes it for a feature.
        let left_out = |name: &&String| !name.starts_with("__index_level_") && all.contains(name);
        let warned = options.columns.is_none() && fields.len() < all.len();
        let warnings = index.iter().filter(left_out).filter(|_| warned).map(|name| {
            let name = crate::error::one_line(name);
            DataWarning::new(format!("column '{name}' is a pandas index, left out: name it in --columns to read it"))
        });
        let warnings = warnings.collect();
        if let (Some(_), Some(&last)) = (&options.last, fields.last())
            && element(schema.field(last).data_type()) != schema.field(last).data_type()
        {
            return Err(not_numeric(last, schema.field(last), &[]));
        }
        for &i in &fields {
            if !is_readable(schema.field(i).data_type()) {
                let others = schema.fields().iter().filter(|f| is_readable(f.data_type()));
                return Err(not_numeric(i, schema.field(i), &others.map(|f| f.name().clone()).collect::<Vec<_>>()));
            }
        }
        let kinds = || fields.iter().map(|&i| schema.field(i).data_type());
        let single =
            !fields.is_empty() && kinds().all(|kind| matches!(element(kind), DataType::Float16 | DataType::Float32));
        let widths = kinds().map(|kind| match kind {
            DataType::FixedSizeList(_, width) => usize::try_from(*width).ok(),
            DataType::List(_) | DataType::LargeList(_) => None,
            _ => Some(1),
        });
        let widths: Vec<Option<usize>> = widths.collect();
        if let Some(i) = widths.iter().position(|width| width.is_some_and(|width| width > WIDEST)) {
            let field = schema.field(fields[i]);
            let why = format!("it has lists of more than {WIDEST} numbers");
            let problem = Problem::Type { dtype: crate::error::one_line(&field.data_type().to_string()), why };
            let place = Location { column: Some(fields[i]), name: Some(field.name().clone()), ..Location::default() };
            return Err(Fault { place: Box::new(place), problem });
        }
        let (widths, names) = (widths, fields.iter().map(|&i| all[i].clone()).collect());
        let (limit, missing) = (options.limit(), options.missing);
        Ok(Self { fields, names, widths, single, chosen, warnings, limit, missing })
    }

    /// The same fields in the file's order, which is the order in which a projecting reader returns them.
    pub(super) fn projection(&self) -> Vec<usize> {
        let mut sorted = self.fields.clone();
        sorted.sort_unstable();
        sorted
    }

    /// Position in a projected batch of each field of the table.
    pub(super) fn positions(&self) -> Vec<usize> {
        let projection = self.projection();
        self.fields.iter().map(|c| projection.binary_search(c).expect("the projection holds it")).collect()
    }

    /// Selects the requested columns from those that were read.
    pub(super) fn pick(&self, table: Table) -> Result<Table, Fault> {
        let Some(chosen) = &self.chosen else { return Ok(table) };
        let names = table.names.clone().unwrap_or_default();
        let mut words = Vec::new();
        for pick in chosen {
            match pick {
                Pick::Column(name) => words.push(name.clone()),
                Pick::Field(field) => {
                    let name = &self.names[*field];
                    let element = |n: &&String| n.strip_prefix(name).is_some_and(|rest| rest.starts_with('['));
                    words.extend(names.iter().filter(|n| *n == name || element(n)).cloned());
                }
            }
        }
        let indices = table.indices(&words).map_err(Problem::from)?;
        Ok(table.keep(&indices, self.limit)?)
    }

    pub(super) fn fault(&self, field: usize, row: Option<usize>, problem: Problem) -> Fault {
        let name = Some(self.names[field].clone());
        let place =
            Location { row: row.map(|r| r as u64), column: Some(self.fields[field]), name, ..Location::default() };
        Fault { place: Box::new(place), problem }
    }
}

/// Maximum length of a list: each element becomes a named column, and no fit has this many.
const WIDEST: usize = 1 << 20;

/// Returns the fields to read, and the columns to select from them if single list elements are requested: `emb[3]` is
/// an element of the lists in `emb`, unless a column has that name.
fn choose(
    schema: &Schema,
    all: &[String],
    usual: Vec<usize>,
    options: &ReadOptions,
) -> Result<(Vec<usize>, Option<Vec<Pick>>), Fault> {
    let list = |name: &String| {
        let field = name.strip_suffix(']')?.rsplit_once('[').filter(|_| !all.contains(name))?.0;
        let is_list = |i: &usize| element(schema.field(*i).data_type()) != schema.field(*i).data_type();
        all.iter().position(|name| name == field).filter(is_list)
    };
    let wanted = options.columns.as_deref().unwrap_or_default();
    if !wanted.iter().any(|name| list(name).is_some()) {
        return Ok((options.choose(Some(all), all.len(), usual).map_err(Problem::from)?, None));
    }
    let (mut fields, mut picks) = (Vec::new(), Vec::new());
    for name in wanted.iter().chain(&options.last) {
        let found = match list(name) {
            Some(field) => vec![field],
            None => find_columns(&[name], Some(all), all.len()).map_err(Problem::from)?,
        };
        for field in found {
            if !fields.contains(&field) {
                fields.push(field);
            }
            let position = fields.iter().position(|&f| f == field).unwrap_or(0);
            picks.push(if list(name).is_some() { Pick::Column(name.clone()) } else { Pick::Field(position) });
        }
    }
    Ok((fields, Some(picks)))
}

/// The columns in which pandas stores a table's row labels, which are not features. (pandas stores no column for the
/// default labels 0, 1, ..)
fn pandas_index(schema: &Schema) -> Vec<String> {
    let described = schema.metadata().get("pandas").and_then(|text| serde_json::from_str::<Json>(text).ok());
    let columns = described.as_ref().and_then(|described| described.get("index_columns")?.as_array());
    columns.into_iter().flatten().filter_map(|column| column.as_str().map(str::to_owned)).collect()
}

/// Whether a type holds one number per row.
pub(super) fn is_number(kind: &DataType) -> bool {
    kind.is_integer() || kind.is_floating() || kind.is_decimal() || *kind == DataType::Boolean
}

fn is_readable(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_number(values),
        kind => is_number(element(kind)),
    }
}

/// The element type of a list type; any other type unchanged.
fn element(kind: &DataType) -> &DataType {
    match kind {
        DataType::FixedSizeList(child, _) | DataType::List(child) | DataType::LargeList(child) => child.data_type(),
        kind => kind,
    }
}

fn not_numeric(column: usize, field: &Field, others: &[String]) -> Fault {
    let others = if others.is_empty() {
        "no column of the file holds numbers".to_owned()
    } else {
        let shown = others.iter().take(40).map(|n| crate::error::one_line(n)).collect::<Vec<_>>().join(",");
        format!("it does not hold numbers; select columns that do: {shown}")
    };
    let problem = Problem::Type { dtype: crate::error::one_line(&field.data_type().to_string()), why: others };
    let place = Location { column: Some(column), name: Some(field.name().clone()), ..Location::default() };
    Fault { place: Box::new(place), problem }
}

/// The schema of a table to be written, all columns of type `kind`.
pub(super) fn schema(names: &[String], kind: &DataType) -> Arc<Schema> {
    Arc::new(Schema::new(names.iter().map(|name| Field::new(name, kind.clone(), false)).collect::<Vec<_>>()))
}
