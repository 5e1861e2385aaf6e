//! The errors, with the information to resolve them.

use std::io;
use std::path::{Path, PathBuf};

use crate::own_groups::Shortage;

/// A step that the operating system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub struct StepError {
    /// The step, as a verb.
    pub what: &'static str,
    /// The object of the step.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

/// Adds the context of a step to an I/O error.
pub(crate) trait Step<T> {
    fn step(self, what: &'static str, path: impl AsRef<Path>) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, what: &'static str, path: impl AsRef<Path>) -> Result<T, StepError> {
        self.map_err(|source| StepError { what, path: path.as_ref().to_owned(), source: source.into() })
    }
}

/// The reason why a host cannot run sandboxes.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A required program is missing.
    #[error("{program} is not at {}; {remedy}", path.display())]
    Missing {
        /// The name of the program.
        program: &'static str,
        /// The path where it was expected.
        path: PathBuf,
        /// The remedy.
        remedy: &'static str,
    },
    /// The unprivileged users of the sandboxes cannot reach the root directory.
    #[error("{} cannot be traversed by other users, so no sandbox could reach {}; chmod o+x it, or put the data directory elsewhere (such as /var/lib/casement)", parent.display(), root.display())]
    NotTraversable {
        /// The root directory of the host.
        root: PathBuf,
        /// The parent that other users cannot traverse.
        parent: PathBuf,
    },
    /// The range of host users is unusable.
    #[error("the range of host users must begin above 0 and hold at least one")]
    NoUids,
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// The reason why a sandbox did not start. Nothing of the sandbox is left.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The specification is invalid.
    #[error("{field}: {reason}")]
    Invalid {
        /// The invalid field.
        field: &'static str,
        /// The reason.
        reason: String,
    },
    /// A sandbox with this id, or the remains of one, exists.
    #[error("a sandbox {0} is already there")]
    Exists(String),
    /// Every host user of the range is in use.
    #[error("all {0} host users of the configured range are taken")]
    NoUidLeft(u32),
    /// The control groups of the service have no room for another sandbox.
    #[error(transparent)]
    NoRoom(#[from] Shortage),
    /// bubblewrap did not create the sandbox.
    #[error("the sandbox was refused: {output}; {remedy}")]
    Refused {
        /// The output of bubblewrap.
        output: String,
        /// The possible remedy.
        remedy: &'static str,
    },
    /// bubblewrap did not answer in time.
    #[error("the sandbox was not ready after {0} seconds")]
    TimedOut(u64),
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// The reason why sandboxes could not be listed or swept.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A sandbox could not be ended.
    #[error(transparent)]
    End(#[from] EndError),
}

/// The reason why the remains of a sandbox could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The text is not a valid id.
    #[error("{0:?} is not the id of a sandbox")]
    InvalidId(String),
    /// Processes did not end although they were killed.
    #[error("{count} processes of sandbox {id} are still there {seconds} seconds after SIGKILL")]
    StillThere {
        /// The id of the sandbox.
        id: String,
        /// The number of processes.
        count: usize,
        /// The seconds since the processes were killed.
        seconds: u64,
    },
    /// The system refused a step.
    #[error(transparent)]
    Step(#[from] StepError),
}
