//! The work on deployments and invocations: builds, calls, what is held ready, and what is tidied up behind them.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use casement_domain::deployment::{
    Build, BuildEnd, BuildFailure, BuildStep, Builder, Builds, ChangeNotifier, ChangeWaiter, Deployment, LeasedBuild,
    LineStore, Subject, WakeReason,
};
use casement_domain::invocation::{Invocations, LeasedInvocation, RunFailure, RunFault, Runner, Runs};
use casement_domain::{Clock as _, InvocationId, StoreError};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{AppRetention, LateInvocations};
use crate::apps::{AppWakers, LogWriter};
use crate::system::System;

/// After so long it is looked for work, whatever was or was not heard.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How long until the store is asked again that is away.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a build says that it goes on.
const RENEW: time::Duration = time::Duration::seconds(15);
/// How long a call that an earlier life ran may take to be heard of, if its time was over meanwhile: it may have ended in time.
const CATCH_UP: time::Duration = time::Duration::seconds(10);

/// What the work stands on.
#[derive(Clone)]
pub(crate) struct AppJobs {
    pub(crate) builds: Builds,
    pub(crate) runs: Runs,
    pub(crate) invocations: Invocations,
    pub(crate) builder: Arc<dyn Builder>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) lines: Arc<dyn LineStore>,
    pub(crate) news: Arc<dyn ChangeNotifier>,
    pub(crate) wakers: Arc<AppWakers>,
    /// Deployments that are held ready.
    pub(crate) ready: u32,
    /// The calls that somebody here waits for.
    pub(crate) attended: AwaitedCalls,
    pub(crate) stop: CancellationToken,
}

/// The store was not asked to the end.
enum GivenUp {
    /// The server stops.
    Stopping,
    /// It would always answer the same.
    Refused,
}

/// The calls that somebody on this node waits for.
#[derive(Clone, Default)]
pub(crate) struct AwaitedCalls(Arc<Mutex<HashSet<InvocationId>>>);

impl AwaitedCalls {
    pub(super) fn ids(&self) -> MutexGuard<'_, HashSet<InvocationId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppJobs {
    /// Begins all of it.
    pub(crate) fn spawn(self) {
        tokio::spawn(self.clone().build());
        tokio::spawn(self.clone().run());
        let retention = AppRetention { builds: self.builds, builder: self.builder, lines: self.lines, runs: self.runs };
        super::spawn(retention, self.stop);
    }

    /// Ends the calls that this node runs, for a server that is stopped with all it has.
    pub(crate) async fn end_awaited_calls(&self) {
        let running = self.runs.forgotten().await.unwrap_or_else(|error| {
            warn!(%error, "cannot list the calls that run");
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

    /// Asks until the store answers, as long as it may do so.
    async fn insist<T, F>(&self, what: &'static str, ask: impl Fn() -> F) -> Result<T, GivenUp>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error @ StoreError::Unavailable { .. }) => {
                    warn!(what, %error, "the store does not answer; trying again");
                    let slept = self.stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
                    slept.ok_or(GivenUp::Stopping)?;
                }
                Err(error) => {
                    error!(what, %error, "the store cannot do it");
                    return Err(GivenUp::Refused);
                }
            }
        }
    }

    async fn build(self) {
        loop {
            match self.insist("a build is looked for", || self.builds.take()).await {
                Err(GivenUp::Stopping) => return,
                Ok(Some(taken)) => drop(tokio::spawn(self.clone().attend_build(taken))),
                Ok(None) | Err(GivenUp::Refused) => tokio::select! {
                    () = self.stop.cancelled() => return,
                    () = self.wakers.builds.notified() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                },
            }
        }
    }

    async fn attend_build(self, taken: LeasedBuild) {
        let LeasedBuild { deployment, build, deadline, place } = taken;
        self.build_to_its_end(deployment, build, deadline).await;
        drop(place);
        // There is room for the next one.
        self.wakers.builds.notify_one();
    }

    async fn build_to_its_end(&self, deployment: Deployment, build: Build, deadline: OffsetDateTime) {
        let subject = Subject::Deployment(deployment.id);
        info!(deployment = %deployment.id, "a deployment is being built");
        let mut waiting = self.news.expect(subject);
        let lines = LogWriter::of_build(self.lines.clone(), subject, self.stop.clone()).await;
        let mut building = self.builder.build(build, Arc::new(lines));
        let end = loop {
            let renew_at = deadline.min(System.now() + RENEW);
            let woken = tokio::select! {
                end = &mut building => break BuildEnd::Done(end),
                woken = waiting.next(Some(renew_at)) => woken,
            };
            if woken == WakeReason::Closed {
                // Dropped, it ends; the next life of this node begins it again.
                return;
            }
            if System.now() >= deadline {
                break BuildEnd::TimedOut;
            }
            match self.builds.renew(&deployment).await {
                Ok(true) => {}
                Ok(false) => {
                    info!(deployment = %deployment.id, "the deployment is not this node's to build any more");
                    return;
                }
                Err(error) => debug!(%error, "cannot say that a build goes on"),
            }
        };
        drop(building);
        let mut finished = self.insist("a build is over", || self.builds.finish(&deployment, &end)).await;
        if let Err(GivenUp::Refused) = finished {
            let reason = "what came of it cannot be stored".to_owned();
            let failed = BuildEnd::Done(Err(BuildFailure { step: BuildStep::Host, reason }));
            finished = self.insist("a build has failed", || self.builds.finish(&deployment, &failed)).await;
        }
        if finished.is_ok() {
            info!(deployment = %deployment.id, built = matches!(end, BuildEnd::Done(Ok(_))), "a build is over");
        }
        self.wakers.ready.notify_one();
    }

    async fn run(self) {
        // Before anything else runs a process here, or says of a call of before that its time was up.
        if self.adopt().await.is_err() {
            return;
        }
        tokio::spawn(self.clone().keep_ready());
        tokio::spawn(self.clone().follow_failed_deployments());
        let late = LateInvocations {
            runs: self.runs.clone(),
            invocations: self.invocations.clone(),
            attended: self.attended.clone(),
        };
        super::spawn(late, self.stop.clone());
        let mut looked = Instant::now();
        loop {
            let taken = match self.insist("calls are looked for", || self.runs.take()).await {
                Ok(taken) => taken,
                Err(GivenUp::Stopping) => return,
                Err(GivenUp::Refused) => Vec::new(),
            };
            for one in taken {
                self.attended.ids().insert(one.invocation.id);
                tokio::spawn(self.clone().call(one));
            }
            if looked.elapsed() >= POLL_INTERVAL {
                looked = Instant::now();
                self.give_up_lost().await;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.wakers.runs.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Of what the store says that this node runs, nobody here may know: a taking of which it was not told that it came through.
    async fn give_up_lost(&self) {
        let Ok(mine) = self.runs.forgotten().await else { return };
        for one in mine.into_iter().filter(|one| !self.attended.ids().contains(&one.id)) {
            warn!(invocation = %one.id, "a call was lost");
            if let Err(error) = self.runs.give_up(one).await {
                debug!(%error, "cannot give a call up");
            }
        }
    }

    /// Goes on with what an earlier life of this node ran.
    async fn adopt(&self) -> Result<(), GivenUp> {
        let known: HashSet<InvocationId> = self.runner.adopt().await.into_iter().collect();
        let mine = loop {
            match self.insist("earlier calls are looked for", || self.runs.forgotten()).await {
                // Nothing can be begun before it is known what runs.
                Err(GivenUp::Refused) => {
                    let slept = self.stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await;
                    slept.ok_or(GivenUp::Stopping)?;
                }
                other => break other?,
            }
        };
        let running: HashSet<InvocationId> = mine.iter().map(|one| one.id).collect();
        for ended in known.difference(&running) {
            self.runner.end(*ended).await;
        }
        for invocation in mine {
            if known.contains(&invocation.id) {
                info!(invocation = %invocation.id, "a call of an earlier life goes on");
                self.attended.ids().insert(invocation.id);
                let deadline = invocation.deadline().max(System.now() + CATCH_UP);
                tokio::spawn(self.clone().resume(invocation.id, deadline));
            } else {
                let given_up = self.insist("a call was lost", || self.runs.give_up(invocation.clone())).await;
                if let Err(GivenUp::Stopping) = given_up {
                    return Err(GivenUp::Stopping);
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
        let LeasedInvocation { invocation, call, place } = taken;
        let (id, deadline) = (invocation.id, invocation.deadline());
        let waiting = self.news.expect(Subject::Invocation(id));
        let lines = self.lines_of(id);
        self.attend(id, deadline, waiting, self.runner.run(call, lines)).await;
        drop(place);
        // There is room for the next one.
        self.wakers.runs.notify_one();
    }

    async fn resume(self, id: InvocationId, deadline: OffsetDateTime) {
        let waiting = self.news.expect(Subject::Invocation(id));
        let lines = self.lines_of(id);
        self.attend(id, deadline, waiting, self.runner.resume(id, lines)).await;
    }

    /// Waits for the end of a call, from whichever side it comes first.
    async fn attend(
        &self,
        id: InvocationId,
        deadline: OffsetDateTime,
        mut waiting: Box<dyn ChangeWaiter>,
        run: impl Future<Output = Result<Option<String>, RunFailure>> + Send,
    ) {
        let mut run = Box::pin(run);
        // What was said before somebody listened.
        let mut first = Box::pin(self.runs.over(id));
        let mut heard = false;
        loop {
            let over = tokio::select! {
                biased;
                end = &mut run => {
                    // What is not stored now, the next life of this node asks for again.
                    if let Err(GivenUp::Stopping) = self.finish(id, &end).await {
                        return;
                    }
                    Ok(true)
                }
                over = &mut first, if !heard => {
                    heard = true;
                    over
                }
                woken = waiting.next(Some(deadline)) => match woken {
                    WakeReason::Closed => return,
                    WakeReason::TimeUp => {
                        let stored = self.insist("a call's time is up", || self.runs.time_up(id)).await;
                        if let Err(GivenUp::Stopping) = stored {
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
                Err(error) => debug!(%error, "cannot look whether a call is wanted still"),
            }
        }
        self.runner.end(id).await;
        self.attended.ids().remove(&id);
    }

    /// Stores how a call ended; if that cannot be, that it did not succeed.
    async fn finish(&self, id: InvocationId, end: &Result<Option<String>, RunFailure>) -> Result<(), GivenUp> {
        match self.insist("a call has ended", || self.runs.finish(id, end)).await {
            Err(GivenUp::Refused) => {
                let failed =
                    Err(RunFailure { fault: RunFault::Result, reason: "its result cannot be stored".to_owned() });
                self.insist("a call has failed", || self.runs.finish(id, &failed)).await
            }
            other => other,
        }
    }

    async fn keep_ready(self) {
        loop {
            match self.insist("what is to be ready", || self.runs.wanted(self.ready)).await {
                Ok(wanted) => self.runner.keep(wanted),
                Err(GivenUp::Stopping) => return,
                Err(GivenUp::Refused) => {}
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.wakers.ready.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    async fn follow_failed_deployments(self) {
        while let Some(failed_deployment) = self.stop.run_until_cancelled(self.runner.failed_deployment()).await {
            warn!(deployment = %failed_deployment.deployment, reason = failed_deployment.reason, "a deployment cannot be kept up");
            if let Err(GivenUp::Stopping) =
                self.insist("a deployment fell", || self.runs.mark_deployment_failed(&failed_deployment)).await
            {
                return;
            }
        }
    }
}
