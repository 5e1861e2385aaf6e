//! Deployments, their secrets, and the apps that they registered.

mod apps;
mod lines;
mod rows;
mod secrets;

use async_trait::async_trait;
use casement_domain::api_key::ApiKey;
use casement_domain::deployment::{
    AppFilter, AppVersion, Deployment, DeploymentFilter, DeploymentRepository, DeploymentStatus, DeploymentStored,
    ListedApp, Registered, SealedDeployment, SealedDeploymentSecret, Subject,
};
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::page::{Listed, Page};
use casement_domain::sealing::KeyId;
use casement_domain::{DeploymentId, NodeId, OrganizationId, ProjectId, Replaced, StoreError};
use diesel::dsl::{exists, not, sql};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
pub use lines::PgLines;
use rows::DeploymentRow;
pub(crate) use rows::{ENDED, UNBUILT};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::api_key::ApiKeyRow;
use crate::convert::{contains, count, int, uuid};
use crate::database::{Database, window};
use crate::error::{BadRow, CallError};
use crate::recent_keys::RecentKeys;
use crate::schema::{api_keys, app_versions, deployment_secrets, deployments, projects};
use crate::wait_queue::pg_notify;
use crate::{organization, project};

/// Where news of deployments and invocations is said: `d` or `i`, a colon, the identifier; with a `+` before it if it is new.
#[must_use]
pub fn apps_channel() -> String {
    "casement_apps".to_owned()
}

/// Says that there is news, once the transaction commits.
pub(crate) async fn report(
    connection: &mut AsyncPgConnection,
    subject: Subject,
    is_new: bool,
) -> Result<(), CallError> {
    let sign = if is_new { "+" } else { "" };
    let word = match subject {
        Subject::Deployment(id) => format!("{sign}d:{id}"),
        Subject::Invocation(id) => format!("{sign}i:{id}"),
    };
    diesel::select(pg_notify(apps_channel(), word)).execute(connection).await?;
    Ok(())
}

/// Deployments in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgDeployments {
    database: Database,
    recent: Option<RecentKeys>,
}

impl PgDeployments {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, recent: None }
    }

    /// The same, which makes forget the keys of deployments that have ended.
    #[must_use]
    pub fn forgetting(self, recent: RecentKeys) -> Self {
        Self { recent: Some(recent), ..self }
    }

    /// After a change; also after one of which nobody knows whether it came through.
    fn forget(&self) {
        if let Some(recent) = &self.recent {
            recent.forget();
        }
    }
}

fn all(rows: Vec<DeploymentRow>) -> Result<Vec<Deployment>, CallError> {
    Ok(rows.into_iter().map(Deployment::try_from).collect::<Result<_, BadRow>>()?)
}

async fn get(connection: &mut AsyncPgConnection, id: DeploymentId) -> Result<Option<Deployment>, CallError> {
    let row = deployments::table.find(uuid(id.ulid())).select(DeploymentRow::as_select());
    let row = row.get_result(connection).await.optional()?;
    Ok(row.map(Deployment::try_from).transpose()?)
}

/// Stores `next` over `current`, and what follows from it; the transaction is the caller's.
async fn store(
    connection: &mut AsyncPgConnection,
    current: &Deployment,
    next: &Deployment,
) -> Result<Replaced, CallError> {
    let id = uuid(current.id.ulid());
    let row = deployments::table.find(id).filter(deployments::status.eq(current.status.as_str()));
    let number = current.lease.map(|lease| int(lease.number));
    let row = row.filter(deployments::lease_number.is_not_distinct_from(number));
    let changed = diesel::update(row).set(rows::Moved::from(next)).execute(connection).await?;
    if changed == 0 {
        return Ok(Replaced::LostRace);
    }
    if next.status.is_final() {
        let apps = app_versions::table.filter(app_versions::deployment_id.eq(id)).filter(app_versions::live);
        diesel::update(apps).set(app_versions::live.eq(false)).execute(connection).await?;
        let key = api_keys::table.find(uuid(next.api_key.ulid())).filter(api_keys::deleted_at.is_null());
        diesel::update(key).set(api_keys::deleted_at.eq(next.updated_at)).execute(connection).await?;
        let secrets = deployment_secrets::table.filter(deployment_secrets::deployment_id.eq(id));
        diesel::delete(secrets).execute(connection).await?;
    }
    report(connection, Subject::Deployment(next.id), false).await?;
    Ok(Replaced::Yes)
}

#[async_trait]
impl DeploymentRepository for PgDeployments {
    async fn create(
        &self,
        organization: OrganizationId,
        deployment: &Deployment,
        secrets: &SealedDeployment,
        key: &ApiKey,
        most: u32,
    ) -> Result<DeploymentStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Held, so that two do not both take the last place, and the project is not deleted meanwhile.
            if organization::hold(connection, organization).await?.is_none()
                || project::living(connection, organization, deployment.project).await?.is_none()
            {
                return Ok(DeploymentStored::ProjectGone);
            }
            let used = deployments::table.filter(deployments::project_id.eq(uuid(deployment.project.ulid())));
            let used = used.filter(not(deployments::status.eq_any(ENDED))).count();
            let used = count(used.get_result(connection).await?);
            if used >= most {
                let limit = LimitExceeded { limit: Limit::ProjectDeployments, value: most, used, requested: 1 };
                return Ok(DeploymentStored::LimitExceeded(limit));
            }
            diesel::insert_into(api_keys::table).values(ApiKeyRow::from(key)).execute(connection).await?;
            let row = DeploymentRow::from(deployment);
            let row = (row, deployments::used_at.eq(deployment.created_at));
            diesel::insert_into(deployments::table).values(row).execute(connection).await?;
            secrets::put(connection, deployment.id, secrets).await?;
            report(connection, Subject::Deployment(deployment.id), true).await?;
            Ok(DeploymentStored::Yes)
        };
        self.database.transaction("deployment.create", work).await
    }

    async fn find(&self, project: ProjectId, id: DeploymentId) -> Result<Option<Deployment>, StoreError> {
        Ok(self.get(id).await?.filter(|deployment| deployment.project == project))
    }

    async fn get(&self, id: DeploymentId) -> Result<Option<Deployment>, StoreError> {
        self.database.fetch("deployment.get", async |connection| get(connection, id).await).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &DeploymentFilter,
        page: Page,
    ) -> Result<Listed<Deployment>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = deployments::table.filter(deployments::project_id.eq(uuid(project.ulid()))).into_boxed();
            if let Some(name) = &filter.app_name {
                let of_it = app_versions::table.filter(app_versions::deployment_id.eq(deployments::id));
                rows = rows.filter(exists(of_it.filter(app_versions::app_name.eq(name))));
            }
            if let Some(version) = &filter.app_version {
                rows = rows.filter(deployments::version.eq(version));
            }
            if let Some(query) = &filter.query {
                let of_it = app_versions::table.filter(app_versions::deployment_id.eq(deployments::id));
                let named = exists(of_it.filter(contains("app_versions.app_name", query)));
                rows = match query.parse::<DeploymentId>() {
                    Ok(id) => rows.filter(named.or(deployments::id.eq(uuid(id.ulid())))),
                    Err(_) => rows.filter(named),
                };
            }
            let rows = rows.order((deployments::created_at.desc(), deployments::id.desc())).limit(limit).offset(offset);
            Ok(page.cut(all(rows.select(DeploymentRow::as_select()).load(connection).await?)?))
        };
        self.database.fetch("deployment.list", work).await
    }

    async fn secrets(&self, id: DeploymentId) -> Result<Option<SealedDeployment>, StoreError> {
        self.database.fetch("deployment.secrets", async |connection| secrets::of(connection, id).await).await
    }

    async fn replace(&self, current: &Deployment, next: &Deployment) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| store(connection, current, next).await;
        let done = self.database.transaction("deployment.replace", work).await;
        if next.status.is_final() {
            self.forget();
        }
        done
    }

    async fn register(
        &self,
        current: &Deployment,
        next: &Deployment,
        apps: &[AppVersion],
    ) -> Result<Registered, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Held, so that no other deployment of the project registers meanwhile.
            let owner = projects::table.find(uuid(current.project.ulid())).select(projects::id).for_no_key_update();
            let _held: Uuid = owner.get_result(connection).await?;
            let replaced = match apps::obstacles(connection, next, apps).await? {
                Ok(replaced) => replaced,
                Err(app) => return Ok(Registered::VersionExists { app }),
            };
            if store(connection, current, next).await? == Replaced::LostRace {
                return Ok(Registered::LostRace);
            }
            let used = diesel::update(deployments::table.find(uuid(next.id.ulid())));
            used.set(deployments::used_at.eq(next.updated_at)).execute(connection).await?;
            for (older, ended) in &replaced {
                // Its row is held; it cannot have moved.
                let _moved = store(connection, older, ended).await?;
            }
            apps::put(connection, apps).await?;
            Ok(Registered::Yes(replaced.into_iter().map(|(_, ended)| ended).collect()))
        };
        let done = self.database.transaction("deployment.register", work).await;
        self.forget();
        done
    }

    async fn due(
        &self,
        node: NodeId,
        now: OffsetDateTime,
        own_before: OffsetDateTime,
        most: u32,
    ) -> Result<Vec<Deployment>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let unowned = deployments::lease_expires_at.is_null().or(deployments::lease_expires_at.le(now));
            let own = deployments::lease_holder.eq(uuid(node.ulid()));
            let own = own.and(deployments::lease_expires_at.lt(own_before));
            let rows = deployments::table.filter(deployments::status.eq_any(UNBUILT));
            let rows = rows.filter(unowned.or(own.assume_not_null()));
            // The first of every project before the second of any: none is hidden behind the many of another.
            let nth = sql::<sql_types::BigInt>(
                "row_number() OVER (PARTITION BY deployments.project_id ORDER BY deployments.created_at, deployments.id)",
            );
            let rows = rows.order((nth, deployments::created_at, deployments::id)).limit(most.into());
            all(rows.select(DeploymentRow::as_select()).load(connection).await?)
        };
        self.database.fetch("deployment.due", work).await
    }

    async fn renew(&self, id: DeploymentId, number: u32, until: OffsetDateTime) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = deployments::table.find(uuid(id.ulid())).filter(deployments::lease_number.eq(int(number)));
            let row = row.filter(deployments::status.eq(DeploymentStatus::InProgress.as_str()));
            let longer = deployments::lease_expires_at.eq(until);
            Ok(diesel::update(row).set(longer).execute(connection).await? > 0)
        };
        self.database.call("deployment.renew", work).await
    }

    async fn running(&self, most: u32) -> Result<Vec<Deployment>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = deployments::table.filter(deployments::status.eq(DeploymentStatus::Running.as_str()));
            let rows = rows.order((deployments::used_at.desc(), deployments::id.desc())).limit(most.into());
            all(rows.select(DeploymentRow::as_select()).load(connection).await?)
        };
        self.database.fetch("deployment.running", work).await
    }

    async fn apps_of(&self, id: DeploymentId) -> Result<Vec<AppVersion>, StoreError> {
        self.database.fetch("deployment.apps_of", async |connection| apps::of(connection, id).await).await
    }

    async fn find_app(
        &self,
        project: ProjectId,
        name: &str,
        version: &str,
    ) -> Result<Option<(AppVersion, DeploymentStatus)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| apps::find(connection, project, name, version).await;
        self.database.fetch("deployment.find_app", work).await
    }

    async fn list_apps(
        &self,
        project: ProjectId,
        filter: &AppFilter,
        page: Page,
    ) -> Result<Listed<ListedApp>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| apps::list(connection, project, filter, page).await;
        self.database.fetch("deployment.list_apps", work).await
    }

    async fn unbuilt(&self, ids: &[DeploymentId]) -> Result<Vec<DeploymentId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let ids: Vec<Uuid> = ids.iter().map(|id| uuid(id.ulid())).collect();
            let rows = deployments::table.filter(deployments::id.eq_any(ids));
            let rows = rows.filter(deployments::status.eq_any(UNBUILT)).select(deployments::id);
            let found: Vec<Uuid> = rows.load(connection).await?;
            Ok(found.into_iter().map(|id| DeploymentId::from_ulid(crate::convert::ulid(id))).collect())
        };
        self.database.fetch("deployment.unbuilt", work).await
    }

    async fn release_artifacts(&self, before: OffsetDateTime, most: u32) -> Result<Vec<String>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let statement = diesel::sql_query(
                "WITH spent AS (
                     SELECT d.artifact FROM deployments d
                     WHERE d.artifact IS NOT NULL
                     GROUP BY d.artifact
                     HAVING bool_and(d.status IN ('failed', 'stopped') AND d.updated_at < $1
                         AND NOT EXISTS (
                             SELECT 1 FROM deployments o
                             WHERE o.project_id = d.project_id AND o.status IN ('queued', 'in_progress')))
                     LIMIT $2
                 )
                 UPDATE deployments SET artifact = NULL FROM spent WHERE deployments.artifact = spent.artifact
                 RETURNING spent.artifact",
            );
            let statement = statement.bind::<sql_types::Timestamptz, _>(before);
            let rows: Vec<Spent> = statement.bind::<sql_types::BigInt, _>(i64::from(most)).load(connection).await?;
            let mut found: Vec<String> = rows.into_iter().map(|row| row.artifact).collect();
            found.sort_unstable();
            found.dedup();
            Ok(found)
        };
        self.database.call("deployment.release_artifacts", work).await
    }

    async fn unnamed_artifacts(&self, artifacts: &[String]) -> Result<Vec<String>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let statement = diesel::sql_query(
                "SELECT asked.artifact FROM unnest($1) AS asked (artifact)
                 WHERE NOT EXISTS (SELECT 1 FROM deployments d WHERE d.artifact = asked.artifact)",
            );
            let rows: Vec<Spent> =
                statement.bind::<sql_types::Array<sql_types::Text>, _>(artifacts).load(connection).await?;
            Ok(rows.into_iter().map(|row| row.artifact).collect())
        };
        self.database.fetch("deployment.unnamed_artifacts", work).await
    }

    async fn sealed_with_other_key(&self, key: KeyId, most: u32) -> Result<Vec<SealedDeploymentSecret>, StoreError> {
        let work =
            async |connection: &mut AsyncPgConnection| secrets::sealed_with_other_key(connection, key, most).await;
        self.database.fetch("deployment.sealed_otherwise", work).await
    }

    async fn reseal(&self, current: &SealedDeploymentSecret, next: &[u8]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| secrets::reseal(connection, current, next).await;
        self.database.call("deployment.reseal", work).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        self.database.fetch("deployment.keys", async |connection| secrets::keys(connection).await).await
    }
}

#[derive(QueryableByName)]
struct Spent {
    #[diesel(sql_type = sql_types::Text)]
    artifact: String,
}
