//! Members of bodies that restrict what their author gives: rights, reach, lifetime and limits.
//!
//! Unknown members are ignored, because a client may be newer ([`ignored_fields`](crate::ignored_fields)). Ignoring a
//! misspelt restriction would give more than its author reads, so it is refused by name.

use actix_web::{HttpRequest, http::Method};
use casement_domain::misspelling::misspelt;

/// An operation, by its method and route.
type Route = (Method, &'static str);

/// The unknown members of an object that are refused. Null is the same as absence and never refused.
struct Object {
    operations: &'static [Route],
    /// The path of the object; empty: the body. `[]` is an item of an array, `*` any name.
    path: &'static str,
    unknown: Unknown,
}

/// The unknown members that are refused.
enum Unknown {
    /// All of them: the whole object restricts.
    All,
    /// Misspellings of the object's own members `own`, and `foreign` members, which restrict elsewhere in the API and are
    /// easily written here, with their misspellings.
    Like { own: &'static [&'static str], foreign: &'static [&'static [&'static str]] },
}

const CREATE_KEY: Route = (Method::POST, "/org/api_keys");
const UPDATE_KEY: Route = (Method::PATCH, "/org/api_keys/{id}");
const ROTATE_KEY: Route = (Method::POST, "/org/api_keys/{id}/rotate");
const CREATE_SESSION: Route = (Method::POST, "/browsers");
const UPDATE_SESSION: Route = (Method::PATCH, "/browsers/{id_or_name}");
const CREATE_POOL: Route = (Method::POST, "/browser_pools");
const UPDATE_POOL: Route = (Method::PATCH, "/browser_pools/{id_or_name}");
const ACQUIRE: Route = (Method::POST, "/browser_pools/{id_or_name}/acquire");
const CREATE_PROJECT: Route = (Method::POST, "/org/projects");
const UPDATE_PROJECT: Route = (Method::PATCH, "/org/projects/{id_or_name}");
const UPDATE_PROJECT_LIMITS: Route = (Method::PATCH, "/org/projects/{id_or_name}/limits");
const UPDATE_LIMITS: Route = (Method::PATCH, "/org/limits");
const CREATE_CONNECTION: Route = (Method::POST, "/auth/connections");
const UPDATE_CONNECTION: Route = (Method::PATCH, "/auth/connections/{id}");
const LOGIN: Route = (Method::POST, "/auth/connections/{id}/login");
const UPDATE_PROVIDER: Route = (Method::PATCH, "/org/credential_providers/{id}");
const UPDATE_CREDENTIAL: Route = (Method::PATCH, "/credentials/{id_or_name}");
const CREATE_PROXY: Route = (Method::POST, "/proxies");
const CREATE_AUDIT_DESTINATION: Route = (Method::POST, "/audit-logs/export/destinations");
const UPDATE_AUDIT_DESTINATION: Route = (Method::PATCH, "/audit-logs/export/destinations/{id}");

const NETWORKS: &[Route] = &[CREATE_SESSION, UPDATE_SESSION, CREATE_POOL, UPDATE_POOL];
const POOLS: &[Route] = &[CREATE_POOL, UPDATE_POOL];
const CAPTURES: &[Route] = &[CREATE_SESSION, UPDATE_SESSION, CREATE_POOL, UPDATE_POOL, ACQUIRE];

const KEY_RIGHTS_AND_LIFETIME: &[&str] = &[
    "policy",
    "project_id",
    "expires_at",
    "days_to_expire",
    "expires_in",
    "expires_in_days",
    "expiry",
    "valid_until",
    "not_after",
    "ttl",
    "ttl_seconds",
    "lifetime",
    "max_age",
    "read_only",
    "access",
    "allowed_ips",
    "ip_allowlist",
    "rate_limit",
    "statements",
    "action",
    "effect",
    "resource",
    "permissions",
    "roles",
    "scopes",
    "project",
    "project_name",
];
const HOSTS: &[&str] = &[
    "allowed_hosts",
    "private_hosts",
    "proxy_routes",
    "allowed_domains",
    "blocked_hosts",
    "blocked_domains",
    "hosts",
    "domains",
    "allowlist",
    "blocklist",
    "network_policy",
    "network_config",
    "egress",
    "firewall",
    "policy",
    "policies",
    "managed_policies",
    "url_blocklist",
    "url_allowlist",
];
const OF_THE_BROWSER: &[&str] = &["browser_policy", "chrome_policy", "kiosk_mode"];
const NETWORK: &[&str] = &["network", "proxy", "proxy_id"];
const PROJECT_LIMITS: &[&str] = &["max_concurrent_sessions", "max_concurrent_invocations", "max_pooled_sessions"];
const OTHER_LIMITS: &[&str] =
    &["max_sessions", "max_browsers", "max_invocations", "concurrent_sessions", "concurrent_invocations", "limits"];

const fn all(path: &'static str, operations: &'static [Route]) -> Object {
    Object { operations, path, unknown: Unknown::All }
}

const fn like(
    path: &'static str,
    operations: &'static [Route],
    own: &'static [&'static str],
    foreign: &'static [&'static [&'static str]],
) -> Object {
    Object { operations, path, unknown: Unknown::Like { own, foreign } }
}

/// The objects with members that restrict.
const OBJECTS: &[Object] = &[
    all("policy", &[CREATE_KEY]),
    all("policy.statements[]", &[CREATE_KEY]),
    like("", &[CREATE_KEY], &["policy", "project_id", "expires_at", "days_to_expire"], &[KEY_RIGHTS_AND_LIFETIME]),
    like("", &[ROTATE_KEY], &["days_to_expire", "expire_in_days"], &[KEY_RIGHTS_AND_LIFETIME]),
    like("", &[UPDATE_KEY], &[], &[KEY_RIGHTS_AND_LIFETIME]),
    all("network", NETWORKS),
    all("network.proxy_routes[]", NETWORKS),
    all("expected_network", POOLS),
    all("expected_network.proxy_routes[]", POOLS),
    like(
        "",
        &[CREATE_SESSION],
        &[
            "network",
            "browser_policy",
            "chrome_policy",
            "proxy",
            "proxy_id",
            "kiosk_mode",
            "telemetry",
            "timeout_seconds",
        ],
        &[HOSTS, &["proxy_url", "proxy_server", "kiosk", "telemetry_enabled", "save_changes", "memory_limit"]],
    ),
    like("", &[UPDATE_SESSION], &["network", "proxy", "proxy_id", "telemetry"], &[OF_THE_BROWSER, HOSTS]),
    like(
        "",
        POOLS,
        &["network", "expected_network", "browser_policy", "chrome_policy", "proxy_id", "kiosk_mode", "telemetry"],
        &[HOSTS, &["proxy"]],
    ),
    like("", &[ACQUIRE], &["telemetry"], &[NETWORK, OF_THE_BROWSER, HOSTS]),
    like("telemetry", CAPTURES, &["enabled", "storage"], &[&["disabled"]]),
    like("telemetry.storage", CAPTURES, &["enabled"], &[&["disabled"]]),
    like("telemetry.browser.*", CAPTURES, &["enabled"], &[&["disabled"]]),
    like("telemetry.export.otlp", CAPTURES, &["enabled"], &[&["disabled"]]),
    like("", &[UPDATE_PROJECT_LIMITS], PROJECT_LIMITS, &[OTHER_LIMITS]),
    like("", &[UPDATE_LIMITS], &["default_project_max_concurrent_sessions"], &[PROJECT_LIMITS, OTHER_LIMITS]),
    like("", &[CREATE_PROJECT], &[], &[PROJECT_LIMITS, OTHER_LIMITS]),
    like("", &[UPDATE_PROJECT], &["status"], &[PROJECT_LIMITS, OTHER_LIMITS]),
    like("", &[CREATE_CONNECTION], &["auto_reauth", "health_checks", "proxy", "save_credentials"], &[&["proxy_id"]]),
    like(
        "",
        &[UPDATE_CONNECTION],
        &["allowed_domains", "auto_reauth", "health_checks", "proxy", "record_session", "save_credentials"],
        &[&["proxy_id"]],
    ),
    like("", &[LOGIN], &["proxy", "record_session"], &[&["proxy_id", "save_credentials"]]),
    like("", &[UPDATE_PROVIDER], &["enabled", "project_ids"], &[&["disabled", "projects"]]),
    like("", &[UPDATE_CREDENTIAL], &["remove_value_keys"], &[]),
    like("", &[CREATE_PROXY], &["protocol"], &[]),
    like("config", &[CREATE_PROXY], &["asn", "ca_bundle", "city", "country", "state", "zip"], &[]),
    like("", &[CREATE_AUDIT_DESTINATION], &["kms_key_id"], &[]),
    like("", &[UPDATE_AUDIT_DESTINATION], &["kms_key_id", "status"], &[]),
];

/// The objects of the body of one request.
#[derive(Default)]
pub(crate) struct Restrictions(Vec<&'static Object>);

impl Restrictions {
    /// Returns those of the operation of a request, with a key or with the cookie of the web interface.
    pub(crate) fn of(request: &HttpRequest) -> Self {
        let route = request.match_pattern().unwrap_or_default();
        Self::of_operation(request.method(), route.strip_prefix("/ui/api").unwrap_or(&route))
    }

    fn of_operation(method: &Method, route: &str) -> Self {
        let has = |object: &&Object| object.operations.iter().any(|(of, at)| of == method && *at == route);
        Self(OBJECTS.iter().filter(has).collect())
    }

    /// Returns why an unknown member of the object at `path` is refused; `None` if it is ignored. In `path`, `[]` is an
    /// item of an array.
    pub(crate) fn refusal(&self, path: &str, name: &str) -> Option<String> {
        let object = self.0.iter().find(|object| matches(object.path, path))?;
        match object.unknown {
            Unknown::All => Some("is not known here, and ignoring it could allow more; leave it out".to_owned()),
            Unknown::Like { own, .. } if let Some(meant) = misspelt(name, own) => {
                Some(format!("is not known; {meant} is, and ignoring a misspelling of it could allow more"))
            }
            Unknown::Like { foreign, .. } => foreign
                .iter()
                .any(|names| names.contains(&name) || misspelt(name, names).is_some())
                .then(|| "has no effect here, and ignoring it could allow more; leave it out".to_owned()),
        }
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let mut names = path.split('.');
    pattern.split('.').all(|expected| names.next().is_some_and(|name| expected == "*" || expected == name))
        && names.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// Returns the members that the OpenAPI document declares for an object of a body.
    fn declared(document: &Value, (method, route): &Route, path: &str) -> BTreeSet<String> {
        let operation = &document["paths"][*route][method.as_str().to_lowercase()];
        assert!(operation.is_object(), "{method} {route} is no operation");
        let mut schemas = vec![&operation["requestBody"]["content"]["application/json"]["schema"]];
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let (name, is_item) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
            let below = alternatives(document, schemas).into_iter().flat_map(|schema| {
                if name == "*" { vec![&schema["additionalProperties"]] } else { vec![&schema["properties"][name]] }
            });
            schemas = below.collect();
            if is_item {
                schemas = alternatives(document, schemas).into_iter().map(|schema| &schema["items"]).collect();
            }
        }
        let names = alternatives(document, schemas).into_iter();
        names.filter_map(|schema| schema["properties"].as_object()).flat_map(|all| all.keys().cloned()).collect()
    }

    /// Returns all schemas that may apply where one of these does.
    fn alternatives<'d>(document: &'d Value, schemas: Vec<&'d Value>) -> Vec<&'d Value> {
        let (mut open, mut all) = (schemas, Vec::new());
        while let Some(schema) = open.pop() {
            if let Some(name) = schema["$ref"].as_str().and_then(|link| link.strip_prefix("#/components/schemas/")) {
                open.push(&document["components"]["schemas"][name]);
            }
            for kind in ["oneOf", "anyOf", "allOf"] {
                open.extend(schema[kind].as_array().into_iter().flatten());
            }
            all.push(schema);
        }
        all
    }

    #[test]
    fn the_own_members_are_declared_and_no_declared_member_is_refused() {
        let document: Value = serde_json::from_str(&crate::declared_openapi()).expect("JSON");
        for object in OBJECTS {
            for operation in object.operations {
                let known = declared(&document, operation, object.path);
                assert!(!known.is_empty(), "{operation:?} has no object {}", object.path);
                let Unknown::Like { own, foreign } = object.unknown else { continue };
                for name in own {
                    assert!(known.contains(*name), "{operation:?}: {}.{name} is not declared", object.path);
                }
                for name in foreign.iter().copied().flatten().filter(|name| !own.contains(name)) {
                    assert!(!known.contains(*name), "{operation:?}: {}.{name} is declared", object.path);
                }
            }
        }
    }

    #[test]
    fn every_body_with_a_policy_or_a_network_is_in_the_table() {
        let document: Value = serde_json::from_str(&crate::declared_openapi()).expect("JSON");
        for (route, methods) in document["paths"].as_object().expect("an object") {
            for method in [Method::POST, Method::PUT, Method::PATCH] {
                let operation = &methods[method.as_str().to_lowercase()];
                if operation["requestBody"]["content"]["application/json"].is_null() {
                    continue;
                }
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                let known: BTreeSet<&str> = alternatives(&document, vec![schema])
                    .into_iter()
                    .filter_map(|schema| schema["properties"].as_object())
                    .flat_map(|all| all.keys().map(String::as_str))
                    .collect();
                let restrictions = Restrictions::of_operation(&method, route);
                for name in ["policy", "project_id", "expires_at", "network", "browser_policy", "max_pooled_sessions"] {
                    if known.contains(name) {
                        let written = name.to_uppercase();
                        assert!(restrictions.refusal("", &written).is_some(), "{method} {route}: {written}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_path_matches_with_items_and_any_names() {
        assert!(matches("", "") && matches("policy.statements[]", "policy.statements[]"));
        assert!(matches("telemetry.browser.*", "telemetry.browser.console"));
        assert!(!matches("", "policy") && !matches("policy", "") && !matches("policy", "policy.statements[]"));
    }
}
