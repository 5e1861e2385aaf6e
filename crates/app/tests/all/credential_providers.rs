//! Tests of credential providers: with the public Python client, under the egress rules, and with faulty stores.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use casement_test_support::program::{Clients, Options, Server};
use serde_json::json;

use super::connect_server::{ConnectServer, TOKEN};
use super::host::sql;

pub(super) const PATH: &str = "/org/credential_providers";
/// The password of the databases of [`keepass`].
pub(super) const FILE_PASSWORD: &str = "s3cr3t of the file";

#[test]
fn every_call_of_the_python_client_for_providers_works_and_no_token_is_exposed() -> anyhow::Result<()> {
    Clients::of_both_versions()?.iter().try_for_each(every_call_works_and_no_secret_is_exposed)
}

fn every_call_works_and_no_secret_is_exposed(clients: &Clients) -> anyhow::Result<()> {
    let store = ConnectServer::start(&[
        ("Shop", "https://shop.example/login", ["me", "s3cr3t-shop", ""]),
        ("Wiki", "https://wiki.example", ["me", "s3cr3t-wiki", "GEZDGNBVGY3TQOJQ"]),
    ])?;
    let variables = vec![
        ("CASEMENT_LOG".to_owned(), "trace,tokio_postgres=info".to_owned()),
        ("CASEMENT_CREDENTIAL_PROVIDER_ALLOW".to_owned(), store.address.to_string()),
    ];
    let server = Server::start(Options { variables, ..Options::default() })?;

    let script = "crates/app/tests/scripts/kernel_credential_providers.py";
    let run = clients.run(&server, script, &[&store.url(), TOKEN])?;

    let saw = json!({
        "made": ["onepassword", "Team", true, 0, 1],
        "tested": [true, ["Team"], null],
        "items": [["Team/Shop", ["https://shop.example/login"]], ["Team/Wiki", ["https://wiki.example"]]],
        "changed": ["Renamed", false, 0, true],
        "listed": ["Team", "Renamed"],
        "searched": ["Renamed"],
        "read": true,
        "refused token": [false, [], "the store refused the token"],
        "items of it": ["InternalServerError", "upstream_error"],
        "taken": ["ConflictError", "name_conflict"],
        "gone": ["NotFoundError", "not_found"],
        "called": "7 of 7",
    });
    assert_eq!(run.json()?, saw);

    let dump = sql(
        &server,
        "select string_agg(t, ' ') from (select credential_providers::text as t from credential_providers
         union all select encode(sealed_token, 'escape') from credential_providers
         union all select audit_records::text from audit_records) all_rows",
    )?;
    assert!(dump.contains(&store.url()), "{dump}");
    assert!(!dump.contains("s3cr3t") && !server.log().contains("s3cr3t"), "a secret stands in clear");

    let rotated = server.command(&["secrets", "rotate"]).output()?;
    assert!(String::from_utf8_lossy(&rotated.stdout).contains("resealed: 2"), "{rotated:?}");
    let provider = server.get(PATH)?.expect(200)?.json()?[0]["id"].as_str().unwrap_or_default().to_owned();
    let test = server.post(&format!("{PATH}/{provider}/test"), &json!({}))?.expect(200)?.json()?;
    assert_eq!(test["success"], true, "the running server opens what is sealed under the new key: {test}");
    Ok(())
}

#[test]
fn each_fault_of_a_provider_is_reported_and_no_other_address_gets_its_token() -> anyhow::Result<()> {
    let (store, other, private) = (ConnectServer::start(&[])?, ConnectServer::start(&[])?, ConnectServer::start(&[])?);
    let flags = [&store, &other].map(|one| format!("--credential-provider-allow={}", one.address));
    let server = Server::start(Options { flags: flags.into(), ..Options::default() })?;
    let make = |name: &str, url: &str| {
        let body = json!({ "name": name, "provider_type": "passwordmanager", "token": TOKEN, "server_url": url });
        let made = server.post(PATH, &body)?.expect(201)?.json()?;
        anyhow::Ok(format!("{PATH}/{}", made["id"].as_str().unwrap_or_default()))
    };
    let fault_of = |provider: &str| {
        let test = server.post(&format!("{provider}/test"), &json!({}))?.expect(200)?.json()?;
        anyhow::Ok(test["error"].as_str().unwrap_or("nothing").to_owned())
    };

    let walled = make("walled", &private.url())?;
    let refused = "the store cannot be reached: the host is not allowed, not known or does not answer";
    assert_eq!(fault_of(&walled)?, refused, "what is not allowed is not reached");
    assert_eq!(fault_of(&make("named", &format!("http://localhost:{}", private.address.port()))?)?, refused);
    let provider = make("store", &store.url())?;
    assert_eq!(fault_of(&provider)?, "nothing");

    for to in [private.url(), other.url(), "file:///etc/passwd".to_owned()] {
        store.answer(302, &format!("Location: {to}/v1/vaults\r\n"), b"");
        let redirected = "the store answered something else than expected: a redirect (302), which is not followed";
        assert_eq!(fault_of(&provider)?, redirected);
    }
    assert_eq!((other.connections(), private.connections()), (0, 0), "the token goes nowhere else");

    let garbage = b"\x1b[31m<script>s3cr3t</script>\xff";
    store.answer(200, "", garbage);
    let list = server.get(&format!("{provider}/items"))?.expect(502)?.json()?;
    assert_eq!(list["inner_error"]["code"], "provider_error", "{list}");
    assert!(!list.to_string().contains("s3cr3t") && !list.to_string().contains("script"), "{list}");
    let again = server.get(&format!("{provider}/items"))?.expect(502)?.json()?;
    assert!(again["message"].as_str().unwrap_or_default().contains("it is queried again in"), "{again}");

    let vaults = br#"[{"id":"vaultvaultvaultvaultvault1","name":"Team"}]"#;
    store.answer(200, "Content-Encoding: identity\r\n", vaults);
    assert_eq!(fault_of(&provider)?, "nothing", "a test asks all the same");
    Ok(())
}

/// Creates a KeePass database of one entry with these values. It uses KeePassXC.
pub(super) fn keepass(folder: &Path, values: &[(&str, &str)]) -> anyhow::Result<PathBuf> {
    let (xml, file) = (folder.join("export.xml"), folder.join("team.kdbx"));
    let values: String =
        values.iter().map(|(key, value)| format!("<String><Key>{key}</Key><Value>{value}</Value></String>")).collect();
    let root = format!(
        "<Group><UUID>AAAAAAAAAAAAAAAAAAAAAQ==</UUID><Name>Root</Name><Entry><UUID>AAAAAAAAAAAAAAAAAAAAEQ==</UUID>{values}</Entry></Group>"
    );
    let head = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>"#;
    std::fs::write(&xml, format!("{head}<KeePassFile><Meta/><Root>{root}</Root></KeePassFile>"))?;
    let mut cli = std::process::Command::new("keepassxc-cli");
    cli.args(["import", "--quiet", "--set-password", "--decryption-time", "100"]).args([&xml, &file]);
    let mut child = cli.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        write!(input, "{FILE_PASSWORD}\n{FILE_PASSWORD}\n")?;
    }
    anyhow::ensure!(child.wait()?.success(), "keepassxc-cli does not make the file");
    Ok(file)
}

#[test]
fn logins_of_a_keepass_database_are_listed_only_if_the_operator_allows_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = keepass(
        folder.path(),
        &[("Title", "Shop"), ("UserName", "me"), ("Password", "s3cr3t-shop"), ("URL", "https://shop.example")],
    )?;

    let flags = vec![format!("--keepass-vault=team={}", file.display())];
    let server = Server::start(Options { flags, ..Options::default() })?;
    let mut body = json!({ "name": "File", "provider_type": "keepass", "token": FILE_PASSWORD, "vault": "team" });
    let made = server.post(PATH, &body)?.expect(201)?.json()?;
    assert_eq!((&made["provider_type"], &made["vault"]), (&json!("keepass"), &json!("team")), "{made}");
    let path = format!("{PATH}/{}", made["id"].as_str().unwrap_or_default());
    let items = server.get(&format!("{path}/items"))?.expect(200)?.json()?;
    assert_eq!(items["items"][0]["path"], "team/Shop", "{items}");
    assert_eq!(items["items"][0]["urls"], json!(["https://shop.example"]), "{items}");

    body["name"] = json!("Elsewhere");
    body["vault"] = json!("/etc/shadow");
    let refused = server.post(PATH, &body)?.expect(400)?.json()?;
    assert_eq!(refused["details"][0]["code"], "reference_not_found", "{refused}");
    let wrong = json!({ "token": "s3cr3t of another" });
    server.send("PATCH", &path, Some(&wrong))?.expect(200)?;
    let test = server.post(&format!("{path}/test"), &json!({}))?.expect(200)?.json()?;
    assert_eq!(test, json!({ "success": false, "vaults": [], "error": "the store refused the token" }));
    assert!(!server.log().contains("s3cr3t"));
    Ok(())
}
