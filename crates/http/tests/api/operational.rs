//! Health, readiness, metrics and the API description.

use pretty_assertions::assert_eq;
use serde_json::Value;

use super::support::{Key, Ports, TestApi};

#[tokio::test(flavor = "multi_thread")]
async fn health_and_readiness_need_no_key() {
    let api = TestApi::start(Ports::default());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(api.request("GET", path, &[], "").await.to_string(), "200\n{\"status\":\"ok\"}");
    }
    let api = TestApi::start(Ports { degraded: Some("the disk is nearly full"), ..Ports::default() });
    assert_eq!(
        api.request("GET", "/readyz", &[], "").await.to_string(),
        "200\n{\"status\":\"degraded\",\"detail\":\"the disk is nearly full\"}"
    );
    let api = TestApi::start(Ports { not_ready: Some("postgres://secret".into()), ..Ports::default() });
    assert_eq!(api.request("GET", "/healthz", &[], "").await.status, 200);
    assert_eq!(
        api.request("GET", "/readyz", &[], "").await.to_string(),
        "503\nretry-after: 1\n{\"code\":\"unavailable\",\"message\":\"the server is not ready\"}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_the_organizations_own_key() {
    let api = TestApi::start(Ports::default());
    let reply = api.get("/metrics").await;
    assert_eq!((reply.status, reply.text()), (200, "casement_up 1\n".to_owned()));
    let key = format!("Authorization: Bearer {}", Key::OtherProject.text());
    assert_eq!(api.request("GET", "/metrics", &[&key], "").await.code(), "forbidden");
    assert_eq!(api.request("GET", "/metrics", &[], "").await.code(), "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_has_an_entity_tag_for_each_of_its_forms() {
    let api = TestApi::start(Ports::default());
    let plain = api.request("GET", "/openapi.json", &[], "").await;
    let packed = api.request("GET", "/openapi.json", &["Accept-Encoding: gzip"], "").await;
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
    assert!(packed.body.len() * 4 < plain.body.len(), "{} {}", packed.body.len(), plain.body.len());
    let (tag, packed_tag) = (plain.header("etag").expect("a tag"), packed.header("etag").expect("a tag"));
    assert_ne!(tag, packed_tag);
    for (method, header, encoding, status) in [
        ("GET", tag.to_owned(), "identity", 304),
        ("GET", format!("\"a\", W/{tag}"), "identity", 304),
        ("GET", "*".to_owned(), "gzip", 304),
        ("GET", tag.to_owned(), "gzip", 200),
        ("HEAD", packed_tag.to_owned(), "gzip", 304),
        ("HEAD", "\"other\"".to_owned(), "gzip", 200),
    ] {
        let (header, encoding) = (format!("If-None-Match: {header}"), format!("Accept-Encoding: {encoding}"));
        let reply = api.request(method, "/openapi.json", &[&header, &encoding], "").await;
        assert_eq!((reply.status, reply.header("vary")), (status, Some("Accept-Encoding")), "{method} {header}");
        assert_eq!(reply.body.is_empty(), status == 304 || method == "HEAD", "{method} {header}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_lists_the_error_statuses_of_each_operation() {
    let api = TestApi::start(Ports::default());
    let reply = api.request("GET", "/openapi.json", &[], "").await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let document: Value = reply.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["security"], serde_json::json!([{ "api_key": [] }]));
    let errors = |path: &str| -> Vec<String> {
        let responses = document["paths"][path]["post"]["responses"].as_object().expect(path);
        responses.keys().filter(|status| !status.starts_with('2')).cloned().collect()
    };
    assert_eq!(errors("/browsers/{id_or_name}/computer/screenshot"), ["400", "401", "404", "413", "429", "5XX"]);
    let acquire = ["400", "401", "403", "404", "409", "413", "429", "5XX"];
    assert_eq!(errors("/browser_pools/{id_or_name}/acquire"), acquire);
}
