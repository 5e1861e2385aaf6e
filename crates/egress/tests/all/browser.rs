//! Tests of a real browser behind the egress proxy.

use std::{process::Stdio, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixStream},
    process::{Child, Command},
    task::JoinHandle,
};

use super::support::{Origin, Session, header, read_head, until};

/// The page's attempts; each result is reported to the origin as `name=outcome`.
const PAGE: &str = r#"<!doctype html><script>
const tell = (name, outcome) => fetch("/tell", { method: "POST", body: name + "=" + outcome });
const status = async (name, url, init) => {
    try { await tell(name, (await fetch(url, init)).status); } catch { await tell(name, "failed"); }
};
(async () => {
    await status("same", "/ok");
    await status("upload", "/ok", { method: "POST", body: "x".repeat(3000000) });
    await status("inner", INNER, { mode: "no-cors" });
    await status("named", "http://localhost:8999/", { mode: "no-cors" });
    await status("redirect", "/redirect", { mode: "no-cors" });
    const socket = new WebSocket(location.href.replace("http:", "ws:") + "socket");
    socket.onerror = () => tell("end", "reached");
})();
</script>"#;

/// Forwards connections of a TCP port to the session's socket, as the forwarder in a sandbox does.
async fn forwarder(session: &Session) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, socket) = (listener.local_addr().unwrap().port(), session.socket());
    let task = tokio::spawn(async move {
        while let Ok((mut browser, _)) = listener.accept().await {
            let socket = socket.clone();
            tokio::spawn(async move {
                let mut session = UnixStream::connect(socket).await.unwrap();
                copy_bidirectional(&mut browser, &mut session).await.ok();
            });
        }
    });
    (port, task)
}

fn chromium(profile: &std::path::Path, proxy: u16, url: &str) -> Child {
    Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--proxy-server=http://127.0.0.1:{proxy}"))
        .args(["--proxy-bypass-list=<-loopback>", "--remote-debugging-port=0"])
        .arg(url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("these tests need Chromium as `chromium`")
}

async fn serve(mut stream: BufReader<TcpStream>, seen: Arc<Mutex<Vec<String>>>, page: Arc<str>, inner: String) {
    while super::support::has_more(&mut stream).await {
        let head = read_head(&mut stream).await;
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut body = vec![0; header(&head, "content-length").map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await.unwrap();
        let answer = match path.as_str() {
            "/" => format!("200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}", page.len()),
            "/redirect" => format!("302 Found\r\nLocation: {inner}\r\nContent-Length: 0\r\n\r\n"),
            _ => "200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
        };
        let fact = match path.as_str() {
            "/tell" => String::from_utf8(body).unwrap(),
            "/socket" => format!("socket={}", header(&head, "upgrade").unwrap_or("no upgrade")),
            other => {
                format!("{other} {} bytes, proxy headers: {}", body.len(), head.to_lowercase().contains("\nproxy-"))
            }
        };
        seen.lock().push(fact);
        // The browser may disconnect at any time.
        stream.get_mut().write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.ok();
    }
}

#[tokio::test]
async fn a_page_in_a_real_browser_reaches_its_origin_and_nothing_inside() {
    let inner = Origin::silent().await;
    let (seen, inner_url) = (Arc::new(Mutex::new(Vec::new())), inner.url("/"));
    let page: Arc<str> = PAGE.replace("INNER", &format!("{inner_url:?}")).into();
    let facts = Arc::clone(&seen);
    let origin =
        Origin::start(move |stream| serve(stream, Arc::clone(&facts), Arc::clone(&page), inner_url.clone())).await;
    let session = Session::open(&[&origin.address.to_string()]);
    let (proxy, forwarding) = forwarder(&session).await;
    let profile = tempfile::tempdir().unwrap();
    let mut browser = chromium(profile.path(), proxy, &origin.url("/"));
    let facts = Arc::clone(&seen);
    until("the page has tried everything", || facts.lock().iter().any(|fact| fact == "end=reached")).await;
    browser.kill().await.unwrap();
    forwarding.abort();

    let seen = seen.lock().clone();
    for fact in [
        "/ 0 bytes, proxy headers: false",
        "/ok 3000000 bytes, proxy headers: false",
        "same=200",
        "upload=200",
        "socket=websocket",
    ] {
        assert!(seen.iter().any(|one| one == fact), "{fact:?} is missing in {seen:#?}");
    }
    assert_eq!(inner.connections(), 0, "{seen:#?}");
    assert!(session.handle.stats().refused >= 3, "{:?}", session.handle.stats());
}
