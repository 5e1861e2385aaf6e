//! The apps of deployments.

use casement_domain::deployment::{AppFilter, AppVersion, Deployment, DeploymentEvent, DeploymentStatus, ListedApp};
use casement_domain::name::LabelName;
use casement_domain::page::{Listed, Page};
use casement_domain::{AppVersionId, DeploymentId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel_async::methods::LoadQuery;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use super::rows::DeploymentRow;
use crate::column::{Column, Stored, row};
use crate::database::Database;
use crate::error::{BadRow, CallError};
use crate::query::contains;
use crate::schema::{app_versions, deployments};

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = app_versions, check_for_backend(diesel::pg::Pg))]
    pub(super) struct AppRow for AppVersion {
        id: Column<AppVersionId>,
        project: Column<ProjectId> as project_id,
        deployment: Column<DeploymentId> as deployment_id,
        name: Column<LabelName> as app_name,
        version: String,
        region: String,
        actions: Vec<Column<LabelName>>,
        created_at: OffsetDateTime,
    }
}

/// An app, and the names of the environment variables of its deployment.
#[derive(Queryable)]
struct ListedRow(AppRow, Vec<String>);

impl Stored<ListedApp> for ListedRow {
    fn of(listed: &ListedApp) -> Self {
        Self(AppRow::of(&listed.app), listed.env_names.clone())
    }

    fn value(self) -> Result<ListedApp, BadRow> {
        Ok(ListedApp { app: self.0.value()?, env_names: self.1 })
    }
}

/// The deployments that these apps replace, each before and after its replacement, or the name of an app that may not
/// be replaced. Locks the rows.
pub(super) async fn obstacles(
    connection: &mut AsyncPgConnection,
    next: &Deployment,
    apps: &[AppVersion],
) -> Result<Result<Vec<(Deployment, Deployment)>, String>, CallError> {
    let names: Vec<&str> = apps.iter().map(|app| app.name.as_str()).collect();
    let rows = app_versions::table.inner_join(deployments::table).filter(app_versions::live);
    let rows = rows.filter(app_versions::project_id.eq(Column(next.project)));
    let rows = rows.filter(app_versions::version.eq(&next.version)).filter(app_versions::app_name.eq_any(names));
    let rows = rows.order((app_versions::app_name, app_versions::id));
    let rows = rows.select((app_versions::app_name, DeploymentRow::as_select())).for_update();
    let found: Vec<(String, DeploymentRow)> = rows.load(connection).await?;
    let mut replaced: Vec<(Deployment, Deployment)> = Vec::new();
    for (app, row) in found {
        let older: Deployment = row.value()?;
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
    let rows: Vec<_> = apps.iter().map(|app| (AppRow::of(app), app_versions::live.eq(true))).collect();
    diesel::insert_into(app_versions::table).values(rows).execute(connection).await?;
    Ok(())
}

pub(super) fn of(id: DeploymentId) -> impl LoadQuery<'static, AsyncPgConnection, AppRow> + Send {
    let rows = app_versions::table.filter(app_versions::deployment_id.eq(Column(id))).order(app_versions::id);
    rows.select(AppRow::as_select())
}

pub(super) async fn find(
    database: &Database,
    project: ProjectId,
    name: &str,
    version: &str,
) -> Result<Option<(AppVersion, DeploymentStatus)>, StoreError> {
    let rows = app_versions::table.inner_join(deployments::table);
    let rows = rows.filter(app_versions::project_id.eq(Column(project)));
    let rows = rows.filter(app_versions::app_name.eq(name)).filter(app_versions::version.eq(version));
    let rows = rows.order((app_versions::live.desc(), app_versions::created_at.desc(), app_versions::id.desc()));
    let row = rows.select((AppRow::as_select(), deployments::status)).limit(1);
    database.find::<(AppRow, Column<DeploymentStatus>), _>("deployment.find_app", row).await
}

pub(super) async fn list(
    database: &Database,
    project: ProjectId,
    filter: &AppFilter,
    page: Page,
) -> Result<Listed<ListedApp>, StoreError> {
    let rows = app_versions::table.inner_join(deployments::table).filter(app_versions::live);
    let mut rows = rows.filter(app_versions::project_id.eq(Column(project))).into_boxed();
    if let Some(name) = &filter.app_name {
        rows = rows.filter(app_versions::app_name.eq(name));
    }
    if let Some(version) = &filter.version {
        rows = rows.filter(app_versions::version.eq(version));
    }
    if let Some(query) = &filter.query {
        rows = rows.filter(contains("app_versions.app_name", query));
    }
    let rows = rows.order((app_versions::created_at.desc(), app_versions::id.desc()));
    let rows = rows.select((AppRow::as_select(), deployments::env_names));
    database.page::<ListedRow, _>("deployment.list_apps", page, rows).await
}
