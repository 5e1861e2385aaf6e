//! The record of an audited call, in a list or as a line of a file.

use std::{fmt::Display, io};

use casement_domain::{ApiKeyId, AuditRecordId, ProjectId, UserId, audit::AuditRecord};
use serde::{Serialize, Serializer};

use crate::{answer::Moment, schema::ToSchema};

/// An authenticated call, or a call whose key was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditRecordBody {
    /// The id, which also orders records with the same timestamp.
    #[schema(value_type = String)]
    #[serde(serialize_with = "text")]
    id: AuditRecordId,
    /// The time of the response; the request arrived `duration_ms` before.
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    /// `api_key`, `session_token` (also for the cookie of a hosted login page), or `none` for a key that was refused.
    auth_strategy: &'static str,
    /// The user who created the key; empty if none.
    #[schema(value_type = String)]
    #[serde(serialize_with = "text_or_empty")]
    user_id: Option<UserId>,
    /// The e-mail address of that user; empty if none.
    email: String,
    /// The id of the key.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_empty")]
    api_key_id: Option<ApiKeyId>,
    /// The IP address of the caller.
    client_ip: String,
    /// The requested host.
    domain: String,
    /// The method.
    method: String,
    /// The path, without its query.
    path: String,
    /// The pattern of the route; empty if none matched.
    route: String,
    /// The status of the response; 0 if the server was killed before it: the request may have taken effect.
    status: u16,
    /// The duration of the call in milliseconds.
    duration_ms: u64,
    /// The user agent of the caller.
    user_agent: String,
    /// The id of the request, as in its response (`X-Request-Id`) and in the log; empty for records without a request.
    request_id: String,
    /// The number of calls: 1, or the number of refused calls with one key from one address within a minute; the other
    /// fields describe the last of them.
    count: u32,
    /// `api`, `session` for a session's own URL, or `apps`.
    service: &'static str,
    /// The id of the project.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_empty")]
    project_id: Option<ProjectId>,
}

/// Writes a record as a line of an exported file.
///
/// # Errors
/// Returns the error of the output.
pub fn write_line(record: AuditRecord, output: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut *output, &AuditRecordBody::from(record))?;
    output.write_all(b"\n")
}

/// Serializes an id without an intermediate string, because an export has hundreds of thousands of ids.
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
