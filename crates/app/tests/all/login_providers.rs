//! Tests of automatic logins with items of credential providers: found by site or named, of both kinds of store, and
//! with TOTP codes.

use casement_test_support::program::{Options, Pages, Server};
use serde_json::{Value, json};

use super::connect_server::{ConnectServer, TOKEN};
use super::credential_providers::{FILE_PASSWORD, PATH, keepass};
use super::login_site::{Connection, LOGIN, PASSWORD, Site};
use super::login_ways::{SECRET, ask_for_app_code};

/// The password of another item of the store, for the same site under another host name.
const OTHER: &str = "s3cret-of-another-site";
/// The password of the item of the KeePass database.
const IN_FILE: &str = "s3cret-in-the-file";

fn provider(server: &Server, body: &Value) -> anyhow::Result<String> {
    let made = server.post(PATH, body)?.expect(201)?.json()?;
    Ok(format!("{PATH}/{}", made["id"].as_str().unwrap_or_default()))
}

/// Creates a site that accepts this password.
fn site<'a>(pages: &'a Pages, name: &str, password: &str) -> Site<'a> {
    let site = Site::new(pages, name);
    site.put("login", &LOGIN.replace(PASSWORD, password));
    site
}

#[test]
fn a_provider_item_logs_in_automatically_whether_it_is_named_or_found() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let app = format!("otpauth://totp/Shop:ann?secret={SECRET}");
    let store = ConnectServer::start(&[
        ("Shop", "http://localhost/login", ["ann", PASSWORD, &app]),
        // The URL has another host name of the site, so the item is not found by site.
        ("Elsewhere", "http://127.0.0.1", ["ann", OTHER, ""]),
    ])?;
    let folder = tempfile::tempdir()?;
    let entry =
        [("Title", "Shop"), ("UserName", "ann"), ("Password", IN_FILE), ("URL", "http://localhost"), ("otp", &app)];
    let file = keepass(folder.path(), &entry)?;
    let flags = vec![
        format!("--keepass-vault=team={}", file.display()),
        format!("--credential-provider-allow={}", store.address),
    ];
    let server = Server::start(Options { flags, ..Options::reaching(&pages) })?;
    let url = store.url();
    let team = json!({ "name": "Team", "provider_type": "passwordmanager", "token": TOKEN, "server_url": url });
    let none = server.post(
        "/auth/connections",
        &json!({ "domain": "localhost", "profile_name": "none", "credential": { "auto": true } }),
    )?;
    assert_eq!(none.expect(400)?.json()?["details"][0]["code"], "reference_not_found", "there is no provider");
    let team = provider(&server, &team)?;
    let keepass = json!({ "name": "File", "provider_type": "keepass", "token": FILE_PASSWORD, "vault": "team" });
    let keepass = provider(&server, &keepass)?;

    let found = Site::new(&pages, "shop-found");
    ask_for_app_code(&found);
    let of_file = site(&pages, "shop-of-file", IN_FILE);
    let any = site(&pages, "shop-of-any", PASSWORD);
    let begin = |site: &Site<'_>, credential: Value| {
        let connection = Connection::new(&server, site, &json!({ "credential": credential }))?;
        connection.login()?;
        anyhow::Ok(connection)
    };
    let by_name = site(&pages, "shop-named", OTHER).url("home").replace("localhost", "127.0.0.1");
    let more = json!({
        "allowed_domains": ["127.0.0.1"], "credential": { "provider": "Team", "path": "Team/Elsewhere" },
    });
    let by_name = Connection::at(&server, "shop-named", &by_name, &more)?;
    by_name.login()?;
    let begun = [
        begin(&found, json!({ "provider": "Team", "auto": true }))?,
        by_name,
        begin(&of_file, json!({ "provider": "File", "auto": true }))?,
        begin(&any, json!({ "auto": true }))?,
    ];
    for connection in &begun {
        let done = connection.until_in_by_itself()?;
        assert_eq!([&done["can_reauth"], &done["can_reauth_reason"]], [&json!(true), &json!("external_credential")]);
        connection.until_closed()?;
    }
    assert_eq!(server.get("/credentials")?.expect(200)?.json()?, json!([]), "what a provider has is kept there alone");
    let [by_site, by_name, of_file, of_any] = begun;
    assert_eq!(by_site.seen(&found)?, "Your orders - Shop");

    // The first provider by priority is queried; if it fails, the next one is.
    server.send("PATCH", &team, Some(&json!({ "priority": 7 })))?.expect(200)?;
    any.put("login", &LOGIN.replace(PASSWORD, IN_FILE).replace("in=ann", "in=ann2"));
    any.put("home", &super::login_site::HOME.replace("in=ann", "in=ann2"));
    assert_eq!(of_any.login()?["flow_type"], "REAUTH");
    assert_eq!(of_any.until_in_by_itself()?["credential"], json!({ "auto": true }));
    of_any.until_closed()?;
    server.send("PATCH", &team, Some(&json!({ "priority": 0 })))?.expect(200)?;
    store.answer(500, "", b"{}");
    any.put("login", &LOGIN.replace(PASSWORD, IN_FILE).replace("in=ann", "in=ann3"));
    any.put("home", &super::login_site::HOME.replace("in=ann", "in=ann3"));
    of_any.login()?;
    of_any.until_in_by_itself()?;
    // If only that provider is named, its failure ends the login.
    by_name.server.send("PATCH", &by_name.path(""), Some(&json!({ "login_url": any.url("login") })))?.expect(200)?;
    by_name.login()?;
    let over = by_name.until_over("FAILED")?;
    assert_eq!(over["error_code"], "provider_error", "{over}");

    // A disabled provider is not queried, and can be deleted unless it is named.
    for provider in [&team, &keepass] {
        server.send("PATCH", provider, Some(&json!({ "enabled": false })))?.expect(200)?;
    }
    for connection in [&of_file, &of_any] {
        assert_eq!(connection.get()?["can_reauth_reason"], "no_credential");
    }
    server.delete(&keepass)?.expect(409)?;
    server.delete(&of_file.path(""))?.expect(204)?;
    server.delete(&keepass)?.expect(204)?;
    let log = server.log();
    for secret in [PASSWORD, OTHER, IN_FILE, SECRET] {
        assert!(!log.contains(secret), "the log holds a secret");
    }
    for connection in [by_site, by_name, of_any] {
        connection.until_closed()?;
    }
    Ok(())
}
