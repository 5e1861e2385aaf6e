//! The handlers of audit records: list and export.

use actix_web::{
    HttpResponse,
    body::SizedStream,
    http::header::{self, HeaderName},
};
use casement_domain::{audit::AuditQuery, field::FieldCode};
use serde::Deserialize;
use time::{
    OffsetDateTime, UtcOffset,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::format_description,
};

use super::{
    export::{File, Format},
    record::AuditRecordBody,
};
use crate::{
    answer::Answer,
    error::ApiError,
    query::{Verbatim, date_time},
    request::{OrganizationKey, Request},
    schema::IntoParams,
};

/// The format of date-times in file names.
const COMPACT: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");
const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");
const NEXT_PAGE_TOKEN: HeaderName = HeaderName::from_static("x-next-page-token");
const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");
const RANGE_END: HeaderName = HeaderName::from_static("x-range-end");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-content-sha256");
const ROW_COUNT: HeaderName = HeaderName::from_static("x-row-count");
/// Means the same as [`ROW_COUNT`], for clients of before that.
const RECORD_COUNT: HeaderName = HeaderName::from_static("x-record-count");

/// The filter of audit records.
#[derive(Deserialize, IntoParams)]
pub(super) struct AuditParams {
    /// The inclusive start.
    #[param(required, value_type = String)]
    start: Option<String>,
    /// The exclusive end. In a list: at most 30 days after `start`. An export ends now if `end` is in the future.
    #[param(required, value_type = String)]
    end: Option<String>,
    auth_strategy: Option<String>,
    service: Option<String>,
    method: Option<String>,
    /// Methods whose records are left out, at most 10.
    #[param(required = false)]
    exclude_method: Vec<String>,
    /// Part of the path, the user, the e-mail address or the IP address, or the status.
    search: Option<String>,
    /// Users whose records are found in addition to those that match `search`, at most 100.
    #[param(required = false)]
    search_user_id: Vec<String>,
}

impl AuditParams {
    fn query(self, limit: Option<i64>) -> Result<AuditQuery, ApiError> {
        Ok(AuditQuery {
            start: date_time("start", self.start)?,
            end: date_time("end", self.end)?,
            auth_strategy: self.auth_strategy,
            service: self.service,
            method: self.method,
            exclude_methods: self.exclude_method,
            search: self.search,
            search_users: self.search_user_id,
            limit,
        })
    }
}

/// The page of a list of audit records.
#[derive(Deserialize, IntoParams)]
pub(super) struct AuditPageParams {
    /// The maximum number of records, 1 to 100. Default: 100.
    #[param(value_type = Option<u32>)]
    limit: Option<i64>,
    /// The `X-Next-Page-Token` of the previous page.
    #[param(value_type = Option<String>)]
    page_token: Option<Verbatim>,
}

/// The chunk of an export, and the format of the file.
#[derive(Deserialize, IntoParams)]
pub(super) struct ExportParams {
    /// The maximum number of records, 1 to 50000. Default: 50000.
    #[param(value_type = Option<u32>)]
    limit: Option<i64>,
    /// The `X-Next-Cursor` of the previous chunk.
    #[param(value_type = Option<String>)]
    cursor: Option<Verbatim>,
    /// `jsonl` or `jsonl.gz` (default). `encoding` means the same.
    #[param(value_type = Option<String>)]
    format: Option<Verbatim>,
    #[param(ignore)]
    encoding: Option<Verbatim>,
}

pub(crate) async fn list_audit_records(request: Request<OrganizationKey>) -> Answer {
    let AuditPageParams { limit, page_token } = request.query()?;
    let query = request.query::<AuditParams>()?.query(limit)?;
    let token = page_token.as_ref().map(|Verbatim(token)| token.as_str());
    let page = request.services().audit.list(request.organization(), query, token).await?;
    let mut response = HttpResponse::Ok();
    response.insert_header((HAS_MORE, if page.next.is_some() { "true" } else { "false" }));
    if let Some(next) = page.next {
        response.insert_header((NEXT_PAGE_TOKEN, next));
    }
    Ok(response.json(page.records.into_iter().map(AuditRecordBody::from).collect::<Vec<_>>()))
}

pub(crate) async fn export_audit_chunk(request: Request<OrganizationKey>) -> Answer {
    let ExportParams { limit, cursor, format, encoding } = request.query()?;
    let format = file_format(format, encoding)?;
    let query = request.query::<AuditParams>()?.query(limit)?;
    let cursor = cursor.as_ref().map(|Verbatim(cursor)| cursor.as_str());
    let mut chunk = request.services().audit.export(request.organization(), query, cursor).await?;
    let file = File::write(&mut chunk, format, &request.services().runtime).await?;
    let ending = if format == Format::Packed { "jsonl.gz" } else { "jsonl" };
    let id: String = request.request_id().chars().take(8).collect();
    let name = format!("audit-logs_{}_{}_{id}.{ending}", compact(chunk.requested.start), compact(chunk.requested.end));
    let mut response = HttpResponse::Ok();
    response
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")))
        .insert_header((CONTENT_SHA256, file.sha256.as_str()))
        .insert_header((HAS_MORE, if chunk.next.is_some() { "true" } else { "false" }))
        .insert_header((ROW_COUNT, chunk.count.to_string()))
        .insert_header((RECORD_COUNT, chunk.count.to_string()));
    if let Some(until) = chunk.until {
        response.insert_header((RANGE_END, until.to_offset(UtcOffset::UTC).format(&Rfc3339).unwrap_or_default()));
    }
    if let Some(next) = &chunk.next {
        response.insert_header((NEXT_CURSOR, next.as_str()));
    }
    Ok(response.body(SizedStream::new(file.size, file.parts())))
}

fn file_format(format: Option<Verbatim>, encoding: Option<Verbatim>) -> Result<Format, ApiError> {
    let text = |value: Option<Verbatim>| value.map(|Verbatim(text)| text);
    let (format, encoding) = (text(format), text(encoding));
    if let (Some(format), Some(encoding)) = (&format, &encoding)
        && format != encoding
    {
        return Err(ApiError::field("encoding", FieldCode::MutuallyExclusive, "must be the same as format"));
    }
    let name = if format.is_some() { "format" } else { "encoding" };
    match format.or(encoding).as_deref() {
        None | Some("jsonl.gz") => Ok(Format::Packed),
        Some("jsonl") => Ok(Format::Lines),
        Some(_) => Err(ApiError::field(name, FieldCode::NotAllowed, "must be jsonl or jsonl.gz")),
    }
}

fn compact(moment: OffsetDateTime) -> String {
    moment.to_offset(UtcOffset::UTC).format(COMPACT).unwrap_or_default()
}
