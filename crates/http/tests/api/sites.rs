//! CORS, and rate limits of keys.

use casement_domain::testing::project_id;
use pretty_assertions::assert_eq;

use super::support::{Key, Ports, TestApi};

const SITE: &str = "Origin: https://app.example.com";
const OTHER: &str = "Origin: https://evil.example.com";

fn trusting() -> TestApi {
    TestApi::start(Ports { cors_origins: vec!["https://app.example.com"], ..Ports::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_site_gets_the_allowed_headers_and_methods() {
    let preflight = [SITE, "Access-Control-Request-Method: DELETE"];
    let reply = trusting().request("OPTIONS", "/browsers/x", &preflight, "").await;
    assert_eq!(reply.status, 204);
    let headers = ["allow-origin", "allow-methods", "allow-headers", "max-age", "allow-credentials"]
        .map(|name| reply.header(&format!("access-control-{name}")));
    assert_eq!(
        headers,
        [
            Some("https://app.example.com"),
            Some("DELETE, GET, HEAD, OPTIONS, PATCH"),
            Some("Authorization, Content-Type, X-Kernel-Project-Id, X-Kernel-Project, Last-Event-ID"),
            Some("600"),
            None,
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_listed_site_read_successes_and_errors_alike() {
    let api = trusting();
    for path in ["/org/projects/nothing", "/browsers"] {
        let reply = api.request("GET", path, &[SITE], "").await;
        assert_eq!((reply.status, reply.header("vary")), (401, Some("Origin")));
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example.com"));
        assert!(reply.header("access-control-expose-headers").unwrap().contains("X-Next-Offset"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_sites_get_no_cors_headers() {
    let preflight = [OTHER, "Access-Control-Request-Method: GET"];
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    for api in [trusting(), TestApi::start(Ports::default())] {
        let preflight_reply = api.request("OPTIONS", "/browsers", &preflight, "").await;
        assert_eq!((preflight_reply.status, preflight_reply.header("access-control-allow-origin")), (403, None));
        let called = api.request("GET", "/org/limits", &[OTHER, &key], "").await;
        assert_eq!((called.status, called.header("access-control-allow-origin")), (403, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_over_its_rate_is_refused_and_others_are_not() {
    let mut ports = Ports { rate_limit: Some(2), ..Ports::default() };
    ports.sessions.expect_list().returning(|_, _, page| Ok(page.cut(Vec::new())));
    let api = TestApi::start(ports);
    let as_key = async |key: Key| {
        let header = format!("Authorization: Bearer {}", key.text());
        api.request("GET", "/browsers", &[&header], "").await
    };
    let mut refused = None;
    for _ in 0..20 {
        let reply = as_key(Key::OtherProject).await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("20 calls take less than ten seconds");
    assert_eq!((refused.code(), refused.header("retry-after")), ("rate_limited".to_owned(), Some("1")));
    assert_eq!(refused.header("x-should-retry"), None, "it is worth another try");
    assert_eq!(as_key(Key::Organization).await.status, 200);
    assert_eq!(as_key(Key::Revoked).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_reported_before_the_rate_limit() {
    let api = TestApi::start(Ports { rate_limit: Some(1), ..Ports::default() });
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    let elsewhere = format!("X-Kernel-Project-Id: {}", project_id());
    for _ in 0..5 {
        let reply = api.request("GET", "/browsers", &[&key, &elsewhere], "").await;
        assert_eq!((reply.status, &*reply.code()), (403, "forbidden"));
        let reply = api.request("GET", "/org/api_keys", &[&key], "").await;
        assert_eq!((reply.status, &*reply.code()), (403, "forbidden"));
    }
    let reply = api.request("GET", "/browsers", &[&key], "").await;
    assert_eq!((reply.status, &*reply.code()), (429, "rate_limited"), "those calls count");
}
