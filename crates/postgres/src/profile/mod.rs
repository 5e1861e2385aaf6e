//! Profiles and their versions, without the bytes.

mod list;

use async_trait::async_trait;
use casement_domain::access::Scope;
use casement_domain::organization::{Limit, LimitExceeded};
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
use diesel::dsl::{exists, sql};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{count, slug, ulid, uuid};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::schema::{auth_connections, browser_pools, organizations, profile_versions, profiles, projects, sessions};
use list::ListProfiles;

/// What keeps names unique.
const NAME_KEYS: [&str; 2] = ["profiles_name_key", "profiles_legacy_name_key"];
/// Further down a list PostgreSQL walks for a while.
const SHORT_WAY: u64 = 1000;
/// How many versions that nobody needs are told at a time.
const SOME: i64 = 200;
/// Versions of deleted profiles; those replaced by who had seen them, a while ago; those replaced unseen, but the latest of each profile.
const SPENT: &str = "
    SELECT v.id AS version, v.profile_id AS profile
    FROM (
        SELECT *, row_number() OVER (PARTITION BY profile_id, replaced_unseen ORDER BY replaced_at DESC, id DESC) AS age
        FROM profile_versions WHERE replaced_at IS NOT NULL
    ) v
    WHERE (NOT v.replaced_unseen AND v.replaced_at < $1) OR (v.replaced_unseen AND v.age > $2)
        OR EXISTS (SELECT 1 FROM profiles p WHERE p.id = v.profile_id AND p.deleted_at IS NOT NULL)
    ORDER BY v.id LIMIT $3";

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = profiles, check_for_backend(diesel::pg::Pg))]
struct ProfileRow {
    id: Uuid,
    id_text: String,
    organization_id: Uuid,
    project_id: Option<Uuid>,
    name: Option<String>,
    version_id: Option<Uuid>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    last_used_at: Option<OffsetDateTime>,
}

impl From<&Profile> for ProfileRow {
    fn from(profile: &Profile) -> Self {
        Self {
            id: uuid(profile.id.ulid()),
            id_text: profile.id.to_string(),
            organization_id: uuid(profile.organization.ulid()),
            project_id: profile.project.map(|id| uuid(id.ulid())),
            name: profile.name.as_ref().map(|name| name.as_str().to_owned()),
            version_id: profile.version.map(|id| uuid(id.ulid())),
            created_at: profile.created_at,
            updated_at: profile.updated_at,
            last_used_at: profile.last_used_at,
        }
    }
}

impl TryFrom<ProfileRow> for Profile {
    type Error = BadRow;

    fn try_from(row: ProfileRow) -> Result<Self, BadRow> {
        Ok(Self {
            id: ProfileId::from_ulid(ulid(row.id)),
            organization: OrganizationId::from_ulid(ulid(row.organization_id)),
            project: row.project_id.map(|id| ProjectId::from_ulid(ulid(id))),
            name: row.name.map(|name| slug("profiles.name", &name)).transpose()?,
            version: row.version_id.map(|id| ProfileVersionId::from_ulid(ulid(id))),
            created_at: row.created_at,
            updated_at: row.updated_at,
            last_used_at: row.last_used_at,
        })
    }
}

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = profile_versions, check_for_backend(diesel::pg::Pg))]
struct VersionRow {
    id: Uuid,
    profile_id: Uuid,
    session_id: Uuid,
    based_on: Option<Uuid>,
    sealed_key: Vec<u8>,
    created_at: OffsetDateTime,
}

impl From<&ProfileVersion> for VersionRow {
    fn from(version: &ProfileVersion) -> Self {
        Self {
            id: uuid(version.id.ulid()),
            profile_id: uuid(version.profile.ulid()),
            session_id: uuid(version.session.ulid()),
            based_on: version.based_on.map(|id| uuid(id.ulid())),
            sealed_key: version.key.clone(),
            created_at: version.created_at,
        }
    }
}

impl From<VersionRow> for ProfileVersion {
    fn from(row: VersionRow) -> Self {
        Self {
            id: version_id(row.id),
            profile: ProfileId::from_ulid(ulid(row.profile_id)),
            session: SessionId::from_ulid(ulid(row.session_id)),
            based_on: row.based_on.map(version_id),
            key: row.sealed_key,
            created_at: row.created_at,
        }
    }
}

fn version_id(id: Uuid) -> ProfileVersionId {
    ProfileVersionId::from_ulid(ulid(id))
}

fn all(rows: Vec<ProfileRow>) -> Result<Vec<Profile>, CallError> {
    Ok(rows.into_iter().map(Profile::try_from).collect::<Result<_, _>>()?)
}

/// Holds the profile until the transaction ends, so that it is not deleted meanwhile. `false` if it is not there.
pub(crate) async fn hold(
    connection: &mut AsyncPgConnection,
    profile: Option<LoadedProfile>,
) -> Result<bool, CallError> {
    let Some(profile) = profile else { return Ok(true) };
    let row = profiles::table.find(uuid(profile.id.ulid())).filter(profiles::deleted_at.is_null());
    let found: Option<Uuid> = row.select(profiles::id).for_share().get_result(connection).await.optional()?;
    Ok(found.is_some())
}

/// Names of a default project and of no project are one space, which no index spans.
async fn taken_beside(
    connection: &mut AsyncPgConnection,
    (organization, project): (Uuid, Option<Uuid>),
    name: &str,
) -> Result<bool, CallError> {
    let default = projects::table.filter(projects::organization_id.eq(organization)).filter(projects::is_default);
    let default = default.filter(projects::deleted_at.is_null()).select(projects::id);
    let default: Option<Uuid> = default.get_result(connection).await.optional()?;
    let bearing = profiles::table.filter(profiles::deleted_at.is_null()).filter(profiles::name.eq(name));
    let beside = bearing.filter(profiles::organization_id.eq(organization));
    let beside = match project {
        Some(project) if default != Some(project) => return Ok(false),
        Some(_) => diesel::select(exists(beside.filter(profiles::project_id.is_null()))).get_result(connection).await?,
        None => diesel::select(exists(beside.filter(profiles::project_id.eq(default)))).get_result(connection).await?,
    };
    Ok(beside)
}

/// Profiles in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgProfiles {
    database: Database,
}

impl PgProfiles {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ProfileRepository for PgProfiles {
    async fn create(&self, profile: &Profile, most: u32) -> Result<ProfileStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = ProfileRow::from(profile);
            // Its row will refer to the organization. Whoever deletes a project holds that first, so it comes first here, too.
            let organization = organizations::table.find(row.organization_id).select(organizations::id);
            organization.for_key_share().execute(connection).await?;
            if let Some(project) = row.project_id {
                // Held, so that two do not both take the last place, and the project is not deleted meanwhile.
                let owner = projects::table.find(project).filter(projects::deleted_at.is_null());
                let owner: Option<Uuid> =
                    owner.select(projects::id).for_no_key_update().get_result(connection).await.optional()?;
                if owner.is_none() {
                    return Ok(ProfileStored::ProjectGone);
                }
                let used = profiles::table.filter(profiles::project_id.eq(project));
                let used = count(used.filter(profiles::deleted_at.is_null()).count().get_result(connection).await?);
                if used >= most {
                    let limit = LimitExceeded { limit: Limit::ProjectProfiles, value: most, used, requested: 1 };
                    return Ok(ProfileStored::LimitExceeded(limit));
                }
            }
            if let Some(name) = &row.name
                && taken_beside(connection, (row.organization_id, row.project_id), name).await?
            {
                return Ok(ProfileStored::NameTaken);
            }
            diesel::insert_into(profiles::table).values(row).execute(connection).await?;
            Ok(ProfileStored::Yes)
        };
        let name_taken = |error: CallError| match error.violated() {
            Some(key) if NAME_KEYS.contains(&key) => Ok(ProfileStored::NameTaken),
            _ => Err(error),
        };
        self.database.transaction_or("profile.create", work, name_taken).await
    }

    async fn find(&self, scope: &Scope, which: &IdOrName<ProfileId>) -> Result<Option<Profile>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let (project, organization) = (uuid(scope.project_id().ulid()), uuid(scope.organization().ulid()));
            let mut rows = profiles::table.filter(profiles::deleted_at.is_null()).into_boxed();
            rows = if scope.unscoped {
                let legacy = profiles::project_id.is_null().and(profiles::organization_id.eq(organization));
                rows.filter(profiles::project_id.eq(project).assume_not_null().or(legacy))
            } else {
                rows.filter(profiles::project_id.eq(project))
            };
            rows = match which {
                IdOrName::Id(id) => rows.filter(profiles::id.eq(uuid(id.ulid()))),
                IdOrName::Name(name) => rows.filter(profiles::name.eq(name)),
            };
            let row = rows.order(profiles::project_id.is_null()).select(ProfileRow::as_select()).limit(1);
            Ok(row.get_result(&mut connection).await.optional()?.map(Profile::try_from).transpose()?)
        };
        self.database.read("profile.find", work).await
    }

    async fn list(&self, scope: &Scope, filter: &ProfileFilter, page: Page) -> Result<Listed<Profile>, StoreError> {
        let work = async |mut connection: &AsyncPgConnection| {
            let (limit, offset) = window(page);
            let statement = ListProfiles {
                project: uuid(scope.project_id().ulid()),
                organization: scope.unscoped.then(|| uuid(scope.organization().ulid())),
                name: filter.name.as_deref(),
                query: filter.query.as_deref(),
                limit,
                offset,
            };
            Ok(page.cut(all(statement.load(&mut connection).await?)?))
        };
        if filter.query.is_some() || page.offset > SHORT_WAY {
            return self.database.fetch("profile.list", async |connection| work(connection).await).await;
        }
        self.database.read("profile.list", work).await
    }

    async fn rename(&self, id: ProfileId, name: &SlugName, at: OffsetDateTime) -> Result<ProfileRenamed, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = profiles::table.find(uuid(id.ulid())).filter(profiles::deleted_at.is_null());
            let home = (profiles::organization_id, profiles::project_id);
            let home: Option<(Uuid, Option<Uuid>)> =
                row.select(home).for_no_key_update().get_result(connection).await.optional()?;
            let Some(home) = home else { return Ok(ProfileRenamed::NotFound) };
            if taken_beside(connection, home, name.as_str()).await? {
                return Ok(ProfileRenamed::NameTaken);
            }
            let named = (profiles::name.eq(name.as_str()), profiles::updated_at.eq(at));
            let named = diesel::update(profiles::table.find(uuid(id.ulid()))).set(named);
            let named = named.returning(ProfileRow::as_returning()).get_result(connection).await?;
            Ok(ProfileRenamed::Yes(named.try_into()?))
        };
        let name_taken = |error: CallError| match error.violated() {
            Some(key) if NAME_KEYS.contains(&key) => Ok(ProfileRenamed::NameTaken),
            _ => Err(error),
        };
        self.database.transaction_or("profile.rename", work, name_taken).await
    }

    async fn delete(&self, id: ProfileId, at: OffsetDateTime) -> Result<ProfileDeleted, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = uuid(id.ulid());
            let row = profiles::table.find(id).filter(profiles::deleted_at.is_null());
            // First the row, then the pools: one that is being stored with it has the row, and is seen afterwards.
            let held: Option<Uuid> = row.select(profiles::id).for_update().get_result(connection).await.optional()?;
            if held.is_none() {
                return Ok(ProfileDeleted::NotFound);
            }
            let naming = browser_pools::table.filter(browser_pools::profile_id.eq(id));
            if diesel::select(exists(naming.filter(browser_pools::deleted_at.is_null()))).get_result(connection).await?
            {
                return Ok(ProfileDeleted::InUse);
            }
            let naming = auth_connections::table.filter(auth_connections::profile_id.eq(id));
            if diesel::select(exists(naming)).get_result(connection).await? {
                return Ok(ProfileDeleted::InUse);
            }
            let gone = (profiles::deleted_at.eq(at), profiles::version_id.eq(None::<Uuid>));
            diesel::update(profiles::table.find(id)).set(gone).execute(connection).await?;
            let current = profile_versions::table.filter(profile_versions::profile_id.eq(id));
            let current = current.filter(profile_versions::replaced_at.is_null());
            diesel::update(current).set(profile_versions::replaced_at.eq(at)).execute(connection).await?;
            Ok(ProfileDeleted::Yes)
        };
        self.database.transaction("profile.delete", work).await
    }

    async fn of_ids(&self, ids: &[ProfileId]) -> Result<Vec<Profile>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let ids: Vec<Uuid> = ids.iter().map(|id| uuid(id.ulid())).collect();
            let rows = profiles::table.filter(profiles::id.eq_any(ids)).select(ProfileRow::as_select());
            all(rows.load(connection).await?)
        };
        self.database.fetch("profile.of_ids", work).await
    }

    async fn living(&self, id: ProfileId) -> Result<Option<Profile>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = profiles::table.find(uuid(id.ulid())).filter(profiles::deleted_at.is_null());
            let row = row.select(ProfileRow::as_select()).get_result(connection).await.optional()?;
            Ok(row.map(Profile::try_from).transpose()?)
        };
        self.database.fetch("profile.living", work).await
    }

    async fn used(&self, id: ProfileId, at: OffsetDateTime) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = profiles::table.find(uuid(id.ulid()));
            let row = row.filter(profiles::last_used_at.is_null().or(profiles::last_used_at.lt(at)));
            diesel::update(row).set(profiles::last_used_at.eq(at)).execute(connection).await?;
            Ok(())
        };
        self.database.call("profile.used", work).await
    }

    async fn save(&self, version: &ProfileVersion) -> Result<VersionStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = VersionRow::from(version);
            let profile = profiles::table.find(row.profile_id);
            // Held: of two that end at once, one comes after the other.
            let living = profile.filter(profiles::deleted_at.is_null()).select(profiles::version_id).for_update();
            let found: Option<Option<Uuid>> = living.get_result(connection).await.optional()?;
            let Some(current) = found else { return Ok(VersionStored::NotWanted) };
            let session = sessions::table.find(row.session_id).filter(sessions::save_profile);
            let saves = session.filter(sessions::profile_id.eq(row.profile_id));
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
            let pools = browser_pools::table.filter(browser_pools::profile_id.eq(uuid(version.profile.ulid())));
            let pools = pools.filter(browser_pools::deleted_at.is_null());
            let pools = pools.filter(browser_pools::refresh_on_profile_update).select(browser_pools::id);
            let pools: Vec<Uuid> = pools.load(connection).await?;
            let pools = pools.into_iter().map(|id| PoolId::from_ulid(ulid(id))).collect();
            Ok(VersionStored::Yes(Saved { unseen: unseen.map(version_id), pools }))
        };
        self.database.transaction("profile.save", work).await
    }

    async fn version(&self, profile: ProfileId, id: ProfileVersionId) -> Result<Option<ProfileVersion>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = profile_versions::table.find(uuid(id.ulid()));
            let row = row.filter(profile_versions::profile_id.eq(uuid(profile.ulid())));
            let row = row.select(VersionRow::as_select()).get_result(connection).await.optional()?;
            Ok(row.map(Into::into))
        };
        self.database.fetch("profile.version", work).await
    }

    async fn spent(
        &self,
        before: OffsetDateTime,
        unseen: u32,
    ) -> Result<Vec<(ProfileId, ProfileVersionId)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let statement = diesel::sql_query(SPENT).bind::<sql_types::Timestamptz, _>(before);
            let statement = statement.bind::<sql_types::BigInt, _>(i64::from(unseen));
            let rows: Vec<Spent> = statement.bind::<sql_types::BigInt, _>(SOME).load(connection).await?;
            let found = rows.into_iter();
            Ok(found.map(|row| (ProfileId::from_ulid(ulid(row.profile)), version_id(row.version))).collect())
        };
        self.database.fetch("profile.spent", work).await
    }

    async fn forget(&self, id: ProfileVersionId) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::delete(profile_versions::table.find(uuid(id.ulid()))).execute(connection).await?;
            Ok(())
        };
        self.database.call("profile.forget", work).await
    }

    async fn known(&self, ids: &[ProfileVersionId]) -> Result<Vec<ProfileVersionId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let wanted: Vec<Uuid> = ids.iter().map(|id| uuid(id.ulid())).collect();
            let rows = profile_versions::table.filter(profile_versions::id.eq_any(wanted)).select(profile_versions::id);
            let found: Vec<Uuid> = rows.load(connection).await?;
            Ok(found.into_iter().map(version_id).collect())
        };
        self.database.fetch("profile.known", work).await
    }

    async fn sealed_with_other_key(&self, key: KeyId, most: u32) -> Result<Vec<ProfileVersion>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let under = sql::<sql_types::Binary>("substring(sealed_key FROM 2 FOR 8)");
            let rows = profile_versions::table.filter(under.ne(key.0.to_vec())).order(profile_versions::id);
            let rows = rows.limit(i64::from(most)).select(VersionRow::as_select()).load(connection).await?;
            Ok(rows.into_iter().map(Into::into).collect())
        };
        self.database.fetch("profile.sealed_otherwise", work).await
    }

    async fn reseal(&self, id: ProfileVersionId, current: &[u8], next: &[u8]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = profile_versions::table.find(uuid(id.ulid())).filter(profile_versions::sealed_key.eq(current));
            diesel::update(row).set(profile_versions::sealed_key.eq(next)).execute(connection).await?;
            Ok(())
        };
        self.database.call("profile.reseal", work).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let heads = sql::<sql_types::Binary>("substring(sealed_key FROM 1 FOR 9)");
            let found: Vec<Vec<u8>> = profile_versions::table.select(heads).distinct().load(connection).await?;
            Ok(found.iter().filter_map(|head| KeyId::of(head)).collect())
        };
        self.database.fetch("profile.keys", work).await
    }
}

#[derive(QueryableByName)]
struct Spent {
    #[diesel(sql_type = sql_types::Uuid)]
    version: Uuid,
    #[diesel(sql_type = sql_types::Uuid)]
    profile: Uuid,
}
