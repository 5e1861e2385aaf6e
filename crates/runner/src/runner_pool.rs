//! Runs the actions of deployments. Each deployment has a loaded process that waits, runs one call and ends.

mod call;
mod deployment_pool;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::clock::{Clock, IdSource};
use casement_domain::deployment::Lines;
use casement_domain::ids::{DeploymentId, InvocationId};
use casement_domain::invocation::{AdoptedCalls, Call, FailedDeployment, RunFailure, Runnable, Runner};
use casement_sandbox::Sandbox;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::artifact::Artifacts;
use crate::build::AppBuilder;
use crate::call_records::{CallRecords, EarlierCalls};
use crate::config::{AppRunnerConfig, AppRunnerSetupError};
use crate::egress::{AppEgressPort, EgressPolicy};
use crate::failure;
use crate::host::{AppSandbox, AppSandboxes, authority};

use deployment_pool::DeploymentPool;

/// The maximum number of simultaneous loads; each load occupies a core.
const MAX_LOADING: usize = 4;

/// The clocks of nodes differ by less than this. A call that was accepted within this time after the boot of the kernel may be
/// from before it.
const BOOT_MARGIN: time::Duration = time::Duration::minutes(1);

/// Runs actions on this node.
pub struct AppRunnerPool(Arc<Inner>);

struct Inner {
    sandboxes: Arc<AppSandboxes>,
    artifacts: Arc<Artifacts>,
    call_records: CallRecords,
    clock: Arc<dyn Clock>,
    loading: Arc<Semaphore>,
    pools: Mutex<HashMap<DeploymentId, Arc<DeploymentPool>>>,
    calls: Mutex<HashMap<InvocationId, RunningCall>>,
    /// The sandboxes and records of calls of a previous server process.
    adopted: Mutex<HashMap<InvocationId, call::AdoptedCall>>,
    failed_sender: mpsc::UnboundedSender<FailedDeployment>,
    failed_receiver: tokio::sync::Mutex<mpsc::UnboundedReceiver<FailedDeployment>>,
}

/// The result of a call; `None` until it has ended.
type CallResult = Option<Result<Option<String>, RunFailure>>;

/// A call that this server process runs or waits for.
struct RunningCall {
    /// Cancelled to end the call.
    cancellation: CancellationToken,
    ended: watch::Receiver<CallResult>,
}

impl AppRunnerPool {
    /// Creates a pool that runs the artifacts of `app_builder`, with its directories. Must be called within the runtime
    /// that serves the sandboxes' egress.
    ///
    /// # Errors
    /// If the host cannot run sandboxes, or a directory cannot be created.
    pub fn new(
        config: AppRunnerConfig,
        app_builder: &AppBuilder,
        egress: Arc<dyn AppEgressPort>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, AppRunnerSetupError> {
        let artifacts = Arc::clone(app_builder.artifacts());
        let path = config.data_dir.join("calls");
        let call_records =
            CallRecords::new(path.clone()).map_err(|source| AppRunnerSetupError::Directory { path, source })?;
        let sandboxes = Arc::new(AppSandboxes::new(config, "processes", egress, ids)?);
        let (failed_sender, failed_receiver) = mpsc::unbounded_channel();
        Ok(Self(Arc::new(Inner {
            sandboxes,
            artifacts,
            call_records,
            clock,
            loading: Arc::new(Semaphore::new(MAX_LOADING)),
            pools: Mutex::default(),
            calls: Mutex::default(),
            adopted: Mutex::default(),
            failed_sender,
            failed_receiver: tokio::sync::Mutex::new(failed_receiver),
        })))
    }
}

impl Inner {
    fn pools(&self) -> MutexGuard<'_, HashMap<DeploymentId, Arc<DeploymentPool>>> {
        self.pools.lock()
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<InvocationId, RunningCall>> {
        self.calls.lock()
    }

    fn adopted(&self) -> MutexGuard<'_, HashMap<InvocationId, call::AdoptedCall>> {
        self.adopted.lock()
    }

    /// Returns the pool of a deployment. A new pool has no ready process.
    fn pool(self: &Arc<Self>, runnable: &Runnable) -> Arc<DeploymentPool> {
        let mut pools = self.pools();
        let pool = pools
            .entry(runnable.deployment)
            .or_insert_with(|| Arc::new(DeploymentPool::new(self, runnable.clone(), 0)));
        Arc::clone(pool)
    }

    /// Starts a call as a task, and returns the receiver of its result; `None` if the call runs already.
    fn spawn_call<F>(
        self: &Arc<Self>,
        id: InvocationId,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Option<watch::Receiver<CallResult>>
    where
        F: Future<Output = Result<Option<String>, RunFailure>> + Send + 'static,
    {
        let cancellation = CancellationToken::new();
        let (sender, ended) = watch::channel(None);
        {
            let mut calls = self.calls();
            if calls.contains_key(&id) {
                return None;
            }
            calls.insert(id, RunningCall { cancellation: cancellation.clone(), ended: ended.clone() });
        }
        let work = work(cancellation);
        tokio::spawn(async move {
            let end = work.await;
            sender.send_replace(Some(end));
        });
        Some(ended)
    }

    /// Adopts the sandboxes and records of a previous server process. Returns their calls.
    async fn adopt_calls(self: &Arc<Self>) -> AdoptedCalls {
        let EarlierCalls { records: recorded, is_complete } = self.call_records.read_all();
        let keep: HashSet<String> =
            recorded.iter().filter(|(_, note)| note.outcome.is_none()).map(|(_, note)| note.sandbox.clone()).collect();
        if let Err(error) = self.sandboxes.host.sweep(&keep).await {
            tracing::warn!(%error, "cannot end processes of a previous server process");
        }
        let sandboxes = self.sandboxes.host.list().await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot list processes of a previous server process");
            Vec::new()
        });
        let mut sandboxes: HashMap<String, Sandbox> =
            sandboxes.into_iter().map(|sandbox| (sandbox.id.clone(), sandbox)).collect();
        let mut calls = Vec::new();
        for (id, note) in recorded {
            let app_sandbox = sandboxes.remove(&note.sandbox).map(|sandbox| {
                let policy = EgressPolicy::Web(note.base.as_deref().and_then(authority).into_iter().collect());
                if let Err(error) = self.sandboxes.serve(&sandbox, policy) {
                    tracing::warn!(call = %id, %error, "cannot serve the egress of an adopted call");
                }
                AppSandbox::adopted(&self.sandboxes, sandbox)
            });
            self.adopted().insert(id, call::AdoptedCall { note, app_sandbox });
            calls.push(id);
        }
        let complete_since = is_complete.then(|| self.clock.now() - uptime() + BOOT_MARGIN);
        AdoptedCalls { calls, complete_since }
    }
}

/// Returns the time since the boot of the kernel.
fn uptime() -> time::Duration {
    time::Duration::seconds(rustix::system::sysinfo().uptime)
}

async fn wait_for_end(mut ended: watch::Receiver<CallResult>) -> Result<Option<String>, RunFailure> {
    match ended.wait_for(Option::is_some).await {
        Ok(end) => end.clone().unwrap_or_else(|| Err(failure::host("the call was lost"))),
        Err(_) => Err(failure::host("the call was lost")),
    }
}

#[async_trait]
impl Runner for AppRunnerPool {
    fn keep(&self, ready: Vec<Runnable>) {
        let wanted: HashSet<DeploymentId> = ready.iter().map(|runnable| runnable.deployment).collect();
        let mut pools = self.0.pools();
        pools.retain(|id, pool| wanted.contains(id) || pool.close());
        for runnable in ready {
            let pool =
                pools.entry(runnable.deployment).or_insert_with(|| Arc::new(DeploymentPool::new(&self.0, runnable, 1)));
            pool.keep();
        }
    }

    async fn failed_deployment(&self) -> FailedDeployment {
        match self.0.failed_receiver.lock().await.recv().await {
            Some(failed_deployment) => failed_deployment,
            None => std::future::pending().await,
        }
    }

    async fn run(&self, call: Call, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure> {
        let (id, inner) = (call.invocation, Arc::clone(&self.0));
        let started =
            self.0.spawn_call(id, |cancellation| async move { call::run(&inner, call, lines, cancellation).await });
        wait_for_end(started.ok_or_else(|| failure::host("the call runs already"))?).await
    }

    async fn adopt(&self) -> AdoptedCalls {
        self.0.adopt_calls().await
    }

    async fn resume(&self, invocation: InvocationId, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure> {
        let inner = Arc::clone(&self.0);
        let Some(adopted) = self.0.adopted().remove(&invocation) else {
            let known = self.0.calls().get(&invocation).map(|call| call.ended.clone());
            return wait_for_end(known.ok_or_else(|| failure::lost("its process was lost with the server"))?).await;
        };
        let started = self.0.spawn_call(invocation, |cancellation| async move {
            call::resume(&inner, invocation, adopted, lines, cancellation).await
        });
        wait_for_end(started.ok_or_else(|| failure::host("the call runs already"))?).await
    }

    async fn end(&self, invocation: InvocationId) {
        let known = self.0.calls().remove(&invocation);
        if let Some(call) = known {
            call.cancellation.cancel();
            // The result arrives after the sandbox has ended.
            wait_for_end(call.ended).await.ok();
        }
        let adopted = self.0.adopted().remove(&invocation);
        if let Some(app_sandbox) = adopted.and_then(|adopted| adopted.app_sandbox) {
            app_sandbox.end().await;
        }
        self.0.call_records.remove(invocation);
    }

    async fn close(&self) {
        let pools = std::mem::take(&mut *self.0.pools());
        for pool in pools.into_values() {
            pool.close();
        }
        self.0.sandboxes.close().await;
    }
}
