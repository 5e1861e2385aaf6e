//! File operations by the agent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_agent_protocol::client::Download;
use casement_agent_protocol::fs as wire;
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

/// The timeout of requests that the agent answers at once, unless its machine is very busy.
const QUICK_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of requests that grow with the number of files: searching a tree, deleting or copying it, unpacking.
const WORK_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest line of a listing: 256 entries.
const MAX_LINE: usize = 1 << 20;

#[async_trait]
impl FileMachine for Engine {
    async fn list(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entries, OperationError> {
        let (running, listed) = download(self, browser, wire::LIST, &path_request(&path), WORK_TIMEOUT).await?;
        let batches = Lines::new(running, listed, MAX_LINE);
        Ok(batches.converted(|batch: Vec<wire::Entry>| Ok(batch.into_iter().map(entry).collect())))
    }

    async fn info(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entry, OperationError> {
        let running = self.running(browser)?;
        let found = running.agent.call(wire::INFO, &path_request(&path), QUICK_TIMEOUT).await;
        found.map(entry).map_err(|error| operation_error(&running, &error))
    }

    async fn read(&self, browser: BrowserId, path: AbsolutePath) -> Result<FileContent, OperationError> {
        let (running, content) = download(self, browser, wire::READ, &path_request(&path), QUICK_TIMEOUT).await?;
        Ok(FileContent { length: content.length, bytes: bytes_of(running, content) })
    }

    async fn archive(&self, browser: BrowserId, path: AbsolutePath) -> Result<ByteStream, OperationError> {
        let (running, content) = download(self, browser, wire::ZIP, &path_request(&path), WORK_TIMEOUT).await?;
        Ok(bytes_of(running, content))
    }

    async fn write(
        &self,
        browser: BrowserId,
        path: AbsolutePath,
        mode: FileMode,
        content: ByteStream,
    ) -> Result<(), OperationError> {
        let request = wire::Write { path: path.to_string(), mode: mode.bits() };
        upload(self, browser, wire::WRITE, &request, content, QUICK_TIMEOUT).await
    }

    async fn upload(&self, browser: BrowserId, files: Uploads) -> Result<(), OperationError> {
        let end = stream::once(async { Ok(wire::Frame::End.head(0).to_vec().into()) });
        let content = files.map_ok(|part| stream::iter(frames(part).into_iter().map(Ok))).try_flatten().chain(end);
        upload(self, browser, wire::UPLOAD, &serde_json::json!({}), content.boxed(), QUICK_TIMEOUT).await
    }

    async fn unpack(&self, browser: BrowserId, path: AbsolutePath, archive: ByteStream) -> Result<(), OperationError> {
        upload(self, browser, wire::UNZIP, &path_request(&path), archive, WORK_TIMEOUT).await
    }

    async fn make_directory(&self, browser: BrowserId, new: NewDirectory) -> Result<(), OperationError> {
        let request = wire::MakeDirectory { path: new.path.to_string(), mode: new.mode.bits() };
        command(self, browser, wire::MAKE_DIRECTORY, &request, QUICK_TIMEOUT).await
    }

    async fn delete_directory(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        command(self, browser, wire::DELETE_DIRECTORY, &path_request(&path), WORK_TIMEOUT).await
    }

    async fn delete_file(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        command(self, browser, wire::DELETE_FILE, &path_request(&path), QUICK_TIMEOUT).await
    }

    async fn relocate(&self, browser: BrowserId, new: NewMove) -> Result<(), OperationError> {
        let request = wire::Move { source: new.source.to_string(), destination: new.destination.to_string() };
        command(self, browser, wire::MOVE, &request, WORK_TIMEOUT).await
    }

    async fn set_permissions(&self, browser: BrowserId, new: NewPermissions) -> Result<(), OperationError> {
        let NewPermissions { path, mode, owner, group } = new;
        let request = wire::Permissions { path: path.to_string(), mode: mode.bits(), owner, group };
        command(self, browser, wire::PERMISSIONS, &request, QUICK_TIMEOUT).await
    }

    async fn watch(&self, browser: BrowserId, new: NewWatch) -> Result<WatchId, OperationError> {
        let running = self.running(browser)?;
        let request = wire::Watch { path: new.path.to_string(), recursive: new.recursive };
        let started = running.agent.call::<wire::WatchId>(wire::WATCH, &request, QUICK_TIMEOUT).await;
        WatchId::parse(&started.map_err(|error| operation_error(&running, &error))?.watch_id)
    }

    async fn changes(&self, browser: BrowserId, id: WatchId) -> Result<Changes, OperationError> {
        let (running, received) =
            download(self, browser, wire::WATCH_EVENTS, &watch_id_request(&id), QUICK_TIMEOUT).await?;
        Ok(Lines::new(running, received, MAX_LINE).converted(|seen| match seen {
            wire::WatchLine::Change(received) => Ok(change(received)),
            wire::WatchLine::Ended { ended } => Err(OperationError::State(shorten(ended))),
        }))
    }

    async fn unwatch(&self, browser: BrowserId, id: WatchId) -> Result<(), OperationError> {
        command(self, browser, wire::UNWATCH, &watch_id_request(&id), QUICK_TIMEOUT).await
    }
}

fn path_request(path: &AbsolutePath) -> wire::Path {
    wire::Path { path: path.to_string() }
}

fn watch_id_request(id: &WatchId) -> wire::WatchId {
    wire::WatchId { watch_id: id.as_str().to_owned() }
}

async fn command(
    engine: &Engine,
    browser: BrowserId,
    operation: &'static str,
    request: &(impl Serialize + Sync),
    within: Duration,
) -> Result<(), OperationError> {
    let running = engine.running(browser)?;
    running.agent.command(operation, request, within).await.map_err(|error| operation_error(&running, &error))
}

async fn download(
    engine: &Engine,
    browser: BrowserId,
    operation: &'static str,
    request: &(impl Serialize + Sync),
    within: Duration,
) -> Result<(Arc<Running>, Download), OperationError> {
    let running = engine.running(browser)?;
    let started = running.agent.download(operation, request, within).await;
    let started = started.map_err(|error| operation_error(&running, &error))?;
    Ok((running, started))
}

async fn upload(
    engine: &Engine,
    browser: BrowserId,
    operation: &'static str,
    request: &(impl Serialize + Sync),
    content: ByteStream,
    within: Duration,
) -> Result<(), OperationError> {
    /// An empty response.
    #[derive(serde::Deserialize)]
    struct Done {}

    let running = engine.running(browser)?;
    let (fault, content) = Content::of(content);
    match running.agent.upload::<Done>(operation, request, content, within).await {
        Ok(Done {}) => Ok(()),
        Err(error) => Err(fault.failed(&running, &error)),
    }
}

fn entry(entry: wire::Entry) -> Entry {
    let seconds = OffsetDateTime::from_unix_timestamp(entry.modified_seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let modified_at = seconds.replace_nanosecond(entry.modified_nanos).unwrap_or(seconds);
    let mut entry = Entry { name: entry.name, mode: entry.mode, size_bytes: entry.size, modified_at };
    if entry.is_dir() {
        entry.size_bytes = 0;
    }
    entry
}

fn change(change: wire::Change) -> Change {
    let kind = match change.kind {
        wire::ChangeKind::Create => ChangeKind::Create,
        wire::ChangeKind::Write => ChangeKind::Write,
        wire::ChangeKind::Delete => ChangeKind::Delete,
        wire::ChangeKind::Rename => ChangeKind::Rename,
    };
    Change { kind, path: change.path, is_dir: change.is_dir }
}

/// Encodes a part of an upload as frames of the agent's protocol.
fn frames(part: Upload) -> Vec<Bytes> {
    let framed = |frame: wire::Frame, content: Bytes| [Bytes::copy_from_slice(&frame.head(content.len())), content];
    match part {
        Upload::File(path) => framed(wire::Frame::File, path.to_string().into()).into(),
        Upload::Data(mut data) => {
            let mut frames = Vec::new();
            while !data.is_empty() {
                let length = data.len().min(wire::MAX_FRAME_BYTES);
                frames.extend(framed(wire::Frame::Data, data.split_to(length)));
            }
            frames
        }
    }
}
