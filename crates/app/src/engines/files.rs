//! The files of browsers: those of sandboxes, and the downloads of browsers of WebDriver servers.

use async_trait::async_trait;
use bytes::Bytes;
use casement_chromium::Engine;
use casement_domain::BrowserId;
use casement_domain::fs::{
    AbsolutePath, Changes, Entries, Entry, FileContent, FileMachine, FileMode, NewDirectory, NewMove, NewPermissions,
    NewWatch, Uploads, WatchId,
};
use casement_domain::session_operation::{ByteStream, OperationError};
use casement_webdriver::{Download, GridError, into_engine_error};
use futures_util::{StreamExt as _, stream};
use time::{Duration, OffsetDateTime};

use super::BrowserEngines;
use super::grids::RemoteBrowserSession;

/// The directory of the downloads of every session.
const DOWNLOADS: &str = "/home/casement/downloads";
/// The largest download of a remote browser that can be read, in bytes, because it is read into memory.
const MAX_DOWNLOAD: usize = 32 << 20;
/// The type and the permissions of a regular file, and of a directory.
const FILE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;

/// The files of all browsers of this node.
pub(crate) struct EngineFiles(pub(crate) BrowserEngines);

impl EngineFiles {
    fn sandboxes(&self) -> &Engine {
        self.0.sandboxes()
    }

    fn remote(&self, browser: BrowserId) -> Option<RemoteBrowserSession> {
        self.0.grids().session(browser)
    }
}

impl RemoteBrowserSession {
    async fn entries(&self) -> Result<Vec<Entry>, OperationError> {
        let downloads = self.engine.downloads(&self.session).await.map_err(|error| self.failed(error))?;
        let mut entries: Vec<Entry> = downloads.into_iter().map(file).collect();
        entries.sort_unstable_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
        Ok(entries)
    }

    async fn entry(&self, path: &AbsolutePath) -> Result<Entry, OperationError> {
        if path.as_str() == DOWNLOADS {
            return Ok(directory());
        }
        let name = download_name(path)?;
        let found = self.entries().await?.into_iter().find(|entry| entry.name == name);
        found.ok_or_else(|| missing(path))
    }

    async fn bytes(&self, path: &AbsolutePath) -> Result<Bytes, OperationError> {
        let entry = self.entry(path).await?;
        if entry.is_dir() {
            return Err(OperationError::State(format!("{} is a directory", path.as_str())));
        }
        if entry.size_bytes > MAX_DOWNLOAD as u64 {
            let (size, engine) = (entry.size_bytes, self.engine.name());
            let text = format!("the file has {size} bytes; of the engine {engine} at most {MAX_DOWNLOAD} can be read");
            return Err(OperationError::TooLarge(text));
        }
        let read = self.engine.download(&self.session, &entry.name, MAX_DOWNLOAD).await;
        read.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: GridError) -> OperationError {
        match error {
            GridError::Unsupported { .. } => {
                OperationError::NotSupported(format!("the engine {}: {error}", self.engine.name()))
            }
            error => into_engine_error(self.engine.name(), self.session.browser(), &error).into(),
        }
    }
}

fn file(download: Download) -> Entry {
    Entry {
        name: download.name,
        mode: FILE,
        size_bytes: download.bytes.unwrap_or_default(),
        modified_at: download.modified_at_ms.and_then(time_of).unwrap_or(OffsetDateTime::UNIX_EPOCH),
    }
}

/// Returns the time of a number of milliseconds since 1970. The number is the server's, and may be any.
fn time_of(ms: u64) -> Option<OffsetDateTime> {
    OffsetDateTime::UNIX_EPOCH.checked_add(Duration::milliseconds(i64::try_from(ms).ok()?))
}

fn directory() -> Entry {
    Entry { name: "downloads".to_owned(), mode: DIRECTORY, size_bytes: 0, modified_at: OffsetDateTime::UNIX_EPOCH }
}

/// Returns the name of a file in the directory of the downloads.
fn download_name(path: &AbsolutePath) -> Result<&str, OperationError> {
    let below = path.as_str().strip_prefix(DOWNLOADS).and_then(|rest| rest.strip_prefix('/'));
    below.filter(|name| !name.contains('/')).ok_or_else(|| missing(path))
}

fn missing(path: &AbsolutePath) -> OperationError {
    let path = path.as_str();
    OperationError::Missing(format!("{path} does not exist: the engine has the files in {DOWNLOADS} only"))
}

#[async_trait]
impl FileMachine for EngineFiles {
    async fn list(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entries, OperationError> {
        let Some(remote) = self.remote(browser) else { return self.sandboxes().list(browser, path).await };
        if path.as_str() != DOWNLOADS {
            return Err(missing(&path));
        }
        let entries = remote.entries().await?;
        Ok(stream::iter([Ok(entries)]).boxed())
    }

    async fn info(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entry, OperationError> {
        match self.remote(browser) {
            Some(remote) => remote.entry(&path).await,
            None => self.sandboxes().info(browser, path).await,
        }
    }

    async fn read(&self, browser: BrowserId, path: AbsolutePath) -> Result<FileContent, OperationError> {
        let Some(remote) = self.remote(browser) else { return self.sandboxes().read(browser, path).await };
        let bytes = remote.bytes(&path).await?;
        Ok(FileContent { length: Some(bytes.len() as u64), bytes: stream::iter([Ok(bytes)]).boxed() })
    }

    async fn archive(&self, browser: BrowserId, path: AbsolutePath) -> Result<ByteStream, OperationError> {
        self.sandboxes().archive(browser, path).await
    }

    async fn write(
        &self,
        browser: BrowserId,
        path: AbsolutePath,
        mode: FileMode,
        content: ByteStream,
    ) -> Result<(), OperationError> {
        self.sandboxes().write(browser, path, mode, content).await
    }

    async fn upload(&self, browser: BrowserId, files: Uploads) -> Result<(), OperationError> {
        self.sandboxes().upload(browser, files).await
    }

    async fn unpack(&self, browser: BrowserId, path: AbsolutePath, archive: ByteStream) -> Result<(), OperationError> {
        self.sandboxes().unpack(browser, path, archive).await
    }

    async fn make_directory(&self, browser: BrowserId, new: NewDirectory) -> Result<(), OperationError> {
        self.sandboxes().make_directory(browser, new).await
    }

    async fn delete_directory(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        self.sandboxes().delete_directory(browser, path).await
    }

    async fn delete_file(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError> {
        self.sandboxes().delete_file(browser, path).await
    }

    async fn relocate(&self, browser: BrowserId, new: NewMove) -> Result<(), OperationError> {
        self.sandboxes().relocate(browser, new).await
    }

    async fn set_permissions(&self, browser: BrowserId, new: NewPermissions) -> Result<(), OperationError> {
        self.sandboxes().set_permissions(browser, new).await
    }

    async fn watch(&self, browser: BrowserId, new: NewWatch) -> Result<WatchId, OperationError> {
        self.sandboxes().watch(browser, new).await
    }

    async fn changes(&self, browser: BrowserId, id: WatchId) -> Result<Changes, OperationError> {
        self.sandboxes().changes(browser, id).await
    }

    async fn unwatch(&self, browser: BrowserId, id: WatchId) -> Result<(), OperationError> {
        self.sandboxes().unwatch(browser, id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_with_an_impossible_time_is_listed_without_one() {
        for (modified_at_ms, expected) in
            [(Some(1_500), 1), (Some(u64::MAX), 0), (Some(i64::MAX.unsigned_abs()), 0), (None, 0)]
        {
            let entry = file(Download { name: "a".to_owned(), bytes: Some(1), modified_at_ms });
            assert_eq!(entry.modified_at.unix_timestamp(), expected, "{modified_at_ms:?}");
        }
    }
}
