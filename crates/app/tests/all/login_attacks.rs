//! Tests of logins whose configuration would send a secret to another site, and of the access of a project's key and a
//! session token to the browser of a login.

use anyhow::ensure;
use casement_test_support::program::http::Request;
use casement_test_support::program::{Options, Pages, Server};
use serde_json::{Value, json};

use super::connect_server::{ConnectServer, TOKEN};
use super::credential_providers::PATH;
use super::login_site::{Connection, PASSWORD, Site};

const BANK: &str = "s3cret-of-the-bank";
const NOWHERE: &str = "s3cret-without-a-site";
const STORED: &str = "s3cret-stored-for-the-bank";

/// The login page of an attacker, which sends each typed letter to its server.
const THIEF: &str = r#"<!doctype html><html lang=en><title>Sign in</title><h1>Sign in</h1><form id=f>
<label>User name <input name=username autocomplete=username required></label>
<label>Password <input name=password type=password autocomplete=current-password required></label>
<button>Sign in</button></form>
<script>
for (const input of document.querySelectorAll('input')) input.oninput = () => new Image().src = 'stolen?' + encodeURIComponent(input.value);
f.onsubmit = event => event.preventDefault();
</script>"#;

/// A login page that asks for a name, and then opens another site for the password.
const NAME_FIRST: &str = r#"<!doctype html><html lang=en><title>Sign in</title><h1>Sign in</h1><form id=f>
<label>User name <input name=username autocomplete=username required></label><button>Next</button></form>
<script>f.onsubmit = event => { event.preventDefault(); location = 'ELSEWHERE'; };</script>"#;

const FRAMED: &str = "<!doctype html><html lang=en><title>Sign in</title><h1>Sign in</h1>\
    <iframe src='FRAME' width=600 height=400></iframe>";

/// Starts a server with a provider, which has an item of a bank, one of the test's site, and one without a site. `more`
/// are further fields of the provider. Returns also the pages, the store and the path of the provider.
fn vault(more: &Value) -> anyhow::Result<(Pages, ConnectServer, Server, String)> {
    let pages = Pages::start()?;
    let store = ConnectServer::start(&[
        ("Bank", "https://bank.example/login", ["ann", BANK, ""]),
        ("Own", "http://localhost", ["ann", PASSWORD, ""]),
        ("Nowhere", "", ["ann", NOWHERE, ""]),
    ])?;
    let flags = vec![format!("--credential-provider-allow={}", store.address)];
    let server = Server::start(Options { flags, ..Options::reaching(&pages) })?;
    let mut body =
        json!({ "name": "Team", "provider_type": "passwordmanager", "token": TOKEN, "server_url": store.url() });
    body.as_object_mut()
        .into_iter()
        .for_each(|body| body.extend(more.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone()))));
    let made = server.post(PATH, &body)?.expect(201)?.json()?;
    let path = format!("{PATH}/{}", made["id"].as_str().unwrap_or_default());
    Ok((pages, store, server, path))
}

/// Returns the failure of a login. Repeats the login if the browser did not start, as may happen on a busy machine.
fn tried(connection: &Connection<'_>) -> anyhow::Result<Value> {
    let mut over = Value::Null;
    for _ in 0..5 {
        connection.login()?;
        over = connection.until_over("FAILED")?;
        if over["error_code"] != "internal" {
            break;
        }
        connection.until_closed()?;
    }
    Ok(over)
}

/// Returns the typed values that reached the server.
fn stolen(pages: &Pages) -> Vec<String> {
    pages.requests().into_iter().filter(|line| line.contains("stolen?")).collect()
}

#[test]
fn a_secret_is_typed_only_into_pages_of_its_own_site() -> anyhow::Result<()> {
    let (pages, _store, server, _) = vault(&json!({}))?;
    let credential =
        json!({ "name": "bank", "domain": "bank.example", "values": { "username": "ann", "password": STORED } });
    server.post("/credentials", &credential)?.expect(201)?;
    let site = Site::new(&pages, "thief");
    site.put("home", THIEF);
    let away = site.url("home").replace("localhost", "127.0.0.1");
    site.put("name", &NAME_FIRST.replace("ELSEWHERE", &away));
    site.put("framing", &FRAMED.replace("FRAME", &away));
    pages.redirect(&site.path("redirect"), &away);

    let item = |title: &str| json!({ "credential": { "provider": "Team", "path": format!("Team/{title}") } });
    let mut at_bank = json!({ "domain": "bank.example", "allowed_domains": ["localhost"] });
    at_bank["credential"] = json!({ "auto": true });
    let mut of_team = at_bank.clone();
    of_team["credential"] = json!({ "provider": "Team", "auto": true });
    let away = |title: &str| {
        let mut more = item(title);
        more["allowed_domains"] = json!(["127.0.0.1"]);
        more
    };
    let cases = [
        ("an item by its path", "home", item("Bank")),
        ("the item for the domain, at a login_url of allowed_domains", "home", at_bank),
        ("the same of one provider", "home", of_team),
        ("a stored credential of another site", "home", json!({ "credential": { "name": "bank" } })),
        ("an item without a site", "home", item("Nowhere")),
        ("a redirect at the beginning", "redirect", away("Own")),
        ("a page elsewhere after the name was typed at home", "name", away("Own")),
        ("a frame of another site in a page of its own", "framing", away("Own")),
    ];
    for (n, (what, page, more)) in cases.iter().enumerate() {
        let connection = Connection::at(&server, &format!("thief-{n}"), &site.url(page), more)?;
        let over = tried(&connection)?;
        ensure!(over["error_code"] == "domain_not_allowed", "{what}: {over}");
        let message = over["error_message"].as_str().unwrap_or_default();
        ensure!(message.ends_with("nothing was typed"), "{what}: {message}");
        connection.until_closed()?;
    }
    ensure!(stolen(&pages).is_empty(), "{:?}", stolen(&pages));

    // A frame of the secret's own site in a page of another site: the value may be typed into the frame, but not the
    // page.
    let frame = Site::new(&pages, "framed");
    let around = Site::new(&pages, "around");
    around.put("home", &format!("{THIEF}{}", FRAMED.replace("FRAME", &frame.url("login"))));
    around.put("only-frame", &FRAMED.replace("FRAME", &frame.url("login")));
    for page in ["home", "only-frame"] {
        let url = around.url(page).replace("localhost", "127.0.0.1");
        let connection = Connection::at(&server, &format!("around-{page}"), &url, &away("Own"))?;
        connection.login()?;
        connection.until("at rest", |now| {
            now["flow_status"] != "IN_PROGRESS"
                || now["flow_step"].as_str().is_some_and(|step| step.starts_with("AWAITING"))
        })?;
        server.delete(&connection.path(""))?.expect(204)?;
    }
    ensure!(stolen(&pages).is_empty(), "{:?}", stolen(&pages));
    let log = server.log();
    ensure!([BANK, NOWHERE, STORED].iter().all(|secret| !log.contains(secret)), "the log holds a secret");
    Ok(())
}

/// Creates a project and a key for it. Returns the id and the key.
fn project(server: &Server, name: &str) -> anyhow::Result<(String, String)> {
    let made = server.post("/org/projects", &json!({ "name": name }))?.expect(201)?.json()?;
    let id = made["id"].as_str().unwrap_or_default().to_owned();
    let key = server.post("/org/api_keys", &json!({ "name": name, "project_id": id }))?.expect(201)?.json()?;
    Ok((id, key["key"].as_str().unwrap_or_default().to_owned()))
}

#[test]
fn a_provider_is_visible_only_to_keys_of_the_projects_it_is_shared_with() -> anyhow::Result<()> {
    let (pages, store, server, provider) = vault(&json!({}))?;
    ensure!(server.get(&provider)?.expect(200)?.json()?["project_ids"] == json!([]), "it is lent to nobody by itself");
    let (one, key) = project(&server, "one")?;
    let (_, other_key) = project(&server, "other")?;
    let site = Site::new(&pages, "lent");
    let create = |key: &str, profile: &str, credential: &Value| {
        let body = json!({ "domain": "localhost", "profile_name": profile, "login_url": site.url("home"), "credential": credential });
        Request::new("POST", "/auth/connections").bearer(key).json(&body).send(server.address())
    };
    let own = json!({ "provider": "Team", "path": "Team/Own" });
    let connections_before = store.connections();
    let unknown = create(&key, "x", &json!({ "provider": "Nobody", "path": "Team/Own" }))?.expect(400)?.json()?;
    for credential in [&own, &json!({ "provider": "Team", "auto": true }), &json!({ "auto": true })] {
        let refused = create(&key, "x", credential)?.expect(400)?.json()?;
        ensure!(refused == unknown, "it is as if there were none: {refused}");
    }
    ensure!(store.connections() == connections_before, "the store was asked");

    for bad in ["nonsense", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        let refused = server.send("PATCH", &provider, Some(&json!({ "project_ids": [bad] })))?.expect(400)?.json()?;
        ensure!(refused["details"][0]["code"] == "reference_not_found", "{refused}");
    }
    let lend = |to: &Value| server.send("PATCH", &provider, Some(&json!({ "project_ids": to })))?.expect(200);
    ensure!(lend(&json!([one]))?.json()?["project_ids"] == json!([one]));
    create(&other_key, "x", &own)?.expect(400)?;
    let made = create(&key, "lent", &own)?.expect(201)?.json()?;
    let path = format!("/auth/connections/{}", made["id"].as_str().unwrap_or_default());
    let call =
        |method: &str, tail: &str| Request::new(method, &format!("{path}{tail}")).bearer(&key).send(server.address());
    let until = |status: &str| {
        casement_test_support::program::until(status, super::login_site::TEST_TIMEOUT, || {
            let now = call("GET", "").ok()?.json().ok()?;
            (now["flow_status"] == status && now["browser_session_id"].is_null()).then_some(now)
        })
    };
    call("POST", "/login")?.expect(200)?;
    let done = until("SUCCESS")?;
    ensure!(done["can_reauth_reason"] == "external_credential", "{done}");

    // The end of the sharing applies to the next login; a connection of the organization's key still works.
    lend(&json!([]))?;
    ensure!(call("GET", "")?.json()?["can_reauth_reason"] == "no_credential");
    site.put("home", &super::login_site::HOME.replace("in=ann", "in=bob"));
    call("POST", "/login")?.expect(200)?;
    let refused = until("FAILED")?;
    ensure!(refused["error_code"] == "provider_error", "{refused}");
    site.put("home", super::login_site::HOME);
    let connection = Connection::new(&server, &site, &json!({ "credential": own }))?;
    connection.login()?;
    connection.until_in_by_itself()?;
    connection.until_closed()
}

#[test]
fn no_other_caller_can_enter_the_browser_of_a_login() -> anyhow::Result<()> {
    let (pages, _store, server, _) = vault(&json!({}))?;
    let (id, key) = project(&server, "one")?;
    let site = Site::new(&pages, "closed");
    let body = json!({ "domain": "localhost", "profile_name": "closed", "login_url": site.url("login") });
    let of_project = |method: &str, path: &str, body: Option<&Value>| {
        let request = Request::new(method, path).bearer(&key);
        body.map_or(request.clone(), |body| request.json(body)).send(server.address())
    };
    let made = of_project("POST", "/auth/connections", Some(&body))?.expect(201)?.json()?;
    let path = format!("/auth/connections/{}", made["id"].as_str().unwrap_or_default());
    of_project("POST", &format!("{path}/login"), Some(&json!({})))?.expect(200)?;
    let waiting = casement_test_support::program::until("waiting for input", super::login_site::TEST_TIMEOUT, || {
        let now = of_project("GET", &path, None).ok()?.json().ok()?;
        (now["flow_step"] == "AWAITING_INPUT").then_some(now)
    })?;
    let session = waiting["browser_session_id"].as_str().unwrap_or_default().to_owned();
    let record = of_project("GET", &format!("/browsers/{session}"), None)?.expect(200)?.json()?;
    let token = record["cdp_ws_url"].as_str().and_then(|url| url.split("jwt=").nth(1)).unwrap_or_default().to_owned();

    let calls: &[(&str, &str, Value)] = &[
        ("POST", "process/exec", json!({ "command": "id" })),
        ("POST", "process/spawn", json!({ "command": "id" })),
        ("POST", "playwright/execute", json!({ "code": "return 1" })),
        ("POST", "computer/screenshot", json!({})),
        ("POST", "computer/press_key", json!({ "keys": ["Tab"] })),
        ("POST", "computer/clipboard/read", json!({})),
        ("POST", "curl", json!({ "url": site.url("login") })),
        ("GET", "fs/list_files?path=/", Value::Null),
        ("GET", "fs/read_file?path=/etc/hostname", Value::Null),
        ("GET", "logs/stream?source=path&path=/etc/hostname", Value::Null),
        ("GET", "telemetry/stream", Value::Null),
        ("GET", "replays", Value::Null),
        ("POST", "replays", json!({})),
        ("POST", "extensions", json!({})),
    ];
    for (method, tail, body) in calls {
        let body = (!body.is_null()).then_some(body);
        let answer = of_project(method, &format!("/browsers/{session}/{tail}"), body)?;
        ensure!(
            answer.status == 409 && answer.json()?["code"] == "invalid_state",
            "{method} {tail}: {}",
            answer.text()
        );
        let separator = if tail.contains('?') { '&' } else { '?' };
        let direct = Request::new(method, &format!("/vm/{session}/{tail}{separator}jwt={token}"));
        let answer = body.map_or(direct.clone(), |body| direct.json(body)).send(server.address())?;
        ensure!(answer.status == 409, "{method} {tail} with the token: {}", answer.text());
    }
    for tail in ["cdp", "webdriver", "wd/status", "wd/session/x/url", "curl/raw"] {
        let answer = Request::new("GET", &format!("/vm/{session}/{tail}?jwt={token}")).send(server.address())?;
        ensure!(answer.status == 409, "{tail}: {}", answer.text());
    }
    let changed = json!({ "telemetry": { "browser": { "console": { "enabled": true } } } });
    for change in [changed, json!({ "viewport": { "width": 800, "height": 600 } }), json!({ "name": "mine" })] {
        ensure!(of_project("PATCH", &format!("/browsers/{session}"), Some(&change))?.status == 409, "{change}");
    }
    // A key of the organization has access to the session.
    let own = Request::new("POST", &format!("/browsers/{session}/computer/screenshot")).bearer(server.key());
    own.header("X-Kernel-Project-Id", &id).json(&json!({})).send(server.address())?.expect(200)?;
    // The live view works, and the login continues.
    let live = waiting["live_view_url"].as_str().unwrap_or_default().replace(&server.url(), "");
    Request::new("GET", &live).send(server.address())?.expect(200)?;
    let values = json!({ "fields": super::login_site::ann(PASSWORD) });
    of_project("POST", &format!("{path}/submit"), Some(&values))?.expect(202)?;
    casement_test_support::program::until("logged in", super::login_site::TEST_TIMEOUT, || {
        (of_project("GET", &path, None).ok()?.json().ok()?["flow_status"] == "SUCCESS").then_some(())
    })
}
