//! Pages of other sites, and callers that call too often.

use casement_domain::testing::project_id;
use pretty_assertions::assert_eq;

use super::support::{Key, Ports, TestApi};

const SITE: &str = "Origin: https://app.example.com";
const OTHER: &str = "Origin: https://evil.example.com";

fn trusting() -> TestApi {
    TestApi::start(Ports { cors_origins: vec!["https://app.example.com"], ..Ports::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_site_is_told_what_its_pages_may_send() {
    let preflight = [SITE, "Access-Control-Request-Method: DELETE"];
    let reply = trusting().request("OPTIONS", "/browsers/x", &preflight, "").await;
    assert_eq!(reply.status, 204);
    let said = ["allow-origin", "allow-methods", "allow-headers", "max-age", "allow-credentials"]
        .map(|name| reply.header(&format!("access-control-{name}")));
    assert_eq!(
        said,
        [
            Some("https://app.example.com"),
            Some("DELETE, GET, HEAD, OPTIONS, PATCH"),
            Some("Authorization, Content-Type, X-Kernel-Project-Id, Last-Event-ID"),
            Some("600"),
            None,
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn its_pages_read_answers_and_refusals_alike() {
    let api = trusting();
    for path in ["/org/projects/nothing", "/browsers"] {
        let reply = api.request("GET", path, &[SITE], "").await;
        assert_eq!((reply.status, reply.header("vary")), (401, Some("Origin")));
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example.com"));
        assert!(reply.header("access-control-expose-headers").unwrap().contains("X-Next-Offset"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_sites_are_told_nothing() {
    let preflight = [OTHER, "Access-Control-Request-Method: GET"];
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    for api in [trusting(), TestApi::start(Ports::default())] {
        let asked = api.request("OPTIONS", "/browsers", &preflight, "").await;
        assert_eq!((asked.status, asked.header("access-control-allow-origin")), (403, None));
        let called = api.request("GET", "/org/limits", &[OTHER, &key], "").await;
        assert_eq!((called.status, called.header("access-control-allow-origin")), (403, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_calls_too_often_waits_and_others_do_not() {
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
async fn what_a_key_does_not_reach_is_told_before_that_it_calls_too_often() {
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
