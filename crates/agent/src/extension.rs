//! The extensions of a session: added ones, which are pending until the next start of Chromium, and loaded ones.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use casement_archive::{ArchiveError, extension};
use http::request::Parts;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::receive::{disk_refusal, receive, remove_directory};
use crate::reply::{Answer, Refusal, arguments, empty};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::extension::{ADD, ExtensionName, MAX_EXTENSION_BYTES, MAX_EXTENSIONS, is_extension_name};

/// The directory of pending extensions, beside the loaded ones.
const PENDING: &str = ".waiting";
const DESCRIPTION: &str = "an extension";

/// The extensions, by their checked names.
#[derive(Debug)]
pub(crate) struct Extensions {
    directory: PathBuf,
    loaded: Mutex<Vec<String>>,
    pending: Mutex<BTreeSet<String>>,
}

impl Extensions {
    /// Creates the set of extensions below `directory`; there are none yet.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, loaded: Mutex::default(), pending: Mutex::default() }
    }

    /// Returns true if an extension of that name was added and is not loaded yet.
    pub(crate) fn is_pending(&self, name: &str) -> bool {
        self.pending.lock().contains(name)
    }

    /// Returns the extensions that Chromium has once `added` are loaded.
    pub(crate) fn with_added(&self, added: &[String]) -> Vec<String> {
        let mut all = self.loaded();
        for name in added {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        all
    }

    /// Returns the extensions that Chromium was started with, in order.
    pub(crate) fn loaded(&self) -> Vec<String> {
        self.loaded.lock().clone()
    }

    /// Moves pending extensions to the directories from which Chromium loads them. Chromium must not run.
    pub(crate) fn install(&self, added: &[String]) -> io::Result<()> {
        let all = self.with_added(added);
        for name in added {
            let (from, to) = (self.directory.join(PENDING).join(name), self.directory.join(name));
            remove_directory(&to)?;
            fs::rename(from, to)?;
            self.pending.lock().remove(name);
        }
        *self.loaded.lock() = all;
        Ok(())
    }

    /// Returns the loaded extensions that are not in `listed`, the paths that Chromium reports.
    pub(crate) fn missing(&self, listed: &[String]) -> Vec<String> {
        let is_listed = |name: &String| listed.iter().any(|path| Path::new(path) == self.directory.join(name));
        self.loaded().into_iter().filter(|name| !is_listed(name)).collect()
    }

    /// Removes the extensions that Chromium refused.
    pub(crate) fn remove(&self, refused: &[String]) {
        self.loaded.lock().retain(|name| !refused.contains(name));
    }

    /// Returns the paths of the loaded extensions.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.loaded().iter().map(|name| self.directory.join(name)).collect()
    }

    /// Serves `/v1/extension/…`.
    pub(crate) async fn serve(&self, head: &Parts, body: Incoming) -> Answer {
        match head.uri.path() {
            ADD => self.add(arguments(head)?, body).await,
            other => Err(Refusal::no_operation(other)),
        }
    }

    async fn add(&self, ExtensionName { name }: ExtensionName, body: Incoming) -> Answer {
        if !is_extension_name(&name) || name == PENDING {
            return Err(Refusal::new(ErrorCode::BadRequest, "an extension cannot have that name"));
        }
        if self.pending.lock().len() >= MAX_EXTENSIONS {
            return Err(Refusal::new(ErrorCode::LimitReached, "too many extensions wait to be loaded"));
        }
        let pending = self.directory.join(PENDING);
        let archive = receive(&pending, body, MAX_EXTENSION_BYTES, DESCRIPTION).await?;
        let unpacked = {
            let name = name.clone();
            tokio::task::spawn_blocking(move || unpack(archive, &pending, &name)).await
        };
        unpacked.map_err(|e| Refusal::new(ErrorCode::Internal, e))?.map_err(unpack_refusal)?;
        self.pending.lock().insert(name);
        Ok(empty())
    }
}

fn unpack(archive: File, pending: &Path, name: &str) -> Result<(), ArchiveError> {
    // Unpacked under a name that no extension has, so that an extension appears as a whole or not at all.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let temporary = pending.join(format!(":{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let target = pending.join(name);
    fs::create_dir(&temporary)?;
    let installed = extension::install(archive, &temporary);
    if installed.is_err() {
        remove_directory(&temporary)?;
        return installed;
    }
    remove_directory(&target)?;
    Ok(fs::rename(temporary, target)?)
}

fn unpack_refusal(error: ArchiveError) -> Refusal {
    match error {
        ArchiveError::Io(error) => disk_refusal(error, DESCRIPTION),
        refused => Refusal::new(ErrorCode::NotAllowed, refused).of_field("file"),
    }
}
