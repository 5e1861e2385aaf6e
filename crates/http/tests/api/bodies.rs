//! The operations accept the request bodies as documented.

use casement_domain::{
    audit_destination::AuditExportOffer,
    testing::{invocation, session},
};
use pretty_assertions::assert_eq;
use serde_json::Value;

use super::support::{Ports, TestApi};

/// An operation with a JSON body.
struct Operation {
    method: String,
    path: String,
    needs_body: bool,
    /// The required fields, in the order of the body.
    required_fields: Vec<String>,
}

/// Returns the fields that a schema requires.
fn required(document: &Value, schema: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let own = list(&schema["required"]).into_iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let below = schema["$ref"].as_str().and_then(|reference| document.pointer(reference.trim_start_matches('#')));
    let parts = below.cloned().into_iter().chain(list(&schema["allOf"]));
    parts.fold(own, |found, part| [found, required(document, &part)].concat())
}

fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let body = &operation["requestBody"];
            let Some(schema) = body.pointer("/content/application~1json/schema") else { continue };
            let names = [("{id_or_name}", "x"), ("{id}", "00000000000000000000000001")];
            let path = names.iter().fold(path.clone(), |path, (name, value)| path.replace(name, value));
            found.push(Operation {
                method: method.to_uppercase(),
                path: path.replace("{process_id}", "00000000000000000000000001"),
                needs_body: body["required"].as_bool().unwrap_or(false),
                required_fields: required(&document, schema),
            });
        }
    }
    assert!(found.len() >= 45, "{}", found.len());
    found
}

/// Returns a body without the fields that are always required.
fn nothing_of(path: &str) -> &'static str {
    match path {
        // Without a type, the proxy counts as one of the caller's own, which requires an address.
        "/proxies" => r#"{"config": {"host": "proxy.example", "port": 1}}"#,
        _ => "{}",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_fields_that_are_documented_as_required_are_required() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.invocations.expect_find().returning(|_, _| Ok(Some(invocation(1))));
    // Without an offer, the whole operation is refused.
    ports.audit_offer = Some(AuditExportOffer { buckets: Vec::new(), role: String::new() });
    let api = TestApi::start(ports);
    let mut wrong = Vec::new();
    for Operation { method, path, needs_body, required_fields } in operations() {
        assert!(needs_body || required_fields.is_empty(), "{method} {path} needs {required_fields:?} of no body");
        let reply = api.call(&method, &path, nothing_of(&path)).await;
        // Operations without required fields call a port, which has no expectations here.
        let details = if reply.status == 400 { reply.details() } else { Vec::new() };
        let missed = details.iter().filter_map(|one| one.strip_prefix("required: ")?.strip_suffix(": is required"));
        if !missed.clone().eq(&required_fields) {
            wrong.push(format!("{method} {path} is said to need {required_fields:?}: {reply}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
