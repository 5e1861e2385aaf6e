//! Drains the own node by an order: `casement drain`, or SIGTERM with `--drain-on-term`.

use std::time::Duration;

use anyhow::{Context as _, bail};
use casement_domain::node::{NodeState, Nodes, OwnState};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tracing::warn;

use crate::causes::with_causes;
use crate::data_dir::control_socket;
use crate::jobs::NodeWaker;
use crate::settings::DrainSettings;
use crate::short_path::ShortPath;

/// The first byte of the order on the control socket. Four bytes follow: the deadline in seconds.
pub(crate) const ORDER: u8 = b'd';
/// The deadline that stands for none.
const NO_DEADLINE: u32 = u32::MAX;
/// The responses, one line each. Any other line is an error for people.
const BEGUN: &str = "draining";
const DRAINED: &str = "drained";

/// The maximum time in which the heartbeat reads that the node drains.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a drain that could not be stored is tried again.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the command: begins the drain of the server on the data directory, and returns then or once it is drained.
pub(crate) async fn run(settings: DrainSettings) -> anyhow::Result<()> {
    let dir = settings.data_dir.path()?;
    let path = ShortPath::of(&control_socket(&dir))?;
    let Ok(mut server) = UnixStream::connect(path.as_path()).await else {
        bail!("no casement serve runs on {}; --data-dir names another directory", dir.display());
    };
    let mut order = vec![ORDER];
    order.extend(settings.deadline.unwrap_or(NO_DEADLINE).to_be_bytes());
    server.write_all(&order).await.context("cannot speak to the server")?;
    let mut lines = BufReader::new(server).lines();
    expect(lines.next_line().await, BEGUN)?;
    if settings.wait {
        expect(lines.next_line().await, DRAINED)?;
    }
    Ok(())
}

fn expect(line: std::io::Result<Option<String>>, expected: &str) -> anyhow::Result<()> {
    match line.context("cannot read the response of the server")? {
        Some(line) if line == expected => Ok(()),
        Some(error) => bail!("{error}"),
        None => bail!("the server ended before it was {expected}"),
    }
}

/// The drain of the own node. Clones share its state.
#[derive(Clone)]
pub(crate) struct NodeDrain {
    pub(crate) own: OwnState,
    pub(crate) nodes: Nodes,
    pub(crate) waker: NodeWaker,
}

impl NodeDrain {
    /// Responds to an order on the control socket, whose first byte was read.
    pub(crate) async fn respond(self, mut caller: UnixStream) {
        let mut seconds = [0; 4];
        match tokio::time::timeout(READ_TIMEOUT, caller.read_exact(&mut seconds)).await {
            Ok(Ok(_)) => {}
            _ => return warn!("ignored an incomplete order to drain on the control socket"),
        }
        let seconds = Some(u32::from_be_bytes(seconds)).filter(|seconds| *seconds != NO_DEADLINE);
        let begun = self.begin(seconds.map(|seconds| time::Duration::seconds(seconds.into()))).await;
        let response = begun.map_or_else(|error| with_causes(&error), |()| BEGUN.to_owned());
        if caller.write_all(format!("{response}\n").as_bytes()).await.is_err() || response != BEGUN {
            return;
        }
        let response = match self.drained().await {
            Ok(()) => DRAINED.to_owned(),
            Err(error) => error.to_string(),
        };
        // The caller need not wait.
        let _ = caller.write_all(format!("{response}\n").as_bytes()).await;
    }

    /// Drains the node, and returns when it is drained. Tries again while the store is away.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        while let Err(error) = self.begin(None).await {
            warn!(error = with_causes(&error), "cannot drain this node; trying again");
            tokio::time::sleep(RETRY_BACKOFF).await;
        }
        self.drained().await
    }

    /// Stores that this node drains, and waits until it has read it.
    async fn begin(&self, deadline: Option<time::Duration>) -> anyhow::Result<()> {
        let mut changes = self.waker.changes();
        self.nodes.drain_own(self.own.id(), deadline).await?;
        self.waker.read_soon();
        let begun = async {
            while self.own.state() == NodeState::Serving {
                changes.next().await;
            }
        };
        let begun = tokio::time::timeout(BEGIN_TIMEOUT, begun).await;
        begun.context("the node did not begin to drain: the database is unavailable, or the node was resumed")
    }

    async fn drained(&self) -> anyhow::Result<()> {
        let mut changes = self.waker.changes();
        loop {
            match self.own.state() {
                NodeState::Drained => return Ok(()),
                NodeState::Draining => changes.next().await,
                NodeState::Serving => bail!("the node was resumed before it was drained"),
            }
        }
    }
}
