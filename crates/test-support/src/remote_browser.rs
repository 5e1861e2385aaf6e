//! A real browser outside of every sandbox, and the socket through which a sandbox reaches it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::cdp::Cdp;

/// Chromium without a display, on the loopback of this machine. Dropping it ends it.
#[derive(Debug)]
pub struct RemoteChromium {
    child: Child,
    /// The port of its debugging protocol.
    pub port: u16,
    /// The path of its debugging WebSocket.
    pub path: String,
    _profile: TempDir,
}

impl RemoteChromium {
    /// Starts Chromium with further arguments.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(args: &[&str]) -> anyhow::Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut child = Command::new("/usr/lib/chromium/chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(["--enable-features=WebMCP", "--disable-background-networking"])
            .args(args)
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut errors = BufReader::new(child.stderr.take().context("a pipe")?);
        let mut line = String::new();
        let address = loop {
            line.clear();
            anyhow::ensure!(errors.read_line(&mut line)? > 0, "Chromium has ended");
            if let Some(address) = line.trim().strip_prefix("DevTools listening on ws://127.0.0.1:") {
                break address.to_owned();
            }
        };
        // A full pipe would stop the browser.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let (port, path) = address.split_once('/').context("an address")?;
        Ok(Self { child, port: port.parse()?, path: format!("/{path}"), _profile: profile })
    }

    /// Connects to the browser, beside every sandbox.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn connect(&self) -> anyhow::Result<Cdp> {
        Cdp::handshake(TcpStream::connect(("127.0.0.1", self.port)).await?, &self.path).await
    }

    /// Kills the browser.
    pub fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Returns whether the browser runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for RemoteChromium {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Forwards each handshake at a socket to a browser, as a server does. Dropping it closes the socket and all
/// connections.
#[derive(Debug)]
pub struct Bridge {
    accepting: JoinHandle<()>,
    connections: Connections,
    /// The first line and the host of each request.
    pub requests: Arc<Mutex<Vec<(String, String)>>>,
}

type Connections = Arc<Mutex<Vec<JoinHandle<()>>>>;

impl Bridge {
    /// Serves a new socket at `path`, which every user can connect to.
    ///
    /// # Errors
    /// When there is no socket.
    pub fn at(path: &Path, browser: &RemoteChromium) -> anyhow::Result<Self> {
        let _old = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
        Ok(Self::on(listener, browser.port, browser.path.clone()))
    }

    /// Serves a listener.
    pub fn on(listener: UnixListener, port: u16, path: String) -> Self {
        let (requests, connections) = (Arc::<Mutex<Vec<_>>>::default(), Connections::default());
        let (log, open) = (Arc::clone(&requests), Arc::clone(&connections));
        let accepting = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let (log, path) = (Arc::clone(&log), path.clone());
                open.lock().push(tokio::spawn(async move { drop(forward(caller, port, &path, &log).await) }));
            }
        });
        Self { accepting, connections, requests }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.accepting.abort();
        self.connections.lock().iter().for_each(JoinHandle::abort);
    }
}

async fn forward(
    mut caller: UnixStream,
    port: u16,
    path: &str,
    log: &Mutex<Vec<(String, String)>>,
) -> anyhow::Result<()> {
    let head = crate::websocket::read_head(&mut caller).await;
    let first = head.lines().next().unwrap_or_default().to_owned();
    let host = crate::websocket::header(&head, "host").unwrap_or_default().to_owned();
    log.lock().push((first, host));
    let others = head.split_inclusive("\r\n").skip(1).filter(|line| !line.to_lowercase().starts_with("host:"));
    let head = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{}", others.collect::<String>());
    let mut browser = TcpStream::connect(("127.0.0.1", port)).await?;
    browser.write_all(head.as_bytes()).await?;
    copy_bidirectional(&mut caller, &mut browser).await?;
    Ok(())
}

/// Serves one page at every path of a port of loopback as long as the runtime exists. Returns its URL.
///
/// # Errors
/// When there is no port.
pub async fn serve_page(html: &'static str) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://localhost:{}/", listener.local_addr()?.port());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await? > 0 {}
                let length = html.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{html}"
                );
                stream.write_all(answer.as_bytes()).await
            });
        }
    });
    Ok(url)
}

/// Returns the path of the socket of a remote browser in the egress directory of a sandbox.
pub fn socket_in(egress: &Path) -> PathBuf {
    egress.join("browser.sock")
}
