//! Auth connections and their flows.

mod details;
mod flows;
pub(crate) mod names;
mod row;

use std::collections::HashMap;

use async_trait::async_trait;
use casement_domain::auth_connection::{
    AuthConnection, AuthConnectionRepository, ConnectionChange, ConnectionDeleted, ConnectionFilter, ConnectionStored,
    ConnectionUpdated, Flow, FlowBegun, FlowEnd, FlowKind, OrphanedFlow, ProfileSavePermission, TimelineEvent,
};
use casement_domain::organization::{Limit, admit_one};
use casement_domain::page::{Listed, Page};
use casement_domain::profile::LoadedProfile;
use casement_domain::{AuthConnectionId, AuthFlowId, NodeId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel::sql_types;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::{Column, Stored};
use crate::database::repository;
use crate::error::{CallError, if_violated};
use crate::query::{contains, counted, window};
use crate::schema::{auth_connections, auth_flows, profiles, projects};
use crate::{credential, profile, project, proxy};
use row::{ChangeRow, ConnectionRow, FlowRow, NewConnection};

/// The constraint of one connection per profile and domain.
const EXISTS_KEY: &str = "auth_connections_profile_id_domain_key";

/// The channel on which every node is notified that flows of a connection changed. The payload is the id of the
/// connection.
pub const AUTH_CHANNEL: &str = "casement_auth";

repository! {
    /// Auth connections in PostgreSQL.
    PgAuthConnections
}

/// The connections of these rows, each with its latest login flow and its credential.
async fn complete(
    connection: &mut AsyncPgConnection,
    rows: Vec<ConnectionRow>,
) -> Result<Vec<AuthConnection>, CallError> {
    let ids: Vec<Column<AuthConnectionId>> = rows.iter().map(|row| row.id).collect();
    let mut flows: HashMap<Column<AuthConnectionId>, FlowRow> =
        flows::latest(connection, &ids).await?.into_iter().map(|row| (row.connection_id, row)).collect();
    let name = |row: &ConnectionRow| row.settings.credential.credential_name.clone();
    let named: Vec<(Column<ProjectId>, String)> =
        rows.iter().filter_map(|row| Some((row.project_id, name(row)?))).collect();
    let mut found = credential::named(connection, &named).await?.into_iter();
    rows.into_iter()
        .map(|row| {
            let flow = flows.remove(&row.id).value()?.map(Box::new);
            let credential = if name(&row).is_some() { found.next().flatten() } else { None };
            Ok(AuthConnection { flow, credential, ..row.connection()? })
        })
        .collect()
}

/// The connection with this id, of any project.
async fn one(connection: &mut AsyncPgConnection, id: AuthConnectionId) -> Result<Option<AuthConnection>, CallError> {
    let rows = auth_connections::table.inner_join(projects::table).inner_join(profiles::table);
    let rows = rows.filter(auth_connections::id.eq(Column(id))).select(ConnectionRow::as_select());
    let rows = rows.load(connection).await?;
    Ok(complete(connection, rows).await?.pop())
}

#[async_trait]
impl AuthConnectionRepository for PgAuthConnections {
    async fn create(&self, new: &AuthConnection, max: u32) -> Result<ConnectionStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            if !project::lock(connection, new.project).await? {
                return Ok(ConnectionStored::ProjectGone);
            }
            let profile = LoadedProfile { id: new.profile, version: None, save_changes: false };
            if !profile::lock(connection, Some(profile)).await? {
                return Ok(ConnectionStored::ReferenceGone("profile_name"));
            }
            if !proxy::lock(connection, new.settings.proxy.as_slice()).await? {
                return Ok(ConnectionStored::ReferenceGone("proxy"));
            }
            if let Some(named) = &new.settings.credential
                && !names::lock(connection, Column(new.project), named).await?
            {
                return Ok(ConnectionStored::ReferenceGone("credential"));
            }
            let used = auth_connections::table.filter(auth_connections::project_id.eq(Column(new.project))).count();
            if let Err(refused) = admit_one(Limit::ProjectAuthConnections, max, counted(connection, used).await?) {
                return Ok(ConnectionStored::LimitExceeded(refused));
            }
            diesel::insert_into(auth_connections::table).values(NewConnection::from(new)).execute(connection).await?;
            Ok(ConnectionStored::Yes)
        };
        let exists = if_violated(&[EXISTS_KEY], ConnectionStored::Exists);
        self.database.transaction_or("auth_connection.create", work, exists).await
    }

    async fn find(&self, project: ProjectId, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError> {
        Ok(self.any(id).await?.filter(|found| found.project == project))
    }

    async fn any(&self, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| one(connection, id).await;
        // One snapshot: an ended login is read together with its effect on the connection.
        self.database.snapshot("auth_connection.any", work).await
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &ConnectionFilter,
        page: Page,
    ) -> Result<Listed<AuthConnection>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let rows = auth_connections::table.inner_join(projects::table).inner_join(profiles::table);
            let mut rows = rows.filter(auth_connections::project_id.eq(Column(project))).into_boxed();
            if let Some(domain) = &filter.domain {
                rows = rows.filter(auth_connections::domain.eq(domain.to_lowercase()));
            }
            if let Some(name) = &filter.profile_name {
                rows = rows.filter(profiles::name.eq(name));
            }
            if let Some(query) = &filter.query {
                let texts = contains("auth_connections.domain", query).or(contains("profiles.name", query));
                let ids = query.parse::<AuthConnectionId>().ok().map(Column);
                rows = rows.filter(texts.or(auth_connections::id.eq_any(ids)));
            }
            let order = (auth_connections::created_at.desc(), auth_connections::id.desc());
            let rows = rows.order(order).limit(limit).offset(offset);
            let rows = rows.select(ConnectionRow::as_select()).load(connection).await?;
            Ok(page.cut(complete(connection, rows).await?))
        };
        self.database.snapshot("auth_connection.list", work).await
    }

    async fn update(
        &self,
        id: AuthConnectionId,
        change: &ConnectionChange,
        at: OffsetDateTime,
    ) -> Result<ConnectionUpdated, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = auth_connections::table.find(Column(id));
            let project: Option<Column<ProjectId>> =
                row.select(auth_connections::project_id).get_result(connection).await.optional()?;
            let Some(project) = project else { return Ok(ConnectionUpdated::NotFound) };
            if !proxy::lock(connection, change.proxy.flatten().as_slice()).await? {
                return Ok(ConnectionUpdated::ReferenceGone("proxy"));
            }
            if let Some(Some(named)) = &change.credential
                && !names::lock(connection, project, named).await?
            {
                return Ok(ConnectionUpdated::ReferenceGone("credential"));
            }
            let changed = (ChangeRow::of(change), auth_connections::updated_at.eq(at));
            diesel::update(row).set(changed).execute(connection).await?;
            let found = one(connection, id).await?;
            Ok(found.map_or(ConnectionUpdated::NotFound, |found| ConnectionUpdated::Yes(Box::new(found))))
        };
        self.database.transaction("auth_connection.update", work).await
    }

    async fn delete(&self, id: AuthConnectionId) -> Result<Option<ConnectionDeleted>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Locks the connection before its flows, in the same order as `begin`.
            if !flows::lock(connection, id).await? {
                return Ok(None);
            }
            let sessions = flows::cancel(connection, id).await?;
            diesel::delete(auth_connections::table.find(Column(id))).execute(connection).await?;
            flows::report(connection, id).await?;
            Ok(Some(ConnectionDeleted { sessions }))
        };
        self.database.transaction("auth_connection.delete", work).await
    }

    async fn begin(&self, flow: &Flow) -> Result<FlowBegun, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::begin(connection, flow).await;
        self.database.transaction("auth_connection.begin", work).await
    }

    async fn flow(&self, id: AuthFlowId) -> Result<Option<Flow>, StoreError> {
        let row = auth_flows::table.find(Column(id)).select(FlowRow::as_select());
        self.database.find("auth_connection.flow", row).await
    }

    async fn put(&self, flow: &Flow) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::put(connection, flow).await;
        self.database.transaction("auth_connection.put", work).await
    }

    async fn end(&self, flow: &Flow, end: &FlowEnd) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Locks the connection before its flows.
            if !flows::lock(connection, flow.connection).await? || !flows::put(connection, flow).await? {
                return Ok(false);
            }
            flows::conclude(connection, flow, end).await?;
            Ok(true)
        };
        self.database.transaction("auth_connection.end", work).await
    }

    async fn closed(&self, id: AuthFlowId) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::closed(connection, id).await;
        self.database.transaction("auth_connection.closed", work).await
    }

    async fn orphaned_flows(&self, node: NodeId) -> Result<Vec<OrphanedFlow>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::orphaned_flows(connection, node).await;
        self.database.fetch("auth_connection.orphaned_flows", work).await
    }

    async fn take(&self, id: AuthFlowId, node: NodeId) -> Result<Option<Flow>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::take(connection, id, node).await;
        self.database.transaction("auth_connection.take", work).await
    }

    async fn permit_save(&self, flow: &Flow, over: bool) -> Result<ProfileSavePermission, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::permit_save(connection, flow, over).await;
        self.database.transaction("auth_connection.permit_save", work).await
    }

    async fn due(&self, now: OffsetDateTime, max: u32) -> Result<Vec<AuthConnection>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let ids = flows::due(connection, now, max).await?;
            let rows = auth_connections::table.inner_join(projects::table).inner_join(profiles::table);
            let rows = rows.filter(auth_connections::id.eq_any(ids)).select(ConnectionRow::as_select());
            let rows = rows.load(connection).await?;
            complete(connection, rows).await
        };
        self.database.transaction("auth_connection.due", work).await
    }

    async fn forget(&self, before: OffsetDateTime) -> Result<(), StoreError> {
        let forgetting = diesel::sql_query(flows::FORGET).bind::<sql_types::Timestamptz, _>(before);
        let forgetting = forgetting.bind::<sql_types::BigInt, _>(flows::MAX_FORGOTTEN);
        self.database.change("auth_connection.forget", forgetting).await
    }

    async fn timeline(
        &self,
        id: AuthConnectionId,
        kind: Option<FlowKind>,
        page: Page,
    ) -> Result<Listed<TimelineEvent>, StoreError> {
        let mut rows = auth_flows::table.filter(auth_flows::connection_id.eq(Column(id))).into_boxed();
        if let Some(kind) = kind {
            rows = rows.filter(auth_flows::kind.eq(Column(kind)));
        }
        let rows = rows.order((auth_flows::created_at.desc(), auth_flows::id.desc()));
        let flows = self.database.page("auth_connection.timeline", page, rows.select(FlowRow::as_select())).await?;
        Ok(flows.map(|flow| TimelineEvent { flow }))
    }
}
