//! The links of the document: which operations take what a response has made.

use serde_json::{Map, Value, json};

/// An operation that makes a resource, the member of its response with the id, and the path of the resource.
const MAKERS: [(&str, &str, &str); 19] = [
    ("create_browser", "session_id", "/browsers/{id_or_name}"),
    ("acquire_browser", "session_id", "/browsers/{id_or_name}"),
    ("create_pool", "id", "/browser_pools/{id_or_name}"),
    ("create_profile", "id", "/profiles/{id_or_name}"),
    ("create_proxy", "id", "/proxies/{id_or_name}"),
    ("upload_extension", "id", "/extensions/{id_or_name}"),
    ("create_auth_connection", "id", "/auth/connections/{id}"),
    ("create_credential", "id", "/credentials/{id_or_name}"),
    ("create_credential_provider", "id", "/org/credential_providers/{id}"),
    ("create_api_key", "id", "/org/api_keys/{id}"),
    ("rotate_api_key", "id", "/org/api_keys/{id}"),
    ("create_project", "id", "/org/projects/{id_or_name}"),
    ("create_telemetry_destination", "id", "/telemetry/destinations/{id_or_name}"),
    ("create_deployment", "id", "/deployments/{id}"),
    ("create_invocation", "id", "/invocations/{id}"),
    ("create_webdriver_session", "value/sessionId", "/wd/hub/session/{id}"),
    ("spawn_process", "process_id", "/browsers/{id_or_name}/process/{process_id}"),
    ("start_replay", "replay_id", "/browsers/{id_or_name}/replays/{replay_id}"),
    ("start_fs_watch", "watch_id", "/browsers/{id_or_name}/fs/watch/{watch_id}"),
];

/// Adds to each response that makes a resource the links to the operations of the resource.
pub(super) fn add(document: &mut Value) {
    for (maker, member, item) in MAKERS {
        let links = links(&document["paths"], member, item);
        let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
        let operations = paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
        for operation in operations.filter(|operation| operation["operationId"] == maker) {
            let responses = operation["responses"].as_object_mut().into_iter().flatten();
            for (_, response) in responses.filter(|(status, _)| status.starts_with('2') && *status != "204") {
                response["links"] = links.clone();
            }
        }
    }
}

/// Returns the links to the operations at the path of a resource and below it, by their ids.
fn links(paths: &Value, member: &str, item: &str) -> Value {
    let names: Vec<&str> = parameters(item).collect();
    let mut values: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!(format!("$request.path.{name}")))).collect();
    if let Some(own) = names.last() {
        values.insert((*own).to_owned(), json!(format!("$response.body#/{member}")));
    }
    let mut links = Map::new();
    for (path, operations) in paths.as_object().into_iter().flatten() {
        let below = path.strip_prefix(item);
        if !below.is_some_and(|below| (below.is_empty() || below.starts_with('/')) && !below.contains('{')) {
            continue;
        }
        let ids = operations.as_object().into_iter().flat_map(Map::values);
        for id in ids.filter_map(|operation| operation["operationId"].as_str()) {
            links.insert(id.to_owned(), json!({ "operationId": id, "parameters": values }));
        }
    }
    Value::Object(links)
}

fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_maker_is_an_operation_and_its_resource_has_others() {
        let document: Value = serde_json::from_str(&crate::declared_openapi()).expect("JSON");
        let operations = || {
            document["paths"]
                .as_object()
                .expect("paths")
                .values()
                .flat_map(|path| path.as_object().expect("operations").values())
        };
        for (maker, member, item) in MAKERS {
            assert!(operations().any(|operation| operation["operationId"] == maker), "{maker}");
            let links = links(&document["paths"], member, item);
            assert!(!links.as_object().expect("links").is_empty(), "{item}");
        }
    }

    #[test]
    fn a_link_fills_every_parameter_of_its_path() {
        let document: Value = serde_json::from_str(&crate::declared_openapi()).expect("JSON");
        let link =
            &document["paths"]["/browsers/{id_or_name}/replays"]["post"]["responses"]["201"]["links"]["stop_replay"];
        let parameters = json!({ "id_or_name": "$request.path.id_or_name", "replay_id": "$response.body#/replay_id" });
        assert_eq!(link["parameters"], parameters);
    }
}
