//! The jobs of deployments and invocations: builds, calls, ready processes and failed deployments.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_domain::deployment::{
    Build, BuildEnd, BuildFailure, BuildStep, Builder, Builds, ChangeNotifier, ChangeWaiter, Deployment, LeasedBuild,
    LineStore, Subject, WakeReason,
};
use casement_domain::invocation::{Invocations, LeasedInvocation, RunFailure, RunFault, Runnable, Runner, Runs};
use casement_domain::node::OwnState;
use casement_domain::{Clock as _, InvocationId, StoreError};
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{AppRetention, Due, DueWorkBoard, LateInvocations, MaxAges};
use crate::apps::{AppWakers, LogWriter};
use crate::system::System;

/// The longest pause between polls, in case a notification was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The pause before a request to an unavailable store is repeated.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// The pause before calls of the previous process are adopted again, after the store refused.
const ADOPTION_BACKOFF: Duration = Duration::from_secs(10);
/// The interval at which a build renews its lease.
const RENEW_INTERVAL: time::Duration = time::Duration::seconds(15);
/// The time that the result of an adopted call may take after its deadline, because the call may have ended in time.
const ADOPTED_CALL_GRACE: time::Duration = time::Duration::seconds(10);

/// The services and state of the jobs.
#[derive(Clone)]
pub(crate) struct AppJobs {
    pub(crate) own: OwnState,
    pub(crate) builds: Builds,
    pub(crate) runs: Runs,
    pub(crate) invocations: Invocations,
    pub(crate) builder: Arc<dyn Builder>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) lines: Arc<dyn LineStore>,
    pub(crate) change_feed: Arc<dyn ChangeNotifier>,
    pub(crate) wakers: Arc<AppWakers>,
    /// The maximum number of deployments with ready processes.
    pub(crate) ready: u32,
    /// The times for which records of apps are stored.
    pub(crate) ages: MaxAges,
    /// The calls that this node waits for.
    pub(crate) awaited: AwaitedCalls,
    pub(crate) due: AppsDue,
    pub(crate) stop: CancellationToken,
}

/// What the store has for the jobs.
#[derive(Clone)]
pub(crate) struct AppsDue {
    pub(crate) builds: Due,
    pub(crate) invocations: Due,
    pub(crate) deployments: Due,
}

impl AppsDue {
    /// Returns the views on the readings of `board`.
    pub(crate) fn of(board: &DueWorkBoard) -> Self {
        Self {
            builds: board.view(|work| work.builds),
            invocations: board.view(|work| work.invocations),
            deployments: board.view(|work| work.deployments),
        }
    }
}

/// The reason why a store operation was abandoned.
enum StoreAbandoned {
    /// The server stops.
    Stopping,
    /// The store refused the operation, and would refuse it again.
    Refused,
}

/// The calls that this node waits for.
#[derive(Clone, Default)]
pub(crate) struct AwaitedCalls(Arc<Mutex<HashSet<InvocationId>>>);

impl AwaitedCalls {
    pub(super) fn ids(&self) -> MutexGuard<'_, HashSet<InvocationId>> {
        self.0.lock()
    }
}

impl AppJobs {
    /// Spawns the jobs.
    pub(crate) fn spawn(self) {
        tokio::spawn(self.clone().build());
        tokio::spawn(self.clone().run());
        let Self { builds, builder, lines, runs, ages, stop, .. } = self;
        super::spawn(AppRetention { builds, builder, lines, runs, ages }, stop);
    }

    /// Ends the calls that run on this node, for a stop that ends sessions too.
    pub(crate) async fn end_awaited_calls(&self) {
        let running = self.runs.forgotten().await.unwrap_or_else(|error| {
            warn!(%error, "cannot list the running calls");
            Vec::new()
        });
        for invocation in running {
            let id = invocation.id;
            if let Err(error) = self.runs.stop(invocation).await {
                warn!(invocation = %id, %error, "cannot end a call");
            }
            self.runner.end(id).await;
        }
    }

    /// Ends all processes of apps, for a stop that ends sessions too.
    pub(crate) async fn end_processes(&self) {
        self.runner.close().await;
    }

    /// Retries until the store answers or the server stops.
    async fn retry<T, F>(&self, what: &'static str, ask: impl Fn() -> F) -> Result<T, StoreAbandoned>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error @ StoreError::Unavailable { .. }) => {
                    warn!(what, %error, "the store is unavailable; retrying");
                    let slept = self.stop.run_until_cancelled(tokio::time::sleep(RETRY_BACKOFF)).await;
                    slept.ok_or(StoreAbandoned::Stopping)?;
                }
                Err(error) => {
                    error!(what, %error, "the store refused an operation");
                    return Err(StoreAbandoned::Refused);
                }
            }
        }
    }

    async fn build(self) {
        let mut due = self.due.builds.clone();
        loop {
            match self.retry("take a build", || self.take_build()).await {
                Err(StoreAbandoned::Stopping) => return,
                Ok(Some(taken)) => drop(tokio::spawn(self.clone().supervise_build(taken))),
                Ok(None) | Err(StoreAbandoned::Refused) => tokio::select! {
                    () = self.stop.cancelled() => return,
                    () = self.wakers.builds.notified() => {}
                    () = due.next(POLL_INTERVAL) => {}
                },
            }
        }
    }

    async fn take_build(&self) -> Result<Option<LeasedBuild>, StoreError> {
        if self.own.takes_sessions() { self.builds.take().await } else { Ok(None) }
    }

    async fn take_calls(&self) -> Result<Vec<LeasedInvocation>, StoreError> {
        if self.own.takes_sessions() { self.runs.take().await } else { Ok(Vec::new()) }
    }

    /// Returns the deployments to hold ready: none if this node takes no sessions.
    async fn wanted(&self) -> Result<Vec<Runnable>, StoreError> {
        if self.own.takes_sessions() { self.runs.wanted(self.ready).await } else { Ok(Vec::new()) }
    }

    async fn supervise_build(self, taken: LeasedBuild) {
        let LeasedBuild { deployment, build, deadline, place: slot } = taken;
        self.run_build(deployment, build, deadline).await;
        drop(slot);
        // A slot is free for the next build.
        self.wakers.builds.notify_one();
    }

    async fn run_build(&self, deployment: Deployment, build: Build, deadline: OffsetDateTime) {
        let subject = Subject::Deployment(deployment.id);
        info!(deployment = %deployment.id, "building a deployment");
        let mut waiting = self.change_feed.expect(subject);
        let lines = LogWriter::of_build(self.lines.clone(), subject, self.stop.clone()).await;
        let mut building = self.builder.build(build, Arc::new(lines));
        let end = loop {
            let renew_at = deadline.min(System.now() + RENEW_INTERVAL);
            let wake_reason = tokio::select! {
                end = &mut building => break BuildEnd::Done(end),
                wake_reason = waiting.next(Some(renew_at)) => wake_reason,
            };
            if wake_reason == WakeReason::Closed {
                // Dropping the build ends it; the next process of this node starts it again.
                return;
            }
            if System.now() >= deadline {
                break BuildEnd::TimedOut;
            }
            match self.builds.renew(&deployment).await {
                Ok(true) => {}
                Ok(false) => {
                    info!(deployment = %deployment.id, "the build was assigned to another node");
                    return;
                }
                Err(error) => debug!(%error, "cannot renew the lease of a build"),
            }
        };
        drop(building);
        let mut finished = self.retry("finish a build", || self.builds.finish(&deployment, &end)).await;
        if let Err(StoreAbandoned::Refused) = finished {
            let reason = "the result cannot be stored".to_owned();
            let failed = BuildEnd::Done(Err(BuildFailure { step: BuildStep::Host, reason }));
            finished = self.retry("store a failed build", || self.builds.finish(&deployment, &failed)).await;
        }
        if finished.is_ok() {
            info!(deployment = %deployment.id, built = matches!(end, BuildEnd::Done(Ok(_))), "a build ended");
        }
        self.wakers.ready.notify_one();
    }

    async fn run(self) {
        // Adopts before any new process runs, and before an adopted call could time out.
        if self.adopt().await.is_err() {
            return;
        }
        tokio::spawn(self.clone().keep_ready());
        tokio::spawn(self.clone().store_failed_deployments());
        let late = LateInvocations {
            runs: self.runs.clone(),
            invocations: self.invocations.clone(),
            awaited: self.awaited.clone(),
            due: self.due.invocations.clone(),
        };
        let mut due = self.due.invocations.clone();
        super::spawn(late, self.stop.clone());
        let mut last_check = Instant::now();
        loop {
            let taken = match self.retry("take calls", || self.take_calls()).await {
                Ok(taken) => taken,
                Err(StoreAbandoned::Stopping) => return,
                Err(StoreAbandoned::Refused) => Vec::new(),
            };
            for one in taken {
                self.awaited.ids().insert(one.invocation.id);
                tokio::spawn(self.clone().call(one));
            }
            if last_check.elapsed() >= POLL_INTERVAL {
                last_check = Instant::now();
                self.requeue_lost().await;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.wakers.runs.notified() => {}
                () = due.next(POLL_INTERVAL) => {}
            }
        }
    }

    /// Returns the calls to the queue that the store assigns to this node but that do not run here: the response of the
    /// assignment was lost, so no process has received them.
    async fn requeue_lost(&self) {
        let Ok(assigned) = self.runs.forgotten().await else { return };
        for one in assigned.into_iter().filter(|one| !self.awaited.ids().contains(&one.id)) {
            warn!(invocation = %one.id, "a call was assigned and not begun: it is queued again");
            if let Err(error) = self.runs.requeue(one).await {
                debug!(%error, "cannot queue a call again");
            }
        }
    }

    /// Adopts the calls of the previous process of this node.
    async fn adopt(&self) -> Result<(), StoreAbandoned> {
        let adopted = self.runner.adopt().await;
        let known: HashSet<InvocationId> = adopted.calls.into_iter().collect();
        let assigned = loop {
            match self.retry("list earlier calls", || self.runs.forgotten()).await {
                // Nothing may start before the running calls are known.
                Err(StoreAbandoned::Refused) => {
                    let slept = self.stop.run_until_cancelled(tokio::time::sleep(ADOPTION_BACKOFF)).await;
                    slept.ok_or(StoreAbandoned::Stopping)?;
                }
                other => break other?,
            }
        };
        let running: HashSet<InvocationId> = assigned.iter().map(|one| one.id).collect();
        for ended in known.difference(&running) {
            self.runner.end(*ended).await;
        }
        for invocation in assigned {
            if known.contains(&invocation.id) {
                info!(invocation = %invocation.id, "adopted a running call");
                self.awaited.ids().insert(invocation.id);
                let deadline = invocation.deadline().max(System.now() + ADOPTED_CALL_GRACE);
                tokio::spawn(self.clone().resume(invocation.id, deadline));
            } else {
                let stored = if adopted.complete_since.is_some_and(|since| invocation.started_at > since) {
                    info!(invocation = %invocation.id, "no process has received a call: it is queued again");
                    self.retry("queue a call again", || self.runs.requeue(invocation.clone())).await
                } else {
                    self.retry("fail a lost call", || self.runs.give_up(invocation.clone())).await
                };
                if let Err(StoreAbandoned::Stopping) = stored {
                    return Err(StoreAbandoned::Stopping);
                }
            }
        }
        Ok(())
    }

    fn lines_of(&self, id: InvocationId) -> Arc<LogWriter> {
        let subject = Subject::Invocation(id);
        Arc::new(LogWriter::of_call(self.lines.clone(), subject, self.stop.clone()))
    }

    async fn call(self, taken: LeasedInvocation) {
        let LeasedInvocation { invocation, call, place: slot } = taken;
        let (id, deadline) = (invocation.id, invocation.deadline());
        let waiting = self.change_feed.expect(Subject::Invocation(id));
        let lines = self.lines_of(id);
        self.supervise_call(id, deadline, waiting, self.runner.run(call, lines)).await;
        drop(slot);
        // A slot is free for the next call.
        self.wakers.runs.notify_one();
    }

    async fn resume(self, id: InvocationId, deadline: OffsetDateTime) {
        let waiting = self.change_feed.expect(Subject::Invocation(id));
        let lines = self.lines_of(id);
        self.supervise_call(id, deadline, waiting, self.runner.resume(id, lines)).await;
    }

    /// Waits for the end of a call: its result, its deadline or its cancellation.
    async fn supervise_call(
        &self,
        id: InvocationId,
        deadline: OffsetDateTime,
        mut waiting: Box<dyn ChangeWaiter>,
        run: impl Future<Output = Result<Option<String>, RunFailure>> + Send,
    ) {
        let mut run = Box::pin(run);
        // The invocation may have ended before the subscription.
        let mut first = Box::pin(self.runs.over(id));
        let mut checked = false;
        loop {
            let over = tokio::select! {
                biased;
                end = &mut run => {
                    // The next process of this node asks for the result again.
                    if let Err(StoreAbandoned::Stopping) = self.finish(id, &end).await {
                        return;
                    }
                    Ok(true)
                }
                over = &mut first, if !checked => {
                    checked = true;
                    over
                }
                wake_reason = waiting.next(Some(deadline)) => match wake_reason {
                    WakeReason::Closed => return,
                    WakeReason::TimeUp => {
                        let stored = self.retry("time out a call", || self.runs.time_up(id)).await;
                        if let Err(StoreAbandoned::Stopping) = stored {
                            return;
                        }
                        Ok(true)
                    }
                    WakeReason::Changed => self.runs.over(id).await,
                },
            };
            match over {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => debug!(%error, "cannot check whether a call was canceled"),
            }
        }
        self.runner.end(id).await;
        self.awaited.ids().remove(&id);
    }

    /// Stores the result of a call; if that is impossible, stores a failure.
    async fn finish(&self, id: InvocationId, end: &Result<Option<String>, RunFailure>) -> Result<(), StoreAbandoned> {
        match self.retry("finish a call", || self.runs.finish(id, end)).await {
            Err(StoreAbandoned::Refused) => {
                let failed =
                    Err(RunFailure { fault: RunFault::Result, reason: "its result cannot be stored".to_owned() });
                self.retry("store a failed call", || self.runs.finish(id, &failed)).await
            }
            other => other,
        }
    }

    async fn keep_ready(self) {
        let mut due = self.due.deployments.clone();
        // Processes of deployments that have ended are looked for too.
        let mut holds_some = false;
        loop {
            match self.retry("list ready deployments", || self.wanted()).await {
                Ok(wanted) => {
                    holds_some = !wanted.is_empty();
                    self.runner.keep(wanted);
                }
                Err(StoreAbandoned::Stopping) => return,
                Err(StoreAbandoned::Refused) => {}
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.wakers.ready.notified() => {}
                () = due.next(POLL_INTERVAL) => {}
                () = tokio::time::sleep(POLL_INTERVAL), if holds_some => {}
            }
        }
    }

    async fn store_failed_deployments(self) {
        while let Some(failed_deployment) = self.stop.run_until_cancelled(self.runner.failed_deployment()).await {
            warn!(deployment = %failed_deployment.deployment, reason = failed_deployment.reason, "a deployment failed: its processes cannot be loaded");
            if let Err(StoreAbandoned::Stopping) =
                self.retry("store a failed deployment", || self.runs.mark_deployment_failed(&failed_deployment)).await
            {
                return;
            }
        }
    }
}
