//! Carries logins: one task for each flow that this node has taken on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use casement_domain::auth_connection::{CarriedFlow, FlowNews, FlowRunner, Memory, Next};
use casement_domain::{AuthConnectionId, AuthFlowId, Clock as _};
use casement_postgres::{AUTH_CHANNEL, DatabaseConfig, Heard, Notifications};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use time::OffsetDateTime;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::system::System;

/// How often it is looked for flows that nobody carries, whatever was or was not heard.
const NET: Duration = Duration::from_secs(20);
/// How often it is looked whose login is to be looked at.
const LOOKS: Duration = Duration::from_secs(10);
/// How often old flows are forgotten.
const FORGET: Duration = Duration::from_secs(3600);
/// After how long a step is tried again that the store refused.
const RETRY: Duration = Duration::from_secs(1);

/// What is heard of auth connections, for whoever follows one. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct AuthNews {
    followed: Arc<Mutex<HashMap<AuthConnectionId, watch::Sender<u64>>>>,
    /// Rung for whoever takes flows on.
    any: Arc<Notify>,
    /// Nothing more will be heard.
    over: CancellationToken,
}

impl AuthNews {
    fn followed(&self) -> MutexGuard<'_, HashMap<AuthConnectionId, watch::Sender<u64>>> {
        // Every change is one call, so a panic elsewhere leaves nothing half-made.
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something about that connection has changed; `None`: anything may have.
    fn say(&self, about: Option<AuthConnectionId>) {
        self.followed().retain(|id, sender| {
            if about.is_none_or(|about| about == *id) {
                sender.send_modify(|count| *count = count.wrapping_add(1));
            }
            // Whoever followed last is gone.
            sender.receiver_count() > 0
        });
        self.any.notify_one();
    }

    fn receiver(&self, id: AuthConnectionId) -> watch::Receiver<u64> {
        self.followed().entry(id).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// Hears what the database tells, until `stop`; then whoever follows is at the end.
    pub(crate) async fn hear(self, config: DatabaseConfig, stop: CancellationToken) {
        let mut notifications = Notifications::listen(&config, vec![AUTH_CHANNEL.to_owned()]);
        while let Some(heard) = stop.run_until_cancelled(notifications.next()).await {
            match heard {
                Heard::Listening => self.say(None),
                Heard::Notification { payload, .. } => match payload.parse() {
                    Ok(id) => self.say(Some(id)),
                    Err(_) => warn!("heard something that is no auth connection"),
                },
            }
        }
        self.over.cancel();
    }
}

impl FlowNews for AuthNews {
    fn follow(&self, connection: AuthConnectionId) -> BoxStream<'static, ()> {
        let from = (self.receiver(connection), self.over.clone());
        let next = async |(mut receiver, over): (watch::Receiver<u64>, CancellationToken)| {
            over.run_until_cancelled(receiver.changed()).await?.ok()?;
            Some(((), (receiver, over)))
        };
        stream::unfold(from, next).boxed()
    }
}

/// Takes flows on and carries them, until `stop`. What is under way then ends with the process, and whoever comes next goes on.
pub(crate) async fn carry_logins(runner: FlowRunner, news: AuthNews, stop: CancellationToken) {
    let carried: Arc<Mutex<HashMap<AuthFlowId, ()>>> = Arc::default();
    let mut net = tokio::time::interval(NET);
    net.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = news.any.notified() => {}
            _ = net.tick() => {}
        }
        let found = match runner.to_carry().await {
            Ok(found) => found,
            Err(error) => {
                debug!(%error, "cannot look for logins that nobody carries");
                continue;
            }
        };
        for found in found {
            let new = carried.lock().unwrap_or_else(PoisonError::into_inner).insert(found.flow, ()).is_none();
            if !new {
                continue;
            }
            let (runner, news, stop, carried) = (runner.clone(), news.clone(), stop.clone(), carried.clone());
            tokio::spawn(async move {
                carry(&runner, found, &news, stop).await;
                carried.lock().unwrap_or_else(PoisonError::into_inner).remove(&found.flow);
            });
        }
    }
}

async fn carry(
    runner: &FlowRunner,
    CarriedFlow { flow, connection }: CarriedFlow,
    news: &AuthNews,
    stop: CancellationToken,
) {
    match runner.take(flow).await {
        Ok(true) => info!(%flow, %connection, "carrying a login"),
        // Another node was faster, or the net finds it again.
        Ok(false) => return,
        Err(error) => return debug!(%flow, %error, "cannot take a login on"),
    }
    let mut follow = news.follow(connection);
    let mut memory = Memory::default();
    while !stop.is_cancelled() {
        // Never dropped midway: it may be making a session.
        match runner.step(flow, &mut memory).await {
            Ok(Next::Step) => {}
            Ok(Next::Done) => return debug!(%flow, "a login needs nobody any more"),
            Ok(Next::Wait(until)) => {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = follow.next() => {}
                    () = tokio::time::sleep(left(until)) => {}
                }
            }
            Err(error) => {
                debug!(%flow, %error, "a step of a login could not be taken; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn left(until: OffsetDateTime) -> Duration {
    // Never a spin.
    Duration::try_from(until - System.now()).unwrap_or_default().max(Duration::from_millis(20))
}

/// Looks whether logins hold, where that is due, and forgets flows of long ago, until `stop`.
pub(crate) async fn keep_logins(runner: FlowRunner, stop: CancellationToken) {
    let mut looks = tokio::time::interval(LOOKS);
    let mut forget = tokio::time::interval(FORGET);
    loop {
        let done = tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => runner.begin_looks().await,
            _ = forget.tick() => runner.forget().await,
        };
        if let Err(error) = done {
            debug!(%error, "cannot look after logins");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_follows_a_login_is_at_the_end_when_the_server_stops() {
        let (news, stop) = (AuthNews::default(), CancellationToken::new());
        let mut follow = news.follow(AuthConnectionId::from_ulid(ulid::Ulid::nil()));
        news.say(None);
        assert_eq!(follow.next().await, Some(()));
        let nowhere = DatabaseConfig::parse("postgresql:///nowhere?host=/nowhere").expect("an address");
        let hearing = tokio::spawn(news.clone().hear(nowhere, stop.clone()));
        stop.cancel();
        assert_eq!(follow.next().await, None);
        hearing.await.expect("it ends");
    }
}
