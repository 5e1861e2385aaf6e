//! Network configurations and the selection of proxies in requests and records.

use casement_domain::{
    ProxyId,
    browser::{Shape, Started},
    network::{Allowlist, Destination, Network},
    pool::PoolStored,
    session::{Created, Session},
    store_error::Replaced,
    testing::{pool, proxy, session, session_id},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use ulid::Ulid;

use super::support::{Ports, TestApi};

fn id(n: u128) -> ProxyId {
    ProxyId::from_ulid(Ulid(n))
}

fn allowing(hosts: &[&str]) -> Network {
    let hosts = hosts.iter().map(|text| Destination::parse_allowed(text).expect("a host")).collect();
    Network { allowlist: Some(Allowlist::new(hosts)), ..Network::default() }
}

fn with_network() -> Session {
    Session { shape: Shape { network: Some(allowing(&["a.example"])), ..session(1).shape }, ..session(1) }
}

/// Returns the fields and codes of the details of a refusal.
fn details(reply: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let details = reply["details"].as_array().cloned().unwrap_or_default();
    let field = |detail: &Value| text(&detail["message"]).split(':').next().unwrap_or_default().to_owned();
    details.iter().map(|detail| (field(detail), text(&detail["code"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_created_with_a_network_configuration_and_shows_it() {
    let mut ports = Ports::default();
    ports.spares.expect_take().withf(|shape| shape.network.is_none() && shape.proxy.is_none()).returning(|_| None);
    ports.sessions.expect_create().returning(|_, _, _| Ok(Created::Yes));
    ports.sessions.expect_activate().returning(|_, _, _| Ok(Replaced::Yes));
    ports.engine.expect_start().returning(|_| Ok(Started::default()));
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    ports.proxies.expect_named().returning(|_, _| Ok(vec![proxy(id(7), "exit")]));
    ports.proxies.expect_find_any().returning(|wanted| Ok(Some(proxy(wanted, "exit"))));
    let body = json!({
        "start_url": "https://Example.com/",
        "network": {
            "allowed_hosts": ["Example.com", "*.b.example", "8.8.8.0/24"],
            "private_hosts": [],
            "proxy_routes": [{ "hosts": ["*.c.example"], "proxy": { "name": "exit" } }],
        },
        "proxy": { "name": "exit" },
    });
    let reply = TestApi::start(ports).post("/browsers", body).await;
    assert_eq!(reply.status, 201, "{reply}");
    let expected = json!({
        "allowed_hosts": ["example.com", "*.b.example", "8.8.8.0/24"],
        "allowlist_state": { "revision": "1" },
        "private_hosts": [],
        "proxy_routes": [{ "hosts": ["*.c.example"], "proxy": { "id": id(7).to_string() } }],
        "denied_requests": { "count": 0, "last": [] },
    });
    assert_eq!(reply.json()["network"], expected);
    assert_eq!(reply.json()["proxy"], json!({ "id": id(7).to_string() }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_configuration_that_breaks_a_rule_is_refused_with_its_fields() {
    let api = TestApi::start(Ports::default());
    for (body, field, code) in [
        (json!({ "network": { "allowed_hosts": [] } }), "network.allowed_hosts", "too_short"),
        (json!({ "network": { "allowed_hosts": ["a.example", "10.0.0.1"] } }), "network.allowed_hosts.1", "blocked"),
        (json!({ "network": { "allowed_hosts": ["http://a.example"] } }), "network.allowed_hosts.0", "invalid_format"),
        (json!({ "network": { "private_hosts": ["wiki.internal"] } }), "network.private_hosts.0", "not_allowed"),
        (
            json!({ "network": { "allowed_hosts": ["a.example"] }, "start_url": "https://b.example/" }),
            "start_url",
            "not_allowed",
        ),
        (json!({ "proxy": {} }), "proxy", "required"),
        (json!({ "proxy": { "id": "x", "mode": "direct" } }), "proxy", "mutually_exclusive"),
        (json!({ "proxy": { "mode": "stealth" } }), "proxy.mode", "not_allowed"),
        (json!({ "proxy": { "mode": "direct" }, "proxy_id": "x" }), "proxy", "mutually_exclusive"),
        (json!({ "proxy": { "id": "no id" } }), "proxy", "reference_not_found"),
    ] {
        for path in ["/browsers", "/browser_pools"] {
            if path == "/browser_pools" && body.get("proxy").is_some() {
                continue;
            }
            let mut body = body.clone();
            body["size"] = json!(1);
            let reply = api.post(path, body.clone()).await;
            assert_eq!(
                (reply.status, details(&reply.json())),
                (400, vec![(field.into(), code.into())]),
                "{path} {body}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_allowed_hosts_of_a_session_change_and_only_from_the_expected_revision() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(with_network())));
    let api = TestApi::start(ports);
    let path = format!("/browsers/{}", session_id(1));
    let reply = api
        .patch(&path, json!({ "network": { "allowed_hosts": ["b.example"], "expected_allowlist_revision": "9", "mutation_id": "m" } }))
        .await;
    assert_eq!((reply.status, &*reply.code()), (409, "stale_network"), "{reply}");
    for (network, field, code) in [
        (json!({ "private_hosts": [] }), "network.private_hosts", "not_allowed"),
        (json!({ "proxy_routes": [] }), "network.proxy_routes", "not_allowed"),
        (json!({ "allowed_hosts": [] }), "network.allowed_hosts", "too_short"),
        (json!({ "allowed_hosts": null, "mutation_id": "m" }), "network.expected_allowlist_revision", "required"),
        (json!({ "mutation_id": "m", "expected_allowlist_revision": "1" }), "network.allowed_hosts", "required"),
    ] {
        let reply = api.patch(&path, json!({ "network": network })).await;
        assert_eq!((reply.status, details(&reply.json())), (400, vec![(field.into(), code.into())]), "{network}");
    }
    let reply = api.patch(&path, json!({ "proxy": { "mode": "default" }, "disable_default_proxy": true })).await;
    assert_eq!(details(&reply.json()), [("proxy".into(), "mutually_exclusive".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_allowlist_is_stored_and_shown() {
    let mut ports = Ports::default();
    let stored = std::sync::Arc::new(parking_lot::Mutex::new(with_network()));
    let read = stored.clone();
    ports.sessions.expect_find_in_project().returning(move |_, _, _| Ok(Some(read.lock().clone())));
    ports.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    ports.sessions.expect_change_allowlist().times(1).returning(move |_, change| {
        let mut stored = stored.lock();
        let changed = stored.shape.network.clone().unwrap_or_default().changed(change);
        stored.shape.network = changed.clone().ok();
        Ok(Some(changed))
    });
    let body = json!({ "network": { "allowed_hosts": null, "expected_allowlist_revision": "1", "mutation_id": "m" } });
    let reply = TestApi::start(ports).patch(&format!("/browsers/{}", session_id(1)), body).await;
    let network = &reply.json()["network"];
    assert_eq!((reply.status, network.get("allowed_hosts")), (200, None), "{reply}");
    assert_eq!(network["allowlist_state"], json!({ "revision": "2", "base_revision": "1", "mutation_id": "m" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_changes_its_network_only_from_the_expected_one() {
    let mut ports = Ports::default();
    let mut stored = pool(3).name("warm").build();
    stored.config.shape.network = Some(allowing(&["a.example"]));
    ports.pools.expect_find().returning(move |_, _| Ok(Some(stored.clone())));
    // Browsers with the old list are not leased any more.
    ports
        .pools
        .expect_replace()
        .withf(|_, _, next, discards| next.config.shape.network.is_none() && *discards)
        .times(1)
        .returning(|_, _, _, _| Ok((PoolStored::Yes, Vec::new())));
    ports.pools.expect_counts().returning(|_| Ok(Default::default()));
    ports.wake.expect_wake().return_const(());
    let api = TestApi::start(ports);
    for expected in [json!({}), json!({ "allowed_hosts": ["b.example"] })] {
        let reply = api.patch("/browser_pools/warm", json!({ "network": {}, "expected_network": expected })).await;
        assert_eq!((reply.status, &*reply.code()), (409, "stale_network"), "{reply}");
    }
    let reply = api.post("/browser_pools", json!({ "size": 1, "expected_network": {} })).await;
    assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "a new pool has none: {reply}");
    let body = json!({ "network": {}, "expected_network": { "allowed_hosts": ["A.example"] } });
    let reply = api.patch("/browser_pools/warm", body).await;
    assert_eq!((reply.status, reply.json()["browser_pool_config"].get("network")), (200, None), "{reply}");
}
