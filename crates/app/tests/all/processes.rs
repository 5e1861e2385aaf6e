//! Tests of processes, logs and requests of sessions: with the public client, and with harmful programs.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Clients, Options, Server, Session, Shared, until};
use serde_json::{Value, json};

use super::host::{resident, server_process};

const TEST_TIMEOUT: Duration = Duration::from_secs(300);
/// The additional memory that the server may use for data in transit, in MiB.
const MAX_MEMORY_MIB: u64 = 24;

fn every_call_works(headless: bool) -> anyhow::Result<()> {
    // The script chooses the port of its site.
    let server = &Shared::on_this_machine().server;
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/processes.py", &[&headless.to_string()])?;
    let field = |code: &str| json!(["BadRequestError", "invalid_input", code]);
    let upstream = json!(["InternalServerError", "upstream_error"]);
    let late = json!(["InternalServerError", "timeout"]);
    let saw = json!({
        "processes": {
            "exec": [3, "a|ü|/tmp|", "bad\n"],
            "direct": "$HOME *",
            "nothing": 127,
            "running": ["running", null, true],
            "stdin": [6, ["got hello\n"], "exit", 5],
            "status": 5,
            "tty": "40 120",
            "killed": ["exit", 143],
            "too late": ["ConflictError", "invalid_state"],
            "timeout": late,
            "root": ["BadRequestError", "not_supported"],
            "user": ["BadRequestError", "not_supported"],
            "directory": field("not_a_directory"),
            "unknown": ["NotFoundError", "not_found"],
            "shells": [1, 143],
            "after": 7,
        },
        "logs": {
            "whole": ["one", "\u{1b}[31mtwo"],
            "followed": ["one", "\u{1b}[31mtwo", "three"],
            "chromium": true,
            "process": field("not_allowed"),
            "missing": ["NotFoundError", "not_found"],
            "unknown": field("not_allowed"),
        },
        "requests": {
            "cookies": ["strict=1; SameSite=Strict", "script=no; HttpOnly"],
            "posted": ["POST", "{\"a\": \"ü\"}", "application/json", "1"],
            "sent back": ["script=no", "strict=1"],
            "agent": true,
            "head": [200, ""],
            "away": [302, ["/elsewhere"], ""],
            "missing": 404,
            "bytes": true,
            "too long": upstream,
            "silent": late,
            "file": field("not_allowed"),
            "below": ["http_status", "connect_error", "connect_error", "tls_error"],
            "private": upstream,
            "metadata": upstream,
            "raw": [200, "PUT", "/raw?a=1&b=2+3", "body", "2"],
            "raw kept back": [],
            "raw missing": "NotFoundError",
        },
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}

#[test]
fn every_call_of_the_python_client_for_processes_works_without_a_display() -> anyhow::Result<()> {
    every_call_works(true)
}

#[test]
fn every_call_of_the_python_client_for_processes_works_with_a_display() -> anyhow::Result<()> {
    every_call_works(false)
}

#[test]
fn the_process_example_prints_the_output_of_its_process() -> anyhow::Result<()> {
    let run = Clients::find()?.run(&Shared::get().server, "docs/examples/process.py", &[])?;
    assert_eq!(run.stdout, "0 ['casement', '/home/casement']\nstdout b'hello\\n'\nexit 143\nhello\n");
    Ok(())
}

#[test]
fn the_curl_example_gets_the_same_page_both_ways() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let run = Clients::find()?.run(server, "docs/examples/session_curl.py", &[&pages.url("/form")])?;
    assert_eq!(run.stdout, "200 True\n200 True\n");
    Ok(())
}

fn session(server: &Server) -> anyhow::Result<Session> {
    let answer = server.post("/browsers", &json!({ "headless": true, "timeout_seconds": 1800 }))?;
    Ok(Session(answer.json()?))
}

fn exec(server: &Server, session: &Session, line: &str, seconds: u32) -> anyhow::Result<(u16, Value)> {
    let path = format!("/browsers/{}/process/exec", session.id());
    let answer = server.post(&path, &json!({ "command": line, "timeout_sec": seconds }))?;
    Ok((answer.status, answer.json()?))
}

/// A program that uses all memory ends its session, and the response reports it: the call must not be repeated.
#[test]
fn a_program_that_takes_all_memory_gets_the_end_of_its_session_as_response() -> anyhow::Result<()> {
    let server = &Shared::with_small_sessions().server;
    let session = session(server)?;
    let (status, body) = exec(
        server,
        &session,
        "python3 -c 'a = []\nwhile True: a.append(bytes(1 << 24).replace(b\"\\0\", b\"x\"))'",
        110,
    )?;
    assert_eq!(
        (status, &body["code"], &body["inner_error"]["code"]),
        (500, &json!("internal"), &json!("browser_crashed")),
        "{body}"
    );
    ensure!(body["inner_error"]["message"].as_str().is_some_and(|why| why.contains("(oom)")), "{body}");
    until("the session has ended", TEST_TIMEOUT, || {
        (server.get(&format!("/browsers/{}", session.id())).ok()?.status == 404).then_some(())
    })
}

/// A session with a fork bomb continues, and so do other sessions.
#[test]
fn a_session_survives_fork_bombs_threads_and_open_files() -> anyhow::Result<()> {
    let server = &Shared::get().server;
    let session = session(server)?;
    for (line, seconds) in [
        ("b() { b | b & }; b; sleep 100", 5),
        ("while :; do sleep 100 & done", 5),
        (
            "python3 -c 'while True: import threading, time; threading.Thread(target=time.sleep, args=(100,)).start()'",
            5,
        ),
        ("python3 -c 'import os; [os.dup(0) for n in range(10**9)]'", 20),
    ] {
        let (status, body) = exec(server, &session, line, seconds)?;
        ensure!(status == 504 || body["exit_code"] != 0, "{line}: {status} {body}");
        let (status, body) = exec(server, &session, "echo alive", 110)?;
        ensure!(status == 200 && body["stdout_b64"] == "YWxpdmUK", "after {line}: {status} {body}");
        let shot = server.post(&format!("/browsers/{}/computer/screenshot", session.id()), &json!({}))?;
        ensure!(shot.status == 200, "after {line}: {}", shot.status);
    }
    ensure!(server.delete(&format!("/browsers/{}", session.id()))?.status == 204);
    Ok(())
}

#[test]
fn a_caller_that_disconnects_ends_its_program() -> anyhow::Result<()> {
    use std::io::Write as _;

    let server = &Shared::get().server;
    let session = session(server)?;
    let runs = |word: &str| server.processes().iter().any(|process| process.argv.join(" ") == word);
    let body = r#"{"command":"setsid sleep 98765 & exec sleep 98765","timeout_sec":600}"#;
    let mut caller = TcpStream::connect(server.address())?;
    let head = format!(
        "POST /browsers/{}/process/exec HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
        session.id(),
        server.address(),
        server.key(),
        body.len()
    );
    caller.write_all(head.as_bytes())?;
    until("the program runs", TEST_TIMEOUT, || runs("sleep 98765").then_some(()))?;
    drop(caller);
    until("the program has ended with its caller", TEST_TIMEOUT, || (!runs("sleep 98765")).then_some(()))?;
    ensure!(server.delete(&format!("/browsers/{}", session.id()))?.status == 204);
    Ok(())
}

/// The program writes 10^6 lines to a client that never reads. It still ends, and the server buffers little.
#[test]
fn a_million_lines_to_a_stalled_reader_take_bounded_memory() -> anyhow::Result<()> {
    use std::io::Write as _;

    // A server of its own, so that its memory shows only this test.
    let server = &Server::start(Options::default())?;
    let session = session(server)?;
    let base = format!("/browsers/{}/process", session.id());
    let pid = server_process(server)?.pid;
    let before = resident(pid)?;
    // The lines have 100 MB together.
    let lines = json!({ "command": "seq -f %099.0f 1000000" });
    let spawned = server.post(&format!("{base}/spawn"), &lines)?.json()?;
    let id = spawned["process_id"].as_str().context("no process_id")?;
    let mut reader = TcpStream::connect(server.address())?;
    let head = format!(
        "GET {base}/{id}/stdout/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address(),
        server.key()
    );
    reader.write_all(head.as_bytes())?;
    let ended = until("the end of a program that nobody reads", TEST_TIMEOUT, || {
        let status = server.get(&format!("{base}/{id}/status")).ok()?.json().ok()?;
        (status["state"] == "exited").then_some(status)
    })?;
    assert_eq!(ended["exit_code"], 0);
    // A later reader receives the end, and the number of missing bytes.
    let request = Request::new("GET", &format!("{base}/{id}/stdout/stream")).bearer(server.key());
    let answer = request.send(server.address())?;
    let text = String::from_utf8(answer.body.clone())?;
    ensure!(text.len() < 2 << 20, "{} bytes", text.len());
    ensure!(
        text.contains("\"dropped_bytes\":") && text.ends_with("{\"event\":\"exit\",\"exit_code\":0}\n\n"),
        "{text:.200}"
    );
    let after = resident(pid)?;
    ensure!(after < before + MAX_MEMORY_MIB, "the server: {before} MiB before, {after} MiB after");
    drop(reader);
    ensure!(server.delete(&format!("/browsers/{}", session.id()))?.status == 204);
    Ok(())
}
