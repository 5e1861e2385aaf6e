//! The browser's user data as a profile: captured when the browser is closed for good, and loaded before a start.

mod keep;
mod pack;
#[cfg(test)]
mod tests;
mod unpack;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use http::request::Parts;
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use self::pack::Archive;
use self::unpack::{Limits, UnpackError, unpack};
use crate::fs::pieces;
use crate::receive::{disk_refusal, receive, remove_directory};
use crate::reply::{self, Answer, Refusal, empty};
use crate::restart_queue::{RestartKind, RestartQueue};
use crate::status::StatusPublisher;
use casement_agent_protocol::profile::{CAPTURE, LOAD, MAX_PROFILE_BYTES};
use casement_agent_protocol::{ErrorCode, State};

const DESCRIPTION: &str = "a profile";

/// The profile of the session.
#[derive(Debug)]
pub(crate) struct Profiles {
    /// The user data directory of the browser.
    directory: PathBuf,
    status: StatusPublisher,
    restarts: RestartQueue,
    /// True if a loaded profile is pending until the next start. Locked while one is being loaded.
    pending: Mutex<bool>,
    /// Held by every reader of a capture.
    readers: Arc<()>,
    /// The number of replacements of the profile.
    replacements: AtomicU64,
}

impl Profiles {
    pub(crate) fn new(directory: PathBuf, status: StatusPublisher, restarts: RestartQueue) -> Self {
        let (pending, readers, replacements) = Default::default();
        Self { directory, status, restarts, pending, readers, replacements }
    }

    /// Returns true if a loaded profile is pending until the next start.
    pub(crate) async fn is_pending(&self) -> bool {
        *self.pending.lock().await
    }

    /// Replaces the browser's profile by the pending one. Chromium must not run.
    pub(crate) async fn install(&self) -> io::Result<()> {
        let mut pending = self.pending.lock().await;
        let number = self.replacements.fetch_add(1, Ordering::Relaxed);
        let old = self.directory.with_file_name(format!("profile.old.{number}"));
        match fs::rename(&self.directory, &old) {
            // Not awaited: processes of the old browser that are still ending may make the removal fail.
            Ok(()) => drop(spawn_blocking(move || remove_directory(&old))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::rename(self.pending_path(), &self.directory)?;
        *pending = false;
        Ok(())
    }

    /// Returns true if the browser has a loaded profile.
    pub(crate) fn was_loaded(&self) -> bool {
        self.replacements.load(Ordering::Relaxed) > 0
    }

    /// Returns true if a capture is being read.
    pub(crate) fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    /// Serves `/v1/profile/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            LOAD => self.load(body).await,
            CAPTURE => self.capture().await,
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn load(&self, body: Incoming) -> Answer {
        let target = self.pending_path();
        let directory = target.parent().unwrap_or(Path::new("/"));
        let archive = receive(directory, body, MAX_PROFILE_BYTES, DESCRIPTION).await?;
        let mut pending = self.pending.lock().await;
        *pending = false;
        let unpacked = spawn_blocking(move || {
            remove_directory(&target).map_err(UnpackError::Io)?;
            unpack(&archive, Limits::DEFAULT, &target)
        });
        unpacked.await.map_err(|error| Refusal::new(ErrorCode::Internal, error))?.map_err(|error| match error {
            UnpackError::Io(error) => disk_refusal(error, DESCRIPTION),
            refused => Refusal::new(ErrorCode::NotAllowed, refused),
        })?;
        *pending = true;
        Ok(empty())
    }

    async fn capture(&self) -> Answer {
        let reader = Arc::clone(&self.readers);
        if !self.is_browser_closed()? {
            let closed = self.restarts.run(RestartKind::Close).await;
            // The browser may have ended by itself meanwhile.
            if !self.is_browser_closed()? {
                closed?;
            }
        }
        let directory = self.directory.clone();
        let archive = spawn_blocking(move || Archive::of(&directory)).await;
        let archive = archive.map_err(|error| Refusal::new(ErrorCode::Internal, error))??;
        let content = pieces(archive).inspect(move |_| {
            let _held = &reader;
        });
        Ok(reply::stream("application/octet-stream", content))
    }

    /// Returns true if Chromium has ended for good after it was ready.
    fn is_browser_closed(&self) -> Result<bool, Refusal> {
        match self.status.state() {
            State::Starting | State::Ready => Ok(false),
            State::Closed | State::Exited { .. } => Ok(true),
            State::Failed { .. } => Err(Refusal::new(ErrorCode::NotReady, "the browser did not come up")),
        }
    }

    /// Returns the path of the pending profile, on the same disk.
    fn pending_path(&self) -> PathBuf {
        self.directory.with_file_name("profile.waiting")
    }
}
