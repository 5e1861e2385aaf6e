//! The ports of sessions: repository, connections and wakers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{EndReason, IdOrName, Session, SessionUpdate, StatusFilter};
use crate::browser::{Browser, Viewport};
use crate::ids::{BrowserId, InvocationId, NodeId, OrganizationId, PoolId, ProjectId, ProxyId, SessionId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::profile::LoadedProfile;
use crate::store_error::{Replaced, StoreError};
use crate::telemetry::Capture;

/// The result of storing a session.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is stored.
    Yes,
    /// Another session of the project that has not ended has the name. Nothing was stored.
    NameTaken,
    /// The request exceeds a limit. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted meanwhile. Nothing was stored.
    ProjectGone,
    /// The named invocation does not exist in the project, or has ended. Nothing was stored.
    NoInvocation,
}

/// The filter of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The state. Starting sessions and sessions that were never delivered (`start_failed`, `undelivered`) are never
    /// listed.
    pub status: StatusFilter,
    /// Substring of the session's or its pool's name without case, or the whole of the session's id.
    pub query: Option<String>,
    /// Tags that must all match.
    pub tags: BTreeMap<String, String>,
}

/// The stored sessions.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait SessionRepository: Send + Sync {
    /// Stores a new session on demand, with its browser if it has one already, if [`admit`](crate::organization::admit)
    /// allows it, in one transaction that no other reservation of the organization can interleave. A named invocation
    /// cannot end meanwhile.
    async fn create(
        &self,
        organization: OrganizationId,
        session: &Session,
        browser: Option<Browser>,
    ) -> Result<Created, StoreError>;

    /// Stores `next`, which is active, and its browser, if the row still has the state of `current`, which is starting.
    async fn activate(&self, current: &Session, next: &Session, browser: &Browser) -> Result<Replaced, StoreError>;

    /// Stores `next`, which has ended, if the row still has the state of `current`. In the same transaction its browser
    /// becomes ending; or, if [`Session::leaves_its_browser_untouched`], idle again and granted to the first waiter.
    async fn end(&self, current: &Session, next: &Session) -> Result<Replaced, StoreError>;

    /// Returns the session with this id in any state and project; for holders of its token and for its node.
    async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError>;

    /// Returns the project's session. A name finds the session that has not ended, or with `include_ended` the latest
    /// one. Starting and never delivered sessions are not found.
    async fn find_in_project(
        &self,
        project: ProjectId,
        which: &IdOrName<SessionId>,
        include_ended: bool,
    ) -> Result<Option<Session>, StoreError>;

    /// Returns the session that uses this browser and has not ended.
    async fn of_browser(&self, browser: BrowserId) -> Result<Option<Session>, StoreError>;

    /// Returns the sessions of a node that have not ended, including starting ones.
    async fn of_node(&self, node: NodeId) -> Result<Vec<Session>, StoreError>;

    /// Returns the active sessions leased from a pool.
    async fn of_pool(&self, pool: PoolId) -> Result<Vec<Session>, StoreError>;

    /// Returns the active sessions of a node that were leased from deleted pools.
    async fn of_deleted_pools(&self, node: NodeId) -> Result<Vec<Session>, StoreError>;

    /// Returns the sessions of an invocation that have not ended, including starting ones.
    async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError>;

    /// Returns the project's sessions, newest first.
    async fn list(&self, project: ProjectId, filter: &SessionFilter, page: Page)
    -> Result<Listed<Session>, StoreError>;

    /// Changes name and tags of an active session; see `set_viewport` for the viewport. Returns `Created::Yes` if it
    /// was changed, `NameTaken` if not, `None` if it is not active any more.
    async fn change(&self, id: SessionId, changes: &SessionUpdate) -> Result<Option<Created>, StoreError>;

    /// Stores the current viewport of an active session.
    async fn set_viewport(&self, id: SessionId, viewport: Viewport) -> Result<(), StoreError>;

    /// Stores the proxy of an active session. Returns `false` if it is not active any more.
    async fn set_proxy(&self, id: SessionId, proxy: Option<ProxyId>) -> Result<bool, StoreError>;

    /// Stores the telemetry capture of an active session. Returns `false` if it is not active any more.
    async fn set_telemetry(&self, id: SessionId, telemetry: Option<Capture>) -> Result<bool, StoreError>;

    /// Stores the profile of an active session and of its browser. Returns `false` if it has one already or is not
    /// active any more.
    async fn set_profile(&self, id: SessionId, profile: LoadedProfile) -> Result<bool, StoreError>;

    /// Stores when sessions were last in use; never moves a time backwards.
    async fn note_activity(&self, news: &[(SessionId, OffsetDateTime)]) -> Result<(), StoreError>;
}

/// The open connections to this node's sessions.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Connections: Send + Sync {
    /// Closes every connection to the session with the reason, and refuses new ones.
    fn close(&self, session: SessionId, reason: EndReason);

    /// Closes every connection to the session, because its browser restarts. New connections are accepted.
    fn restarted(&self, session: SessionId);
}

/// Wakes the pool filler.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait PoolWake: Send + Sync {
    /// Starts a look at the pool, because it changed.
    fn wake(&self, pool: PoolId);
}

/// Wakes the cleanup of ended browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait CleanupWake: Send + Sync {
    /// Starts the cleanup, because an ended session left data in its browser.
    fn wake(&self);
}
