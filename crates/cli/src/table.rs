//! Tables of records: the columns of a list, and their width on a terminal.

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::text::{self, without_controls};

/// The longest text in a cell of a list, in characters, unless everything is asked for.
const MAX_CELL_CHARS: usize = 60;
/// The fewest characters to which a cell is shortened.
const MIN_CELL_CHARS: usize = 8;
/// The characters between two columns.
const GAP: usize = 2;

/// A column of a list.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// The paths of the fields, of which the first present one is shown. A point leads into an object.
    pub(crate) paths: &'static [&'static str],
    pub(crate) kind: ColumnKind,
    /// True if only `-o wide` shows the column.
    pub(crate) is_wide: bool,
}

/// How a column shows its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// As it is; may be shortened.
    Text,
    /// As it is, never shortened: an id, a state.
    Whole,
    /// A moment as the time since then, or until then.
    Age,
    /// A moment to the second.
    Moment,
    /// A number of bytes.
    Bytes,
    /// `active`, or the reason of a session's end.
    SessionState,
}

impl Column {
    const fn new(title: &'static str, paths: &'static [&'static str], kind: ColumnKind) -> Self {
        Self { title, paths, kind, is_wide: false }
    }

    /// Returns the column as one that only `-o wide` shows.
    pub(crate) const fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    fn cell(&self, record: &Value, now: OffsetDateTime) -> String {
        let found = self.paths.iter().map(|path| member(record, path)).find(|value| !value.is_null());
        let value = found.unwrap_or(&Value::Null);
        match self.kind {
            ColumnKind::Text | ColumnKind::Whole => cell(value),
            ColumnKind::Age => moment(value).map_or_else(|| cell(value), |at| age(now - at)),
            ColumnKind::Moment => moment(value).map_or_else(|| cell(value), to_seconds),
            ColumnKind::Bytes => value.as_u64().map_or_else(|| cell(value), bytes),
            ColumnKind::SessionState => session_state(record),
        }
    }
}

/// A column whose cells may be shortened.
pub(crate) const fn text(title: &'static str, paths: &'static [&'static str]) -> Column {
    Column::new(title, paths, ColumnKind::Text)
}

/// A column whose cells are always whole.
pub(crate) const fn whole(title: &'static str, paths: &'static [&'static str]) -> Column {
    Column::new(title, paths, ColumnKind::Whole)
}

/// A column of times since a moment.
pub(crate) const fn since(title: &'static str, paths: &'static [&'static str]) -> Column {
    Column::new(title, paths, ColumnKind::Age)
}

/// A column of moments.
pub(crate) const fn at(paths: &'static [&'static str]) -> Column {
    Column::new("TIME", paths, ColumnKind::Moment)
}

/// A column of numbers of bytes.
pub(crate) const fn size(paths: &'static [&'static str]) -> Column {
    Column::new("SIZE", paths, ColumnKind::Bytes)
}

/// The column of the states of sessions.
pub(crate) const SESSION_STATE: Column = Column::new("STATUS", &["end_reason"], ColumnKind::SessionState);

/// Returns the table of a list. On a terminal of `width` characters, cells are shortened until it fits, unless `is_wide`.
pub(crate) fn list(records: &[Value], columns: &[Column], is_wide: bool, width: Option<usize>) -> String {
    let now = now();
    let columns: Vec<&Column> = columns.iter().filter(|column| is_wide || !column.is_wide).collect();
    let row = |record| columns.iter().map(|column| column.cell(record, now)).collect::<Vec<_>>();
    let mut rows: Vec<Vec<String>> = records.iter().map(row).collect();
    if !is_wide {
        let shortens = |index: usize| columns[index].kind == ColumnKind::Text;
        let mut widths = widths(&rows, columns.iter().map(|column| column.title));
        fit(&mut widths, shortens, width);
        for cells in &mut rows {
            for (index, cell) in cells.iter_mut().enumerate().filter(|(index, _)| shortens(*index)) {
                *cell = shortened(cell, widths[index]);
            }
        }
    }
    let mut table = table();
    table.add_row(columns.iter().map(|column| column.title));
    for cells in rows {
        table.add_row(cells);
    }
    aligned(&table)
}

/// Returns the fields of one record, those of an object below its name. Long values are shortened, unless `is_wide`.
pub(crate) fn record(value: &Value, is_wide: bool, width: Option<usize>) -> String {
    let mut rows = Vec::new();
    add_fields(&mut rows, "", value);
    let names = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let room = width.unwrap_or(2 * MAX_CELL_CHARS).saturating_sub(names + GAP).max(MAX_CELL_CHARS / 2);
    let mut table = table();
    for (name, cell) in rows {
        table.add_row([name, if is_wide { cell } else { shortened(&cell, room) }]);
    }
    aligned(&table)
}

fn add_fields(rows: &mut Vec<(String, String)>, prefix: &str, value: &Value) {
    for (name, field) in value.as_object().into_iter().flatten() {
        let name = without_controls(&format!("{prefix}{name}"));
        match field {
            Value::Object(fields) if !fields.is_empty() => add_fields(rows, &format!("{name}."), field),
            _ => rows.push((name, cell(field))),
        }
    }
}

/// Returns the widths that the columns need, at most [`MAX_CELL_CHARS`].
fn widths<'a>(rows: &[Vec<String>], titles: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let of = |(index, title): (usize, &str)| {
        let cells = rows.iter().map(|cells| cells[index].chars().count());
        cells.max().unwrap_or_default().min(MAX_CELL_CHARS).max(title.chars().count())
    };
    titles.enumerate().map(of).collect()
}

/// Makes the widest columns that can be shortened narrower, until all fit into `width`.
fn fit(widths: &mut [usize], shortens: impl Fn(usize) -> bool, width: Option<usize>) {
    let Some(width) = width else { return };
    while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > width {
        let can_shorten = widths.iter_mut().enumerate().filter(|(index, _)| shortens(*index)).map(|(_, width)| width);
        match can_shorten.filter(|width| **width > MIN_CELL_CHARS).max() {
            Some(widest) => *widest -= 1,
            None => return,
        }
    }
}

fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars.saturating_sub(1)) {
        Some((at, _)) if text.chars().count() > max_chars => format!("{}…", &text[..at]),
        _ => text.to_owned(),
    }
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

/// Returns a field by its path, with points between the names. Of the items of a list, the fields.
fn member<'a>(record: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(record, |value, name| &value[name])
}

/// Returns a value as one line.
pub(crate) fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) if items.iter().all(|item| !item.is_array()) => {
            items.iter().map(named).collect::<Vec<_>>().join(",")
        }
        Value::Object(fields) if fields.values().all(Value::is_string) => {
            let pair = |(name, value): (&String, &Value)| format!("{name}={}", cell(value));
            fields.iter().map(pair).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    without_controls(&text).replace('\t', " ")
}

/// Returns an item of a list: the name of an object that has one.
fn named(item: &Value) -> String {
    match item["name"].as_str() {
        Some(name) => without_controls(name),
        None if item.is_object() => item.to_string(),
        None => cell(item),
    }
}

/// Returns the time of this machine.
#[expect(clippy::disallowed_methods, reason = "the command of a person has no other clock")]
pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Returns the time since a moment; `None` if the value is none.
pub(crate) fn cell_since(value: &Value) -> Option<String> {
    moment(value).map(|at| age(now() - at))
}

/// Returns a moment, also from microseconds.
fn moment(value: &Value) -> Option<OffsetDateTime> {
    match value {
        Value::Number(microseconds) => {
            OffsetDateTime::from_unix_timestamp_nanos(i128::from(microseconds.as_i64()?) * 1000).ok()
        }
        value => OffsetDateTime::parse(value.as_str()?, &Rfc3339).ok(),
    }
}

fn to_seconds(at: OffsetDateTime) -> String {
    let at = at.replace_nanosecond(0).unwrap_or(at);
    at.format(&Rfc3339).unwrap_or_default()
}

/// Returns a time in its largest unit that says enough; `in …` for one that is to come.
pub(crate) fn age(since: Duration) -> String {
    if since.whole_seconds() < 0 {
        return format!("in {}", age(-since));
    }
    match (since.whole_seconds(), since.whole_minutes(), since.whole_hours(), since.whole_days()) {
        (seconds, ..) if seconds < 120 => format!("{seconds}s"),
        (_, minutes, ..) if minutes < 120 => format!("{minutes}m"),
        (_, _, hours, _) if hours < 48 => format!("{hours}h"),
        (_, _, _, days) => format!("{days}d"),
    }
}

/// Returns `active`, or the reason of the session's end.
fn session_state(session: &Value) -> String {
    match (text::text(session, "end_reason"), session["deleted_at"].is_null()) {
        ("", true) => "active".to_owned(),
        ("", false) => "ended".to_owned(),
        (reason, _) => without_controls(reason),
    }
}

fn bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use serde_json::json;

    use super::*;

    const COLUMNS: &[Column] = &[
        text("NAME", &["name"]),
        whole("ID", &["id"]),
        text("POOL", &["pool.name", "pool.id"]),
        text("X", &["x"]).wide(),
    ];

    #[test]
    fn a_list_shows_its_columns_and_one_record_shows_all_fields() {
        let session = json!({ "id": "1", "name": "a", "pool": { "name": "fast" }, "x": null });
        assert_eq!(list(from_ref(&session), COLUMNS, false, None), "NAME  ID  POOL\na     1   fast");
        assert_eq!(list(from_ref(&session), COLUMNS, true, None), "NAME  ID  POOL  X\na     1   fast  -");
        assert_eq!(record(&session, false, None), "id         1\nname       a\npool.name  fast\nx          -");
    }

    #[test]
    fn texts_are_shortened_until_a_list_fits_and_ids_never_are() {
        let record = json!({ "id": "01m8kfmvhqrjmte0cpqtp52177", "name": "n".repeat(80), "pool": { "id": "p" } });
        let printed = list(from_ref(&record), COLUMNS, false, Some(50));
        assert!(printed.lines().all(|line| line.chars().count() <= 50), "{printed}");
        assert!(printed.contains("01m8kfmvhqrjmte0cpqtp52177") && printed.contains("n…"), "{printed}");
        assert!(list(&[record], COLUMNS, true, Some(50)).contains(&"n".repeat(80)));
    }

    #[test]
    fn a_long_value_of_a_record_is_shortened_in_a_narrow_table() {
        let value = json!({ "url": "u".repeat(300) });
        assert!(record(&value, false, Some(80)).chars().count() <= 80);
        assert_eq!(record(&value, true, Some(80)).chars().count(), 305);
    }

    #[test]
    fn times_have_one_unit() {
        for (seconds, shown) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d"), (-300, "in 5m")]
        {
            assert_eq!(age(Duration::seconds(seconds)), shown);
        }
    }

    #[test]
    fn lists_and_objects_in_a_cell_are_readable() {
        assert_eq!(cell(&json!([{ "name": "a" }, { "name": "b" }])), "a,b");
        assert_eq!(cell(&json!({ "team": "x", "job": "y" })), "job=y,team=x");
        assert_eq!(cell(&json!([])), "-");
    }
}
