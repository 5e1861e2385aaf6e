//! Reads the server's certificate again when its files change.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use casement_http::ServerCertificate;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Job;
use crate::causes::with_causes;

/// The pause after a change, in which the other file is replaced too.
const PAUSE: Duration = Duration::from_millis(500);
/// The interval of readings without a change, because a file system of another host reports none.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
const BUFFER_BYTES: usize = 4096;

/// Watches the directories of the files, because tools replace a file, a link to it, or the link of a directory.
pub(crate) struct CertificateReload {
    certificate: ServerCertificate,
    changes: Option<AsyncFd<OwnedFd>>,
}

impl CertificateReload {
    pub(crate) fn new(certificate: ServerCertificate) -> Self {
        let changes = watch(&certificate);
        if let Err(error) = &changes {
            warn!(%error, "changes of the certificate are not reported; it is read every hour, and after SIGHUP");
        }
        Self { certificate, changes: changes.ok() }
    }
}

fn watch(certificate: &ServerCertificate) -> std::io::Result<AsyncFd<OwnedFd>> {
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let directories: BTreeSet<&Path> = certificate.files().into_iter().filter_map(Path::parent).collect();
    for directory in directories {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE;
        inotify::add_watch(&changes, directory, flags)?;
    }
    #[expect(deprecated, reason = "sound for an OwnedFd, which is the same descriptor for as long as it lives")]
    AsyncFd::with_interest(changes, Interest::READABLE)
}

#[async_trait]
impl Job for CertificateReload {
    fn name(&self) -> &'static str {
        "certificate"
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }

    async fn wait_until_due(&mut self) {
        let Some(changes) = &self.changes else { return std::future::pending().await };
        if let Ok(mut ready) = changes.readable().await {
            let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
            let mut events = Reader::new(changes.get_ref(), &mut buffer);
            while events.next().is_ok() {}
            ready.clear_ready();
        }
        tokio::time::sleep(PAUSE).await;
    }

    async fn run(&mut self, _: &CancellationToken) -> anyhow::Result<()> {
        let certificate = self.certificate.clone();
        reload(tokio::task::spawn_blocking(move || certificate.reload()).await?);
        Ok(())
    }
}

/// Logs the result of a reading.
pub(crate) fn reload(read: Result<bool, casement_http::CertificateError>) {
    match read {
        Ok(true) => info!("the certificate has changed; new connections get the new one"),
        Ok(false) => {}
        Err(error) => {
            let error = anyhow::Error::from(error);
            warn!(
                error = with_causes(&error),
                "the certificate cannot be read again; the previous one is still in use"
            );
        }
    }
}
