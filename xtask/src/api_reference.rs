//! Writes the API reference of `docs/api` from the OpenAPI document: a page for each resource, with tables of
//! parameters, fields and responses, and examples for curl, Python and JavaScript.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::api_example::{self, Example};

/// The methods in the order in which a page shows the operations of a path.
const METHODS: [&str; 5] = ["post", "get", "patch", "put", "delete"];

/// An operation of the document.
pub(crate) struct Operation<'a> {
    pub(crate) id: &'a str,
    pub(crate) method: String,
    pub(crate) path: &'a str,
    pub(crate) value: &'a Value,
}

impl Operation<'_> {
    /// Returns the content type and the schema of the body.
    pub(crate) fn body(&self) -> Option<(&str, &Value)> {
        first_content(&self.value["requestBody"])
    }

    /// Returns the content type and the schema of the first response that is a success with a body.
    pub(crate) fn success(&self) -> Option<(&str, &Value)> {
        let responses = self.value["responses"].as_object()?;
        responses.iter().filter(|(status, _)| status.starts_with('2')).find_map(|(_, response)| first_content(response))
    }
}

fn first_content(value: &Value) -> Option<(&str, &Value)> {
    let (content_type, content) = value["content"].as_object()?.iter().next()?;
    Some((content_type, &content["schema"]))
}

/// Returns all operations, ordered by path and method.
pub(crate) fn operations(document: &Value) -> Result<Vec<Operation<'_>>> {
    let paths = document["paths"].as_object().context("the document has no paths")?;
    let mut operations = Vec::new();
    for (path, methods) in paths {
        for method in METHODS {
            let Some(value) = methods.get(method) else { continue };
            let id = value["operationId"].as_str().with_context(|| format!("{method} {path} has no operationId"))?;
            operations.push(Operation { id, method: method.to_uppercase(), path, value });
        }
    }
    Ok(operations)
}

/// Returns the files of the reference by their names in `docs/api`.
pub(crate) fn pages(document: &Value) -> Result<BTreeMap<String, String>> {
    let samples = api_example::samples()?;
    let mut by_tag: BTreeMap<&str, Vec<Operation>> = BTreeMap::new();
    let operations = operations(document)?;
    let count = operations.len();
    for operation in operations {
        // The tag is part of the document, which lives longer than the operation.
        let tag = operation.value["tags"][0].as_str().unwrap_or("Other");
        by_tag.entry(tag).or_default().push(operation);
    }
    let mut index = format!("# API reference\n\n{}\n\n{count} operations:\n", api_example::INTRODUCTION.trim());
    let mut pages = BTreeMap::new();
    for (tag, operations) in &by_tag {
        let name = format!("{}.md", tag.to_lowercase().replace(' ', "-"));
        index.push_str(&format!("\n## {tag}\n\n| operation | | |\n| --- | --- | --- |\n"));
        for Operation { id, method, path, value } in operations {
            let summary = cell(&value["summary"]);
            index.push_str(&format!("| [`{id}`]({name}#{id}) | `{method} {path}` | {summary} |\n"));
        }
        pages.insert(name, page(document, tag, operations, &samples)?);
    }
    pages.insert("README.md".to_owned(), index);
    Ok(pages)
}

fn page(document: &Value, tag: &str, operations: &[Operation], samples: &Value) -> Result<String> {
    let mut page = format!(
        "# {tag}\n\nGenerated from [openapi.json](../openapi.json). [API reference](README.md) has the lines with which the \
         examples begin.\n"
    );
    let mut records = BTreeSet::new();
    for operation in operations {
        section(&mut page, document, operation, samples)?;
        let schema = operation.success().map(|(_, schema)| schema);
        records.extend(schema.and_then(record_name));
    }
    if !records.is_empty() {
        page.push_str("\n## Records\n");
    }
    for name in records {
        let schema = &document["components"]["schemas"][name];
        page.push_str(&format!("\n### {name}\n"));
        paragraph(&mut page, &schema["description"]);
        field_table(&mut page, document, schema);
    }
    Ok(page)
}

/// Returns the name of the schema of a record, or of a list of records.
fn record_name(schema: &Value) -> Option<&str> {
    let event = &schema["properties"]["data"]["contentSchema"];
    let reference = [schema, &schema["items"], event].into_iter().find_map(|schema| schema["$ref"].as_str())?;
    reference.rsplit('/').next()
}

fn section(page: &mut String, document: &Value, operation: &Operation, samples: &Value) -> Result<()> {
    let Operation { id, method, path, value } = operation;
    page.push_str(&format!("\n## {id}\n"));
    paragraph(page, &value["summary"]);
    paragraph(page, &value["description"]);
    page.push_str(&format!("\n`{method} {path}`"));
    if let Some(client) = samples[id]["client"].as_str() {
        page.push_str(&format!(" – Python client: `client.{client}`"));
    }
    if value["deprecated"] == true {
        page.push_str(" – deprecated");
    }
    page.push('\n');
    parameter_table(page, operation);
    if let Some((content_type, schema)) = operation.body() {
        let optional = if value["requestBody"]["required"] == true { "" } else { ", optional" };
        page.push_str(&format!("\nBody (`{content_type}`{optional}):\n"));
        field_table(page, document, schema);
    }
    response_table(page, value);
    let example = Example::of(operation, &samples[id])?;
    let languages = [("sh", example.curl()), ("python", example.python()), ("js", example.javascript())];
    for (language, code) in languages {
        page.push_str(&format!("\n```{language}\n{code}\n```\n"));
    }
    Ok(())
}

fn paragraph(page: &mut String, text: &Value) {
    if let Some(text) = text.as_str() {
        page.push_str(&format!("\n{}\n", text.trim()));
    }
}

/// Returns a text as the cell of a table, without what the column `required` says.
fn cell(text: &Value) -> String {
    let text = text.as_str().unwrap_or_default().trim_end_matches(" Required.");
    text.replace('\n', " ").replace('|', "\\|")
}

fn yes(required: bool) -> &'static str {
    if required { "yes" } else { "" }
}

fn parameter_table(page: &mut String, operation: &Operation) {
    let parameters = operation.value["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    if parameters.is_empty() {
        return;
    }
    page.push_str("\n| parameter | in | type | required | meaning |\n| --- | --- | --- | --- | --- |\n");
    for parameter in parameters {
        let (name, place) = (cell(&parameter["name"]), cell(&parameter["in"]));
        let (kind, required) = (type_name(&parameter["schema"]), yes(parameter["required"] == true));
        let described = cell(&parameter["description"]);
        let meaning = if described.is_empty() { path_meaning(operation.path, &name) } else { described };
        page.push_str(&format!("| `{name}` | {place} | {kind} | {required} | {meaning} |\n"));
    }
}

/// Returns what a placeholder of a path stands for, which the document does not say.
fn path_meaning(path: &str, name: &str) -> String {
    let before = path.split(&format!("/{{{name}}}")).next().unwrap_or_default();
    let resource = api_example::singular(before.rsplit('/').next().unwrap_or_default()).replace('_', " ");
    let what = if name == "id_or_name" { "id or the name" } else { "id" };
    format!("The {what} of the {resource}.")
}

fn response_table(page: &mut String, operation: &Value) {
    page.push_str("\n| status | meaning | body |\n| --- | --- | --- |\n");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let body = match first_content(response) {
            None => String::new(),
            Some(("application/json", schema)) => match record_name(schema) {
                Some("ErrorBody") => "[error](../errors.md)".to_owned(),
                Some("WebDriverError") => "[error of WebDriver](../errors.md#errors-for-webdriver-clients)".to_owned(),
                Some(name) if schema["type"] == "array" => format!("list of [{name}](#{})", name.to_lowercase()),
                Some(name) => format!("[{name}](#{})", name.to_lowercase()),
                None => type_name(schema),
            },
            Some((content_type, _)) => format!("`{content_type}`"),
        };
        page.push_str(&format!("| {status} | {} | {body} |\n", cell(&response["description"])));
    }
}

fn field_table(page: &mut String, document: &Value, schema: &Value) {
    let mut rows = String::new();
    add_rows(&mut rows, document, schema, "", &mut Vec::new());
    if !rows.is_empty() {
        page.push_str(&format!("\n| field | type | required | meaning |\n| --- | --- | --- | --- |\n{rows}"));
    }
}

/// Adds a row for each field. Fields of objects have a point before their names, those of items of lists `[].`. `open`
/// holds the schemas around this one, so that one that contains itself ends.
fn add_rows<'a>(rows: &mut String, document: &'a Value, schema: &'a Value, prefix: &str, open: &mut Vec<&'a Value>) {
    let schema = resolved(document, schema);
    if open.iter().any(|outer| std::ptr::eq(*outer, schema)) {
        return;
    }
    open.push(schema);
    for part in schema["allOf"].as_array().into_iter().flatten() {
        add_rows(rows, document, part, prefix, open);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let required = yes(schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name)));
        let (kind, meaning) = (type_name(resolved(document, field)), cell(description(document, field)));
        rows.push_str(&format!("| `{path}` | {kind} | {required} | {meaning} |\n"));
        let inner = resolved(document, field);
        if inner["type"] == "array" || inner["type"][0] == "array" {
            add_rows(rows, document, &inner["items"], &format!("{path}[]."), open);
        } else {
            add_rows(rows, document, inner, &format!("{path}."), open);
        }
    }
    open.pop();
}

/// Returns the description of a field: its own, or that of the schema that it names.
fn description<'a>(document: &'a Value, field: &'a Value) -> &'a Value {
    let own = [&field["description"], &field["oneOf"][0]["description"]];
    own.into_iter().find(|text| text.is_string()).unwrap_or(&resolved(document, field)["description"])
}

/// Returns the schema behind references and behind the choice between a schema and null.
pub(crate) fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return resolved(document, &document["components"]["schemas"][name]);
    }
    let choices = schema["oneOf"].as_array().map_or(&[][..], Vec::as_slice);
    match choices.iter().find(|choice| choice["type"] != "null") {
        Some(choice) if choices.len() == 2 => resolved(document, choice),
        _ => schema,
    }
}

/// Returns the type of a schema in words.
fn type_name(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|value| match value.as_str() {
                Some("") => "empty".to_owned(),
                text => format!("`{}`", text.unwrap_or("null")),
            })
            .collect::<Vec<_>>()
            .join(", ");
    }
    let kinds = schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), Vec::as_slice);
    let kind = kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null");
    match kind {
        Some("array") => format!("list of {}s", schema["items"]["type"].as_str().unwrap_or("object")),
        Some("string") if schema["format"] == "binary" => "bytes".to_owned(),
        Some("string") if schema["format"].is_string() => cell(&schema["format"]),
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}
