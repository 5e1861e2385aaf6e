//! The routes `/org/credential_providers`: tokens are sealed and never returned; vaults are called through their port.

use std::sync::Arc;

use casement_domain::{
    CredentialProviderId,
    credential_provider::{
        CredentialProvider, ItemSecrets, ProviderDeleted, ProviderFault, ProviderItem, ProviderPlace, ProviderSettings,
        ProviderStored, ProviderUpdated, ProviderVault, StorePlace,
    },
    name::LabelName,
    page::Listed,
    sealing::Sealer as _,
    testing::{NOON, PlainSealer, organization_id},
};
use pretty_assertions::assert_eq;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::support::{Ports, TestApi};

const PATH: &str = "/org/credential_providers";

fn id() -> CredentialProviderId {
    CredentialProviderId::from_ulid(ulid::Ulid::from_parts(14, 1))
}

fn stored(place: ProviderPlace) -> CredentialProvider {
    CredentialProvider {
        is_onepassword: false,
        id: id(),
        organization: organization_id(),
        name: LabelName::parse("team").unwrap(),
        place,
        token: PlainSealer.seal(&CredentialProvider::seal_place(id()), b"s3cr3t").unwrap(),
        cache_ttl_seconds: 300,
        enabled: true,
        priority: 3,
        projects: Vec::new(),
        created_at: NOON,
        updated_at: NOON,
    }
}

fn server() -> ProviderPlace {
    ProviderPlace::PasswordManager(Some("https://connect.example/".parse().unwrap()))
}

fn settings() -> ProviderSettings {
    ProviderSettings { server_url: None, vaults: ["team".to_owned()].into() }
}

fn ports(place: ProviderPlace) -> Ports {
    let mut ports = Ports { provider_settings: settings(), ..Ports::default() };
    ports.credential_providers.expect_find().returning(move |_, _| Ok(Some(stored(place.clone()))));
    ports.credential_store.expect_forget().return_const(());
    ports
}

fn own_path(rest: &str) -> String {
    format!("{PATH}/{}{rest}", id())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_provider_comes_last_and_its_token_is_stored_sealed() {
    let mut ports = Ports { provider_settings: settings(), ..Ports::default() };
    ports.credential_providers.expect_create().returning(|provider, max| {
        assert_eq!((max, provider.organization, provider.enabled), (100, organization_id(), true));
        let opened = PlainSealer.open(&CredentialProvider::seal_place(provider.id), &provider.token).unwrap();
        assert_eq!(opened.expose_secret(), b"s3cr3t-token");
        Ok(ProviderStored::Yes(7))
    });
    let api = TestApi::start(ports);
    let body = json!({
        "name": " team ", "provider_type": "onepassword", "token": "s3cr3t-token", "server_url": "https://Connect.Example/base/",
    });
    let reply = api.post(PATH, &body).await;
    assert_eq!(reply.status, 201, "{reply}");
    assert!(!reply.text().contains("s3cr3t"), "{reply}");
    let body = reply.json();
    assert_eq!(reply.header("location"), Some(&*format!("{PATH}/{}", body["id"].as_str().unwrap())));
    let expected = json!({
        "id": body["id"], "provider_type": "onepassword", "name": "team", "enabled": true, "priority": 7, "project_ids": [],
        "created_at": "2026-12-01T12:00:00.000000Z", "updated_at": "2026-12-01T12:00:00.000000Z",
        "server_url": "https://connect.example/base",
    });
    assert_eq!(body, expected);

    let body = json!({ "name": "file", "provider_type": "keepass", "token": "s3cr3t-token", "vault": "team" });
    let body = api.post(PATH, &body).await.json();
    assert_eq!((&body["provider_type"], &body["vault"]), (&json!("keepass"), &json!("team")));
    assert!(body.get("server_url").is_none(), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_address_the_configured_server_is_used() {
    let configured = Some("http://connect.internal:8080".parse().unwrap());
    let provider_settings = ProviderSettings { server_url: configured, ..ProviderSettings::default() };
    let mut ports = Ports { provider_settings, ..ports(ProviderPlace::PasswordManager(None)) };
    ports.credential_providers.expect_create().returning(|provider, _| {
        assert_eq!(provider.place, ProviderPlace::PasswordManager(None));
        Ok(ProviderStored::Yes(0))
    });
    ports.credential_store.expect_vaults().returning(|provider| {
        let StorePlace::PasswordManager(url) = &provider.place else { panic!("another place") };
        assert_eq!(url.as_str(), "http://connect.internal:8080/");
        Ok(Vec::new())
    });
    let api = TestApi::start(ports);
    let body = json!({ "name": "a", "provider_type": "passwordmanager", "token": "t" });
    let reply = api.post(PATH, &body).await;
    assert_eq!(reply.status, 201, "{reply}");
    assert!(reply.json().get("server_url").is_none(), "{reply}");
    let reply = api.post(&own_path("/test"), "").await;
    assert_eq!(reply.json(), json!({ "success": true, "vaults": [] }), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_are_named_and_no_token_is_repeated() {
    let api = TestApi::start(Ports { provider_settings: settings(), ..Ports::default() });
    let with = |more: Value| {
        let mut body = json!({ "name": "a", "provider_type": "passwordmanager", "token": "s3cr3t", "server_url": "https://c.example" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let file = |more: Value| {
        let mut body = json!({ "name": "a", "provider_type": "keepass", "token": "s3cr3t" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, field, code) in [
        (json!({}), "name", "required"),
        (json!({ "name": "a", "token": "s3cr3t" }), "provider_type", "required"),
        (with(json!({ "token": null })), "token", "required"),
        (with(json!({ "token": "" })), "token", "too_short"),
        (with(json!({ "token": "s3cr3t".repeat(2000) })), "token", "too_long"),
        (with(json!({ "token": "s3cr3t\r\nX: y" })), "token", "invalid_format"),
        (with(json!({ "name": "" })), "name", "too_short"),
        (with(json!({ "provider_type": "bitwarden" })), "provider_type", "not_allowed"),
        (with(json!({ "server_url": null })), "server_url", "required"),
        (with(json!({ "server_url": "file:///etc/passwd" })), "server_url", "invalid_format"),
        (with(json!({ "server_url": "connect.example" })), "server_url", "invalid_format"),
        (with(json!({ "server_url": "https://me:s3cr3t@c.example" })), "server_url", "invalid_format"),
        (with(json!({ "server_url": "https://c.example/?a=s3cr3t" })), "server_url", "invalid_format"),
        (with(json!({ "server_url": format!("https://c.example/{}", "x".repeat(2048)) })), "server_url", "too_long"),
        (with(json!({ "vault": "team" })), "vault", "not_allowed"),
        (with(json!({ "cache_ttl_seconds": -1 })), "cache_ttl_seconds", "out_of_range"),
        (with(json!({ "cache_ttl_seconds": 86_401 })), "cache_ttl_seconds", "out_of_range"),
        (file(json!({})), "vault", "required"),
        (file(json!({ "vault": "/etc/passwd" })), "vault", "reference_not_found"),
        (file(json!({ "vault": "team", "server_url": "https://c.example" })), "server_url", "not_allowed"),
    ] {
        let reply = api.post(PATH, &body).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{field}: {reply}");
        let text = reply.text();
        assert!(text.contains(&format!("\"{field}: ")) && text.contains(&format!("\"{code}\"")), "{field}: {reply}");
        assert!(!text.contains("s3cr3t"), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_returns_the_new_state_and_another_server_needs_its_own_token() {
    let mut ports = ports(server());
    ports.credential_providers.expect_update().returning(|_, _, change, at| {
        assert_eq!(at, NOON);
        let place = change.place.clone().unwrap_or_else(server);
        let known = change.enabled.unwrap_or(true);
        Ok(ProviderUpdated::Yes(Box::new(CredentialProvider { enabled: known, ..stored(place) })))
    });
    let api = TestApi::start(ports);
    let reply = api.patch(&own_path(""), json!({ "enabled": false, "priority": 0 })).await;
    assert_eq!((reply.status, &reply.json()["enabled"]), (200, &json!(false)), "{reply}");
    let same = api.patch(&own_path(""), json!({ "server_url": "https://connect.example" })).await;
    assert_eq!(same.status, 200, "the same place needs nothing: {same}");

    let elsewhere = json!({ "server_url": "https://collector.example" });
    let reply = api.patch(&own_path(""), &elsewhere).await;
    assert_eq!(reply.status, 400, "a token is not sent to whoever may change an address: {reply}");
    assert!(reply.text().contains("token: is required with another server_url"), "{reply}");
    let with_token = json!({ "server_url": "https://collector.example", "token": "another" });
    let reply = api.patch(&own_path(""), &with_token).await;
    assert_eq!(reply.json()["server_url"], "https://collector.example/", "{reply}");
    for bad in [json!({ "priority": 1001 }), json!({ "priority": -1 }), json!({ "vault": "team" })] {
        assert_eq!(api.patch(&own_path(""), &bad).await.status, 400, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_are_listed_without_secrets() {
    let mut ports = ports(server());
    ports.credential_store.expect_items().returning(|provider| {
        assert_eq!(provider.token.expose_secret(), "s3cr3t");
        let vault = ProviderVault { id: "v1".to_owned(), name: "Team".to_owned() };
        let item = |id: &str, urls: &[&str]| {
            let urls = urls.iter().map(|&url| url.to_owned()).collect();
            ProviderItem::new(id.to_owned(), "Shop <b>".to_owned(), vault.clone(), urls, None)
        };
        Ok(Arc::new(vec![item("i1", &["https://shop.example"]), item("i2", &[])]))
    });
    ports.credential_store.expect_secrets().never().returning(|_, _| Ok(ItemSecrets::default()));
    let reply = TestApi::start(ports).get(&own_path("/items")).await;
    let one = json!({ "id": "i1", "title": "Shop <b>", "path": "Team/Shop <b>", "vault_id": "v1", "vault_name": "Team", "urls": ["https://shop.example"] });
    let two =
        json!({ "id": "i2", "title": "Shop <b>", "path": "Team/Shop <b>", "vault_id": "v1", "vault_name": "Team" });
    assert_eq!((reply.status, reply.json()), (200, json!({ "items": [one, two] })), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_vault_is_a_result_of_a_test_and_an_error_of_a_list() {
    for (fault, words) in [
        (ProviderFault::Refused, "the store refused the token"),
        (ProviderFault::Silent, "the store did not answer in time"),
        (ProviderFault::Unreachable("nobody there".to_owned()), "the store cannot be reached: nobody there"),
    ] {
        let mut ports = ports(server());
        let (first, second) = (fault.clone(), fault.clone());
        ports.credential_store.expect_vaults().returning(move |_| Err(first.clone()));
        ports.credential_store.expect_items().returning(move |_| Err(second.clone()));
        let api = TestApi::start(ports);
        let reply = api.post(&own_path("/test"), "").await;
        assert_eq!(reply.json(), json!({ "success": false, "vaults": [], "error": words }), "{reply}");
        let reply = api.get(&own_path("/items")).await;
        assert_eq!((reply.status, &*reply.code()), (502, "upstream_error"), "{reply}");
        assert_eq!(reply.json()["inner_error"], json!({ "code": "provider_error", "message": words }), "{reply}");
    }
    let mut gone = ports(ProviderPlace::Keepass("gone".to_owned()));
    gone.provider_settings = ProviderSettings::default();
    let reply = TestApi::start(gone).post(&own_path("/test"), "").await;
    assert_eq!(reply.json()["error"], "the server is no longer configured with this vault", "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_own_vault_have_their_messages() {
    let mut taken = ports(server());
    taken.credential_providers.expect_update().return_once(|_, _, _, _| Ok(ProviderUpdated::NameTaken));
    taken.credential_providers.expect_delete().return_once(|_, _| Ok(ProviderDeleted::InUse));
    let api = TestApi::start(taken);
    let reply = api.patch(&own_path(""), json!({ "name": "x" })).await;
    assert_eq!((reply.status, &*reply.code()), (409, "name_conflict"), "{reply}");
    let reply = api.call("DELETE", &own_path(""), "").await;
    assert_eq!((reply.status, &*reply.code()), (409, "resource_in_use"), "{reply}");

    let mut ports = Ports::default();
    ports.credential_providers.expect_find().returning(|_, _| Ok(None));
    ports.credential_providers.expect_delete().returning(|_, _| Ok(ProviderDeleted::NotFound));
    ports.credential_providers.expect_list().returning(|_, query, _| {
        assert_eq!(query, Some("te%"));
        Ok(Listed { items: vec![stored(server())], next_offset: Some(1) })
    });
    let api = TestApi::start(ports);
    for path in [own_path(""), format!("{PATH}/not-an-id")] {
        for (method, rest) in [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/items"), ("POST", "/test")] {
            let reply = api.call(method, &format!("{path}{rest}"), "").await;
            assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{method} {path}{rest}: {reply}");
        }
    }
    let reply = api.get(&format!("{PATH}?query=te%25&limit=1")).await;
    assert_eq!(
        (reply.status, reply.header("x-has-more"), reply.header("x-next-offset")),
        (200, Some("true"), Some("1"))
    );
}
