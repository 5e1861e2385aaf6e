//! The ports of pools: repository, wait queue and the notification of waiters.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{Generation, Growth, Observed, Pool, PoolCounts, QueueLength};
use crate::audit::AuditEntry;
use crate::browser::{Browser, BrowserRegion, StartUrl};
use crate::clock::MonotonicTime;
use crate::ids::{BrowserId, NodeId, OrganizationId, PoolId, ProjectId, SessionId, TicketId};
use crate::name::LabelName;
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::profile::LoadedProfile;
use crate::session::{IdOrName, Session, Tags};
use crate::store_error::{Replaced, StoreError};
use crate::telemetry::Capture;

/// The result of storing a pool.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolStored {
    /// It is stored.
    Yes,
    /// Another pool of the project has the name. Nothing was stored.
    NameTaken,
    /// The request exceeds a limit. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// A named extension was deleted. Nothing was stored.
    ExtensionGone,
    /// The named proxy was deleted. Nothing was stored.
    ProxyGone,
    /// The named profile was deleted. Nothing was stored.
    ProfileGone,
    /// The pool or its project was deleted. Nothing was stored.
    Gone,
}

/// The result of deleting a pool.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolDeleted {
    /// It is deleted: its waiters are notified, its browsers without a lease are ending.
    Yes,
    /// This number of its browsers is leased, and `force` was not set. Nothing was changed.
    InUse(u32),
    /// There is no such pool.
    NotFound,
}

/// The filter of a list of pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFilter {
    /// The exact name, compared without case and accents.
    pub name: Option<String>,
    /// A substring of the name, compared without case.
    pub query: Option<String>,
    /// The region; any other than the installation's has no pools. Repositories ignore it.
    pub region: Option<BrowserRegion>,
}

/// The fencing number of a pool's leader; a higher number overrides a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaderFence(pub i64);

/// The stored pools with their browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait PoolRepository: Send + Sync {
    /// Stores a new pool if [`admit`](crate::organization::admit) allows it, in one transaction that no other
    /// reservation of the organization can interleave. A project has at most `max_pools`.
    async fn create(&self, organization: OrganizationId, pool: &Pool, max_pools: u32)
    -> Result<PoolStored, StoreError>;

    /// Replaces `current` by `next` if the row has not changed since (`updated_at`) and the limits allow the growth.
    /// Returns `PoolStored::Gone` also if the row has changed; the caller then reads it again. With `discards` the
    /// browsers are [flushed](Self::flush) in the same transaction and returned, so that no browser of the earlier
    /// configuration is leased afterwards.
    async fn replace(
        &self,
        organization: OrganizationId,
        current: &Pool,
        next: &Pool,
        discards: bool,
    ) -> Result<(PoolStored, Vec<BrowserId>), StoreError>;

    /// Returns the project's pool.
    async fn find(&self, project: ProjectId, which: &IdOrName<PoolId>) -> Result<Option<Pool>, StoreError>;

    /// Returns the project's pool and the browser that the next lease at `node` most likely takes: the one of that node
    /// that is idle longest. The browser is not reserved; another caller may lease it first.
    async fn find_with_next(
        &self,
        project: ProjectId,
        which: &IdOrName<PoolId>,
        node: NodeId,
    ) -> Result<Option<(Pool, Option<BrowserId>)>, StoreError>;

    /// Returns the pool with this id in any project.
    async fn find_by_id(&self, id: PoolId) -> Result<Option<Pool>, StoreError>;

    /// Returns the project's pools with their counts, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError>;

    /// Returns the counts of the pool.
    async fn counts(&self, id: PoolId) -> Result<PoolCounts, StoreError>;

    /// Returns the counts of all pools, and their queues.
    async fn all_counts(&self) -> Result<Vec<(PoolId, PoolCounts, Option<QueueLength>)>, StoreError>;

    /// Returns the ids of all pools.
    async fn all(&self) -> Result<Vec<PoolId>, StoreError>;

    /// Returns the ids of all pools, each with a text that differs when what `node` observes of the pool, its configuration
    /// or its leader differs.
    async fn all_conditions(&self, node: NodeId) -> Result<Vec<(PoolId, String)>, StoreError>;

    /// Deletes the pool, with `force` also if browsers are leased. Their sessions continue until they are ended.
    async fn delete(&self, id: PoolId, force: bool) -> Result<PoolDeleted, StoreError>;

    /// Begins a new generation of the pool: marks all idle and warming browsers as ending, and returns them. Lowers the
    /// allowance by the number of idle ones; growth counts from `now` on.
    async fn flush(&self, id: PoolId, now: OffsetDateTime) -> Result<Vec<BrowserId>, StoreError>;

    /// Makes `node` the pool's leader, which stores its growth, for `lasts`, if no other node leads by the clock of the store. The number rises
    /// with every change of leader. Returns `None` if another node leads or the pool is deleted.
    async fn lead(&self, id: PoolId, node: NodeId, lasts: Duration) -> Result<Option<LeaderFence>, StoreError>;

    /// Extends the leads that `node` has: each ends `lasts` from now.
    async fn renew_leads(&self, node: NodeId, lasts: Duration) -> Result<(), StoreError>;

    /// Returns the pool's browsers on all nodes as `node` sees them, and the nodes that take browsers: those that serve
    /// and are not silent; a node does not count its own silence. A browser is outdated if it is of an earlier generation, or if the
    /// pool follows its profile and the browser was started with an older version of it. An outdated browser is never
    /// leased.
    async fn observe(&self, id: PoolId, node: NodeId) -> Result<Observed, StoreError>;

    /// Stores the growth state, unless it changed since `pool` was read.
    async fn grow(&self, pool: &Pool, fence: LeaderFence, growth: Growth) -> Result<Replaced, StoreError>;

    /// Stores why the pool cannot be filled, or that nothing prevents it, without changing `updated_at`. Writes nothing if
    /// that is stored already or the pool is deleted.
    async fn set_blocked(&self, id: PoolId, reason: Option<String>) -> Result<(), StoreError>;

    /// Stores a warming browser if the pool exists in this generation and has fewer browsers on all nodes than its
    /// allowance, so that the nodes together never exceed it.
    async fn warm(&self, browser: &Browser, generation: Generation) -> Result<Replaced, StoreError>;

    /// Makes a warming browser idle and, in the same transaction, grants it to the first ticket in the queue. Returns
    /// `LostRace` if it is not warming any more, of an earlier generation, or its pool is deleted; the caller then ends
    /// it.
    async fn ready(&self, browser: BrowserId, now: OffsetDateTime) -> Result<Replaced, StoreError>;
}

/// A checked request for a lease. Values that it does not set come from the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The id of the new session.
    pub session: SessionId,
    /// The node of the caller. Its browsers are preferred.
    pub node: NodeId,
    /// The nodes whose browsers are not leased, because they could not be reached from the caller's node.
    pub avoided: Vec<NodeId>,
    /// The name of the session.
    pub name: Option<LabelName>,
    /// The address to open in place of the pool's.
    pub start_url: Option<StartUrl>,
    /// The tags of the session.
    pub tags: Tags,
    /// The telemetry capture of the session.
    pub telemetry: Option<Capture>,
    /// The profile that is loaded after the lease. Repositories ignore it.
    pub profile: Option<LoadedProfile>,
}

/// The browser that a lease with its audit record takes, as the caller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBrowser {
    /// The browser.
    pub browser: BrowserId,
    /// The pool of the browser.
    pub pool: PoolId,
    /// The `updated_at` that the pool must still have. A pool that changed since then answers `Busy`.
    pub unchanged_since: OffsetDateTime,
}

/// A new entry of the wait queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// The pool.
    pub pool: PoolId,
    /// The ticket's id.
    pub ticket: TicketId,
    /// The earlier position of a ticket that returns to the queue, lower first; `None` for the end of the queue.
    pub position: Option<i64>,
    /// The lease that it waits for.
    pub lease: LeaseRequest,
    /// The node of the waiting caller.
    pub node: NodeId,
    /// The lifetime of the ticket if its node stops. A live node removes its tickets itself.
    pub lasts: Duration,
}

/// The result of an immediate lease.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImmediateLease {
    /// An idle browser was leased; the session is stored, active.
    Leased(Box<Session>),
    /// No browser is idle, or others wait already.
    Busy,
    /// Another session of the project bears the name.
    NameTaken,
    /// The pool was deleted.
    PoolGone,
}

/// The result of entering the wait queue.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEntered {
    /// The ticket is queued at this position. It may be granted already, so the caller reads its outcome.
    Yes(i64),
    /// The pool was deleted.
    PoolGone,
}

/// The outcome of a ticket.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketOutcome {
    /// The ticket is still queued.
    Waiting,
    /// The session is stored, active. Reading this outcome removes the ticket.
    Granted(Box<Session>),
    /// Another session had the name when the ticket was first in the queue. Reading this outcome removes the ticket.
    NameTaken,
    /// The pool was deleted, or the ticket is not in the queue.
    Gone,
}

/// The wait queue of each pool: first come, first served over all nodes.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait WaitQueue: Send + Sync {
    /// Leases an idle browser if there is one and the queue is empty, in one statement: one of the caller's node, else
    /// one of another node that serves. The lease is durable at the latest when an audit record that is appended
    /// afterwards is durable.
    async fn take_now(
        &self,
        pool: PoolId,
        lease: &LeaseRequest,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError>;

    /// Leases this browser, regardless of its order among the idle ones, together with the audit record of the call:
    /// both are durable or neither exists. Returns `Busy` if the browser is not idle, or if the store cannot write both
    /// at once, which is the default.
    async fn take_recorded(
        &self,
        _known: &KnownBrowser,
        _lease: &LeaseRequest,
        _record: &AuditEntry,
        _now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        Ok(ImmediateLease::Busy)
    }

    /// Enters the queue and then, in a second transaction, grants idle browsers to the first tickets.
    async fn enter(&self, place: &QueueEntry, now: OffsetDateTime) -> Result<QueueEntered, StoreError>;

    /// Returns the outcome of the ticket.
    async fn outcome(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError>;

    /// Leaves the queue. If the ticket was granted meanwhile, the outcome holds the session, which the caller uses or
    /// returns. Never returns `Waiting`.
    async fn leave(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError>;

    /// Returns the tickets of this node that have an outcome; a fallback for lost notifications.
    async fn decided(&self, node: NodeId) -> Result<Vec<TicketId>, StoreError>;

    /// Removes all tickets of a node that restarts; sessions granted to them end as undelivered.
    async fn clear(&self, node: NodeId, now: OffsetDateTime) -> Result<(), StoreError>;
}

/// The reason why a waiter woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterEvent {
    /// The ticket may have an outcome, which the waiter reads now.
    Look,
    /// The timeout has passed.
    TimeUp,
    /// The server stops.
    Stopping,
}

/// Wakes waiters on notifications, so that they need not poll.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait TicketNotifier: Send + Sync {
    /// Registers a waiter for the ticket. Must be called before the ticket enters the queue, so that no notification is
    /// missed.
    fn expect(&self, ticket: TicketId) -> Box<dyn Waiter>;

    /// Wakes the waiter of a decided ticket. Returns `false` if none is registered on this node.
    fn wake(&self, ticket: TicketId) -> bool;
}

/// A registered waiter. Dropping it removes the registration.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Waiter: Send + Sync {
    /// Waits for a notification until `until`. Notifications between two calls are not lost.
    async fn wait(&mut self, until: MonotonicTime) -> WaiterEvent;
}
