//! List and export.

use actix_web::{
    HttpResponse,
    http::header::{self, HeaderName},
};
use casement_domain::{audit::AuditQuery, field::FieldCode};
use time::{
    OffsetDateTime, UtcOffset,
    format_description::{BorrowedFormatItem, well_known::Rfc3339},
    macros::format_description,
};

use super::{
    export::{self, Format},
    record::AuditRecordBody,
};
use crate::{
    answer::Answer,
    caller::OrganizationCaller,
    error::{ApiError, ErrorBody},
    query::Query,
};

/// As it stands in the name of a file.
const COMPACT: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");
const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");
const NEXT_PAGE_TOKEN: HeaderName = HeaderName::from_static("x-next-page-token");
const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");
const RANGE_END: HeaderName = HeaderName::from_static("x-range-end");
const RECORD_COUNT: HeaderName = HeaderName::from_static("x-record-count");

fn asked(query: &Query) -> Result<AuditQuery, ApiError> {
    let text = |name| Ok::<_, ApiError>(query.text(name)?.map(str::to_owned));
    Ok(AuditQuery {
        start: query.moment("start")?,
        end: query.moment("end")?,
        auth_strategy: text("auth_strategy")?,
        service: text("service")?,
        method: text("method")?,
        exclude_methods: query.list("exclude_method")?,
        search: text("search")?,
        search_users: query.list("search_user_id")?,
        limit: query.integer("limit")?,
    })
}

/// Lists audit records, newest first.
///
/// A call that changes something has its record before it is answered, and one that its server did not answer because it was killed has a
/// record with status 0: what it asked for may have been done. A call that only reads is recorded just behind its answer, mostly within a
/// fiftieth of a second; if the server is killed in between, that record is missing.
#[utoipa::path(
    get, path = "/audit-logs", tag = "Audit logs",
    params(
        ("start" = String, Query, description = "From when on, inclusive"),
        ("end" = String, Query, description = "Until when, exclusive; at most 30 days after start"),
        ("auth_strategy" = Option<String>, Query), ("service" = Option<String>, Query), ("method" = Option<String>, Query),
        ("exclude_method" = Option<Vec<String>>, Query, description = "At most 10"),
        ("search" = Option<String>, Query, description = "Part of path, user, e-mail or address, or the status"),
        ("search_user_id" = Option<Vec<String>>, Query, description = "Or of one of these users; at most 100"),
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 100"),
        ("page_token" = Option<String>, Query, description = "X-Next-Page-Token of the page before"),
    ),
    responses(
        (status = 200, body = [AuditRecordBody], headers(("X-Has-More" = String), ("X-Next-Page-Token" = String))),
        (status = 400, description = "A parameter breaks a rule, or the token is of another question", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = "5XX", description = "They cannot be read now", body = ErrorBody),
    )
)]
pub(crate) async fn list_audit_records(caller: OrganizationCaller) -> Answer {
    let query = caller.query()?;
    let token = query.raw("page_token")?;
    let page = caller.services().audit.list(caller.organization(), asked(&query)?, token).await?;
    let mut response = HttpResponse::Ok();
    response.insert_header((HAS_MORE, if page.next.is_some() { "true" } else { "false" }));
    if let Some(next) = page.next {
        response.insert_header((NEXT_PAGE_TOKEN, next));
    }
    Ok(response.json(page.records.into_iter().map(AuditRecordBody::from).collect::<Vec<_>>()))
}

/// Exports a chunk of audit records as a file, newest first.
///
/// The first chunk says in `X-Range-End` at which moment the exported range ends, exclusive: at `end`, or earlier if `end` lies in the
/// future. No record from before that moment comes any more, so the next export may start there. A range that is past is exported whole, or
/// answered with 503 while records of it wait to be stored. What is recorded of which calls: see the list.
#[utoipa::path(
    get, path = "/audit-logs/export/chunk", tag = "Audit logs",
    params(
        ("start" = String, Query, description = "From when on, inclusive"),
        ("end" = String, Query, description = "Until when, exclusive; if that lies in the future, until now"),
        ("auth_strategy" = Option<String>, Query), ("service" = Option<String>, Query), ("method" = Option<String>, Query),
        ("exclude_method" = Option<Vec<String>>, Query, description = "At most 10"),
        ("search" = Option<String>, Query, description = "Part of path, user, e-mail or address, or the status"),
        ("search_user_id" = Option<Vec<String>>, Query, description = "Or of one of these users; at most 100"),
        ("limit" = Option<u32>, Query, description = "1 to 50000; default: 50000"),
        ("cursor" = Option<String>, Query, description = "X-Next-Cursor of the chunk before"),
        ("format" = Option<String>, Query, description = "jsonl or jsonl.gz (default); `encoding` means the same"),
    ),
    responses(
        (status = 200, description = "A record a line", body = Vec<u8>, content_type = "application/octet-stream",
         headers(
            ("X-Next-Cursor" = String, description = "Leads to the next chunk of older records; absent at the end"),
            ("X-Record-Count" = u32, description = "How many records the chunk holds"),
            ("X-Range-End" = String, description = "Of the first chunk: where the exported range ends, exclusive; where the next export may start"),
         )),
        (status = 400, description = "A parameter breaks a rule, or the cursor is of another question", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = "5XX", description = "They cannot be read now", body = ErrorBody),
    )
)]
pub(crate) async fn export_audit_chunk(caller: OrganizationCaller) -> Answer {
    let query = caller.query()?;
    let format = format(&query)?;
    let cursor = query.raw("cursor")?;
    let chunk = caller.services().audit.export(caller.organization(), asked(&query)?, cursor).await?;
    let ending = if format == Format::Packed { "jsonl.gz" } else { "jsonl" };
    let id: String = caller.request_id().chars().take(8).collect();
    let name = format!("audit-logs_{}_{}_{id}.{ending}", compact(chunk.asked.start), compact(chunk.asked.end));
    let mut response = HttpResponse::Ok();
    response
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")))
        .insert_header((RECORD_COUNT, chunk.count.to_string()));
    if let Some(until) = chunk.until {
        response.insert_header((RANGE_END, until.to_offset(UtcOffset::UTC).format(&Rfc3339).unwrap_or_default()));
    }
    if let Some(next) = &chunk.next {
        response.insert_header((NEXT_CURSOR, next.as_str()));
    }
    Ok(response.streaming(export::file(chunk, format, caller.services().runtime.clone())))
}

fn format(query: &Query) -> Result<Format, ApiError> {
    let (format, encoding) = (query.raw("format")?, query.raw("encoding")?);
    if let (Some(format), Some(encoding)) = (format, encoding)
        && format != encoding
    {
        return Err(ApiError::field("encoding", FieldCode::MutuallyExclusive, "must be the same as format"));
    }
    let name = if format.is_some() { "format" } else { "encoding" };
    match format.or(encoding) {
        None | Some("jsonl.gz") => Ok(Format::Packed),
        Some("jsonl") => Ok(Format::Lines),
        Some(_) => Err(ApiError::field(name, FieldCode::NotAllowed, "must be jsonl or jsonl.gz")),
    }
}

fn compact(moment: OffsetDateTime) -> String {
    moment.to_offset(UtcOffset::UTC).format(COMPACT).unwrap_or_default()
}
