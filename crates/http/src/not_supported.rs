//! What clients of the hosted service know and this server does not do.
//!
//! Such a parameter is refused instead of ignored, because many of them ask for protection: a list of allowed hosts
//! that is not enforced is worse than an error. Fields that nobody knows are ignored, and named in a header.

use actix_web::{
    HttpRequest,
    http::{Method, StatusCode},
};
use serde_json::{Map, Value};

use crate::error::{ApiError, Code};

/// A parameter that is refused.
struct Parameter {
    /// The path of the field.
    name: &'static str,
    /// The only value that is accepted, because it is what the server does; none for `""`.
    accepted: &'static str,
    /// The operations, by method and route.
    operations: &'static [(Method, &'static str)],
}

const fn parameter(name: &'static str, operations: &'static [(Method, &'static str)]) -> Parameter {
    Parameter { name, accepted: "", operations }
}

const CREATE_SESSION: (Method, &str) = (Method::POST, "/browsers");
const UPDATE_SESSION: (Method, &str) = (Method::PATCH, "/browsers/{id_or_name}");
const CREATE_POOL: (Method, &str) = (Method::POST, "/browser_pools");
const UPDATE_POOL: (Method, &str) = (Method::PATCH, "/browser_pools/{id_or_name}");
const ACQUIRE: (Method, &str) = (Method::POST, "/browser_pools/{id_or_name}/acquire");
const CREATE_CONNECTION: (Method, &str) = (Method::POST, "/auth/connections");
const UPDATE_CONNECTION: (Method, &str) = (Method::PATCH, "/auth/connections/{id}");
const LOGIN: (Method, &str) = (Method::POST, "/auth/connections/{id}/login");

/// The fields of bodies.
const FIELDS: &[Parameter] = &[
    parameter("browser", &[CREATE_CONNECTION, UPDATE_CONNECTION, LOGIN]),
    parameter("browser_telemetry", &[CREATE_CONNECTION, UPDATE_CONNECTION, LOGIN]),
    Parameter { name: "skill_mode", accepted: "disabled", operations: &[LOGIN] },
    parameter("video_memory", &[CREATE_SESSION]),
    parameter("vaults", &[CREATE_SESSION]),
    parameter("telemetry.browser.control.cdp", &[CREATE_SESSION, UPDATE_SESSION, CREATE_POOL, UPDATE_POOL, ACQUIRE]),
];

/// The operations of clients that this server does not have: their paths with the methods and names of the operations.
const OPERATIONS: &[(&str, &[(&str, &str)])] = &[
    ("/config-registry", &[("GET", "config_registry.list")]),
    ("/config-registry/lookup", &[("POST", "config_registry.lookup")]),
    ("/config-registry/resolve", &[("POST", "config_registry.resolve")]),
    ("/config-registry/analyses", &[("GET", "config_registry.analyses.list")]),
    ("/config-registry/analyses/{}", &[("GET", "config_registry.analyses.retrieve")]),
    ("/config-registry/analyses/{}/cancel", &[("POST", "config_registry.analyses.cancel")]),
    // Playwright's own protocol, which other services speak at these addresses.
    ("/playwright", &[("GET", "playwright.connect")]),
    ("/playwright/chromium", &[("GET", "playwright.connect")]),
    ("/search", &[("POST", "search.create")]),
    ("/search/providers", &[("GET", "search.providers.list")]),
    ("/search/{}", &[("GET", "search.retrieve")]),
    ("/search/{}/contents", &[("POST", "search.contents.fetch")]),
    ("/vault-provider-configs", &[("POST", "vault_provider_configs.create"), ("GET", "vault_provider_configs.list")]),
    (
        "/vault-provider-configs/{}",
        &[
            ("GET", "vault_provider_configs.retrieve"),
            ("PATCH", "vault_provider_configs.update"),
            ("DELETE", "vault_provider_configs.delete"),
        ],
    ),
    ("/vaults", &[("POST", "vaults.upsert"), ("GET", "vaults.list")]),
    ("/vaults/{}", &[("GET", "vaults.retrieve"), ("DELETE", "vaults.delete")]),
    ("/vaults/{}/encryption_key", &[("GET", "vaults.retrieve_encryption_key")]),
    ("/vaults/{}/items", &[("GET", "vaults.items.list")]),
    (
        "/vaults/{}/items/{}",
        &[
            ("GET", "vaults.items.retrieve"),
            ("PATCH", "vaults.items.update"),
            ("PUT", "vaults.items.upsert"),
            ("DELETE", "vaults.items.delete"),
        ],
    ),
    ("/vaults/{}/items/{}/events", &[("GET", "vaults.items.events")]),
    ("/vaults/{}/items/{}/operations", &[("POST", "vaults.items.perform_operation")]),
];

/// Checks the fields of a body.
///
/// # Errors
/// `not_supported` for a field of [`FIELDS`] that is not null.
pub(crate) fn check_fields(request: &HttpRequest, body: &Map<String, Value>) -> Result<(), ApiError> {
    for field in FIELDS {
        if let Some(value) = member(body, field.name).filter(|value| *value != field.accepted)
            && !value.is_null()
            && applies(field, request)
        {
            return Err(refusal(field));
        }
    }
    Ok(())
}

fn applies(parameter: &Parameter, request: &HttpRequest) -> bool {
    let route = request.match_pattern().unwrap_or_default();
    parameter.operations.iter().any(|(method, of)| method == request.method() && *of == route)
}

fn refusal(parameter: &Parameter) -> ApiError {
    let message = match parameter.accepted {
        "" => format!("{}: this server does not support it, and does not ignore it; leave it out", parameter.name),
        accepted => format!("{}: this server supports only {accepted}", parameter.name),
    };
    ApiError::new(Code::NotSupported, message)
}

/// Returns a field by its path, with points between the names.
fn member<'a>(body: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = body.get(names.next()?)?;
    names.try_fold(first, |value, name| value.as_object()?.get(name))
}

/// Returns the error for a path without a route.
pub(crate) fn unknown_route(request: &HttpRequest) -> ApiError {
    let error = unknown(request);
    if request.path().starts_with("/wd/hub/") { error.for_webdriver() } else { error }
}

fn unknown(request: &HttpRequest) -> ApiError {
    match operation(request.method(), request.path()) {
        Some(name) => ApiError::new(Code::NotSupported, format!("{name}: this server does not have the operation"))
            .with_status(StatusCode::NOT_FOUND),
        None => ApiError::new(Code::RouteNotFound, "there is no such route"),
    }
}

/// Returns the name of an operation of [`OPERATIONS`].
fn operation(method: &Method, path: &str) -> Option<&'static str> {
    let (_, operations) = OPERATIONS.iter().find(|(pattern, _)| {
        let mut segments = path.split('/');
        let equal = pattern.split('/').all(|expected| {
            segments
                .next()
                .is_some_and(|segment| if expected == "{}" { !segment.is_empty() } else { segment == expected })
        });
        equal && segments.next().is_none()
    })?;
    operations.iter().find(|(name, _)| *name == method.as_str()).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_parameter_belongs_to_operations_of_the_api() {
        let document: Value = serde_json::from_str(&crate::declared_openapi()).expect("JSON");
        for (parameter, (method, route)) in
            FIELDS.iter().flat_map(|one| one.operations.iter().map(move |operation| (one, operation)))
        {
            let route = route.replace("/vm/{session_id}", "/browsers/{id_or_name}");
            let operation = &document["paths"][&route][method.as_str().to_lowercase()];
            assert!(operation.is_object(), "{}: {method} {route} is no operation", parameter.name);
        }
    }

    #[test]
    fn no_operation_that_is_refused_by_name_exists() {
        let document: Value = serde_json::from_str(&crate::declared_openapi()).expect("JSON");
        let paths = document["paths"].as_object().expect("an object");
        for (pattern, operations) in OPERATIONS {
            for (method, name) in *operations {
                assert_eq!(
                    operation(&Method::try_from(*method).expect("a method"), &pattern.replace("{}", "x")),
                    Some(*name)
                );
                let same = |path: &&String| {
                    path.split('/').map(|one| if one.starts_with('{') { "{}" } else { one }).eq(pattern.split('/'))
                };
                let exists = paths.iter().any(|(path, item)| same(&path) && item.get(method.to_lowercase()).is_some());
                assert!(!exists, "{name} exists: {method} {pattern}");
            }
        }
        assert_eq!(operation(&Method::GET, "/vaults/"), None);
        assert_eq!(operation(&Method::GET, "/vaults/x/y"), None);
    }
}
