//! Keeps the private PostgreSQL running as long as the server. If its postmaster is killed, by a person or the kernel
//! for lack of memory, the service pauses for some seconds instead of failing.

use std::time::Duration;

use casement_domain::backoff::Backoff;
use casement_postgres::{Cluster, ClusterConfig};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Supervises the private cluster, and restarts it whenever its postmaster ends by itself.
pub(crate) struct ClusterSupervisor {
    stop: CancellationToken,
    watch: JoinHandle<Cluster>,
}

impl ClusterSupervisor {
    /// Supervises `cluster`, which was started with `config`.
    pub(crate) fn watch(cluster: Cluster, config: ClusterConfig) -> Self {
        let stop = CancellationToken::new();
        let watch = tokio::spawn(keep(cluster, config, stop.clone()));
        Self { stop, watch }
    }

    /// Stops the cluster for good.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        Ok(self.watch.await?.stop().await?)
    }
}

async fn keep(mut cluster: Cluster, config: ClusterConfig, stop: CancellationToken) -> Cluster {
    let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
    loop {
        tokio::select! {
            () = stop.cancelled() => return cluster,
            () = ended(cluster.pid()) => warn!("the private PostgreSQL ended by itself; restarting it"),
        }
        match Cluster::start(config.clone()).await {
            Ok(started) => {
                info!(pid = started.pid(), "the private PostgreSQL runs again");
                cluster = started;
                backoff.reset();
            }
            Err(error) => {
                let pause = backoff.next_pause();
                warn!(%error, retry_in_ms = pause.as_millis(), "cannot start the private PostgreSQL");
                tokio::select! {
                    () = stop.cancelled() => return cluster,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

/// Waits for the end of the process, without polling.
async fn ended(pid: i32) {
    let Some(Ok(handle)) = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK)) else { return };
    #[expect(deprecated, reason = "the new constructor is unsafe; an `OwnedFd` keeps what it asks for: it stays open")]
    let handle = AsyncFd::with_interest(handle, Interest::READABLE);
    match handle {
        Ok(handle) => drop(handle.readable().await),
        // A start adopts a running postmaster, so an additional attempt is harmless.
        Err(_) => tokio::time::sleep(MAX_BACKOFF).await,
    }
}
