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
use casement_domain::organization::{Limit, admit_one};
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

use crate::api_key::ApiKeyRow;
use crate::changes::{self, Change};
use crate::column::{Column, Stored, columns};
use crate::database::Database;
use crate::error::CallError;
use crate::notify::pg_notify;
use crate::query::{contains, counted};
use crate::recent_keys::RecentKeys;
use crate::schema::{api_keys, app_versions, deployment_secrets, deployments};
use crate::sealed::head;
use crate::{organization, project};

/// The channel for changes of deployments and invocations. The payload is `d` or `i`, a colon and the id, with a `+`
/// before it if the subject is new.
#[must_use]
pub fn apps_channel() -> String {
    "casement_apps".to_owned()
}

/// Notifies about a change of the subject when the transaction commits.
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
    recent: RecentKeys,
}

impl PgDeployments {
    /// Creates the repository on this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, recent: RecentKeys::default() }
    }

    /// Clears `recent` when a deployment ends, so that its key is refused at once.
    #[must_use]
    pub fn clearing_cache(self, recent: RecentKeys) -> Self {
        Self { recent, ..self }
    }
}

/// Replaces `current` with `next`, in the caller's transaction. A final status also retires the apps and deletes the
/// API key and the secrets.
async fn store(
    connection: &mut AsyncPgConnection,
    current: &Deployment,
    next: &Deployment,
) -> Result<Replaced, CallError> {
    let id = Column(current.id);
    let row = deployments::table.find(id).filter(deployments::status.eq(current.status.as_str()));
    let number = current.lease.map(|lease| Column(lease.number));
    let row = row.filter(deployments::lease_number.is_not_distinct_from(number));
    let changed = diesel::update(row).set(DeploymentRow::of(next)).execute(connection).await?;
    if changed == 0 {
        return Ok(Replaced::LostRace);
    }
    if next.status.is_final() {
        let apps = app_versions::table.filter(app_versions::deployment_id.eq(id)).filter(app_versions::live);
        diesel::update(apps).set(app_versions::live.eq(false)).execute(connection).await?;
        let key = api_keys::table.find(Column(next.api_key)).filter(api_keys::deleted_at.is_null());
        diesel::update(key).set(api_keys::deleted_at.eq(next.updated_at)).execute(connection).await?;
        let secrets = deployment_secrets::table.filter(deployment_secrets::deployment_id.eq(id));
        diesel::delete(secrets).execute(connection).await?;
        changes::report(connection, Change::Keys).await?;
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
        max: u32,
    ) -> Result<DeploymentStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Locked, so that two transactions do not both use the last unit of the limit, and the project is not
            // deleted meanwhile.
            if organization::lock(connection, organization).await?.is_none()
                || project::not_deleted(connection, organization, deployment.project).await?.is_none()
            {
                return Ok(DeploymentStored::ProjectGone);
            }
            let used = deployments::table.filter(deployments::project_id.eq(Column(deployment.project)));
            let used = used.filter(not(deployments::status.eq_any(ENDED))).count();
            if let Err(refused) = admit_one(Limit::ProjectDeployments, max, counted(connection, used).await?) {
                return Ok(DeploymentStored::LimitExceeded(refused));
            }
            diesel::insert_into(api_keys::table).values(ApiKeyRow::of(key)).execute(connection).await?;
            let row = (DeploymentRow::of(deployment), deployments::used_at.eq(deployment.created_at));
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
        let row = deployments::table.find(Column(id)).select(DeploymentRow::as_select());
        self.database.find("deployment.get", row).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &DeploymentFilter,
        page: Page,
    ) -> Result<Listed<Deployment>, StoreError> {
        let mut rows = deployments::table.filter(deployments::project_id.eq(Column(project))).into_boxed();
        if let Some(name) = &filter.app_name {
            let versions = app_versions::table.filter(app_versions::deployment_id.eq(deployments::id));
            rows = rows.filter(exists(versions.filter(app_versions::app_name.eq(name))));
        }
        if let Some(version) = &filter.app_version {
            rows = rows.filter(deployments::version.eq(version));
        }
        if let Some(query) = &filter.query {
            let versions = app_versions::table.filter(app_versions::deployment_id.eq(deployments::id));
            let named = exists(versions.filter(contains("app_versions.app_name", query)));
            rows = rows.filter(named.or(deployments::id.eq_any(query.parse::<DeploymentId>().ok().map(Column))));
        }
        let rows = rows.order((deployments::created_at.desc(), deployments::id.desc()));
        self.database.page("deployment.list", page, rows.select(DeploymentRow::as_select())).await
    }

    async fn secrets(&self, id: DeploymentId) -> Result<Option<SealedDeployment>, StoreError> {
        self.database.fetch("deployment.secrets", async |connection| secrets::of(connection, id).await).await
    }

    async fn replace(&self, current: &Deployment, next: &Deployment) -> Result<Replaced, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| store(connection, current, next).await;
        let done = self.database.transaction("deployment.replace", work).await;
        if next.status.is_final() {
            self.recent.forget();
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
            // Locked, so that no other deployment of the project registers meanwhile.
            project::lock(connection, current.project).await?;
            let replaced = match apps::obstacles(connection, next, apps).await? {
                Ok(replaced) => replaced,
                Err(app) => return Ok(Registered::VersionExists { app }),
            };
            if store(connection, current, next).await? == Replaced::LostRace {
                return Ok(Registered::LostRace);
            }
            let used = diesel::update(deployments::table.find(Column(next.id)));
            used.set(deployments::used_at.eq(next.updated_at)).execute(connection).await?;
            for (older, ended) in &replaced {
                // The row is locked, so its status cannot have changed.
                let _moved = store(connection, older, ended).await?;
            }
            apps::put(connection, apps).await?;
            Ok(Registered::Yes(replaced.into_iter().map(|(_, ended)| ended).collect()))
        };
        let done = self.database.transaction("deployment.register", work).await;
        self.recent.forget();
        done
    }

    async fn due(
        &self,
        node: NodeId,
        now: OffsetDateTime,
        own_before: OffsetDateTime,
        max: u32,
    ) -> Result<Vec<Deployment>, StoreError> {
        let unowned = deployments::lease_expires_at.is_null().or(deployments::lease_expires_at.le(now));
        let own = deployments::lease_holder.eq(Column(node));
        let own = own.and(deployments::lease_expires_at.lt(own_before));
        let rows = deployments::table.filter(deployments::status.eq_any(UNBUILT));
        let rows = rows.filter(unowned.or(own.assume_not_null()));
        // The first of each project comes before the second of any, so that no project blocks another.
        let nth = sql::<sql_types::BigInt>(
            "row_number() OVER (PARTITION BY deployments.project_id ORDER BY deployments.created_at, deployments.id)",
        );
        let rows = rows.order((nth, deployments::created_at, deployments::id)).limit(max.into());
        self.database.all("deployment.due", rows.select(DeploymentRow::as_select())).await
    }

    async fn renew(&self, id: DeploymentId, number: u32, until: OffsetDateTime) -> Result<bool, StoreError> {
        let row = deployments::table.find(Column(id)).filter(deployments::lease_number.eq(Column(number)));
        let row = row.filter(deployments::status.eq(DeploymentStatus::InProgress.as_str()));
        let longer = diesel::update(row).set(deployments::lease_expires_at.eq(until));
        self.database.changed("deployment.renew", longer).await
    }

    async fn running(&self, max: u32) -> Result<Vec<Deployment>, StoreError> {
        let rows = deployments::table.filter(deployments::status.eq(DeploymentStatus::Running.as_str()));
        let rows = rows.order((deployments::used_at.desc(), deployments::id.desc())).limit(max.into());
        self.database.all("deployment.running", rows.select(DeploymentRow::as_select())).await
    }

    async fn apps_of(&self, id: DeploymentId) -> Result<Vec<AppVersion>, StoreError> {
        self.database.all("deployment.apps_of", apps::of(id)).await
    }

    async fn find_app(
        &self,
        project: ProjectId,
        name: &str,
        version: &str,
    ) -> Result<Option<(AppVersion, DeploymentStatus)>, StoreError> {
        apps::find(&self.database, project, name, version).await
    }

    async fn list_apps(
        &self,
        project: ProjectId,
        filter: &AppFilter,
        page: Page,
    ) -> Result<Listed<ListedApp>, StoreError> {
        apps::list(&self.database, project, filter, page).await
    }

    async fn unbuilt(&self, ids: &[DeploymentId]) -> Result<Vec<DeploymentId>, StoreError> {
        let rows = deployments::table.filter(deployments::id.eq_any(columns(ids)));
        let rows = rows.filter(deployments::status.eq_any(UNBUILT)).select(deployments::id);
        self.database.ids("deployment.unbuilt", rows).await
    }

    async fn release_artifacts(&self, before: OffsetDateTime, max: u32) -> Result<Vec<String>, StoreError> {
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
            let rows: Vec<Spent> = statement.bind::<sql_types::BigInt, _>(i64::from(max)).load(connection).await?;
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

    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<SealedDeploymentSecret>, StoreError> {
        self.database.all("deployment.sealed_otherwise", secrets::under_other_key(key, max)).await
    }

    async fn reseal(&self, current: &SealedDeploymentSecret, next: &[u8]) -> Result<(), StoreError> {
        let row = diesel::update(secrets::stored(current)).set(deployment_secrets::sealed.eq(next));
        self.database.change("deployment.reseal", row).await
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        self.database.keys("deployment.keys", deployment_secrets::table.select(head("sealed")).distinct()).await
    }
}

#[derive(QueryableByName)]
struct Spent {
    #[diesel(sql_type = sql_types::Text)]
    artifact: String,
}
