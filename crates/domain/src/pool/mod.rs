//! Browser pools: named sets of warm browsers with one configuration, their leases and the queue of waiting callers.

mod fair_queue;
mod fair_slots;
mod fast_path;
mod filler;
mod hand_out;
mod input;
mod lease;
mod lease_cleanup;
mod model;
mod peer_requests;
mod plan;
mod ports;
mod service;
mod shares;
mod uncertain_writes;

pub use fair_queue::FairQueue;
pub use fair_slots::{FairSlot, FairSlots};
pub use filler::{FillRound, FillStatus, PoolFiller, WarmError};
pub use input::{MAX_FILL_RATE_PERCENT, MAX_SIZE};
pub use input::{PoolRequest, PoolUpdateRequest};
pub use lease::{AcquireRequest, Acquired, Leases, NotLeased, ReleaseError, WaitingCaller};
pub use model::{Generation, Growth, Pool, PoolConfig, PoolCounts, QueueLength};
pub use model::{MAX_BLOCKED_REASON, MAX_WAIT_SECONDS};
pub use peer_requests::PeerRequests;
pub use plan::{IdleBrowser, NodeBrowsers, Observed, Plan, plan};
pub use ports::{
    ImmediateLease, KnownBrowser, LeaderFence, LeaseRequest, PoolDeleted, PoolFilter, PoolRepository, PoolStored,
    QueueEntered, QueueEntry, TicketNotifier, TicketOutcome, WaitQueue, Waiter, WaiterEvent,
};
#[cfg(feature = "mocks")]
pub use ports::{MockPoolRepository, MockTicketNotifier, MockWaitQueue, MockWaiter};
pub use service::{BrowsersLeased, DeletePoolError, PoolDeps, Pools, UpdatePoolError};
pub use shares::shares;
