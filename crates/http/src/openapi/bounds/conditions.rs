//! Rules between the fields of a schema.

use casement_domain::invocation;
use serde_json::{Map, Value, json};

use super::forms::range;

/// Returns rules between the fields of a schema.
pub(in crate::openapi) fn conditions() -> Vec<(&'static str, Value)> {
    let text = json!({"type": "string", "minLength": 1});
    let both = json!({"required": ["id", "name"], "properties": {"id": text, "name": text}});
    let address = json!({"host": {"type": "string"}, "port": {"type": "integer"}});
    let config = json!({"type": "object", "required": ["host", "port"], "properties": address});
    let own = json!({"required": ["config"], "properties": {"config": config}});
    let named = json!({"type": "object", "minProperties": 1});
    let vault = json!({"required": ["vault"], "properties": {"vault": {"type": "string"}}});
    let off =
        json!({"required": ["enabled", "browser"], "properties": {"enabled": {"const": false}, "browser": named}});
    let texts = |names: &[&str]| {
        let properties: Map<_, _> = names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"required": names, "properties": properties})
    };
    let automatic = json!({"required": ["auto"], "properties": {"auto": {"const": true}}});
    let timeout = range(invocation::MIN_TIMEOUT_SECONDS.into(), invocation::MAX_TIMEOUT_SECONDS);
    let no_wait = json!({"required": ["async"], "properties": {"async": {"const": true}}});
    let item = texts(&["provider", "path"]);
    let whole_provider = json!({"allOf": [texts(&["provider"]), {"not": texts(&["path"])}, {"not": automatic}]});
    let no_provider = json!({"allOf": [texts(&["path"]), {"not": texts(&["provider"])}]});
    vec![
        (
            "AuthCredentialReference",
            json!({"not": {"anyOf": [whole_provider, no_provider, {"allOf": [item, automatic]}]}}),
        ),
        ("BrowserProxySelection", json!({"oneOf": [texts(&["id"]), texts(&["name"]), texts(&["mode"])]})),
        ("Reference", json!({"not": both})),
        ("ProfileReference", json!({"not": both})),
        ("AuthProxyReference", json!({"not": both})),
        ("CreateProxy", json!({"if": {"properties": {"type": {"const": "custom"}}}, "then": own})),
        (
            "CreateCredentialProvider",
            json!({"if": {"properties": {"provider_type": {"const": "keepass"}}}, "then": vault}),
        ),
        // The timeout has no meaning for a caller that waits, and may be any number then.
        ("CreateInvocation", json!({"if": no_wait, "then": {"properties": {"async_timeout_seconds": timeout}}})),
        ("DeploymentForm", json!({"anyOf": [{"required": ["file", "entrypoint_rel_path"]}, {"required": ["source"]}]})),
        ("ProxyExit", json!({"not": {"required": ["host"]}})),
        ("Telemetry", json!({"not": off})),
    ]
}
