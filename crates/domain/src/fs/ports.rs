//! What files need from outside.

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use super::{AbsolutePath, Change, Entry, FileMode, NewDirectory, NewMove, NewPermissions, NewWatch, Upload, WatchId};
use crate::ids::BrowserId;
use crate::inside::{ByteStream, InsideError};

/// What stands in a directory, some of it at a time, sorted by the bytes of the names. After the first error nothing more comes.
pub type Entries = BoxStream<'static, Result<Vec<Entry>, InsideError>>;
/// What happens in a watched directory. Ends with the watch: with [`InsideError::State`] unless it was stopped.
pub type Changes = BoxStream<'static, Result<Change, InsideError>>;
/// Files on their way into a session: each begins with its path.
pub type Uploads = BoxStream<'static, Result<Upload, InsideError>>;

/// A file on its way out of a session.
pub struct FileContent {
    /// How many bytes come, where the machine knows. Fewer are a failure.
    pub length: Option<u64>,
    /// They.
    pub bytes: ByteStream,
}

/// Works with files inside a session's machine, with the rights of its user.
///
/// All operations fail with [`InsideError::Missing`] and [`InsideError::Forbidden`] as the machine's kernel says, the writing ones
/// with [`InsideError::DiskFull`] and leave nothing behind then, nor when the bytes that come in break off.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait FileMachine: Send + Sync {
    /// What stands in a directory.
    async fn list(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entries, InsideError>;

    /// What is at a path; a link itself.
    async fn info(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entry, InsideError>;

    /// The bytes of a regular file.
    async fn read(&self, browser: BrowserId, path: AbsolutePath) -> Result<FileContent, InsideError>;

    /// A ZIP archive of what stands in a directory, made while it is read.
    ///
    /// # Errors
    /// [`InsideError::TooLarge`].
    async fn archive(&self, browser: BrowserId, path: AbsolutePath) -> Result<ByteStream, InsideError>;

    /// Writes a file, in place of one that is there.
    async fn write(
        &self,
        browser: BrowserId,
        path: AbsolutePath,
        mode: FileMode,
        content: ByteStream,
    ) -> Result<(), InsideError>;

    /// Writes several files, all or none, with the directories they are in.
    async fn upload(&self, browser: BrowserId, files: Uploads) -> Result<(), InsideError>;

    /// Unpacks a ZIP archive into a directory, which is made: all of it or nothing.
    async fn unpack(&self, browser: BrowserId, path: AbsolutePath, archive: ByteStream) -> Result<(), InsideError>;

    /// Makes a directory, with those above it. One that is there is fine.
    ///
    /// # Errors
    /// [`InsideError::Exists`] for anything else that is there.
    async fn make_directory(&self, browser: BrowserId, new: NewDirectory) -> Result<(), InsideError>;

    /// Deletes a directory with what is in it.
    async fn delete_directory(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), InsideError>;

    /// Deletes anything but a directory; a link itself.
    async fn delete_file(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), InsideError>;

    /// Moves a file or a directory.
    ///
    /// # Errors
    /// [`InsideError::Exists`].
    async fn relocate(&self, browser: BrowserId, new: NewMove) -> Result<(), InsideError>;

    /// Sets permissions and, as far as the machine's user may, the owner.
    async fn set_permissions(&self, browser: BrowserId, new: NewPermissions) -> Result<(), InsideError>;

    /// Begins to watch a directory.
    ///
    /// # Errors
    /// [`InsideError::Limit`].
    async fn watch(&self, browser: BrowserId, new: NewWatch) -> Result<WatchId, InsideError>;

    /// What happens there, from the beginning of the watch on. A later reader takes over from an earlier one.
    async fn changes(&self, browser: BrowserId, id: WatchId) -> Result<Changes, InsideError>;

    /// Ends a watch.
    async fn unwatch(&self, browser: BrowserId, id: WatchId) -> Result<(), InsideError>;
}
