//! The OpenAPI document and the table of operations, both generated from the declared operations. The program serves
//! the committed ones.

mod bounds;
mod links;

use std::{collections::BTreeMap, fmt::Write as _};

use actix_web::http::Method;
use serde_json::{Map, Value, json};
use utoipa::{
    OpenApi, PartialSchema, ToSchema as _,
    openapi::{
        self, HttpMethod, RefOr, Required, Schema, SecurityRequirement,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use crate::{
    error::{ErrorBody, WebDriverBody},
    operation::{Operation, Requirement},
    permissions, resources,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Casement", description = "Cloud browsers on a host of your own.", license(name = "MIT OR Apache-2.0")),
    security(("api_key" = [])),
)]
struct Document;

type SchemaMap = BTreeMap<String, RefOr<Schema>>;

fn document() -> openapi::OpenApi {
    let mut document = Document::openapi();
    let mut key = Http::new(HttpAuthScheme::Bearer);
    key.description = Some("An API key: `csk_…`".to_owned());
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("api_key", SecurityScheme::Http(key));
    let mut schemas = vec![(ErrorBody::name().into_owned(), ErrorBody::schema())];
    ErrorBody::schemas(&mut schemas);
    schemas.push((WebDriverBody::name().into_owned(), WebDriverBody::schema()));
    WebDriverBody::schemas(&mut schemas);
    let operations = resources::operations();
    operations.all.iter().flat_map(|operation| &operation.description.schemas).for_each(|add| add(&mut schemas));
    components.schemas.extend(schemas);
    for mut operation in operations.all {
        operation.add_implied_refusals();
        let mut described = operation.description.operation;
        if operation.requirement == Requirement::None {
            described.security = Some(vec![SecurityRequirement::default()]);
        }
        if let Some(RefOr::T(body)) = &mut described.request_body {
            let mut schemas = body.content.values().filter_map(|content| match content {
                RefOr::T(content) => content.schema.as_ref(),
                RefOr::Ref(_) => None,
            });
            let is_required = operation.description.is_body_required
                || schemas.any(|schema| is_required(schema, &components.schemas));
            body.required = is_required.then_some(Required::True);
        }
        document.paths.add_path_operation(operation.path, vec![http_method(&operation.method)], described);
    }
    document
}

fn http_method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

/// Returns whether a body of this schema must be sent. No body means the same as `{}`, so a body with only optional
/// fields may be absent.
fn is_required(schema: &RefOr<Schema>, schemas: &SchemaMap) -> bool {
    let RefOr::Ref(reference) = schema else { return true };
    let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
    matches!(schemas.get(name), Some(RefOr::T(Schema::Object(object))) if !object.required.is_empty())
}

/// Adds the bounds of fields and parameters.
fn bound(document: &mut Value) {
    for (schema, field, bounds) in bounds::fields() {
        narrow(&mut document["components"]["schemas"][schema]["properties"][field], &bounds);
    }
    for (schema, rules) in bounds::conditions() {
        narrow(&mut document["components"]["schemas"][schema], &rules);
    }
    for form in ["DeploymentForm", "UploadExtension"] {
        without_null(&mut document["components"]["schemas"][form]["properties"]);
    }
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    for operation in paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        if let Some(part) = operation.pointer_mut("/requestBody/content/application~1json/schema/allOf/1") {
            refuse_null(part);
        }
        if let Some(stream) = operation.pointer_mut("/responses/200/content/text~1event-stream/schema") {
            *stream = event_with(stream.take());
        }
        for parameter in operation.pointer_mut("/parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            if parameter["in"] != "query" {
                continue;
            }
            let name = parameter["name"].as_str().unwrap_or_default();
            let special = bounds::operation_parameters().into_iter().find(|(of, named, _)| *of == id && *named == name);
            let general = bounds::parameters().into_iter().find(|(named, _)| *named == name);
            let text = (parameter["schema"]["type"] == "string").then(bounds::any_text);
            if let Some(bounds) = special.map(|(_, _, bounds)| bounds).or(general.map(|(_, bounds)| bounds)).or(text) {
                narrow(&mut parameter["schema"], &bounds);
            }
        }
    }
}

/// Removes null from the types of fields of a form: a part that is not sent is absent, and null would be a text.
fn without_null(properties: &mut Value) {
    for field in properties.as_object_mut().into_iter().flat_map(Map::values_mut) {
        for choices in ["type", "oneOf"] {
            let Some(all) = field[choices].as_array_mut() else { continue };
            all.retain(|one| *one != "null" && one["type"] != "null");
        }
        field.as_object_mut().into_iter().for_each(|field| field.retain(|_, value| !value.is_null()));
    }
}

/// Refuses null for the fields that a part of a body requires.
fn refuse_null(part: &mut Value) {
    let required = part["required"].as_array().cloned().unwrap_or_default();
    let null = |name: &Value| (name.as_str().unwrap_or_default().to_owned(), json!({"type": "null"}));
    let properties: Map<String, Value> = required.iter().map(null).collect();
    part["not"] = json!({"required": required, "properties": properties});
}

/// Returns the schema of one server-sent event whose data is JSON of this schema.
fn event_with(data: Value) -> Value {
    let data = json!({"type": "string", "contentMediaType": "application/json", "contentSchema": data});
    let text = json!({"type": "string"});
    json!({"type": "object", "required": ["data"], "properties": {"data": data, "event": text, "id": text}})
}

/// Adds the members of `bounds` to a schema. The bounds of items belong to the schema of the items.
fn narrow(schema: &mut Value, bounds: &Value) {
    let Some(members) = bounds.as_object() else { return };
    let accepts_null = schema["type"].as_array().is_some_and(|types| types.iter().any(|one| one == "null"));
    for (name, bound) in members {
        match (name.as_str(), bound.as_array()) {
            ("items" | "additionalProperties", _) => narrow(&mut schema[name], bound),
            _ if bound.is_null() => {
                schema.as_object_mut().and_then(|schema| schema.remove(name));
            }
            ("enum", Some(words)) if accepts_null => {
                schema["enum"] = words.iter().cloned().chain([Value::Null]).collect();
            }
            _ => schema[name] = bound.clone(),
        }
    }
}

/// Returns the OpenAPI document as indented JSON that ends in a line break.
///
/// # Panics
/// Never: the document is made of strings.
#[must_use]
pub fn declared_openapi() -> String {
    let mut document = serde_json::to_value(document()).unwrap_or_else(|_| unreachable!("strings become JSON"));
    bound(&mut document);
    links::add(&mut document);
    format!("{document:#}\n")
}

/// Returns the page `docs/operations.md`: a table of all operations.
#[must_use]
pub fn declared_operations_page() -> String {
    let mut page = String::from(
        "# Operations\n\n\
         Every operation of the API, generated from its declaration in the code; [openapi.json](openapi.json) has the parameters, \
         bodies and responses of each.\n\n\
         What is below `/browsers/{id_or_name}/` and takes a project key or a session token is also below `/vm/{session_id}/`, where it \
         takes the session token as the query parameter `jwt`.\n\n\
         The action is what the policy of an [API key](api-keys.md) must allow. A session token needs none.\n\n\
         | method | path | credential | action | operation | summary |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let actions = permissions::actions();
    for operation in resources::operations().all {
        let Operation { method, path, requirement, id, description, .. } = operation;
        let summary = description.operation.summary.unwrap_or_default();
        // Writing to a string does not fail.
        let action = actions.get(id).map_or_else(|| "none".to_owned(), |action| format!("`{action}`"));
        let _ = writeln!(page, "| {method} | `{path}` | {} | {action} | `{id}` | {summary} |", requirement.name());
    }
    page
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_committed_openapi_document_matches_the_handlers() {
        assert_committed("openapi.json", crate::openapi(), &declared_openapi());
    }

    #[test]
    fn the_committed_table_of_operations_is_what_is_declared() {
        assert_committed("operations.md", crate::operations_page(), &declared_operations_page());
    }

    fn assert_committed(file: &str, committed: &str, declared: &str) {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let path = format!("{}/../../docs/{file}", env!("CARGO_MANIFEST_DIR"));
            return std::fs::write(path, declared).expect("a file");
        }
        assert_eq!(committed, declared, "docs/{file}: run `cargo xtask openapi`, or this test with UPDATE_DOCS=1");
    }

    #[test]
    fn every_bound_belongs_to_a_field_or_parameter_of_the_document() {
        let document = serde_json::to_value(document()).expect("JSON");
        for (schema, field, _) in bounds::fields() {
            assert!(document["components"]["schemas"][schema]["properties"][field].is_object(), "{schema}.{field}");
        }
        let mut names = Vec::new();
        for operation in document["paths"].as_object().expect("paths").values().filter_map(Value::as_object) {
            for operation in operation.values() {
                let id = operation["operationId"].as_str().expect("an id");
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                names.extend(parameters.map(|one| (id, one["name"].as_str().expect("a name"))));
            }
        }
        for (name, _) in bounds::parameters() {
            assert!(names.iter().any(|(_, known)| *known == name), "{name}");
        }
        for (id, name, _) in bounds::operation_parameters() {
            assert!(names.contains(&(id, name)), "{id} {name}");
        }
    }
}
