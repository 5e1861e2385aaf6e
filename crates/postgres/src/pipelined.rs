//! One connection for the short statements of a web worker. The statements of one turn of its event loop are sent in
//! one write, and the results arrive on the thread that waits for them. A connection for each would cost one or two
//! wake-ups per statement.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diesel::ConnectionError;
use diesel_async::AsyncPgConnection;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::OnceCell;

use crate::connect::{Address, Opened, bad_connection, describe};
use crate::refusals::Refusals;

thread_local! {
    static OF_THIS_THREAD: RefCell<HashMap<u64, Slot>> = RefCell::default();
}

/// The place of the connection, empty until the first user opens it.
pub(crate) type Slot = Arc<OnceCell<PipelinedConnection>>;

/// A connection whose statements may overlap: each is a transaction of its own, and the results arrive in the order of
/// sending.
pub(crate) struct PipelinedConnection {
    connection: AsyncPgConnection,
    refusals: Refusals,
    generation: u64,
    ended: Arc<AtomicBool>,
}

/// The shared connections to one database: one for each thread with a runtime of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipelinedConnections(u64);

impl PipelinedConnections {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The slot of this thread for connections of this generation, if its runtime is single-threaded.
    pub(crate) fn here(self, generation: u64) -> Option<Slot> {
        let alone = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        alone.then(|| {
            OF_THIS_THREAD.with_borrow_mut(|all| {
                let slot = all.entry(self.0).or_default();
                if slot.get().is_some_and(|open| open.has_ended() || open.generation != generation) {
                    *slot = Slot::default();
                }
                Arc::clone(slot)
            })
        })
    }

    /// Drops the connection of this thread. The next use opens another one.
    pub(crate) fn forget(self) {
        OF_THIS_THREAD.with_borrow_mut(|all| all.remove(&self.0));
    }
}

impl PipelinedConnection {
    /// Opens a connection of this generation, whose socket is driven by the current runtime.
    pub(crate) async fn open(address: &Address, generation: u64) -> Result<Self, ConnectionError> {
        let Opened { client, wire, refusals } = address.connect().await.map_err(|error| bad_connection(&error))?;
        let ended = Arc::<AtomicBool>::default();
        let end = Arc::clone(&ended);
        tokio::spawn(async move {
            if let Err(error) = wire.await {
                tracing::debug!(error = describe(&error), "a connection to the database was lost");
            }
            end.store(true, Ordering::Relaxed);
        });
        Ok(Self { connection: AsyncPgConnection::try_from(client).await?, refusals, generation, ended })
    }

    pub(crate) fn connection(&self) -> &AsyncPgConnection {
        &self.connection
    }

    /// What the server refuses on this connection.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
