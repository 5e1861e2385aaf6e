//! Tests of sessions with a proxy: with the public client, after a restart of the server, and of the secrecy of
//! passwords.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use casement_test_support::program::{Cdp, Clients, Options, Pages, Server, Shared, Tinyproxy, until};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpSocket;

use super::host::{dump, server_process};
use super::internet::{Holder, certificate};

const TEST_TIMEOUT: Duration = Duration::from_secs(90);
const PASSWORD: &str = "hunter2-at-the-exit";
/// The password of the operator's gateway, which is in the environment of the server; [`PASSWORD`] must be in no
/// environment.
const GATEWAY_PASSWORD: &str = "hunter3-at-the-gateway";

/// Starts a server whose browsers may reach loopback, where these tests have their proxies.
fn server() -> anyhow::Result<Server> {
    Server::start(Options { egress_allow: vec!["127.0.0.0/8".to_owned()], ..Options::default() })
}

/// Returns one server for all tests that neither restart it nor list its proxies.
fn shared() -> &'static Server {
    &Shared::on_this_machine().server
}

#[test]
fn every_call_of_the_python_client_for_proxies_works_and_pages_use_them() -> anyhow::Result<()> {
    let (server, pages) = (server()?, Pages::start()?);

    let run = Clients::find()?.run(&server, "crates/app/tests/scripts/proxies.py", &[&pages.allow()])?;

    let down = "The session's proxy could not be used: no connection to it could be made.";
    let wrong = "The session's proxy could not be used: it does not accept the credentials.";
    let (form, green) = ("A form", "Green");
    let saw = json!({
        "made": ["available", "available", "unavailable", ["*.inner.example"], true],
        "shown": false,
        "listed": ["exit", "exit"],
        "renamed": "other",
        "checked": ["available", "unavailable"],
        "read through": "available",
        "refused": [
            ["BadRequestError", "invalid_input", "blocked"],
            ["BadRequestError", "not_supported"],
            ["NotFoundError", "not_found"],
            ["BadRequestError", "invalid_input", "reference_not_found"],
        ],
        "ambiguous": ["BadRequestError", "invalid_input", "ambiguous"],
        "through http": form,
        "asked http": true,
        "through socks": green,
        "asked socks": true,
        "down": down,
        "wrong": wrong,
        "straight": [null, form],
        "unavailable": "unavailable",
        "in use": ["ConflictError", "resource_in_use"],
        "through pool": [form, true],
        "left": 0,
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}

/// Starts a proxy that accepts any password, forwards every request to the pages, and records request lines and
/// credentials.
pub(super) fn exit(pages: &Pages) -> anyhow::Result<(SocketAddr, Arc<Mutex<Vec<String>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, to, requests) = (listener.local_addr()?, pages.allow(), Arc::<Mutex<Vec<String>>>::default());
    let heads = requests.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (to, heads) = (to.clone(), heads.clone());
            // The browser may close a connection early.
            thread::spawn(move || drop(lead(client, &to, &heads)));
        }
    });
    Ok((address, requests))
}

/// Reserves a port of this machine on which nothing listens.
pub(super) fn closed_port() -> anyhow::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.1:0".parse()?)?;
    Ok(socket)
}

fn lead(mut client: TcpStream, to: &str, heads: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let (mut reader, mut head) = (BufReader::new(client.try_clone()?), String::new());
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let by = head.lines().filter(|line| line.to_ascii_lowercase().starts_with("proxy-authorization:"));
    heads.lock().extend(head.lines().take(1).chain(by).map(str::to_owned));
    let path = head.split(' ').nth(1).and_then(|url| url.splitn(4, '/').nth(3)).unwrap_or_default();
    let mut origin = TcpStream::connect(to)?;
    write!(origin, "GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    std::io::copy(&mut origin, &mut client)?;
    client.shutdown(std::net::Shutdown::Both)
}

#[test]
fn a_session_uses_the_operators_gateway_with_the_requested_exit() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let (address, requests) = exit(&pages)?;
    let gateway = format!("http://me[-country-{{country}}][-city-{{city}}]:{GATEWAY_PASSWORD}@{address}");
    let variables = vec![("CASEMENT_RESIDENTIAL_UPSTREAM".to_owned(), gateway)];
    let server =
        Server::start(Options { egress_allow: vec!["127.0.0.0/8".to_owned()], variables, ..Options::default() })?;

    let refused = server.post("/proxies", &json!({ "type": "datacenter" }))?;
    assert_eq!((refused.status, refused.json()?["code"].as_str()), (400, Some("not_supported")));
    let config = json!({ "country": "fr", "city": "paris" });
    let made = server
        .post("/proxies", &json!({ "type": "residential", "name": "paris", "config": config }))?
        .expect(201)?
        .json()?;
    assert_eq!(
        (&made["status"], &made["config"]),
        (&json!("available"), &json!({ "country": "FR", "city": "paris" })),
        "{made}"
    );

    let session = server.create(&json!({ "headless": true, "proxy_id": "paris" }))?;
    requests.lock().clear();
    let mut cdp = Cdp::connect(&session.text("cdp_ws_url").replace("localhost", "127.0.0.1"))?;
    let page = cdp.page()?;
    cdp.open(&page, "http://only-there.example/form")?;
    assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
    let requests = requests.lock().join("\n");
    let reported = STANDARD.encode(format!("me-country-fr-city-paris:{GATEWAY_PASSWORD}"));
    assert!(requests.contains("only-there.example") && requests.contains(&reported), "{requests}");
    Ok(())
}

#[test]
fn a_session_keeps_its_proxy_over_a_restart_and_the_password_is_nowhere() -> anyhow::Result<()> {
    let (mut server, pages) = (server()?, Pages::start()?);
    let (address, requests) = exit(&pages)?;
    let config = json!({ "host": "127.0.0.1", "port": address.port(), "username": "me", "password": PASSWORD });
    let made = server.post("/proxies", &json!({ "type": "custom", "name": "exit", "config": config }))?;
    ensure!(made.status == 201, "{made:?}");
    let telemetry = json!({ "browser": { "network": { "enabled": true }, "page": { "enabled": true } } });
    let body = json!({ "headless": true, "proxy_id": "exit", "timeout_seconds": 600, "telemetry": telemetry });
    let session = server.create(&body)?;

    server.kill()?;
    server.restart()?;
    requests.lock().clear();
    let mut cdp = Cdp::connect(&session.text("cdp_ws_url").replace("localhost", "127.0.0.1"))?;
    let page = cdp.page()?;
    cdp.open(&page, "http://only-there.example/form")?;
    assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
    assert!(requests.lock().iter().any(|line| line.contains("only-there.example")));

    let encoded = "bWU6aHVudGVyMi1hdC10aGUtZXhpdA";
    for process in std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path()) {
        for file in ["cmdline", "environ"] {
            let Ok(bytes) = std::fs::read(process.join(file)) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(PASSWORD) && !text.contains(encoded), "{}", process.display());
        }
    }
    let core = std::fs::read_to_string(format!("/proc/{}/limits", server_process(&server)?.pid))?;
    let core = core.lines().find(|line| line.starts_with("Max core file size")).unwrap_or_default();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "of core dumps: {core}");
    assert!(!server.log().contains(PASSWORD) && !server.log().contains(encoded));
    let path = format!("/browsers/{}/telemetry/events", session.id());
    let reported = until("the page is told of", TEST_TIMEOUT, || {
        let reported = server.get(&path).ok()?.text();
        reported.contains("only-there.example").then_some(reported)
    })?;
    assert!(!reported.contains(PASSWORD) && !reported.contains(encoded), "{reported}");
    let dump = dump(&server)?;
    // The dump contains bytes as hexadecimal digits.
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(dump.contains("only-there.example"), "the events are in it");
    assert!(![PASSWORD, encoded, &hex(PASSWORD), &hex(encoded)].iter().any(|text| dump.contains(text)));

    let rotated = server.command(&["secrets", "rotate"]).output()?;
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    assert!(String::from_utf8_lossy(&rotated.stdout).contains("resealed: 2"), "{rotated:?}");
    let id = made.json()?["id"].as_str().unwrap_or_default().to_owned();
    let checked = server.post(&format!("/proxies/{id}/check"), &json!({}))?;
    assert_eq!(checked.json()?["status"], "available", "the running server opens what is sealed under the new key");
    server.delete(&format!("/browsers/{}", session.id()))?;
    Ok(())
}

/// A TLS site with persistent connections that responds with the letter that a proxy has sent before the handshake, or
/// `-`. Its page has a favicon, because a browser would otherwise request one at any time.
const SITE: &str = r#"
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print("up", listener.getsockname()[1], sep="\n")
def serve(plain):
    try:
        by = b"-" if plain.recv(1, socket.MSG_PEEK) == b"\x16" else plain.recv(1)
        with context.wrap_socket(plain, server_side=True) as stream:
            head = b""
            while part := stream.recv(65536):
                head += part
                if b"\r\n\r\n" not in head:
                    continue
                says = b"<link rel=icon href='data:,'>" if b" /page " in head else by
                head = b""
                lines = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: no-store\r\nContent-Length: %d\r\n\r\n%s"
                stream.sendall(lines % (len(says), says))
    except OSError:
        pass
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// Starts a proxy whose tunnels all connect to `site`. It sends a letter at the beginning of each.
fn marking(letter: u8, site: SocketAddr) -> anyhow::Result<SocketAddr> {
    let tunnel = move |client: TcpStream| -> std::io::Result<()> {
        let (mut reader, mut head) = (BufReader::new(client.try_clone()?), String::new());
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let mut origin = TcpStream::connect(site)?;
        origin.write_all(&[letter])?;
        (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let (mut back, mut to) = (origin.try_clone()?, client.try_clone()?);
        thread::spawn(move || {
            let copied = std::io::copy(&mut back, &mut to);
            copied.and(to.shutdown(std::net::Shutdown::Both))
        });
        std::io::copy(&mut reader, &mut origin)?;
        origin.shutdown(std::net::Shutdown::Both)
    };
    standing(move |client| drop(tunnel(client)))
}

/// Starts a server that serves each connection in a thread of its own. Returns its address.
fn standing(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(client));
        }
    });
    Ok(address)
}

#[test]
fn no_request_after_a_change_of_the_proxy_uses_the_old_one() -> anyhow::Result<()> {
    let (server, directory) = (shared(), tempfile::tempdir()?);
    let [key, certificate] = certificate(directory.path(), "tunnels.test")?;
    let mut site = Command::new("python3");
    let (_site, mut reason) = Holder::start(site.args(["-u", "-c", SITE]).args([certificate, key]))?;
    let mut port = String::new();
    reason.read_line(&mut port)?;
    let site: SocketAddr = format!("127.0.0.1:{}", port.trim()).parse()?;
    for (name, letter) in [("first", b'1'), ("second", b'2')] {
        let config = json!({ "host": "127.0.0.1", "port": marking(letter, site)?.port() });
        server.post("/proxies", &json!({ "type": "custom", "name": name, "config": config }))?.expect(201)?;
    }
    let session = server.create(&json!({ "headless": true, "proxy_id": "first", "timeout_seconds": 600 }))?;
    let path = format!("/browsers/{}", session.id());
    let go_through = |proxy: &str| server.send("PATCH", &path, Some(&json!({ "proxy_id": proxy })))?.expect(200);
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.call_in(Some(&page), "Security.setIgnoreCertificateErrors", &json!({ "ignore": true }))?;
    cdp.open(&page, &format!("https://{site}/page"))?;
    // Returns the letter of the proxy for each of twenty requests, six at a time on persistent connections.
    let one = "fetch('/').then(answer => answer.text())";
    let many = format!("Promise.all([...Array(20)].map(() => {one})).then(all => all.join(''))");
    let mut came_by = || cdp.evaluate(&page, &many);

    assert_eq!(came_by()?, "1".repeat(20));
    for _ in 0..5 {
        go_through("second")?;
        assert_eq!(came_by()?, "2".repeat(20));
        go_through("first")?;
        assert_eq!(came_by()?, "1".repeat(20));
    }
    go_through("")?;
    assert_eq!(came_by()?, "-".repeat(20), "straight");
    server.delete(&path)?.expect(204).map(drop)
}

/// The kind of a failure, the address of the proxy, and the message.
type Failing = (&'static str, SocketAddr, &'static str);

/// Starts proxies that fail in different ways. Nothing listens on the first address while the returned socket exists.
fn failing() -> anyhow::Result<([Failing; 6], TcpSocket)> {
    const DENIED: &[u8] = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n";
    let unused = closed_port()?;
    let answering = |answer: &'static [u8]| {
        standing(move |mut client| drop(client.read(&mut [0; 4096]).and_then(|_| client.write_all(answer))))
    };
    // Unread bytes turn the end of a connection into a reset.
    let resetting = standing(|mut client| drop(client.read(&mut [0; 1])))?;
    let silent = standing(|mut client| drop(client.read_to_end(&mut Vec::new())))?;
    let kinds = [
        ("unreachable", unused.local_addr()?, "no connection to it could be made"),
        ("closed", answering(b"")?, "it closed the connection without an answer"),
        ("reset", resetting, "it reset the connection"),
        ("protocol", answering(b"SSH-2.0-x\r\n")?, "its answer is not in the proxy's protocol"),
        ("authentication", answering(DENIED)?, "it does not accept the credentials"),
        ("timeout", silent, "it did not answer in time"),
    ];
    Ok((kinds, unused))
}

#[test]
fn each_https_proxy_failure_is_in_the_response_the_telemetry_and_the_check() -> anyhow::Result<()> {
    let (server, (failing, _unused)) = (shared(), failing()?);
    let telemetry = json!({ "browser": { "network": { "enabled": true } } });
    let session = server.create(&json!({ "headless": true, "telemetry": telemetry, "timeout_seconds": 900 }))?;
    let path = format!("/browsers/{}", session.id());
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    for (kind, address, why) in failing {
        let (host, port) = (address.ip().to_string(), address.port());
        let config = json!({ "host": host, "port": port, "username": "me", "password": "hunter2" });
        let made =
            server.post("/proxies", &json!({ "type": "custom", "name": kind, "config": config }))?.expect(201)?;
        assert_eq!((&made.json()?["status"], &made.json()?["failure"]), (&json!("unavailable"), &json!(kind)));
        server.send("PATCH", &path, Some(&json!({ "proxy_id": kind })))?.expect(200)?;

        let url = format!("https://{kind}.example/");
        for scheme in ["https", "http"] {
            let call = json!({ "url": url.replace("https", scheme) });
            // A plain request has no timeout of its own.
            if (kind, scheme) == ("timeout", "http") {
                continue;
            }
            let refused = server.post(&format!("{path}/curl"), &call)?.expect(502)?.json()?;
            assert_eq!(
                (&refused["code"], &refused["inner_error"]["code"]),
                (&json!("upstream_error"), &json!("proxy_error"))
            );
            let reason = refused["message"].as_str().unwrap_or_default();
            assert!(
                reason.contains(&format!("the session's proxy could not be used: {why}")),
                "{kind}, {scheme}: {reason}"
            );
        }
        if kind != "timeout" {
            let raw = server.get(&format!("/vm/{}/curl/raw?url={url}", session.id()))?.expect(502)?.json()?;
            assert_eq!(raw["inner_error"]["code"], "proxy_error", "{kind}: {raw}");
        }
        cdp.call_in(Some(&page), "Page.navigate", &json!({ "url": url }))?;
        for (event, place) in [("network_loading_failed", "url"), ("network_proxy_failed", "error_code")] {
            let reported = until(&format!("{event} for {kind}"), TEST_TIMEOUT, || {
                let events =
                    server.get(&format!("{path}/telemetry/events?category=network&limit=100")).ok()?.json().ok()?;
                let mut events = events.as_array()?.iter().map(|one| one["event"].clone());
                events.find(|one| one["type"] == event && one["data"]["proxy_failure"] == kind)
            })?;
            let reported = &reported["data"][place];
            assert_eq!(reported, &if place == "url" { json!(url) } else { json!("proxy_error") }, "{kind}");
        }
    }
    server.delete(&path)?.expect(204).map(drop)
}

#[test]
fn the_failure_of_a_proxy_is_in_the_telemetry_of_its_session() -> anyhow::Result<()> {
    let server = shared();
    let closed = closed_port()?;
    let config = json!({ "host": "127.0.0.1", "port": closed.local_addr()?.port() });
    server.post("/proxies", &json!({ "type": "custom", "name": "down", "config": config }))?.expect(201)?;
    let telemetry = json!({ "browser": { "network": { "enabled": true } } });
    let session = server.create(&json!({ "headless": true, "proxy_id": "down", "telemetry": telemetry }))?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.call_in(Some(&page), "Page.navigate", &json!({ "url": "https://only-there.example/" }))?;
    let path = format!("/browsers/{}/telemetry/events?category=network&limit=100", session.id());
    let reported = until("the failed proxy is told of", TEST_TIMEOUT, || {
        let events = server.get(&path).ok()?.json().ok()?;
        events.as_array()?.iter().map(|one| &one["event"]).find(|one| one["type"] == "network_proxy_failed").cloned()
    })?;
    assert_eq!((&reported["category"], &reported["data"]["error_code"]), (&json!("network"), &json!("proxy_error")));
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn the_proxy_example_goes_through_a_third_party_proxy_and_directly_again() -> anyhow::Result<()> {
    let (server, pages) = (shared(), Pages::start()?);
    let proxy = Tinyproxy::start("me", "hunter2")?;
    let (host, port) = (proxy.address.ip().to_string(), proxy.address.port().to_string());

    let arguments = [&host, &port, "me", "hunter2", &pages.url("/form")];
    let run = Clients::find()?.run(server, "docs/examples/proxies.py", &arguments)?;

    assert_eq!(run.stdout, "the proxy is available\nthrough it: 200\nstraight: 200\n");
    assert_eq!(pages.requests(), ["GET /form", "GET /form"]);
    let log = proxy.log();
    assert_eq!(log.matches(&*format!("GET {} HTTP/1.1", pages.url("/form"))).count(), 1, "{log}");
    Ok(())
}
