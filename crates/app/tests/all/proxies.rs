//! Sessions that go through a proxy: with the public client, after a restart of the server, and what nobody may read.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::net::TcpSocket;

use super::host::{dump, server_process};
use super::internet::{Holder, certificate};
use super::support::{Cdp, Clients, Options, Pages, Server, Tinyproxy, until};

const SOON: Duration = Duration::from_secs(90);
const PASSWORD: &str = "hunter2-at-the-exit";
/// The operator's, which stands in a server's environment, where the other must not stand in anyone's.
const GATEWAY_PASSWORD: &str = "hunter3-at-the-gateway";

/// A server whose browsers may reach loopback, where these tests have their proxies.
fn server() -> anyhow::Result<Server> {
    Server::start(Options { egress_allow: vec!["127.0.0.0/8".to_owned()], ..Options::default() })
}

#[test]
fn every_call_of_the_python_client_for_proxies_works_and_pages_go_through_them() -> anyhow::Result<()> {
    let (server, pages) = (server()?, Pages::start()?);

    let run = Clients::find()?.run(&server, "crates/app/tests/scripts/proxies.py", &[&pages.allow()])?;

    let failed = "The session's proxy could not be used.";
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
        "down": failed,
        "wrong": failed,
        "straight": [null, form],
        "unavailable": "unavailable",
        "in use": ["ConflictError", "resource_in_use"],
        "through pool": [form, true],
        "left": 0,
    });
    assert_eq!(run.json()?, saw);
    Ok(())
}

/// A proxy that takes any password and leads everywhere to the pages, and says what it was asked for and by whom.
pub(super) fn exit(pages: &Pages) -> anyhow::Result<(SocketAddr, Arc<Mutex<Vec<String>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, to, asked) = (listener.local_addr()?, pages.allow(), Arc::<Mutex<Vec<String>>>::default());
    let heads = asked.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (to, heads) = (to.clone(), heads.clone());
            // One that breaks off is the browser's business.
            thread::spawn(move || drop(lead(client, &to, &heads)));
        }
    });
    Ok((address, asked))
}

/// A port of this machine at which nobody listens, and which nobody else gets as long as this lives.
pub(super) fn nobody_listens() -> anyhow::Result<TcpSocket> {
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
    heads.lock().unwrap().extend(head.lines().take(1).chain(by).map(str::to_owned));
    let path = head.split(' ').nth(1).and_then(|url| url.splitn(4, '/').nth(3)).unwrap_or_default();
    let mut origin = TcpStream::connect(to)?;
    write!(origin, "GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    std::io::copy(&mut origin, &mut client)?;
    client.shutdown(std::net::Shutdown::Both)
}

#[test]
fn a_session_leaves_through_the_operators_gateway_which_is_told_where_to_come_out() -> anyhow::Result<()> {
    let pages = Pages::start()?;
    let (address, asked) = exit(&pages)?;
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
    asked.lock().unwrap().clear();
    let mut cdp = Cdp::connect(&session.text("cdp_ws_url").replace("localhost", "127.0.0.1"))?;
    let page = cdp.page()?;
    cdp.open(&page, "http://only-there.example/form")?;
    assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
    let asked = asked.lock().unwrap().join("\n");
    let told = STANDARD.encode(format!("me-country-fr-city-paris:{GATEWAY_PASSWORD}"));
    assert!(asked.contains("only-there.example") && asked.contains(&told), "{asked}");
    Ok(())
}

#[test]
fn c7_a_session_keeps_its_proxy_over_a_restart_of_the_server_and_its_password_is_nowhere() -> anyhow::Result<()> {
    let (mut server, pages) = (server()?, Pages::start()?);
    let (address, asked) = exit(&pages)?;
    let config = json!({ "host": "127.0.0.1", "port": address.port(), "username": "me", "password": PASSWORD });
    let made = server.post("/proxies", &json!({ "type": "custom", "name": "exit", "config": config }))?;
    ensure!(made.status == 201, "{made:?}");
    let telemetry = json!({ "browser": { "network": { "enabled": true }, "page": { "enabled": true } } });
    let wish = json!({ "headless": true, "proxy_id": "exit", "timeout_seconds": 600, "telemetry": telemetry });
    let session = server.create(&wish)?;

    server.kill()?;
    server.restart()?;
    asked.lock().unwrap().clear();
    let mut cdp = Cdp::connect(&session.text("cdp_ws_url").replace("localhost", "127.0.0.1"))?;
    let page = cdp.page()?;
    cdp.open(&page, "http://only-there.example/form")?;
    assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
    assert!(asked.lock().unwrap().iter().any(|line| line.contains("only-there.example")));

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
    let told = until("the page is told of", SOON, || {
        let told = server.get(&path).ok()?.text();
        told.contains("only-there.example").then_some(told)
    })?;
    assert!(!told.contains(PASSWORD) && !told.contains(encoded), "{told}");
    let dump = dump(&server)?;
    // Bytes stand there in hexadecimal digits.
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(dump.contains("only-there.example"), "the events are in it");
    assert!(![PASSWORD, encoded, &hex(PASSWORD), &hex(encoded)].iter().any(|text| dump.contains(text)));

    let rotated = server.command(&["secrets", "rotate"]).output()?;
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    assert!(String::from_utf8_lossy(&rotated.stdout).contains("sealed anew: 1"), "{rotated:?}");
    let id = made.json()?["id"].as_str().unwrap_or_default().to_owned();
    let checked = server.post(&format!("/proxies/{id}/check"), &json!({}))?;
    assert_eq!(checked.json()?["status"], "available", "the running server opens what is sealed under the new key");
    server.delete(&format!("/browsers/{}", session.id()))?;
    Ok(())
}

/// Answers over TLS, on connections that stay open, each with its own number; at `/close`, all of them are closed. Its page has a
/// picture of its own: a browser would ask for one whenever it has time, and maybe on another connection.
const SITE: &str = r#"
import itertools, socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print("up", listener.getsockname()[1], sep="\n")
numbers, streams = itertools.count(1), []
def serve(plain):
    try:
        with context.wrap_socket(plain, server_side=True) as stream:
            streams.append(stream)
            number, head = str(next(numbers)).encode(), b""
            while part := stream.recv(65536):
                head += part
                if b"\r\n\r\n" not in head:
                    continue
                says = b"<link rel=icon href='data:,'>" if b" /page " in head else number
                closes, head = b"/close " in head, b""
                lines = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: no-store\r\nContent-Length: %d\r\n\r\n%s"
                stream.sendall(lines % (len(says), says))
                while closes and streams:
                    streams.pop().shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

#[test]
fn a_changed_proxy_carries_the_tunnels_made_from_then_on_and_those_that_stand_go_on() -> anyhow::Result<()> {
    let (server, directory) = (server()?, tempfile::tempdir()?);
    let [key, certificate] = certificate(directory.path(), "tunnels.test")?;
    let mut site = Command::new("python3");
    let (_site, mut said) = Holder::start(site.args(["-u", "-c", SITE]).args([certificate, key]))?;
    let mut port = String::new();
    said.read_line(&mut port)?;
    let site = format!("127.0.0.1:{}", port.trim());
    let proxies = [Tinyproxy::start("me", "hunter2")?, Tinyproxy::start("me", "hunter2")?];
    for (name, proxy) in ["first", "second"].into_iter().zip(&proxies) {
        let (host, port) = (proxy.address.ip().to_string(), proxy.address.port());
        let config = json!({ "host": host, "port": port, "username": "me", "password": "hunter2" });
        server.post("/proxies", &json!({ "type": "custom", "name": name, "config": config }))?.expect(201)?;
    }
    let tunnels = || proxies.each_ref().map(|proxy| proxy.log().matches(&*format!("CONNECT {site}")).count());
    let session = server.create(&json!({ "headless": true, "proxy_id": "first", "timeout_seconds": 600 }))?;
    let path = format!("/browsers/{}", session.id());
    let go_through = |proxy: &str| server.send("PATCH", &path, Some(&json!({ "proxy_id": proxy })))?.expect(200);
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.call_in(Some(&page), "Security.setIgnoreCertificateErrors", &json!({ "ignore": true }))?;
    cdp.open(&page, &format!("https://{site}/page"))?;
    let mut connection = |path: &str| cdp.evaluate(&page, &format!("fetch('{path}').then(answer => answer.text())"));

    let first = connection("/")?;
    let at_first = tunnels();
    assert!(at_first[0] > 0 && at_first[1] == 0, "{at_first:?}");
    go_through("second")?;
    assert_eq!(connection("/")?, first, "the connection stands");
    assert_eq!(tunnels(), at_first);
    connection("/close")?;
    let second = connection("/")?;
    assert_ne!(second, first);
    let then = tunnels();
    assert!(then[0] == at_first[0] && then[1] > 0, "{at_first:?}, then {then:?}");
    go_through("")?;
    connection("/close")?;
    assert_ne!(connection("/")?, second);
    assert_eq!(tunnels(), then, "straight");
    server.delete(&path)?.expect(204).map(drop)
}

#[test]
fn a_proxy_that_is_down_is_told_in_the_telemetry_of_its_session() -> anyhow::Result<()> {
    let server = server()?;
    let closed = nobody_listens()?;
    let config = json!({ "host": "127.0.0.1", "port": closed.local_addr()?.port() });
    server.post("/proxies", &json!({ "type": "custom", "name": "down", "config": config }))?.expect(201)?;
    let telemetry = json!({ "browser": { "network": { "enabled": true } } });
    let session = server.create(&json!({ "headless": true, "proxy_id": "down", "telemetry": telemetry }))?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.call_in(Some(&page), "Page.navigate", &json!({ "url": "https://only-there.example/" }))?;
    let path = format!("/browsers/{}/telemetry/events?category=network&limit=100", session.id());
    let told = until("the failed proxy is told of", SOON, || {
        let events = server.get(&path).ok()?.json().ok()?;
        events.as_array()?.iter().map(|one| &one["event"]).find(|one| one["type"] == "network_proxy_failed").cloned()
    })?;
    assert_eq!((&told["category"], &told["data"]["error_code"]), (&json!("network"), &json!("proxy_error")));
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

#[test]
fn the_example_goes_through_a_proxy_that_others_have_written_and_straight_again() -> anyhow::Result<()> {
    let (server, pages) = (server()?, Pages::start()?);
    let proxy = Tinyproxy::start("me", "hunter2")?;
    let (host, port) = (proxy.address.ip().to_string(), proxy.address.port().to_string());

    let arguments = [&host, &port, "me", "hunter2", &pages.url("/form")];
    let run = Clients::find()?.run(&server, "docs/examples/proxies.py", &arguments)?;

    assert_eq!(run.stdout, "the proxy is available\nthrough it: 200\nstraight: 200\n");
    assert_eq!(pages.asked(), ["GET /form", "GET /form"]);
    let log = proxy.log();
    assert_eq!(log.matches(&*format!("GET {} HTTP/1.1", pages.url("/form"))).count(), 1, "{log}");
    Ok(())
}
