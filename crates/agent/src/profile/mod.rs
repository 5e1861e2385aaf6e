//! The browser's user data as a profile: taken out when the browser is closed for good, and brought in before it is started.

mod keep;
mod pack;
#[cfg(test)]
mod tests;
mod unpack;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use http::request::Parts;
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use self::pack::Archive;
use self::unpack::{Limits, Unusable, unpack};
use crate::fs::pieces;
use crate::receive::{disk, receive};
use crate::reply::{self, Answer, Refusal, empty};
use crate::restart::{self, RestartKind};
use crate::state::AgentState;
use casement_agent_protocol::profile::{CAPTURE, LOAD, MAX_PROFILE_BYTES};
use casement_agent_protocol::{ErrorCode, State};

const WHAT: &str = "a profile";

/// What is known of it.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    /// Held while one is brought in. Whether one waits to take its place.
    waiting: Mutex<bool>,
    /// How many read it at present.
    captures: AtomicUsize,
    /// How many were replaced.
    replaced: AtomicU64,
}

impl Profiles {
    /// Whether one waits to take its place.
    pub(crate) async fn waits(&self) -> bool {
        *self.waiting.lock().await
    }

    /// Puts the one that waits in the place of `profile`. No Chromium may run.
    pub(crate) async fn take(&self, profile: &Path) -> io::Result<()> {
        let mut waiting = self.waiting.lock().await;
        let number = self.replaced.fetch_add(1, Ordering::Relaxed);
        let old = profile.with_file_name(format!("profile.old.{number}"));
        match fs::rename(profile, &old) {
            // Nobody waits for that. What of the old browser still ends may make it fail.
            Ok(()) => drop(spawn_blocking(move || clear(&old))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::rename(waiting_at(profile), profile)?;
        *waiting = false;
        Ok(())
    }

    /// Whether the browser has one that was brought in.
    pub(crate) fn was_loaded(&self) -> bool {
        self.replaced.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody reads it.
    pub(crate) fn is_read(&self) -> bool {
        self.captures.load(Ordering::Relaxed) > 0
    }
}

/// Counts a reader for as long as it lives.
struct Reader(Arc<AgentState>);

impl Reader {
    fn new(core: &Arc<AgentState>) -> Self {
        core.profiles.captures.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(core))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.profiles.captures.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `/v1/profile/…`.
pub(crate) async fn serve(core: &Arc<AgentState>, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        LOAD => load(core, body).await,
        CAPTURE => capture(core).await,
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

async fn load(core: &AgentState, body: Incoming) -> Answer {
    let place = waiting_at(&core.config.profile);
    let directory = place.parent().unwrap_or(Path::new("/"));
    let archive = receive(directory, body, MAX_PROFILE_BYTES, WHAT).await?;
    let mut waiting = core.profiles.waiting.lock().await;
    *waiting = false;
    let unpacked = spawn_blocking(move || {
        clear(&place).map_err(Unusable::Io)?;
        unpack(&archive, Limits::USUAL, &place)
    });
    unpacked.await.map_err(|error| Refusal::new(ErrorCode::Internal, error))?.map_err(|fault| match fault {
        Unusable::Io(error) => disk(error, WHAT),
        bad => Refusal::new(ErrorCode::NotAllowed, bad),
    })?;
    *waiting = true;
    Ok(empty())
}

async fn capture(core: &Arc<AgentState>) -> Answer {
    let reader = Reader::new(core);
    if !is_closed(core)? {
        let closed = restart::ask(core, RestartKind::Close).await;
        // It may have ended by itself just now.
        if !is_closed(core)? {
            closed?;
        }
    }
    let profile = core.config.profile.clone();
    let archive = spawn_blocking(move || Archive::of(&profile)).await;
    let archive = archive.map_err(|error| Refusal::new(ErrorCode::Internal, error))??;
    let content = pieces(archive).map(move |piece| {
        let _ = &reader;
        piece
    });
    Ok(reply::stream("application/octet-stream", content))
}

/// Whether Chromium has ended for good after it was up.
fn is_closed(core: &AgentState) -> Result<bool, Refusal> {
    match core.status().borrow().state {
        State::Starting | State::Ready => Ok(false),
        State::Closed | State::Exited { .. } => Ok(true),
        State::Failed { .. } => Err(Refusal::new(ErrorCode::NotReady, "the browser did not come up")),
    }
}

/// Where one lies until it takes its place: on the same disk.
fn waiting_at(profile: &Path) -> PathBuf {
    profile.with_file_name("profile.waiting")
}

fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
