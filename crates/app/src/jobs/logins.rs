//! Runs login flows: one task for each flow that this node has taken.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::auth_connection::{FlowChangeNotifier, FlowRunner, Next, OrphanedFlow, PagePhase};
use casement_domain::node::{OwnState, Place, Placement};
use casement_domain::{AuthConnectionId, AuthFlowId, Clock as _};
use casement_postgres::{AUTH_CHANNEL, NotificationEvent, NotificationHub};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Due, Job};
use crate::system::System;

/// The pause before a failed step is retried.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// The places of the session of a flow.
const PLACES: u32 = 1;

/// Notifications about auth connections, for the tasks that follow one. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct AuthChanges {
    followed: Arc<Mutex<HashMap<AuthConnectionId, watch::Sender<u64>>>>,
    /// Wakes the job that runs login flows.
    any: Arc<Notify>,
    /// Cancelled when no more notifications come.
    over: CancellationToken,
}

impl AuthChanges {
    fn followed(&self) -> MutexGuard<'_, HashMap<AuthConnectionId, watch::Sender<u64>>> {
        // Every change is one call, so a panic elsewhere leaves no partial change.
        self.followed.lock()
    }

    /// Notifies the followers of that connection; `None` notifies all.
    fn notify(&self, about: Option<AuthConnectionId>) {
        self.followed().retain(|id, sender| {
            if about.is_none_or(|about| about == *id) {
                sender.send_modify(|count| *count = count.wrapping_add(1));
            }
            // Removes entries without a follower.
            sender.receiver_count() > 0
        });
        self.any.notify_one();
    }

    fn receiver(&self, id: AuthConnectionId) -> watch::Receiver<u64> {
        self.followed().entry(id).or_insert_with(|| watch::channel(0).0).subscribe()
    }
}

/// Passes the database's notifications about auth connections to [`AuthChanges`].
pub(crate) struct AuthNotifications {
    pub(crate) changes: AuthChanges,
    pub(crate) notifications: NotificationHub,
}

#[async_trait]
impl Job for AuthNotifications {
    fn name(&self) -> &'static str {
        "auth notifications"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        let mut notifications = self.notifications.subscribe(vec![AUTH_CHANNEL.to_owned()]);
        while let Some(notification) = stop.run_until_cancelled(notifications.next()).await {
            match notification {
                NotificationEvent::Listening => self.changes.notify(None),
                NotificationEvent::Notification { payload, .. } => match payload.parse() {
                    Ok(id) => self.changes.notify(Some(id)),
                    Err(_) => warn!(payload, "ignored an invalid notification about auth connections"),
                },
            }
        }
        // Ends the waits of all followers.
        self.changes.over.cancel();
        Ok(())
    }
}

impl FlowChangeNotifier for AuthChanges {
    fn follow(&self, connection: AuthConnectionId) -> BoxStream<'static, ()> {
        let from = (self.receiver(connection), self.over.clone());
        let next = async |(mut receiver, over): (watch::Receiver<u64>, CancellationToken)| {
            over.run_until_cancelled(receiver.changed()).await?.ok()?;
            Some(((), (receiver, over)))
        };
        stream::unfold(from, next).boxed()
    }
}

/// Claims login flows without a node, and runs each in a task of its own. The tasks end with the process, and any node
/// claims the flows again.
#[derive(Clone)]
pub(crate) struct LoginFlows {
    own: OwnState,
    placement: Placement,
    runner: FlowRunner,
    changes: AuthChanges,
    carried: Arc<Mutex<HashSet<AuthFlowId>>>,
    due: Due,
    /// A notification has come since the last run.
    is_notified: bool,
}

impl LoginFlows {
    pub(crate) fn new(own: OwnState, placement: Placement, runner: FlowRunner, changes: AuthChanges, due: Due) -> Self {
        Self { own, placement, runner, changes, carried: Arc::default(), due, is_notified: false }
    }

    fn carried(&self) -> MutexGuard<'_, HashSet<AuthFlowId>> {
        self.carried.lock()
    }
}

#[async_trait]
impl Job for LoginFlows {
    fn name(&self) -> &'static str {
        "login flows"
    }

    /// A run at this interval finds flows whose notification was lost.
    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn wait_until_due(&mut self) {
        tokio::select! {
            () = self.changes.any.notified() => self.is_notified = true,
            () = self.due.begins() => {}
        }
    }

    async fn run(&mut self, stop: &CancellationToken) -> anyhow::Result<()> {
        if !self.own.takes_sessions() || !(self.is_notified || self.due.is_due()) {
            return Ok(());
        }
        let orphaned = self.runner.orphaned_flows().await?;
        self.is_notified = false;
        for found in orphaned {
            // The node that has room for its session was notified too, or finds it with its next run.
            if found.is_new && matches!(self.placement.choose(PLACES, &[]).await?, Place::Elsewhere(_)) {
                continue;
            }
            if !self.carried().insert(found.flow) {
                continue;
            }
            let (job, stop) = (self.clone(), stop.clone());
            tokio::spawn(async move {
                carry(&job.runner, found, &job.changes, stop).await;
                job.carried().remove(&found.flow);
            });
        }
        Ok(())
    }
}

async fn carry(
    runner: &FlowRunner,
    OrphanedFlow { flow, connection, .. }: OrphanedFlow,
    changes: &AuthChanges,
    stop: CancellationToken,
) {
    match runner.take(flow).await {
        Ok(true) => info!(%flow, %connection, "running a login flow"),
        // Another node was faster, or the next run finds it again.
        Ok(false) => return,
        Err(error) => return debug!(%flow, %error, "cannot take a login flow"),
    }
    let mut follow = changes.follow(connection);
    let mut phase = PagePhase::default();
    while !stop.is_cancelled() {
        // Never cancelled midway, because the step may be creating a session.
        match runner.step(flow, &mut phase).await {
            Ok(Next::Step) => {}
            Ok(Next::Done) => return debug!(%flow, "a login flow ended"),
            Ok(Next::Wait(until)) => {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = follow.next() => {}
                    () = tokio::time::sleep(left(until)) => {}
                }
            }
            Err(error) => {
                debug!(%flow, %error, "a step of a login flow failed; retrying");
                tokio::time::sleep(RETRY_BACKOFF).await;
            }
        }
    }
}

fn left(until: OffsetDateTime) -> Duration {
    // Prevents a busy loop.
    Duration::try_from(until - System.now()).unwrap_or_default().max(Duration::from_millis(20))
}

/// Starts the checks of auth connections that are due.
pub(crate) struct LoginChecks {
    pub(crate) runner: FlowRunner,
    pub(crate) due: Due,
}

#[async_trait]
impl Job for LoginChecks {
    fn name(&self) -> &'static str {
        "login checks"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    async fn wait_until_due(&mut self) {
        self.due.begins().await;
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        if self.due.is_due() {
            self.runner.start_health_checks().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use casement_postgres::DatabaseConfig;

    use super::*;

    #[tokio::test]
    async fn followers_of_a_login_end_when_the_server_stops() {
        let (changes, stop) = (AuthChanges::default(), CancellationToken::new());
        let mut follow = changes.follow(AuthConnectionId::from_ulid(ulid::Ulid::nil()));
        changes.notify(None);
        assert_eq!(follow.next().await, Some(()));
        let nowhere = DatabaseConfig::parse("postgresql:///nowhere?host=/nowhere").expect("an address");
        let notifications = NotificationHub::listen(&nowhere, vec![AUTH_CHANNEL.to_owned()]);
        let mut job = AuthNotifications { changes, notifications };
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { job.run(&stop).await }
        });
        stop.cancel();
        assert_eq!(follow.next().await, None);
        running.await.expect("the job ends").expect("without an error");
    }
}
