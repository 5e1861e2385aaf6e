//! Prints records as a table, JSON or YAML.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use crate::text::{json_without_controls, without_controls};

/// The number of columns of a list whose columns are not known.
const MAX_GUESSED_COLUMNS: usize = 6;
/// The longest text in a cell, in characters.
const MAX_CELL_CHARS: usize = 60;

/// The format of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people: the important fields of a list, all fields of one record
    #[default]
    Table,
    /// All fields as JSON
    Json,
    /// All fields as YAML
    Yaml,
}

#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    /// The format of records
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// Returns records in the format. `columns` are the fields that the table of a list shows.
///
/// # Errors
/// If a record cannot be written as YAML.
pub(crate) fn formatted(value: &Value, format: Format, columns: &[&str]) -> anyhow::Result<String> {
    Ok(match (format, value) {
        (Format::Json, _) => json_without_controls(&serde_json::to_string_pretty(value)?),
        (Format::Yaml, _) => {
            let yaml = serde_saphyr::to_string(value).context("the record cannot be written as YAML")?;
            yaml.lines().map(without_controls).collect::<Vec<_>>().join("\n")
        }
        (Format::Table, Value::Array(records)) => list(records, columns),
        (Format::Table, Value::Object(fields)) => {
            let mut table = table();
            for (name, field) in fields {
                table.add_row([name.clone(), cell(field, usize::MAX)]);
            }
            aligned(&table)
        }
        (Format::Table, other) => cell(other, usize::MAX),
    })
}

/// Writes a text to standard output, with a line end.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn list(records: &[Value], columns: &[&str]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let is_simple = |value: &Value| !value.is_object() && !value.is_array();
    let guessed = || {
        let simple = first.as_object().into_iter().flatten().filter(|(_, value)| is_simple(value));
        simple.map(|(name, _)| name.as_str()).take(MAX_GUESSED_COLUMNS).collect()
    };
    let is_known = columns.first().is_some_and(|column| !member(first, column).is_null());
    let columns: Vec<&str> = if is_known { columns.to_vec() } else { guessed() };
    let mut table = table();
    table.add_row(columns.iter().map(|column| title(column)));
    for record in records {
        table.add_row(columns.iter().map(|column| cell(member(record, column), MAX_CELL_CHARS)));
    }
    aligned(&table)
}

/// Returns the title of a column: the last part of its path, but the one before for a name, such as that of a pool.
fn title(column: &str) -> String {
    let path = column.strip_suffix(".name").unwrap_or(column);
    path.rsplit('.').next().unwrap_or(path).to_uppercase()
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn aligned(table: &Table) -> String {
    let lines = table.lines().map(|line| line.trim().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a field by its path, with points between the names.
fn member<'a>(record: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(record, |value, name| &value[name])
}

fn cell(value: &Value, max_chars: usize) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            items.iter().map(|item| cell(item, max_chars)).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    let text = without_controls(&text).replace('\t', " ");
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Format, formatted};

    fn table(value: &serde_json::Value, columns: &[&str]) -> String {
        formatted(value, Format::Table, columns).expect("a table")
    }

    #[test]
    fn a_list_shows_its_columns_and_one_record_shows_all_fields() {
        let pool = json!({ "id": "1", "name": "fast", "config": { "size": 2 }, "x": null });
        assert_eq!(table(&json!([pool]), &["name", "config.size"]), "NAME  SIZE\nfast  2");
        let session = json!({ "id": "1", "name": "a", "pool": { "name": "fast" } });
        assert_eq!(table(&json!([session]), &["name", "pool.name"]), "NAME  POOL\na     fast");
        assert_eq!(table(&pool, &["name"]), "config  {\"size\":2}\nid      1\nname    fast\nx       -");
        assert_eq!(table(&json!([]), &["name"]), "");
    }

    #[test]
    fn a_list_of_unknown_records_shows_simple_fields() {
        assert_eq!(table(&json!([{ "a": 1, "b": {}, "c": "x" }]), &["name"]), "A  C\n1  x");
    }

    #[test]
    fn no_format_prints_control_characters() {
        let hostile = json!({ "name": "a\u{1b}[2J\r\nb" });
        for format in [Format::Table, Format::Json, Format::Yaml] {
            let printed = formatted(&hostile, format, &[]).expect("a text");
            assert!(!printed.contains(['\u{1b}', '\r']), "{format:?}: {printed:?}");
        }
    }
}
