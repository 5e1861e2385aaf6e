//! Files, by the agent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::client::Download;
use casement_agent_protocol::fs as words;
use casement_domain::fs::{
    AbsolutePath, Change, ChangeKind, Changes, Entries, Entry, FileContent, FileMachine, FileMode, NewDirectory,
    NewMove, NewPermissions, NewWatch, Upload, Uploads, WatchId,
};
use casement_domain::ids::BrowserId;
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use time::OffsetDateTime;

use super::lines::Lines;
use super::{Content, operation_error, stream as bytes_of};
use crate::engine::Engine;
use crate::fault::shorten;
use crate::running::Running;

/// What the agent answers at once, unless its machine is very busy.
const QUICK: Duration = Duration::from_secs(20);
/// What grows with the number of files: looking through a tree, deleting or copying it, unpacking.
const WORK: Duration = Duration::from_secs(300);
/// The longest line of what the agent lists: 256 entries.
const MAX_LINE: usize = 1 << 20;

#[async_trait]
impl FileMachine for Engine {
    async fn list(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entries, OperationError> {
        let (running, listed) = download(self, browser, words::LIST, &named(&path), WORK).await?;
        let batches = Lines::new(running, listed, MAX_LINE);
        Ok(batches.told(|batch: Vec<words::Entry>| Ok(batch.into_iter().map(entry).collect())))
    }

    async fn info(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entry, OperationError> {
        let running = self.running(browser)?;
        let found = running.agent.call(words::INFO, &named(&path), QUICK).await;
        found.map(entry).map_err(|error| operation_error(&running, &error))
    }

    async fn read(&self, browser: BrowserId, path: AbsolutePath) -> Result<FileContent, OperationError> {
        let (running, content) = download(self, browser, words::READ, &named(&path), QUICK).await?;
        Ok(FileContent { length: content.length, bytes: bytes_of(running, content) })
    }

    async fn archive(&self, browser: BrowserId, path: AbsolutePath) -> Result<ByteStream, OperationError> {
        let (running, content) = download(self, browser, words::ZIP, &named(&path), WORK).await?;
        Ok(bytes_of(running, content))
    }

    async fn write(
        &self,
        browser: BrowserId,
        path: AbsolutePath,
        mode: FileMode,
        content: ByteStream,
    ) -> Result<(), OperationError> {
        let asked = words::Write { path: path.to_string(), mode: mode.bits() };
        upload(self, browser, words::WRITE, &asked, content, QUICK).await
    }

    async fn upload(&self, browser: BrowserId, files: Uploads) -> Result<(), OperationError> {
        let end = stream::once(async { Ok(words::Frame::End.head(0).to_vec().into()) });
        let content = files.map_ok(|part| stream::iter(frames(part).into_iter().map(Ok))).try_flatten().chain(end);
        upload(self, browser, words::UPLOAD, &serde_json::json!({}), content.boxed(), QUICK).await
    }

    async fn unpack(&self, browser: BrowserId, path: AbsolutePath, archive: ByteStream) -> Result<(), OperationError> {
        upload(self, browser, words::UNZIP, &named(&path), archive, WORK).await
    }

    async fn make_directory(&self, browser: BrowserId, new: NewDirectory) -> Result<(), OperationError> {
        let asked = words::MakeDirectory { path: new.path.to_string(), mode: new.mode.bits() };
        command(self, browser, words::MAKE_DIRECTORY, &asked, QUICK).await
    }

    async fn delete_directory(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        command(self, browser, words::DELETE_DIRECTORY, &named(&path), WORK).await
    }

    async fn delete_file(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        command(self, browser, words::DELETE_FILE, &named(&path), QUICK).await
    }

    async fn relocate(&self, browser: BrowserId, new: NewMove) -> Result<(), OperationError> {
        let asked = words::Move { source: new.source.to_string(), destination: new.destination.to_string() };
        command(self, browser, words::MOVE, &asked, WORK).await
    }

    async fn set_permissions(&self, browser: BrowserId, new: NewPermissions) -> Result<(), OperationError> {
        let NewPermissions { path, mode, owner, group } = new;
        let asked = words::Permissions { path: path.to_string(), mode: mode.bits(), owner, group };
        command(self, browser, words::PERMISSIONS, &asked, QUICK).await
    }

    async fn watch(&self, browser: BrowserId, new: NewWatch) -> Result<WatchId, OperationError> {
        let running = self.running(browser)?;
        let asked = words::Watch { path: new.path.to_string(), recursive: new.recursive };
        let begun = running.agent.call::<words::WatchId>(words::WATCH, &asked, QUICK).await;
        WatchId::parse(&begun.map_err(|error| operation_error(&running, &error))?.watch_id)
    }

    async fn changes(&self, browser: BrowserId, id: WatchId) -> Result<Changes, OperationError> {
        let (running, told) = download(self, browser, words::WATCH_EVENTS, &which(&id), QUICK).await?;
        Ok(Lines::new(running, told, MAX_LINE).told(|seen| match seen {
            words::WatchLine::Change(told) => Ok(change(told)),
            words::WatchLine::Ended { ended } => Err(OperationError::State(shorten(ended))),
        }))
    }

    async fn unwatch(&self, browser: BrowserId, id: WatchId) -> Result<(), OperationError> {
        command(self, browser, words::UNWATCH, &which(&id), QUICK).await
    }
}

fn named(path: &AbsolutePath) -> words::Path {
    words::Path { path: path.to_string() }
}

fn which(id: &WatchId) -> words::WatchId {
    words::WatchId { watch_id: id.as_str().to_owned() }
}

async fn command(
    engine: &Engine,
    browser: BrowserId,
    operation: &'static str,
    asked: &(impl Serialize + Sync),
    within: Duration,
) -> Result<(), OperationError> {
    let running = engine.running(browser)?;
    running.agent.command(operation, asked, within).await.map_err(|error| operation_error(&running, &error))
}

async fn download(
    engine: &Engine,
    browser: BrowserId,
    operation: &'static str,
    asked: &(impl Serialize + Sync),
    within: Duration,
) -> Result<(Arc<Running>, Download), OperationError> {
    let running = engine.running(browser)?;
    let begun = running.agent.download(operation, asked, within).await;
    let begun = begun.map_err(|error| operation_error(&running, &error))?;
    Ok((running, begun))
}

async fn upload(
    engine: &Engine,
    browser: BrowserId,
    operation: &'static str,
    asked: &(impl Serialize + Sync),
    content: ByteStream,
    within: Duration,
) -> Result<(), OperationError> {
    /// The agent says nothing but that it is done.
    #[derive(serde::Deserialize)]
    struct Done {}

    let running = engine.running(browser)?;
    let (fault, content) = Content::of(content);
    match running.agent.upload::<Done>(operation, asked, content, within).await {
        Ok(Done {}) => Ok(()),
        Err(error) => Err(fault.failed(&running, &error)),
    }
}

fn entry(entry: words::Entry) -> Entry {
    let seconds = OffsetDateTime::from_unix_timestamp(entry.modified_seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let modified_at = seconds.replace_nanosecond(entry.modified_nanos).unwrap_or(seconds);
    let mut entry = Entry { name: entry.name, mode: entry.mode, size_bytes: entry.size, modified_at };
    if entry.is_dir() {
        entry.size_bytes = 0;
    }
    entry
}

fn change(change: words::Change) -> Change {
    let kind = match change.kind {
        words::ChangeKind::Create => ChangeKind::Create,
        words::ChangeKind::Write => ChangeKind::Write,
        words::ChangeKind::Delete => ChangeKind::Delete,
        words::ChangeKind::Rename => ChangeKind::Rename,
    };
    Change { kind, path: change.path, is_dir: change.is_dir }
}

/// A part of an upload, as the agent takes it.
fn frames(part: Upload) -> Vec<Bytes> {
    let framed = |frame: words::Frame, content: Bytes| [Bytes::copy_from_slice(&frame.head(content.len())), content];
    match part {
        Upload::File(path) => framed(words::Frame::File, path.to_string().into()).into(),
        Upload::Data(mut data) => {
            let mut frames = Vec::new();
            while !data.is_empty() {
                let length = data.len().min(words::MAX_FRAME_BYTES);
                frames.extend(framed(words::Frame::Data, data.split_to(length)));
            }
            frames
        }
    }
}
