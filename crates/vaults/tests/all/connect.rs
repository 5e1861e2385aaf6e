//! The responses of a Connect server: documented and other ones.

use casement_domain::credential_provider::{CredentialStore as _, OneTime, ProviderFault, ProviderItem, ProviderVault};
use casement_domain::testing::NOON;
use secrecy::ExposeSecret as _;
use serde_json::json;
use time::macros::datetime;

use super::support::{Behaviour, Server, TOKEN, login, long_id, open, stores};

#[tokio::test]
async fn logins_in_use_are_listed_and_nothing_else() {
    let items = vec![
        login(1, "Shop", "https://shop.example/login", json!({})),
        login(2, "Old", "https://old.example", json!({ "state": "ARCHIVED" })),
        login(3, "Gone", "https://gone.example", json!({ "state": "DELETED" })),
        login(4, "Note", "https://note.example", json!({ "category": "SECURE_NOTE" })),
        login(5, "Bare", "", json!({ "urls": null })),
    ];
    let server = Server::new("https://connect.test/below/", items);
    let provider = open(1, &server, 300);
    let found = stores(&[&server]).items(&provider).await.unwrap();
    let vault = ProviderVault { id: long_id('v', 1), name: "Team".to_owned() };
    let at = Some(datetime!(2026-02-03 04:05:06 UTC));
    let item = |n, title: &str, urls: &[&str]| {
        let urls = urls.iter().map(|&url| url.to_owned()).collect();
        ProviderItem::new(long_id('i', n), title.to_owned(), vault.clone(), urls, at)
    };
    assert_eq!(*found, [item(1, "Shop", &["https://shop.example/login"]), item(5, "Bare", &[])]);
    assert_eq!(server.requests(), ["/v1/vaults".to_owned(), format!("/v1/vaults/{}/items", long_id('v', 1))]);
}

#[tokio::test]
async fn the_secrets_of_an_item_are_read_each_time_and_never_shown() {
    let otp = |fields: serde_json::Value| json!({ "fields": fields });
    let secret = "otpauth://totp/Shop:me?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    let items = vec![
        login(1, "Shop", "https://shop.example", json!({})),
        login(
            2,
            "Codes",
            "https://codes.example",
            otp(json!([
                { "id": "u", "type": "EMAIL", "purpose": "USERNAME", "label": "mail", "value": "me@shop.example" },
                { "id": "TOTP_1", "type": "OTP", "label": "one-time password", "value": secret, "totp": "134253",
                  "section": { "id": "add more" } },
                { "id": "pin", "type": "CONCEALED", "label": "PIN", "value": "1234" },
                { "id": "empty", "type": "STRING", "label": "empty" },
                { "id": "long", "type": "STRING", "label": "long", "value": "x".repeat(9000) },
            ])),
        ),
        login(
            3,
            "Only a code",
            "https://code.example",
            otp(json!([
                { "id": "TOTP_1", "type": "OTP", "label": "x", "totp": "134253" },
            ])),
        ),
    ];
    let server = Server::new("https://connect.test", items);
    let (provider, stores) = (open(1, &server, 300), stores(&[&server]));
    let listed = stores.items(&provider).await.unwrap();
    let first = stores.secrets(&provider, &listed[0]).await.unwrap();
    assert_eq!(first.username.as_ref().unwrap().expose_secret(), "me-1");
    assert_eq!(first.password.as_ref().unwrap().expose_secret(), "s3cr3t-1");
    assert!(first.one_time.is_none() && first.values.is_empty());
    assert!(!format!("{first:?} {provider:?}").contains("s3cr3t"));

    let codes = stores.secrets(&provider, &listed[1]).await.unwrap();
    let Some(OneTime::Secret(secret)) = &codes.one_time else { panic!("no secret of codes") };
    assert_eq!(secret.code(NOON).code.expose_secret().len(), 6);
    assert_eq!(codes.values.keys().collect::<Vec<_>>(), ["PIN"]);
    let only = stores.secrets(&provider, &listed[2]).await.unwrap();
    assert!(matches!(&only.one_time, Some(OneTime::Code(code)) if code.expose_secret() == "134253"));

    server.requests();
    for _ in 0..2 {
        stores.secrets(&provider, &listed[0]).await.unwrap();
    }
    assert_eq!(server.requests().len(), 2, "nothing of them is kept");
    server.vaults.lock()[0].2.remove(0);
    assert_eq!(stores.secrets(&provider, &listed[0]).await.unwrap_err(), ProviderFault::NotFound);
    assert_eq!(stores.items(&provider).await.unwrap().len(), 2, "a list that was wrong is not believed");
}

#[tokio::test]
async fn an_unexpected_response_is_a_fault_that_repeats_none_of_it() {
    let server = Server::new("https://connect.test", vec![login(1, "Shop", "https://shop.example", json!({}))]);
    let provider = open(1, &server, 0);
    let vault = |id: &str| json!([{ "id": id, "name": "x" }]).to_string().into_bytes();
    let bad = |text: &str| ProviderFault::BadAnswer(text.to_owned());
    for (status, body, expected) in [
        (200, b"<html>s3cr3t".to_vec(), bad("no list of vaults in JSON, at line 1, column 1")),
        (200, b"\x1b[31m\xff\xfes3cr3t".to_vec(), bad("no list of vaults in JSON, at line 1, column 1")),
        (200, b"".to_vec(), bad("no list of vaults in JSON, at line 1, column 0")),
        (200, b"{\"s3cr3t\":1}".to_vec(), bad("no list of vaults in JSON, at line 1, column 0")),
        (200, "[".repeat(1 << 20).into_bytes(), bad("no list of vaults in JSON, at line 1, column 2")),
        (200, vec![b' '; 5 << 20], bad("more than 4194304 bytes")),
        (200, vault("../../v1/vaults"), bad("an identifier that is none")),
        (200, vault("a?b=s3cr3t"), bad("an identifier that is none")),
        (200, vault(""), bad("an identifier that is none")),
        (302, b"".to_vec(), bad("a redirect (302), which is not followed")),
        (404, b"s3cr3t".to_vec(), bad("status 404")),
        (500, b"s3cr3t".to_vec(), bad("status 500")),
        (429, b"".to_vec(), bad("status 429")),
        (401, b"s3cr3t".to_vec(), ProviderFault::Refused),
        (403, b"".to_vec(), ProviderFault::Refused),
    ] {
        server.set_behaviour(Behaviour::Answers(status, body));
        let fault = stores(&[&server]).vaults(&provider).await.unwrap_err();
        if let (ProviderFault::BadAnswer(reason), ProviderFault::BadAnswer(words)) = (&fault, &expected) {
            // The position where serde stopped does not matter.
            let start = |text: &str| text.split(", at line").next().unwrap().to_owned();
            assert_eq!(start(reason), start(words), "{status}");
        } else {
            assert_eq!(fault, expected, "{status}");
        }
        assert!(!fault.to_string().contains("s3cr3t"), "{fault}");
    }
    server.set_behaviour(Behaviour::Unreachable);
    let fault = stores(&[&server]).vaults(&provider).await.unwrap_err();
    assert_eq!(fault, ProviderFault::Unreachable("nobody there".to_owned()));
    server.set_behaviour(Behaviour::Well);
    let mut stranger = provider.clone();
    stranger.token = "another".to_owned().into();
    assert_eq!(stores(&[&server]).vaults(&stranger).await.unwrap_err(), ProviderFault::Refused);
    assert_ne!(TOKEN, "another");
}

#[tokio::test]
async fn a_response_with_another_item_is_refused() {
    let server = Server::new("https://connect.test", vec![login(1, "Shop", "https://shop.example", json!({}))]);
    let (provider, stores) = (open(1, &server, 300), stores(&[&server]));
    let listed = stores.items(&provider).await.unwrap();
    let other = login(2, "Bank", "https://bank.example", json!({})).to_string();
    server.set_behaviour(Behaviour::Answers(200, other.into_bytes()));
    let fault = stores.secrets(&provider, &listed[0]).await.unwrap_err();
    assert_eq!(fault, ProviderFault::BadAnswer("another item than the requested one".to_owned()));
}

#[tokio::test]
async fn a_hundred_thousand_items_are_read_and_one_more_is_too_many() {
    let server = Server::new("https://connect.test", Vec::new());
    let provider = open(1, &server, 300);
    let items = |count: usize| {
        let item = |n| {
            let id = long_id('i', n);
            format!(r#"{{"id":"{id}","title":"Shop","category":"LOGIN","urls":[{{"href":"https://s{n}.example"}}]}}"#)
        };
        format!("[{}]", (0..count).map(item).collect::<Vec<_>>().join(",")).into_bytes()
    };
    server.lists(items(100_000));
    assert_eq!(stores(&[&server]).items(&provider).await.unwrap().len(), 100_000);
    server.lists(items(100_001));
    let fault = stores(&[&server]).items(&provider).await.unwrap_err();
    assert_eq!(fault, ProviderFault::BadAnswer("more than 100000 items".to_owned()));
}

#[tokio::test]
async fn only_the_first_addresses_and_fields_of_an_endless_item_are_read() {
    let urls: Vec<_> = (0..100_000).map(|n| json!({ "href": format!("https://s{n}.example") })).collect();
    let mut fields = vec![json!({ "id": "p", "purpose": "PASSWORD", "value": "s3cr3t" })];
    fields.extend((0..20_000).map(|n| json!({ "id": format!("f{n:05}"), "value": "x" })));
    let server =
        Server::new("https://connect.test", vec![login(1, "Shop", "", json!({ "urls": urls, "fields": fields }))]);
    let (provider, stores) = (open(1, &server, 300), stores(&[&server]));
    let items = stores.items(&provider).await.unwrap();
    assert_eq!((items[0].urls.len(), &*items[0].urls[19]), (20, "https://s19.example"));
    let secrets = stores.secrets(&provider, &items[0]).await.unwrap();
    assert_eq!((secrets.password.is_some(), secrets.values.len()), (true, 50));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_arrives_times_out_after_a_minute() {
    let server = Server::new("https://connect.test", Vec::new());
    server.set_behaviour(Behaviour::Never);
    let (provider, begun) = (open(1, &server, 300), tokio::time::Instant::now());
    assert_eq!(stores(&[&server]).items(&provider).await.unwrap_err(), ProviderFault::Silent);
    assert_eq!(begun.elapsed().as_secs(), 60);
}
