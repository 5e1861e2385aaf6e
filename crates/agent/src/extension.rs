//! The extensions of a session: those that were added and wait for the next start of Chromium, and those it was started with.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where unpacked extensions lie until Chromium is started with them, beside those it has.
const WAITING: &str = ".waiting";

/// What is known of them. The names are checked before they come here.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    loaded: Mutex<Vec<String>>,
    waiting: Mutex<BTreeSet<String>>,
}

impl Extensions {
    /// Whether an extension of that name was added and not yet started with.
    pub(crate) fn waits(&self, name: &str) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
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
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts those that wait in their places, below `directory`. No Chromium may run.
    pub(crate) fn take(&self, directory: &Path, added: &[String]) -> io::Result<()> {
        let all = self.after(added);
        for name in added {
            let (from, to) = (directory.join(WAITING).join(name), directory.join(name));
            match std::fs::remove_dir_all(&to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            std::fs::rename(from, to)?;
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        }
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(())
    }

    /// Those that are not among `taken`, which Chromium tells.
    pub(crate) fn missing(&self, directory: &Path, taken: &[String]) -> Vec<String> {
        let is_taken = |name: &String| taken.iter().any(|path| Path::new(path) == directory.join(name));
        self.loaded().into_iter().filter(|name| !is_taken(name)).collect()
    }

    /// Forgets those that Chromium did not take.
    pub(crate) fn forget(&self, refused: &[String]) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).retain(|name| !refused.contains(name));
    }

    /// Where Chromium finds them.
    pub(crate) fn paths(&self, directory: &Path) -> Vec<PathBuf> {
        self.loaded().iter().map(|name| directory.join(name)).collect()
    }
}
