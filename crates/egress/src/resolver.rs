//! Names to addresses.

use std::{io, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use tokio::sync::OwnedSemaphorePermit;

use crate::connection_slots::ConnectionSlots;

/// Lookups of the whole process at one time. Each holds a thread of the runtime's blocking pool, which others need too, and may do so for
/// long after whoever asked has given up.
const LOOKUPS: usize = 128;

/// A lookup's place among those of its session, free again once this is dropped.
#[derive(Debug)]
pub struct LookupPermit {
    permit: OwnedSemaphorePermit,
}

impl LookupPermit {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { permit }
    }

    /// What tells its session from others: the places of a session are of one semaphore, which is there as long as one of them is.
    fn session(&self) -> usize {
        Arc::as_ptr(self.permit.semaphore()).addr()
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
    async fn resolve(&self, host: &str, place: LookupPermit) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    connection_slots: ConnectionSlots,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { connection_slots: ConnectionSlots::new(LOOKUPS) }
    }
}

impl SystemResolver {
    /// Runs a lookup when it is its session's turn.
    async fn in_turn<T: Send + 'static>(
        &self,
        place: LookupPermit,
        lookup: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.connection_slots.take(place.session()).await?;
        // In a task of its own: the thread goes on when the caller gives up, and both places must stay taken until it ends.
        let lookup = tokio::spawn(async move {
            let found = lookup.await;
            drop((turn, place));
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, place: LookupPermit) -> io::Result<Vec<IpAddr>> {
        let host = host.to_owned();
        let lookup =
            async move { Ok(tokio::net::lookup_host((host.as_str(), 0)).await?.map(|one| one.ip()).collect()) };
        self.in_turn(place, lookup).await
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::{sync::Semaphore, time::timeout};

    use super::*;
    use crate::Limits;

    /// Asks for all names that a session may, of a server that never answers, and waits for none.
    async fn hang(resolver: &SystemResolver, lookups: usize) {
        let places = Arc::new(Semaphore::new(lookups));
        for _ in 0..lookups {
            let place = LookupPermit::new(Arc::clone(&places).acquire_owned().await.unwrap());
            let resolver = resolver.clone();
            tokio::spawn(async move { resolver.in_turn(place, pending::<io::Result<()>>()).await });
        }
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn sessions_whose_lookups_hang_do_not_keep_another_from_its_own() {
        let resolver = SystemResolver::default();
        for _ in 0..16 {
            hang(&resolver, Limits::default().lookups).await;
        }
        let place = LookupPermit::new(Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap());
        let found = timeout(Duration::from_secs(5), resolver.in_turn(place, async { Ok("found") })).await;
        assert_eq!(found.unwrap().unwrap(), "found");
    }
}
