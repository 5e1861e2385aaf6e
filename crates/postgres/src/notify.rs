//! The change feed: one connection per node that only listens for notifications, for all that wait for some.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::backoff::Backoff;
use futures_util::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use crate::connect::{ConnectError, Opened, SHOW_READ_ONLY, describe, only_reads};
use crate::database_config::DatabaseConfig;

/// The number of buffered events from which on the connection is no longer read.
const BACKLOG: usize = 1024;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// The interval of the liveness checks of the connection, and their timeout.
const PULSE: Duration = Duration::from_secs(20);
const PULSE_LIMIT: Duration = Duration::from_secs(5);

/// An event of the change feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotificationEvent {
    /// The channels are subscribed from now on. Earlier notifications may have been missed, so the consumer must read
    /// the state again. The first event, repeated after each lost connection.
    Listening,
    /// A notification on one of the channels.
    Notification {
        /// The name of the channel.
        channel: String,
        /// The payload, fewer than 8,000 bytes.
        payload: String,
    },
}

/// A connection that listens to channels, shared by subscriptions. Clones share it; it is closed with the last of them and of
/// the subscriptions.
#[derive(Clone, Debug)]
pub struct NotificationHub(Arc<Hub>);

#[derive(Debug)]
struct Hub {
    subscriptions: Arc<Subscriptions>,
    task: JoinHandle<()>,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, Default)]
struct Subscriptions(Mutex<SubscriptionState>);

#[derive(Debug, Default)]
struct SubscriptionState {
    all: Vec<Subscription>,
    is_listening: bool,
}

#[derive(Clone, Debug)]
struct Subscription {
    channels: Arc<[String]>,
    events: mpsc::Sender<NotificationEvent>,
}

impl Subscriptions {
    fn state(&self) -> MutexGuard<'_, SubscriptionState> {
        self.0.lock()
    }

    /// Sends an event to the subscriptions that `wanted` chooses. Waits for those that have a full buffer.
    async fn send(&self, event: NotificationEvent, wanted: impl Fn(&Subscription) -> bool) {
        let chosen: Vec<Subscription> = self.state().all.iter().filter(|one| wanted(one)).cloned().collect();
        for one in chosen {
            if one.events.send(event.clone()).await.is_err() {
                self.state().all.retain(|other| !other.events.is_closed());
            }
        }
    }

    /// Informs all that the channels are subscribed from now on.
    async fn begin(&self) {
        self.state().is_listening = true;
        self.send(NotificationEvent::Listening, |_| true).await;
    }
}

impl NotificationHub {
    /// Listens to `channels` on a new connection, on the current runtime. Reconnects automatically.
    #[must_use]
    pub fn listen(config: &DatabaseConfig, channels: Vec<String>) -> Self {
        let subscriptions = Arc::<Subscriptions>::default();
        let task = tokio::spawn(keep_listening(config.clone(), channels, Arc::clone(&subscriptions)));
        Self(Arc::new(Hub { subscriptions, task }))
    }

    /// Subscribes to some of the channels.
    #[must_use]
    pub fn subscribe(&self, channels: Vec<String>) -> Notifications {
        let (sender, events) = mpsc::channel(BACKLOG);
        let mut state = self.0.subscriptions.state();
        if state.is_listening {
            // A new buffer has room.
            let _sent = sender.try_send(NotificationEvent::Listening);
        }
        state.all.push(Subscription { channels: channels.into(), events: sender });
        Notifications { events, _hub: self.clone() }
    }
}

/// The notifications of some channels.
#[derive(Debug)]
pub struct Notifications {
    events: mpsc::Receiver<NotificationEvent>,
    _hub: NotificationHub,
}

impl Notifications {
    /// Subscribes to `channels` on a connection of its own, on the current runtime. Dropping this closes the connection.
    #[must_use]
    pub fn listen(config: &DatabaseConfig, channels: Vec<String>) -> Self {
        NotificationHub::listen(config, channels.clone()).subscribe(channels)
    }

    /// Waits for the next event, without a timeout. Safe to cancel.
    pub async fn next(&mut self) -> NotificationEvent {
        match self.events.recv().await {
            Some(received) => received,
            // The task ends only with the runtime, so no event will follow.
            None => std::future::pending().await,
        }
    }
}

async fn keep_listening(config: DatabaseConfig, channels: Vec<String>, subscriptions: Arc<Subscriptions>) {
    let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
    loop {
        let error = listen_once(&config, &channels, &subscriptions).await;
        if std::mem::take(&mut subscriptions.state().is_listening) {
            backoff.reset();
        }
        let pause = backoff.next_pause();
        metrics::counter!("casement_database_listen_lost_total").increment(1);
        tracing::warn!(%error, pause_ms = pause.as_millis(), "the database connection for notifications is lost");
        tokio::time::sleep(pause).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("{}", describe(.0))]
    Driver(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("it was closed")]
    Closed,
    #[error("its server only reads, and would not report what others store")]
    ReadOnly,
    #[error("it does not answer")]
    Silent,
}

/// Connects and listens until the connection is lost. Returns why.
async fn listen_once(config: &DatabaseConfig, channels: &[String], subscriptions: &Subscriptions) -> Lost {
    let address = config.address();
    let Opened { client, wire: mut connection, .. } = match address.connect().await {
        Ok(opened) => opened,
        Err(error) => return error.into(),
    };
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let listening: String = channels.iter().map(|channel| format!("LISTEN {};", quote(channel))).collect();
    let (given, mut received) = mpsc::channel(1);
    // Responses to requests arrive only while the connection is read, so both run concurrently.
    let requests = async {
        if let Err(error) = client.batch_execute(&listening).await {
            return error.into();
        }
        // The receiver lives as long as this.
        let _begun = given.send(()).await;
        loop {
            tokio::time::sleep(PULSE).await;
            match tokio::time::timeout(PULSE_LIMIT, client.simple_query(SHOW_READ_ONLY)).await {
                Ok(Ok(answer)) if only_reads(&answer) && address.must_write() => return Lost::ReadOnly,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error.into(),
                Err(_elapsed) => return Lost::Silent,
            }
        }
    };
    let reading = async {
        loop {
            tokio::select! {
                biased;
                Some(()) = received.recv() => subscriptions.begin().await,
                message = messages.next() => match message {
                    Some(Ok(AsyncMessage::Notification(given))) => {
                        let (channel, payload) = (given.channel().to_owned(), given.payload().to_owned());
                        let is_for = |one: &Subscription| one.channels.iter().any(|other| other == given.channel());
                        subscriptions.send(NotificationEvent::Notification { channel, payload }, is_for).await;
                    }
                    Some(Ok(_notice)) => {}
                    Some(Err(error)) => return error.into(),
                    None => return Lost::Closed,
                },
            }
        }
    };
    tokio::select! {
        lost = requests => lost,
        lost = reading => lost,
    }
}

fn quote(channel: &str) -> String {
    format!("\"{}\"", channel.replace('"', "\"\""))
}

diesel::define_sql_function! {
    /// Sends a notification on a channel when the transaction commits. The result is never read.
    fn pg_notify(channel: diesel::sql_types::Text, payload: diesel::sql_types::Text) -> diesel::sql_types::Text;
}
