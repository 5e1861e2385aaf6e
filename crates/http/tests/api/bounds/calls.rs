//! Requests with one value at its place, and whether the server refuses that value.

use casement_domain::{
    CredentialId, CredentialProviderId, ProfileId,
    audit_destination::AuditExportOffer,
    auth_connection::MockAuthConnectionRepository,
    browser::Viewport,
    credential::Credential,
    credential_provider::{CredentialProvider, ProviderPlace},
    name::LabelName,
    organization::{Caps, Organization},
    project::MockProjectRepository,
    session::Session,
    testing::{
        self, NOON, audit_destination, auth_connection, invocation, organization, organization_id, pool, project_id,
        session_id, telemetry_destination,
    },
};
use serde_json::{Map, Value, json};

use super::document::{Part, Place, Step};
use crate::api::support::{ARCHIVE, Key, Ports, Reply, TestApi, projects as known_projects, request};

const ID: &str = "00000000000000000000000001";

fn credential() -> Credential {
    Credential {
        id: CredentialId::from_ulid(ulid::Ulid::from_parts(13, 1)),
        project: project_id(),
        name: LabelName::parse("shop").unwrap(),
        domain: "shop.example".to_owned(),
        sso_provider: None,
        value_keys: Vec::new(),
        totp: None,
        created_at: NOON,
        updated_at: NOON,
    }
}

fn credential_provider() -> CredentialProvider {
    CredentialProvider {
        is_onepassword: false,
        id: CredentialProviderId::from_ulid(ulid::Ulid::from_parts(14, 1)),
        organization: organization_id(),
        name: LabelName::parse("team").unwrap(),
        place: ProviderPlace::PasswordManager(None),
        token: Vec::new(),
        cache_ttl_seconds: 300,
        enabled: true,
        priority: 3,
        projects: Vec::new(),
        created_at: NOON,
        updated_at: NOON,
    }
}

fn auth_connections() -> MockAuthConnectionRepository {
    let mut connections = MockAuthConnectionRepository::new();
    let profile = ProfileId::from_ulid(ulid::Ulid::from_parts(22, 1));
    connections.expect_find().returning(move |_, _| Ok(Some(auth_connection(1, profile))));
    connections
}

/// Returns the first session, with the largest display.
fn session() -> Session {
    let mut session = testing::session(1);
    (session.shape.viewport.width, session.shape.viewport.height) = (Viewport::MAX_SIDE, Viewport::MAX_SIDE);
    session
}

fn projects() -> MockProjectRepository {
    let mut projects = known_projects();
    let unlimited = Caps { concurrent_sessions: None, pooled_sessions: None, concurrent_invocations: None };
    projects.expect_organization().returning(move |_| Ok(Organization { caps: unlimited, ..organization() }));
    projects
}

/// Starts a server that finds every resource that is changed. Whatever is accepted calls a port without expectations,
/// which leads to a 500.
pub(super) fn start() -> TestApi {
    let mut ports = Ports { projects: Some(projects()), ..Ports::default() };
    ports.sessions.expect_find().returning(|_| Ok(Some(session())));
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session())));
    ports.pools.expect_find().returning(|_, _| Ok(Some(pool(3).build())));
    ports.auth_connections = auth_connections();
    ports.credentials.expect_find().returning(|_, _| Ok(Some(credential())));
    ports.credential_providers.expect_find().returning(|_, _| Ok(Some(credential_provider())));
    ports.audit_destinations.expect_find().returning(|_, _| Ok(Some(audit_destination())));
    ports.audit_offer = Some(AuditExportOffer { buckets: vec!["records".to_owned()], role: "operator".to_owned() });
    ports.telemetry_destinations.expect_find().returning(|_, _| Ok(Some(telemetry_destination())));
    ports.invocations.expect_find().returning(|_, _| Ok(Some(invocation(1))));
    TestApi::start(ports)
}

/// Returns what stands beside the value so that the server reads it.
fn companions(place: &Place) -> Value {
    let field = place.field("[0]");
    match (place.operation.as_str(), field.as_str()) {
        ("create_proxy", "type" | "name" | "protocol" | "bypass_hosts") => json!({}),
        ("create_proxy", "config.host" | "config.port" | "config.username" | "config.password") => {
            json!({"type": "custom", "config": {"username": "x"}})
        }
        ("create_proxy", _) => json!({"type": "residential", "config": {"country": "US"}}),
        ("create_credential_provider", "server_url") => json!({"provider_type": "passwordmanager"}),
        ("create_credential" | "update_credential", "totp_algorithm" | "totp_digits" | "totp_period") => {
            json!({"totp_secret": "GEZDGNBVGY3TQOJQ"})
        }
        ("create_auth_connection", "login_url") => json!({"domain": "d1.example"}),
        ("create_auth_connection" | "update_auth_connection", "credential.path") => {
            json!({"credential": {"provider": "x"}})
        }
        ("create_auth_connection" | "update_auth_connection", "credential.provider") => {
            json!({"credential": {"path": "x"}})
        }
        ("drag_mouse" | "move_mouse", "duration_ms") => json!({"smooth": true}),
        ("batch", _) => match place.steps.get(2) {
            Some(Step::Field(kind)) if kind == "move_mouse" || kind == "drag_mouse" => {
                json!({"actions": [{"type": kind, kind: {"smooth": true}}]})
            }
            Some(Step::Field(kind)) if kind != "type" => json!({"actions": [{"type": kind}]}),
            _ => json!({}),
        },
        ("execute_process" | "spawn_process", "as_root" | "as_user") => json!({"command": "x"}),
        ("create_deployment", "source.type" | "source.url" | "source.ref" | "source.entrypoint") => {
            let source =
                json!({"type": "github", "url": "https://github.com/a/b", "ref": "main", "entrypoint": "a.py"});
            json!({"source": source})
        }
        ("create_deployment", "entrypoint_rel_path") => json!({"file": "x"}),
        ("upload_extension", "name") => json!({"file": std::str::from_utf8(ARCHIVE).unwrap()}),
        ("create_api_key", "policy.statements[0].resource") => {
            json!({"policy": {"statements": [{"action": "browsers:*"}]}})
        }
        ("get_connect_version", "acquire_timeout_seconds") => json!({"pool": "x"}),
        ("get_connect_version", "timeout_seconds") => json!({"keep": true}),
        ("create_webdriver_session", "acquire_timeout_seconds") => {
            let options = json!({"casement:options": {"pool": "x"}});
            match place.steps.get(2) {
                Some(Step::Item) => json!({"capabilities": {"firstMatch": [options]}}),
                _ => json!({"capabilities": {"alwaysMatch": options}}),
            }
        }
        ("create_invocation", "async_timeout_seconds") => json!({"async": true}),
        (_, "network.proxy_routes[0].hosts") => json!({"network": {"proxy_routes": [{"proxy": {"id": "x"}}]}}),
        (_, "expected_network.proxy_routes[0].hosts") => {
            json!({"expected_network": {"proxy_routes": [{"proxy": {"id": "x"}}]}})
        }
        ("stream_logs", "supervisor_process") => json!({"source": "supervisor"}),
        ("stream_logs", "path") => json!({"source": "path"}),
        _ => json!({}),
    }
}

/// Puts a value at the end of steps.
fn nested(steps: &[Step], value: Value) -> Value {
    match steps {
        [] => value,
        // The categories of telemetry are objects; the values of other maps are texts.
        [Step::Field(name), Step::Key] if name == "browser" => json!({ name: { value.as_str().unwrap(): {} } }),
        [Step::Field(name), rest @ ..] => json!({ name: nested(rest, value) }),
        // A way of the mouse needs two points, and a point two numbers.
        [Step::Item, rest @ ..] if value.is_number() => json!([nested(rest, value.clone()), nested(rest, value)]),
        [Step::Item, rest @ ..] => json!([nested(rest, value)]),
        [Step::Key, ..] => json!({ value.as_str().unwrap(): "x" }),
        [Step::Value, rest @ ..] => json!({ "k": nested(rest, value) }),
    }
}

/// Adds the members that `value` does not have.
fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Object(members), Value::Object(more)) => {
            for (name, more) in more {
                match members.get_mut(&name) {
                    Some(present) => merge(present, more),
                    None => drop(members.insert(name, more)),
                }
            }
        }
        (Value::Array(items), Value::Array(more)) => {
            items.iter_mut().zip(more).for_each(|(item, more)| merge(item, more));
        }
        _ => {}
    }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn query(members: &Map<String, Value>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in members {
        match value {
            Value::Array(items) => {
                query.extend_pairs(items.iter().map(|item| (name, as_text(item))));
            }
            value => {
                query.append_pair(name, &as_text(value));
            }
        }
    }
    query.finish()
}

/// Returns the parts of a form; a part with members is JSON, except for lists.
fn form(name: &str, value: &Value) -> Vec<u8> {
    match value {
        Value::Array(items) => {
            let members = items.iter().enumerate().flat_map(|(n, item)| {
                item.as_object().unwrap().iter().map(move |(member, value)| (format!("{name}[{n}][{member}]"), value))
            });
            members.flat_map(|(name, value)| form(&name, value)).collect()
        }
        value => {
            let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            [head.as_bytes(), as_text(value).as_bytes(), b"\r\n"].concat()
        }
    }
}

/// Sends a request with the value at its place.
pub(super) async fn send(api: &TestApi, place: &Place, value: Value) -> Reply {
    let (session, project) = (session_id(1).to_string(), project_id().to_string());
    let of_session = place.path.starts_with("/browsers/");
    let parts = place.path.split('/').map(|part| match part {
        "{id_or_name}" if of_session => session.as_str(),
        part if part.starts_with('{') && place.path.starts_with("/org/projects/") => project.as_str(),
        part if part.starts_with('{') => ID,
        part => part,
    });
    let path = parts.collect::<Vec<_>>().join("/");
    let mut body = nested(&place.steps, value);
    merge(&mut body, companions(place));
    match place.part {
        Part::Query => {
            let path = format!("{path}?{}", query(body.as_object().unwrap()));
            api.call(&place.method, &path, "").await
        }
        Part::Json => api.call(&place.method, &path, &body.to_string()).await,
        Part::Form => {
            let parts = body.as_object().unwrap().iter().flat_map(|(name, value)| form(name, value));
            let body: Vec<u8> = parts.chain(b"--b--\r\n".iter().copied()).collect();
            let key = format!("Authorization: Bearer {}", Key::Organization.text());
            let length = format!("Content-Length: {}", body.len());
            let lines = [key.as_str(), "Content-Type: multipart/form-data; boundary=b", &length];
            api.raw([request(&place.method, &path, &lines, ""), body].concat()).await
        }
    }
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// Parts of refusals that depend on what exists, and not on the value.
const OF_STATE: [&str; 2] =
    ["is not lent to this project by the operator", "can be changed only if the session was created with it"];

/// Returns the message by which the server refuses the field of a place, or something below it.
pub(super) fn refusal(place: &Place, reply: &Reply) -> Option<String> {
    if reply.status != 400 {
        return None;
    }
    // It names no field.
    if reply.json()["code"] == "invalid_cursor" {
        return Some("invalid_cursor".to_owned());
    }
    let (fields, body) = (["[0]", ".0"].map(|item| place.field(item)), reply.json());
    let is_of = |text: &str, field: &String| {
        let text = text.strip_prefix("casement:options.").unwrap_or(text);
        text.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with([':', '.', '[']))
    };
    // The hosts of all routes are counted together.
    let all_routes = "proxy_routes: must have at most 200";
    if place.field("").ends_with("proxy_routes.hosts") && texts(&body).iter().any(|text| text.ends_with(all_routes)) {
        return Some(all_routes.to_owned());
    }
    let is_of_state = |text: &str| OF_STATE.iter().any(|part| text.contains(part));
    texts(&body)
        .into_iter()
        .filter(|text| !is_of_state(text))
        .find(|text| fields.iter().any(|field| is_of(text, field)))
        .map(str::to_owned)
}
