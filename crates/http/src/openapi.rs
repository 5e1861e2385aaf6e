//! The OpenAPI document and the table of operations, both generated from the declared operations.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use actix_web::http::Method;
use utoipa::{
    OpenApi, PartialSchema, ToSchema as _,
    openapi::{
        self, AllOfBuilder, Content, Deprecated, HeaderBuilder, HttpMethod, ObjectBuilder, RefOr, Required,
        ResponseBuilder, Schema, SecurityRequirement,
        path::{OperationBuilder, ParameterBuilder, ParameterIn},
        request_body::RequestBodyBuilder,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use crate::{
    error::ErrorBody,
    operation::{self, Body, Operation, Operations, Requirement},
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
    let operations = Operations::declared();
    operations.all.iter().flat_map(|operation| &operation.schemas).for_each(|add| add(&mut schemas));
    components.schemas.extend(schemas);
    for operation in operations.all {
        let described = describe(&operation, &components.schemas);
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

fn describe(operation: &Operation, schemas: &SchemaMap) -> OperationBuilder {
    let parameters = operation::path_parameters(operation.path).map(|name| {
        let text = String::schema();
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(text))
            .build()
    });
    let parameters: Vec<_> = parameters.chain(operation.parameters.iter().cloned()).collect();
    let mut described = OperationBuilder::new()
        .tag(operation.tag)
        .summary(Some(operation.summary))
        .description(operation.description)
        .operation_id(Some(operation.id))
        .deprecated(operation.is_removed.then_some(Deprecated::True))
        .parameters((!parameters.is_empty()).then_some(parameters));
    if operation.requirement == Requirement::None {
        described = described.security(SecurityRequirement::default());
    }
    if let Some(request) = &operation.request {
        let mut content = content(&request.body);
        let required = request.is_required
            || request.field.is_some()
            || content.schema.as_ref().is_some_and(|schema| is_required(schema, schemas));
        if let (Some(field), Some(schema)) = (request.field, content.schema.take()) {
            let with_field = ObjectBuilder::new().required(field).build();
            content.schema = Some(Schema::AllOf(AllOfBuilder::new().item(schema).item(with_field).build()).into());
        }
        let body = RequestBodyBuilder::new().content(request.body.media_type, content);
        described = described.request_body(Some(body.required(required.then_some(Required::True)).build()));
    }
    for response in &operation.responses {
        let mut answer = ResponseBuilder::new().description(response.description);
        if let Some(body) = &response.body {
            answer = answer.content(body.media_type, content(body));
        }
        for (name, schema, description) in &response.headers {
            answer = answer
                .header(*name, HeaderBuilder::new().schema(Some(schema())).description(Some(*description)).build());
        }
        described = described.response(response.status.clone(), answer.build());
    }
    described
}

fn content(body: &Body) -> Content {
    Content::new(body.schema.map(|schema| schema()))
}

/// Whether a body of this schema must be sent. No body means the same as `{}`, so a body whose fields are all optional may be absent.
fn is_required(schema: &RefOr<Schema>, schemas: &SchemaMap) -> bool {
    let RefOr::Ref(reference) = schema else { return true };
    let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
    matches!(schemas.get(name), Some(RefOr::T(Schema::Object(object))) if !object.required.is_empty())
}

/// The name of each operation, by its method and path.
pub(crate) fn operation_names() -> HashMap<(String, String), &'static str> {
    let operations = Operations::declared().all.into_iter();
    operations.map(|operation| ((operation.method.to_string(), operation.path.to_owned()), operation.id)).collect()
}

/// The OpenAPI document, as indented JSON that ends in a line break.
///
/// # Panics
/// Never: the document is made of strings.
#[must_use]
pub fn openapi() -> String {
    let mut text = document().to_pretty_json().unwrap_or_else(|_| unreachable!("strings become JSON"));
    text.push('\n');
    text
}

/// The page `docs/operations.md`: a table of all operations.
#[must_use]
pub fn operations_page() -> String {
    let mut page = String::from(
        "# Operations\n\n\
         Every operation of the API, generated from its declaration in the code; [openapi.json](openapi.json) has the parameters, \
         bodies and responses of each.\n\n\
         What is below `/browsers/{id}/` and takes a project key or a session token is also below `/vm/{session_id}/`, where it \
         takes the session token as the query parameter `jwt`.\n\n\
         | method | path | credential | operation | summary |\n| --- | --- | --- | --- | --- |\n",
    );
    for operation in Operations::declared().all {
        let Operation { method, path, requirement, id, summary, .. } = operation;
        // Writing to a string does not fail.
        let _ = writeln!(page, "| {method} | `{path}` | {} | `{id}` | {summary} |", requirement.name());
    }
    page
}
