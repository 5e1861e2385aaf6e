//! The web interface: sign-in, the scope of its cookie, and the protection from pages of other sites.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use casement_domain::{
    api_key::MockApiKeyRepository,
    audit::AuthStrategy,
    page::Listed,
    pool::PoolCounts,
    testing::{NOON, pool, session, session_id},
};
use casement_http::Permission;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::support::{Key, MemorySignIns, Ports, Reply, TestApi, default_keys};

const OWN: &str = "Sec-Fetch-Site: same-origin";
const ORIGIN: &str = "Origin: https://casement.test";

struct SignedIn {
    cookie: String,
    token: String,
}

impl SignedIn {
    fn headers(&self) -> [&str; 4] {
        [OWN, ORIGIN, &self.cookie, &self.token]
    }
}

async fn try_key(api: &TestApi, key: &str) -> Reply {
    api.request("POST", "/ui/session", &[OWN, ORIGIN], &json!({ "key": key }).to_string()).await
}

async fn sign_in(api: &TestApi, key: Key) -> SignedIn {
    let reply = try_key(api, &key.text()).await;
    assert_eq!(reply.status, 200, "{reply}");
    let set = reply.header("set-cookie").expect("a cookie");
    let pair = set.split(';').next().expect("a pair");
    let token = reply.json()["csrf_token"].as_str().expect("a token").to_owned();
    SignedIn { cookie: format!("Cookie: other=1; {pair}"), token: format!("X-Casement-CSRF: {token}") }
}

/// Returns ports with one session.
fn holding() -> Ports {
    let mut ports = Ports::default();
    ports.sessions.expect_list().returning(|_, _, _| Ok(Listed { items: vec![session(1)], next_offset: None }));
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.engine.expect_screenshot().returning(|_, _, _| Ok(b"no picture".to_vec()));
    ports
}

async fn list_with(api: &TestApi, headers: &[&str]) -> Reply {
    api.request("GET", "/ui/api/browsers", headers, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_assets_are_the_same_for_everybody_and_load_nothing_from_other_origins() {
    let api = TestApi::start(Ports::default());
    for path in ["/ui", "/ui/", "/ui/pools", "/ui/sessions/x", "/ui/assets/ui.css", "/ui/assets/app.js"] {
        let reply = api.request("GET", path, &[], "").await;
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        for part in
            ["frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"]
        {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains("data:"), "{policy}");
        let security_headers =
            ["x-frame-options", "x-content-type-options", "referrer-policy"].map(|name| reply.header(name));
        assert_eq!(security_headers, [Some("DENY"), Some("nosniff"), Some("no-referrer")], "{path}");
    }
    let page = api.request("GET", "/ui", &[], "").await;
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let text = String::from_utf8(page.body.clone()).expect("text");
    assert!(!text.contains("<script>") && !text.contains("style=") && !text.contains("http"), "{text}");
    let home = api.request("GET", "/", &[], "").await;
    assert_eq!((home.status, home.header("location")), (303, Some("/ui")));
    assert_eq!(api.request("GET", "/ui/assets/..%2Fassets.rs", &[], "").await.status, 404);
    assert_eq!(api.request("GET", "/ui/api/nothing", &[], "").await.code(), "route_not_found");
    assert!(api.request("GET", "/ui", &["Cookie: __Host-casement_ui=x"], "").await.header("set-cookie").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_is_bound_to_this_server_and_contains_nothing_of_the_key() {
    let api = TestApi::start(Ports::default());
    let reply = try_key(&api, &Key::Organization.text()).await;
    let set = reply.header("set-cookie").expect("a cookie").to_owned();
    let (pair, flags) = set.split_once("; ").expect("flags");
    assert_eq!(flags, "Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=43200");
    let value = pair.strip_prefix("__Host-casement_ui=").expect("its name");
    assert_eq!(value.len(), 43);
    assert!(!Key::Organization.text().contains(value));
    let body = reply.json();
    assert_eq!(body["ends_at"], "2026-12-02T00:00:00.000000Z");
    assert!(body.get("project_id").is_none() && body["api_key_id"].is_string());

    let plain = TestApi::start(Ports { public_url: Some("http://casement.test".to_owned()), ..Ports::default() });
    let request = [OWN, "Origin: http://casement.test"];
    let key = json!({ "key": Key::OtherProject.text() }).to_string();
    let reply = plain.request("POST", "/ui/session", &request, &key).await;
    let set = reply.header("set-cookie").expect("a cookie");
    assert!(set.starts_with("casement_ui=") && set.contains("; Path=/ui; HttpOnly; SameSite=Strict;"), "{set}");
    assert!(reply.json()["project_id"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_key_cannot_sign_in() {
    let api = TestApi::start(Ports::default());
    for key in ["", "csk_x", &Key::Revoked.text(), &format!("{}x", Key::Organization.text())] {
        let reply = try_key(&api, key).await;
        assert_eq!((reply.status, reply.header("set-cookie")), (401, None), "{key}");
    }
    assert_eq!(try_key(&api, &"x".repeat(5000)).await.status, 413);
    let signed_out = api.request("GET", "/ui/session", &[OWN], "").await;
    assert_eq!((signed_out.status, signed_out.body.len()), (204, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_replaces_the_key_only_under_the_paths_of_the_web_interface() {
    let api = TestApi::start(holding());
    let signed_in = sign_in(&api, Key::Organization).await;
    let list = list_with(&api, &[OWN, &signed_in.cookie]).await;
    assert_eq!(list.status, 200);
    assert_eq!(list.json()[0]["session_id"], session_id(1).to_string());

    for path in ["/browsers", "/browser_pools", "/org/limits", "/metrics", "/vm/x/cdp", "/ui%2Fapi/browsers"] {
        let reply = api.request("GET", path, &signed_in.headers(), "").await;
        assert!([401, 404].contains(&reply.status), "{path}: {}", reply.status);
    }
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    assert_eq!(list_with(&api, &[OWN, &key]).await.status, 401, "and a key is nothing there");
    let token = api.token(session_id(1), Permission::Drive);
    assert_eq!(api.request("GET", &format!("/ui/api/browsers?jwt={token}"), &[OWN], "").await.status, 401);
    for method in ["POST", "PUT"] {
        let reply = api.request(method, "/ui/api/browsers", &signed_in.headers(), "{}").await;
        assert_eq!(reply.status, 405, "only what the pages need");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_can_neither_read_nor_change_nor_sign_in() {
    let api = TestApi::start(Ports { cors_origins: vec!["https://app.casement.test"], ..holding() });
    let signed_in = sign_in(&api, Key::Organization).await;
    let (cookie, token) = (signed_in.cookie.as_str(), signed_in.token.as_str());
    let path = format!("/ui/api/browsers/{}", session_id(1));
    // The headers of browsers for requests from another site, from another origin of this site, or from the address
    // bar.
    for from in [
        &["Sec-Fetch-Site: cross-site"][..],
        &["Sec-Fetch-Site: same-site"],
        &["Sec-Fetch-Site: none"],
        &["Origin: https://evil.test"],
        &["Origin: null"],
        &["Origin: https://casement.test:8443"],
        &["Origin: https://app.casement.test"],
        &["Origin: https://app.casement.test", "Sec-Fetch-Site: same-site"],
        &["Origin: https://casement.test", "Origin: https://evil.test"],
    ] {
        let read = list_with(&api, &[from, &[cookie]].concat()).await;
        assert_eq!(read.status, 403, "{from:?}");
        assert_eq!(read.header("access-control-allow-credentials"), None);
        let change = api.request("DELETE", &path, &[from, &[cookie, token]].concat(), "").await;
        assert_eq!(change.status, 403, "{from:?}");
        let key = json!({ "key": Key::Organization.text() }).to_string();
        assert_eq!(api.request("POST", "/ui/session", from, &key).await.status, 403, "{from:?}");
    }
    // A request that changes something must state its origin and send the token.
    let other = format!("{}x", token.trim_end_matches('x'));
    for shown in [&[OWN][..], &[token], &[OWN, "X-Casement-CSRF: "], &[OWN, &other], &[OWN, token, token]] {
        let change = api.request("DELETE", &path, &[shown, &[cookie]].concat(), "").await;
        assert_eq!(change.status, 403, "{shown:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"] {
        let kind = format!("Content-Type: {kind}");
        let reply = api.request("POST", "/ui/session", &[OWN, ORIGIN, &kind], "{\"key\":\"x\"}").await;
        assert_eq!(reply.status, 415);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_out_ends_the_sign_in_for_good() {
    let api = TestApi::start(holding());
    let (here, there) = (sign_in(&api, Key::Organization).await, sign_in(&api, Key::Organization).await);
    let without = api.request("DELETE", "/ui/session", &[OWN, &here.cookie], "").await;
    assert_eq!(without.status, 403, "it is a change");
    let out = api.request("DELETE", "/ui/session", &here.headers(), "").await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").expect("a cookie").contains("casement_ui=; "), "{out}");
    assert_eq!(list_with(&api, &[OWN, &here.cookie]).await.status, 401);
    assert_eq!(list_with(&api, &[OWN, &there.cookie]).await.status, 200, "others stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_is_valid_on_every_node_until_it_is_ended_on_any() {
    let shared = MemorySignIns::default();
    let node = || TestApi::start(Ports { sign_ins: shared.clone(), ..holding() });
    let (one, other) = (node(), node());
    let signed_in = sign_in(&one, Key::Organization).await;
    assert_eq!(list_with(&other, &[OWN, &signed_in.cookie]).await.status, 200);
    assert_eq!(other.request("DELETE", "/ui/session", &signed_in.headers(), "").await.status, 204);
    assert_eq!(list_with(&one, &[OWN, &signed_in.cookie]).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_again_ends_the_earlier_sign_in() {
    let api = TestApi::start(holding());
    let before = sign_in(&api, Key::Organization).await;
    let key = json!({ "key": Key::Organization.text() }).to_string();
    let again = api.request("POST", "/ui/session", &[OWN, ORIGIN, &before.cookie], &key).await;
    assert_eq!(again.status, 200);
    assert_eq!(list_with(&api, &[OWN, &before.cookie]).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_ends_every_sign_in_with_it() {
    let revoked = Arc::new(AtomicBool::new(false));
    let (mut keys, known, now) = (MockApiKeyRepository::new(), default_keys(), revoked.clone());
    let known = Arc::new(known);
    keys.expect_find().returning(move |id| {
        let found =
            futures_util::FutureExt::now_or_never(casement_domain::api_key::ApiKeyRepository::find(&*known, id));
        let mut found = found.expect("a mock answers at once")?;
        if now.load(Ordering::Relaxed) {
            found.iter_mut().for_each(|found| found.key.deleted_at = Some(NOON));
        }
        Ok(found)
    });
    let api = TestApi::start(Ports { keys: Some(keys), ..holding() });
    let signed_in = sign_in(&api, Key::Organization).await;
    assert_eq!(list_with(&api, &[OWN, &signed_in.cookie]).await.status, 200);
    revoked.store(true, Ordering::Relaxed);
    assert_eq!(list_with(&api, &[OWN, &signed_in.cookie]).await.status, 401);
    revoked.store(false, Ordering::Relaxed);
    assert_eq!(list_with(&api, &[OWN, &signed_in.cookie]).await.status, 401, "nothing brings it back");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_tries_many_keys_is_rate_limited() {
    let api = TestApi::start(Ports::default());
    let mut refused = None;
    for _ in 0..200 {
        let reply = try_key(&api, "csk_wrong").await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("200 tries take less than ten minutes");
    assert_eq!(refused.code(), "rate_limited");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(try_key(&api, &Key::Organization.text()).await.status, 429, "with a good key, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_web_interface_are_recorded_as_the_keys_except_thumbnails() {
    let ports = holding();
    let trail = ports.trail.clone();
    let api = TestApi::start(ports);
    let signed_in = sign_in(&api, Key::Organization).await;
    let picture = format!("/ui/api/browsers/{}/thumbnail", session_id(1));
    let reply = api.request("GET", &picture, &[OWN, &signed_in.cookie], "").await;
    assert_eq!(reply.code(), "browser_unavailable", "what is no picture is not passed on");
    list_with(&api, &[OWN, &signed_in.cookie]).await;
    try_key(&api, &Key::Revoked.text()).await;
    let recorded = trail.entries().await;
    let calls: Vec<_> = recorded
        .iter()
        .map(|(durable, entry)| {
            (*durable, entry.auth_strategy, entry.method.as_str(), entry.route.as_str(), entry.status)
        })
        .collect();
    assert_eq!(
        calls,
        [
            (true, AuthStrategy::ApiKey, "POST", "/ui/session", 200),
            (false, AuthStrategy::ApiKey, "GET", "/ui/api/browsers", 200),
            (false, AuthStrategy::None, "POST", "/ui/session", 401),
        ]
    );
    assert!(recorded.iter().all(|(_, entry)| entry.api_key.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_are_listed_with_waiters_and_the_reason_of_failed_starts() {
    let mut ports = Ports::default();
    ports
        .pools
        .expect_list()
        .returning(|_, _, _| Ok(Listed { items: vec![(pool(3).build(), PoolCounts::default())], next_offset: None }));
    let api = TestApi::start(ports);
    let signed_in = sign_in(&api, Key::Organization).await;
    let reply = api.request("GET", "/ui/api/browser_pools", &[OWN, &signed_in.cookie], "").await;
    let pool: Value = reply.json()[0].clone();
    let status = ["waiting", "longest_wait_seconds", "failed_starts", "blocked", "available_count"]
        .map(|name| pool[name].clone());
    assert_eq!(status, [json!(3), json!(4), json!(5), json!("no_room"), json!(0)]);
}
