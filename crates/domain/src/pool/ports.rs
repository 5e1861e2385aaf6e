//! What pools need from outside.

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{Generation, Growth, Observed, Pool, PoolCounts};
use crate::audit::AuditEntry;
use crate::browser::{Browser, StartUrl};
use crate::clock::MonotonicTime;
use crate::ids::{BrowserId, NodeId, OrganizationId, PoolId, ProjectId, SessionId, TicketId};
use crate::name::LabelName;
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::session::{IdOrName, Session, Tags};
use crate::store_error::{Replaced, StoreError};
use crate::telemetry::Capture;

/// What became of a pool that was to be stored.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolStored {
    /// It is stored.
    Yes,
    /// Another pool of the project bears the name. Nothing was stored.
    NameTaken,
    /// It would go over a limit. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// An extension that it names is not kept any more. Nothing was stored.
    ExtensionGone,
    /// The proxy that it names is not kept any more. Nothing was stored.
    ProxyGone,
    /// The profile that it names is not kept any more. Nothing was stored.
    ProfileGone,
    /// The pool, or its project, is gone. Nothing was stored.
    Gone,
}

/// What became of a pool that was to be deleted.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolDeleted {
    /// It is gone: its waiters were told, its browsers without a lease are ending.
    Yes,
    /// So many of its browsers are leased, and it was not to be forced. Nothing was changed.
    InUse(u32),
    /// There is no such pool.
    NotFound,
}

/// Which pools a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFilter {
    /// Exactly, without case and accents.
    pub name: Option<String>,
    /// Substring of the name, without case.
    pub query: Option<String>,
}

/// Proof of having become a pool's leader; a higher number fences off a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaderFence(pub i64);

/// Where pools are kept, with their browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait PoolRepository: Send + Sync {
    /// Stores a new pool, under the limits as [`admit`](crate::organization::admit) decides, in one transaction that no
    /// other reservation of the organization can interleave. At most `max_pools` per project.
    async fn create(&self, organization: OrganizationId, pool: &Pool, max_pools: u32)
    -> Result<PoolStored, StoreError>;

    /// Stores `next` in place of `current` if the row has not changed since (`updated_at`), under the limits for what
    /// it grows by. `PoolStored::Gone` also if it has changed: read again.
    async fn replace(
        &self,
        organization: OrganizationId,
        current: &Pool,
        next: &Pool,
    ) -> Result<PoolStored, StoreError>;

    /// The project's pool.
    async fn find(&self, project: ProjectId, which: &IdOrName<PoolId>) -> Result<Option<Pool>, StoreError>;

    /// The project's pool, and the browser that a lease of now would most likely get: the one that is idle for longest.
    /// It is not held; somebody else may get it first.
    async fn find_with_next(
        &self,
        project: ProjectId,
        which: &IdOrName<PoolId>,
    ) -> Result<Option<(Pool, Option<BrowserId>)>, StoreError>;

    /// The pool of that id, whatever its project.
    async fn find_by_id(&self, id: PoolId) -> Result<Option<Pool>, StoreError>;

    /// The project's pools, newest first, with what they have.
    async fn list(
        &self,
        project: ProjectId,
        filter: &PoolFilter,
        page: Page,
    ) -> Result<Listed<(Pool, PoolCounts)>, StoreError>;

    /// What the pool has.
    async fn counts(&self, id: PoolId) -> Result<PoolCounts, StoreError>;

    /// Every pool there is.
    async fn all(&self) -> Result<Vec<PoolId>, StoreError>;

    /// Deletes the pool; with `force` even if browsers are leased: their sessions go on until somebody ends them.
    async fn delete(&self, id: PoolId, force: bool) -> Result<PoolDeleted, StoreError>;

    /// Begins a new generation of the pool: marks all idle browsers as ending, and those that are still warming. Lowers the allowance by
    /// the number of those that were idle; the next one is earned from `now` on. Returns all that it marked.
    async fn flush(&self, id: PoolId, now: OffsetDateTime) -> Result<Vec<BrowserId>, StoreError>;

    /// Makes `node` the pool's leader for so long, if nobody else leads now by the store's own clock; the number rises with every change
    /// of leader. `None`: somebody else leads, or the pool is gone.
    async fn lead(&self, id: PoolId, node: NodeId, lasts: Duration) -> Result<Option<LeaderFence>, StoreError>;

    /// What the pool has; browsers of all nodes. One is outdated if it is of an earlier generation, or was started with a version of its
    /// profile that is not the current one any more and the pool is to follow its profile. Such a browser is never leased.
    async fn observe(&self, id: PoolId) -> Result<Observed, StoreError>;

    /// Notes how far the pool may grow, unless it was changed since `pool` was read.
    async fn grow(&self, pool: &Pool, fence: LeaderFence, growth: Growth) -> Result<Replaced, StoreError>;

    /// Stores a warming browser of that generation, if `fence` still leads, and the pool exists and is of that generation.
    async fn warm(&self, browser: &Browser, fence: LeaderFence, generation: Generation)
    -> Result<Replaced, StoreError>;

    /// A warming browser answers: it becomes idle and, in the same transaction, is handed to the first in line, if
    /// somebody waits. Lost if it is not warming any more, of an earlier generation, or its pool is gone: then end it.
    async fn ready(&self, browser: BrowserId, now: OffsetDateTime) -> Result<Replaced, StoreError>;
}

/// A lease as asked for, checked. What it does not say comes from the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The id of the session to be.
    pub session: SessionId,
    /// Name of the session.
    pub name: Option<LabelName>,
    /// Instead of the pool's.
    pub start_url: Option<StartUrl>,
    /// Of the session.
    pub tags: Tags,
    /// What is captured of the session.
    pub telemetry: Option<Capture>,
}

/// What is leased from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseFrom {
    /// The pool.
    pub pool: PoolId,
    /// Only if the pool is as it was when it was read: its `updated_at` of then. One that was changed or renamed since is busy.
    pub unchanged_since: Option<OffsetDateTime>,
}

impl From<PoolId> for LeaseFrom {
    fn from(pool: PoolId) -> Self {
        Self { pool, unchanged_since: None }
    }
}

/// A place in the line, as asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// In the line of which pool.
    pub pool: PoolId,
    /// The ticket's id.
    pub ticket: TicketId,
    /// Of a ticket that comes back: where it stood, lower first. `None`: behind all others.
    pub position: Option<i64>,
    /// What it waits for.
    pub lease: LeaseRequest,
    /// Which node's caller waits.
    pub node: NodeId,
    /// How long it lives if its node is silent; one whose node lives is taken out of the line by that node.
    pub lasts: Duration,
}

/// What became of a try to lease at once.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImmediateLease {
    /// An idle browser was leased; the session is stored, active.
    Leased(Box<Session>),
    /// No browser is idle, or others wait already.
    Busy,
    /// Another session of the project bears the name.
    NameTaken,
    /// The pool is gone.
    PoolGone,
}

/// What became of entering the line.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEntered {
    /// In line at that position. It may be its turn already: look.
    Yes(i64),
    /// The pool is gone.
    PoolGone,
}

/// What became of a ticket.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketOutcome {
    /// Still in line.
    Waiting,
    /// Its session is stored, active. The ticket is gone with this answer.
    Granted(Box<Session>),
    /// Another session bore the name when its turn came. The ticket is gone with this answer.
    NameTaken,
    /// The pool was deleted, or the ticket was never there or has left.
    Gone,
}

/// The line of those who wait for a pool's browsers: strictly first come, first served, over all nodes.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait WaitQueue: Send + Sync {
    /// One statement: leases an idle browser if there is one and nobody is in line. It is durable at the latest when an audit record
    /// is that is appended afterwards.
    async fn take_now(
        &self,
        from: &LeaseFrom,
        lease: &LeaseRequest,
        now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError>;

    /// Leases this browser, whatever its place among those that are idle, with the audit record of the call: both are durable when it is
    /// leased, or neither is there. Where it is not idle, the pool is busy, and so is a store that cannot do both at once, as by default.
    async fn take_recorded(
        &self,
        _from: &LeaseFrom,
        _browser: BrowserId,
        _lease: &LeaseRequest,
        _record: &AuditEntry,
        _now: OffsetDateTime,
    ) -> Result<ImmediateLease, StoreError> {
        Ok(ImmediateLease::Busy)
    }

    /// Enters the line and then, in a transaction of its own, gives idle browsers to the first in line.
    async fn enter(&self, place: &QueueEntry, now: OffsetDateTime) -> Result<QueueEntered, StoreError>;

    /// What became of the ticket.
    async fn outcome(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError>;

    /// Leaves the line. If it was the ticket's turn at that very moment, the outcome says so, and the session is the
    /// caller's to use or give back. `Waiting` is never answered.
    async fn leave(&self, ticket: TicketId) -> Result<TicketOutcome, StoreError>;

    /// The tickets of this node about which something was decided: the net under lost notifications.
    async fn decided(&self, node: NodeId) -> Result<Vec<TicketId>, StoreError>;

    /// Removes all tickets of a node, whose callers are gone; sessions granted to them end as undelivered.
    async fn clear(&self, node: NodeId, now: OffsetDateTime) -> Result<(), StoreError>;

    /// How many are in line, and since when the first, per pool.
    async fn lengths(&self) -> Result<Vec<(PoolId, u32, OffsetDateTime)>, StoreError>;
}

/// What woke a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterEvent {
    /// Something was decided about its ticket, or may have been: look.
    Look,
    /// Its time is up.
    TimeUp,
    /// The server stops.
    Stopping,
}

/// Where waiters are woken, without anybody asking again and again.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait TicketNotifier: Send + Sync {
    /// Expects news of a ticket from now on; to be called before the ticket enters the line, so that none is missed.
    fn expect(&self, ticket: TicketId) -> Box<dyn Waiter>;
}

/// One waiter's ear. Dropping it stops expecting.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait Waiter: Send + Sync {
    /// Waits for news until `until`. News that came between two calls are not lost.
    async fn wait(&mut self, until: MonotonicTime) -> WaiterEvent;
}
