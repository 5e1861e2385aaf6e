//! Profiles and their versions, without the stored bytes.

mod list;

use async_trait::async_trait;
use casement_domain::access::Scope;
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::profile::{
    LoadedProfile, Profile, ProfileDeleted, ProfileFilter, ProfileRenamed, ProfileRepository, ProfileStored,
    ProfileVersion, Saved, VersionStored,
};
use casement_domain::sealing::KeyId;
use casement_domain::session::IdOrName;
use casement_domain::{
    OrganizationId, PoolId, ProfileId, ProfileVersionId, ProjectId, SessionId, StoreError, name::SlugName,
};
use diesel::dsl::{Filter, IsNull, exists};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::column::{Column, Stored, columns, row};
use crate::database::repository;
use crate::error::{CallError, if_violated};
use crate::project;
use crate::query::{all, counted, is_there, window};
use crate::schema::{auth_connections, browser_pools, organizations, profile_versions, profiles, projects, sessions};
use crate::sealed::{head, under_other_key};
use list::ListProfiles;

/// The indexes that keep names unique.
const NAME_KEYS: [&str; 2] = ["profiles_name_key", "profiles_legacy_name_key"];
/// The largest offset of a page that is read as a short read: PostgreSQL walks over all skipped rows.
const SHORT_WAY: u64 = 1000;
/// The maximum number of versions that [`ProfileRepository::spent`] returns at once.
const SOME: i64 = 200;
/// Versions to delete: all of deleted profiles; those replaced before `$1` by a session that had loaded them; those
/// replaced by a session that had not, except the newest `$2` of each profile.
const SPENT: &str = "
    SELECT v.id AS version, v.profile_id AS profile
    FROM (
        SELECT *, row_number() OVER (PARTITION BY profile_id, replaced_unseen ORDER BY replaced_at DESC, id DESC) AS age
        FROM profile_versions WHERE replaced_at IS NOT NULL
    ) v
    WHERE (NOT v.replaced_unseen AND v.replaced_at < $1) OR (v.replaced_unseen AND v.age > $2)
        OR EXISTS (SELECT 1 FROM profiles p WHERE p.id = v.profile_id AND p.deleted_at IS NOT NULL)
    ORDER BY v.id LIMIT $3";

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = profiles, check_for_backend(diesel::pg::Pg))]
    struct ProfileRow for Profile {
        id: Column<ProfileId>,
        organization: Column<OrganizationId> as organization_id,
        project: Option<Column<ProjectId>> as project_id,
        name: Option<Column<SlugName>>,
        version: Option<Column<ProfileVersionId>> as version_id,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
        last_used_at: Option<OffsetDateTime>,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = profile_versions, check_for_backend(diesel::pg::Pg))]
    struct VersionRow for ProfileVersion {
        id: Column<ProfileVersionId>,
        profile: Column<ProfileId> as profile_id,
        session: Column<SessionId> as session_id,
        based_on: Option<Column<ProfileVersionId>>,
        key: Vec<u8> as sealed_key,
        created_at: OffsetDateTime,
    }
}

/// The profiles that are not deleted.
fn stored() -> Filter<profiles::table, IsNull<profiles::deleted_at>> {
    profiles::table.filter(profiles::deleted_at.is_null())
}

/// Locks the profile until the transaction ends, so that it is not deleted meanwhile. `false` if there is no such
/// profile.
pub(crate) async fn lock(
    connection: &mut AsyncPgConnection,
    profile: Option<LoadedProfile>,
) -> Result<bool, CallError> {
    let Some(profile) = profile else { return Ok(true) };
    is_there(connection, stored().find(Column(profile.id)).select(profiles::id).for_share()).await
}

/// Whether the name is taken in the other half of one namespace: the default project and the profiles without a
/// project, which no index covers together.
async fn taken_beside(
    connection: &mut AsyncPgConnection,
    (organization, project): (Column<OrganizationId>, Option<Column<ProjectId>>),
    name: &str,
) -> Result<bool, CallError> {
    let default = projects::table.filter(projects::organization_id.eq(organization)).filter(projects::is_default);
    let default = default.filter(projects::deleted_at.is_null()).select(projects::id);
    let default: Option<Column<ProjectId>> = default.get_result(connection).await.optional()?;
    let beside = stored().filter(profiles::name.eq(name)).filter(profiles::organization_id.eq(organization));
    let beside = match project {
        Some(project) if default != Some(project) => return Ok(false),
        Some(_) => diesel::select(exists(beside.filter(profiles::project_id.is_null()))).get_result(connection).await?,
        None => diesel::select(exists(beside.filter(profiles::project_id.eq(default)))).get_result(connection).await?,
    };
    Ok(beside)
}

repository! {
    /// Profiles in PostgreSQL.
    PgProfiles
}

#[async_trait]
impl ProfileRepository for PgProfiles {
    async fn create(&self, profile: &Profile, max: u32) -> Result<ProfileStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = ProfileRow::of(profile);
            // The new row refers to the organization. Locked first, in the same order as the deletion of a project.
            let organization = organizations::table.find(row.organization).select(organizations::id);
            organization.for_key_share().execute(connection).await?;
            if let Some(project) = profile.project {
                if !project::lock(connection, project).await? {
                    return Ok(ProfileStored::ProjectGone);
                }
                let used = stored().filter(profiles::project_id.eq(Column(project))).count();
                if let Err(refused) = admit_one(Limit::ProjectProfiles, max, counted(connection, used).await?) {
                    return Ok(ProfileStored::LimitExceeded(refused));
                }
            }
            if let Some(name) = &profile.name
                && taken_beside(connection, (row.organization, row.project), name.as_str()).await?
            {
                return Ok(ProfileStored::NameTaken);
            }
            let row = (row, profiles::id_text.eq(profile.id.to_string()));
            diesel::insert_into(profiles::table).values(row).execute(connection).await?;
            Ok(ProfileStored::Yes)
        };
        let name_taken = if_violated(&NAME_KEYS, ProfileStored::NameTaken);
        self.database.transaction_or("profile.create", work, name_taken).await
    }

    async fn find(&self, scope: &Scope, which: &IdOrName<ProfileId>) -> Result<Option<Profile>, StoreError> {
        let project = profiles::project_id.eq(Column(scope.project_id()));
        let mut rows = stored().into_boxed();
        rows = if scope.sees_rows_without_project() {
            let organization = profiles::organization_id.eq(Column(scope.organization()));
            rows.filter(project.assume_not_null().or(profiles::project_id.is_null().and(organization)))
        } else {
            rows.filter(project)
        };
        rows = match which {
            IdOrName::Id(id) => rows.filter(profiles::id.eq(Column(*id))),
            IdOrName::Name(name) => rows.filter(profiles::name.eq(name)),
        };
        let row = rows.order(profiles::project_id.is_null()).select(ProfileRow::as_select()).limit(1);
        self.database.read_one("profile.find", row).await
    }

    async fn list(&self, scope: &Scope, filter: &ProfileFilter, page: Page) -> Result<Listed<Profile>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let (limit, offset) = window(page);
            let statement = ListProfiles {
                project: Column(scope.project_id()),
                organization: scope.sees_rows_without_project().then(|| Column(scope.organization())),
                name: filter.name.as_deref(),
                query: filter.query.as_deref(),
                limit,
                offset,
            };
            Ok(page.cut(all(&mut connection, statement).await?))
        };
        if filter.query.is_some() || page.offset > SHORT_WAY {
            return self.database.fetch("profile.list", async |connection| work(connection).await).await;
        }
        self.database.read("profile.list", work).await
    }

    async fn rename(&self, id: ProfileId, name: &SlugName, at: OffsetDateTime) -> Result<ProfileRenamed, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = stored().find(Column(id));
            let home = (profiles::organization_id, profiles::project_id);
            let home: Option<(Column<OrganizationId>, Option<Column<ProjectId>>)> =
                row.select(home).for_no_key_update().get_result(connection).await.optional()?;
            let Some(home) = home else { return Ok(ProfileRenamed::NotFound) };
            if taken_beside(connection, home, name.as_str()).await? {
                return Ok(ProfileRenamed::NameTaken);
            }
            let named = (profiles::name.eq(name.as_str()), profiles::updated_at.eq(at));
            let named = diesel::update(profiles::table.find(Column(id))).set(named);
            let named = named.returning(ProfileRow::as_returning()).get_result(connection).await?;
            Ok(ProfileRenamed::Yes(named.value()?))
        };
        let name_taken = if_violated(&NAME_KEYS, ProfileRenamed::NameTaken);
        self.database.transaction_or("profile.rename", work, name_taken).await
    }

    async fn delete(&self, id: ProfileId, at: OffsetDateTime) -> Result<ProfileDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = stored().find(Column(id));
            // Locks the row before it looks for pools: storing a pool locks this row too, so that pool is visible
            // afterwards.
            if !is_there(connection, row.select(profiles::id).for_update()).await? {
                return Ok(ProfileDeleted::NotFound);
            }
            let pools = browser_pools::table.filter(browser_pools::profile_id.eq(Column(id)));
            let pools = exists(pools.filter(browser_pools::deleted_at.is_null()));
            let connections = exists(auth_connections::table.filter(auth_connections::profile_id.eq(Column(id))));
            if diesel::select(pools.or(connections)).get_result(connection).await? {
                return Ok(ProfileDeleted::InUse);
            }
            let gone = (profiles::deleted_at.eq(at), profiles::version_id.eq(None::<Uuid>));
            diesel::update(profiles::table.find(Column(id))).set(gone).execute(connection).await?;
            let current = profile_versions::table.filter(profile_versions::profile_id.eq(Column(id)));
            let current = current.filter(profile_versions::replaced_at.is_null());
            diesel::update(current).set(profile_versions::replaced_at.eq(at)).execute(connection).await?;
            Ok(ProfileDeleted::Yes)
        };
        self.database.transaction("profile.delete", work).await
    }

    async fn of_ids(&self, ids: &[ProfileId]) -> Result<Vec<Profile>, StoreError> {
        let rows = profiles::table.filter(profiles::id.eq_any(columns(ids))).select(ProfileRow::as_select());
        self.database.all("profile.of_ids", rows).await
    }

    async fn living(&self, id: ProfileId) -> Result<Option<Profile>, StoreError> {
        self.database.find("profile.living", stored().find(Column(id)).select(ProfileRow::as_select())).await
    }

    async fn used(&self, id: ProfileId, at: OffsetDateTime) -> Result<(), StoreError> {
        let row = profiles::table.find(Column(id));
        let row = row.filter(profiles::last_used_at.is_null().or(profiles::last_used_at.lt(at)));
        self.database.change("profile.used", diesel::update(row).set(profiles::last_used_at.eq(at))).await
    }

    async fn save(&self, version: &ProfileVersion) -> Result<VersionStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = VersionRow::of(version);
            let profile = profiles::table.find(row.profile);
            // Locked, so that two sessions that end at once save one after the other.
            let not_deleted = profile.filter(profiles::deleted_at.is_null()).select(profiles::version_id).for_update();
            let found: Option<Option<Column<ProfileVersionId>>> =
                not_deleted.get_result(connection).await.optional()?;
            let Some(current) = found else { return Ok(VersionStored::NotWanted) };
            let session = sessions::table.find(row.session).filter(sessions::save_profile);
            let saves = session.filter(sessions::profile_id.eq(row.profile));
            if diesel::update(saves).set(sessions::save_profile.eq(false)).execute(connection).await? == 0 {
                return Ok(VersionStored::NotWanted);
            }
            let unseen = current.filter(|current| Some(*current) != row.based_on);
            let (id, at) = (row.id, row.created_at);
            diesel::insert_into(profile_versions::table).values(row).execute(connection).await?;
            if let Some(current) = current {
                let replaced =
                    (profile_versions::replaced_at.eq(at), profile_versions::replaced_unseen.eq(unseen.is_some()));
                diesel::update(profile_versions::table.find(current)).set(replaced).execute(connection).await?;
            }
            let next = (profiles::version_id.eq(id), profiles::updated_at.eq(at));
            diesel::update(profile).set(next).execute(connection).await?;
            let pools = browser_pools::table.filter(browser_pools::profile_id.eq(Column(version.profile)));
            let pools = pools.filter(browser_pools::deleted_at.is_null());
            let pools = pools.filter(browser_pools::refresh_on_profile_update).select(browser_pools::id);
            let pools: Vec<Column<PoolId>> = pools.load(connection).await?;
            Ok(VersionStored::Yes(Saved { unseen: unseen.value()?, pools: pools.value()? }))
        };
        self.database.transaction("profile.save", work).await
    }

    async fn version(&self, profile: ProfileId, id: ProfileVersionId) -> Result<Option<ProfileVersion>, StoreError> {
        let row = profile_versions::table.find(Column(id)).filter(profile_versions::profile_id.eq(Column(profile)));
        self.database.find("profile.version", row.select(VersionRow::as_select())).await
    }

    async fn spent(
        &self,
        before: OffsetDateTime,
        unseen: u32,
    ) -> Result<Vec<(ProfileId, ProfileVersionId)>, StoreError> {
        let statement = diesel::sql_query(SPENT).bind::<sql_types::Timestamptz, _>(before);
        let statement = statement.bind::<sql_types::BigInt, _>(i64::from(unseen)).bind::<sql_types::BigInt, _>(SOME);
        let work = async |connection: &mut AsyncPgConnection| {
            let found: Vec<Spent> = statement.load(connection).await?;
            Ok(found.into_iter().map(|row| (row.profile.0, row.version.0)).collect())
        };
        self.database.fetch("profile.spent", work).await
    }

    async fn forget(&self, id: ProfileVersionId) -> Result<(), StoreError> {
        self.database.change("profile.forget", diesel::delete(profile_versions::table.find(Column(id)))).await
    }

    async fn known(&self, ids: &[ProfileVersionId]) -> Result<Vec<ProfileVersionId>, StoreError> {
        let rows = profile_versions::table.filter(profile_versions::id.eq_any(columns(ids)));
        self.database.ids("profile.known", rows.select(profile_versions::id)).await
    }

    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<ProfileVersion>, StoreError> {
        let rows = profile_versions::table.filter(under_other_key("sealed_key", key)).order(profile_versions::id);
        self.database.all("profile.sealed_otherwise", rows.limit(max.into()).select(VersionRow::as_select())).await
    }

    async fn reseal(&self, id: ProfileVersionId, current: &[u8], next: &[u8]) -> Result<(), StoreError> {
        let row = profile_versions::table.find(Column(id)).filter(profile_versions::sealed_key.eq(current));
        self.database.change("profile.reseal", diesel::update(row).set(profile_versions::sealed_key.eq(next))).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        self.database.keys("profile.keys", profile_versions::table.select(head("sealed_key")).distinct()).await
    }
}

#[derive(QueryableByName)]
struct Spent {
    #[diesel(sql_type = sql_types::Uuid)]
    version: Column<ProfileVersionId>,
    #[diesel(sql_type = sql_types::Uuid)]
    profile: Column<ProfileId>,
}
