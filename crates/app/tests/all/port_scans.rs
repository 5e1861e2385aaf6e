//! Tests that a page or a program in a session gets no information about the ports of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Process, until};
use serde_json::json;

use super::isolation::{Place, TEST_TIMEOUT, Visit, first_process, place, shown};

/// The ways in which a page can request a URL, besides fetch, sockets and navigation.
const WAYS: [(&str, &str); 9] = [
    ("image", "new Image().src = url"),
    ("favicon", "document.head.append(Object.assign(document.createElement('link'), { rel: 'icon', href: url }))"),
    ("prefetch", "document.head.append(Object.assign(document.createElement('link'), { rel: 'prefetch', href: url }))"),
    ("beacon", "navigator.sendBeacon(url, 'x')"),
    ("frame", "document.body.append(Object.assign(document.createElement('iframe'), { src: url }))"),
    (
        "PDF",
        "document.body.append(Object.assign(document.createElement('embed'), { type: 'application/pdf', src: url }))",
    ),
    ("film", "document.body.append(Object.assign(document.createElement('video'), { src: url, preload: 'auto' }))"),
    (
        "service worker",
        "void navigator.serviceWorker.register('/messenger.js').then(async () => \
         (await navigator.serviceWorker.ready).active.postMessage(url))",
    ),
    // A download may replace the page, so it is last.
    ("download", "Object.assign(document.createElement('a'), { href: '/away?' + url, download: 'x' }).click()"),
];

#[test]
fn a_port_scan_by_a_page_reveals_nothing_and_reaches_nothing() -> anyhow::Result<()> {
    let Place { server, site } = place();
    let session = server.headless()?;
    let mut visit = Visit::of(&session, site)?;
    let page = visit.page.clone();
    let open = TcpListener::bind("127.0.0.1:0")?;
    open.set_nonblocking(true)?;
    let (open_port, server_port) = (open.local_addr()?.port(), server.address().port());

    let inside = [9222, 9515, 3128];
    let known = [open_port, server_port, 5432, 1024, 60_000];
    visit.client.open(&page, &site.url("/"))?;
    // A selection of ports, because a browser is slow; the next test requests all ports, without a browser.
    let mut ports: BTreeSet<u16> = (1..=1024).chain((1025..=65_000).step_by(61)).chain(inside).chain(known).collect();
    // The origin of the page is allowed.
    ports.remove(&site.address.port());
    let mut verdicts: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for part in ports.into_iter().collect::<Vec<_>>().chunks(256) {
        let answers = visit.client.evaluate(&page, &format!("scan({})", json!(part)))?;
        for (port, what) in answers.as_object().context("no ports")? {
            verdicts.entry(what.as_str().context("no word")?.to_owned()).or_default().insert(port.parse()?);
        }
    }
    let refused = verdicts.remove("opaque").context("no port was asked for at all")?;
    let blocked: BTreeSet<u16> = verdicts.remove("TypeError").unwrap_or_default();
    assert!(verdicts.is_empty(), "{:?}", verdicts.keys());
    // Chromium itself blocks a fixed list of ports, such as those of mail.
    assert!(blocked.len() < 100, "{blocked:?}");
    for port in inside.into_iter().chain(known) {
        assert!(refused.contains(&port), "{port} is answered differently");
    }

    let closed = shown(&mut visit, "http://127.0.0.1:60000/json/version")?;
    assert!(!closed.is_empty() && !closed.contains("60000") && closed.len() < 2000, "{closed:?}");
    let local = [
        "127.0.0.1",
        "localhost",
        "localhost.",
        "[::1]",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
    ];
    let names =
        local.iter().flat_map(|host| [9222, open_port, server_port, 60_000].map(|port| format!("{host}:{port}")));
    let metadata = ["169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "10.0.0.1", "192.168.0.1", "224.0.0.1"];
    for name in names.chain(metadata.map(str::to_owned)) {
        let direct = shown(&mut visit, &format!("http://{name}/json/version"))?;
        assert_eq!(direct, closed, "{name}");
        let redirected = shown(&mut visit, &site.url(&format!("/away?http://{name}/json/list")))?;
        assert_eq!(redirected, closed, "{name}, by a redirect");
    }
    visit.client.open(&page, &site.url("/"))?;
    let mut sockets = BTreeSet::new();
    for port in inside.into_iter().chain([open_port, server_port, 60_000]) {
        let code = visit.client.evaluate(&page, &format!("socket('ws://127.0.0.1:{port}/devtools/browser')"))?;
        sockets.insert(code.to_string());
    }
    assert_eq!(sockets, BTreeSet::from(["1006".to_owned()]), "WebSockets");
    for (way, script) in WAYS {
        // The allowed URL is requested second, so the other one was requested before it arrives.
        let control = format!("/way?{}", way.replace(' ', "-"));
        let go = |url: String| format!("(url => {{ {script} }})('{url}')");
        for url in [format!("http://127.0.0.1:{open_port}/"), site.url(&control)] {
            visit.client.evaluate(&page, &go(url))?;
        }
        let requested = || site.was_requested(&control).then_some(());
        if until(way, Duration::from_secs(5), requested).is_err() {
            // Chromium may hold back the second download of a page without a click.
            visit.client.open(&page, &site.url("/"))?;
            visit.client.evaluate(&page, &go(site.url(&control)))?;
            until(way, TEST_TIMEOUT, requested)?;
        }
    }
    let came = open.accept();
    assert!(came.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "{came:?}");
    assert!(!server.log().contains("/json/version"), "the server itself was reached");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}

/// Returns the response to these bytes on one connection to the session's egress.
fn send_through_egress(process: &Process, requests: &[u8]) -> anyhow::Result<String> {
    let mut sent = tempfile::tempfile()?;
    sent.write_all(requests)?;
    sent.rewind()?;
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128 4<&0; cat <&4 >&3 & cat <&3";
    let mut command = Command::new("nsenter");
    command.args(["--target", &process.pid.to_string(), "--net", "--", "/bin/bash", "-c", script]);
    let output = command.stdin(sent).output().context("cannot start nsenter")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_egress_refuses_every_port_of_this_machine_with_the_same_response() -> anyhow::Result<()> {
    let Place { server, site } = place();
    let session = server.headless()?;
    let process = first_process(server, &session)?;
    let open = TcpListener::bind("127.0.0.1:0")?;
    open.set_nonblocking(true)?;
    let ports = || (1..=u16::MAX).filter(|port| *port != site.address.port());
    let request = |port: u16| {
        let end = if port == u16::MAX { "Connection: close\r\n" } else { "" };
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{end}\r\n")
    };
    let requests: String = ports().map(request).collect();

    let answers = send_through_egress(&process, requests.as_bytes())?;

    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for answer in answers.split("HTTP/1.1 ").skip(1) {
        let varies = |line: &&str| line.to_ascii_lowercase().starts_with("date:") || line.starts_with("connection:");
        let lines: Vec<&str> = answer.lines().filter(|line| !varies(line)).collect();
        *kinds.entry(lines.join("\n")).or_default() += 1;
    }
    assert_eq!(kinds.len(), 1, "{kinds:#?}");
    assert_eq!(kinds.into_values().sum::<usize>(), ports().count());
    assert!(open.accept().is_err(), "somebody came");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
}
