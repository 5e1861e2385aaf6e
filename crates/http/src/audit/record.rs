//! An audit record as it is sent, in a list or as a line of a file.

use std::fmt::Display;

use casement_domain::{ApiKeyId, AuditRecordId, ProjectId, UserId, audit::AuditRecord};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::answer::Moment;

/// One authenticated call, or one that named a key and was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditRecordBody {
    /// Ties the order of records of one moment.
    #[schema(value_type = String)]
    #[serde(serialize_with = "text")]
    id: AuditRecordId,
    /// When the call was answered and recorded; its request arrived `duration_ms` before.
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    /// `api_key`, `session_token` (also the cookie of a login's page), or `none` for a key that was refused.
    auth_strategy: &'static str,
    /// Who made the key; empty if nobody.
    #[schema(value_type = String)]
    #[serde(serialize_with = "text_or_empty")]
    user_id: Option<UserId>,
    /// That user's address; empty if none.
    email: String,
    /// Which key.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_empty")]
    api_key_id: Option<ApiKeyId>,
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
    /// The status of the answer; 0 if the server was killed before there was one: what was asked for may have been done.
    status: u16,
    /// How long the answer took, in milliseconds.
    duration_ms: u64,
    /// What the caller calls itself.
    user_agent: String,
    /// How the request is called in its answer (`X-Request-Id`) and in the log; empty for what was noted without a request.
    request_id: String,
    /// For how many calls this record stands: 1, or the number of refused tries of one key from one address that followed one another within a
    /// minute; the rest is of the last of them.
    count: u32,
    /// `api`, `session` for a session's own address, or `apps`.
    service: &'static str,
    /// In which project.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_empty")]
    project_id: Option<ProjectId>,
}

/// Without a string between, of which an export would make hundreds of thousands.
fn text<S: Serializer>(id: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn text_or_empty<S: Serializer>(id: &Option<impl Display>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => text(id, serializer),
        None => serializer.serialize_str(""),
    }
}

impl From<AuditRecord> for AuditRecordBody {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { user, email, entry, .. } = record;
        Self {
            id: entry.id,
            timestamp: Moment(entry.at),
            auth_strategy: entry.auth_strategy.as_str(),
            user_id: user,
            email,
            api_key_id: entry.api_key,
            client_ip: entry.client_ip,
            domain: entry.domain,
            method: entry.method,
            path: entry.path,
            route: entry.route,
            status: entry.status,
            duration_ms: entry.duration_ms,
            user_agent: entry.user_agent,
            request_id: entry.request_id,
            count: entry.count,
            service: entry.service.as_str(),
            project_id: entry.project,
        }
    }
}
