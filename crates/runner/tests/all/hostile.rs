//! Tests of calls of hostile programs: each call ends, and no other call is affected.

use std::sync::Arc;

use casement_domain::deployment::{Line, StoredLines, keep};
use casement_domain::invocation::{CallLimits, RunFault, Runner as _};
use casement_domain::storage::StorageRoom;
use casement_runner::EgressPolicy;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::builds::{NODE, PYTHON};
use crate::calls::{python, run};
use crate::support::{Fixture, RecordedLines, TEST_TIMEOUT, call};

const NOWHERE: &str = "http://127.0.0.1:1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output_is_truncated_and_the_call_continues() {
    let (fixture, runnable) = python(NOWHERE).await;
    let lines = Arc::new(RecordedLines::default());
    assert_eq!(run(&fixture, call(&runnable, "trials", "lines", None), &lines).await.unwrap(), json!("written"));
    let stored: usize = lines.texts().iter().map(String::len).sum();
    assert!((5 << 20..=Line::MAX_BYTES_IN_ALL as usize + Line::MAX_BYTES).contains(&stored), "{stored}");
    let (taken, _) = keep(StoredLines::default(), &lines.lines(), &mut StorageRoom::unbounded());
    assert_eq!(taken.last().unwrap().text, "(more than 10 MiB; the rest is not kept)");
    let lines = Arc::new(RecordedLines::default());
    run(&fixture, call(&runnable, "trials", "long-line", None), &lines).await.unwrap();
    let texts = lines.texts();
    assert_eq!((texts[1].len(), texts[2].as_str()), (Line::MAX_BYTES, "after"));
    let failed = run(&fixture, call(&runnable, "trials", "much", None), &lines).await.unwrap_err();
    assert_eq!(
        (failed.fault, failed.reason.as_str()),
        (RunFault::Result, "the action returned more than 1048576 bytes of JSON")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_processes_and_disk_are_limited() {
    let (fixture, runnable) = python(NOWHERE).await;
    let lines = Arc::new(RecordedLines::default());
    let mut requests = call(&runnable, "trials", "eat", None);
    requests.limits =
        CallLimits { memory_bytes: 256 << 20, processes: 64, disk_bytes: 64 << 20, ..CallLimits::DEFAULT };
    let limits = requests.limits;
    let failed = run(&fixture, requests, &lines).await.unwrap_err();
    assert_eq!(failed.fault, RunFault::Died);
    assert!(failed.reason.contains("out of memory"), "{failed}");
    let mut requests = call(&runnable, "trials", "fork", None);
    requests.limits = limits;
    let forked = run(&fixture, requests, &lines).await.unwrap();
    assert!(forked["children"].as_u64().is_some_and(|children| children < 64), "{forked}");
    let mut requests = call(&runnable, "trials", "fill", None);
    requests.limits = limits;
    let filled = run(&fixture, requests, &lines).await.unwrap();
    assert!(filled[0] == "OSError" && filled[1].as_u64().is_some_and(|bytes| bytes <= 32 << 20), "{filled}");
    fixture.until_empty().await;
}

/// Simulates a host without cgroups, where nothing else limits the memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_watched_where_the_kernel_does_not_limit_it() {
    let fixture = Fixture::with(|config| config.watch_memory_bytes = Some(200 << 20));
    let lines = Arc::new(RecordedLines::default());
    let built = fixture.build(PYTHON, "main.py", &lines).await.unwrap_or_else(|failed| panic!("{failed}"));
    let runnable = Fixture::runnable(&built, "main.py", NOWHERE);
    let failed = run(&fixture, call(&runnable, "trials", "hold", None), &lines).await.unwrap_err();
    let why = "the process was out of memory before the action returned";
    assert_eq!((failed.fault, failed.reason.as_str()), (RunFault::Died, why));
    assert_eq!(run(&fixture, call(&runnable, "trials", "nothing", None), &lines).await.unwrap(), Value::Null);
    fixture.until_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_bomb_is_ended_completely() {
    let (fixture, runnable) = python(NOWHERE).await;
    let (mut requests, lines) = (call(&runnable, "trials", "bomb", None), Arc::new(RecordedLines::default()));
    requests.limits.processes = 40;
    let id = requests.invocation;
    let (ended, ()) = tokio::join!(fixture.pool.run(requests, lines.clone()), async {
        lines.until("forking").await;
        fixture.pool.end(id).await;
    });
    assert!(ended.is_err());
    assert_eq!(fixture.sandboxes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_call_end_with_it() {
    let (fixture, runnable) = python(NOWHERE).await;
    let answer = run(&fixture, call(&runnable, "trials", "daemon", None), &Arc::default()).await.unwrap();
    assert_eq!(answer, json!("left"));
    fixture.until_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_sees_nothing_of_the_server_or_of_other_calls() {
    let (fixture, runnable) = python(NOWHERE).await;
    let data = fixture.config.data_dir.to_string_lossy().into_owned();
    let secret = fixture.config.data_dir.join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let (other, waiting) = (call(&runnable, "trials", "wait", None), Arc::new(RecordedLines::default()));
    let (id, paths) = (other.invocation, json!([secret.to_str(), data, "/etc/shadow", "/root/.npmrc", "/proc/1/mem"]));
    let ((), _) = tokio::join!(
        async {
            waiting.until("waiting").await;
            let ask = async |action, payload: Option<Value>| {
                let payload = payload.map(|payload| payload.to_string());
                run(&fixture, call(&runnable, "trials", action, payload.as_deref()), &Arc::default()).await.unwrap()
            };
            for (path, found) in ask("look", Some(paths)).await.as_object().unwrap() {
                assert!(found.is_string(), "{path} was read");
            }
            // The processes of the sandbox: bubblewrap, the shell, the app runner and the program.
            for process in ask("environments", None).await.as_array().unwrap() {
                let text = process[1].as_str().unwrap();
                assert!(!text.contains("CARGO") && text.matches("KERNEL_API_KEY").count() <= 1, "{process}");
            }
            let places = json!([
                "/home/casement/deployment/app/main.py",
                "/home/casement/deployment/app/new",
                "/run/casement/new",
                "/run/casement/in/loader.py",
                "/usr/new",
                "/tmp/new",
                "/home/casement/new"
            ]);
            let written = ask("write", Some(places)).await;
            let allowed: Vec<&String> = written
                .as_object()
                .unwrap()
                .iter()
                .filter(|(_, how)| *how == "written")
                .map(|(path, _)| path)
                .collect();
            assert_eq!(allowed, ["/home/casement/new", "/tmp/new"]);
            fixture.pool.end(id).await;
        },
        fixture.pool.run(other, waiting.clone())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_reaches_the_api_and_nothing_else_of_this_machine() {
    let (api, other) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (at, elsewhere) = (api.local_addr().unwrap(), other.local_addr().unwrap());
    let serve = |listener: TcpListener, text: &'static str| async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.read_u8().await.ok();
            stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{text}").as_bytes()).await.ok();
        }
    };
    let serving = [tokio::spawn(serve(api, "the api")), tokio::spawn(serve(other, "another"))];
    let (fixture, runnable) = python(&format!("http://{at}")).await;
    let places = json!([["127.0.0.1", at.port()], ["127.0.0.1", elsewhere.port()], ["10.0.0.1", 80], ["1.1.1.1", 80]]);
    let ask = async |action, payload: &Value| {
        run(&fixture, call(&runnable, "trials", action, Some(&payload.to_string())), &Arc::default()).await.unwrap()
    };
    let answer = ask("connect", &places).await;
    let found = |host: &str, port: u16| answer[format!("{host}:{port}")].as_str().unwrap().to_owned();
    assert!(found("127.0.0.1", at.port()).ends_with("the api"), "{answer}");
    assert_eq!(found("127.0.0.1", elsewhere.port()), "ConnectionRefusedError");
    assert_eq!((found("10.0.0.1", 80), found("1.1.1.1", 80)), ("OSError".to_owned(), "OSError".to_owned()));
    assert!(!fixture.gate.requests().contains(&elsewhere.to_string()), "{:?}", fixture.gate.requests());
    // The proxy allows only the API too.
    let answer = ask("proxy", &places).await;
    let found = |host: &str, port: u16| answer[format!("{host}:{port}")].clone();
    assert_eq!(found("127.0.0.1", at.port()), json!(["200", "200"]));
    for (host, port) in [("127.0.0.1", elsewhere.port()), ("10.0.0.1", 80), ("1.1.1.1", 80)] {
        assert_eq!(found(host, port), json!(["403", "403"]), "{host}:{port}");
    }
    assert!(fixture.gate.requests().contains(&elsewhere.to_string()), "{:?}", fixture.gate.requests());
    let reaches = fixture.gate.reaches();
    assert_eq!(reaches.last(), Some(&EgressPolicy::Web(vec![at.to_string()])));
    serving.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_call_is_isolated_too() {
    let (fixture, lines) = (Fixture::new(), Arc::new(RecordedLines::default()));
    let built =
        fixture.build(NODE, "main.ts", &lines).await.unwrap_or_else(|failed| panic!("{failed}: {}", lines.text()));
    let runnable = Fixture::runnable(&built, "main.ts", NOWHERE);
    let secret = fixture.config.data_dir.join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let ask = async |action, payload: Value| {
        run(&fixture, call(&runnable, "trials", action, Some(&payload.to_string())), &Arc::default()).await
    };
    for path in [secret.to_str().unwrap(), "/etc/shadow"] {
        let failed = ask("look", json!({ "path": path })).await.unwrap_err();
        assert!(failed.reason.contains("ENOENT") || failed.reason.contains("EACCES"), "{path}: {failed}");
    }
    assert!(ask("look", json!({ "path": "/etc/hosts" })).await.unwrap().as_u64().is_some());
    for url in ["http://10.0.0.1/", "http://169.254.169.254/", "http://127.0.0.1:5432/"] {
        let failed = ask("fetch", json!({ "url": url })).await.unwrap_err();
        assert!(failed.reason.contains("fetch failed"), "{url}: {failed}");
    }
}

/// Each call has a separate disk and environment, even if a sandbox user is reused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_call_are_invisible_to_other_calls() {
    let (fixture, runnable) = python(NOWHERE).await;
    let ask = async |action, payload: Value| {
        run(&fixture, call(&runnable, "trials", action, Some(&payload.to_string())), &Arc::default()).await.unwrap()
    };
    let marks = json!(["/tmp/a-mark", "/home/casement/a-mark", "/dev/shm/a-mark", "/var/tmp/a-mark", "env:A_MARK"]);
    let own = ask("mark", marks.clone()).await;
    assert_eq!(own, json!([true, true, true, true, true]));
    for _ in 0..2 {
        assert_eq!(ask("marked", marks.clone()).await, json!([false, false, false, false, false]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unclaimed_sandbox_ends_itself() {
    let (fixture, runnable) = python(NOWHERE).await;
    let mut requests = call(&runnable, "trials", "wait", None);
    requests.deadline -= TEST_TIMEOUT;
    let failed = run(&fixture, requests, &Arc::default()).await.unwrap_err();
    assert_eq!(failed.fault, RunFault::Lost);
    fixture.until_empty().await;
}
