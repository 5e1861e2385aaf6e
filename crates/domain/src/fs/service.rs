//! The use cases of files.

use std::sync::Arc;

use super::model::{deletable, path_and_mode, path_of, unpacked, uploaded};
use super::{
    AbsolutePath, Changes, Entries, Entry, FileContent, FileMachine, FileMode, NewDirectory, NewMove, NewPermissions,
    NewWatch, Uploads, WatchId,
};
use crate::session::{Activity, ActivityGuard, Session};
use crate::session_operation::{ByteStream, OperationError, enter};

/// The use cases of files.
#[derive(Clone)]
pub struct Files {
    machine: Arc<dyn FileMachine>,
    activity: Activity,
}

/// What stands in a directory.
pub struct Directory {
    /// Which.
    pub path: AbsolutePath,
    /// What.
    pub entries: Entries,
    /// To be held while they are read.
    pub guard: ActivityGuard,
}

/// Bytes of a file or an archive.
pub struct Archive {
    /// Of what.
    pub path: AbsolutePath,
    /// How many bytes, where that is known.
    pub length: Option<u64>,
    /// What.
    pub bytes: ByteStream,
    /// To be held while they are read.
    pub guard: ActivityGuard,
}

impl Files {
    /// Of the machines that `machine` reaches.
    #[must_use]
    pub fn new(machine: Arc<dyn FileMachine>, activity: Activity) -> Self {
        Self { machine, activity }
    }

    /// What stands in a directory, hidden files too.
    ///
    /// # Errors
    /// See [`AbsolutePath::parse`] and [`FileMachine::list`]; the same holds for all that follow.
    pub async fn list(&self, session: &Session, path: Option<String>) -> Result<Directory, OperationError> {
        let path = path_of(path)?;
        let entered = enter(session, &self.activity)?;
        let entries = self.machine.list(entered.browser, path.clone()).await?;
        Ok(Directory { path, entries, guard: entered.guard })
    }

    /// What is at a path.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn info(&self, session: &Session, path: Option<String>) -> Result<(AbsolutePath, Entry), OperationError> {
        let path = path_of(path)?;
        let entered = enter(session, &self.activity)?;
        let entry = self.machine.info(entered.browser, path.clone()).await?;
        Ok((path, entry))
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn read(&self, session: &Session, path: Option<String>) -> Result<Archive, OperationError> {
        let path = path_of(path)?;
        let entered = enter(session, &self.activity)?;
        let FileContent { length, bytes } = self.machine.read(entered.browser, path.clone()).await?;
        Ok(Archive { path, length, bytes, guard: entered.guard })
    }

    /// A directory as a ZIP archive.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn archive(&self, session: &Session, path: Option<String>) -> Result<Archive, OperationError> {
        let path = path_of(path)?;
        let entered = enter(session, &self.activity)?;
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
        let entered = enter(session, &self.activity)?;
        self.machine.write(entered.browser, path, mode, content).await
    }

    /// The paths of an upload, 1 to 100.
    ///
    /// # Errors
    /// All that are refused.
    pub fn upload_paths(paths: Vec<String>) -> Result<Vec<AbsolutePath>, OperationError> {
        Ok(uploaded(paths)?)
    }

    /// Writes several files.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn upload(&self, session: &Session, files: Uploads) -> Result<(), OperationError> {
        let entered = enter(session, &self.activity)?;
        self.machine.upload(entered.browser, files).await
    }

    /// Where an archive is unpacked.
    ///
    /// # Errors
    /// What is refused or absent, the archive too.
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
        let entered = enter(session, &self.activity)?;
        self.machine.unpack(entered.browser, path, archive).await
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn make_directory(&self, session: &Session, new: NewDirectory) -> Result<(), OperationError> {
        let entered = enter(session, &self.activity)?;
        self.machine.make_directory(entered.browser, new).await
    }

    /// Deletes a directory, never the root.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn delete_directory(&self, session: &Session, path: Option<String>) -> Result<(), OperationError> {
        let path = deletable(path)?;
        let entered = enter(session, &self.activity)?;
        self.machine.delete_directory(entered.browser, path).await
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn delete_file(&self, session: &Session, path: Option<String>) -> Result<(), OperationError> {
        let path = path_of(path)?;
        let entered = enter(session, &self.activity)?;
        self.machine.delete_file(entered.browser, path).await
    }

    /// Moves something.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn relocate(&self, session: &Session, new: NewMove) -> Result<(), OperationError> {
        let entered = enter(session, &self.activity)?;
        self.machine.relocate(entered.browser, new).await
    }

    /// Sets permissions.
    ///
    /// # Errors
    /// See [`list`](Self::list).
    pub async fn set_permissions(&self, session: &Session, new: NewPermissions) -> Result<(), OperationError> {
        let entered = enter(session, &self.activity)?;
        self.machine.set_permissions(entered.browser, new).await
    }

    /// Begins to watch a directory.
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
        let entered = enter(session, &self.activity)?;
        self.machine.watch(entered.browser, NewWatch { path, recursive }).await
    }

    /// What happens in a watched directory. The guard is to be held while it is read.
    ///
    /// # Errors
    /// [`OperationError::Missing`] for a watch that is not there, or not any more.
    pub async fn changes(&self, session: &Session, id: &str) -> Result<(Changes, ActivityGuard), OperationError> {
        let id = WatchId::parse(id)?;
        let entered = enter(session, &self.activity)?;
        let changes = self.machine.changes(entered.browser, id).await?;
        Ok((changes, entered.guard))
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// As [`changes`](Self::changes).
    pub async fn unwatch(&self, session: &Session, id: &str) -> Result<(), OperationError> {
        let id = WatchId::parse(id)?;
        let entered = enter(session, &self.activity)?;
        self.machine.unwatch(entered.browser, id).await
    }
}
