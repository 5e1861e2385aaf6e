//! The logs of the session, line by line: a file in the session, or the output of the session's own programs.

mod file;
mod retained_lines;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::request::Parts;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::file::{LogFile, Watch};
pub use self::retained_lines::AgentLog;
pub(crate) use self::retained_lines::{AGENT, CHROMIUM, DISPLAY, RetainedLines};
use crate::clock::now_ms;
use crate::reply::{self, Answer, Refusal, line, read};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::session_log::{FollowLog, LogLine, LogSource, STREAM};

/// The maximum number of concurrent readers.
const MAX_READERS: usize = 16;
/// The approximate size of a chunk of lines, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

static READERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_READERS)));

/// Serves `/v1/session_log/…`.
pub(crate) async fn serve(head: &Parts, body: Incoming) -> Answer {
    if head.uri.path() != STREAM {
        return Err(Refusal::no_operation(head.uri.path()));
    }
    let FollowLog { source, follow } = read(body).await?;
    let place = Arc::clone(&READERS).try_acquire_owned();
    let place = place.map_err(|_| Refusal::new(ErrorCode::LimitReached, "too many read logs of this session"))?;
    let lines = match source {
        LogSource::Path(path) => of_file(LogFile::open(&path)?, follow, place)?,
        LogSource::Chromium => of_buffered(&CHROMIUM, follow, place),
        LogSource::Display => of_buffered(&DISPLAY, follow, place),
        LogSource::Agent => of_buffered(&AGENT, follow, place),
    };
    Ok(reply::stream("application/x-ndjson", lines))
}

fn of_buffered(
    retained: &'static RetainedLines,
    follow: bool,
    place: OwnedSemaphorePermit,
) -> BoxStream<'static, io::Result<Bytes>> {
    let lines = stream::unfold((0_u64, place), move |(next, place)| async move {
        loop {
            let mut changed = std::pin::pin!(retained.changed());
            // Enabled before the read, so that no line is missed.
            changed.as_mut().enable();
            let (lines, after) = retained.read(next, CHUNK_BYTES);
            if !lines.is_empty() {
                return Some((Ok(encoded(&lines)), (after, place)));
            }
            if !follow {
                return None;
            }
            changed.await;
        }
    });
    lines.boxed()
}

/// A file that is being read.
struct Reading {
    log: LogFile,
    watch: Option<Watch>,
    lines: VecDeque<String>,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

fn of_file(
    log: LogFile,
    follow: bool,
    place: OwnedSemaphorePermit,
) -> Result<BoxStream<'static, io::Result<Bytes>>, Refusal> {
    // Created before the first read, so that no change is missed.
    let watch = if follow { Some(log.watch().map_err(|error| Refusal::new(ErrorCode::Failed, error))?) } else { None };
    let reading = Reading { log, watch, lines: VecDeque::new(), ended: false, _place: place };
    Ok(stream::try_unfold(reading, |mut reading| async move { Ok(reading.next().await?.map(|part| (part, reading))) })
        .boxed())
}

impl Reading {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while self.lines.is_empty() && !self.ended {
            match self.log.read()? {
                Some(lines) => self.lines.extend(lines),
                None => self.wait().await?,
            }
            // A large file must not block the other requests.
            tokio::task::yield_now().await;
        }
        if self.lines.is_empty() {
            return Ok(None);
        }
        let now = now_ms();
        let lines: Vec<LogLine> = self.lines.drain(..).map(|message| LogLine { read_at_ms: now, message }).collect();
        Ok(Some(encoded(&lines)))
    }

    /// Waits at the end of the file until there is more to read; ends the reading if it does not follow the file.
    async fn wait(&mut self) -> io::Result<()> {
        let Some(watch) = &mut self.watch else {
            self.ended = true;
            self.lines.extend(self.log.take_rest());
            return Ok(());
        };
        loop {
            let (rest, more) = self.log.look()?;
            if let Some(rest) = rest {
                self.lines.push_back(rest);
            }
            if more {
                return watch.renew(&self.log);
            }
            watch.changed().await?;
        }
    }
}

fn encoded(lines: &[LogLine]) -> Bytes {
    lines.iter().flat_map(line).collect()
}
