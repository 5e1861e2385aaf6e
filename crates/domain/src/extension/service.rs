//! The use cases of extensions.

use std::sync::Arc;

use async_trait::async_trait;
use time::Duration;

use super::{
    Extension, ExtensionArchives, ExtensionDeleted, ExtensionFilter, ExtensionMachine, ExtensionRepository,
    ExtensionSource, ExtensionStored, InspectedArchive, MAX_LOADED_AT_ONCE, Platform, StoreItem, WebStore,
};
use crate::access::Scope;
use crate::blob::{BlobError, BlobStore};
use crate::clock::{Clock, IdSource};
use crate::engine::Capability;
use crate::error::{InUse, NameTaken, NotFound, UseCaseError};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue};
use crate::ids::{ExtensionId, ProjectId};
use crate::name::SlugName;
use crate::page::{Listed, Page};
use crate::permission::{Kind, Verb};
use crate::reference::Reference;
use crate::session::{Connections, IdOrName, Session};
use crate::session_operation::{ByteStream, OperationError, SessionOperations};
use crate::store_error::StoreError;

/// The error of a use case of extensions.
pub type ExtensionError = UseCaseError<BlobError>;

/// The dependencies of the use cases of extensions.
#[derive(Clone)]
pub struct ExtensionDeps {
    /// The repository of extensions.
    pub extensions: Arc<dyn ExtensionRepository>,
    /// The blob store of archives.
    pub blobs: Arc<dyn BlobStore>,
    /// Inspects uploaded archives.
    pub archives: Arc<dyn ExtensionArchives>,
    /// Loads extensions into sessions.
    pub machine: Arc<dyn ExtensionMachine>,
    /// The public web store.
    pub web_store: Arc<dyn WebStore>,
    /// The open connections of sessions.
    pub connections: Arc<dyn Connections>,
    /// The begin of operations inside sessions.
    pub operations: SessionOperations,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The maximum number of extensions of a project.
    pub max: u32,
}

/// The use cases of extensions.
#[derive(Clone)]
pub struct Extensions {
    deps: ExtensionDeps,
}

/// An extension to store.
pub struct Upload {
    /// The name in the project.
    pub name: Option<String>,
    /// The archive.
    pub content: InspectedArchive,
}

/// The minimum age of a blob without a row that is deleted: the row of a newer blob may be about to be stored.
const ORPHANED: Duration = Duration::hours(1);

impl Extensions {
    /// The default maximum number of extensions of a project.
    pub const DEFAULT_MAX: u32 = 500;

    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: ExtensionDeps) -> Self {
        Self { deps }
    }

    /// Stores a new extension.
    ///
    /// # Errors
    /// See [`ExtensionError`]; then nothing is stored, unless the store failed.
    pub async fn upload(&self, scope: &Scope, upload: Upload) -> Result<Extension, ExtensionError> {
        scope.writable()?;
        let mut fields = Fields::new();
        let name = fields.take_optional("name", upload.name.as_deref(), extension_name);
        fields.finish()?;
        if let Some(name) = &name
            && self.find(scope.project_id(), name.as_str()).await?.is_some()
        {
            return Err(name_taken(name).into());
        }
        let InspectedArchive { size_bytes, checksum, content } = upload.content;
        let extension = Extension {
            id: ExtensionId::mint(self.deps.ids.as_ref()),
            project: scope.project_id(),
            name,
            size_bytes,
            checksum,
            created_at: self.deps.clock.now(),
            last_used_at: None,
        };
        // The blob is stored first, so that every row has its blob.
        let key = Extension::blob(extension.id);
        self.deps.blobs.put(&key, content).await?;
        let stored = self.deps.extensions.create(&extension, self.deps.max).await;
        if !matches!(stored, Ok(ExtensionStored::Yes) | Err(_)) {
            self.deps.blobs.delete(&key).await?;
        }
        // After an error it is unknown whether the row exists; `clear_orphans` deletes the blob if it does not.
        match (stored?, &extension.name) {
            (ExtensionStored::Yes, _) => Ok(extension),
            (ExtensionStored::NameTaken, Some(name)) => Err(name_taken(name).into()),
            (ExtensionStored::NameTaken, None) => unreachable!("an extension without a name takes none"),
            (ExtensionStored::LimitExceeded(limit), _) => Err(limit.into()),
            (ExtensionStored::ProjectGone, _) => Err(ExtensionError::ProjectDeleted),
        }
    }

    async fn find(&self, project: ProjectId, which: &str) -> Result<Option<Extension>, StoreError> {
        self.deps.extensions.find(project, &IdOrName::parse(which)).await
    }

    /// Returns the project's extension.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Extension, ExtensionError> {
        let found = self.find(scope.project_id(), which).await?;
        found.ok_or_else(|| NotFound::new("extension", which).into())
    }

    /// Returns the project's extensions, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: &ExtensionFilter,
        page: Page,
    ) -> Result<Listed<Extension>, StoreError> {
        self.deps.extensions.list(scope.project_id(), filter, page).await
    }

    /// Returns the extension and its archive, exactly as it was uploaded.
    ///
    /// # Errors
    /// See [`ExtensionError`].
    pub async fn download(&self, scope: &Scope, which: &str) -> Result<(Extension, ByteStream), ExtensionError> {
        let extension = self.get(scope, which).await?;
        let content = self.deps.blobs.get(&Extension::blob(extension.id)).await?;
        // The extension was deleted between the two reads.
        Ok((extension, content.ok_or_else(|| NotFound::new("extension", which))?))
    }

    /// Deletes an extension that no pool uses. Sessions that have loaded it are not affected.
    ///
    /// # Errors
    /// See [`ExtensionError`].
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), ExtensionError> {
        let extension = self.get(scope, which).await?;
        match self.deps.extensions.delete(extension.id).await? {
            ExtensionDeleted::Yes => Ok(self.deps.blobs.delete(&Extension::blob(extension.id)).await?),
            ExtensionDeleted::InUse => {
                let usage = "loaded by a browser pool; take it out of the pool first";
                Err(InUse { kind: "extension", which: which.to_owned(), usage }.into())
            }
            ExtensionDeleted::NotFound => Err(NotFound::new("extension", which).into()),
        }
    }

    /// Loads inspected archives into a session. Chromium restarts, which ends the open connections of the session. All
    /// archives are in the sandbox before the restart.
    ///
    /// # Errors
    /// See [`ExtensionError`].
    pub async fn load(&self, session: &Session, wishes: Vec<(String, InspectedArchive)>) -> Result<(), ExtensionError> {
        let names: Vec<String> = wishes.iter().map(|(name, _)| name.clone()).collect();
        load_names(&names)?;
        let entered = self.deps.operations.begin(session, Capability::Extensions)?;
        for (name, archive) in wishes {
            self.deps.machine.add(entered.browser, &name, archive.content).await?;
        }
        self.deps.connections.restarted(session.id);
        let loaded = self.deps.machine.load(entered.browser, names).await;
        // Connections that opened meanwhile ended with the old Chromium process, and are notified too.
        self.deps.connections.restarted(session.id);
        Ok(loaded?)
    }

    /// Checks that archives may be loaded together under these names, before any archive is read.
    ///
    /// # Errors
    /// Returns every name that breaks a rule.
    pub fn check_names(&self, names: &[String]) -> Result<(), InvalidInput> {
        load_names(names)
    }

    /// Inspects one archive that is to be stored or loaded.
    ///
    /// # Errors
    /// See [`ExtensionArchives::inspect`].
    pub async fn inspect(&self, field: &str, content: ByteStream) -> Result<InspectedArchive, OperationError> {
        self.deps.archives.inspect(field, content).await
    }

    /// Returns the ZIP archive of an extension in the public web store.
    ///
    /// # Errors
    /// See [`ExtensionError`].
    pub async fn from_web_store(&self, url: Option<&str>, os: Option<&str>) -> Result<ByteStream, ExtensionError> {
        let mut fields = Fields::new();
        let item = fields.take_required("url", url, StoreItem::parse);
        let platform = fields.take_optional("os", os, Platform::parse).unwrap_or_default();
        let item = fields.finish_with(|| item)?;
        Ok(self.deps.web_store.fetch(&item, platform).await?)
    }

    /// Deletes blobs without a row: a server ended between storing the blob and storing the row of an extension.
    ///
    /// # Errors
    /// See [`ExtensionError`].
    pub async fn clear_orphans(&self) -> Result<(), ExtensionError> {
        let before = self.deps.clock.now() - ORPHANED;
        let mut old = Vec::new();
        for (key, since) in self.deps.blobs.list(Extension::BLOBS).await? {
            let id = key.strip_prefix(Extension::BLOBS).and_then(|id| id.parse::<ExtensionId>().ok());
            old.extend(id.filter(|_| since < before));
        }
        for some in old.chunks(1000) {
            let known = self.deps.extensions.known(some).await?;
            for id in some.iter().filter(|id| !known.contains(id)) {
                self.deps.blobs.delete(&Extension::blob(*id)).await?;
            }
        }
        Ok(())
    }
}

fn name_taken(name: &SlugName) -> NameTaken {
    NameTaken::new("an extension", name.as_str())
}

/// Parses the name of an extension to store.
fn extension_name(text: &str) -> Result<SlugName, InvalidValue> {
    if text.eq_ignore_ascii_case("from_chrome_store") {
        return Err(InvalidValue::new(FieldCode::NotAllowed, "is the name of an operation"));
    }
    SlugName::parse(text)
}

/// Checks that extensions may be loaded together under these names.
fn load_names(names: &[String]) -> Result<(), InvalidInput> {
    let mut fields = Fields::new();
    match names.len() {
        0 => fields.refuse("extensions", InvalidValue::new(FieldCode::Required, "needs at least one extension")),
        1..=MAX_LOADED_AT_ONCE => {}
        _ => {
            let message = format!("must have at most {MAX_LOADED_AT_ONCE}");
            fields.refuse("extensions", InvalidValue::new(FieldCode::TooMany, message));
        }
    }
    for (n, name) in names.iter().enumerate().take(MAX_LOADED_AT_ONCE) {
        let field = format!("extensions[{n}].name");
        fields.take(&field, SlugName::parse(name));
        if names[..n].contains(name) {
            fields.refuse(&field, InvalidValue::new(FieldCode::NotAllowed, "is given twice"));
        }
    }
    fields.finish()
}

/// Returns the extensions of the project that are referred to, in order and without duplicates.
///
/// # Errors
/// `reference_not_found` for each extension that does not exist, `insufficient_scope` for each that the key may not use;
/// the error of the store.
pub(crate) async fn resolve<E: From<InvalidInput> + From<StoreError>>(
    extensions: &dyn ExtensionRepository,
    scope: &Scope,
    requested: &[Reference],
) -> Result<Vec<ExtensionId>, E> {
    let mut fields = Fields::new();
    let mut found = Vec::new();
    for (n, one) in requested.iter().enumerate() {
        let which = match (&one.id, &one.name) {
            (Some(id), _) => id.parse().ok().map(IdOrName::Id),
            // No extension has a name that is not valid.
            (None, Some(name)) => SlugName::parse(name).ok().map(|_| IdOrName::Name(name.clone())),
            (None, None) => None,
        };
        let extension = match which {
            Some(which) => extensions.find(scope.project_id(), &which).await?,
            None => None,
        };
        match extension {
            Some(extension) if found.contains(&extension.id) => {}
            Some(extension) => {
                let allowed = scope.allow(Verb::Use, scope.target(Kind::Extensions, extension.id.ulid()));
                found.extend(fields.take(&format!("extensions[{n}]"), allowed.map(|()| extension.id)));
            }
            None => {
                let shown: String = one.parse().unwrap_or_default().chars().take(255).collect();
                let message = format!("there is no extension {shown}");
                fields.refuse(&format!("extensions[{n}]"), InvalidValue::new(FieldCode::ReferenceNotFound, message));
            }
        }
    }
    fields.finish()?;
    Ok(found)
}

/// The stored extensions, as the source for browsers that start with them.
#[derive(Clone)]
pub struct ExtensionFiles {
    extensions: Arc<dyn ExtensionRepository>,
    blobs: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
}

impl ExtensionFiles {
    /// Creates the source.
    #[must_use]
    pub fn new(extensions: Arc<dyn ExtensionRepository>, blobs: Arc<dyn BlobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { extensions, blobs, clock }
    }
}

#[async_trait]
impl ExtensionSource for ExtensionFiles {
    async fn archive(&self, id: ExtensionId) -> Result<Option<ByteStream>, OperationError> {
        let failed =
            |error: &dyn std::fmt::Display| OperationError::Failed(format!("an extension cannot be read: {error}"));
        let content = match self.blobs.get(&Extension::blob(id)).await {
            Ok(content) => content,
            Err(error @ BlobError::Unavailable(_)) => return Err(error.of_reading("an extension cannot be read")),
            Err(error) => return Err(failed(&error)),
        };
        let Some(content) = content else { return Ok(None) };
        self.extensions.used(id, self.clock.now()).await.map_err(|error| failed(&error))?;
        Ok(Some(content))
    }
}
