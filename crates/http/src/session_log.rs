//! The routes `…/logs`: logs of a session.

use casement_domain::session_log::{FollowLog, LogLine};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::{
    answer::{Answer, Moment},
    operation::Operations,
    request::{ActiveSession, Request},
    schema::{IntoParams, ToSchema},
    sse,
};

/// One line of a log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogEvent {
    /// `log`.
    event: &'static str,
    /// The time at which the line was read.
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    /// The line, truncated to 16 KiB.
    message: String,
}

impl From<LogLine> for LogEvent {
    fn from(LogLine { read_at, message }: LogLine) -> Self {
        Self { event: "log", timestamp: Moment(read_at), message }
    }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Logs", "The session or the file does not exist");
    api.get("/browsers/{id_or_name}/logs/stream", "stream_logs", stream_logs)
        .summary("Streams a log of a session line by line: a file from its beginning, or the stored error output of its programs.")
        .query::<LogParams>()
        .streams::<LogEvent>()
        .refuses([
            ("400", "A parameter breaks a rule, or the path is not a regular file"),
            ("403", "The session's user may not read it"),
            ("429", "16 callers read logs of the session"),
        ]);
}

/// The log to stream.
#[derive(Deserialize, IntoParams)]
pub(crate) struct LogParams {
    /// `path` or `supervisor`. Required.
    #[param(required, value_type = String)]
    source: Option<String>,
    /// With `path`: the absolute path of a regular file.
    path: Option<String>,
    /// With `supervisor`: `chromium`, `display` or `agent`.
    supervisor_process: Option<String>,
    /// Whether the stream continues with lines that are added later. Default: true.
    follow: Option<bool>,
}

async fn stream_logs(request: Request<ActiveSession>) -> Answer {
    let LogParams { source, path, supervisor_process, follow } = request.query()?;
    let log = FollowLog::parse(source.as_deref(), path, supervisor_process.as_deref(), follow.unwrap_or(true))?;
    let lines = request.services().session_logs.follow(request.session(), log).await?;
    Ok(sse::answer(request, lines.map(|line| line.map(LogEvent::from))))
}
