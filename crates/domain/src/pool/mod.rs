//! The browser pool: a wish for so many warm browsers of one shape, and the line of those who wait for one.

mod doubt;
mod fair;
mod filler;
mod input;
mod lease;
mod model;
mod places;
mod plan;
mod ports;
mod prospect;
mod service;

pub use fair::FairQueue;
pub use filler::{FillStatus, PoolFiller, Round, WarmError};
pub use input::{PoolInput, UpdatePool};
pub use lease::{AcquireError, AcquireInput, Acquired, Leases, ReleaseError, Waiting};
pub use model::{Generation, Growth, Pool, PoolConfig, PoolCounts};
pub use places::{FairPlace, FairPlaces};
pub use plan::{IdleBrowser, Observed, Plan, plan};
pub use ports::{
    Entered, Fence, LeaseFrom, LeaseRequest, Outcome, Place, PoolDeleted, PoolFilter, PoolRepository, PoolStored,
    TakenNow, TicketNotifier, WaitQueue, Waiter, WaiterEvent,
};
#[cfg(feature = "mocks")]
pub use ports::{MockPoolRepository, MockTicketNotifier, MockWaitQueue, MockWaiter};
pub use service::{CreatePoolError, DeletePoolError, FlushPoolError, PoolDeps, Pools, UpdatePoolError};
