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
use crate::error::NotFound;
use crate::ids::{DeploymentId, InvocationId, NodeId, ProjectId};
use crate::node::Node;
use crate::pool::{FairSlot, FairSlots};
use crate::store_error::{Replaced, StoreError};

/// The number of late or stranded invocations that are handled at once.
const BATCH: u32 = 100;
/// The number of ended invocations that are deleted at once.
const FORGOTTEN_AT_ONCE: u32 = 200;

/// The runs of a node.
#[derive(Clone)]
pub struct Runs {
    invocations: Arc<dyn InvocationRepository>,
    deployments: Arc<dyn DeploymentRepository>,
    clock: Arc<dyn Clock>,
    builds: Builds,
    limits: CallLimits,
    /// The deployments that this node holds ready, with their opened secrets.
    ready: Arc<Mutex<HashMap<DeploymentId, Runnable>>>,
    places: FairSlots<ProjectId>,
}

/// An invocation that this node has taken.
#[derive(Debug)]
pub struct LeasedInvocation {
    /// The stored invocation.
    pub invocation: Invocation,
    /// The call.
    pub call: Call,
    /// The slot, which is released at the end of the call.
    pub place: FairSlot<ProjectId>,
}

impl Runs {
    /// Creates the runs of the node of `builds`, with at most `at_once` concurrent calls.
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

    /// Takes as many queued invocations as there are free slots: first those of the project with the fewest running
    /// calls on this node, then the oldest. One project gets at most three quarters of the slots.
    ///
    /// # Errors
    /// Returns the error of the store if nothing was taken before it. [`Runs::forgotten`] finds invocations that were
    /// taken by an uncertain write.
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
                // The next call reports the error.
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
        match self.call(&next).await {
            Ok(call) => Ok(Some(LeasedInvocation { invocation: next, call, place })),
            Err(DeploymentError::Store(error)) => {
                self.requeue(next).await?;
                Err(error)
            }
            Err(error) => {
                self.apply(next, InvocationEvent::Broke(format!("it could not be prepared: {error}"))).await?;
                Ok(None)
            }
        }
    }

    async fn call(&self, invocation: &Invocation) -> Result<Call, DeploymentError> {
        let known = self.ready().get(&invocation.deployment).cloned();
        let runnable = match known {
            Some(runnable) => runnable,
            None => {
                let deployment = self.deployments.get(invocation.deployment).await?;
                let missing = || NotFound::new("deployment", invocation.deployment.to_string());
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
            artifact: artifact.ok_or_else(|| NotFound::new("deployment", deployment.id.to_string()))?,
            entrypoint: deployment.entrypoint.clone(),
            environment: self.builds.environment(deployment.id).await?,
        })
    }

    /// Returns up to `max` deployments that this node should hold ready.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn wanted(&self, max: u32) -> Result<Vec<Runnable>, StoreError> {
        let mut wanted = Vec::new();
        for deployment in self.deployments.running(max).await? {
            let known = self.ready().get(&deployment.id).cloned();
            match known {
                Some(runnable) => wanted.push(runnable),
                None => match self.runnable(&deployment).await {
                    Ok(runnable) => wanted.push(runnable),
                    Err(DeploymentError::Store(error)) => return Err(error),
                    // It has just ended, or its secrets cannot be opened, which its invocations report.
                    Err(_) => {}
                },
            }
        }
        *self.ready() = wanted.iter().map(|one| (one.deployment, one.clone())).collect();
        Ok(wanted)
    }

    /// Stores the result of a call, or drops it if the invocation has ended in the meantime.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn finish(&self, id: InvocationId, end: &Result<Option<String>, RunFailure>) -> Result<(), StoreError> {
        let Some(current) = self.invocations.get(id).await? else { return Ok(()) };
        let event = match end {
            Ok(None) => InvocationEvent::Returned(None),
            Ok(Some(text)) => match parse_json(text.replace('\0', "\u{fffd}")) {
                Ok(text) => InvocationEvent::Returned(Some(text)),
                Err(bad) => InvocationEvent::Broke(format!("the result {bad}")),
            },
            // While no server runs, a sandbox ends by itself at the deadline.
            Err(failure) if failure.fault == RunFault::Lost && current.is_late(self.clock.now()) => {
                InvocationEvent::TimedOut
            }
            Err(failure) => InvocationEvent::Broke(failure.reason.clone()),
        };
        self.apply(current, event).await
    }

    /// Ends an invocation whose deadline has passed.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn time_up(&self, id: InvocationId) -> Result<(), StoreError> {
        match self.invocations.get(id).await? {
            Some(current) => self.apply(current, InvocationEvent::TimedOut).await,
            None => Ok(()),
        }
    }

    async fn apply(&self, current: Invocation, event: InvocationEvent) -> Result<(), StoreError> {
        end_all(&*self.invocations, &*self.clock, vec![current], |_| event.clone()).await
    }

    /// Returns whether the invocation has ended.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn over(&self, id: InvocationId) -> Result<bool, StoreError> {
        Ok(self.invocations.get(id).await?.is_none_or(|one| one.status.is_final()))
    }

    /// Returns the invocations that this node runs according to the store, to find those that the node does not know.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn forgotten(&self) -> Result<Vec<Invocation>, StoreError> {
        self.invocations.running_on(self.builds.node()).await
    }

    /// Returns an invocation that no process received to the queue.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn requeue(&self, invocation: Invocation) -> Result<(), StoreError> {
        self.apply(invocation, InvocationEvent::Requeue).await
    }

    /// Ends an invocation whose process is lost.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn give_up(&self, invocation: Invocation) -> Result<(), StoreError> {
        self.apply(invocation, InvocationEvent::Lost).await
    }

    /// Ends an invocation because the server stops.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn stop(&self, invocation: Invocation) -> Result<(), StoreError> {
        self.apply(invocation, InvocationEvent::Broke("the server was stopped".to_owned())).await
    }

    /// Returns the invocations that run on another node.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn of_node(&self, node: NodeId) -> Result<Vec<Invocation>, StoreError> {
        self.invocations.running_on(node).await
    }

    /// Ends the invocations that ran on a lost node before it was lost.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn mark_node_lost(&self, ran_there: Vec<Invocation>) -> Result<(), StoreError> {
        end_all(&*self.invocations, &*self.clock, ran_there, |_| InvocationEvent::Lost).await
    }

    /// Deletes some of the invocations that ended longer ago than `retention`; returns their number.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn forget(&self, retention: Duration) -> Result<usize, StoreError> {
        self.invocations.forget(self.clock.now() - retention, FORGOTTEN_AT_ONCE).await
    }

    /// Ends a deployment whose processes failed, with its invocations.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
    pub async fn mark_deployment_failed(&self, failed_deployment: &FailedDeployment) -> Result<(), StoreError> {
        let event = DeploymentEvent::ProcessesFailed(failed_deployment.reason.clone());
        self.builds.deployments().end(failed_deployment.deployment, &event).await.map(|_| ())
    }

    /// Ends invocations whose deadline has passed or whose deployment has ended. Skips overdue invocations that a task
    /// of this node handles (`attended`), and those of other nodes until [`Node::LOST_AFTER`] after the deadline.
    ///
    /// # Errors
    /// Returns the error of the store; the call may be repeated.
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
            self.apply(stranded, event).await?;
        }
        Ok(())
    }
}
