//! Parameters and operations of clients that this server does not support: refused by name, and nothing is done.

use casement_domain::testing::session;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Ports, TestApi};

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_would_have_no_effect_is_refused_by_name() {
    // Without an expectation each port panics when it is called.
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    let api = TestApi::start(ports);
    for (method, path, field, body) in [
        ("POST", "/browsers", "video_memory", json!({ "video_memory": "2GiB" })),
        ("POST", "/browsers", "vaults", json!({ "vaults": [{ "name": "x" }] })),
        (
            "POST",
            "/browsers",
            "telemetry.browser.control.cdp",
            json!({ "telemetry": { "browser": { "control": { "enabled": true, "cdp": {} } } } }),
        ),
    ] {
        let reply = api.call(method, path, &body.to_string()).await;
        assert_eq!((reply.status, &*reply.code()), (400, "not_supported"), "{method} {path} {body}: {reply}");
        assert!(reply.to_string().contains(&format!("\"{field}: ")), "{field}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn null_and_what_the_server_does_anyway_are_accepted() {
    let mut ports = Ports::default();
    ports.pools.expect_find().returning(|_, _| Ok(None));
    ports.pools.expect_find_with_next().returning(|_, _, _| Ok(None));
    let api = TestApi::start(ports);
    let reply = api.post("/browser_pools/x/acquire", json!({ "profile": null })).await;
    assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_only_other_servers_have_is_refused_by_its_name() {
    let api = TestApi::start(Ports::default());
    for (method, path, name) in [
        ("POST", "/search", "search.create"),
        ("GET", "/vaults/x/items/y", "vaults.items.retrieve"),
        ("DELETE", "/vault-provider-configs/x", "vault_provider_configs.delete"),
    ] {
        let reply = api.call(method, path, "").await;
        assert_eq!((reply.status, &*reply.code()), (404, "not_supported"), "{method} {path}");
        assert!(reply.to_string().contains(name), "{reply}");
    }
    let reply = api.call("PUT", "/search", "").await;
    assert_eq!((reply.status, &*reply.code()), (404, "route_not_found"));
}
