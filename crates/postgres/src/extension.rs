//! Extensions, without their stored bytes.

use async_trait::async_trait;
use casement_domain::extension::{Extension, ExtensionDeleted, ExtensionFilter, ExtensionRepository, ExtensionStored};
use casement_domain::name::SlugName;
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::session::IdOrName;
use casement_domain::{ExtensionId, ProjectId, StoreError};
use diesel::dsl::exists;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::{Column, Stored, columns, row};
use crate::database::repository;
use crate::error::{CallError, if_violated};
use crate::project;
use crate::query::{contains, counted, is_there};
use crate::schema::{browser_pools, extensions};

/// The constraint that keeps names unique.
const NAME_KEY: &str = "extensions_name_key";

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = extensions, check_for_backend(diesel::pg::Pg))]
    struct ExtensionRow for Extension {
        id: Column<ExtensionId>,
        project: Column<ProjectId> as project_id,
        name: Option<Column<SlugName>>,
        size_bytes: Column<u64>,
        checksum: String,
        created_at: OffsetDateTime,
        last_used_at: Option<OffsetDateTime>,
    }
}

/// Locks the extensions until the transaction ends, so that none is deleted meanwhile. `false` if one does not exist.
pub(crate) async fn lock(connection: &mut AsyncPgConnection, ids: &[ExtensionId]) -> Result<bool, CallError> {
    if ids.is_empty() {
        return Ok(true);
    }
    let wanted = columns(ids);
    let rows = extensions::table.filter(extensions::id.eq_any(&wanted)).order(extensions::id);
    let found: Vec<Column<ExtensionId>> = rows.select(extensions::id).for_share().load(connection).await?;
    Ok(wanted.iter().all(|id| found.contains(id)))
}

repository! {
    /// Extensions in PostgreSQL.
    PgExtensions
}

#[async_trait]
impl ExtensionRepository for PgExtensions {
    async fn create(&self, extension: &Extension, max: u32) -> Result<ExtensionStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            if !project::lock(connection, extension.project).await? {
                return Ok(ExtensionStored::ProjectGone);
            }
            let used = extensions::table.filter(extensions::project_id.eq(Column(extension.project))).count();
            if let Err(refused) = admit_one(Limit::ProjectExtensions, max, counted(connection, used).await?) {
                return Ok(ExtensionStored::LimitExceeded(refused));
            }
            let row = ExtensionRow::of(extension);
            diesel::insert_into(extensions::table).values(row).execute(connection).await?;
            Ok(ExtensionStored::Yes)
        };
        let name_taken = if_violated(&[NAME_KEY], ExtensionStored::NameTaken);
        self.database.transaction_or("extension.create", work, name_taken).await
    }

    async fn find(&self, project: ProjectId, which: &IdOrName<ExtensionId>) -> Result<Option<Extension>, StoreError> {
        let mut rows = extensions::table.filter(extensions::project_id.eq(Column(project))).into_boxed();
        rows = match which {
            IdOrName::Id(id) => rows.filter(extensions::id.eq(Column(*id))),
            IdOrName::Name(name) => rows.filter(extensions::name.eq(name)),
        };
        self.database.find("extension.find", rows.select(ExtensionRow::as_select())).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &ExtensionFilter,
        page: Page,
    ) -> Result<Listed<Extension>, StoreError> {
        let mut rows = extensions::table.filter(extensions::project_id.eq(Column(project))).into_boxed();
        if let Some(name) = &filter.name {
            rows = rows.filter(extensions::name.eq(name));
        }
        if let Some(query) = &filter.query {
            rows = rows.filter(contains("extensions.name", query));
        }
        let rows = rows.order((extensions::created_at.desc(), extensions::id.desc()));
        self.database.page("extension.list", page, rows.select(ExtensionRow::as_select())).await
    }

    async fn delete(&self, id: ExtensionId) -> Result<ExtensionDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = extensions::table.find(Column(id));
            // Locks the row before it looks for pools: storing a pool locks this row too, so that pool is visible
            // afterwards.
            if !is_there(connection, row.select(extensions::id).for_update()).await? {
                return Ok(ExtensionDeleted::NotFound);
            }
            let pools = browser_pools::table.filter(browser_pools::extension_ids.contains(vec![Column(id)]));
            let pools = pools.filter(browser_pools::deleted_at.is_null());
            if diesel::select(exists(pools)).get_result(connection).await? {
                return Ok(ExtensionDeleted::InUse);
            }
            diesel::delete(row).execute(connection).await?;
            Ok(ExtensionDeleted::Yes)
        };
        self.database.transaction("extension.delete", work).await
    }

    async fn used(&self, id: ExtensionId, at: OffsetDateTime) -> Result<(), StoreError> {
        let row = extensions::table.find(Column(id));
        let row = row.filter(extensions::last_used_at.is_null().or(extensions::last_used_at.lt(at)));
        self.database.change("extension.used", diesel::update(row).set(extensions::last_used_at.eq(at))).await
    }

    async fn known(&self, ids: &[ExtensionId]) -> Result<Vec<ExtensionId>, StoreError> {
        let rows = extensions::table.filter(extensions::id.eq_any(columns(ids))).select(extensions::id);
        self.database.ids("extension.known", rows).await
    }
}
