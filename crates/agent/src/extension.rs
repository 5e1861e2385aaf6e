//! The extensions of a session: those that were added and wait for the next start of Chromium, and those it was started with.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use casement_archive::{ArchiveError, extension};
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::receive::{disk, receive};
use crate::reply::{Answer, Refusal, arguments, empty};
use crate::state::AgentState;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::extension::{ADD, ExtensionName, MAX_EXTENSION_BYTES, MAX_EXTENSIONS, is_extension_name};

/// Where unpacked extensions lie until Chromium is started with them, beside those it has.
const WAITING: &str = ".waiting";
const WHAT: &str = "an extension";

/// What is known of them. The names are checked before they come here.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    loaded: Mutex<Vec<String>>,
    waiting: Mutex<BTreeSet<String>>,
}

impl Extensions {
    /// Whether an extension of that name was added and not yet started with.
    pub(crate) fn waits(&self, name: &str) -> bool {
        self.waiting.lock().contains(name)
    }

    /// Notes one that waits.
    fn wait(&self, name: String) {
        self.waiting.lock().insert(name);
    }

    /// Those that Chromium has after `added` came.
    pub(crate) fn after(&self, added: &[String]) -> Vec<String> {
        let mut all = self.loaded();
        for name in added {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        all
    }

    /// Those Chromium was started with, in order.
    pub(crate) fn loaded(&self) -> Vec<String> {
        self.loaded.lock().clone()
    }

    /// Puts those that wait in their places, below `directory`. No Chromium may run.
    pub(crate) fn take(&self, directory: &Path, added: &[String]) -> io::Result<()> {
        let all = self.after(added);
        for name in added {
            let (from, to) = (directory.join(WAITING).join(name), directory.join(name));
            clear(&to)?;
            fs::rename(from, to)?;
            self.waiting.lock().remove(name);
        }
        *self.loaded.lock() = all;
        Ok(())
    }

    /// Those that are not among `taken`, which Chromium tells.
    pub(crate) fn missing(&self, directory: &Path, taken: &[String]) -> Vec<String> {
        let is_taken = |name: &String| taken.iter().any(|path| Path::new(path) == directory.join(name));
        self.loaded().into_iter().filter(|name| !is_taken(name)).collect()
    }

    /// Forgets those that Chromium did not take.
    pub(crate) fn forget(&self, refused: &[String]) {
        self.loaded.lock().retain(|name| !refused.contains(name));
    }

    /// Where Chromium finds them.
    pub(crate) fn paths(&self, directory: &Path) -> Vec<PathBuf> {
        self.loaded().iter().map(|name| directory.join(name)).collect()
    }
}

/// `/v1/extension/…`.
pub(crate) async fn serve(core: &AgentState, head: &Parts, body: Incoming) -> Answer {
    match head.uri.path() {
        ADD => add(core, arguments(head)?, body).await,
        other => Err(Refusal::new(ErrorCode::NotFound, format_args!("no such operation: {other}"))),
    }
}

async fn add(core: &AgentState, ExtensionName { name }: ExtensionName, body: Incoming) -> Answer {
    if !is_extension_name(&name) || name == WAITING {
        return Err(Refusal::new(ErrorCode::BadRequest, "an extension cannot have that name"));
    }
    if core.extensions.waiting.lock().len() >= MAX_EXTENSIONS {
        return Err(Refusal::new(ErrorCode::LimitReached, "too many extensions wait to be loaded"));
    }
    let waiting = core.config.extensions.join(WAITING);
    let archive = receive(&waiting, body, MAX_EXTENSION_BYTES, WHAT).await?;
    let unpacked = {
        let name = name.clone();
        tokio::task::spawn_blocking(move || unpack(archive, &waiting, &name)).await
    };
    unpacked.map_err(|e| Refusal::new(ErrorCode::Internal, e))?.map_err(unpack_refusal)?;
    core.extensions.wait(name);
    Ok(empty())
}

fn unpack(archive: File, waiting: &Path, name: &str) -> Result<(), ArchiveError> {
    // Whole or not at all under its name: a directory of a name that no extension has is unpacked into.
    static FRESH: AtomicU64 = AtomicU64::new(0);
    let fresh = waiting.join(format!(":{}", FRESH.fetch_add(1, Ordering::Relaxed)));
    let place = waiting.join(name);
    fs::create_dir(&fresh)?;
    let installed = extension::install(archive, &fresh);
    if installed.is_err() {
        clear(&fresh)?;
        return installed;
    }
    clear(&place)?;
    Ok(fs::rename(fresh, place)?)
}

fn clear(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn unpack_refusal(error: ArchiveError) -> Refusal {
    match error {
        ArchiveError::Io(error) => disk(error, WHAT),
        bad => Refusal::new(ErrorCode::NotAllowed, bad).of_field("file"),
    }
}
