//! `…/logs`: logs of a session.

use casement_domain::session_log::{FollowLog, LogLine};
use futures_util::StreamExt as _;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    answer::{Answer, Moment},
    caller::SessionAccess,
    error::ErrorBody,
    sse,
};

/// One line of a log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogEvent {
    /// `log`.
    event: &'static str,
    /// When the line was read.
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    /// The line, at most 16 KiB of it.
    message: String,
}

impl From<LogLine> for LogEvent {
    fn from(LogLine { read_at, message }: LogLine) -> Self {
        Self { event: "log", timestamp: Moment(read_at), message }
    }
}

/// Streams a log of a session, line by line: a file from its beginning on, or what is kept of what its programs complain of.
#[utoipa::path(
    get, path = "/browsers/{id}/logs/stream", tag = "Logs",
    params(
        ("id" = String, Path),
        ("source" = String, Query, description = "`path` or `supervisor`"),
        ("path" = Option<String>, Query, description = "With `path`: a regular file, by its absolute path"),
        ("supervisor_process" = Option<String>, Query, description = "With `supervisor`: `chromium`, `display` or `agent`"),
        ("follow" = Option<bool>, Query, description = "Go on with what is added; default: true"),
    ),
    responses(
        (status = 200, body = LogEvent, content_type = "text/event-stream"),
        (status = 400, description = "A parameter breaks a rule, or the path is no regular file", body = ErrorBody),
        (status = 403, description = "The session's user may not read it", body = ErrorBody),
        (status = 404, description = "There is no such session or file", body = ErrorBody),
        (status = 429, description = "16 read logs of the session", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn stream_logs(inside: SessionAccess) -> Answer {
    let query = inside.query()?;
    let (source, path) = (query.text("source")?, query.text("path")?.map(str::to_owned));
    let supervisor_process = query.text("supervisor_process")?;
    let log = FollowLog::parse(source, path, supervisor_process, query.boolean("follow")?.unwrap_or(true))?;
    let lines = inside.services().session_logs.follow(&inside.session, log).await?;
    Ok(sse::answer(inside, lines.map(|line| line.map(LogEvent::from))))
}
