//! A fake egress that serves one site, refuses everything else, and records the requests.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use casement_chromium::EgressPort;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;

use casement_test_support::login_pages::{Login, Origins, response};

/// The site. This name makes it a secure context, in which pages can use more of the browser.
pub(crate) const SITE: &str = "http://localhost:8000";
/// The response for everything else.
pub(crate) const REFUSAL: &str = "refused by the test's way out";

const PAGE: &str = "<!doctype html><title>the site</title><iframe src=/frame></iframe>";
const WORKER: &str = "onmessage = async e => postMessage(await eval(e.data))";

#[derive(Default)]
pub(crate) struct FakeEgress {
    serving: Mutex<HashMap<String, AbortHandle>>,
    requested: Arc<Mutex<Vec<(String, String)>>>,
    logins: Arc<OnceLock<(Vec<Login>, Origins)>>,
}

impl FakeEgress {
    /// Serves the sites of these logins too.
    pub(crate) fn serve_logins(&self, logins: Vec<Login>, origins: Origins) {
        assert!(self.logins.set((logins, origins)).is_ok(), "once");
    }

    /// Returns the targets that a browser requested, as `host:port` or `host`.
    pub(crate) fn requested_by(&self, session: &str) -> Vec<String> {
        let requested = self.requested.lock();
        requested.iter().filter(|(by, _)| by == session).map(|(_, target)| target.clone()).collect()
    }

    /// Returns true if the browser is served now.
    pub(crate) fn serves(&self, session: &str) -> bool {
        self.serving.lock().contains_key(session)
    }
}

impl EgressPort for FakeEgress {
    fn serve(&self, session: &str, listener: UnixListener) {
        let (requested, by) = (Arc::clone(&self.requested), session.to_owned());
        let logins = Arc::clone(&self.logins);
        let task = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(answer(caller, by.clone(), Arc::clone(&requested), Arc::clone(&logins)));
            }
        });
        self.serving.lock().insert(session.to_owned(), task.abort_handle());
    }

    fn close(&self, session: &str) {
        if let Some(task) = self.serving.lock().remove(session) {
            task.abort();
        }
    }
}

type Logins = Arc<OnceLock<(Vec<Login>, Origins)>>;

async fn answer(
    mut caller: UnixStream,
    by: String,
    requested: Arc<Mutex<Vec<(String, String)>>>,
    logins: Logins,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    let end = loop {
        if let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") {
            break end + 4;
        }
        if caller.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    };
    let mut body = head.split_off(end);
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let target = target.trim_start_matches("http://");
    let (authority, path) = target.split_once('/').unwrap_or((target, ""));
    requested.lock().push((by, authority.to_owned()));
    if authority.ends_with(".test")
        && let Some((logins, origins)) = logins.get()
    {
        let length =
            head.to_lowercase().split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        while body.len() < length.unwrap_or(0) && caller.read_buf(&mut body).await? > 0 {}
        let posted = head.starts_with("POST").then(|| String::from_utf8_lossy(&body).into_owned());
        return caller.write_all(response(path, posted.as_deref(), logins, origins).as_bytes()).await;
    }
    if authority.starts_with("stream") {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nAccess-Control-Allow-Origin: *\r\n\r\ndata: x\n\n";
        caller.write_all(head.as_bytes()).await?;
        // The answer is open until the browser ends it.
        return caller.read_buf(&mut body).await.map(drop);
    }
    let (status, kind, body) = match (SITE.ends_with(authority), path) {
        (true, "worker.js") => ("200 OK", "text/javascript", WORKER),
        (true, "frame") => ("200 OK", "text/html", "<!doctype html><title>the frame</title>"),
        (true, _) => ("200 OK", "text/html", PAGE),
        (false, _) => ("403 Forbidden", "text/plain", REFUSAL),
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    caller.write_all(answer.as_bytes()).await
}
