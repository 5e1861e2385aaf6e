//! The ports of invocations.

use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::deployment::{Entrypoint, Environment, Lines};
use crate::ids::{DeploymentId, InvocationId, ProjectId};

/// A deployment that runs, with all that a process of it needs.
#[derive(Clone, Debug)]
pub struct Runnable {
    /// The identifier.
    pub deployment: DeploymentId,
    /// Whose.
    pub project: ProjectId,
    /// As [`Built::artifact`](crate::deployment::Built::artifact) said.
    pub artifact: String,
    /// What is loaded.
    pub entrypoint: Entrypoint,
    /// What it finds.
    pub environment: Environment,
}

/// What one call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Memory of all its processes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u32,
    /// What it may write to its disk.
    pub disk_bytes: u64,
    /// How long the JSON text of its result may be.
    pub output_bytes: u64,
}

impl CallLimits {
    /// Unless configured.
    pub const DEFAULT: Self =
        Self { memory_bytes: 1 << 30, processes: 256, disk_bytes: 1 << 30, output_bytes: 1 << 20 };
}

/// One run of an action.
#[derive(Clone, Debug)]
pub struct Call {
    /// The identifier.
    pub invocation: InvocationId,
    /// Of what.
    pub runnable: Runnable,
    /// Which app.
    pub app: String,
    /// Which of its actions.
    pub action: String,
    /// JSON text, if any was given.
    pub payload: Option<String>,
    /// What it may use.
    pub limits: CallLimits,
    /// Until when. The caller of [`Runner::run`] ends it then; if there is nobody, its sandbox ends by itself soon after.
    pub deadline: OffsetDateTime,
}

/// What a call came to grief by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFault {
    /// The action raised, or has no such form.
    Raised,
    /// Its process died, or was ended because it went over a limit.
    Died,
    /// Its process is gone, and nobody knows how it ended.
    Lost,
    /// What it returned is not JSON, or too long.
    Result,
    /// Ours: there was no process to give it to.
    Host,
}

/// A call did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct RunFailure {
    /// By what.
    pub fault: RunFault,
    /// For the one who called, without secrets; its first 1,000 characters are shown.
    pub reason: String,
}

/// A deployment of which no process can be loaded any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedDeployment {
    /// The identifier.
    pub deployment: DeploymentId,
    /// For the one who deployed, without secrets; its first 1,000 characters are shown.
    pub reason: String,
}

/// Runs actions on this node.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Runner: Send + Sync {
    /// From now on these deployments, and no others, are held ready: of each a loaded process waits. Returns at once; loading and
    /// ending go on behind it. Calls that run are not touched.
    fn keep(&self, ready: Vec<Runnable>);

    /// The next deployment that this node was told to keep and cannot: its entrypoint failed to load again and again. Waits for one.
    async fn failed_deployment(&self) -> FailedDeployment;

    /// Runs a call in a sandbox of its own, with the process that waits if there is one, else with one loaded for it, and answers the JSON
    /// text of what it returned (`None`: nothing), once all of its lines were pushed.
    ///
    /// Who drops the future ends nothing: the process goes on, and so does it when this server is killed. Its end stays known until
    /// [`end`](Self::end) is called, over restarts of the server too.
    async fn run(&self, call: Call, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure>;

    /// The calls that this node was given before it was started anew and whose end nobody asked for: they run still, or have ended. Asked
    /// once, before anything else.
    async fn adopt(&self) -> Vec<InvocationId>;

    /// As the end of [`run`](Self::run), of a call that was adopted.
    async fn resume(&self, invocation: InvocationId, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure>;

    /// Ends all processes of a call if any runs, and forgets its end; a `run` that waits for it fails. Of one that is not known, nothing.
    async fn end(&self, invocation: InvocationId);
}
