//! Running: of every deployment a loaded process waits, takes one call and ends.

mod call;
mod deployment_pool;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use casement_domain::clock::{Clock, IdSource};
use casement_domain::deployment::Lines;
use casement_domain::ids::{DeploymentId, InvocationId};
use casement_domain::invocation::{Call, FailedDeployment, RunFailure, Runnable, Runner};
use casement_sandbox::Sandbox;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::artifact::Artifacts;
use crate::build::AppBuilder;
use crate::call_records::CallRecords;
use crate::config::{AppRunnerConfig, AppRunnerSetupError};
use crate::egress::{AppEgressPort, EgressPolicy};
use crate::failure;
use crate::host::{AppSandbox, AppSandboxes, authority};

use deployment_pool::DeploymentPool;

/// Processes that are loaded at a time: each keeps a core busy.
const LOADING_AT_ONCE: usize = 4;

/// Runs actions on this node.
pub struct AppRunnerPool(Arc<Inner>);

struct Inner {
    rooms: Arc<AppSandboxes>,
    artifacts: Arc<Artifacts>,
    call_records: CallRecords,
    clock: Arc<dyn Clock>,
    loading: Arc<Semaphore>,
    pools: Mutex<HashMap<DeploymentId, Arc<DeploymentPool>>>,
    calls: Mutex<HashMap<InvocationId, RunningCall>>,
    /// Sandboxes of calls of an earlier life, and what was noted of them.
    adopted: Mutex<HashMap<InvocationId, call::AdoptedCall>>,
    fall: mpsc::UnboundedSender<FailedDeployment>,
    failed_deployment: tokio::sync::Mutex<mpsc::UnboundedReceiver<FailedDeployment>>,
}

/// How a call ended, once it has.
type End = Option<Result<Option<String>, RunFailure>>;

/// A call that this server knows of.
struct RunningCall {
    /// Ends it.
    unwanted: CancellationToken,
    ended: watch::Receiver<End>,
}

impl AppRunnerPool {
    /// Runs what the workshop builds; makes its directories. Must be called inside the runtime that its sandboxes' ways out are served in.
    ///
    /// # Errors
    /// If there can be no sandboxes, or a directory cannot be made.
    pub fn new(
        config: AppRunnerConfig,
        workshop: &AppBuilder,
        egress: Arc<dyn AppEgressPort>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Self, AppRunnerSetupError> {
        let artifacts = Arc::clone(workshop.artifacts());
        let path = config.data_dir.join("calls");
        let call_records =
            CallRecords::new(path.clone()).map_err(|source| AppRunnerSetupError::Directory { path, source })?;
        let rooms = Arc::new(AppSandboxes::new(config, "processes", egress, ids)?);
        let (fall, failed_deployment) = mpsc::unbounded_channel();
        Ok(Self(Arc::new(Inner {
            rooms,
            artifacts,
            call_records,
            clock,
            loading: Arc::new(Semaphore::new(LOADING_AT_ONCE)),
            pools: Mutex::default(),
            calls: Mutex::default(),
            adopted: Mutex::default(),
            fall,
            failed_deployment: tokio::sync::Mutex::new(failed_deployment),
        })))
    }
}

impl Inner {
    fn pools(&self) -> MutexGuard<'_, HashMap<DeploymentId, Arc<DeploymentPool>>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<InvocationId, RunningCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn adopted(&self) -> MutexGuard<'_, HashMap<InvocationId, call::AdoptedCall>> {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool of a deployment; one that is not kept ready has nobody waiting.
    fn pool(self: &Arc<Self>, runnable: &Runnable) -> Arc<DeploymentPool> {
        let mut pools = self.pools();
        let pool = pools
            .entry(runnable.deployment)
            .or_insert_with(|| Arc::new(DeploymentPool::new(self, runnable.clone(), 0)));
        Arc::clone(pool)
    }

    /// Begins to mind a call, and answers how to hear of its end.
    fn mind<F>(
        self: &Arc<Self>,
        id: InvocationId,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Option<watch::Receiver<End>>
    where
        F: Future<Output = Result<Option<String>, RunFailure>> + Send + 'static,
    {
        let unwanted = CancellationToken::new();
        let (say, ended) = watch::channel(None);
        {
            let mut calls = self.calls();
            if calls.contains_key(&id) {
                return None;
            }
            calls.insert(id, RunningCall { unwanted: unwanted.clone(), ended: ended.clone() });
        }
        let work = work(unwanted);
        tokio::spawn(async move {
            let end = work.await;
            say.send_replace(Some(end));
        });
        Some(ended)
    }

    /// Takes hold of what an earlier life of the server left.
    async fn find(self: &Arc<Self>) -> Vec<InvocationId> {
        let noted = self.call_records.read().unwrap_or_else(|error| {
            tracing::error!(%error, "the notes of earlier calls cannot be read");
            Vec::new()
        });
        let keep: HashSet<String> =
            noted.iter().filter(|(_, note)| note.outcome.is_none()).map(|(_, note)| note.sandbox.clone()).collect();
        if let Err(error) = self.rooms.host.sweep(&keep).await {
            tracing::warn!(%error, "processes of an earlier life could not be ended");
        }
        let living = self.rooms.host.list().await.unwrap_or_else(|error| {
            tracing::error!(%error, "processes of an earlier life cannot be found");
            Vec::new()
        });
        let mut living: HashMap<String, Sandbox> =
            living.into_iter().map(|sandbox| (sandbox.id.clone(), sandbox)).collect();
        let mut found = Vec::new();
        for (id, note) in noted {
            let room = living.remove(&note.sandbox).map(|sandbox| {
                let reach = EgressPolicy::Web(note.base.as_deref().and_then(authority).into_iter().collect());
                if let Err(error) = self.rooms.serve(&sandbox, reach) {
                    tracing::warn!(call = %id, %error, "a call of an earlier life has no way out");
                }
                AppSandbox::found(&self.rooms, sandbox)
            });
            self.adopted().insert(id, call::AdoptedCall { note, room });
            found.push(id);
        }
        found
    }
}

async fn end_of(mut ended: watch::Receiver<End>) -> Result<Option<String>, RunFailure> {
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
        match self.0.failed_deployment.lock().await.recv().await {
            Some(failed_deployment) => failed_deployment,
            None => std::future::pending().await,
        }
    }

    async fn run(&self, call: Call, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure> {
        let (id, inner) = (call.invocation, Arc::clone(&self.0));
        let minded = self.0.mind(id, |unwanted| async move { call::run(&inner, call, lines, unwanted).await });
        end_of(minded.ok_or_else(|| failure::host("the call runs already"))?).await
    }

    async fn adopt(&self) -> Vec<InvocationId> {
        self.0.find().await
    }

    async fn resume(&self, invocation: InvocationId, lines: Arc<dyn Lines>) -> Result<Option<String>, RunFailure> {
        let inner = Arc::clone(&self.0);
        let Some(adopted) = self.0.adopted().remove(&invocation) else {
            let known = self.0.calls().get(&invocation).map(|call| call.ended.clone());
            return end_of(known.ok_or_else(|| failure::lost("its process was lost with the server"))?).await;
        };
        let minded = self.0.mind(invocation, |unwanted| async move {
            call::resume(&inner, invocation, adopted, lines, unwanted).await
        });
        end_of(minded.ok_or_else(|| failure::host("the call runs already"))?).await
    }

    async fn end(&self, invocation: InvocationId) {
        let known = self.0.calls().remove(&invocation);
        if let Some(call) = known {
            call.unwanted.cancel();
            // Its sandbox is gone when this is over.
            end_of(call.ended).await.ok();
        }
        let adopted = self.0.adopted().remove(&invocation);
        if let Some(room) = adopted.and_then(|adopted| adopted.room) {
            room.end().await;
        }
        self.0.call_records.forget(invocation);
    }
}
