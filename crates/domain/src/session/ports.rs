//! The ports of sessions: repository, connections and wakers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{EndReason, IdOrName, Session, SessionUpdate, StatusFilter};
use crate::browser::{Browser, BrowserRegion, Location, Viewport};
use crate::ids::{BrowserId, InvocationId, NodeId, OrganizationId, PoolId, ProjectId, ProxyId, SessionId};
use crate::network::{AllowlistChange, AllowlistError, Network};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::profile::LoadedProfile;
use crate::store_error::{Replaced, StoreError};
use crate::telemetry::Capture;

/// The result of storing a session.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The session is stored.
    Yes,
    /// Another session of the project that has not ended has the name. Nothing was stored.
    NameTaken,
    /// The request exceeds a limit. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted in the meantime. Nothing was stored.
    ProjectGone,
    /// The named invocation does not exist in the project, or has ended. Nothing was stored.
    NoInvocation,
}

/// The filter of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The state. Starting and never delivered sessions (`start_failed`, `undelivered`) are never listed.
    pub status: StatusFilter,
    /// A substring of the name of the session or its pool, compared without case, or the whole id of the session.
    pub query: Option<String>,
    /// The tags, which must all match.
    pub tags: BTreeMap<String, String>,
    /// The region; any other than the installation's has no sessions. Repositories ignore it.
    pub region: Option<BrowserRegion>,
}

/// The port to the stored sessions.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait SessionRepository: Send + Sync {
    /// Stores a new session on demand, with its browser if there is one already, if
    /// [`admit`](crate::organization::admit) allows it and, on a node with a limit of its own,
    /// [`admit_on_node`](crate::organization::admit_on_node), in one transaction that excludes other reservations of the
    /// organization and the end of the named invocation.
    async fn create(
        &self,
        organization: OrganizationId,
        session: &Session,
        browser: Option<Browser>,
    ) -> Result<Created, StoreError>;

    /// Stores `next`, which is active, and its browser, if the row still has the state of `current`, which is starting.
    async fn activate(&self, current: &Session, next: &Session, browser: &Browser) -> Result<Replaced, StoreError>;

    /// Stores `next`, which has ended, if the row still has the state of `current`. In the same transaction the browser
    /// is marked as ending or, if [`Session::leaves_its_browser_untouched`], becomes idle again and is leased to the
    /// first waiter.
    async fn end(&self, current: &Session, next: &Session) -> Result<Replaced, StoreError>;

    /// Returns the session with this id in any state and project, for holders of the session token and for the node.
    async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError>;

    /// Returns a session of the project. A name refers to the session that has not ended, or with `include_ended` to
    /// the latest one. Starting sessions and those that were never delivered are not returned.
    async fn find_in_project(
        &self,
        project: ProjectId,
        which: &IdOrName<SessionId>,
        include_ended: bool,
    ) -> Result<Option<Session>, StoreError>;

    /// Returns the number of sessions of the project with this name. Starting sessions and those that were never delivered
    /// are not counted.
    async fn count_named(&self, project: ProjectId, name: &str) -> Result<u64, StoreError>;

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

    /// Changes the name and the tags of an active session, but not the viewport. Returns [`Created::Yes`] if they were
    /// changed, [`Created::NameTaken`] if another session has the name, `None` if the session is no longer active.
    async fn change(&self, id: SessionId, changes: &SessionUpdate) -> Result<Option<Created>, StoreError>;

    /// Stores the current viewport of an active session.
    async fn set_viewport(&self, id: SessionId, viewport: Viewport) -> Result<(), StoreError>;

    /// Stores the proxy of an active session. Returns `false` if the session is no longer active.
    async fn set_proxy(&self, id: SessionId, proxy: Option<ProxyId>) -> Result<bool, StoreError>;

    /// Stores the location of an active session and of its browser. Returns `false` if the session is no longer active.
    async fn set_location(&self, id: SessionId, location: Location) -> Result<bool, StoreError>;

    /// Stores the [change](Network::changed) of the allowed hosts of an active session and of its browser, in one
    /// transaction with reading them. Returns the changed configuration or the refusal of the change, `None` if the
    /// session is no longer active.
    async fn change_allowlist(
        &self,
        id: SessionId,
        change: &AllowlistChange,
    ) -> Result<Option<Result<Network, AllowlistError>>, StoreError>;

    /// Stores the telemetry capture of an active session. Returns `false` if the session is no longer active.
    async fn set_telemetry(&self, id: SessionId, telemetry: Option<Capture>) -> Result<bool, StoreError>;

    /// Stores the profile of an active session and of its browser. Returns `false` if the session has a profile already
    /// or is no longer active.
    async fn set_profile(&self, id: SessionId, profile: LoadedProfile) -> Result<bool, StoreError>;

    /// Stores the times at which sessions were last in use, unless later times are stored.
    async fn note_activity(&self, changes: &[(SessionId, OffsetDateTime)]) -> Result<(), StoreError>;

    /// Stores which fields of the request that made the session were ignored.
    async fn note_ignored_fields(&self, id: SessionId, fields: &[String]) -> Result<(), StoreError>;

    /// Returns which fields of the request that made the session were ignored.
    async fn ignored_fields(&self, id: SessionId) -> Result<Vec<String>, StoreError>;

    /// Deletes up to `max` of the sessions that ended before this time, the oldest first; returns their number. A session
    /// stays while its browser is not removed, or a replay or telemetry of it is stored.
    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError>;
}

/// The port to the open connections to this node's sessions.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Connections: Send + Sync {
    /// Closes every connection to the session with the reason, and refuses new ones.
    fn close(&self, session: SessionId, reason: EndReason);

    /// Reports the end of a session that this node served, once. `session` may be as it was before its end.
    fn ended(&self, session: &Session, reason: EndReason);

    /// Closes every connection to the session, because its browser restarts, and accepts new ones.
    fn restarted(&self, session: SessionId);
}

/// The waker of the pool filler.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait PoolWake: Send + Sync {
    /// Starts a check of the pool, because the pool changed.
    fn wake(&self, pool: PoolId);
}

/// The waker of the cleanup of ended browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait CleanupWake: Send + Sync {
    /// Starts the cleanup, because an ended session left data in its browser.
    fn wake(&self);
}
