//! Serves the debugging protocol of a remote browser on the sandbox's loopback, for scripts, whose libraries connect to
//! ports. Each WebSocket is copied to a connection of its own to the browser's socket.
//!
//! The list of pages at `/json/list` is answered by the agent, because the remote side serves WebSockets only.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::browser_handle::BrowserHandle;

/// The maximum number of open connections.
const MAX_CONNECTIONS: usize = 64;
/// The maximum size of the head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// The timeout of receiving the head of a request, and of the list of pages.
const TIMEOUT: Duration = Duration::from_secs(10);

const REFUSED: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const UNREACHED: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Serves connections until the task is dropped.
pub(crate) async fn serve(listener: TcpListener, browser: BrowserHandle) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let browser = browser.clone();
                tokio::spawn(async move {
                    // Either side may disconnect at any time, which is no error.
                    drop(answer(stream, &browser).await);
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the debugging port");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, browser: &BrowserHandle) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (head, rest) = timeout(TIMEOUT, read_head(&mut stream)).await??;
    if head.starts_with("GET /json/list ") {
        let list = timeout(TIMEOUT, page_list(browser)).await?;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{list}",
            list.len()
        );
        return stream.write_all(answer.as_bytes()).await;
    }
    let Some(upgrade) = upgrade(&head) else { return stream.write_all(REFUSED).await };
    let Ok(mut remote) = browser.endpoint().open().await else { return stream.write_all(UNREACHED).await };
    remote.write_all(upgrade.as_bytes()).await?;
    remote.write_all(&rest).await?;
    copy_bidirectional(&mut stream, &mut remote).await.map(drop)
}

/// Returns the pages of the browser as JSON; none if it does not answer.
async fn page_list(browser: &BrowserHandle) -> String {
    match browser.ready() {
        Some(running) => running.browser.listed_pages().await.map_or_else(|_| "[]".to_owned(), |list| list.to_string()),
        None => "[]".to_owned(),
    }
}

/// Reads the head of a request. Returns it with the bytes after it.
async fn read_head(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            return Ok((String::from_utf8(read).map_err(io::Error::other)?, rest));
        }
        if read.len() > MAX_HEAD || stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Returns the head of a WebSocket handshake with the browser; `None` if the request is no handshake.
fn upgrade(head: &str) -> Option<String> {
    let (first, headers) = head.split_once("\r\n")?;
    let name_of = |line: &str| line.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_upgrade =
        headers.lines().any(|line| name_of(line) == "upgrade" && line.to_lowercase().contains("websocket"));
    if !first.starts_with("GET ") || !is_upgrade {
        return None;
    }
    let others = headers.split_inclusive("\r\n").filter(|line| !["host", "origin"].contains(&name_of(line).as_str()));
    Some(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}", others.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::upgrade;

    #[test]
    fn a_handshake_gets_the_host_and_path_of_the_browsers_socket() {
        let head = "GET /devtools/x HTTP/1.1\r\nHost: 127.0.0.1:9222\r\nOrigin: http://a\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
        let wanted = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
        assert_eq!(upgrade(head).as_deref(), Some(wanted));
    }

    #[test]
    fn other_requests_are_not_forwarded() {
        assert_eq!(upgrade("GET /json/version HTTP/1.1\r\nHost: localhost\r\n\r\n"), None);
        assert_eq!(upgrade("POST / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"), None);
    }
}
