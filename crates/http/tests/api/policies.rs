//! What a key with a policy may do.

use casement_domain::{
    ProfileId, StoreError,
    auth_connection::{AuthConnection, ConnectionStored, ConnectionUpdated, Settings},
    page::Listed,
    permission::{Policy, Statement},
    profile::ProfileStored,
    project::MockProjectRepository,
    session::Session,
    testing::{NOON, invocation, organization, pool, profile, project, project_id, session, session_id},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use time::Duration;

use super::{
    auth_connections::{connection, finds, path},
    support::{Key, Ports, Reply, TestApi, keys_after, keys_with_policy, other_project, owner},
};

const ID: &str = "00000000000000000000000001";

/// An operation of the API description.
struct Operation {
    method: String,
    /// The path with values of its parameters.
    path: String,
    id: String,
    /// Whether a session token is accepted too, below `/vm`.
    is_in_session: bool,
}

/// Returns every operation that requires a key.
fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(casement_http::openapi()).unwrap();
    let table = casement_http::operations_page();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation["security"].is_array() {
                continue;
            }
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let line = table.lines().find(|line| line.contains(&format!("| `{id}` |"))).unwrap();
            let named = path.split('/').map(|part| if part.starts_with('{') { ID } else { part });
            operations.push(Operation {
                method: method.to_uppercase(),
                path: named.collect::<Vec<_>>().join("/"),
                is_in_session: line.contains("session token"),
                id,
            });
        }
    }
    assert!(operations.len() > 100);
    operations
}

fn with_policy(statements: &[(&str, &str)]) -> Ports {
    Ports { keys: Some(keys_with_policy(statements)), ..Ports::default() }
}

fn is_refused(reply: &Reply) -> bool {
    reply.status == 403 && reply.code() == "insufficient_scope"
}

fn key() -> String {
    format!("Authorization: Bearer {}", Key::Organization.text())
}

/// Returns a resource in the default project.
fn in_project(rest: &str) -> String {
    format!("projects/{}/{rest}", project_id())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_policy_refuses_every_operation_but_the_one_that_describes_the_key() {
    let api = TestApi::start(with_policy(&[]));
    let mut allowed = Vec::new();
    for Operation { method, path, id, is_in_session } in operations() {
        let direct = path.replacen("/browsers/", "/vm/", 1);
        for path in std::iter::once(&path).chain(is_in_session.then_some(&direct)) {
            let reply = api.call(&method, path, "").await;
            if is_refused(&reply) {
                continue;
            }
            assert_eq!(reply.status, 200, "{method} {path}: {reply}");
            allowed.push(id.clone());
        }
    }
    assert_eq!(allowed, ["get_auth_context"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_policy_refuses_every_relay_and_every_direct_path() {
    let api = TestApi::start(with_policy(&[]));
    let key = key();
    let upgrade = [
        key.as_str(),
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ];
    for tail in ["cdp", "webdriver", "webdriver/session/abc"] {
        let reply = api.request("GET", &format!("/vm/{ID}/{tail}"), &upgrade, "").await;
        assert!(is_refused(&reply), "{tail}: {reply}");
    }
    for path in ["/connect", "/connect/json", "/json/version", "/json/list", "/wd/hub/session/abc/url"] {
        let reply = api.request("GET", path, &[&key], "").await;
        assert!(is_refused(&reply), "{path}: {reply}");
    }
    for (method, tail) in [("POST", "wd/session"), ("DELETE", "wd/session/abc"), ("GET", "curl/raw?url=http://x.test/")]
    {
        let reply = api.request(method, &format!("/vm/{ID}/{tail}"), &[&key], "").await;
        assert!(is_refused(&reply), "{tail}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_use_a_session_gets_as_far_as_its_browser() {
    let own = in_project(&format!("browsers/{}", session_id(1)));
    let mut ports = with_policy(&[("browsers:use", &own)]);
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_find().returning(|_| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    let ask = async |n| api.request("GET", &format!("/vm/{}/wd/status", session_id(n)), &[&key()], "").await;
    assert_eq!(ask(1).await.code(), "browser_unavailable");
    assert!(is_refused(&ask(2).await));
    assert!(is_refused(&api.get("/browsers").await), "a list needs a statement on all sessions");
    assert!(is_refused(&api.get("/browsers/by-name").await), "and so does a name");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_only_reads_gets_addresses_that_only_let_watch() {
    let mut ports = with_policy(&[("*:read", "*")]);
    ports.sessions.expect_list().returning(|_, _, _| Ok(Listed { items: vec![session(1)], next_offset: None }));
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    let listed = api.get("/browsers").await.json()[0].clone();
    let read = api.get(&format!("/browsers/{}", session_id(1))).await.json();
    let watch = api.tokens.mint(session_id(1), owner(), Permission::View, session(1).created_at);
    for record in [listed, read] {
        for field in ["cdp_ws_url", "webdriver_ws_url", "browser_live_view_url"] {
            let url = record[field].as_str().unwrap();
            assert!(url.ends_with(&format!("?jwt={watch}")), "{field}: {url}");
        }
    }
    for (method, path) in [
        ("POST", "/browsers".to_owned()),
        ("PATCH", format!("/browsers/{ID}")),
        ("DELETE", format!("/browsers/{ID}")),
        ("POST", format!("/browsers/{ID}/computer/screenshot")),
        ("GET", format!("/browsers/{ID}/fs/read_file?path=/etc/passwd")),
        ("GET", format!("/profiles/{ID}/download")),
        ("GET", format!("/credentials/{ID}/totp-code")),
        ("POST", "/org/api_keys".to_owned()),
        ("POST", format!("/org/api_keys/{ID}/rotate")),
    ] {
        let reply = api.call(method, &path, "").await;
        assert!(is_refused(&reply), "{method} {path}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_for_one_project_opens_no_other() {
    let mut ports = with_policy(&[("browsers:*", &format!("projects/{}/*", other_project()))]);
    ports.sessions.expect_list().returning(|_, _, _| Ok(Listed { items: Vec::new(), next_offset: None }));
    let api = TestApi::start(ports);
    let header = format!("X-Kernel-Project-Id: {}", other_project());
    assert_eq!(api.request("GET", "/browsers", &[&key(), &header], "").await.status, 200);
    let resource = in_project("browsers/*");
    assert_eq!(
        api.get("/browsers").await.json()["message"],
        format!("this needs browsers:read on {resource}, which the key's policy does not allow")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_names_only_resources_that_the_key_may_use() {
    let id = ProfileId::from_ulid(session_id(7).ulid());
    let create = async |statements: &[(&str, &str)]| {
        let mut ports = with_policy(statements);
        ports.profiles.expect_find().returning(move |_, _| Ok(Some(profile(id, "ann"))));
        ports.spares.expect_take().returning(|_| None);
        ports.sessions.expect_find().returning(|_| Ok(None));
        ports.sessions.expect_create().returning(|_, _, _| Err(StoreError::unavailable("session.create", "reached")));
        TestApi::start(ports).post("/browsers", json!({ "profile": { "name": "ann" } })).await
    };
    let own = in_project(&format!("profiles/{id}"));
    let refused = create(&[("browsers:*", "*")]).await;
    assert!(is_refused(&refused), "{refused}");
    let message = format!("this needs profiles:use on {own}, which the key's policy does not allow");
    assert_eq!(refused.json()["message"], format!("profile: {message}"));
    assert_eq!(refused.json()["details"][0]["code"], "insufficient_scope");
    let allowed = create(&[("browsers:*", "*"), ("profiles:use", &own)]).await;
    assert_eq!(allowed.status, 503, "the store is reached: {allowed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_saves_a_profile_only_for_a_key_that_may_change_it() {
    let id = ProfileId::from_ulid(session_id(7).ulid());
    let own = in_project(&format!("profiles/{id}"));
    let ports = |action| {
        let mut ports =
            with_policy(&[("browsers:*", "*"), ("browser_pools:*", "*"), ("profiles:use", &own), (action, &own)]);
        ports.profiles.expect_find().returning(move |_, _| Ok(Some(profile(id, "ann"))));
        ports.pools.expect_find().returning(|_, _| Ok(Some(pool(1).build())));
        ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
        ports.spares.expect_take().returning(|_| None);
        ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
        ports.sessions.expect_find().returning(|_| Ok(None));
        ports.sessions.expect_create().returning(|_, _, _| Err(StoreError::unavailable("session.create", "reached")));
        ports
    };
    let one = format!("/browsers/{}", session_id(1));
    let body = json!({ "profile": { "name": "ann", "save_changes": true } }).to_string();
    let message = format!("profile: this needs profiles:update on {own}, which the key's policy does not allow");
    for (method, path) in [("POST", "/browsers"), ("PATCH", &*one), ("POST", "/browser_pools/x/acquire")] {
        let reply = TestApi::start(ports("profiles:read")).call(method, path, &body).await;
        assert!(is_refused(&reply), "{method} {path}: {reply}");
        assert_eq!(reply.json()["message"], message, "{method} {path}");
    }
    let allowed = TestApi::start(ports("profiles:update")).post("/browsers", &*body).await;
    assert_eq!(allowed.status, 503, "the store is reached: {allowed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_of_a_login_is_controlled_only_by_keys_for_logins() {
    let login = || Session { for_login: true, ..session(1) };
    for (action, permission) in
        [("auth_connections:read", Permission::View), ("auth_connections:use", Permission::Interact)]
    {
        let mut ports = with_policy(&[("browsers:*", "*"), (action, "*")]);
        ports.sessions.expect_list().returning(move |_, _, _| Ok(Listed { items: vec![login()], next_offset: None }));
        let api = TestApi::start(ports);
        let record = api.get("/browsers").await.json()[0].clone();
        let token = api.tokens.mint(session_id(1), owner(), permission, session(1).created_at);
        let url = record["browser_live_view_url"].as_str().unwrap();
        assert!(url.ends_with(&format!("?jwt={token}")), "{action}: {url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_browsers_of_an_invocation_need_the_actions_of_sessions_too() {
    let path = format!("/invocations/{}/browsers", invocation(1).id);
    for (method, action, status) in [("GET", "browsers:read", 200), ("DELETE", "browsers:delete", 204)] {
        let call = async |action| {
            let mut ports = with_policy(&[("invocations:*", "*"), (action, "*")]);
            ports.invocations.expect_find().returning(|_, _| Ok(Some(invocation(1))));
            ports.sessions.expect_of_invocation().returning(|_| Ok(Vec::new()));
            TestApi::start(ports).call(method, &path, "").await
        };
        let refused = call("browsers:use").await;
        assert!(is_refused(&refused), "{method}: {refused}");
        let all = in_project("browsers/*");
        let message = format!("this needs {action} on {all}, which the key's policy does not allow");
        assert_eq!(refused.json()["message"], message);
        assert_eq!(call(action).await.status, status, "{method}");
    }
}

/// Returns an API with the profile of a connection, and with a key that may manage connections and use profiles.
fn connections(more: &[(&str, &str)]) -> TestApi {
    let mut ports = with_policy(&[&[("auth_connections:*", "*"), ("profiles:use", "*")][..], more].concat());
    ports.profiles.expect_find().returning(|_, _| Ok(Some(profile(connection().profile, "ann"))));
    ports.auth_connections.expect_create().returning(|_, _| Ok(ConnectionStored::Yes));
    finds(&mut ports, connection());
    ports.auth_connections.expect_update().returning(|_, change, _| {
        let settings = change.apply(&Settings::default());
        Ok(ConnectionUpdated::Yes(Box::new(AuthConnection { settings, ..connection() })))
    });
    TestApi::start(ports)
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_save_credentials_only_for_a_key_that_may_make_and_change_them() {
    let all = in_project("credentials/*");
    let create = async |api: &TestApi, save: Option<bool>| {
        let mut body = json!({ "domain": "shop.example", "profile_name": "ann" });
        if let Some(save) = save {
            body["save_credentials"] = json!(save);
        }
        api.post("/auth/connections", &body).await
    };
    for (lacks, has) in [("create", ["update", "use"]), ("update", ["create", "use"]), ("use", ["create", "update"])] {
        let has = has.map(|verb| format!("credentials:{verb}"));
        let api = connections(&[(&has[0], &all), (&has[1], &all)]);
        let needed = format!("this needs credentials:{lacks} on {all}, which the key's policy does not allow");
        let refusals =
            [create(&api, Some(true)).await, api.patch(&path(""), json!({ "save_credentials": true })).await];
        for refused in refusals {
            assert!(is_refused(&refused), "{refused}");
            assert_eq!(refused.json()["message"], format!("save_credentials: {needed}"));
        }
        for save in [None, Some(false)] {
            let made = create(&api, save).await;
            assert_eq!((made.status, &made.json()["save_credentials"]), (201, &json!(false)), "{made}");
        }
        for change in [json!({ "save_credentials": false }), json!({ "auto_reauth": false })] {
            assert_eq!(api.patch(&path(""), &change).await.status, 200, "{change}");
        }
    }
    let api = connections(&[("credentials:*", &all)]);
    for save in [None, Some(true)] {
        let made = create(&api, save).await;
        assert_eq!((made.status, &made.json()["save_credentials"]), (201, &json!(true)), "{made}");
    }
    assert_eq!(api.patch(&path(""), json!({ "save_credentials": true })).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_another_call_makes_first_is_not_used_without_permission() {
    let mut ports = with_policy(&[("auth_connections:*", "*"), ("profiles:create", "*")]);
    let mut found = [None, Some(profile(connection().profile, "ann"))].into_iter();
    ports.profiles.expect_find().times(2).returning(move |_, _| Ok(found.next().unwrap()));
    ports.profiles.expect_create().times(1).returning(|_, _| Ok(ProfileStored::NameTaken));
    let body = json!({ "domain": "shop.example", "profile_name": "ann" });
    let refused = TestApi::start(ports).post("/auth/connections", &body).await;
    assert!(is_refused(&refused), "{refused}");
    assert!(refused.text().contains("profile_name: this needs profiles:use on "), "{refused}");
}

/// Creates a key with a key that has a policy and expires after an hour. The store is not available.
async fn create_key(body: Value) -> Reply {
    let mut keys = keys_after(|key| {
        let statement = |action, resource: &str| Statement::parse(action, resource).unwrap();
        let browsers = statement("browsers:*", &in_project("*"));
        let own = vec![statement("api_keys:create", "organization/api_keys/*"), browsers];
        key.policy = Some(Policy::new(own).unwrap());
        key.expires_at = Some(NOON + Duration::hours(1));
    });
    keys.expect_insert().returning(|_| Err(StoreError::unavailable("api_key.insert", "reached")));
    TestApi::start(Ports { keys: Some(keys), ..Ports::default() }).post("/org/api_keys", body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_none_that_may_do_more_than_itself() {
    let within = json!({ "statements": [{ "action": "browsers:use", "resource": in_project("browsers/*") }] });
    let in_time = "2026-12-01T12:59:00Z";
    let made = create_key(json!({ "name": "a", "policy": within, "expires_at": in_time })).await;
    assert_eq!(made.status, 503, "the store is reached: {made}");

    let profiles = in_project("profiles/*");
    for (action, resource) in [("*", "*"), ("browsers:use", "*"), ("profiles:read", profiles.as_str())] {
        let policy = json!({ "statements": [{ "action": action, "resource": resource }] });
        let reply = create_key(json!({ "name": "a", "policy": policy, "expires_at": in_time })).await;
        assert!(is_refused(&reply), "{reply}");
        assert!(reply.text().contains(&format!("{action} on {resource}")), "{reply}");
    }
    assert!(is_refused(&create_key(json!({ "name": "a", "expires_at": in_time })).await), "without a policy");
    let earlier = "the key of the request expires earlier; a key cannot make one that outlives it";
    for (body, field) in [
        (json!({ "name": "a", "policy": within, "expires_at": "2026-12-01T13:00:01Z" }), "expires_at"),
        (json!({ "name": "a", "policy": within, "days_to_expire": 1 }), "days_to_expire"),
        (json!({ "name": "a", "policy": within }), "expires_at"),
    ] {
        assert_eq!(create_key(body).await.details(), [format!("out_of_range: {field}: {earlier}")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_has_either_days_or_an_exact_expiry_and_a_valid_policy() {
    let api = TestApi::start(Ports::default());
    let details = async |body: Value| api.post("/org/api_keys", body).await.details();
    assert_eq!(
        details(json!({ "name": "a", "days_to_expire": 3, "expires_at": "2027-01-01T00:00:00Z" })).await,
        [
            "mutually_exclusive: days_to_expire: cannot be given together with expires_at",
            "mutually_exclusive: expires_at: cannot be given together with days_to_expire"
        ]
    );
    assert_eq!(
        details(json!({ "name": "a", "expires_at": "2026-12-01T12:00:00Z" })).await,
        ["out_of_range: expires_at: must be in the future"]
    );
    let format = details(json!({ "name": "a", "expires_at": "tomorrow" })).await;
    assert!(format[0].starts_with("invalid_format: expires_at:"), "{format:?}");
    let policy = json!({ "statements": [{ "action": "vaults:read", "resource": "*" }, { "action": "*" }] });
    let refused = details(json!({ "name": "a", "policy": policy })).await;
    assert!(
        refused[0].starts_with("not_allowed: policy.statements[0].action: must be one of browsers,"),
        "{refused:?}"
    );
    assert_eq!(refused[1], "required: policy.statements[1].resource: is required");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_reads_what_it_is_and_opens() {
    let api = TestApi::start(Ports::default());
    let context = async |key: Key, project: Option<&str>| {
        let key = format!("Authorization: Bearer {}", key.text());
        let header = project.map(|id| format!("X-Kernel-Project-Id: {id}"));
        let lines: Vec<&str> = std::iter::once(&*key).chain(header.as_deref()).collect();
        api.request("GET", "/auth/context", &lines, "").await.json()
    };
    let expected = |key: Key, own: Option<&str>, effective: Option<&str>| {
        let id = key.text().split('_').nth(1).unwrap().to_owned();
        let scopes =
            json!({ "credential_scope": { "project_id": own }, "effective_scope": { "project_id": effective } });
        json!({
            "authentication": { "credential_id": id, "method": "api_key", "source": "api_key" },
            "authorization": scopes,
            "organization": { "id": project().organization.to_string() },
            "principal": { "id": id, "type": "api_key" },
        })
    };
    let other = other_project().to_string();
    let other = Some(other.as_str());
    assert_eq!(context(Key::Organization, None).await, expected(Key::Organization, None, None));
    assert_eq!(context(Key::Organization, other).await, expected(Key::Organization, None, other));
    assert_eq!(context(Key::OtherProject, None).await, expected(Key::OtherProject, other, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entitlements_are_the_features_and_limits_of_the_installation() {
    let mut projects = MockProjectRepository::new();
    projects.expect_organization().returning(|_| Ok(organization()));
    let api = TestApi::start(Ports { projects: Some(projects), ..Ports::default() });
    let body = api.get("/org/entitlements").await.json();
    for (name, has) in [("browser_pools", true), ("managed_proxies", false), ("gpu", false), ("vaults", false)] {
        assert_eq!(body["features"][name]["enabled"], json!(has), "{name}");
    }
    let sessions = organization().caps.concurrent_sessions.unwrap_or(2_147_483_647);
    assert_eq!(body["limits"]["max_concurrent_browsers"], json!(sessions));
    assert_eq!(body["features"]["managed_auth"]["health_check_interval_min_seconds"], 300);
    assert_eq!(body["plan"]["trial_ends_at"], Value::Null);
}
