//! Runs chromedriver: starts it for the first WebDriver client, and again after it has ended.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

/// The timeout of the first answer to `/status`.
const START: Duration = Duration::from_secs(10);
/// The interval at which `/status` is requested meanwhile.
const RETRY_BACKOFF: Duration = Duration::from_millis(10);

/// The one chromedriver of a sandbox. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Chromedriver {
    program: PathBuf,
    port: u16,
    child: Mutex<Option<Child>>,
}

impl Chromedriver {
    pub(crate) fn new(program: PathBuf, port: u16) -> Self {
        Self { program, port, child: Mutex::new(None) }
    }

    /// Returns the port of the running chromedriver, which is started if necessary.
    ///
    /// # Errors
    /// `webdriver_spawn` if it cannot be started, `webdriver_silent` if it ends or does not answer in time.
    pub(crate) async fn port(&self) -> Result<u16, &'static str> {
        let mut child = self.child.lock().await;
        if let Some(running) = child.as_mut()
            && matches!(running.try_wait(), Ok(None))
        {
            return Ok(self.port);
        }
        let mut started = self.spawn().map_err(|error| {
            tracing::warn!(%error, "chromedriver could not be started");
            "webdriver_spawn"
        })?;
        let deadline = Instant::now() + START;
        while !self.answers().await {
            if Instant::now() >= deadline || !matches!(started.try_wait(), Ok(None)) {
                return Err("webdriver_silent");
            }
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
        *child = Some(started);
        Ok(self.port)
    }

    /// Returns true if chromedriver runs or is being started.
    pub(crate) fn is_running(&self) -> bool {
        match self.child.try_lock() {
            Ok(mut child) => child.as_mut().is_some_and(|running| matches!(running.try_wait(), Ok(None))),
            Err(_) => true,
        }
    }

    /// Kills chromedriver with its sessions. The next client starts another one.
    pub(crate) async fn end(&self) {
        if let Some(mut running) = self.child.lock().await.take() {
            drop(running.kill().await);
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.program)
            .arg(format!("--port={}", self.port))
            .args(["--log-level=OFF", "--disable-build-check"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
    }

    async fn answers(&self) -> bool {
        let ask = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            let request = format!("GET /status HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", self.port);
            stream.write_all(request.as_bytes()).await?;
            // Only the beginning is read, because chromedriver does not close the connection.
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await?;
            std::io::Result::Ok(answer == *b"HTTP/1.1 200")
        };
        matches!(tokio::time::timeout(Duration::from_secs(1), ask).await, Ok(Ok(true)))
    }
}
