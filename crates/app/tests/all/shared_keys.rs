//! What the nodes of a database share: the master key, the key of tokens, and sign-ins.

use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Options, Server, program};
use serde_json::json;

/// Starts a server on the database of another one, with its own new data directory; it is expected to be refused.
fn refused(server: &Server, master_key: Option<&str>) -> anyhow::Result<(Output, bool)> {
    let folder = tempfile::tempdir()?;
    let data_dir = folder.path().join("data");
    let mut command = Command::new(program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", &server.database_url()?, "--data-dir"]);
    command.arg(&data_dir).env("CASEMENT_CONFIG", "/dev/null").env_remove("CASEMENT_MASTER_KEY");
    if let Some(key) = master_key {
        command.env("CASEMENT_MASTER_KEY", key);
    }
    Ok((command.output()?, data_dir.join("master-key").exists()))
}

fn ui(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
    let origin = format!("http://{}", server.address());
    let request = Request::new(method, path).header("Sec-Fetch-Site", "same-origin").header("Origin", &origin);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    let body = json!({ "key": server.key() });
    let request = if method == "POST" { request.json(&body) } else { request };
    request.send(server.address())
}

#[test]
fn a_node_with_another_master_key_or_none_is_refused_with_the_remedy() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let (without, made) = refused(&server, None)?;
    let error = String::from_utf8_lossy(&without.stderr).into_owned();
    ensure!(!without.status.success() && error.contains("copy their file `master-key`"), "{error}");
    ensure!(!made, "a key was made that is of no use");

    let other = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=";
    let (strange, _) = refused(&server, Some(other))?;
    let error = String::from_utf8_lossy(&strange.stderr).into_owned();
    ensure!(!strange.status.success() && error.contains("CASEMENT_MASTER_KEY must have it"), "{error}");
    ensure!(!error.contains(other), "{error}");
    server.get("/browsers")?.expect(200)?;
    Ok(())
}

#[test]
fn every_node_creates_the_same_tokens_and_accepts_the_same_sign_ins() -> anyhow::Result<()> {
    let first = Server::start(Options::default())?;
    let second = first.another(Options::default())?;
    let session = first.headless()?;
    let elsewhere = second.get(&format!("/browsers/{}", session.id()))?.expect(200)?.json()?;
    let token = elsewhere["cdp_ws_url"].as_str().and_then(|url| url.split_once("jwt=")).context("an address")?.1;
    assert_eq!(token, session.token());

    let signed_in = ui(&first, "POST", "/ui/session", &[])?.expect(200)?;
    let cookie = signed_in.header("set-cookie").and_then(|set| set.split(';').next()).context("a cookie")?.to_owned();
    let csrf = signed_in.json()?["csrf_token"].as_str().context("a token")?.to_owned();
    let list = |server: &Server| anyhow::Ok(ui(server, "GET", "/ui/api/browsers", &[("Cookie", &cookie)])?.status);
    assert_eq!((list(&first)?, list(&second)?), (200, 200));
    let signing_out = [("Cookie", cookie.as_str()), ("X-Casement-CSRF", csrf.as_str())];
    ui(&second, "DELETE", "/ui/session", &signing_out)?.expect(204)?;
    assert_eq!((list(&first)?, list(&second)?), (401, 401));
    Ok(())
}
