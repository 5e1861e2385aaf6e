//! The ports of extensions: repository, inspector, loader, source and web store.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Extension, Platform, StoreItem};
use crate::ids::{BrowserId, ExtensionId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::session::IdOrName;
use crate::session_operation::{ByteStream, OperationError};
use crate::store_error::StoreError;

/// The result of storing an extension.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionStored {
    /// Stored.
    Yes,
    /// Another extension of the project has the name; nothing was stored.
    NameTaken,
    /// The project has the maximum number of extensions; nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted; nothing was stored.
    ProjectGone,
}

/// The result of deleting an extension.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionDeleted {
    /// Deleted; the archive is deleted later.
    Yes,
    /// A pool uses it; nothing was changed.
    InUse,
    /// There is no such extension.
    NotFound,
}

/// The filter of a list of extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionFilter {
    /// The exact name, regardless of case and accents.
    pub name: Option<String>,
    /// A substring of the name, in any case.
    pub query: Option<String>,
}

/// The port to the stored extensions, without their archives.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionRepository: Send + Sync {
    /// Stores a new extension if the project has fewer than `max`.
    async fn create(&self, extension: &Extension, max: u32) -> Result<ExtensionStored, StoreError>;

    /// Returns the project's extension.
    async fn find(&self, project: ProjectId, which: &IdOrName<ExtensionId>) -> Result<Option<Extension>, StoreError>;

    /// Returns the project's extensions, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &ExtensionFilter,
        page: Page,
    ) -> Result<Listed<Extension>, StoreError>;

    /// Deletes the extension unless a pool uses it.
    async fn delete(&self, id: ExtensionId) -> Result<ExtensionDeleted, StoreError>;

    /// Stores the time of the last use, unless a later one is stored.
    async fn used(&self, id: ExtensionId, at: OffsetDateTime) -> Result<(), StoreError>;

    /// Returns the ids that are stored.
    async fn known(&self, ids: &[ExtensionId]) -> Result<Vec<ExtensionId>, StoreError>;
}

/// A repository without extensions, for embedders that do not use them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExtensions;

#[async_trait]
impl ExtensionRepository for NoExtensions {
    async fn create(&self, _: &Extension, _: u32) -> Result<ExtensionStored, StoreError> {
        let limit = crate::organization::Limit::ProjectExtensions;
        Ok(ExtensionStored::LimitExceeded(LimitExceeded { limit, value: 0, used: 0, requested: 1 }))
    }

    async fn find(&self, _: ProjectId, _: &IdOrName<ExtensionId>) -> Result<Option<Extension>, StoreError> {
        Ok(None)
    }

    async fn list(&self, _: ProjectId, _: &ExtensionFilter, page: Page) -> Result<Listed<Extension>, StoreError> {
        Ok(page.cut(Vec::new()))
    }

    async fn delete(&self, _: ExtensionId) -> Result<ExtensionDeleted, StoreError> {
        Ok(ExtensionDeleted::NotFound)
    }

    async fn used(&self, _: ExtensionId, _: OffsetDateTime) -> Result<(), StoreError> {
        Ok(())
    }

    async fn known(&self, _: &[ExtensionId]) -> Result<Vec<ExtensionId>, StoreError> {
        Ok(Vec::new())
    }
}

/// A checked archive that can be unpacked and holds an extension.
pub struct InspectedArchive {
    /// The size in bytes.
    pub size_bytes: u64,
    /// The SHA-256 hash in hexadecimal.
    pub checksum: String,
    /// The content.
    pub content: ByteStream,
}

/// Inspects archives before they are used.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionArchives: Send + Sync {
    /// Reads and inspects a whole archive.
    ///
    /// # Errors
    /// [`OperationError::Invalid`] in the field `field` if the content is not an archive of an extension, or an unsafe
    /// one; [`OperationError::TooLarge`]; the error of `content`.
    async fn inspect(&self, field: &str, content: ByteStream) -> Result<InspectedArchive, OperationError>;
}

/// Loads extensions into running browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionMachine: Send + Sync {
    /// Copies an archive into the browser's sandbox for a later restart.
    async fn add(&self, browser: BrowserId, name: &str, content: ByteStream) -> Result<(), OperationError>;

    /// Restarts Chromium with its present extensions and the added ones, in this order.
    ///
    /// # Errors
    /// [`OperationError::Invalid`] if Chromium refuses an extension; Chromium then runs without it. After other errors
    /// the browser may have ended.
    async fn load(&self, browser: BrowserId, names: Vec<String>) -> Result<(), OperationError>;
}

/// The source of the extensions of a starting browser.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionSource: Send + Sync {
    /// Returns the archive; `None` if it was deleted. Counts as use of the extension.
    async fn archive(&self, id: ExtensionId) -> Result<Option<ByteStream>, OperationError>;
}

/// The public web store of extensions.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait WebStore: Send + Sync {
    /// Returns the extension as the store packs it for that platform.
    ///
    /// # Errors
    /// [`OperationError::Upstream`]; [`OperationError::TooLarge`].
    async fn fetch(&self, item: &StoreItem, platform: Platform) -> Result<ByteStream, OperationError>;
}
