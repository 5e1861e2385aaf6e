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
use casement_domain::organization::{Limit, LimitExceeded};
use casement_domain::page::{Listed, Page};
use casement_domain::{AuthConnectionId, AuthFlowId, NodeId, ProjectId, StoreError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{contains, count, uuid};
use crate::credential;
use crate::database::{Database, window};
use crate::error::CallError;
use crate::schema::{auth_connections, auth_flows, profiles, projects, proxies};
use row::{ConnectionChanges, ConnectionRow, FlowRow, NewConnection};

/// What keeps a profile from having two connections to a domain.
const EXISTS_KEY: &str = "auth_connections_profile_id_domain_key";

/// The channel on which every node hears that a connection's flows have changed; what is said there is the connection's id.
pub const AUTH_CHANNEL: &str = "casement_auth";

/// Auth connections in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgAuthConnections {
    database: Database,
}

impl PgAuthConnections {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

/// The connections of these rows, each with its latest login and its credential.
async fn complete(
    connection: &mut AsyncPgConnection,
    rows: Vec<ConnectionRow>,
) -> Result<Vec<AuthConnection>, CallError> {
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut flows: HashMap<Uuid, FlowRow> =
        flows::latest(connection, &ids).await?.into_iter().map(|row| (row.connection_id, row)).collect();
    let named: Vec<(Uuid, String)> =
        rows.iter().filter_map(|row| Some((row.project_id, row.credential_name.clone()?))).collect();
    let mut found = credential::named(connection, &named).await?.into_iter();
    rows.into_iter()
        .map(|row| {
            let flow = flows.remove(&row.id).map(Flow::try_from).transpose()?.map(Box::new);
            let credential = if row.credential_name.is_some() { found.next().flatten() } else { None };
            Ok(AuthConnection { flow, credential, ..row.try_into()? })
        })
        .collect()
}

/// Holds the profile or proxy that a connection is to name, so that it stays; whether it is there.
macro_rules! hold {
    ($connection:expr, $table:ident, $id:expr) => {{
        let row = $table::table.find($id).filter($table::deleted_at.is_null()).select($table::id);
        let held: Option<Uuid> = row.for_share().get_result($connection).await.optional()?;
        held.is_some()
    }};
}

/// One connection.
async fn one(connection: &mut AsyncPgConnection, id: Uuid) -> Result<Option<AuthConnection>, CallError> {
    let rows = auth_connections::table.inner_join(projects::table).inner_join(profiles::table);
    let rows = rows.filter(auth_connections::id.eq(id)).select(ConnectionRow::as_select());
    let rows = rows.load(connection).await?;
    Ok(complete(connection, rows).await?.pop())
}

#[async_trait]
impl AuthConnectionRepository for PgAuthConnections {
    async fn create(&self, new: &AuthConnection, most: u32) -> Result<ConnectionStored, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let project = uuid(new.project.ulid());
            // Held, so that two do not both take the last place, and the project is not deleted meanwhile.
            let owner = projects::table.find(project).filter(projects::deleted_at.is_null());
            let owner: Option<Uuid> =
                owner.select(projects::id).for_no_key_update().get_result(connection).await.optional()?;
            if owner.is_none() {
                return Ok(ConnectionStored::ProjectGone);
            }
            if !hold!(connection, profiles, uuid(new.profile.ulid())) {
                return Ok(ConnectionStored::ReferenceGone("profile_name"));
            }
            if let Some(proxy) = new.settings.proxy
                && !hold!(connection, proxies, uuid(proxy.ulid()))
            {
                return Ok(ConnectionStored::ReferenceGone("proxy"));
            }
            if let Some(named) = &new.settings.credential
                && !names::hold(connection, project, named).await?
            {
                return Ok(ConnectionStored::ReferenceGone("credential"));
            }
            let used = auth_connections::table.filter(auth_connections::project_id.eq(project)).count();
            let used = count(used.get_result(connection).await?);
            if used >= most {
                let limit = LimitExceeded { limit: Limit::ProjectAuthConnections, value: most, used, requested: 1 };
                return Ok(ConnectionStored::LimitExceeded(limit));
            }
            diesel::insert_into(auth_connections::table).values(NewConnection::from(new)).execute(connection).await?;
            Ok(ConnectionStored::Yes)
        };
        let exists = |error: CallError| {
            if error.violated() == Some(EXISTS_KEY) { Ok(ConnectionStored::Exists) } else { Err(error) }
        };
        self.database.transaction_or("auth_connection.create", work, exists).await
    }

    async fn find(&self, project: ProjectId, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError> {
        Ok(self.any(id).await?.filter(|found| found.project == project))
    }

    async fn any(&self, id: AuthConnectionId) -> Result<Option<AuthConnection>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| one(connection, uuid(id.ulid())).await;
        // Who sees a login that has ended sees what it did to its connection.
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
            let mut rows = rows.filter(auth_connections::project_id.eq(uuid(project.ulid()))).into_boxed();
            if let Some(domain) = &filter.domain {
                rows = rows.filter(auth_connections::domain.eq(domain.to_lowercase()));
            }
            if let Some(name) = &filter.profile_name {
                rows = rows.filter(profiles::name.eq(name));
            }
            if let Some(query) = &filter.query {
                let texts = contains("auth_connections.domain", query).or(contains("profiles.name", query));
                rows = match query.parse::<AuthConnectionId>() {
                    Ok(id) => rows.filter(texts.or(auth_connections::id.eq(uuid(id.ulid())))),
                    Err(_) => rows.filter(texts),
                };
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
            let row = auth_connections::table.find(uuid(id.ulid()));
            let project: Option<Uuid> =
                row.select(auth_connections::project_id).get_result(connection).await.optional()?;
            let Some(project) = project else { return Ok(ConnectionUpdated::NotFound) };
            if let Some(Some(proxy)) = change.proxy
                && !hold!(connection, proxies, uuid(proxy.ulid()))
            {
                return Ok(ConnectionUpdated::ReferenceGone("proxy"));
            }
            if let Some(Some(named)) = &change.credential
                && !names::hold(connection, project, named).await?
            {
                return Ok(ConnectionUpdated::ReferenceGone("credential"));
            }
            diesel::update(row).set(ConnectionChanges::new(change, at)).execute(connection).await?;
            let found = one(connection, uuid(id.ulid())).await?;
            Ok(found.map_or(ConnectionUpdated::NotFound, |found| ConnectionUpdated::Yes(Box::new(found))))
        };
        self.database.transaction("auth_connection.update", work).await
    }

    async fn delete(&self, id: AuthConnectionId) -> Result<Option<ConnectionDeleted>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = uuid(id.ulid());
            let row = auth_connections::table.find(id).select(auth_connections::id);
            // First the connection, then its flows: as whoever begins one.
            let held: Option<Uuid> = row.for_update().get_result(connection).await.optional()?;
            if held.is_none() {
                return Ok(None);
            }
            let sessions = flows::cancel(connection, id).await?;
            diesel::delete(auth_connections::table.find(id)).execute(connection).await?;
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
        let work = async |connection: &mut AsyncPgConnection| {
            let row = auth_flows::table.find(uuid(id.ulid())).select(FlowRow::as_select());
            Ok(row.get_result(connection).await.optional()?.map(Flow::try_from).transpose()?)
        };
        self.database.fetch("auth_connection.flow", work).await
    }

    async fn put(&self, flow: &Flow) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::put(connection, flow).await;
        self.database.transaction("auth_connection.put", work).await
    }

    async fn end(&self, flow: &Flow, end: &FlowEnd) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = uuid(flow.connection.ulid());
            // First the connection, then its flows.
            let row = auth_connections::table.find(id).select(auth_connections::id);
            let held: Option<Uuid> = row.for_update().get_result(connection).await.optional()?;
            if held.is_none() || !flows::put(connection, flow).await? {
                return Ok(false);
            }
            flows::conclude(connection, flow, end).await?;
            Ok(true)
        };
        self.database.transaction("auth_connection.end", work).await
    }

    async fn closed(&self, id: AuthFlowId) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::closed(connection, uuid(id.ulid())).await;
        self.database.transaction("auth_connection.closed", work).await
    }

    async fn to_carry(&self, node: NodeId) -> Result<Vec<OrphanedFlow>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::to_carry(connection, node).await;
        self.database.fetch("auth_connection.to_carry", work).await
    }

    async fn take(&self, id: AuthFlowId, node: NodeId) -> Result<Option<Flow>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::take(connection, id, node).await;
        self.database.transaction("auth_connection.take", work).await
    }

    async fn let_save(&self, flow: &Flow, over: bool) -> Result<ProfileSavePermission, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::let_save(connection, flow, over).await;
        self.database.transaction("auth_connection.let_save", work).await
    }

    async fn due(&self, now: OffsetDateTime, most: u32) -> Result<Vec<AuthConnection>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let ids = flows::due(connection, now, most).await?;
            let rows = auth_connections::table.inner_join(projects::table).inner_join(profiles::table);
            let rows = rows.filter(auth_connections::id.eq_any(ids)).select(ConnectionRow::as_select());
            let rows = rows.load(connection).await?;
            complete(connection, rows).await
        };
        self.database.transaction("auth_connection.due", work).await
    }

    async fn forget(&self, before: OffsetDateTime) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| flows::forget(connection, before).await;
        self.database.call("auth_connection.forget", work).await
    }

    async fn timeline(
        &self,
        id: AuthConnectionId,
        kind: Option<FlowKind>,
        page: Page,
    ) -> Result<Listed<TimelineEvent>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let (limit, offset) = window(page);
            let mut rows = auth_flows::table.filter(auth_flows::connection_id.eq(uuid(id.ulid()))).into_boxed();
            if let Some(kind) = kind {
                rows = rows.filter(auth_flows::kind.eq(kind.as_str()));
            }
            let rows = rows.order((auth_flows::created_at.desc(), auth_flows::id.desc())).limit(limit).offset(offset);
            let rows: Vec<FlowRow> = rows.select(FlowRow::as_select()).load(connection).await?;
            let flows = rows.into_iter().map(Flow::try_from).collect::<Result<Vec<_>, _>>()?;
            Ok(page.cut(flows).map(|flow| TimelineEvent { flow }))
        };
        self.database.fetch("auth_connection.timeline", work).await
    }
}
