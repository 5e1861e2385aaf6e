//! Tests with callers without a valid key, with a key or token of another caller, and with pages of other sites.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Cdp, Options, Server, Session, Shared, until};
use serde_json::json;

use super::host::{browser_of, chromium, count, sql, uuid};

/// Returns every operation of the API description that needs a key: the method, and the path with names in braces.
pub(super) fn operations(server: &Server) -> anyhow::Result<Vec<(String, String)>> {
    let document = Request::new("GET", "/openapi.json").send(server.address())?.expect(200)?.json()?;
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().context("no paths")? {
        for (method, operation) in item.as_object().context("no operations")? {
            let open = operation["security"].as_array().is_some_and(|all| all.contains(&json!({})));
            if !open {
                found.push((method.to_uppercase(), path.clone()));
            }
        }
    }
    ensure!(found.len() >= 15, "the description lists {found:?} only");
    Ok(found)
}

/// Returns the path with an identifier in place of a name in braces.
pub(super) fn filled(path: &str, id: &str) -> String {
    match (path.find('{'), path.find('}')) {
        (Some(from), Some(to)) => format!("{}{id}{}", &path[..from], &path[to + 1..]),
        _ => path.to_owned(),
    }
}

/// Creates a key of this server, with these flags.
fn key(server: &Server, flags: &[&str]) -> anyhow::Result<String> {
    let output = server.command(&[&["keys", "create", "--name", "a test's"], flags].concat()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[test]
fn no_offset_and_no_limit_of_a_list_makes_the_server_fail() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let document = Request::new("GET", "/openapi.json").send(server.address())?.expect(200)?.json()?;
    let mut lists = 0;
    for (path, item) in document["paths"].as_object().context("no paths")? {
        let parameters = item["get"]["parameters"].as_array();
        if !parameters.is_some_and(|all| all.iter().any(|parameter| parameter["name"] == "offset")) {
            continue;
        }
        lists += 1;
        for (query, pages) in [
            ("offset=9223372036854775807", true),
            ("offset=9223372036854775807&limit=100", true),
            ("offset=9223372036854775808", true),
            ("offset=-1", false),
            ("limit=9223372036854775807", false),
            ("limit=-9223372036854775808", false),
        ] {
            let answer = server.get(&format!("{}?{query}", filled(path, "none")))?;
            let expected = if path.contains('{') { [400, 404] } else { [if pages { 200 } else { 400 }; 2] };
            assert!(expected.contains(&answer.status), "{path}?{query}: {}", answer.text());
        }
    }
    ensure!(lists >= 12, "only {lists} lists have an offset");
    Ok(())
}

#[test]
fn every_operation_refuses_a_request_without_a_valid_key() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let revoked = key(server, &[])?;
    let id = revoked.split('_').nth(1).context("no id")?;
    server.get("/browsers")?.expect(200)?;
    ensure!(server.command(&["keys", "revoke", id]).output()?.status.success(), "it was not revoked");
    let expired = key(server, &["--days", "1"])?;
    let expired_id = expired.split('_').nth(1).context("no id")?;
    sql(server, &format!("update api_keys set expires_at = now() where id = '{}'", uuid(expired_id)?))?;
    let (good_id, secret) = server.key().trim_start_matches("csk_").split_once('_').context("an odd key")?;
    let unknown_id = good_id.chars().rev().collect::<String>();
    let credentials = [
        None,
        Some("Bearer ".to_owned()),
        Some("Bearer csk_".to_owned()),
        Some(format!("Bearer {}x", server.key())),
        Some(format!("Bearer {}", &server.key()[..server.key().len() - 1])),
        Some(format!("Bearer csk_{good_id}_{}", "A".repeat(secret.len()))),
        Some(format!("Bearer csk_{unknown_id}_{secret}")),
        Some(format!("Basic {}", server.key())),
        Some(format!("Bearer {revoked}")),
        Some(format!("Bearer {expired}")),
    ];
    let mut bodies = HashSet::new();
    for (method, path) in operations(server)? {
        for credential in &credentials {
            let mut request = Request::new(&method, &filled(&path, "01k9zk0000000000000000000a")).json(&json!({}));
            if let Some(credential) = credential {
                request = request.header("Authorization", credential);
            }
            let answer = request.send(server.address())?;
            let shown = credential.as_deref().map(|text| &text[..text.len().min(12)]);
            assert_eq!(answer.status, 401, "{method} {path} with {shown:?}: {}", answer.text());
            assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer realm=")));
            // WebDriver clients read the error from a member of its own.
            let text = answer.text();
            bodies.insert(match text.split_once("\"data\":") {
                Some((_, data)) if path.starts_with("/wd/") => data.strip_suffix("}}").unwrap_or(data).to_owned(),
                _ => text,
            });
        }
        let in_the_query = format!("{}?api_key={}", filled(&path, "x"), server.key());
        assert_eq!(Request::new(&method, &in_the_query).send(server.address())?.status, 401, "{method} {path}");
    }
    assert_eq!(bodies.len(), 1, "one answer, whatever was wrong: {bodies:?}");
    Ok(())
}

/// Returns a response without its varying parts: the requested identifier, the request id, the time.
pub(super) fn comparable(answer: &Answer, id: &str) -> (u16, String, Vec<(String, String)>) {
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| name != "x-request-id" && name != "date");
    headers.sort_unstable();
    (answer.status, answer.text().replace(id, "…"), headers)
}

#[test]
fn a_key_of_another_project_finds_nothing_and_learns_nothing() -> anyhow::Result<()> {
    // A server of its own, because the test counts all pools.
    let server = &Server::start(Options { first_start: true, ..Options::default() })?;
    let organization = sql(server, "select id from organizations")?;
    sql(
        server,
        &format!(
            "insert into projects (id, organization_id, name, is_default, status, created_at, updated_at)
             values (gen_random_uuid(), '{organization}', 'elsewhere', false, 'active', now(), now())"
        ),
    )?;
    let stranger = key(server, &["--project", "elsewhere"])?;
    let session = server.create(&json!({ "headless": true, "timeout_seconds": 600, "name": "the-name" }))?;
    let pool = server.get("/browser_pools/default")?.expect(200)?.json()?;
    let pool = pool["id"].as_str().context("no id")?;
    let rows = || sql(server, "select count(*), min(size), max(size) from browser_pools where deleted_at is null");
    let before = (rows()?, server.get(&format!("/browsers/{}", session.id()))?.json()?["name"].clone());

    // Responses of routes with an end date depend on the clock and contain the id; tests with a set clock cover them.
    let is_compared = |path: &str| path.contains('{') && !path.starts_with("/projects/");
    for (method, path) in operations(server)?.into_iter().filter(|(_, path)| is_compared(path)) {
        let (there, not_there) = match path.starts_with("/browsers") {
            true => (vec![session.id(), "the-name"], vec!["01k9zk0000000000000000000a", "no-name!"]),
            false => (vec![pool, "default"], vec!["01k9zk0000000000000000000a", "unknown"]),
        };
        for (there, not_there) in there.into_iter().zip(not_there) {
            if path.contains("{id}") && there == "the-name" {
                continue;
            }
            let ask = |id: &str| {
                let body = json!({ "session_id": session.id(), "size": 2, "name": "taken-over", "force": true });
                Request::new(&method, &filled(&path, id)).bearer(&stranger).json(&body).send(server.address())
            };
            let (found, unknown) = (ask(there)?, ask(not_there)?);
            // The key of a project has no access to resources of the organization.
            let of_organization =
                path.starts_with("/audit-logs/") || (path.starts_with("/telemetry/destinations") && method != "GET");
            let refusal =
                if path.starts_with("/org/") || path.starts_with("/nodes/") || of_organization { 403 } else { 404 };
            assert_eq!(found.status, refusal, "{method} {path} {there}: {}", found.text());
            assert_eq!(comparable(&found, there), comparable(&unknown, not_there), "{method} {path} {there}");
        }
    }
    for list in ["/browsers", "/browsers?status=all", "/browser_pools"] {
        let listed = Request::new("GET", list).bearer(&stranger).send(server.address())?;
        assert_eq!((listed.status, listed.text().as_str()), (200, "[]"), "{list}");
    }
    let default_project = sql(server, "select id from projects where is_default")?;
    let default_project = super::host::id_of(&default_project)?;
    let named = Request::new("GET", "/browsers").bearer(&stranger).header("X-Kernel-Project-Id", &default_project);
    assert_eq!(named.send(server.address())?.status, 403, "a key of one project names another");
    let metrics = Request::new("GET", "/metrics").bearer(&stranger).send(server.address())?;
    assert_eq!(metrics.status, 403, "figures of the whole are not for one project");
    let direct = Request::new("POST", &format!("/vm/{}/computer/screenshot", session.id())).bearer(&stranger);
    assert_eq!(direct.json(&json!({})).send(server.address())?.status, 404);

    let after = (rows()?, server.get(&format!("/browsers/{}", session.id()))?.json()?["name"].clone());
    assert_eq!(after, before, "nothing was changed");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

/// Returns a request for each route that a session token allows.
pub(super) fn direct(id: &str, token: &str) -> Vec<Request> {
    let socket = |path: String| {
        Request::new("GET", &path)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    };
    vec![
        socket(format!("/vm/{id}/cdp?jwt={token}")),
        socket(format!("/vm/{id}/webdriver?jwt={token}")),
        socket(format!("/vm/{id}/webdriver/session/0a1b2c?jwt={token}")),
        socket(format!("/live/{id}/socket?jwt={token}")),
        Request::new("GET", &format!("/live/{id}?jwt={token}")),
        Request::new("POST", &format!("/vm/{id}/computer/screenshot?jwt={token}")).json(&json!({})),
        Request::new("POST", &format!("/vm/{id}/wd/session?jwt={token}")).json(&json!({ "capabilities": {} })),
    ]
}

/// Returns a request for each operation of a session, at the URL that a token allows.
fn inside(server: &Server, id: &str, token: &str) -> anyhow::Result<Vec<Request>> {
    let mut found = vec![Request::new("GET", &format!("/vm/{id}/curl/raw?jwt={token}&url=http://127.0.0.1/"))];
    for (method, path) in operations(server)? {
        let Some(rest) = path.strip_prefix("/browsers/{id_or_name}/").filter(|rest| *rest != "telemetry/events") else {
            continue;
        };
        let request = Request::new(&method, &format!("/vm/{id}/{}?jwt={token}", filled(rest, "x")));
        found.push(if method == "GET" { request } else { request.json(&json!({})) });
    }
    ensure!(found.len() > 40, "the description lists {} operations inside a session only", found.len());
    Ok(found)
}

/// Returns the response to an upgrade request. It does not read to the end, because the connection stays open after a
/// refusal.
fn answer(request: &Request, server: &Server) -> anyhow::Result<Answer> {
    let mut stream = request.start(server.address())?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk)?;
        bytes.extend_from_slice(&chunk[..read]);
        // The response is complete when it has its announced length.
        if let Ok(answer) = Answer::read(&bytes, false) {
            return Ok(answer);
        }
        ensure!(read > 0, "{}: no whole answer: {}", request.path, String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_token_opens_only_its_own_session_and_nothing_after_its_end() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let (one, other) = (server.headless()?, server.headless()?);
    let token = one.token();
    let cut = &token[..token.len() - 1];
    let (head, rest) = token.split_once('.').context("no token")?;
    let (claims, mac) = rest.split_once('.').context("no token")?;
    let unsigned = format!("eyJhbGciOiJub25lIn0.{claims}.");
    let swapped = format!("{head}.{}.{mac}", other.token().split('.').nth(1).context("no claims")?);
    for (id, token, what) in [
        (other.id(), token, "another session's"),
        ("01k9zk0000000000000000000a", token, "another, unknown session's"),
        (one.id(), cut, "cut"),
        (one.id(), "", "empty"),
        (one.id(), &unsigned, "unsigned"),
        (other.id(), &swapped, "with swapped claims"),
    ] {
        for request in direct(id, token).into_iter().chain(inside(server, id, token)?) {
            let answer = answer(&request, server)?;
            assert_eq!(answer.status, 401, "{what}: {} {}", request.path, answer.text());
        }
    }

    let mut open = Cdp::connect(one.text("cdp_ws_url"))?;
    server.delete(&format!("/browsers/{}", one.id()))?.expect(204)?;
    assert_eq!(open.until_closed()?, Some((4000, "deleted".to_owned())));
    // Replays and telemetry still exist after the end of the session, and its token allows them.
    let ended = |request: &Request| !["/replays", "/telemetry/"].iter().any(|part| request.path.contains(part));
    let tried = direct(one.id(), token).into_iter().chain(inside(server, one.id(), token)?.into_iter().filter(ended));
    for request in tried {
        let answer = answer(&request, server)?;
        assert_eq!(answer.status, 404, "after its end: {} {}", request.path, answer.text());
    }
    server.delete(&format!("/browsers/{}", other.id()))?.expect(204).map(drop)
}

#[test]
fn a_page_of_another_site_gets_nothing_from_the_server() -> anyhow::Result<()> {
    // A server of its own, because the test counts all sessions.
    let server = &Server::start(Options::default())?;
    let address = server.address();
    let session = server.headless()?;
    let port = address.port();

    for host in ["attacker.test", &format!("attacker.test:{port}"), "169.254.169.254", "", "127.0.0.1.attacker.test"] {
        let mut all = direct(session.id(), session.token());
        all.push(Request::new("GET", "/browsers").bearer(server.key()));
        all.push(Request::new("GET", "/openapi.json"));
        // A load balancer probes by address, or without a name.
        if !["169.254.169.254", ""].contains(&host) {
            all.push(Request::new("GET", "/healthz"));
        }
        for request in all {
            let answer = answer(&request.header("Host", host), server)?;
            assert_eq!((answer.status, &answer.json()?["code"]), (400, &json!("bad_request")), "{host:?}");
        }
    }
    // A browser sends the origin of the page that opens the connection.
    for origin in ["http://attacker.test", "null", "https://127.0.0.1.attacker.test"] {
        for mut request in direct(session.id(), "x") {
            request.path = request.path.split('?').next().unwrap_or_default().to_owned();
            let answer = answer(&request.header("Origin", origin), server)?;
            assert_eq!(answer.status, 403, "{origin}: {}", answer.text());
        }
    }
    let mut sockets = direct(session.id(), session.token());
    let with_token = sockets.remove(0).header("Origin", "http://attacker.test");
    let mut stream = with_token.start(address)?;
    let mut beginning = [0; 12];
    stream.read_exact(&mut beginning)?;
    assert_eq!(&beginning, b"HTTP/1.1 101", "whoever has the token may use it from any page");
    drop(stream);

    let before = count(server, "select count(*) from sessions")?;
    for kind in ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"] {
        for (method, path) in operations(server)?.into_iter().filter(|(method, _)| method == "POST") {
            let mut form = Request::new(&method, &filled(&path, session.id())).header("Content-Type", kind);
            form.body = Some(br#"{"headless":true}"#.to_vec());
            let refused = form.clone().header("Origin", "http://attacker.test").send(address)?;
            assert_eq!(refused.status, 403, "{path} {kind}: {}", refused.text());
            assert_eq!(form.send(address)?.status, 401, "{path} {kind}");
        }
    }
    assert_eq!(count(server, "select count(*) from sessions")?, before);

    let id = session.id();
    for path in ["/json", "/json/version", "/json/list"] {
        for path in [path.to_owned(), format!("/vm/{id}{path}")] {
            assert_eq!(Request::new("GET", &path).send(address)?.status, 401, "{path}");
        }
    }
    let protocol = Request::new("GET", "/json/protocol").send(address)?.expect(200)?;
    assert!(!protocol.text().contains(id), "the description of the protocol says nothing of sessions");
    for (method, path) in
        [("GET", "protocol"), ("PUT", "new?http://a.example"), ("GET", "close/x"), ("GET", "activate/x")]
    {
        assert_eq!(Request::new(method, &format!("/vm/{id}/json/{path}")).send(address)?.status, 401, "{path}");
    }
    for path in ["/json/new", "/json/close/x", "/devtools/browser/x", "/status", "/session"] {
        for path in [path.to_owned(), format!("/vm/{id}{path}")] {
            if path.starts_with("/vm/") && path.contains("/json/") {
                continue;
            }
            for request in [Request::new("GET", &path), Request::new("GET", &path).bearer(server.key())] {
                let answer = request.send(address)?;
                assert_eq!((answer.status, &answer.json()?["code"]), (404, &json!("route_not_found")), "{path}");
            }
        }
    }
    let mut listening = listeners(server)?;
    listening.retain(|found| *found != address);
    assert!(listening.is_empty(), "nothing else listens on this machine's network: {listening:?}");
    server.delete(&format!("/browsers/{id}"))?.expect(204).map(drop)
}

/// Returns the addresses where the server and its sandboxes listen in this machine's network namespace.
fn listeners(server: &Server) -> anyhow::Result<Vec<SocketAddr>> {
    let own = fs::metadata("/proc/self/ns/net")?.ino();
    let mut found = Vec::new();
    for process in server.processes() {
        let place = format!("/proc/{}", process.pid);
        if !fs::metadata(format!("{place}/ns/net")).is_ok_and(|namespace| namespace.ino() == own) {
            continue;
        }
        let open = fs::read_dir(format!("{place}/fd")).into_iter().flatten().flatten();
        let sockets: HashSet<String> = open
            .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned))
            .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        for table in ["tcp", "tcp6"] {
            let lines = fs::read_to_string(format!("{place}/net/{table}")).unwrap_or_default();
            for fields in lines.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()) {
                // State 0A is listening; the tenth field is the number of the socket.
                if fields.len() > 9 && fields[3] == "0A" && sockets.contains(fields[9]) {
                    let (ip, port) = fields[1].split_once(':').context("an odd line")?;
                    let ip = u32::from_str_radix(ip, 16).unwrap_or(0).swap_bytes();
                    found.push((std::net::Ipv4Addr::from(ip), u16::from_str_radix(port, 16)?).into());
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Returns the arguments of the browser's process.
fn arguments(server: &Server, session: &Session) -> anyhow::Result<Vec<String>> {
    let browser = browser_of(server, session)?;
    Ok(chromium(server, &browser)?.remove(0).argv)
}

#[test]
fn no_field_policy_or_name_reaches_the_browsers_command_line() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let size = json!({ "width": 811, "height": 607 });
    let plain = server.create(&json!({ "headless": true, "viewport": size }))?;
    let flags = json!(["--no-sandbox", "--remote-debugging-port=9999", "--load-extension=/tmp", "--user-data-dir=/"]);
    let evil = server.create(&json!({
        "headless": true, "viewport": size,
        "name": "--no-sandbox", "tags": { "--no-sandbox": "--user-data-dir=/" },
        "args": flags, "chromium_args": flags, "extra_chromium_args": flags, "flags": flags, "command_line": flags,
        "executable_path": "/bin/sh", "binary": "/bin/sh", "user_data_dir": "/", "program": "/bin/sh",
        "env": { "LD_PRELOAD": "/tmp/x.so" }, "no_sandbox": true,
        "browser_policy": {
            "AllowFileSelectionDialogs": false, "--no-sandbox": true,
        },
        "start_url": "about:blank#--no-sandbox",
    }))?;
    assert_eq!(arguments(server, &evil)?, arguments(server, &plain)?);
    for session in [&plain, &evil] {
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    let blocked = ["RemoteDebuggingAllowed", "ExtensionInstallForcelist", "ProxySettings", "ProxyMode", "HeadlessMode"];
    let places = ["UserDataDir", "DiskCacheDir", "AudioSandboxEnabled", "NetworkServiceSandboxEnabled"];
    for blocked in blocked.into_iter().chain(places) {
        let refused = server.post("/browsers", &json!({ "browser_policy": { blocked: 1 } }))?.expect(400)?.json()?;
        assert_eq!(refused["details"][0]["code"], "blocked", "{refused}");
        assert!(refused["details"][0]["message"].as_str().unwrap().starts_with("browser_policy."), "{refused}");
    }
    for url in ["--no-sandbox", "/etc/passwd", "-version"] {
        let refused = server.post("/browsers", &json!({ "headless": true, "start_url": url }))?.expect(400)?.json()?;
        assert!(refused["details"][0]["message"].as_str().unwrap().starts_with("start_url: "), "{refused}");
    }
    Ok(())
}

#[test]
fn no_secret_is_in_the_log_or_in_the_database() -> anyhow::Result<()> {
    let variables = vec![("CASEMENT_LOG".to_owned(), "trace".to_owned())];
    let server = Server::start(Options { variables, ..Options::default() })?;
    let other_key = key(&server, &[])?;
    let session = server.headless()?;
    drop(Cdp::connect(session.text("cdp_ws_url"))?);
    for request in direct(session.id(), session.token()) {
        drop(request.start(server.address())?);
    }
    let wrong = format!("/vm/{}/cdp?jwt={}x", session.id(), session.token());
    Request::new("GET", &wrong).send(server.address())?.expect(401)?;
    Request::new("GET", &format!("/browsers?jwt={}&key={}", session.token(), other_key)).send(server.address())?;
    Request::new("GET", "/browsers").bearer(&format!("{other_key}x")).send(server.address())?.expect(401)?;
    server.get("/no/such/route")?.expect(404)?;
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    // The log line is written after the response.
    let log = until("the log tells of what was asked", Duration::from_secs(60), || {
        let log = server.log();
        log.contains(&format!("/vm/{}/cdp", session.id())).then_some(log)
    })?;
    let secret = |key: &str| key.splitn(3, '_').last().unwrap_or_default().to_owned();
    let mac = session.token().rsplit('.').next().unwrap_or_default().to_owned();
    let dump =
        sql(&server, "select string_agg(t::text, ' ') from (select api_keys::text as t from api_keys) all_keys")?;
    for secret in [server.key().to_owned(), other_key.clone(), secret(server.key()), secret(&other_key), mac] {
        let shown = log.lines().find(|line| line.contains(&secret));
        assert!(shown.is_none(), "a secret stands in the log: {shown:?}");
        assert!(!dump.contains(&secret), "a secret stands in the database");
        for process in server.processes() {
            assert!(!process.argv.iter().any(|word| word.contains(&secret)), "a secret stands in {}", process.argv[0]);
        }
    }
    Ok(())
}
