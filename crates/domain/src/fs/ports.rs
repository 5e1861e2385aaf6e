//! The port to files in a sandbox.

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use super::{AbsolutePath, Change, Entry, FileMode, NewDirectory, NewMove, NewPermissions, NewWatch, Upload, WatchId};
use crate::ids::BrowserId;
use crate::session_operation::{ByteStream, OperationError};

/// What stands in a directory, some of it at a time, sorted by the bytes of the names. After the first error nothing more comes.
pub type Entries = BoxStream<'static, Result<Vec<Entry>, OperationError>>;
/// What happens in a watched directory. Ends with the watch: with [`OperationError::State`] unless it was stopped.
pub type Changes = BoxStream<'static, Result<Change, OperationError>>;
/// Files on their way into a session: each begins with its path.
pub type Uploads = BoxStream<'static, Result<Upload, OperationError>>;

/// A file on its way out of a session.
pub struct FileContent {
    /// How many bytes come, where the machine knows. Fewer are a failure.
    pub length: Option<u64>,
    /// They.
    pub bytes: ByteStream,
}

/// Works with files inside a session's machine, with the rights of its user.
///
/// All operations fail with [`OperationError::Missing`] and [`OperationError::Forbidden`] as the machine's kernel says, the writing ones
/// with [`OperationError::DiskFull`] and leave nothing behind then, nor when the bytes that come in break off.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait FileMachine: Send + Sync {
    /// What stands in a directory.
    async fn list(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entries, OperationError>;

    /// What is at a path; a link itself.
    async fn info(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entry, OperationError>;

    /// The bytes of a regular file.
    async fn read(&self, browser: BrowserId, path: AbsolutePath) -> Result<FileContent, OperationError>;

    /// A ZIP archive of what stands in a directory, made while it is read.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`].
    async fn archive(&self, browser: BrowserId, path: AbsolutePath) -> Result<ByteStream, OperationError>;

    /// Writes a file, in place of one that is there.
    async fn write(
        &self,
        browser: BrowserId,
        path: AbsolutePath,
        mode: FileMode,
        content: ByteStream,
    ) -> Result<(), OperationError>;

    /// Writes several files, all or none, with the directories they are in.
    async fn upload(&self, browser: BrowserId, files: Uploads) -> Result<(), OperationError>;

    /// Unpacks a ZIP archive into a directory, which is made: all of it or nothing.
    async fn unpack(&self, browser: BrowserId, path: AbsolutePath, archive: ByteStream) -> Result<(), OperationError>;

    /// Makes a directory, with those above it. One that is there is fine.
    ///
    /// # Errors
    /// [`OperationError::Exists`] for anything else that is there.
    async fn make_directory(&self, browser: BrowserId, new: NewDirectory) -> Result<(), OperationError>;

    /// Deletes a directory with what is in it.
    async fn delete_directory(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError>;

    /// Deletes anything but a directory; a link itself.
    async fn delete_file(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError>;

    /// Moves a file or a directory.
    ///
    /// # Errors
    /// [`OperationError::Exists`].
    async fn relocate(&self, browser: BrowserId, new: NewMove) -> Result<(), OperationError>;

    /// Sets permissions and, as far as the machine's user may, the owner.
    async fn set_permissions(&self, browser: BrowserId, new: NewPermissions) -> Result<(), OperationError>;

    /// Begins to watch a directory.
    ///
    /// # Errors
    /// [`OperationError::Limit`].
    async fn watch(&self, browser: BrowserId, new: NewWatch) -> Result<WatchId, OperationError>;

    /// What happens there, from the beginning of the watch on. A later reader takes over from an earlier one.
    async fn changes(&self, browser: BrowserId, id: WatchId) -> Result<Changes, OperationError>;

    /// Ends a watch.
    async fn unwatch(&self, browser: BrowserId, id: WatchId) -> Result<(), OperationError>;
}
