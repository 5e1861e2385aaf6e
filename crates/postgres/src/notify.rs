//! The change feed: one connection per node that only listens for notifications.

use std::time::Duration;

use casement_domain::backoff::Backoff;
use futures_util::{StreamExt, stream};
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

/// The notifications of some channels. Dropping this closes the connection.
#[derive(Debug)]
pub struct Notifications {
    events: mpsc::Receiver<NotificationEvent>,
    task: JoinHandle<()>,
}

impl Notifications {
    /// Subscribes to `channels` on a new connection, on the current runtime. Reconnects automatically.
    #[must_use]
    pub fn listen(config: &DatabaseConfig, channels: Vec<String>) -> Self {
        let (sender, events) = mpsc::channel(BACKLOG);
        let task = tokio::spawn(keep_listening(config.clone(), channels, sender));
        Self { events, task }
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

impl Drop for Notifications {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_listening(config: DatabaseConfig, channels: Vec<String>, sender: mpsc::Sender<NotificationEvent>) {
    let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
    loop {
        let mut listened = false;
        let error = match listen_once(&config, &channels, &sender, &mut listened).await {
            Ok(()) => return,
            Err(error) => error,
        };
        if listened {
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

/// Connects and listens until the connection is lost. `Ok` means that the receiver was dropped.
async fn listen_once(
    config: &DatabaseConfig,
    channels: &[String],
    sender: &mpsc::Sender<NotificationEvent>,
    listened: &mut bool,
) -> Result<(), Lost> {
    let address = config.address();
    let Opened { client, wire: mut connection, .. } = address.connect().await?;
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let listening: String = channels.iter().map(|channel| format!("LISTEN {};", quote(channel))).collect();
    let (given, mut received) = mpsc::channel(1);
    // Responses to requests arrive only while the connection is read, so both run concurrently.
    let requests = async {
        client.batch_execute(&listening).await?;
        if given.send(()).await.is_err() {
            return Ok(());
        }
        loop {
            tokio::time::sleep(PULSE).await;
            match tokio::time::timeout(PULSE_LIMIT, client.simple_query(SHOW_READ_ONLY)).await {
                Ok(answer) => {
                    if only_reads(&answer?) && address.must_write() {
                        return Err(Lost::ReadOnly);
                    }
                }
                Err(_elapsed) => return Err::<(), Lost>(Lost::Silent),
            }
        }
    };
    let reading = async {
        loop {
            let received = tokio::select! {
                biased;
                Some(()) = received.recv() => {
                    *listened = true;
                    NotificationEvent::Listening
                }
                message = messages.next() => match message {
                    Some(Ok(AsyncMessage::Notification(given))) => {
                        NotificationEvent::Notification { channel: given.channel().to_owned(), payload: given.payload().to_owned() }
                    }
                    Some(Ok(_notice)) => continue,
                    Some(Err(error)) => return Err(Lost::Driver(error)),
                    None => return Err(Lost::Closed),
                },
            };
            if sender.send(received).await.is_err() {
                return Ok(());
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
