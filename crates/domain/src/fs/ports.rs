//! The port to files in a sandbox.

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use super::{AbsolutePath, Change, Entry, FileMode, NewDirectory, NewMove, NewPermissions, NewWatch, Upload, WatchId};
use crate::ids::BrowserId;
use crate::session_operation::{ByteStream, OperationError};

/// The entries of a directory in batches, sorted by the bytes of their names. The stream ends after the first error.
pub type Entries = BoxStream<'static, Result<Vec<Entry>, OperationError>>;
/// The events of a watched directory. The stream ends with the watch: with [`OperationError::State`] unless it was
/// stopped.
pub type Changes = BoxStream<'static, Result<Change, OperationError>>;
/// The parts of uploaded files; each file begins with its path.
pub type Uploads = BoxStream<'static, Result<Upload, OperationError>>;

/// A downloaded file.
pub struct FileContent {
    /// The number of bytes, if it is known. Fewer bytes are an error.
    pub length: Option<u64>,
    /// The content.
    pub bytes: ByteStream,
}

/// The port to the files in a sandbox, with the permissions of its user.
///
/// All operations fail with [`OperationError::Missing`] and [`OperationError::Forbidden`] as the kernel reports it.
/// Writing operations also fail with [`OperationError::DiskFull`]. A writing operation that fails leaves nothing
/// behind, even if its input broke off.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait FileMachine: Send + Sync {
    /// Lists a directory.
    async fn list(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entries, OperationError>;

    /// Returns the properties of a path. Links are not followed.
    async fn info(&self, browser: BrowserId, path: AbsolutePath) -> Result<Entry, OperationError>;

    /// Reads a regular file.
    async fn read(&self, browser: BrowserId, path: AbsolutePath) -> Result<FileContent, OperationError>;

    /// Reads a directory as a ZIP archive, which is created while it is read.
    ///
    /// # Errors
    /// [`OperationError::TooLarge`].
    async fn archive(&self, browser: BrowserId, path: AbsolutePath) -> Result<ByteStream, OperationError>;

    /// Writes a file, and replaces an existing one.
    async fn write(
        &self,
        browser: BrowserId,
        path: AbsolutePath,
        mode: FileMode,
        content: ByteStream,
    ) -> Result<(), OperationError>;

    /// Writes several files with their directories, all or none.
    async fn upload(&self, browser: BrowserId, files: Uploads) -> Result<(), OperationError>;

    /// Creates a directory and unpacks a ZIP archive into it, all of it or nothing.
    async fn unpack(&self, browser: BrowserId, path: AbsolutePath, archive: ByteStream) -> Result<(), OperationError>;

    /// Creates a directory with its parents. An existing directory is not an error.
    ///
    /// # Errors
    /// [`OperationError::Exists`] if the path exists and is not a directory.
    async fn make_directory(&self, browser: BrowserId, new: NewDirectory) -> Result<(), OperationError>;

    /// Deletes a directory with its content.
    async fn delete_directory(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError>;

    /// Deletes anything but a directory. Links are not followed.
    async fn delete_file(&self, browser: BrowserId, path: AbsolutePath) -> Result<(), OperationError>;

    /// Moves a file or a directory.
    ///
    /// # Errors
    /// [`OperationError::Exists`].
    async fn relocate(&self, browser: BrowserId, new: NewMove) -> Result<(), OperationError>;

    /// Sets the permissions and, as far as the user of the sandbox may, the owner.
    async fn set_permissions(&self, browser: BrowserId, new: NewPermissions) -> Result<(), OperationError>;

    /// Begins a watch of a directory.
    ///
    /// # Errors
    /// [`OperationError::Limit`].
    async fn watch(&self, browser: BrowserId, new: NewWatch) -> Result<WatchId, OperationError>;

    /// Returns the events since the beginning of the watch. A later reader replaces an earlier one.
    async fn changes(&self, browser: BrowserId, id: WatchId) -> Result<Changes, OperationError>;

    /// Ends a watch.
    async fn unwatch(&self, browser: BrowserId, id: WatchId) -> Result<(), OperationError>;
}
