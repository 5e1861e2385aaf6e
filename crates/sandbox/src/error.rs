//! What can go wrong, with what a reader needs to put it right.

use std::io;
use std::path::{Path, PathBuf};

/// A step that the operating system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub struct StepError {
    /// What was tried, as a verb.
    pub what: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// Gives an I/O error its context.
pub(crate) trait Step<T> {
    fn step(self, what: &'static str, path: impl AsRef<Path>) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, what: &'static str, path: impl AsRef<Path>) -> Result<T, StepError> {
        self.map_err(|source| StepError { what, path: path.as_ref().to_owned(), source: source.into() })
    }
}

/// Why a host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A program that is needed is not there.
    #[error("{program} is not at {}; {remedy}", path.display())]
    Missing {
        /// Its name.
        program: &'static str,
        /// Where it was looked for.
        path: PathBuf,
        /// What to do.
        remedy: &'static str,
    },
    /// The unprivileged users of the sandboxes cannot reach the root directory.
    #[error("{} cannot be traversed by other users, so no sandbox could reach {}; chmod o+x it, or put the data directory elsewhere (such as /var/lib/casement)", parent.display(), root.display())]
    NotTraversable {
        /// The root directory of the host.
        root: PathBuf,
        /// The parent in the way.
        parent: PathBuf,
    },
    /// The range of host users is unusable.
    #[error("the range of host users must begin above 0 and hold at least one")]
    NoUids,
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// Why a sandbox did not start. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The description is not usable.
    #[error("{field}: {reason}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// There is a sandbox of this id, or the remains of one.
    #[error("a sandbox {0} is already there")]
    Exists(String),
    /// Every host user of the range is taken.
    #[error("all {0} host users of the configured range are taken")]
    NoUidLeft(u32),
    /// bubblewrap did not make the sandbox.
    #[error("the sandbox was refused: {said}; {remedy}")]
    Refused {
        /// What bubblewrap wrote.
        said: String,
        /// What may help.
        remedy: &'static str,
    },
    /// bubblewrap did not answer in time.
    #[error("the sandbox was not there after {0} seconds")]
    TimedOut(u64),
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// Why sandboxes could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A sandbox could not be ended.
    #[error(transparent)]
    End(#[from] EndError),
}

/// Why something of a sandbox remains.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// Not an id.
    #[error("{0:?} is not the id of a sandbox")]
    InvalidId(String),
    /// Processes did not go, though killed.
    #[error("{count} processes of sandbox {id} are still there {seconds} seconds after SIGKILL")]
    StillThere {
        /// Which sandbox.
        id: String,
        /// How many.
        count: usize,
        /// For how long they were waited for.
        seconds: u64,
    },
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
}
