//! How a program reaches the API by its public address, whatever that is, from what knows of no proxy.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::calls::run;
use crate::support::{Heard, INSIDE, LOCAL_PYTHON, Place, call};

/// Opens a connection past every proxy, and says by which address it came there and what it was told.
const KNOCK: &str = r#"
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

/// What is asked for, and what it is asked for with.
const ADDRESSES: [(&str, &str); 14] = [
    ("http://casement.test", "casement.test:80"),
    ("https://casement.test", "casement.test:443"),
    ("http://casement.test:8080", "casement.test:8080"),
    ("https://casement.test:8443", "casement.test:8443"),
    // Where the way out would stand otherwise.
    ("http://casement.test:3128", "casement.test:3128"),
    ("http://localhost", "localhost:80"),
    ("http://192.0.2.7", "192.0.2.7:80"),
    ("https://192.0.2.7", "192.0.2.7:443"),
    ("http://192.0.2.7:8080", "192.0.2.7:8080"),
    ("http://[2001:db8::7]:8080", "[2001:db8::7]:8080"),
    ("https://[2001:db8::7]", "[2001:db8::7]:443"),
    ("http://127.0.0.5:8080", "127.0.0.5:8080"),
    ("http://[::1]:8080", "[::1]:8080"),
    // What a server says that listens at all addresses and was told of none.
    ("http://0.0.0.0:8080", "0.0.0.0:8080"),
];

/// Says to everybody that he has come to Casement.
async fn casement() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"casement\n").await.unwrap();
            // A look that it may close first.
            stream.read_u8().await.ok();
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_comes_to_the_public_address_whatever_it_is_without_a_proxy() {
    let place = Place::new();
    let built = place.build(&[LOCAL_PYTHON, ("main.py", KNOCK)], "main.py", &Arc::default()).await.unwrap();
    let casement = casement().await;
    for (url, authority) in ADDRESSES {
        place.gate.lead(authority, &casement);
        let (runnable, lines) = (Place::runnable(&built, "main.py", url), Arc::new(Heard::default()));
        let said = run(&place, call(&runnable, "visitor", "knock", None), &lines).await;
        assert_eq!(said.as_ref().ok(), Some(&json!("casement\n")), "{url}: {said:?} {}", lines.text());
        assert_eq!(place.gate.asked().pop().as_deref(), Some(authority), "{url}");
    }
    place.until_empty().await;
}

/// Runs the same again as nobody, where this runs as root.
#[test]
fn it_does_so_where_the_server_is_an_ordinary_user_s() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let open = std::fs::Permissions::from_mode(0o755);
    let dir = tempfile::Builder::new().permissions(open).tempdir_in("/tmp").unwrap();
    let copy = |from: PathBuf, name: &str| {
        let to = dir.path().join(name);
        // A file that this process itself had open for writing may be busy: another test's child may still hold it.
        assert!(Command::new("cp").args([&from, &to]).status().unwrap().success());
        to
    };
    let tests = copy(std::env::current_exe().unwrap(), "tests");
    let inside = copy(env!("CARGO_BIN_EXE_casement-runner-inside").into(), "inside");
    let ran = Command::new("/usr/bin/setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"])
        .arg(&tests)
        .args(["--exact", "reaching::a_program_comes_to_the_public_address_whatever_it_is_without_a_proxy"])
        .env(INSIDE, inside)
        .current_dir("/")
        .output()
        .unwrap();
    let said = [&*ran.stdout, &ran.stderr].map(String::from_utf8_lossy).concat();
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}
