//! The use cases of files.

use std::sync::Arc;

use super::model::{deletable, path_and_mode, path_of, unpacked, uploaded};
use super::{
    AbsolutePath, Changes, Entries, Entry, FileContent, FileMachine, FileMode, NewDirectory, NewMove, NewPermissions,
    NewWatch, Uploads, WatchId,
};
use crate::engine::Capability;
use crate::session::{ActivityGuard, Session};
use crate::session_operation::{ByteStream, OperationError, SessionOperations};

/// The use cases of files.
#[derive(Clone)]
pub struct Files {
    machine: Arc<dyn FileMachine>,
    operations: SessionOperations,
}

/// The content of a directory.
pub struct Directory {
    /// The path of the directory.
    pub path: AbsolutePath,
    /// The entries.
    pub entries: Entries,
    /// Keeps the session in use; must be held while the content is read.
    pub guard: ActivityGuard,
}

/// The bytes of a file, or of the archive of a directory.
pub struct Archive {
    /// The path of the file or directory.
    pub path: AbsolutePath,
    /// The number of bytes, if it is known.
    pub length: Option<u64>,
    /// The bytes.
    pub bytes: ByteStream,
    /// Keeps the session in use; must be held while the content is read.
    pub guard: ActivityGuard,
}

impl Files {
    /// Creates the use cases.
    #[must_use]
    pub fn new(machine: Arc<dyn FileMachine>, operations: SessionOperations) -> Self {
        Self { machine, operations }
    }

    /// Returns the entries of a directory, including hidden files.
    ///
    /// # Errors
    /// See [`AbsolutePath::parse`] and [`FileMachine`], as for all other operations.
    pub async fn list(&self, session: &Session, path: Option<String>) -> Result<Directory, OperationError> {
        let path = path_of(path)?;
        let entered = self.operations.begin(session, Capability::Downloads)?;
        let entries = self.machine.list(entered.browser, path.clone()).await?;
        Ok(Directory { path, entries, guard: entered.guard })
    }

    /// Returns the entry at a path.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn info(&self, session: &Session, path: Option<String>) -> Result<(AbsolutePath, Entry), OperationError> {
        let path = path_of(path)?;
        let entered = self.operations.begin(session, Capability::Downloads)?;
        let entry = self.machine.info(entered.browser, path.clone()).await?;
        Ok((path, entry))
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn read(&self, session: &Session, path: Option<String>) -> Result<Archive, OperationError> {
        let path = path_of(path)?;
        let entered = self.operations.begin(session, Capability::Downloads)?;
        let FileContent { length, bytes } = self.machine.read(entered.browser, path.clone()).await?;
        Ok(Archive { path, length, bytes, guard: entered.guard })
    }

    /// Returns a directory as a ZIP archive.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn archive(&self, session: &Session, path: Option<String>) -> Result<Archive, OperationError> {
        let path = path_of(path)?;
        let entered = self.operations.begin(session, Capability::Files)?;
        let bytes = self.machine.archive(entered.browser, path.clone()).await?;
        Ok(Archive { path, length: None, bytes, guard: entered.guard })
    }

    /// Writes a file; the mode is octal digits, default 644.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn write(
        &self,
        session: &Session,
        path: Option<String>,
        mode: Option<String>,
        content: ByteStream,
    ) -> Result<(), OperationError> {
        let (path, mode) = path_and_mode(path, mode, FileMode::FILE)?;
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.write(entered.browser, path, mode, content).await
    }

    /// Parses paths of an upload of 1 to 100 files, each with the number of its file, from 0.
    ///
    /// # Errors
    /// Returns all refused paths.
    pub fn upload_paths(paths: Vec<(usize, String)>) -> Result<Vec<(usize, AbsolutePath)>, OperationError> {
        Ok(uploaded(paths)?)
    }

    /// Writes several files.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn upload(&self, session: &Session, files: Uploads) -> Result<(), OperationError> {
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.upload(entered.browser, files).await
    }

    /// Parses the directory into which an archive is unpacked.
    ///
    /// # Errors
    /// Returns the fields that are refused or absent, including the archive.
    pub fn unpack_path(path: Option<String>, has_archive: bool) -> Result<AbsolutePath, OperationError> {
        Ok(unpacked(path, has_archive)?)
    }

    /// Unpacks an archive.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn unpack(
        &self,
        session: &Session,
        path: AbsolutePath,
        archive: ByteStream,
    ) -> Result<(), OperationError> {
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.unpack(entered.browser, path, archive).await
    }

    /// Creates a directory with its parents.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn make_directory(&self, session: &Session, new: NewDirectory) -> Result<(), OperationError> {
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.make_directory(entered.browser, new).await
    }

    /// Deletes a directory, never the root.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn delete_directory(&self, session: &Session, path: Option<String>) -> Result<(), OperationError> {
        let path = deletable(path)?;
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.delete_directory(entered.browser, path).await
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn delete_file(&self, session: &Session, path: Option<String>) -> Result<(), OperationError> {
        let path = path_of(path)?;
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.delete_file(entered.browser, path).await
    }

    /// Moves a file or a directory.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn relocate(&self, session: &Session, new: NewMove) -> Result<(), OperationError> {
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.relocate(entered.browser, new).await
    }

    /// Sets the permissions of a file or a directory.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn set_permissions(&self, session: &Session, new: NewPermissions) -> Result<(), OperationError> {
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.set_permissions(entered.browser, new).await
    }

    /// Begins a watch of a directory.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn watch(
        &self,
        session: &Session,
        path: Option<String>,
        recursive: bool,
    ) -> Result<WatchId, OperationError> {
        let path = path_of(path)?;
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.watch(entered.browser, NewWatch { path, recursive }).await
    }

    /// Returns the changes in a watched directory. The guard must be held while they are read.
    ///
    /// # Errors
    /// [`OperationError::Missing`] for a watch that does not exist any more, or never did.
    pub async fn changes(&self, session: &Session, id: &str) -> Result<(Changes, ActivityGuard), OperationError> {
        let id = WatchId::parse(id)?;
        let entered = self.operations.begin(session, Capability::Files)?;
        let changes = self.machine.changes(entered.browser, id).await?;
        Ok((changes, entered.guard))
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// As [`changes`](Self::changes).
    pub async fn unwatch(&self, session: &Session, id: &str) -> Result<(), OperationError> {
        let id = WatchId::parse(id)?;
        let entered = self.operations.begin(session, Capability::Files)?;
        self.machine.unwatch(entered.browser, id).await
    }
}
