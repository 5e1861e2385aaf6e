//! An audit record as it is sent, in a list or as a line of a file.

use casement_domain::audit::AuditRecord;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::Moment;

/// One authenticated call, or one that named a key and was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditRecordBody {
    /// Ties the order of records of one moment.
    id: String,
    /// When the call was answered and recorded; its request arrived `duration_ms` before.
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    /// `api_key`, `session_token` (also the cookie of a login's page), or `none` for a key that was refused.
    auth_strategy: &'static str,
    /// Who made the key; empty if nobody.
    user_id: String,
    /// That user's address; empty if none.
    email: String,
    /// Which key.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_id: Option<String>,
    /// Where the call came from.
    client_ip: String,
    /// Which host was asked for.
    domain: String,
    /// The method.
    method: String,
    /// The path, without its query.
    path: String,
    /// The pattern of the route; empty if none matched.
    route: String,
    /// The status of the answer.
    status: u16,
    /// How long the answer took, in milliseconds.
    duration_ms: u64,
    /// What the caller calls itself.
    user_agent: String,
    /// How the request is called in its answer (`X-Request-Id`) and in the log; empty for what was noted without a request.
    request_id: String,
    /// `api`, `session` for a session's own address, or `apps`.
    service: &'static str,
    /// In which project.
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<String>,
}

impl From<AuditRecord> for AuditRecordBody {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { user, email, entry, .. } = record;
        Self {
            id: entry.id.to_string(),
            timestamp: Moment(entry.at),
            auth_strategy: entry.auth_strategy.as_str(),
            user_id: user.map(|id| id.to_string()).unwrap_or_default(),
            email,
            api_key_id: entry.api_key.map(|id| id.to_string()),
            client_ip: entry.client_ip,
            domain: entry.domain,
            method: entry.method,
            path: entry.path,
            route: entry.route,
            status: entry.status,
            duration_ms: entry.duration_ms,
            user_agent: entry.user_agent,
            request_id: entry.request_id,
            service: entry.service.as_str(),
            project_id: entry.project.map(|id| id.to_string()),
        }
    }
}
