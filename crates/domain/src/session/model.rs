//! The session and its states.

use std::str::FromStr;

use time::{Duration, OffsetDateTime};

use super::Tags;
use crate::browser::{Shape, StartUrl};
use crate::ids::{BadId, BrowserId, InvocationId, NodeId, PoolId, ProjectId, SessionId};
use crate::name::{LabelName, SlugName};
use crate::telemetry::Capture;
use crate::text_enum::text_enum;

text_enum! {
    /// The reason why a session ended, as it appears in close frames, in logs and in the store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum EndReason {
        /// The caller deleted the session, its pool was deleted by force, or its invocation was cancelled.
        Deleted => "deleted",
        /// The idle timeout has passed.
        IdleTimeout => "idle_timeout",
        /// The browser ended by itself.
        Crashed => "crashed",
        /// The browser exceeded its memory limit.
        Oom => "oom",
        /// The browser was closed from inside: by a person, or by a client (`Browser.close`, or the last page of a browser
        /// with a display).
        BrowserClosed => "browser_closed",
        /// The browser no longer answered and was ended.
        BrowserHung => "browser_hung",
        /// The caller released the session to its pool.
        Released => "released",
        /// The browser could not be started or did not answer at the hand-out.
        StartFailed => "start_failed",
        /// The response did not reach the caller.
        Undelivered => "undelivered",
        /// The node was lost.
        NodeLost => "node_lost",
        /// The node was drained, and the time that its sessions had was over.
        NodeDrained => "node_drained",
        /// The engine lost the browser: the WebDriver server no longer has its session.
        EngineLost => "engine_lost",
    }
}

impl EndReason {
    /// Returns the reason as a sentence for people.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Deleted => "A caller ended the session, or its pool or invocation ended.",
            Self::IdleTimeout => "The session was not used for its idle timeout.",
            Self::Crashed => "The browser ended by itself.",
            Self::Oom => "The browser needed more memory than its limit.",
            Self::BrowserClosed => "The browser was closed from inside: by a person, or by a client.",
            Self::BrowserHung => "The browser did not answer any more.",
            Self::Released => "The session was released to its pool.",
            Self::StartFailed => "The browser could not be started.",
            Self::Undelivered => "The response with the session did not reach its caller.",
            Self::NodeLost => {
                "The node of the session was lost: it was stopped, or it had no contact with the database."
            }
            Self::NodeDrained => "The node of the session was drained, and the time for its sessions was over.",
            Self::EngineLost => "The WebDriver server of the browser lost its session.",
        }
    }
}

/// The error of using a session in which a login runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("browser session {0} is running a login; until it ends, only its live view is accessible")]
pub struct LoginRuns(pub SessionId);

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The session is reserved and its browser is starting. Callers do not see the session yet.
    Starting,
    /// A caller uses the session.
    Active,
    /// The session has ended. Final.
    Ended(EndReason),
}

impl SessionState {
    /// Returns the name in the store and the API, without the end reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Active => "active",
            Self::Ended(_) => "ended",
        }
    }
}

/// The pool that a session was leased from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRef {
    /// The identifier.
    pub id: PoolId,
    /// The name of the pool at the time of the lease.
    pub name: Option<SlugName>,
}

/// One caller's use of one browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The identifier.
    pub id: SessionId,
    /// The project.
    pub project: ProjectId,
    /// The node that runs the session.
    pub node: NodeId,
    /// The browser; `None` only while starting or after a failed start.
    pub browser: Option<BrowserId>,
    /// The pool that the session was leased from; `None` for a session on demand.
    pub pool: Option<PoolRef>,
    /// The shape of the browser, with the current viewport.
    pub shape: Shape,
    /// The name, unique among the sessions of the project that have not ended.
    pub name: Option<LabelName>,
    /// The idle timeout, 10 to 259200 seconds.
    pub timeout_seconds: u32,
    /// The URL that the browser opened first.
    pub start_url: Option<StartUrl>,
    /// The tags set by the caller.
    pub tags: Tags,
    /// The telemetry capture; `None` if nothing is captured.
    pub telemetry: Option<Capture>,
    /// The invocation that the session belongs to.
    pub invocation: Option<InvocationId>,
    /// Whether a login runs in the session. Until the session ends, project keys and session tokens give no access.
    pub for_login: bool,
    /// The current state.
    pub state: SessionState,
    /// The time of the request; for a session of a pool, of the lease.
    pub created_at: OffsetDateTime,
    /// The time of the last use, from which the idle timeout counts.
    pub last_active_at: OffsetDateTime,
    /// The time of the end.
    pub ended_at: Option<OffsetDateTime>,
}

impl Session {
    /// Returns the age of the session at `now`, or at its end.
    #[must_use]
    pub fn uptime(&self, now: OffsetDateTime) -> Duration {
        (self.ended_at.unwrap_or(now) - self.created_at).max(Duration::ZERO)
    }

    /// Returns whether the browser may be leased to another caller: the session was not delivered, and the browser has
    /// neither opened a URL nor captured telemetry for it. A lease that has loaded a profile was used, so it does not
    /// end as undelivered.
    #[must_use]
    pub fn leaves_its_browser_untouched(&self) -> bool {
        let undelivered = self.state == SessionState::Ended(EndReason::Undelivered);
        let unchanged = self.start_url.is_none() && self.telemetry.is_none();
        undelivered && self.pool.is_some() && unchanged
    }

    /// Returns whether the user data is saved as a version of the profile. A never delivered session saves nothing.
    #[must_use]
    pub fn saves_its_profile(&self) -> bool {
        let had = !matches!(self.state, SessionState::Ended(EndReason::StartFailed | EndReason::Undelivered));
        had && self.shape.profile.is_some_and(|profile| profile.save_changes)
    }

    /// Checks whether a caller with an API key or a session token may use the session. While a login runs in the
    /// session, in which secrets are typed, only a key of the whole organization may.
    ///
    /// # Errors
    /// [`LoginRuns`] if a login runs and the key is not one of the whole organization.
    pub fn admits(&self, organization_wide: bool) -> Result<(), LoginRuns> {
        if self.for_login && self.is_active() && !organization_wide { Err(LoginRuns(self.id)) } else { Ok(()) }
    }

    /// Returns whether the session is active.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == SessionState::Active
    }
}

/// The filter of sessions by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusFilter {
    /// Active sessions.
    #[default]
    Active,
    /// Ended sessions.
    Deleted,
    /// Active and ended sessions.
    All,
}

/// The identifier or name of a resource in a path. A text with the form of an identifier counts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdOrName<I> {
    /// The identifier.
    Id(I),
    /// The name, compared without case and accents.
    Name(String),
}

impl<I: FromStr<Err = BadId>> IdOrName<I> {
    /// Parses a path segment.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Id)
    }
}
