//! Searches for the secrets of logins in everything that the logins leave.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use casement_domain::credential::TotpSecret;
use casement_test_support::program::{Options, Pages, Server, Session, processes_of, until};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::host::{browser_of, dump, sandbox, server_process};
use super::login_site::{Connection, LOGIN, RIDDLE, Site, TEST_TIMEOUT, ann};
use super::login_ways::TOTP;

const TYPED: &str = "tAb7-typed-horse-Q9";
const MISTYPED: &str = "tAb7-mistyped-cow-Q8";
const STORED: &str = "vK2x-stored-zebra-M4";
/// A code of a text message.
const CODE: &str = "QX7-R2M9-ZK41";
/// A TOTP secret in base 32, and its bytes.
const TOTP_SECRET: &str = "NNLTG5SRPI4EY4CUGF4FSYRWKJWU4MDT";
const TOTP_BYTES: &str = "kW3vQz8LpT1xYb6RmN0s";

/// Returns a script for the text that contains it only reversed: the source of a page is captured, so it must not
/// contain the secret.
fn backwards(text: &str) -> String {
    format!("[...'{}'].reverse().join('')", text.chars().rev().collect::<String>())
}

/// Returns a page that sends its values to its site, once as JSON and once as a form.
fn sending(html: &str, password: &str, next: &str) -> String {
    let send = "const all = new FormData(f), body = new URLSearchParams(all);\n\
        await fetch('taken', { method: 'POST', body: JSON.stringify(Object.fromEntries(all)), headers: { 'Content-Type': 'application/json' } });\n\
        await fetch('taken', { method: 'POST', body });";
    html.replace("f.onsubmit = async event", "f.onsubmit = event")
        .replace(
            "event => {\n    event.preventDefault();",
            &format!("async event => {{\n    event.preventDefault();\n    {send}"),
        )
        .replace("'hunter2-so-secret'", &backwards(password))
        .replace("location.pathname.replace('login', 'home')", &format!("'{next}'"))
}

const MESSAGE: &str = r#"<!doctype html><html lang=en><title>Enter code</title><h1>Check your messages</h1>
<p>Enter the code that we sent by text message to ••• 42.</p>
<form id=f><label>Code <input name=code autocomplete=one-time-code required></label><button>Verify</button></form>
<script>f.onsubmit = event => {
    event.preventDefault();
    location = 'totp';
};</script>"#;

/// Returns the search patterns of a secret: plain, hexadecimal, base 64.
fn needles(codes: &[String]) -> Vec<String> {
    let mut needles = Vec::new();
    for secret in [TYPED, MISTYPED, STORED, CODE, TOTP_SECRET, TOTP_BYTES] {
        let hex = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        needles.extend([secret.to_owned(), hex, STANDARD.encode(secret).trim_end_matches('=').to_owned()]);
    }
    // Six digits without context occur by chance.
    needles.extend(codes.iter().map(|code| format!("\"{code}\"")));
    needles.extend(codes.iter().map(|code| format!("otp={code}")));
    needles
}

/// Returns the codes that were valid in this range of time.
fn codes(from: OffsetDateTime, to: OffsetDateTime) -> anyhow::Result<Vec<String>> {
    let secret = TotpSecret::parse(TOTP_SECRET).map_err(|bad| anyhow::anyhow!("{bad:?}"))?;
    let mut codes = Vec::new();
    let mut at = from;
    while at < to + Duration::seconds(30) {
        codes.push(secrecy::ExposeSecret::expose_secret(&secret.code(at).code).to_owned());
        at += Duration::seconds(30);
    }
    Ok(codes)
}

/// Returns the output of `grep` for these texts in these files.
fn grep(needles: &[String], files: &[&Path]) -> anyhow::Result<String> {
    let patterns = tempfile::NamedTempFile::new()?;
    fs::write(patterns.path(), needles.join("\n"))?;
    let mut command = Command::new("grep");
    command.env("LC_ALL", "C").args(["-raoF", "--devices=skip", "-f"]).arg(patterns.path()).args(files);
    let output = command.output().context("cannot start grep")?;
    // A file that the database has just removed is not a failure.
    ensure!(output.status.code() < Some(2) || output.stderr.ends_with(b"No such file or directory\n"), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Writes the memory of a process to a file, like a core dump.
fn memory(pid: i32) -> anyhow::Result<tempfile::NamedTempFile> {
    let mut copy = tempfile::NamedTempFile::new()?;
    let mut memory = File::open(format!("/proc/{pid}/mem"))?;
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // Read-only mappings equal their files, and the shared memory of the database equals its tables, so both are
        // skipped.
        if rights != "rw-p" {
            continue;
        }
        let (from, to) = range.split_once('-').context("no range")?;
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        memory.seek(SeekFrom::Start(from))?;
        // A mapping may be released in the meantime.
        drop(std::io::copy(&mut (&memory).take(to - from), &mut copy));
    }
    Ok(copy)
}

/// Starts a login with full telemetry. Returns its session.
fn watched(connection: &Connection<'_>, site: &Site<'_>, pages: &Pages, first: &str) -> anyhow::Result<Session> {
    pages.hold(&site.path("home"));
    connection.login()?;
    let begun = connection.until("in a session", |now| now["browser_session_id"].is_string())?;
    let path = format!("/browsers/{}", begun["browser_session_id"].as_str().context("no session")?);
    let session =
        until("its session", TEST_TIMEOUT, || connection.server.get(&path).ok()?.expect(200).ok()?.json().ok())?;
    let kinds =
        ["console", "page", "interaction", "network", "control", "connection", "system", "screenshot", "captcha"];
    let on: serde_json::Map<String, Value> =
        kinds.map(|kind| (kind.to_owned(), json!({ "enabled": true }))).into_iter().collect();
    connection.server.send("PATCH", &path, Some(&json!({ "telemetry": { "browser": on } })))?.expect(200)?;
    site.put("home", first);
    Ok(Session(session))
}

/// Returns the types of a PNG's chunks.
fn parts(png: &[u8]) -> Vec<String> {
    let mut kinds = Vec::new();
    let mut rest = png.get(8..).unwrap_or_default();
    while let Some((length, kind)) = rest.first_chunk::<4>().zip(rest.get(4..8)) {
        kinds.push(String::from_utf8_lossy(kind).into_owned());
        rest = rest.get(12 + u32::from_be_bytes(*length) as usize..).unwrap_or_default();
    }
    kinds.dedup();
    kinds
}

#[expect(clippy::disallowed_methods, reason = "codes are made by the server's clock")]
fn now() -> OffsetDateTime {
    std::time::SystemTime::now().into()
}

#[test]
fn secrets_of_logins_are_found_nowhere_afterwards() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let variables = vec![("CASEMENT_LOG".to_owned(), "trace".to_owned())];
    let server = Server::start(Options { variables, ..Options::reaching(&pages) })?;
    let began = now();
    let to_login = "<!doctype html><title>One moment</title><script>location = 'login'</script>";

    // A person types the values, after a mistake; the TOTP code is generated.
    let values = json!({ "email": "ann", "password": STORED });
    for (name, values) in [("secrets", json!({})), ("stored", values)] {
        let credential = json!({ "name": name, "domain": "localhost", "values": values, "totp_secret": TOTP_SECRET });
        server.post("/credentials", &credential)?.expect(201)?;
    }
    let site = Site::new(&pages, "shop-secrets");
    site.put("taken", "ok");
    site.put("login", &sending(LOGIN, TYPED, "message"));
    site.put("message", &sending(MESSAGE, TYPED, ""));
    site.put("totp", &sending(&TOTP.replace("'12345678901234567890'", &backwards(TOTP_BYTES)), TYPED, ""));
    let more = json!({ "credential": { "name": "secrets" }, "record_session": true });
    let connection = Connection::new(&server, &site, &more)?;
    let session = watched(&connection, &site, &pages, to_login)?;
    let browser = browser_of(&server, &session)?;
    connection.until_awaiting()?;
    connection.submit(&ann(MISTYPED))?;
    connection.until("refused", |now| now["website_error"].is_string())?;
    connection.until_awaiting()?;
    connection.submit(&ann(TYPED))?;
    let waiting = connection.until("asked for the code", |now| now["fields"][0]["type"] == "code")?;
    site.put("home", super::login_site::HOME);
    connection.submit(&json!({ waiting["fields"][0]["ref"].as_str().context("no name")?: CODE }))?;
    connection.until_over("SUCCESS")?;
    connection.until_closed()?;

    // Stored values are typed, and then an unknown page is shown, so that a screenshot is stored for the operator.
    let site = Site::new(&pages, "shop-secrets-stored");
    site.put("taken", "ok");
    site.put("login", &sending(LOGIN, STORED, "riddle"));
    site.put("riddle", RIDDLE);
    let more = json!({ "credential": { "name": "stored" }, "record_session": true });
    let stored = Connection::new(&server, &site, &more)?;
    let other = watched(&stored, &site, &pages, to_login)?;
    let over = stored.until_over("FAILED")?;
    ensure!(over["error_code"] == "page_not_understood", "{over}");
    stored.until_closed()?;

    // Waits until no process of the browsers runs.
    until("their browsers gone", TEST_TIMEOUT, || {
        let left = super::host::sandboxes(&server).ok()?;
        left.is_empty().then_some(())
    })?;
    ensure!(processes_of(&sandbox(&server, &browser)).is_empty());

    let needles = needles(&codes(began, now())?);
    let seen = tempfile::tempdir()?;
    let mut events = 0;
    for session in [&session, &other] {
        let telemetry =
            server.get(&format!("/browsers/{}/telemetry/events?since=1h&limit=100", session.id()))?.expect(200)?;
        events += telemetry.json()?.as_array().map_or(0, Vec::len);
        fs::write(seen.path().join(format!("telemetry {}", session.id())), telemetry.body)?;
    }
    ensure!(events > 20, "only {events} events were told");
    let audit = server.get("/audit-logs/export/chunk?start=2000-01-01&end=9000-01-01&format=jsonl")?.expect(200)?;
    ensure!(audit.text().contains(&format!("/auth/connections/{}/submit", connection.id)));
    fs::write(seen.path().join("audit"), audit.body)?;
    fs::write(seen.path().join("database"), dump(&server)?)?;
    fs::write(seen.path().join("log"), server.log())?;
    for (name, path) in [("record", connection.path("")), ("timeline", connection.path("/timeline"))] {
        fs::write(seen.path().join(name), server.get(&path)?.expect(200)?.body)?;
    }
    let found = grep(&needles, &[seen.path(), &server.data_dir()])?;
    ensure!(found.is_empty(), "found:\n{found}");

    let pictures: Vec<_> = fs::read_dir(server.data_dir().join("login-pages"))?.collect::<Result<_, _>>()?;
    ensure!(pictures.len() == 1, "{pictures:?}");
    let kinds = parts(&fs::read(pictures[0].path())?);
    ensure!(kinds.iter().all(|kind| ["IHDR", "sRGB", "pHYs", "IDAT", "IEND"].contains(&kind.as_str())), "{kinds:?}");

    // The memory of the remaining processes has no secret either.
    let known = [server.data_dir().display().to_string()];
    let own = server_process(&server)?.pid;
    ensure!(!grep(&known, &[memory(own)?.path()])?.is_empty(), "what is surely in memory is not found");
    let mut found = String::new();
    let clean = until("a memory without secrets", TEST_TIMEOUT, || {
        found.clear();
        for process in server.processes() {
            let copy = memory(process.pid).ok()?;
            for line in grep(&needles, &[copy.path()]).ok()?.lines() {
                found += &format!("{} {}: {line}\n", process.pid, process.argv.join(" "));
            }
        }
        found.is_empty().then_some(())
    });
    clean.with_context(|| format!("found:\n{found}"))
}
