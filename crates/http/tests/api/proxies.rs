//! The routes `/proxies`, and references to proxies in sessions.

use casement_domain::{
    ProxyId,
    page::Listed,
    proxy::{
        CheckOutcome, Exit, Proxy, ProxyConfig, ProxyDeleted, ProxyFailure, ProxyGateways, ProxyProtocol, ProxyStatus,
        ProxyStored, ProxyType, Upstream,
    },
    session::Created,
    testing::{PlainSealer, browser_id, own_proxy, proxy, session, session_id},
};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::support::{Ports, TestApi};

fn id(n: u128) -> ProxyId {
    ProxyId::from_ulid(ulid::Ulid::from_parts(12, n))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_checked_and_stored_sealed_and_its_password_is_never_returned() {
    let mut ports = Ports::default();
    ports.dialer.expect_check().times(1).returning(|proxy, url| {
        assert!(url.is_none() && proxy.port == 1080 && proxy.credentials.is_some());
        CheckOutcome::Available("198.51.100.7".parse().ok())
    });
    ports.proxies.expect_create().times(1).returning(|proxy, max| {
        assert_eq!((max, proxy.status), (1000, ProxyStatus::Available));
        let ProxyConfig::Own(own) = &proxy.config else { panic!("it is the caller's own") };
        let sealed = own.password.as_deref().unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"s3cr3t"), "it is stored in clear");
        Ok(ProxyStored::Yes)
    });
    let body = json!({
        "type": "custom", "name": " exit ", "protocol": "socks5", "bypass_hosts": ["*.Local.example", "10.0.0.0/8"],
        "config": { "host": "Proxy.example", "port": 1080, "username": "me:@/%", "password": "s3cr3t:@/%" },
    });
    let reply = TestApi::start(ports).post("/proxies", &body).await;
    assert_eq!(reply.status, 201, "{reply}");
    let body = reply.json();
    assert!(!reply.text().contains("s3cr3t"));
    assert_eq!(
        body["config"],
        json!({
            "host": "proxy.example", "port": 1080, "username": "me:@/%", "has_password": true, "has_ca_bundle": false,
        })
    );
    assert_eq!(
        [&body["name"], &body["type"], &body["protocol"], &body["status"], &body["ip_address"]],
        [&json!("exit"), &json!("custom"), &json!("socks5"), &json!("available"), &json!("198.51.100.7")]
    );
    assert_eq!(body["bypass_hosts"], json!(["*.local.example", "10.0.0.0/8"]));
    assert_eq!(reply.header("location"), Some(&*format!("/proxies/{}", body["id"].as_str().unwrap())));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_are_named_and_nothing_is_dialled() {
    let api = TestApi::start(Ports::default());
    let config = |more: serde_json::Value| {
        let mut config = json!({ "host": "a.example", "port": 1 });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "type": "custom", "config": config })
    };
    let many = vec!["a"; 10_000];
    for (body, field, code) in [
        (json!({}), "type", "required"),
        (json!({ "type": "custom" }), "config", "required"),
        (json!({ "type": "tor", "config": { "host": "a", "port": 1 } }), "type", "not_allowed"),
        (
            json!({ "type": "custom", "protocol": "ftp", "config": { "host": "a", "port": 1 } }),
            "protocol",
            "not_allowed",
        ),
        (config(json!({ "port": 0 })), "config.port", "out_of_range"),
        (config(json!({ "port": 65_536 })), "config.port", "out_of_range"),
        (config(json!({ "host": "a b" })), "config.host", "invalid_format"),
        (config(json!({ "host": "http://a" })), "config.host", "invalid_format"),
        (config(json!({ "country": "US" })), "config.country", "not_allowed"),
        (config(json!({ "username": "a:b" })), "config.username", "invalid_format"),
        (config(json!({ "username": "a\nb" })), "config.username", "invalid_format"),
        (config(json!({ "password": "x" })), "config.username", "required"),
        (config(json!({ "ca_bundle": ca_bundle() })), "config.ca_bundle", "not_allowed"),
        (
            json!({
                "type": "custom", "protocol": "https",
                "config": { "host": "a", "port": 1, "ca_bundle": "-----BEGIN PRIVATE KEY-----" },
            }),
            "config.ca_bundle",
            "not_allowed",
        ),
        (
            json!({ "type": "custom", "protocol": "https", "config": { "host": "a", "port": 1, "ca_bundle": "" } }),
            "config.ca_bundle",
            "invalid_format",
        ),
        (
            json!({ "type": "custom", "bypass_hosts": ["*"], "config": { "host": "a", "port": 1 } }),
            "bypass_hosts.0",
            "invalid_format",
        ),
        (
            json!({ "type": "custom", "bypass_hosts": many, "config": { "host": "a", "port": 1 } }),
            "bypass_hosts",
            "too_many",
        ),
    ] {
        let reply = api.post("/proxies", &body).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{reply}");
        let detail = &reply.json()["error"]["details"][0];
        let detail = if detail.is_null() { reply.json()["details"][0].clone() } else { detail.clone() };
        assert_eq!(detail["code"], code, "{reply}");
        assert!(detail.to_string().contains(field), "{reply}");
    }
}

/// Returns a certificate in PEM.
fn ca_bundle() -> String {
    rcgen::generate_simple_self_signed(Vec::new()).unwrap().cert.pem()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authorities_of_a_proxy_are_stored_and_used_for_its_check() {
    let (mut ports, bundle) = (Ports::default(), ca_bundle());
    let (checked, stored) = (bundle.clone(), bundle.clone());
    ports.dialer.expect_check().times(1).returning(move |proxy, _| {
        assert_eq!(proxy.ca_bundle.as_ref().map(|bundle| bundle.as_str()), Some(checked.as_str()));
        CheckOutcome::Available(None)
    });
    ports.proxies.expect_create().times(1).returning(move |proxy, _| {
        let ProxyConfig::Own(own) = &proxy.config else { panic!("it is the caller's own") };
        assert_eq!(own.ca_bundle.as_ref().map(|bundle| bundle.as_str()), Some(stored.as_str()));
        Ok(ProxyStored::Yes)
    });
    let config = json!({ "host": "proxy.example", "port": 443, "ca_bundle": bundle });
    let body = json!({ "type": "custom", "protocol": "https", "config": config });
    let reply = TestApi::start(ports).post("/proxies", &body).await;
    assert_eq!((reply.status, &reply.json()["config"]["has_ca_bundle"]), (201, &json!(true)), "{reply}");
    assert!(!reply.text().contains("CERTIFICATE"), "{reply}");
}

/// Returns ports of an installation with proxy gateways.
fn renting() -> Ports {
    let upstream = |url: &str| Upstream::parse(&url.parse().unwrap()).unwrap();
    let residential = "socks5://me[-{country}][-{city}][-{asn}]:s3cr3t@gate.example:1080";
    let all = [
        (ProxyType::Residential, upstream(residential)),
        (ProxyType::Datacenter, upstream("http://me-{COUNTRY}:s3cr3t@gate.example:7000")),
        (ProxyType::Mobile, upstream(&format!("http://{}[-{{country}}]:s3cr3t@gate.example:7000", "m".repeat(255)))),
    ];
    Ports { upstreams: ProxyGateways::from_iter(all), ..Ports::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rented_proxy_uses_the_operators_gateway_which_alone_gets_the_location() {
    let mut ports = renting();
    ports.dialer.expect_check().times(2).returning(|proxy, _| {
        use secrecy::ExposeSecret as _;
        let (user, password) = proxy.credentials.as_ref().expect("credentials");
        assert_eq!((proxy.host.as_str(), password.expose_secret()), ("gate.example", "s3cr3t"));
        match proxy.protocol {
            ProxyProtocol::Socks5 => assert_eq!(user, "me-fr-paris-3215"),
            _ => assert_eq!(user, "me-US"),
        }
        CheckOutcome::Available(None)
    });
    ports.proxies.expect_create().times(2).returning(|proxy, _| {
        assert!(matches!(proxy.config, ProxyConfig::Rented(_)), "{proxy:?}");
        Ok(ProxyStored::Yes)
    });
    let api = TestApi::start(ports);
    let config = json!({ "country": "fr", "city": "paris", "asn": "as3215" });
    let reply = api.post("/proxies", json!({ "type": "residential", "config": config })).await;
    assert_eq!(reply.status, 201, "{reply}");
    let body = reply.json();
    assert_eq!(
        [&body["type"], &body["protocol"], &body["config"]],
        [&json!("residential"), &json!("socks5"), &json!({ "country": "FR", "city": "paris", "asn": "AS3215" })]
    );
    assert!(!reply.text().contains("s3cr3t") && !reply.text().contains("gate.example"), "{reply}");
    let reply = api.post("/proxies", json!({ "type": "datacenter", "protocol": "http" })).await;
    assert_eq!((reply.status, &reply.json()["config"]), (201, &json!({ "country": "US" })), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_type_without_a_gateway_is_not_supported_and_nothing_is_dialled() {
    let api = TestApi::start(renting());
    for (body, field) in [
        (json!({ "type": "isp" }), "type"),
        (json!({ "type": "mobile", "config": { "country": "DE" } }), "config"),
        (json!({ "type": "residential", "protocol": "http" }), "protocol"),
        (json!({ "type": "residential", "config": { "os": "windows" } }), "config"),
    ] {
        let reply = api.post("/proxies", &body).await;
        assert_eq!((reply.status, &*reply.code()), (400, "not_supported"), "{reply}");
        assert!(reply.text().contains(&format!("\"{field}: ")), "{reply}");
    }
    for (kind, config, field, code) in [
        ("residential", json!({ "country": "France" }), "config.country", "invalid_format"),
        ("residential", json!({ "country": "F1" }), "config.country", "invalid_format"),
        ("residential", json!({ "state": "N" }), "config.state", "invalid_format"),
        ("residential", json!({ "city": "paris" }), "config.country", "required"),
        ("residential", json!({ "country": "FR", "city": "New York" }), "config.city", "invalid_format"),
        ("residential", json!({ "country": "FR", "city": "a:b@c" }), "config.city", "invalid_format"),
        ("residential", json!({ "country": "FR", "city": "a".repeat(101) }), "config.city", "too_long"),
        ("residential", json!({ "zip": "7500" }), "config.zip", "invalid_format"),
        ("residential", json!({ "asn": "AS" }), "config.asn", "invalid_format"),
        ("residential", json!({ "asn": "ASé1" }), "config.asn", "invalid_format"),
        ("residential", json!({ "os": "linux" }), "config.os", "not_allowed"),
        ("residential", json!({ "host": "a.example", "port": 1 }), "config.host", "not_allowed"),
        ("datacenter", json!({ "city": "paris", "country": "FR" }), "config.city", "not_allowed"),
        ("mobile", json!({ "zip": "75001" }), "config.zip", "not_allowed"),
    ] {
        let reply = api.post("/proxies", json!({ "type": kind, "config": config })).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{reply}");
        assert!(reply.text().contains(field) && reply.text().contains(code), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rented_proxy_whose_gateway_was_removed_is_unavailable() {
    let mut ports = Ports::default();
    let stored =
        Proxy { kind: ProxyType::Mobile, config: ProxyConfig::Rented(Exit::default()), ..proxy(id(1), "exit") };
    let found = stored.clone();
    ports.proxies.expect_find().returning(move |_, _| Ok(Some(found.clone())));
    ports
        .proxies
        .expect_checked()
        .times(1)
        .returning(move |_, found| Ok(Some(Proxy { status: found.status, ..stored.clone() })));
    let reply = TestApi::start(ports).call("POST", &format!("/proxies/{}/check", id(1)), "").await;
    assert_eq!(
        (reply.status, &reply.json()["status"], &reply.json()["config"]),
        (200, &json!("unavailable"), &json!({}))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_with_an_address_is_not_stored_and_one_without_is() {
    let sealed = casement_domain::sealing::Sealer::seal(&PlainSealer, &Proxy::place(id(1)), b"word").unwrap();
    let stored = Proxy { config: own_proxy("proxy.example", Some(sealed)), ..proxy(id(1), "exit") };
    let mut ports = Ports::default();
    let found = stored.clone();
    ports.proxies.expect_find().returning(move |_, wanted| Ok((wanted == id(1)).then(|| found.clone())));
    ports.dialer.expect_check().returning(|proxy, url| match url {
        _ if proxy.credentials.is_none() => CheckOutcome::Unavailable(ProxyFailure::Closed),
        None => CheckOutcome::Unavailable(ProxyFailure::Closed),
        Some(url) if url.host_str() == Some("10.0.0.1") => CheckOutcome::Blocked,
        Some(_) => CheckOutcome::Available(None),
    });
    ports.proxies.expect_checked().times(1).returning(move |_, found| {
        Ok(Some(Proxy { status: found.status, failure: found.failure, last_checked: Some(found.at), ..stored.clone() }))
    });
    let api = TestApi::start(ports);
    let path = format!("/proxies/{}/check", id(1));
    let reply = api.post(&path, json!({ "url": "https://example.com/" })).await;
    assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("available")), "{reply}");
    let reply = api.call("POST", &path, "").await;
    assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("unavailable")), "{reply}");
    for url in ["http://10.0.0.1/", "ftp://example.com/", "file:///etc/passwd"] {
        let reply = api.post(&path, json!({ "url": url })).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{url}");
        assert!(reply.text().contains("blocked"), "{reply}");
    }
    let reply = api.call("POST", &format!("/proxies/{}/check", id(2)), "").await;
    assert_eq!((reply.status, &*reply.code()), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_listed_renamed_and_deleted_unless_a_pool_uses_it() {
    let mut ports = Ports::default();
    ports.proxies.expect_list().returning(|_, filter, _| {
        assert_eq!((filter.name.as_deref(), filter.query.as_deref()), (None, Some("example")));
        Ok(Listed { items: vec![proxy(id(2), "b"), proxy(id(1), "a")], next_offset: None })
    });
    ports.proxies.expect_find().returning(|_, wanted| Ok(Some(proxy(wanted, "a"))));
    ports
        .proxies
        .expect_rename()
        .returning(|_, wanted, name| Ok((wanted == id(1)).then(|| proxy(id(1), name.as_str()))));
    ports
        .proxies
        .expect_delete()
        .returning(|_, wanted, _| Ok(if wanted == id(1) { ProxyDeleted::InUse } else { ProxyDeleted::Yes }));
    let api = TestApi::start(ports);
    let reply = api.call("GET", "/proxies?query=example", "").await;
    assert_eq!((reply.status, reply.json().as_array().unwrap().len()), (200, 2));
    let path = format!("/proxies/{}", id(1));
    let reply = api.patch(&path, json!({ "name": " new " })).await;
    assert_eq!((reply.status, &reply.json()["name"]), (200, &json!("new")), "{reply}");
    assert_eq!(api.patch(&path, json!({})).await.status, 400);
    let reply = api.call("DELETE", &path, "").await;
    assert_eq!((reply.status, &*reply.code()), (409, "resource_in_use"));
    assert_eq!(api.call("DELETE", &format!("/proxies/{}", id(2)), "").await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_found_by_id_or_name_and_a_name_of_several_is_refused() {
    let mut ports = Ports::default();
    ports.proxies.expect_named().returning(|_, name| {
        let several = |count: u128| (1..=count).map(|n| proxy(id(n), name)).collect();
        Ok(match name {
            "exit" => several(1),
            "twin" => several(2),
            _ => Vec::new(),
        })
    });
    ports.proxies.expect_rename().returning(|_, wanted, name| Ok(Some(proxy(wanted, name.as_str()))));
    ports.proxies.expect_delete().returning(|_, _, _| Ok(ProxyDeleted::Yes));
    ports.proxies.expect_checked().returning(|wanted, _| Ok(Some(proxy(wanted, "exit"))));
    ports.dialer.expect_check().returning(|_, _| CheckOutcome::Available(None));
    let api = TestApi::start(ports);
    for (method, tail, body, status) in [
        ("GET", "", "", 200),
        ("PATCH", "", r#"{"name": "new"}"#, 200),
        ("POST", "/check", "", 200),
        ("DELETE", "", "", 204),
    ] {
        let reply = api.call(method, &format!("/proxies/exit{tail}"), body).await;
        assert_eq!(reply.status, status, "{method}: {reply}");
        if status == 200 {
            assert_eq!(reply.json()["id"], json!(id(1).to_string()), "{method}");
        }
        for (name, status, code) in [("twin", 400, "ambiguous_proxy_name"), ("none", 404, "not_found")] {
            let reply = api.call(method, &format!("/proxies/{name}{tail}"), body).await;
            assert_eq!((reply.status, &*reply.code()), (status, code), "{method} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_names_its_proxy_by_id_or_name_and_an_ambiguous_name_is_refused() {
    for (named, code) in [(0, "reference_not_found"), (2, "ambiguous")] {
        let mut ports = Ports::default();
        let found: Vec<_> = (0..named).map(|n| proxy(id(n), "exit")).collect();
        ports.proxies.expect_named().returning(move |_, _| Ok(found.clone()));
        let reply = TestApi::start(ports).post("/browsers", json!({ "headless": true, "proxy_id": "exit" })).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{reply}");
        assert!(reply.text().contains(code), "{reply}");
    }
    let mut ports = Ports::default();
    ports.proxies.expect_find().returning(|_, wanted| Ok(Some(proxy(wanted, "exit"))));
    ports.proxies.expect_find_any().times(1).returning(|wanted| Ok(Some(proxy(wanted, "exit"))));
    ports.spares.expect_take().withf(|shape| shape.proxy.is_none()).returning(|_| Some(browser_id(1)));
    ports.sessions.expect_create().returning(|_, session, _| {
        assert_eq!(session.shape.proxy, Some(id(7)));
        Ok(Created::Yes)
    });
    ports.engine.expect_hand_out().returning(|_, _| Ok(()));
    let reply =
        TestApi::start(ports).post("/browsers", json!({ "headless": true, "proxy_id": id(7).to_string() })).await;
    assert_eq!((reply.status, &reply.json()["proxy_id"]), (201, &json!(id(7).to_string())), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_session_changes_its_proxy() {
    let mut ports = Ports::default();
    ports.sessions.expect_find_in_project().returning(|_, _, _| Ok(Some(session(1))));
    ports.sessions.expect_change().returning(|_, _| Ok(Some(Created::Yes)));
    ports.proxies.expect_named().returning(|_, _| Ok(vec![proxy(id(7), "exit")]));
    ports.proxies.expect_find_any().returning(|wanted| Ok(Some(proxy(wanted, "exit"))));
    ports.sessions.expect_set_proxy().times(1).returning(|_, proxy| {
        assert_eq!(proxy, Some(id(7)));
        Ok(true)
    });
    let reply =
        TestApi::start(ports).patch(&format!("/browsers/{}", session_id(1)), json!({ "proxy_id": "exit" })).await;
    assert_eq!(reply.status, 200, "{reply}");
}
