//! The arguments of a command that is made from an operation, and the request that they describe.

use std::io::Read as _;

use anyhow::{Context as _, bail, ensure};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::document::{Body, Field, Kind, Operation};
use crate::resources::Verb;
use crate::table::now;

/// The longest body that is read from a file or from standard input, in bytes.
const MAX_BODY_BYTES: u64 = 64 << 20;
const INPUT: &str = "input";
/// The names of arguments begin with their place, so that a parameter and a field may have the same name.
const PATH: &str = "path:";
const FIELD: &str = "field:";
/// The fields of a range of time, and the flag for its length.
const RANGE: [&str; 2] = ["start", "end"];
const SINCE: &str = "since";
const DEFAULT_SINCE: &str = "1d";

/// The flags that every command has. The flag of a field with such a name begins with the verb, as `--check-url`.
const COMMON_FLAGS: [&str; 12] =
    ["all", "ca", "config", "context", INPUT, "insecure", "key", "key-file", "output", "to-file", "url", "watch"];

/// A request without its credential.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// The segments of the path.
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    /// The JSON body, or the fields of a form.
    pub(crate) body: Option<Map<String, Value>>,
}

/// Adds the arguments of an operation to its command.
pub(crate) fn add(mut command: Command, verb: &Verb, operation: &Operation) -> Command {
    for parameter in &operation.path_parameters {
        command = command.arg(path_argument(parameter, verb));
    }
    let (fields, has_json) = match &operation.body {
        Body::Json(fields) => (fields.as_slice(), true),
        Body::Form(fields) => (fields.as_slice(), false),
        Body::None | Body::Bytes => (&[][..], false),
    };
    let has_range = has_range(operation);
    for field in operation.query.iter().chain(fields) {
        let is_optional = has_range && RANGE.contains(&field.name.as_str());
        let field = Field { is_required: field.is_required && !is_optional, ..field.clone() };
        command = command.args(field_arguments(&field, verb, has_json));
    }
    if has_range {
        let help = "The time before --end, such as 30m, 12h or 7d, where --start is not given";
        command = command.arg(
            Arg::new(SINCE)
                .long(SINCE)
                .value_name("TIME")
                .value_parser(span)
                .default_value(DEFAULT_SINCE)
                .conflicts_with(format!("{FIELD}{}", RANGE[0]))
                .help(help),
        );
    }
    if has_json {
        let help = "The whole body as JSON, @FILE, or - for standard input; other flags replace its fields";
        command = command.arg(Arg::new(INPUT).long(INPUT).value_name("JSON").help(help));
    }
    command
}

fn path_argument(parameter: &str, verb: &Verb) -> Arg {
    let (value_name, help) = match parameter {
        "id_or_name" => ("ID|NAME", "The id or the name"),
        "id" => ("ID", "The id"),
        _ => ("ID", "The id of the part"),
    };
    let argument = Arg::new(format!("{PATH}{parameter}")).value_name(value_name).help(help).required(true);
    if verb.takes_several { argument.num_args(1..).action(ArgAction::Append) } else { argument }
}

/// Returns the arguments of a field: one, and one for each field of a simple object.
fn field_arguments(field: &Field, verb: &Verb, has_json: bool) -> Vec<Arg> {
    let mut all = vec![field_argument(&field.name, field, verb, has_json)];
    if let Kind::Object(parts) = &field.kind {
        let part = |part: &Field| Field { is_required: false, ..part.clone() };
        all.extend(
            parts
                .iter()
                .map(part)
                .map(|part| field_argument(&format!("{}.{}", field.name, part.name), &part, verb, has_json)),
        );
    }
    all
}

fn field_argument(name: &str, field: &Field, verb: &Verb, has_json: bool) -> Arg {
    let argument = Arg::new(format!("{FIELD}{name}")).help(help(field)).hide_possible_values(true);
    let is_positional = verb.positional.contains(&name);
    let long = flag(name);
    let is_common = COMMON_FLAGS.contains(&long.as_str());
    let long = if is_common { format!("{}-{long}", verb.name) } else { long };
    let argument = if is_positional { argument } else { argument.long(long) };
    let argument = if name == "tags" { argument.visible_alias("tag") } else { argument };
    let argument = match (field.is_required, has_json) {
        (true, true) => argument.required_unless_present(INPUT),
        (is_required, _) => argument.required(is_required),
    };
    match &field.kind {
        Kind::Boolean => argument
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(BoolishValueParser::new()),
        Kind::Integer if field.can_be_null => argument.value_name("N|none").value_parser(integer_or_none),
        Kind::Integer => argument.value_name("N").allow_negative_numbers(true).value_parser(clap::value_parser!(i64)),
        Kind::Number => argument.value_name("N").allow_negative_numbers(true).value_parser(clap::value_parser!(f64)),
        // An argument without a flag has no other name.
        Kind::Text if is_positional => argument.value_name(name.to_uppercase()),
        Kind::Text => argument.value_name("TEXT"),
        Kind::Texts => argument.value_name("TEXT").action(ArgAction::Append),
        Kind::TextMap => argument.value_name("NAME=VALUE").action(ArgAction::Append),
        Kind::Reference => argument.value_name("ID|NAME"),
        Kind::File => argument.value_name("FILE"),
        Kind::Object(parts) if is_reference(parts) => argument.value_name("ID|NAME"),
        Kind::Object(parts) if is_size(parts) => argument.value_name("WIDTHxHEIGHT"),
        Kind::Object(_) | Kind::Json => argument.value_name("JSON"),
    }
}

/// Returns the description of a field, with the choices that it does not name itself.
fn help(field: &Field) -> String {
    let unnamed = field.choices.iter().any(|choice| !field.description.contains(choice.as_str()));
    if unnamed { format!("{} [{}]", field.description, field.choices.join(", ")) } else { field.description.clone() }
}

/// Whether an object names a resource.
fn is_reference(parts: &[Field]) -> bool {
    parts.iter().any(|part| part.name == "id")
}

/// Whether an object is the size of a viewport.
fn is_size(parts: &[Field]) -> bool {
    ["width", "height"].iter().all(|side| parts.iter().any(|part| part.name == *side))
}

/// Whether an operation is about a range of time.
fn has_range(operation: &Operation) -> bool {
    let is_required = |name: &str| operation.query.iter().any(|field| field.name == name && field.is_required);
    RANGE.into_iter().all(is_required)
}

/// Reads a time such as `30m`.
fn span(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let seconds = match &text[number.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("must be as 90s, 30m, 12h or 7d".to_owned()),
    };
    let count: u32 = number.parse().map_err(|_| "must begin with a whole number".to_owned())?;
    Ok(Duration::seconds(i64::from(count) * seconds))
}

/// Returns the flag of a field.
fn flag(name: &str) -> String {
    name.replace('_', "-")
}

fn integer_or_none(text: &str) -> Result<String, String> {
    if text == "none" || text.parse::<i64>().is_ok() {
        return Ok(text.to_owned());
    }
    Err("must be an integer or none".to_owned())
}

/// Returns the requests of a command: one for each resource that it names.
///
/// # Errors
/// If an argument is not JSON, or names a file that cannot be read.
pub(crate) fn requests(matches: &ArgMatches, operation: &Operation) -> anyhow::Result<Vec<Request>> {
    let mut query =
        operation.query.iter().filter_map(|field| query_values(matches, field)).flatten().collect::<Vec<_>>();
    if has_range(operation) {
        complete_range(&mut query, matches.get_one::<Duration>(SINCE).copied().unwrap_or(Duration::DAY))?;
    }
    let body = match &operation.body {
        Body::Json(fields) => json_body(matches, operation, fields)?,
        Body::Form(fields) => Some(values(matches, fields)?),
        Body::None | Body::Bytes => None,
    };
    let request = |path| Request { path, query: query.clone(), body: body.clone() };
    Ok(paths(matches, operation).into_iter().map(request).collect())
}

/// Adds the bounds of a range of time that are not given: now, and the time before the end.
fn complete_range(query: &mut Vec<(String, String)>, since: Duration) -> anyhow::Result<()> {
    let given = |query: &[(String, String)], name: &str| query.iter().find(|(given, _)| given == name).cloned();
    let end = match given(query, RANGE[1]) {
        Some((_, end)) => OffsetDateTime::parse(&end, &Rfc3339).ok(),
        None => Some(now()),
    };
    // The server says what is wrong with a moment that is none.
    let Some(end) = end else { return Ok(()) };
    for (name, moment) in [(RANGE[0], end.checked_sub(since)), (RANGE[1], Some(end))] {
        if given(query, name).is_none() {
            let moment = moment.context("--since is too long")?;
            query.push((name.to_owned(), moment.format(&Rfc3339)?));
        }
    }
    Ok(())
}

/// Returns the paths of the named resources. Only the first parameter can have several values.
fn paths(matches: &ArgMatches, operation: &Operation) -> Vec<Vec<String>> {
    let values = |parameter: &str| {
        let found = matches.get_many::<String>(&format!("{PATH}{parameter}"));
        found.into_iter().flatten().cloned().collect::<Vec<_>>()
    };
    let several = operation.path_parameters.first().map_or_else(|| vec![String::new()], |first| values(first));
    let path = |first: String| {
        let segments = operation.path.trim_start_matches('/').split('/');
        let mut parameters = 0;
        segments
            .map(|segment| match segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) {
                None => segment.to_owned(),
                Some(name) => {
                    parameters += 1;
                    if parameters == 1 { first.clone() } else { values(name).pop().unwrap_or_default() }
                }
            })
            .collect()
    };
    several.into_iter().map(path).collect()
}

fn query_values(matches: &ArgMatches, field: &Field) -> Option<Vec<(String, String)>> {
    let id = format!("{FIELD}{}", field.name);
    let raw = match &field.kind {
        Kind::Boolean => vec![matches.get_one::<bool>(&id)?.to_string()],
        Kind::Integer if !field.can_be_null => vec![matches.get_one::<i64>(&id)?.to_string()],
        Kind::Number => vec![matches.get_one::<f64>(&id)?.to_string()],
        _ => matches.get_many::<String>(&id)?.cloned().collect(),
    };
    let named = |value: String| match (&field.kind, value.split_once('=')) {
        (Kind::TextMap, Some((name, value))) => (format!("{}[{name}]", field.name), value.to_owned()),
        _ => (field.name.clone(), value),
    };
    Some(raw.into_iter().map(named).collect())
}

/// Returns the JSON body; none for a `DELETE` without any field.
fn json_body(
    matches: &ArgMatches,
    operation: &Operation,
    fields: &[Field],
) -> anyhow::Result<Option<Map<String, Value>>> {
    let mut body = match matches.get_one::<String>(INPUT) {
        Some(text) => match serde_json::from_str(&read(text, "--input")?).context("--input is not JSON")? {
            Value::Object(body) => body,
            _ => bail!("--input must be a JSON object"),
        },
        None => Map::new(),
    };
    body.extend(values(matches, fields)?);
    Ok((!body.is_empty() || operation.method != http::Method::DELETE).then_some(body))
}

/// Returns the given fields of a body.
fn values(matches: &ArgMatches, fields: &[Field]) -> anyhow::Result<Map<String, Value>> {
    let mut values = Map::new();
    for field in fields {
        let mut value = value(matches, &field.name, field)?;
        if let Kind::Object(parts) = &field.kind {
            for part in parts {
                let Some(given) = self::value(matches, &format!("{}.{}", field.name, part.name), part)? else {
                    continue;
                };
                let object = value.get_or_insert_with(|| Value::Object(Map::new()));
                object
                    .as_object_mut()
                    .with_context(|| format!("--{} is no object", flag(&field.name)))?
                    .insert(part.name.clone(), given);
            }
        }
        values.extend(value.map(|value| (field.name.clone(), value)));
    }
    Ok(values)
}

fn value(matches: &ArgMatches, name: &str, field: &Field) -> anyhow::Result<Option<Value>> {
    let id = format!("{FIELD}{name}");
    if !matches.try_get_raw(&id).is_ok_and(|values| values.is_some()) {
        return Ok(None);
    }
    let text = || matches.get_one::<String>(&id).cloned().unwrap_or_default();
    let texts = || matches.get_many::<String>(&id).into_iter().flatten();
    let flag = format!("--{}", flag(name));
    Ok(Some(match &field.kind {
        Kind::Boolean => matches.get_one::<bool>(&id).copied().into(),
        Kind::Integer if field.can_be_null => text().parse::<i64>().ok().into(),
        Kind::Integer => matches.get_one::<i64>(&id).copied().into(),
        Kind::Number => matches.get_one::<f64>(&id).copied().into(),
        Kind::Text | Kind::File => text().into(),
        Kind::Texts => texts().cloned().collect::<Vec<_>>().into(),
        Kind::TextMap => {
            let pair = |text: &String| {
                let (name, value) = text.split_once('=').with_context(|| format!("{flag} must be as NAME=VALUE"))?;
                anyhow::Ok((name.to_owned(), Value::from(value)))
            };
            Value::Object(texts().map(pair).collect::<anyhow::Result<_>>()?)
        }
        Kind::Reference => reference(&text(), &flag)?,
        Kind::Object(parts) if is_reference(parts) => reference(&text(), &flag)?,
        Kind::Object(parts) if is_size(parts) && !text().starts_with(['{', '@', '-']) => size(&text(), &flag)?,
        Kind::Object(_) | Kind::Json => json(&text(), &flag)?,
    }))
}

/// Returns a reference to a resource: an id, a name, or JSON.
fn reference(text: &str, flag: &str) -> anyhow::Result<Value> {
    if text.starts_with(['{', '@']) {
        return json(text, flag);
    }
    let key = if ulid::Ulid::from_string(text).is_ok() { "id" } else { "name" };
    Ok(serde_json::json!({ key: text }))
}

/// Returns a size from `WIDTHxHEIGHT`, with `@` and a refresh rate behind it if the text has one.
fn size(text: &str, flag: &str) -> anyhow::Result<Value> {
    let (sides, rate) = text.split_once('@').map_or((text, None), |(sides, rate)| (sides, Some(rate)));
    let read = |(width, height): (&str, &str)| Some((width.parse::<u32>().ok()?, height.parse::<u32>().ok()?));
    let wrong = || format!("{flag} must be as 1280x800 or 1280x800@25, or JSON");
    let (width, height) = sides.split_once('x').and_then(read).with_context(wrong)?;
    let mut size = serde_json::json!({ "width": width, "height": height });
    if let Some(rate) = rate {
        size["refresh_rate"] = rate.parse::<u32>().with_context(wrong)?.into();
    }
    Ok(size)
}

/// Parses a value as `NAME=VALUE`.
pub(crate) fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn json(text: &str, flag: &str) -> anyhow::Result<Value> {
    serde_json::from_str(&read(text, flag)?).with_context(|| format!("{flag} is not JSON"))
}

/// Returns the value of a flag: the text itself, the content of `@FILE`, or standard input for `-`.
///
/// # Errors
/// The file cannot be read, or its content is too long.
pub fn read(text: &str, flag: &str) -> anyhow::Result<String> {
    let mut content = String::new();
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::File::open(path)
            .and_then(|file| file.take(MAX_BODY_BYTES + 1).read_to_string(&mut content))
            .with_context(|| format!("{flag}: cannot read {path}"))?,
        None if text == "-" => std::io::stdin()
            .take(MAX_BODY_BYTES + 1)
            .read_to_string(&mut content)
            .with_context(|| format!("{flag}: cannot read standard input"))?,
        None => return Ok(text.to_owned()),
    };
    ensure!(read as u64 <= MAX_BODY_BYTES, "{flag}: the content is longer than {} MiB", MAX_BODY_BYTES >> 20);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewport_is_written_as_people_write_it() {
        let read = |text| size(text, "--viewport").ok();
        assert_eq!(read("1280x800"), Some(serde_json::json!({ "width": 1280, "height": 800 })));
        assert_eq!(read("1280x800@25"), Some(serde_json::json!({ "width": 1280, "height": 800, "refresh_rate": 25 })));
        for wrong in ["1280", "1280x", "axb", "1280x800@", "-1x2"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(span("90m"), Ok(Duration::minutes(90)));
        assert_eq!(span("7d"), Ok(Duration::days(7)));
        assert!(["", "5", "h", "1w", "-1h", "99999999999d"].into_iter().all(|wrong| span(wrong).is_err()));
    }

    #[test]
    fn the_bounds_of_a_range_that_are_missing_are_added() {
        let given = |name: &str, at: &str| (name.to_owned(), at.to_owned());
        let mut query = vec![given("end", "2026-01-02T00:00:00Z")];
        complete_range(&mut query, Duration::HOUR).expect("a range");
        assert_eq!(query[1], given("start", "2026-01-01T23:00:00Z"));
        let mut both = vec![given("start", "2026-01-01T00:00:00Z"), given("end", "2026-01-02T00:00:00Z")];
        complete_range(&mut both, Duration::HOUR).expect("a range");
        assert_eq!(both.len(), 2);
    }
}
