//! Helpers: a disk that can be filled, and a database connection that can be slowed down.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;

/// A disk of 256 MiB.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts the disk; needs root.
    pub(super) fn mount(at: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir_all(&at)?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256m,mode=755", "none"]).arg(&at).status()?;
        ensure!(mounted.success(), "mount failed");
        Ok(Self(at))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Fills the disk until the returned file is removed.
    pub(super) fn fill(&self) -> anyhow::Result<PathBuf> {
        let path = self.0.join("filler");
        let mut filler = File::create(&path)?;
        while filler.write(&[1; 1 << 16]).is_ok_and(|written| written > 0) {}
        Ok(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// A forwarder to the unix socket of a database, with an adjustable delay.
pub(super) struct SlowForwarder {
    delay: Arc<AtomicU64>,
    directory: PathBuf,
}

impl SlowForwarder {
    pub(super) fn open(runtime: &Runtime, directory: PathBuf, to: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir(&directory)?;
        let delay = Arc::<AtomicU64>::default();
        let (slow, _entered) = (Arc::clone(&delay), runtime.enter());
        let listener = UnixListener::bind(directory.join(".s.PGSQL.5432"))?;
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (slow, to) = (Arc::clone(&slow), to.join(".s.PGSQL.5432"));
                tokio::spawn(async move {
                    let Ok(server) = UnixStream::connect(to).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(carry(from_client, to_server, &slow), carry(from_server, to_client, &slow));
                });
            }
        });
        Ok(Self { delay, directory })
    }

    /// Returns the directory of the socket for clients.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Delays the bytes in each direction.
    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        tokio::time::sleep(Duration::from_millis(delay.load(Ordering::SeqCst))).await;
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
