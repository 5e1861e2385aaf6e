//! Extensions, without their bytes.

use async_trait::async_trait;
use casement_domain::extension::{Extension, ExtensionDeleted, ExtensionFilter, ExtensionRepository, ExtensionStored};
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::page::{Listed, Page};
use casement_domain::session::IdOrName;
use casement_domain::{ExtensionId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{contains, count, slug, ulid, uuid};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::schema::{browser_pools, extensions, projects};

/// What keeps names unique.
const NAME_KEY: &str = "extensions_name_key";

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = extensions, check_for_backend(diesel::pg::Pg))]
struct ExtensionRow {
    id: Uuid,
    project_id: Uuid,
    name: Option<String>,
    size_bytes: i64,
    checksum: String,
    created_at: OffsetDateTime,
    last_used_at: Option<OffsetDateTime>,
}

impl From<&Extension> for ExtensionRow {
    fn from(extension: &Extension) -> Self {
        Self {
            id: uuid(extension.id.ulid()),
            project_id: uuid(extension.project.ulid()),
            name: extension.name.as_ref().map(|name| name.as_str().to_owned()),
            size_bytes: i64::try_from(extension.size_bytes).unwrap_or(i64::MAX),
            checksum: extension.checksum.clone(),
            created_at: extension.created_at,
            last_used_at: extension.last_used_at,
        }
    }
}

impl TryFrom<ExtensionRow> for Extension {
    type Error = BadRow;

    fn try_from(row: ExtensionRow) -> Result<Self, BadRow> {
        Ok(Self {
            id: ExtensionId::from_ulid(ulid(row.id)),
            project: ProjectId::from_ulid(ulid(row.project_id)),
            name: row.name.map(|name| slug("extensions.name", &name)).transpose()?,
            size_bytes: u64::try_from(row.size_bytes).map_err(|_| BadRow::new("size_bytes", row.size_bytes))?,
            checksum: row.checksum,
            created_at: row.created_at,
            last_used_at: row.last_used_at,
        })
    }
}

/// Holds the extensions until the transaction ends, so that none is deleted meanwhile. `false` if one is not there.
pub(crate) async fn hold(connection: &mut AsyncPgConnection, ids: &[ExtensionId]) -> Result<bool, CallError> {
    if ids.is_empty() {
        return Ok(true);
    }
    let wanted: Vec<Uuid> = ids.iter().map(|id| uuid(id.ulid())).collect();
    let rows = extensions::table.filter(extensions::id.eq_any(&wanted)).order(extensions::id);
    let found: Vec<Uuid> = rows.select(extensions::id).for_share().load(connection).await?;
    Ok(wanted.iter().all(|id| found.contains(id)))
}

/// Extensions in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgExtensions {
    database: Database,
}

impl PgExtensions {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ExtensionRepository for PgExtensions {
    async fn create(&self, extension: &Extension, most: u32) -> Result<ExtensionStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let project = uuid(extension.project.ulid());
            // Held, so that two do not both take the last place, and the project is not deleted meanwhile.
            let owner = projects::table.find(project).filter(projects::deleted_at.is_null());
            let owner: Option<Uuid> =
                owner.select(projects::id).for_no_key_update().get_result(connection).await.optional()?;
            if owner.is_none() {
                return Ok(ExtensionStored::ProjectGone);
            }
            let used = extensions::table.filter(extensions::project_id.eq(project)).count();
            let used = count(used.get_result(connection).await?);
            if used >= most {
                let limit = LimitExceeded { limit: Limit::ProjectExtensions, value: most, used, requested: 1 };
                return Ok(ExtensionStored::LimitExceeded(limit));
            }
            let row = ExtensionRow::from(extension);
            diesel::insert_into(extensions::table).values(row).execute(connection).await?;
            Ok(ExtensionStored::Yes)
        };
        let name_taken = |error: CallError| {
            if error.violated() == Some(NAME_KEY) { Ok(ExtensionStored::NameTaken) } else { Err(error) }
        };
        self.database.transaction_or("extension.create", work, name_taken).await
    }

    async fn find(&self, project: ProjectId, which: &IdOrName<ExtensionId>) -> Result<Option<Extension>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = extensions::table.filter(extensions::project_id.eq(uuid(project.ulid())));
            let rows = rows.select(ExtensionRow::as_select());
            let row = match which {
                IdOrName::Id(id) => rows.filter(extensions::id.eq(uuid(id.ulid()))).get_result(connection).await,
                IdOrName::Name(name) => rows.filter(extensions::name.eq(name)).get_result(connection).await,
            };
            Ok(row.optional()?.map(Extension::try_from).transpose()?)
        };
        self.database.fetch("extension.find", work).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &ExtensionFilter,
        page: Page,
    ) -> Result<Listed<Extension>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = extensions::table.filter(extensions::project_id.eq(uuid(project.ulid()))).into_boxed();
            if let Some(name) = &filter.name {
                rows = rows.filter(extensions::name.eq(name));
            }
            if let Some(query) = &filter.query {
                rows = rows.filter(contains("extensions.name", query));
            }
            let rows = rows.order((extensions::created_at.desc(), extensions::id.desc()));
            let rows = rows.limit(limit).offset(offset).select(ExtensionRow::as_select()).load(connection).await?;
            Ok(page.cut(rows.into_iter().map(Extension::try_from).collect::<Result<Vec<_>, BadRow>>()?))
        };
        self.database.fetch("extension.list", work).await
    }

    async fn delete(&self, id: ExtensionId) -> Result<ExtensionDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = uuid(id.ulid());
            let row = extensions::table.find(id);
            // First the row, then the pools: one that is being stored with it has the row, and is seen afterwards.
            let held: Option<Uuid> = row.select(extensions::id).for_update().get_result(connection).await.optional()?;
            if held.is_none() {
                return Ok(ExtensionDeleted::NotFound);
            }
            let naming = browser_pools::table.filter(browser_pools::extension_ids.contains(vec![id]));
            let naming = naming.filter(browser_pools::deleted_at.is_null());
            if diesel::select(diesel::dsl::exists(naming)).get_result(connection).await? {
                return Ok(ExtensionDeleted::InUse);
            }
            diesel::delete(row).execute(connection).await?;
            Ok(ExtensionDeleted::Yes)
        };
        self.database.transaction_or("extension.delete", work, Err).await
    }

    async fn used(&self, id: ExtensionId, at: OffsetDateTime) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = extensions::table.find(uuid(id.ulid()));
            let row = row.filter(extensions::last_used_at.is_null().or(extensions::last_used_at.lt(at)));
            diesel::update(row).set(extensions::last_used_at.eq(at)).execute(connection).await?;
            Ok(())
        };
        self.database.call("extension.used", work).await
    }

    async fn known(&self, ids: &[ExtensionId]) -> Result<Vec<ExtensionId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let wanted: Vec<Uuid> = ids.iter().map(|id| uuid(id.ulid())).collect();
            let rows = extensions::table.filter(extensions::id.eq_any(wanted)).select(extensions::id);
            let found: Vec<Uuid> = rows.load(connection).await?;
            Ok(found.into_iter().map(|id| ExtensionId::from_ulid(ulid(id))).collect())
        };
        self.database.fetch("extension.known", work).await
    }
}
