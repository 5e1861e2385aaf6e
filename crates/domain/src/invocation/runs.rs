//! Runs queued invocations: leases them to nodes and stores their results.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use time::Duration;

use super::input::parse_json;
use super::{
    Call, CallLimits, FailedDeployment, Invocation, InvocationEvent, InvocationRepository, RunFailure, RunFault,
    Runnable, end_all,
};
use crate::clock::Clock;
use crate::deployment::{Builds, Deployment, DeploymentError, DeploymentEvent, DeploymentRepository, DeploymentStatus};
use crate::ids::{DeploymentId, InvocationId, NodeId, ProjectId};
use crate::node::Node;
use crate::pool::{FairSlot, FairSlots};
use crate::store_error::{Replaced, StoreError};

/// How many late or stranded invocations are looked at at once.
const BATCH: u32 = 100;
/// How many that ended long ago are forgotten at once, and how long ago that is.
const FORGOTTEN_AT_ONCE: u32 = 200;
const RETENTION: Duration = Duration::days(30);

/// The work of a node on invocations.
#[derive(Clone)]
pub struct Runs {
    invocations: Arc<dyn InvocationRepository>,
    deployments: Arc<dyn DeploymentRepository>,
    clock: Arc<dyn Clock>,
    builds: Builds,
    limits: CallLimits,
    /// What this node holds ready, opened.
    ready: Arc<Mutex<HashMap<DeploymentId, Runnable>>>,
    places: FairSlots<ProjectId>,
}

/// An invocation that this node has taken.
#[derive(Debug)]
pub struct LeasedInvocation {
    /// As it is stored now.
    pub invocation: Invocation,
    /// What to run.
    pub call: Call,
    /// Given back when it is over.
    pub place: FairSlot<ProjectId>,
}

impl Runs {
    /// The work of the node that `builds` is the work of, of which it does so much at once.
    #[must_use]
    pub fn new(
        invocations: Arc<dyn InvocationRepository>,
        deployments: Arc<dyn DeploymentRepository>,
        clock: Arc<dyn Clock>,
        builds: Builds,
        limits: CallLimits,
        at_once: usize,
    ) -> Self {
        let places = FairSlots::new(at_once);
        Self { invocations, deployments, clock, builds, limits, ready: Arc::default(), places }
    }

    fn ready(&self) -> MutexGuard<'_, HashMap<DeploymentId, Runnable>> {
        self.ready.lock()
    }

    /// Takes invocations that wait, as many as there are places for: those of the project that has the fewest under way here first, then the
    /// oldest. One project gets at most three quarters of the places.
    ///
    /// # Errors
    /// The store's failure, if nothing was taken before it. Of what was taken nevertheless, [`Runs::forgotten`] tells.
    pub async fn take(&self) -> Result<Vec<LeasedInvocation>, StoreError> {
        let mut taken = Vec::new();
        let free = self.places.free();
        if free == 0 {
            return Ok(taken);
        }
        let mut queued = self.invocations.queued(BATCH.max(u32::try_from(free).unwrap_or(u32::MAX))).await?;
        while taken.len() < free && !queued.is_empty() {
            self.places.fewest_first(&mut queued, |invocation| invocation.project);
            let current = queued.remove(0);
            let Some(place) = self.places.take(&current.project) else { continue };
            match self.take_one(&current, place).await {
                Ok(one) => taken.extend(one),
                Err(error) if taken.is_empty() => return Err(error),
                // Who asks again, learns of it.
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    async fn take_one(
        &self,
        current: &Invocation,
        place: FairSlot<ProjectId>,
    ) -> Result<Option<LeasedInvocation>, StoreError> {
        let Ok(next) = current.on(&InvocationEvent::Take(self.builds.node()), self.clock.now()) else {
            return Ok(None);
        };
        if self.invocations.replace(current, &next).await? == Replaced::LostRace {
            return Ok(None);
        }
        let (why, failed) = match self.call(&next).await {
            Ok(call) => return Ok(Some(LeasedInvocation { invocation: next, call, place })),
            Err(DeploymentError::Store(error)) => ("the store is away".to_owned(), Some(error)),
            Err(error) => (error.to_string(), None),
        };
        self.end(next, InvocationEvent::Broke(format!("it could not be prepared: {why}"))).await?;
        failed.map_or(Ok(None), Err)
    }

    async fn call(&self, invocation: &Invocation) -> Result<Call, DeploymentError> {
        let known = self.ready().get(&invocation.deployment).cloned();
        let runnable = match known {
            Some(runnable) => runnable,
            None => {
                let deployment = self.deployments.get(invocation.deployment).await?;
                let missing = || DeploymentError::NotFound(invocation.deployment.to_string());
                self.runnable(&deployment.ok_or_else(missing)?).await?
            }
        };
        Ok(Call {
            invocation: invocation.id,
            runnable,
            app: invocation.app.as_str().to_owned(),
            action: invocation.action.as_str().to_owned(),
            payload: invocation.payload.clone(),
            limits: self.limits,
            deadline: invocation.deadline(),
        })
    }

    async fn runnable(&self, deployment: &Deployment) -> Result<Runnable, DeploymentError> {
        let artifact = deployment.artifact.clone();
        Ok(Runnable {
            deployment: deployment.id,
            project: deployment.project,
            artifact: artifact.ok_or_else(|| DeploymentError::NotFound(deployment.id.to_string()))?,
            entrypoint: deployment.entrypoint.clone(),
            environment: self.builds.environment(deployment.id).await?,
        })
    }

    /// The up to `most` deployments that this node should hold ready.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn wanted(&self, most: u32) -> Result<Vec<Runnable>, StoreError> {
        let mut wanted = Vec::new();
        for deployment in self.deployments.running(most).await? {
            let known = self.ready().get(&deployment.id).cloned();
            match known {
                Some(runnable) => wanted.push(runnable),
                None => match self.runnable(&deployment).await {
                    Ok(runnable) => wanted.push(runnable),
                    Err(DeploymentError::Store(error)) => return Err(error),
                    // It ended just now, or its secrets cannot be opened; what is invoked of it says so.
                    Err(_) => {}
                },
            }
        }
        *self.ready() = wanted.iter().map(|one| (one.deployment, one.clone())).collect();
        Ok(wanted)
    }

    /// Stores what came of a call, unless the invocation has ended otherwise meanwhile: then it is dropped.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn finish(&self, id: InvocationId, end: &Result<Option<String>, RunFailure>) -> Result<(), StoreError> {
        let Some(current) = self.invocations.get(id).await? else { return Ok(()) };
        let event = match end {
            Ok(None) => InvocationEvent::Returned(None),
            Ok(Some(text)) => match parse_json(text.replace('\0', "\u{fffd}")) {
                Ok(text) => InvocationEvent::Returned(Some(text)),
                Err(bad) => InvocationEvent::Broke(format!("the result {bad}")),
            },
            // A sandbox ends by itself when the time is up and no server is there to say so.
            Err(failure) if failure.fault == RunFault::Lost && current.is_late(self.clock.now()) => {
                InvocationEvent::TimedOut
            }
            Err(failure) => InvocationEvent::Broke(failure.reason.clone()),
        };
        self.end(current, event).await
    }

    /// The time of a call is up.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn time_up(&self, id: InvocationId) -> Result<(), StoreError> {
        match self.invocations.get(id).await? {
            Some(current) => self.end(current, InvocationEvent::TimedOut).await,
            None => Ok(()),
        }
    }

    async fn end(&self, current: Invocation, event: InvocationEvent) -> Result<(), StoreError> {
        end_all(&*self.invocations, &*self.clock, vec![current], |_| event.clone()).await
    }

    /// Whether the invocation has ended.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn over(&self, id: InvocationId) -> Result<bool, StoreError> {
        Ok(self.invocations.get(id).await?.is_none_or(|one| one.status.is_final()))
    }

    /// What this node runs, as far as the store knows: asked after a start and now and then, so that each is found again or given up.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn forgotten(&self) -> Result<Vec<Invocation>, StoreError> {
        self.invocations.running_on(self.builds.node()).await
    }

    /// Nobody runs this invocation any more, and nobody will tell how it ended.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn give_up(&self, invocation: Invocation) -> Result<(), StoreError> {
        self.end(invocation, InvocationEvent::Lost).await
    }

    /// The node is stopped, and what it runs with it.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn stop(&self, invocation: Invocation) -> Result<(), StoreError> {
        self.end(invocation, InvocationEvent::Broke("the server was stopped".to_owned())).await
    }

    /// A node is gone: what it ran has failed.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn mark_node_lost(&self, node: NodeId) -> Result<(), StoreError> {
        let lost = self.invocations.running_on(node).await?;
        end_all(&*self.invocations, &*self.clock, lost, |_| InvocationEvent::Lost).await
    }

    /// Forgets some of the invocations that ended long ago; how many there were.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn forget(&self) -> Result<usize, StoreError> {
        self.invocations.forget(self.clock.now() - RETENTION, FORGOTTEN_AT_ONCE).await
    }

    /// A deployment cannot be kept up: it fails, with its invocations.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn mark_deployment_failed(&self, failed_deployment: &FailedDeployment) -> Result<(), StoreError> {
        let event = DeploymentEvent::Fell(failed_deployment.reason.clone());
        self.builds.deployments().end(failed_deployment.deployment, &event).await.map(|_| ())
    }

    /// Ends invocations whose time is up, and those whose deployment has ended, if nobody else did. Of those that run, not the ones that
    /// somebody here has `attended`, who knows their end and may be about to store it; nor another node's, before that would be lost.
    ///
    /// # Errors
    /// The store's failure; it may be called again.
    pub async fn tidy(&self, attended: &HashSet<InvocationId>) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut late = self.invocations.overdue(now, BATCH).await?;
        late.retain(|one| match one.node {
            Some(node) if node == self.builds.node() => !attended.contains(&one.id),
            Some(_) => one.deadline() + Node::LOST_AFTER < now,
            None => true,
        });
        end_all(&*self.invocations, &*self.clock, late, |_| InvocationEvent::TimedOut).await?;
        for stranded in self.invocations.stranded(BATCH).await? {
            let deployment = self.deployments.get(stranded.deployment).await?;
            let event = match deployment.map(|one| one.status) {
                Some(DeploymentStatus::Failed) => InvocationEvent::DeploymentFailed,
                _ => InvocationEvent::DeploymentStopped,
            };
            self.end(stranded, event).await?;
        }
        Ok(())
    }
}
