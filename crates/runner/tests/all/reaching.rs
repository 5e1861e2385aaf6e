//! Tests that a program that ignores proxies reaches the API at its public address.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::calls::run;
use crate::support::{Fixture, INSIDE, LOCAL_PYTHON, RecordedLines, call};

/// Connects to the API without a proxy and returns the first line of the response.
const CONNECT_SCRIPT: &str = r#"
import os
import socket
import urllib.parse

import kernel

app = kernel.App("visitor")


@app.action("knock")
def knock(context):
    url = urllib.parse.urlsplit(os.environ["KERNEL_BASE_URL"])
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    with socket.create_connection((url.hostname, port), timeout=60) as connection:
        return connection.makefile().readline()
"#;

/// The public URLs, and the target of each for the egress proxy.
const ADDRESSES: [(&str, &str); 14] = [
    ("http://casement.test", "casement.test:80"),
    ("https://casement.test", "casement.test:443"),
    ("http://casement.test:8080", "casement.test:8080"),
    ("https://casement.test:8443", "casement.test:8443"),
    // The usual port of the egress proxy.
    ("http://casement.test:3128", "casement.test:3128"),
    ("http://localhost", "localhost:80"),
    ("http://192.0.2.7", "192.0.2.7:80"),
    ("https://192.0.2.7", "192.0.2.7:443"),
    ("http://192.0.2.7:8080", "192.0.2.7:8080"),
    ("http://[2001:db8::7]:8080", "[2001:db8::7]:8080"),
    ("https://[2001:db8::7]", "[2001:db8::7]:443"),
    ("http://127.0.0.5:8080", "127.0.0.5:8080"),
    ("http://[::1]:8080", "[::1]:8080"),
    // The URL of a server that listens on all addresses and has no public URL.
    ("http://0.0.0.0:8080", "0.0.0.0:8080"),
];

/// Starts a server that answers every connection with Casement's greeting.
async fn api_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"casement\n").await.unwrap();
            // Waits for the client to close first.
            stream.read_u8().await.ok();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_reaches_any_public_address_without_a_proxy() {
    let fixture = Fixture::new();
    let built = fixture.build(&[LOCAL_PYTHON, ("main.py", CONNECT_SCRIPT)], "main.py", &Arc::default()).await.unwrap();
    let api_server = api_server().await;
    for (url, authority) in ADDRESSES {
        fixture.gate.lead(authority, &api_server);
        let (runnable, lines) = (Fixture::runnable(&built, "main.py", url), Arc::new(RecordedLines::default()));
        let output = run(&fixture, call(&runnable, "visitor", "knock", None), &lines).await;
        assert_eq!(output.as_ref().ok(), Some(&json!("casement\n")), "{url}: {output:?} {}", lines.text());
        assert_eq!(fixture.gate.requests().pop().as_deref(), Some(authority), "{url}");
    }
    fixture.until_empty().await;
}

/// Runs the same test again as the user `nobody`, if this test runs as root.
#[test]
fn an_unprivileged_server_is_reached_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let open = std::fs::Permissions::from_mode(0o755);
    let dir = tempfile::Builder::new().permissions(open).tempdir_in("/tmp").unwrap();
    let copy = |from: PathBuf, name: &str| {
        let to = dir.path().join(name);
        // Copied by another program, because a file that this process had open for writing may be busy in the child of
        // another test.
        assert!(Command::new("cp").args([&from, &to]).status().unwrap().success());
        to
    };
    let tests = copy(std::env::current_exe().unwrap(), "tests");
    let inside = copy(env!("CARGO_BIN_EXE_casement-app-runner").into(), "inside");
    let ran = Command::new("/usr/bin/setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"])
        .arg(&tests)
        .args(["--exact", "reaching::a_program_reaches_any_public_address_without_a_proxy"])
        .env(INSIDE, inside)
        .current_dir("/")
        .output()
        .unwrap();
    let output = [&*ran.stdout, &ran.stderr].map(String::from_utf8_lossy).concat();
    assert!(ran.status.success() && output.contains("1 passed"), "{output}");
}
