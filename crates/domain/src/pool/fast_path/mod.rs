//! The fast path of an acquire: one statement leases the next browser and stores the audit record of the call.
//!
//! # Without it
//!
//! An acquire waits three times for the database:
//!
//! 1. The audit intent of the call is stored, concurrently with reading the pool. The intent must be durable before
//!    anything changes, so this is a commit.
//! 2. [`WaitQueue::take_now`](super::WaitQueue::take_now) leases an idle browser.
//! 3. The audit record is stored before the response. This is a commit, which also makes the lease durable.
//!
//! # With it
//!
//! 1. After the response to an acquire that did not wait, [`Leases::look_ahead`] reads the pool with its next browser
//!    and caches both, by the project and the name or id that the caller used ([`next_browser`]).
//! 2. The next acquire by that name takes the entry and calls
//!    [`WaitQueue::take_recorded`](super::WaitQueue::take_recorded): one statement, one commit.
//!
//! # Why it is correct
//!
//! - The statement decides, not the cache. It leases the browser only if it is still idle, the pool has not changed
//!   since it was read, and no caller waits in the queue. Otherwise it changes nothing, and the acquire continues
//!   without the fast path.
//! - An entry is taken by one caller, so two callers never send the same statement.
//! - [`PreparedRecord::outcome`] tells the sender of the response whether the record is stored. If the browser does not
//!   answer the liveness probe, the record is stored again with the lease that replaces it.
//! - The liveness probe follows the lease, as on every path: an answer before the lease would say nothing about a
//!   browser that stopped since.
//! - Only browsers of this node are cached, because the hand-out of another node's browser takes a request to that node.
//! - A lease that loads a profile takes the path without it, because its hand-out restarts the browser.
//! - Callers without an audit record, such as programs that embed the domain, take the path without it.
//!
//! # What it is worth
//!
//! Four servers with a warm pool each on two cores, 64 acquires each in turn with 0.15 s between two calls, medians:
//!
//! | server | acquire |
//! | --- | --- |
//! | with the fast path | 4.4 ms |
//! | record stored by a commit of its own | ×1.25 |
//! | no cached browser, so no record with the lease either | ×1.34 |
//! | use case on the main runtime, which wakes a second thread | ×1.22 |
//!
//! So each part earns more than a tenth of the median. The last one is in the HTTP crate: an acquire with a cached
//! candidate ([`Leases::has_cached_candidate`]) runs on the thread of its connection, because it will hardly wait.

mod next_browser;

use self::next_browser::NextBrowser;
pub(super) use self::next_browser::NextBrowserCache;
use super::hand_out::{FailedLoads, LeaseHandOut};
use super::lease::{merged_capture, name_taken};
use super::{AcquireRequest, ImmediateLease, KnownBrowser, LeaseRequest, Leases};
use crate::access::Scope;
use crate::audit::{PreparedRecord, PreparedRecordOutcome};
use crate::error::UseCaseError;
use crate::ids::SessionId;
use crate::session::{IdOrName, Session, check_start_url};

impl Leases {
    /// Leases the cached next browser and stores `record` in the same commit. Returns `None` if nothing is cached, the
    /// cached pool does not allow the request, the pool has changed, the browser is not idle, or it does not answer.
    pub(super) async fn lease_cached(
        &self,
        scope: &Scope,
        which: &str,
        input: &AcquireRequest,
        lease: &mut LeaseRequest,
        record: &PreparedRecord,
    ) -> Result<Option<Session>, UseCaseError> {
        let Some(cached) = self.next_browsers.take(scope.project_id(), which) else { return Ok(None) };
        let NextBrowser { pool, next } = cached;
        // The pool may have changed since it was cached, so only the stored one refuses a request.
        let is_allowed = check_start_url(&pool.config.shape, lease.start_url.as_ref()).is_ok()
            && self.check_engine(input, &pool).is_ok();
        let (true, Ok(telemetry)) = (is_allowed, merged_capture(input, &pool)) else { return Ok(None) };
        lease.telemetry = telemetry;
        let known = KnownBrowser { browser: next, pool: pool.id, unchanged_since: pool.updated_at };
        let now = self.deps.clock.now();
        let taken = self.deps.wait_queue.take_recorded(&known, lease, record.entry(), now).await;
        let session = match taken.map_err(|error| self.note_uncertain_lease(lease, error))? {
            ImmediateLease::Leased(session) => *session,
            refused => {
                record.resolve(PreparedRecordOutcome::Declined);
                return match refused {
                    ImmediateLease::NameTaken => Err(name_taken(lease)),
                    _ => Ok(None),
                };
            }
        };
        record.resolve(PreparedRecordOutcome::Stored);
        if let LeaseHandOut::Done(session) = self.hand_out(session, None, &mut FailedLoads::default()).await? {
            return Ok(Some(*session));
        }
        // The failed lease keeps its session id, and the audit record describes that lease.
        lease.session = SessionId::mint(self.deps.ids.as_ref());
        record.resolve(PreparedRecordOutcome::Superseded);
        Ok(None)
    }

    /// Returns whether a likely next browser of the pool is cached. It may be leased a moment later.
    #[must_use]
    pub fn has_cached_candidate(&self, scope: &Scope, which: &str) -> bool {
        self.next_browsers.has(scope.project_id(), which)
    }

    /// Caches the next browser after a lease, concurrently with its response. Errors are ignored: the cache is
    /// optional.
    pub async fn look_ahead(&self, scope: &Scope, which: &str) {
        let found = self.deps.pools.find_with_next(scope.project_id(), &IdOrName::parse(which), self.deps.node).await;
        let Ok(Some((pool, Some(next)))) = found else { return };
        self.next_browsers.note(scope.project_id(), which, NextBrowser { pool, next });
    }
}
