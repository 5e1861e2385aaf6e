//! What an audit record says.

use time::OffsetDateTime;

use crate::ids::{ApiKeyId, AuditRecordId, OrganizationId, ProjectId, UserId};
use crate::text_enum::text_enum;

text_enum! {
    /// How a caller showed who it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AuthStrategy {
        /// With an API key.
        ApiKey => "api_key",
        /// With the token of a session, or with the cookie that the page of a login has for its session.
        SessionToken => "session_token",
        /// With a key that was refused.
        None => "none",
    }
}

impl AuthStrategy {
    /// As it was stored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::ApiKey, Self::SessionToken, Self::None].into_iter().find(|strategy| strategy.as_str() == text)
    }
}

text_enum! {
    /// Which part of the service was called.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AuditService {
        /// The API.
        Api => "api",
        /// A session's own address.
        Session => "session",
        /// The API, by a deployed app.
        Apps => "apps",
    }
}

impl AuditService {
    /// As it was stored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Api, Self::Session, Self::Apps].into_iter().find(|service| service.as_str() == text)
    }
}

/// One call as whoever answers it knows it. The store adds what the key or the project tells: the organization, the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Orders records of one moment.
    pub id: AuditRecordId,
    /// When this was recorded: when there was an answer, or its caller had gone. The request arrived `duration_ms` before. What is
    /// recorded later is never of an earlier moment, so that who has read up to a moment has read all that is before it.
    pub at: OffsetDateTime,
    /// How the caller showed who it is.
    pub auth_strategy: AuthStrategy,
    /// Which part of the service was called.
    pub service: AuditService,
    /// Which key was used, or named and refused.
    pub api_key: Option<ApiKeyId>,
    /// In which project.
    pub project: Option<ProjectId>,
    /// Where the call came from.
    pub client_ip: String,
    /// Which host was asked for.
    pub domain: String,
    /// The method, in upper case.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// The pattern of the route; empty if none matched.
    pub route: String,
    /// The status of the answer; [`UNKNOWN`](Self::UNKNOWN) if the server ended before there was one.
    pub status: u16,
    /// How long the answer took.
    pub duration_ms: u64,
    /// What the caller calls itself, see [`user_agent`](Self::user_agent).
    pub user_agent: String,
    /// How the request is called in its answer and in the log; empty for what was noted without a request.
    pub request_id: String,
    /// For how many calls this stands: 1, but for refused tries, of which one record may stand for many, see
    /// [`RefusedAttempts`](super::RefusedAttempts). What it says else is of the last of them.
    pub count: u32,
}

/// How much of a user agent is kept, in characters.
const MAX_USER_AGENT: usize = 512;

impl AuditEntry {
    /// The status of a call that had begun when its server ended. What it was to change may have been changed.
    pub const UNKNOWN: u16 = 0;

    /// As much of a user agent as is kept.
    #[must_use]
    pub fn user_agent(text: &str) -> String {
        text.chars().take(MAX_USER_AGENT).collect()
    }
}

/// One authenticated call, or one that named a key and was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Whose it is.
    pub organization: OrganizationId,
    /// Who made the key; absent for a token.
    pub user: Option<UserId>,
    /// That user's address; may be empty.
    pub email: String,
    /// The call.
    pub entry: AuditEntry,
}
