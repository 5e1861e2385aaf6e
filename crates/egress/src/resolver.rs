//! Name resolution.

use std::{io, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use tokio::sync::OwnedSemaphorePermit;

use crate::connection_slots::ConnectionSlots;

/// The maximum number of simultaneous lookups of the whole process. Each lookup occupies a thread of the runtime's
/// shared blocking pool, possibly long after the caller gave up.
const MAX_LOOKUPS: usize = 128;

/// A lookup slot of a session, released when dropped.
#[derive(Debug)]
pub struct LookupPermit {
    permit: OwnedSemaphorePermit,
}

impl LookupPermit {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { permit }
    }

    /// Returns the identity of the session: the address of the semaphore of its slots, which exists until the last slot
    /// is released.
    fn session(&self) -> usize {
        Arc::as_ptr(self.permit.semaphore()).addr()
    }
}

/// Resolves names to addresses.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns all addresses of `host`, best first. `host` is a name, never an address. It is resolved once per
    /// request: the returned addresses are checked and dialled. The caller may give up at any time; work that continues
    /// holds `permit`, so that a session cannot exceed its lookups.
    ///
    /// # Errors
    /// The reason why the name cannot be resolved; the session only learns that the host is unreachable.
    async fn resolve(&self, host: &str, permit: LookupPermit) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    connection_slots: ConnectionSlots,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { connection_slots: ConnectionSlots::new(MAX_LOOKUPS) }
    }
}

impl SystemResolver {
    /// Runs a lookup once its session has a slot.
    async fn with_slot<T: Send + 'static>(
        &self,
        permit: LookupPermit,
        lookup: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let slot = self.connection_slots.take(permit.session()).await?;
        // A separate task, because the thread continues when the caller gives up; both slots are held until it ends.
        let lookup = tokio::spawn(async move {
            let found = lookup.await;
            drop((slot, permit));
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, permit: LookupPermit) -> io::Result<Vec<IpAddr>> {
        let host = host.to_owned();
        let lookup =
            async move { Ok(tokio::net::lookup_host((host.as_str(), 0)).await?.map(|one| one.ip()).collect()) };
        self.with_slot(permit, lookup).await
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::{sync::Semaphore, time::timeout};

    use super::*;
    use crate::Limits;

    /// Starts the maximum number of lookups of a session, none of which ever ends.
    async fn hang(resolver: &SystemResolver, lookups: usize) {
        let slots = Arc::new(Semaphore::new(lookups));
        for _ in 0..lookups {
            let permit = LookupPermit::new(Arc::clone(&slots).acquire_owned().await.unwrap());
            let resolver = resolver.clone();
            tokio::spawn(async move { resolver.with_slot(permit, pending::<io::Result<()>>()).await });
        }
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn hanging_lookups_of_a_session_do_not_block_another_session() {
        let resolver = SystemResolver::default();
        for _ in 0..16 {
            hang(&resolver, Limits::default().lookups).await;
        }
        let permit = LookupPermit::new(Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap());
        let found = timeout(Duration::from_secs(5), resolver.with_slot(permit, async { Ok("found") })).await;
        assert_eq!(found.unwrap().unwrap(), "found");
    }
}
