//! The ports of invocations.

use std::sync::Arc;

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::deployment::{Entrypoint, Environment, Lines};
use crate::ids::{DeploymentId, InvocationId, ProjectId};

/// A running deployment with all that its processes need.
#[derive(Clone, Debug)]
pub struct Runnable {
    /// The identifier of the deployment.
    pub deployment: DeploymentId,
    /// The project.
    pub project: ProjectId,
    /// The artifact; see [`Built::artifact`](crate::deployment::Built::artifact).
    pub artifact: String,
    /// The file that the processes load.
    pub entrypoint: Entrypoint,
    /// The environment variables.
    pub environment: Environment,
}

/// The limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The memory of all processes of the call.
    pub memory_bytes: u64,
    /// The number of processes and threads.
    pub processes: u32,
    /// The bytes that the call may write to its disk.
    pub disk_bytes: u64,
    /// The length of the JSON text of the result.
    pub output_bytes: u64,
}

impl CallLimits {
    /// The default limits.
    pub const DEFAULT: Self =
        Self { memory_bytes: 1 << 30, processes: 256, disk_bytes: 1 << 30, output_bytes: 1 << 20 };
}

/// One run of an action.
#[derive(Clone, Debug)]
pub struct Call {
    /// The identifier of the invocation.
    pub invocation: InvocationId,
    /// The deployment.
    pub runnable: Runnable,
    /// The app.
    pub app: String,
    /// The action.
    pub action: String,
    /// The payload: JSON text.
    pub payload: Option<String>,
    /// The limits.
    pub limits: CallLimits,
    /// The deadline, at which the caller of [`Runner::run`] ends the call, or the sandbox ends by itself soon after.
    pub deadline: OffsetDateTime,
}

/// The cause of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFault {
    /// The action raised an error, or cannot be called.
    Raised,
    /// The process ended, or was ended because it exceeded a limit.
    Died,
    /// The process ended, and the result is unknown.
    Lost,
    /// The result is not JSON, or is too long.
    Result,
    /// The server failed: there was no process for the call.
    Host,
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct RunFailure {
    /// The cause.
    pub fault: RunFault,
    /// The reason for the caller, without secrets; its first 1,000 characters are shown.
    pub reason: String,
}

/// A deployment whose processes can no longer be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedDeployment {
    /// The identifier of the deployment.
    pub deployment: DeploymentId,
    /// The reason for the caller, without secrets; its first 1,000 characters are shown.
    pub reason: String,
}

/// The calls from before a restart of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedCalls {
    /// The calls that a process may have received and that were not ended: they run or have ended.
    pub calls: Vec<InvocationId>,
    /// The moment since which no call can be missing: another call that was accepted later was received by no process.
    /// `None`: any may be missing.
    pub complete_since: Option<OffsetDateTime>,
}

/// The port that runs actions on this node.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Runner: Send + Sync {
    /// Sets the deployments that are held ready, each with a loaded process. Returns at once; processes are loaded and
    /// ended in the background. Running calls are not affected.
    fn keep(&self, ready: Vec<Runnable>);

    /// Waits for the next deployment that cannot be held ready because its entrypoint failed to load repeatedly.
    async fn failed_deployment(&self) -> FailedDeployment;

    /// Runs a call in a sandbox of its own, with the waiting process if there is one, else with a newly loaded one.
    /// Returns the JSON text of the result (`None`: no result), after all of its lines were pushed.
    ///
    /// Dropping the future does not end the call: its process continues, even if the server is killed. Its result is
    /// available until [`end`](Self::end) is called, also after restarts of the server.
    async fn run(&self, call: Call, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure>;

    /// Returns the calls from before the restart of the server that were not ended: they are running or have ended.
    /// Called once, before anything else.
    async fn adopt(&self) -> AdoptedCalls;

    /// Like [`run`](Self::run), for an adopted call.
    async fn resume(&self, invocation: InvocationId, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure>;

    /// Ends all processes of a call and deletes its result; a waiting `run` fails. Unknown calls are ignored.
    async fn end(&self, invocation: InvocationId);

    /// Ends all processes, of calls too, and returns when nothing of them is left. None is started from then on.
    async fn close(&self);
}
