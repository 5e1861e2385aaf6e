//! Tests that the examples of the API reference are accepted by the OpenAPI document, and that the committed pages are
//! generated from it.

use std::fs;

use serde_json::Value;

use crate::api_reference::{self, Operation, resolved};
use crate::{api_example, openapi, workspace};

fn document() -> Value {
    let text = fs::read_to_string(workspace::root().join("docs/openapi.json")).expect("there is an OpenAPI document");
    serde_json::from_str(&text).expect("the document is JSON")
}

/// Calls the check with each operation and its sample, and fails with all objections.
fn assert_each(check: impl Fn(&Value, &Operation, &Value) -> Vec<String>) {
    let (document, samples) = (document(), api_example::samples().expect("valid samples"));
    let operations = api_reference::operations(&document).expect("operations");
    assert!(operations.len() > 100, "{} operations: is the document read rightly?", operations.len());
    let objections = operations.iter().flat_map(|operation| {
        let found = check(&document, operation, &samples[operation.id]);
        found.into_iter().map(|objection| format!("{}: {objection}", operation.id))
    });
    let objections: Vec<_> = objections.collect();
    assert!(objections.is_empty(), "\n{}\n", objections.join("\n"));
}

#[test]
fn every_sample_body_is_accepted_by_the_schema_of_its_operation() {
    assert_each(|document, operation, sample| match operation.body() {
        None if sample.get("body").or(sample.get("form")).or(sample.get("file")).is_some() => {
            vec!["it takes no body".to_owned()]
        }
        None => Vec::new(),
        Some(("application/json", _)) if sample.get("body").is_none() => {
            vec!["add a body to xtask/src/api_samples.json".to_owned()]
        }
        Some(("application/json", schema)) => objections(document, schema, &sample["body"], "body"),
        Some(("multipart/form-data", schema)) => form_objections(document, schema, &sample["form"]),
        Some(_) if sample["file"].is_string() => Vec::new(),
        Some((content_type, _)) => vec![format!("there is no sample of {content_type}")],
    });
}

#[test]
fn every_sample_query_has_the_required_parameters_and_only_known_ones() {
    assert_each(|document, operation, sample| {
        let parameters = operation.value["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let in_query = || parameters.iter().filter(|parameter| parameter["in"] == "query");
        let given = |name: &Value| name.as_str().map_or(&Value::Null, |name| &sample["query"][name]);
        let required = in_query().filter(|parameter| parameter["required"] == true);
        let missing = required.filter(|parameter| given(&parameter["name"]).is_null());
        let mut found: Vec<_> = missing.map(|parameter| format!("{} is missing", parameter["name"])).collect();
        for (name, value) in sample["query"].as_object().into_iter().flatten() {
            match in_query().find(|parameter| parameter["name"] == name.as_str()) {
                None => found.push(format!("there is no parameter {name}")),
                Some(parameter) => found.extend(objections(document, &parameter["schema"], value, name)),
            }
        }
        found
    });
}

#[test]
fn the_samples_are_of_declared_operations_and_need_no_quotation_in_a_shell() {
    let document = document();
    let operations = api_reference::operations(&document).expect("operations");
    let samples = api_example::samples().expect("valid samples");
    for (id, sample) in samples.as_object().expect("an object") {
        assert!(operations.iter().any(|operation| operation.id == id), "api_samples.json: there is no operation {id}");
        assert!(!sample.to_string().contains('\''), "api_samples.json: {id} has a single quote");
    }
}

#[test]
fn the_committed_api_reference_is_generated_from_the_committed_document() {
    for (name, generated) in openapi::reference_files(&document()).expect("the reference") {
        let committed = fs::read_to_string(workspace::root().join(&name)).unwrap_or_default();
        assert!(committed == generated, "{name} is not what the document gives: run `cargo xtask openapi`");
    }
}

/// Returns what the schema objects to in a value.
fn objections(document: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let schema = resolved(document, schema);
    let parts: Vec<&Value> = match schema["allOf"].as_array() {
        Some(parts) => parts.iter().map(|part| resolved(document, part)).collect(),
        None => vec![schema],
    };
    let mut found = Vec::new();
    for required in parts.iter().flat_map(|part| part["required"].as_array().into_iter().flatten()) {
        if required.as_str().is_some_and(|name| value.get(name).is_none()) {
            found.push(format!("{place} has no {required}"));
        }
    }
    let kinds = schema["type"].as_array().map_or(std::slice::from_ref(&schema["type"]), Vec::as_slice);
    let fits = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => true,
    };
    if !kinds.iter().any(fits) || schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        found.push(format!("{place} is {value}"));
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let declared = parts.iter().find_map(|part| part["properties"].get(name));
        match declared.or_else(|| parts.iter().find_map(|part| part.get("additionalProperties"))) {
            Some(declared) => found.extend(objections(document, declared, inner, &format!("{place}.{name}"))),
            None => found.push(format!("{place} has no field {name}")),
        }
    }
    let items = value.as_array().into_iter().flatten().enumerate();
    found.extend(items.flat_map(|(at, item)| objections(document, &schema["items"], item, &format!("{place}[{at}]"))));
    found
}

/// Returns what the schema objects to in the names of a form. A part is a field, or `list[][field]` of a list.
fn form_objections(document: &Value, schema: &Value, form: &Value) -> Vec<String> {
    let schema = resolved(document, schema);
    let names: Vec<&str> = form.as_array().into_iter().flatten().filter_map(|part| part[0].as_str()).collect();
    let is_known = |name: &str| match name.split_once("[][") {
        _ if schema["properties"].get(name).is_some() => true,
        Some((list, field)) => {
            let items = resolved(document, &schema["properties"][list]["items"]);
            items["properties"].get(field.trim_end_matches(']')).is_some()
        }
        None => false,
    };
    let mut found: Vec<_> = names.iter().filter(|name| !is_known(name)).map(|name| format!("no part {name}")).collect();
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !names.iter().any(|name| name.starts_with(required)) {
            found.push(format!("the part {required} is missing"));
        }
    }
    if names.is_empty() {
        found.push("there is no sample of the form".to_owned());
    }
    found
}
