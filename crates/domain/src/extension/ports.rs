//! What extensions need from outside.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Extension, Platform, StoreItem};
use crate::ids::{BrowserId, ExtensionId, ProjectId};
use crate::organization::LimitExceeded;
use crate::page::{Listed, Page};
use crate::session::IdOrName;
use crate::session_operation::{ByteStream, OperationError};
use crate::store_error::StoreError;

/// What became of an extension that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionStored {
    /// It is stored.
    Yes,
    /// Another extension of the project bears the name. Nothing was stored.
    NameTaken,
    /// The project has as many as it may have. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project is gone. Nothing was stored.
    ProjectGone,
}

/// What became of an extension that was to be deleted.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionDeleted {
    /// It is gone, its bytes not yet.
    Yes,
    /// A pool names it. Nothing was changed.
    InUse,
    /// There is no such extension.
    NotFound,
}

/// Which extensions a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionFilter {
    /// Exactly, without case and accents.
    pub name: Option<String>,
    /// Substring of the name, without case.
    pub query: Option<String>,
}

/// Where extensions are kept, without their bytes.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionRepository: Send + Sync {
    /// Stores a new extension, if the project has fewer than `most`.
    async fn create(&self, extension: &Extension, most: u32) -> Result<ExtensionStored, StoreError>;

    /// The project's extension.
    async fn find(&self, project: ProjectId, which: &IdOrName<ExtensionId>) -> Result<Option<Extension>, StoreError>;

    /// The project's extensions, newest first.
    async fn list(
        &self,
        project: ProjectId,
        filter: &ExtensionFilter,
        page: Page,
    ) -> Result<Listed<Extension>, StoreError>;

    /// Deletes it, unless a pool names it.
    async fn delete(&self, id: ExtensionId) -> Result<ExtensionDeleted, StoreError>;

    /// Notes that it was used; never backwards.
    async fn used(&self, id: ExtensionId, at: OffsetDateTime) -> Result<(), StoreError>;

    /// Those of `ids` that are stored.
    async fn known(&self, ids: &[ExtensionId]) -> Result<Vec<ExtensionId>, StoreError>;
}

/// No extension at all, for whoever embeds the sessions without them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExtensions;

#[async_trait]
impl ExtensionRepository for NoExtensions {
    async fn create(&self, _: &Extension, _: u32) -> Result<ExtensionStored, StoreError> {
        let limit = crate::organization::Limit::ProjectExtensions;
        Ok(ExtensionStored::LimitExceeded(LimitExceeded { limit, value: 0, used: 0, asked: 1 }))
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

/// An archive that may be unpacked and holds an extension.
pub struct InspectedArchive {
    /// How long it is.
    pub size_bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub checksum: String,
    /// Its bytes.
    pub content: ByteStream,
}

/// Looks through archives before anything is done with them.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionArchives: Send + Sync {
    /// Reads an archive to its end and looks through it.
    ///
    /// # Errors
    /// [`OperationError::Invalid`] in the field `field` for what is no archive of an extension, or one that nobody should unpack;
    /// [`OperationError::TooLarge`]; what is wrong with `content` itself.
    async fn inspect(&self, field: &str, content: ByteStream) -> Result<InspectedArchive, OperationError>;
}

/// Loads extensions into a browser that runs.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionMachine: Send + Sync {
    /// Brings an archive into the browser's sandbox, where it waits.
    async fn add(&self, browser: BrowserId, name: &str, content: ByteStream) -> Result<(), OperationError>;

    /// Starts Chromium anew with those that were added, in this order, after those that it has.
    ///
    /// # Errors
    /// [`OperationError::Invalid`] if Chromium does not take one of them; it runs without that one then. After any other failure the
    /// browser may be gone.
    async fn load(&self, browser: BrowserId, names: Vec<String>) -> Result<(), OperationError>;
}

/// Where a browser that is started gets its extensions.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ExtensionSource: Send + Sync {
    /// The archive; `None` if it is not kept any more. Asking counts as use.
    async fn archive(&self, id: ExtensionId) -> Result<Option<ByteStream>, OperationError>;
}

/// The public store of extensions.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait WebStore: Send + Sync {
    /// The extension as the store packs it for that platform.
    ///
    /// # Errors
    /// [`OperationError::Upstream`]; [`OperationError::TooLarge`].
    async fn fetch(&self, item: &StoreItem, platform: Platform) -> Result<ByteStream, OperationError>;
}
