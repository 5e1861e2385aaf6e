//! File operations by the agent.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
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

use super::{Content, stream as bytes_of};
use crate::engine::Engine;
use crate::fault::shorten;

/// The timeout of requests that the agent answers at once, unless its machine is very busy.
const QUICK_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of requests that grow with the number of files: searching a tree, deleting or copying it, unpacking.
const WORK_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest line of a listing: 256 entries.
const MAX_LINE: usize = 1 << 20;

#[async_trait]
impl FileMachine for Engine {
    async fn list(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entries, OperationError> {
        let request = path_request(&path);
        let batches = self.agent_lines(browser, wire::LIST, &request, WORK_TIMEOUT, MAX_LINE).await?;
        Ok(batches.converted(|batch: Vec<wire::Entry>| Ok(batch.into_iter().map(entry).collect())))
    }

    async fn info(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entry, OperationError> {
        self.agent_call(browser, wire::INFO, &path_request(&path), QUICK_TIMEOUT).await.map(entry)
    }

    async fn read(&self, browser: BrowserId, path: AbsolutePath) -> Result<FileContent, OperationError> {
        let (running, content) = self.agent_download(browser, wire::READ, &path_request(&path), QUICK_TIMEOUT).await?;
        Ok(FileContent { length: content.length, bytes: bytes_of(running, content) })
    }

    async fn archive(&self, browser: BrowserId, path: AbsolutePath) -> Result<ByteStream, OperationError> {
        let (running, content) = self.agent_download(browser, wire::ZIP, &path_request(&path), WORK_TIMEOUT).await?;
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
        self.agent_command(browser, wire::MAKE_DIRECTORY, &request, QUICK_TIMEOUT).await
    }

    async fn delete_directory(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        self.agent_command(browser, wire::DELETE_DIRECTORY, &path_request(&path), WORK_TIMEOUT).await
    }

    async fn delete_file(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        self.agent_command(browser, wire::DELETE_FILE, &path_request(&path), QUICK_TIMEOUT).await
    }

    async fn relocate(&self, browser: BrowserId, new: NewMove) -> Result<(), OperationError> {
        let request = wire::Move { source: new.source.to_string(), destination: new.destination.to_string() };
        self.agent_command(browser, wire::MOVE, &request, WORK_TIMEOUT).await
    }

    async fn set_permissions(&self, browser: BrowserId, new: NewPermissions) -> Result<(), OperationError> {
        let NewPermissions { path, mode, owner, group } = new;
        let request = wire::Permissions { path: path.to_string(), mode: mode.bits(), owner, group };
        self.agent_command(browser, wire::PERMISSIONS, &request, QUICK_TIMEOUT).await
    }

    async fn watch(&self, browser: BrowserId, new: NewWatch) -> Result<WatchId, OperationError> {
        let request = wire::Watch { path: new.path.to_string(), recursive: new.recursive };
        let started: wire::WatchId = self.agent_call(browser, wire::WATCH, &request, QUICK_TIMEOUT).await?;
        WatchId::parse(&started.watch_id)
    }

    async fn changes(&self, browser: BrowserId, id: WatchId) -> Result<Changes, OperationError> {
        let request = watch_id_request(&id);
        let lines = self.agent_lines(browser, wire::WATCH_EVENTS, &request, QUICK_TIMEOUT, MAX_LINE).await?;
        Ok(lines.converted(|line| match line {
            wire::WatchLine::Change(received) => Ok(change(received)),
            wire::WatchLine::Ended { ended } => Err(OperationError::State(shorten(ended))),
        }))
    }

    async fn unwatch(&self, browser: BrowserId, id: WatchId) -> Result<(), OperationError> {
        self.agent_command(browser, wire::UNWATCH, &watch_id_request(&id), QUICK_TIMEOUT).await
    }
}

fn path_request(path: &AbsolutePath) -> wire::Path {
    wire::Path { path: path.to_string() }
}

fn watch_id_request(id: &WatchId) -> wire::WatchId {
    wire::WatchId { watch_id: id.as_str().to_owned() }
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
