//! The routes `…/process`, `…/logs` and `…/curl`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use casement_domain::{
    ProcessId,
    curl::{CurlAnswer, CurlRequest},
    process::{
        ExecutionResult, Output, OutputEvents, OutputStream, ProcessState, ProcessStatus, Signal, Spawned, TerminalSize,
    },
    session_log::{FollowLog, LogLine, LogLines, LogSource},
    session_operation::{ByteStream, OperationError, UpstreamFault},
    testing::{NOON, browser_id, session_id},
};
use casement_http::Permission;
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Key, Ports, Reply, TestApi, request};

fn id(n: u128) -> ProcessId {
    ProcessId::from_ulid(ulid::Ulid::from_parts(8, n))
}

fn path(tail: &str) -> String {
    format!("/browsers/{}/{tail}", session_id(1))
}

/// Decodes the body of a chunked response.
fn unchunked(reply: &Reply) -> String {
    let (mut rest, mut whole) = (reply.text(), String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole += &after[..length];
        rest = after[length..].strip_prefix("\r\n").unwrap().to_owned();
    }
    whole
}

fn bytes(parts: &'static [&'static str]) -> ByteStream {
    stream::iter(parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes())))).boxed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_as_requested_and_its_output_is_returned() {
    let mut ports = Ports::of_first_session();
    ports.processes.expect_exec().times(1).returning(|browser, exec| {
        assert_eq!(browser, browser_id(1));
        assert_eq!((exec.program.command.as_str(), exec.within), ("ls", Duration::from_secs(5)));
        assert_eq!(exec.program.args.as_deref(), Some(["-l".to_owned()].as_slice()));
        Ok(ExecutionResult {
            exit_code: 2,
            duration_ms: 12,
            stdout_bytes: 4,
            stderr_bytes: 3,
            stdout_dropped: 0,
            stderr_dropped: 9,
            output: bytes(&["ou", "t1e", "rr"]),
        })
    });
    let api = TestApi::start(ports);
    let body = json!({ "command": "ls", "args": ["-l"], "timeout_sec": 5, "cwd": null, "as_root": false });
    let reply = api.post(&path("process/exec"), body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let wrote = json!({
        "exit_code": 2, "duration_ms": 12, "stdout_b64": "b3V0MQ==", "stderr_b64": "ZXJy", "stderr_dropped_bytes": 9,
    });
    assert_eq!(serde_json::from_str::<serde_json::Value>(&unchunked(&reply)).unwrap(), wrote);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_ends_before_its_client_times_out() {
    let mut ports = Ports::of_first_session();
    ports
        .processes
        .expect_exec()
        .times(3)
        .returning(|_, exec| Err(OperationError::Timeout { seconds: exec.within.as_secs().try_into().unwrap() }));
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", super::support::Key::Organization.text());
    for (header, seconds) in
        [("X-Stainless-Read-Timeout: 10", 8), ("X-Stainless-Timeout: 90", 88), ("X-Stainless-Lang: js", 58)]
    {
        let headers = [key.as_str(), header];
        let body = r#"{"command":"sleep 600","timeout_sec":600}"#;
        let reply = api.request("POST", &path("process/exec"), &headers, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (504, "timeout"));
        assert!(reply.json()["message"].as_str().unwrap().contains(&format!("{seconds} s")), "{header}: {reply}");
        assert_eq!(reply.header("x-should-retry"), Some("false"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_programs_are_refused_with_the_field() {
    let api = TestApi::start(Ports::of_first_session());
    for (body, detail) in [
        (json!({}), "required: command: is required"),
        (json!({ "command": "a\u{0}" }), "invalid_format: command: may not hold NUL"),
        (json!({ "command": "a", "cwd": "x" }), "invalid_format: cwd: must be an absolute path"),
        (json!({ "command": "a", "timeout_sec": 0 }), "out_of_range: timeout_sec: must be from 1 to 3600"),
        (
            json!({ "command": "a", "env": { "": "x" } }),
            "invalid_format: env: a name must not be empty nor hold = or NUL",
        ),
    ] {
        let reply = api.post(&path("process/exec"), body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"));
        assert_eq!(reply.details(), [detail]);
    }
    for body in [json!({ "command": "a", "as_root": true }), json!({ "command": "a", "as_user": "root" })] {
        assert_eq!(api.post(&path("process/spawn"), body).await.code(), "not_supported");
    }
    assert_eq!(api.get(&path("process/nothing/status")).await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_started_inspected_written_to_and_killed() {
    let mut ports = Ports::of_first_session();
    ports.processes.expect_spawn().times(1).returning(|_, spawn| {
        assert_eq!(spawn.terminal, Some(TerminalSize { cols: 100, rows: 24 }));
        Ok(Spawned { id: id(1), pid: 42, started_at: NOON })
    });
    let states = [ProcessState::Running, ProcessState::Exited(143)];
    let mut states = states.into_iter();
    ports
        .processes
        .expect_status()
        .times(2)
        .returning(move |_, _| Ok(ProcessStatus { state: states.next().unwrap(), cpu_pct: 12.5, mem_bytes: 4096 }));
    ports.processes.expect_write().times(1).returning(|_, which, data, is_last| {
        assert_eq!((which, data.as_ref(), is_last), (id(1), b"hi".as_slice(), true));
        Ok(2)
    });
    ports.processes.expect_signal().times(1).returning(|_, _, signal| {
        assert_eq!(signal, Signal::Hup);
        Ok(())
    });
    ports.processes.expect_resize().times(1).returning(|_, _, _| Err(OperationError::State("no terminal".to_owned())));
    let api = TestApi::start(ports);
    let spawned = api.post(&path("process/spawn"), json!({ "command": "sh", "allocate_tty": true, "cols": 100 })).await;
    let status = path(&format!("process/{}/status", id(1)));
    assert_eq!((spawned.status, spawned.header("location")), (201, Some(status.as_str())));
    let record = json!({ "process_id": id(1).to_string(), "pid": 42, "started_at": "2026-12-01T12:00:00.000000Z" });
    assert_eq!(spawned.json(), record);

    let of = |tail: &str| path(&format!("process/{}/{tail}", id(1)));
    assert_eq!(api.get(&status).await.json(), json!({ "state": "running", "cpu_pct": 12.5, "mem_bytes": 4096 }));
    let exited = json!({ "state": "exited", "exit_code": 143, "cpu_pct": 12.5, "mem_bytes": 4096 });
    assert_eq!(api.get(&status).await.json(), exited);
    let written = api.post(&of("stdin"), json!({ "data_b64": "aGk=", "eof": true })).await;
    assert_eq!(written.json(), json!({ "written_bytes": 2 }));
    assert_eq!(api.post(&of("kill"), json!({ "signal": "HUP" })).await.json(), json!({ "ok": true }));
    assert_eq!(api.post(&of("kill"), json!({ "signal": "STOP" })).await.details().len(), 1);
    let resized = api.post(&of("resize"), json!({ "cols": 1, "rows": 1 })).await;
    assert_eq!((resized.status, resized.code().as_str()), (409, "invalid_state"));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_streamed_until_the_end_of_its_program() {
    let mut ports = Ports::of_first_session();
    ports.processes.expect_output().times(2).returning(|_, _| {
        let data = |stream, text: &'static str, dropped| {
            Ok(Output::Data { stream, data: Bytes::from_static(text.as_bytes()), dropped })
        };
        let events: OutputEvents = stream::iter([
            data(OutputStream::Stdout, "a\n", 7),
            data(OutputStream::Stderr, "b", 0),
            Ok(Output::Exit { exit_code: -1 }),
        ])
        .boxed();
        Ok(events)
    });
    let api = TestApi::start(ports);
    let token = api.token(session_id(1), Permission::Drive);
    let tail = format!("process/{}/stdout/stream", id(1));
    let direct = api.request("GET", &format!("/vm/{}/{tail}?jwt={token}", session_id(1)), &[], "").await;
    for reply in [api.get(&path(&tail)).await, direct] {
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
        let for_proxies = (reply.header("cache-control"), reply.header("x-accel-buffering"));
        assert_eq!(for_proxies, (Some("no-cache"), Some("no")), "events are kept and collected by nobody");
        let expected = "data: {\"stream\":\"stdout\",\"data_b64\":\"YQo=\",\"dropped_bytes\":7}\n\n\
                        data: {\"stream\":\"stderr\",\"data_b64\":\"Yg==\"}\n\n\
                        data: {\"event\":\"exit\",\"exit_code\":-1}\n\n";
        assert_eq!(unchunked(&reply), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_streamed_as_text_whatever_it_contains() {
    let mut ports = Ports::of_first_session();
    ports.session_logs.expect_follow().times(2).returning(|_, log| {
        let path = LogSource::Path("/tmp/ä b".to_owned());
        assert!(
            [FollowLog { source: path, follow: false }, FollowLog { source: LogSource::Agent, follow: true }]
                .contains(&log)
        );
        let line = LogLine { read_at: NOON, message: "\u{1b}[31m\"\r<script>".to_owned() };
        let lines: LogLines = stream::iter([Ok(line)]).boxed();
        Ok(lines)
    });
    let api = TestApi::start(ports);
    let expected = "data: {\"event\":\"log\",\"timestamp\":\"2026-12-01T12:00:00.000000Z\",\
                    \"message\":\"\\u001b[31m\\\"\\r<script>\"}\n\n";
    let file = api.get(&path("logs/stream?source=path&path=%2Ftmp%2F%C3%A4+b&follow=false")).await;
    assert_eq!((file.status, unchunked(&file).as_str()), (200, expected));
    let agent = api.get(&path("logs/stream?source=supervisor&supervisor_process=agent")).await;
    assert_eq!(unchunked(&agent), expected);
    for (query, detail) in [
        ("", "required: source: is required"),
        ("?source=path", "required: path: is required"),
        ("?source=path&path=log", "invalid_format: path: must be an absolute path without NUL"),
        (
            "?source=supervisor&supervisor_process=x",
            "not_allowed: supervisor_process: must be chromium, display or agent",
        ),
    ] {
        assert_eq!(api.get(&path(&format!("logs/stream{query}"))).await.details(), [detail]);
    }
}

fn answered(status: u16, headers: &[(&str, &str)], body: ByteStream) -> CurlAnswer {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    CurlAnswer { status, headers, body }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_sent_as_requested_and_its_response_returned() {
    let mut ports = Ports::of_first_session();
    ports.curl.expect_send().times(2).returning(|_, request| {
        let CurlRequest { url, method, headers, body, within } = request;
        assert_eq!((url.as_str(), within.as_millis()), ("https://site.test/a", 1500));
        assert_eq!((method.as_str(), body.as_deref()), ("POST", Some(b"x".as_slice())));
        assert_eq!(headers, [("X-A".to_owned(), "1".to_owned())]);
        let headers = [("Set-Cookie", "a=1"), ("set-cookie", "b=2"), ("Content-Type", "x/y")];
        Ok(answered(404, &headers, bytes(&["no\u{0}", "thing"])))
    });
    let api = TestApi::start(ports);
    let mut body = json!({
        "url": "https://site.test/a", "method": "POST", "headers": { "X-A": "1" }, "body": "x", "timeout_ms": 1500,
    });
    let reply = api.post(&path("curl"), &body).await;
    let mut result = reply.json();
    assert!(result["duration_ms"].take().is_u64());
    let headers = json!({ "set-cookie": ["a=1", "b=2"], "content-type": ["x/y"] });
    assert_eq!(result, json!({ "status": 404, "headers": headers, "body": "no\u{0}thing", "duration_ms": null }));
    body["response_encoding"] = json!("base64");
    assert_eq!(api.post(&path("curl"), &body).await.json()["body"], "bm8AdGhpbmc=");
    body["response_encoding"] = json!("latin1");
    assert_eq!(
        api.post(&path("curl"), &body).await.details(),
        ["not_allowed: response_encoding: must be utf8 or base64"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_target_differ_from_failures_of_the_server() {
    for (refusal, status, code) in [
        (
            OperationError::Upstream { fault: UpstreamFault::Dns, message: "net::ERR_NAME_NOT_RESOLVED".to_owned() },
            502,
            "upstream_error",
        ),
        (OperationError::Timeout { seconds: 1 }, 504, "timeout"),
        (OperationError::Limit("too many".to_owned()), 429, "limit_exceeded"),
    ] {
        let mut ports = Ports::of_first_session();
        let mut refusal = Some(refusal);
        ports.curl.expect_send().times(1).returning(move |_, _| Err(refusal.take().unwrap()));
        let reply = TestApi::start(ports).post(&path("curl"), json!({ "url": "http://a/" })).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code));
    }
    let mut ports = Ports::of_first_session();
    ports.curl.expect_send().times(1).returning(|_, _| {
        let part = || Ok(Bytes::from(vec![b'x'; 1 << 20]));
        Ok(answered(200, &[], stream::iter((0..11).map(move |_| part())).boxed()))
    });
    let reply = TestApi::start(ports).post(&path("curl"), json!({ "url": "http://a/" })).await;
    assert_eq!((reply.status, reply.code().as_str()), (502, "upstream_error"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_request_is_forwarded_and_its_response_returned() {
    let mut ports = Ports::of_first_session();
    ports.curl.expect_send().times(1).returning(|_, request| {
        assert_eq!((request.url.as_str(), request.method.as_str()), ("http://site.test/?q=1&b=2", "PROPFIND"));
        let mut headers = request.headers;
        headers.sort_unstable();
        let passed = [("content-type", "application/json"), ("x-mine", "1")];
        assert_eq!(headers, passed.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(request.body.as_deref(), Some(b"body".as_slice()));
        let headers = [
            ("Content-Type", "text/html"),
            ("Content-Length", "99"),
            ("X-Theirs", "a"),
            ("Set-Cookie", "a=1"),
            ("Cache-Control", "max-age=1"),
        ];
        Ok(answered(503, &headers, bytes(&["<script>"])))
    });
    let api = TestApi::start(ports);
    let token = api.token(session_id(1), Permission::Drive);
    let to =
        format!("/vm/{}/curl/raw?url=http%3A%2F%2Fsite.test%2F%3Fq%3D1&jwt={token}&b=2&timeout_ms=9000", session_id(1));
    let headers = [
        "X-Mine: 1",
        "X-Stainless-Lang: python",
        "User-Agent: Kernel/Python 0.80.0",
        "Cookie: affinity=of-a-load-balancer",
        "X-Forwarded-For: 10.0.0.1",
        "Sec-Fetch-Mode: cors",
    ];
    let reply = api.request("PROPFIND", &to, &headers, "body").await;
    assert_eq!((reply.status, unchunked(&reply).as_str()), (503, "<script>"));
    for (name, value) in [
        ("content-type", "text/html"),
        ("x-target-x-theirs", "a"),
        ("x-target-set-cookie", "a=1"),
        ("x-target-cache-control", "max-age=1"),
        ("cache-control", "no-store"),
        ("x-should-retry", "false"),
        ("content-disposition", "attachment"),
        ("content-security-policy", "default-src 'none'; sandbox; frame-ancestors 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    assert_eq!((reply.header("set-cookie"), reply.header("x-theirs")), (None, None));
    assert_ne!(reply.header("content-length"), Some("99"));
    let view = api.token(session_id(1), Permission::View);
    let to = format!("/vm/{}/curl/raw?url=http://a/", session_id(1));
    assert_eq!(api.request("GET", &format!("{to}&jwt={view}"), &[], "").await.status, 403);
    assert_eq!(api.request("GET", &to, &[], "").await.status, 401);
    assert_eq!(api.request("GET", &format!("/vm/{}/curl/raw?jwt={token}", session_id(1)), &[], "").await.status, 400);
    let reply = api.request("GET", &format!("{to}&jwt={token}&timeout_ms=0"), &[], "").await;
    assert_eq!(reply.details(), ["out_of_range: timeout_ms: must be from 1 to 300000"]);
}

/// Tests requests of Chromium as a person's browser, from every origin; of browsers that do not state the origin; and
/// with the cookie of the web interface.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_caused_by_a_browsers_page_is_refused_and_not_sent() {
    let mut ports = Ports::of_first_session();
    ports.curl.expect_send().never();
    let api = TestApi::start(ports);
    let token = api.token(session_id(1), Permission::Drive);
    let to = format!("/vm/{}/curl/raw?url=http://a/&jwt={token}", session_id(1));
    let own = "Origin: https://casement.test";
    for headers in [
        &["Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"][..],
        &["Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"],
        &["Sec-Fetch-Mode: no-cors"],
        &["Sec-Fetch-Dest: image"],
        &["Service-Worker: script"],
        &["Origin: null"],
        &[own],
        &["Upgrade-Insecure-Requests: 1"],
        &["Cookie: other=1; casement_ui=secret"],
        &["Cookie: __Host-casement_ui=secret"],
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            let reply = api.request(method, &to, headers, "").await;
            assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{method} {headers:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_informational_status_is_reported_as_the_targets_failure() {
    for status in [100, 101, 103, 199, 0] {
        let mut ports = Ports::of_first_session();
        ports.curl.expect_send().times(2).returning(move |_, _| Ok(answered(status, &[], bytes(&["stray"]))));
        let api = TestApi::start(ports);
        let token = api.token(session_id(1), Permission::Drive);
        let to = format!("/vm/{}/curl/raw?url=http://a/&jwt={token}", session_id(1));
        let raw = api.request("GET", &to, &[], "").await;
        let json = api.post(&path("curl"), json!({ "url": "http://a/" })).await;
        for reply in [raw, json] {
            let inner = reply.json()["inner_error"]["code"].clone();
            assert_eq!(
                (reply.status, reply.code().as_str(), inner),
                (502, "upstream_error", json!("http_status")),
                "{status}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_aborts_session_operations_and_says_they_may_have_been_done() {
    let mut ports = Ports::of_first_session();
    let requested = Arc::new(AtomicBool::new(false));
    let requested_flag = requested.clone();
    ports.curl.expect_send().returning(move |_, _| {
        requested_flag.store(true, Ordering::SeqCst);
        Ok(answered(200, &[], stream::pending().boxed()))
    });
    let api = TestApi::start(ports);
    let key = format!("Authorization: Bearer {}", Key::Organization.text());
    let mut client = api.connect().await;
    let body = json!({ "url": "http://a/", "timeout_ms": 300_000 }).to_string();
    client.write_all(&request("POST", &path("curl"), &[&key], &body)).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !requested.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "the port was not called");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let drained = tokio::spawn(api.server.drain());
    let mut reply = Vec::new();
    tokio::time::timeout(Duration::from_secs(60), client.read_to_end(&mut reply)).await.expect("an answer").unwrap();
    let reply = Reply::parse(&reply);
    assert_eq!((reply.status, reply.code().as_str()), (500, "internal"));
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    tokio::time::timeout(Duration::from_secs(60), drained).await.expect("done").unwrap().unwrap();
}
