//! Prints records as a table, JSON or YAML.

use std::io::Write as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::table::{self, Column};
use crate::terminal;
use crate::text::{json_without_controls, without_controls};

/// The format of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people: the important fields of a list, all fields of one record, shortened to the width of the terminal
    #[default]
    Table,
    /// As `table`, with more columns and nothing shortened
    Wide,
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

impl Format {
    /// Returns whether people read the format.
    pub(crate) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Returns records in the format. `columns` are those of the table of a list.
///
/// # Errors
/// If a record cannot be written as YAML.
pub(crate) fn formatted(value: &Value, format: Format, columns: &[Column]) -> anyhow::Result<String> {
    let is_wide = format == Format::Wide;
    Ok(match (format, value) {
        (Format::Json, _) => json_without_controls(&serde_json::to_string_pretty(value)?),
        (Format::Yaml, _) => {
            let yaml = serde_saphyr::to_string(value).context("the record cannot be written as YAML")?;
            yaml.lines().map(without_controls).collect::<Vec<_>>().join("\n")
        }
        (_, Value::Array(records)) if records.is_empty() => String::new(),
        (_, Value::Array(records)) => table::list(records, columns, is_wide, width()),
        (_, Value::Object(_)) => table::record(value, is_wide, width()),
        (_, other) => table::cell(other),
    })
}

/// Returns the width of the terminal, or the one that the variable `COLUMNS` states; `None` for neither.
fn width() -> Option<usize> {
    let stated = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width > 0);
    terminal::size().map(|(columns, _)| columns.into()).or_else(stated)
}

/// Whoever reads standard output has closed it, as `head` does: the command ends without a word.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
pub struct ClosedOutput;

/// Writes a text to standard output, with a line end.
///
/// # Errors
/// [`ClosedOutput`], or if standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    write_out(format!("{text}\n").as_bytes())
}

/// Writes bytes to standard output.
///
/// # Errors
/// [`ClosedOutput`], or if standard output cannot be written.
pub fn write_out(bytes: &[u8]) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(ClosedOutput.into()),
        written => written.context("standard output cannot be written"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_format_prints_control_characters() {
        let hostile = json!({ "name": "a\u{1b}[2J\r\nb" });
        for format in [Format::Table, Format::Wide, Format::Json, Format::Yaml] {
            let printed = formatted(&hostile, format, &[]).expect("a text");
            assert!(!printed.contains(['\u{1b}', '\r']), "{format:?}: {printed:?}");
        }
    }
}
