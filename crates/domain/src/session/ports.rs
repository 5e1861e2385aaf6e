//! What sessions need from outside.

use std::collections::BTreeMap;

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{EndReason, IdOrName, Session, SessionChanges, StatusFilter};
use crate::browser::{Browser, Viewport};
use crate::ids::{BrowserId, InvocationId, NodeId, OrganizationId, PoolId, ProjectId, ProxyId, SessionId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::profile::LoadedProfile;
use crate::store_error::{Replaced, StoreError};
use crate::telemetry::Capture;

/// What became of a session that was to be stored.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is stored.
    Yes,
    /// Another session of the project that has not ended bears the name. Nothing was stored.
    NameTaken,
    /// It would go over a limit. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted meanwhile. Nothing was stored.
    ProjectGone,
    /// The invocation that it names is none of the project, or has ended. Nothing was stored.
    NoInvocation,
}

/// Which sessions a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// By state; starting ones are never shown, nor those that no caller ever had (`start_failed`, `undelivered`).
    pub status: StatusFilter,
    /// Substring of the session's or its pool's name without case, or the whole of the session's id.
    pub query: Option<String>,
    /// All of these pairs.
    pub tags: BTreeMap<String, String>,
}

/// Where sessions are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait SessionRepository: Send + Sync {
    /// Stores a new session on demand, with its browser if it has one already, in one transaction that no other
    /// reservation of the organization can interleave; the limits decide by [`admit`](crate::organization::admit). An invocation that it
    /// names does not end meanwhile.
    async fn create(
        &self,
        organization: OrganizationId,
        session: &Session,
        browser: Option<Browser>,
    ) -> Result<Created, StoreError>;

    /// Stores `next`, which is active, and its browser, only if the row is still in the state of `current`, starting.
    async fn activate(&self, current: &Session, next: &Session, browser: &Browser) -> Result<Replaced, StoreError>;

    /// Stores `next`, which has ended, only if the row is still in the state of `current`. In the same transaction its
    /// browser becomes ending; or, if [`Session::leaves_its_browser_untouched`], idle again and, if somebody waits,
    /// handed to the first in line.
    async fn end(&self, current: &Session, next: &Session) -> Result<Replaced, StoreError>;

    /// The session of that id, in whatever state and project; for those who hold its token or run its browser.
    async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError>;

    /// The project's session. A name finds the one that has not ended, or with `include_ended` the latest. Starting
    /// ones are not found, nor those that no caller ever had.
    async fn find_in_project(
        &self,
        project: ProjectId,
        which: &IdOrName<SessionId>,
        include_ended: bool,
    ) -> Result<Option<Session>, StoreError>;

    /// The session that has this browser and has not ended.
    async fn of_browser(&self, browser: BrowserId) -> Result<Option<Session>, StoreError>;

    /// The sessions of a node that have not ended, starting ones too.
    async fn of_node(&self, node: NodeId) -> Result<Vec<Session>, StoreError>;

    /// The active sessions leased from a pool.
    async fn of_pool(&self, pool: PoolId) -> Result<Vec<Session>, StoreError>;

    /// The active sessions of a node that were leased from pools that are deleted.
    async fn of_deleted_pools(&self, node: NodeId) -> Result<Vec<Session>, StoreError>;

    /// The sessions of an invocation that have not ended, starting ones too.
    async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError>;

    /// The project's sessions, newest first.
    async fn list(&self, project: ProjectId, filter: &SessionFilter, page: Page)
    -> Result<Listed<Session>, StoreError>;

    /// Changes name and tags of an active session; the viewport has its own way. `Created::Yes` if it was changed,
    /// `NameTaken` if not; `None` if it is not active any more.
    async fn change(&self, id: SessionId, changes: &SessionChanges) -> Result<Option<Created>, StoreError>;

    /// Notes the viewport in force of an active session.
    async fn set_viewport(&self, id: SessionId, viewport: Viewport) -> Result<(), StoreError>;

    /// Notes what the traffic of an active session goes through; `false` if it is not active any more.
    async fn set_proxy(&self, id: SessionId, proxy: Option<ProxyId>) -> Result<bool, StoreError>;

    /// Notes what is captured of an active session; `false` if it is not active any more.
    async fn set_telemetry(&self, id: SessionId, telemetry: Option<Capture>) -> Result<bool, StoreError>;

    /// Notes the profile that an active session was given, with its browser's; `false` if it has one or is not active any more.
    async fn set_profile(&self, id: SessionId, profile: LoadedProfile) -> Result<bool, StoreError>;

    /// Notes when sessions were last in use; never backwards.
    async fn note_activity(&self, news: &[(SessionId, OffsetDateTime)]) -> Result<(), StoreError>;
}

/// The connections that are open into this node's sessions.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait Connections: Send + Sync {
    /// Ends every connection into the session, telling its peer the reason, and refuses new ones.
    fn close(&self, session: SessionId, reason: EndReason);

    /// Ends every connection into the session, because its browser is started anew. New ones may come.
    fn restarted(&self, session: SessionId);
}

/// Wakes whoever keeps a pool full.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait PoolWake: Send + Sync {
    /// Something about the pool has changed; look again.
    fn wake(&self, pool: PoolId);
}

/// Wakes whoever buries browsers that nobody waits for.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait CleanupWake: Send + Sync {
    /// A session has ended whose browser holds what is to be kept.
    fn wake(&self);
}
