//! The content of an audit record.

use time::OffsetDateTime;

use crate::ids::{ApiKeyId, AuditRecordId, OrganizationId, ProjectId, UserId};
use crate::text_enum::text_enum;

text_enum! {
    /// The way in which a caller was authenticated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AuthStrategy {
        /// An API key.
        ApiKey => "api_key",
        /// A session token, or the cookie of a hosted login page.
        SessionToken => "session_token",
        /// A key that was refused.
        None => "none",
    }
}

text_enum! {
    /// The part of the service that was called.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AuditService {
        /// The API.
        Api => "api",
        /// The URLs of a session.
        Session => "session",
        /// The API, called by a deployed app.
        Apps => "apps",
    }
}

/// One call, with the data of the server that answers it. The store adds the organization and the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The id, which orders records of the same time.
    pub id: AuditRecordId,
    /// The time of recording: when the call was answered, or its caller had disconnected. The request arrived
    /// `duration_ms` before. Times of records never decrease, so a reader that has read up to a time has read
    /// everything before it.
    pub at: OffsetDateTime,
    /// The way in which the caller was authenticated.
    pub auth_strategy: AuthStrategy,
    /// The part of the service that was called.
    pub service: AuditService,
    /// The key that was used, or that was named and refused.
    pub api_key: Option<ApiKeyId>,
    /// The project.
    pub project: Option<ProjectId>,
    /// The IP address of the caller.
    pub client_ip: String,
    /// The requested host.
    pub domain: String,
    /// The method, in upper case.
    pub method: String,
    /// The path, without its query.
    pub path: String,
    /// The pattern of the route; empty if none matched.
    pub route: String,
    /// The status of the response; [`UNKNOWN`](Self::UNKNOWN) if the server ended before it responded.
    pub status: u16,
    /// The time until the response, in milliseconds.
    pub duration_ms: u64,
    /// The user agent, see [`user_agent`](Self::user_agent).
    pub user_agent: String,
    /// The id of the request in its response and in the log; empty for records without a request.
    pub request_id: String,
    /// The number of calls in the record: 1, except for refused attempts, which are merged; see
    /// [`RefusedAttempts`](super::RefusedAttempts). The other fields are those of the last call.
    pub count: u32,
}

/// The maximum length of a stored user agent, in characters.
const MAX_USER_AGENT: usize = 512;

impl AuditEntry {
    /// The status of a call that had begun when its server ended. Its changes may have been made.
    pub const UNKNOWN: u16 = 0;

    /// Returns the part of a user agent that is stored.
    #[must_use]
    pub fn user_agent(text: &str) -> String {
        text.chars().take(MAX_USER_AGENT).collect()
    }
}

/// One authenticated call, or one that named a key and was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// The organization.
    pub organization: OrganizationId,
    /// The user that created the key; absent for a token.
    pub user: Option<UserId>,
    /// The user's e-mail address; may be empty.
    pub email: String,
    /// The call.
    pub entry: AuditEntry,
}
