//! The apps that deployments registered.

use casement_domain::deployment::{AppFilter, AppVersion, Deployment, DeploymentEvent, DeploymentStatus, ListedApp};
use casement_domain::name::LabelName;
use casement_domain::page::{Listed, Page};
use casement_domain::{AppVersionId, DeploymentId, ProjectId};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use super::rows::DeploymentRow;
use crate::convert::{by_text, contains, label, ulid, uuid};
use crate::database::window;
use crate::error::{BadRow, CallError};
use crate::schema::{app_versions, deployments};

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = app_versions, check_for_backend(diesel::pg::Pg))]
struct AppRow {
    id: Uuid,
    project_id: Uuid,
    deployment_id: Uuid,
    app_name: String,
    version: String,
    region: String,
    actions: Vec<String>,
    created_at: OffsetDateTime,
}

impl From<&AppVersion> for AppRow {
    fn from(app: &AppVersion) -> Self {
        Self {
            id: uuid(app.id.ulid()),
            project_id: uuid(app.project.ulid()),
            deployment_id: uuid(app.deployment.ulid()),
            app_name: app.name.as_str().to_owned(),
            version: app.version.clone(),
            region: app.region.clone(),
            actions: app.actions.iter().map(|action| action.as_str().to_owned()).collect(),
            created_at: app.created_at,
        }
    }
}

impl TryFrom<AppRow> for AppVersion {
    type Error = BadRow;

    fn try_from(row: AppRow) -> Result<Self, BadRow> {
        Ok(Self {
            id: AppVersionId::from_ulid(ulid(row.id)),
            project: ProjectId::from_ulid(ulid(row.project_id)),
            deployment: DeploymentId::from_ulid(ulid(row.deployment_id)),
            name: label("app_versions.app_name", &row.app_name)?,
            version: row.version,
            region: row.region,
            actions: row
                .actions
                .iter()
                .map(|action| label("app_versions.actions", action))
                .collect::<Result<Vec<LabelName>, _>>()?,
            created_at: row.created_at,
        })
    }
}

/// The deployments that must give way before these apps can be registered, each as it is and as it will be; or the name of an app that
/// does not give way. Their rows are held.
pub(super) async fn obstacles(
    connection: &mut AsyncPgConnection,
    next: &Deployment,
    apps: &[AppVersion],
) -> Result<Result<Vec<(Deployment, Deployment)>, String>, CallError> {
    let names: Vec<&str> = apps.iter().map(|app| app.name.as_str()).collect();
    let rows = app_versions::table.inner_join(deployments::table).filter(app_versions::live);
    let rows = rows.filter(app_versions::project_id.eq(uuid(next.project.ulid())));
    let rows = rows.filter(app_versions::version.eq(&next.version)).filter(app_versions::app_name.eq_any(names));
    let rows = rows.order((app_versions::app_name, app_versions::id));
    let rows = rows.select((app_versions::app_name, DeploymentRow::as_select())).for_update();
    let found: Vec<(String, DeploymentRow)> = rows.load(connection).await?;
    let mut replaced: Vec<(Deployment, Deployment)> = Vec::new();
    for (app, row) in found {
        let older = Deployment::try_from(row)?;
        if replaced.iter().any(|(known, _)| known.id == older.id) {
            continue;
        }
        let gives_way = next.force && (older.created_at, older.id) < (next.created_at, next.id);
        match older.on(&DeploymentEvent::Replaced(next.id), next.updated_at) {
            Ok(ended) if gives_way => replaced.push((older, ended)),
            _ => return Ok(Err(app)),
        }
    }
    Ok(Ok(replaced))
}

pub(super) async fn put(connection: &mut AsyncPgConnection, apps: &[AppVersion]) -> Result<(), CallError> {
    let rows: Vec<_> = apps.iter().map(|app| (AppRow::from(app), app_versions::live.eq(true))).collect();
    diesel::insert_into(app_versions::table).values(rows).execute(connection).await?;
    Ok(())
}

pub(super) async fn of(connection: &mut AsyncPgConnection, id: DeploymentId) -> Result<Vec<AppVersion>, CallError> {
    let rows = app_versions::table.filter(app_versions::deployment_id.eq(uuid(id.ulid()))).order(app_versions::id);
    let rows: Vec<AppRow> = rows.select(AppRow::as_select()).load(connection).await?;
    Ok(rows.into_iter().map(AppVersion::try_from).collect::<Result<_, _>>()?)
}

pub(super) async fn find(
    connection: &mut AsyncPgConnection,
    project: ProjectId,
    name: &str,
    version: &str,
) -> Result<Option<(AppVersion, DeploymentStatus)>, CallError> {
    let rows = app_versions::table.inner_join(deployments::table);
    let rows = rows.filter(app_versions::project_id.eq(uuid(project.ulid())));
    let rows = rows.filter(app_versions::app_name.eq(name)).filter(app_versions::version.eq(version));
    let rows = rows.order((app_versions::live.desc(), app_versions::created_at.desc(), app_versions::id.desc()));
    let row = rows.select((AppRow::as_select(), deployments::status));
    let row: Option<(AppRow, String)> = row.first(connection).await.optional()?;
    let Some((app, status)) = row else { return Ok(None) };
    let status = by_text("deployments.status", &DeploymentStatus::ALL, DeploymentStatus::as_str, status)?;
    Ok(Some((app.try_into()?, status)))
}

pub(super) async fn list(
    connection: &mut AsyncPgConnection,
    project: ProjectId,
    filter: &AppFilter,
    page: Page,
) -> Result<Listed<ListedApp>, CallError> {
    let (limit, offset) = window(page);
    let rows = app_versions::table.inner_join(deployments::table).filter(app_versions::live);
    let mut rows = rows.filter(app_versions::project_id.eq(uuid(project.ulid()))).into_boxed();
    if let Some(name) = &filter.app_name {
        rows = rows.filter(app_versions::app_name.eq(name));
    }
    if let Some(version) = &filter.version {
        rows = rows.filter(app_versions::version.eq(version));
    }
    if let Some(query) = &filter.query {
        rows = rows.filter(contains("app_versions.app_name", query));
    }
    let rows = rows.order((app_versions::created_at.desc(), app_versions::id.desc())).limit(limit).offset(offset);
    let rows = rows.select((AppRow::as_select(), deployments::env_names));
    let found: Vec<(AppRow, Vec<String>)> = rows.load(connection).await?;
    let listed = found.into_iter().map(|(app, env_names)| Ok(ListedApp { app: app.try_into()?, env_names }));
    Ok(page.cut(listed.collect::<Result<_, BadRow>>()?))
}
