//! `casement stop`, and the control socket by which it reaches the server.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use casement_postgres::{DatabaseConfig, Snapshot};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tracing::warn;

use crate::data_dir::{self, control_socket};
use crate::node_drain::{self, NodeDrain};
use crate::serve;
use crate::settings::{StopSettings, Store, serve_settings};
use crate::short_path::ShortPath;
use crate::store;

const ACCEPT_BACKOFF: std::time::Duration = std::time::Duration::from_millis(200);

/// The kind of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopOrder {
    /// Sessions continue.
    KeepSessions,
    /// Sessions end too.
    EndSessions,
}

impl StopOrder {
    const fn byte(self) -> u8 {
        match self {
            Self::KeepSessions => b'k',
            Self::EndSessions => b'e',
        }
    }

    /// What happens to the sessions, for the log.
    pub(crate) const fn of_sessions(self) -> &'static str {
        match self {
            Self::KeepSessions => "continue",
            Self::EndSessions => "end",
        }
    }

    const fn of(byte: u8) -> Option<Self> {
        match byte {
            b'k' => Some(Self::KeepSessions),
            b'e' => Some(Self::EndSessions),
            _ => None,
        }
    }
}

/// Runs the command: returns once the server has ended. Without a server, ends the sessions that it has left.
pub(crate) async fn run(settings: StopSettings) -> anyhow::Result<()> {
    let dir = settings.store.data_dir.path()?;
    if !dir.exists() {
        bail!("no casement serve runs on {}, which does not exist; --data-dir names another directory", dir.display());
    }
    let path = ShortPath::of(&control_socket(&dir))?;
    let Ok(mut server) = UnixStream::connect(path.as_path()).await else {
        if settings.end_sessions {
            ensure_can_have_sessions(&settings.store).await?;
            return serve::end_sessions(serve_settings(settings)?).await;
        }
        bail!(
            "no casement serve runs on {}; `casement stop --end-sessions` ends the browsers that one has left",
            dir.display()
        );
    };
    let order = if settings.end_sessions { StopOrder::EndSessions } else { StopOrder::KeepSessions };
    server.write_all(&[order.byte()]).await.context("cannot speak to the server")?;
    // The server keeps the connection open until its process ends.
    let mut nothing = [0; 1];
    let _ = server.read(&mut nothing).await;
    Ok(())
}

/// Refuses a directory in which no server can have left a session: a server there would create what is missing.
async fn ensure_can_have_sessions(store: &Store) -> anyhow::Result<()> {
    let dir = store.data_dir.path()?;
    ensure!(
        data_dir::node_of(&dir).is_some(),
        "no casement serve was ever started on {}; --data-dir names another directory",
        dir.display()
    );
    store::ensure_named(store)?;
    if let Some(url) = &store.database_url {
        let config = DatabaseConfig::parse(url).context("the database URL")?;
        Snapshot::take(&config).await?.schema().await?;
    }
    Ok(())
}

/// Removes the socket. Waiting clients read the end of their connection when the process ends.
pub(crate) fn remove_control_socket(data_dir: &Path) {
    let _ = std::fs::remove_file(control_socket(data_dir));
}

/// Accepts orders to stop and to drain until the process ends. The socket is in the data directory, where only the owner may connect.
pub(crate) fn listen(data_dir: &Path, orders: mpsc::Sender<StopOrder>, drain: NodeDrain) -> anyhow::Result<()> {
    let path = control_socket(data_dir);
    // The socket of a killed server: no other server runs, because this process holds the lock of the data directory.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(ShortPath::of(&path)?.as_path()).context("cannot open the control socket")?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    tokio::spawn(async move {
        let mut waiting = Vec::new();
        loop {
            let mut caller = match listener.accept().await {
                Ok((caller, _)) => caller,
                Err(error) => {
                    warn!(%error, "cannot accept on the control socket; retrying");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            let mut byte = [0; 1];
            let read = tokio::time::timeout(std::time::Duration::from_secs(1), caller.read_exact(&mut byte)).await;
            let order = read.ok().and_then(Result::ok).map(|_| byte[0]);
            if order == Some(node_drain::ORDER) {
                tokio::spawn(drain.clone().respond(caller));
                continue;
            }
            match order.and_then(StopOrder::of) {
                Some(order) => {
                    let _ = orders.send(order).await;
                    waiting.push(caller);
                }
                None => warn!("ignored an invalid order on the control socket"),
            }
        }
    });
    Ok(())
}
