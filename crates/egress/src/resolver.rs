//! Names to addresses.

use std::{io, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Lookups of the whole process at one time. Each holds a thread of the runtime's blocking pool, which others need too.
const LOOKUPS: usize = 128;

/// A lookup's place among those of its session, free again once this is dropped.
#[derive(Debug)]
pub struct LookupPlace {
    _permit: OwnedSemaphorePermit,
}

impl LookupPlace {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: permit }
    }
}

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of `host`, best first. It is a name, never an address, and asked once for each request: what comes
    /// back is what gets checked and dialled. Who asked may give up at any time; what goes on in spite of that keeps
    /// `place`, so that a session cannot have more lookups under way than it may.
    ///
    /// # Errors
    /// Whatever keeps the name from being resolved; the session only learns that it could not be reached.
    async fn resolve(&self, host: &str, place: LookupPlace) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    slots: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, place: LookupPlace) -> io::Result<Vec<IpAddr>> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        // In a task of its own: the thread goes on when the caller gives up, and both slots must stay taken until it ends.
        let lookup = tokio::spawn(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await.map(|all| all.map(|one| one.ip()).collect());
            drop((slot, place));
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}
