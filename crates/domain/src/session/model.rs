//! What a session is.

use std::str::FromStr;

use time::{Duration, OffsetDateTime};

use super::Tags;
use crate::browser::{Shape, StartUrl};
use crate::ids::{BadId, BrowserId, InvocationId, NodeId, PoolId, ProjectId, SessionId};
use crate::name::{LabelName, SlugName};
use crate::telemetry::Capture;

/// Why a session ended; stands in close frames, logs and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Its caller deleted it, or its pool was deleted by force.
    Deleted,
    /// Nobody used it for its timeout.
    IdleTimeout,
    /// Its browser ended by itself.
    Crashed,
    /// Its browser needed more memory than it may have.
    Oom,
    /// Its browser was closed from inside: by a client (`Browser.close`, the last page of a browser with a display), or by a person.
    BrowserClosed,
    /// Its browser did not answer any more, and was ended.
    BrowserHung,
    /// It was given back to its pool.
    Released,
    /// Its browser could not be started or did not answer.
    StartFailed,
    /// Its caller was gone before the answer was written.
    Undelivered,
    /// Its node is gone.
    NodeLost,
}

impl EndReason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Deleted,
        Self::IdleTimeout,
        Self::Crashed,
        Self::Oom,
        Self::BrowserClosed,
        Self::BrowserHung,
        Self::Released,
        Self::StartFailed,
        Self::Undelivered,
        Self::NodeLost,
    ];

    /// As it is stored and said.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::IdleTimeout => "idle_timeout",
            Self::Crashed => "crashed",
            Self::Oom => "oom",
            Self::BrowserClosed => "browser_closed",
            Self::BrowserHung => "browser_hung",
            Self::Released => "released",
            Self::StartFailed => "start_failed",
            Self::Undelivered => "undelivered",
            Self::NodeLost => "node_lost",
        }
    }
}

/// A login runs in the session, and nothing else may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a login runs in browser session {0}; nothing else gets into it until the login is over, but for its live view"
)]
pub struct LoginRuns(pub SessionId);

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Its place is reserved and its browser is being started; no caller sees it yet.
    Starting,
    /// A caller has it.
    Active,
    /// It is over. Final.
    Ended(EndReason),
}

impl SessionState {
    /// As it is stored and said, without the reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Active => "active",
            Self::Ended(_) => "ended",
        }
    }
}

/// Which pool a session was leased from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRef {
    /// Which one.
    pub id: PoolId,
    /// Its name at that time.
    pub name: Option<SlugName>,
}

/// One lease of one browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Which one.
    pub id: SessionId,
    /// Whose it is.
    pub project: ProjectId,
    /// Which node runs it.
    pub node: NodeId,
    /// Which browser; `None` only while starting or after a start that failed.
    pub browser: Option<BrowserId>,
    /// Which pool it was leased from; `None`: on demand.
    pub pool: Option<PoolRef>,
    /// What the browser was started as, with the viewport in force now.
    pub shape: Shape,
    /// Unique among the project's sessions that have not ended.
    pub name: Option<LabelName>,
    /// How long it may be idle, 10 to 259200 seconds.
    pub timeout_seconds: u32,
    /// What it opened first.
    pub start_url: Option<StartUrl>,
    /// The caller's own.
    pub tags: Tags,
    /// What is captured of it; `None`: nothing.
    pub telemetry: Option<Capture>,
    /// Which invocation it belongs to.
    pub invocation: Option<InvocationId>,
    /// Whether a login runs in it: then no project key and no token gets into it as long as it lasts.
    pub for_login: bool,
    /// Where it stands.
    pub state: SessionState,
    /// When it was asked for; of a pooled one, when it was leased.
    pub created_at: OffsetDateTime,
    /// When it was last in use; its idle clock counts from here.
    pub last_active_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
}

impl Session {
    /// How long it has lived, at `now` or until it ended.
    #[must_use]
    pub fn uptime(&self, now: OffsetDateTime) -> Duration {
        (self.ended_at.unwrap_or(now) - self.created_at).max(Duration::ZERO)
    }

    /// Whether its pool may give its browser to the next: its answer never reached its caller, and its browser has not
    /// begun to open anything for it, or to tell of what happens in it.
    #[must_use]
    pub fn leaves_its_browser_untouched(&self) -> bool {
        let undelivered = self.state == SessionState::Ended(EndReason::Undelivered);
        undelivered && self.pool.is_some() && self.start_url.is_none() && self.telemetry.is_none()
    }

    /// Whether what it leaves in its browser is to become a version of its profile. A session that no caller ever had leaves nothing.
    #[must_use]
    pub fn saves_its_profile(&self) -> bool {
        let had = !matches!(self.state, SessionState::Ended(EndReason::StartFailed | EndReason::Undelivered));
        had && self.shape.profile.is_some_and(|profile| profile.save_changes)
    }

    /// Whether a caller with a key or a token gets into it: not while a login runs there, in which secrets are typed, unless the key is the
    /// organization's own.
    ///
    /// # Errors
    /// [`LoginRuns`].
    pub fn admits(&self, organization_wide: bool) -> Result<(), LoginRuns> {
        if self.for_login && self.is_active() && !organization_wide { Err(LoginRuns(self.id)) } else { Ok(()) }
    }

    /// Whether a caller has it.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == SessionState::Active
    }
}

/// Which sessions a list shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusFilter {
    /// Those that a caller has.
    #[default]
    Active,
    /// Those that ended.
    Deleted,
    /// Both.
    All,
}

/// How a path names a resource: what has the shape of an identifier is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdOrName<I> {
    /// By identifier.
    Id(I),
    /// By name, compared without case and accents.
    Name(String),
}

impl<I: FromStr<Err = BadId>> IdOrName<I> {
    /// Reads the segment of a path.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}
