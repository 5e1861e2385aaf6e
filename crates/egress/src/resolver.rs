//! Names to addresses.

use std::{io, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use tokio::sync::Semaphore;

/// Lookups of the whole process at one time. Each holds a thread of the runtime's blocking pool, which others need too.
const LOOKUPS: usize = 128;

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of `host`, best first. It is a name, never an address, and asked once for each request: what comes
    /// back is what gets checked and dialled.
    ///
    /// # Errors
    /// Whatever keeps the name from being resolved; the session only learns that it could not be reached.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
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
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        // In a task of its own: the thread goes on when the caller gives up, and its slot must stay taken until it ends.
        let lookup = tokio::spawn(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await.map(|all| all.map(|one| one.ip()).collect());
            drop(slot);
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}
