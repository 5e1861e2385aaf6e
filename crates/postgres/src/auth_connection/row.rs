//! Rows of connections and flows, and their conversion from and to the domain.

use casement_domain::auth_connection::{
    AuthConnection, ConnectionChange, ConnectionStatus, CredentialRef, Flow, FlowKind, FlowStatus, FlowStep, Settings,
};
use casement_domain::login_page::HostPattern;
use casement_domain::{AuthConnectionId, AuthFlowId, NodeId, OrganizationId, ProfileId, ProjectId, ProxyId, SessionId};
use diesel::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::details::Details;
use crate::column::{Column, Stored, row};
use crate::error::BadRow;
use crate::schema::{auth_connections, auth_flows, profiles, projects};

row! {
    #[derive(Debug, Queryable, Selectable)]
    #[diesel(table_name = auth_connections, check_for_backend(diesel::pg::Pg))]
    pub(super) struct ConnectionRow {
        pub(super) id: Column<AuthConnectionId>,
        pub(super) project_id: Column<ProjectId>,
        profile_id: Column<ProfileId>,
        domain: String,
        status: Column<ConnectionStatus>,
        #[diesel(embed)]
        pub(super) settings: SettingsColumns,
        needs: Option<Vec<String>>,
        last_check_at: Option<OffsetDateTime>,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
        #[diesel(select_expression = projects::organization_id)]
        organization_id: Column<OrganizationId>,
        #[diesel(select_expression = profiles::name)]
        profile_name: Option<String>,
    }
}

impl ConnectionRow {
    /// The connection, without its latest login flow and its credential.
    pub(super) fn connection(self) -> Result<AuthConnection, BadRow> {
        Ok(AuthConnection {
            id: self.id.0,
            project: self.project_id.0,
            organization: self.organization_id.0,
            domain: self.domain,
            profile: self.profile_id.0,
            profile_name: self.profile_name.unwrap_or_default(),
            status: self.status.0,
            settings: self.settings.value()?,
            needs: self.needs.value()?,
            last_check_at: self.last_check_at,
            created_at: self.created_at,
            updated_at: self.updated_at,
            credential: None,
            flow: None,
        })
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = auth_connections, check_for_backend(diesel::pg::Pg))]
    pub(super) struct SettingsColumns for Settings {
        allowed_domains: Vec<Column<HostPattern>>,
        auto_reauth: bool,
        health_checks: bool,
        health_check_interval_seconds: Column<u32>,
        record_session: bool,
        save_credentials: bool,
        #[diesel(embed)]
        pub(super) credential: CredentialColumns,
        organization_credential: bool,
        login_url: Option<String>,
        proxy: Option<Column<ProxyId>> as proxy_id,
    }
}

row! {
    /// An absent field leaves its column unchanged.
    #[derive(AsChangeset)]
    #[diesel(table_name = auth_connections)]
    pub(super) struct ChangeRow for ConnectionChange {
        allowed_domains: Option<Vec<Column<HostPattern>>>,
        auto_reauth: Option<bool>,
        health_checks: Option<bool>,
        health_check_interval_seconds: Option<Column<u32>>,
        record_session: Option<bool>,
        save_credentials: Option<bool>,
        #[diesel(embed)]
        credential: Option<CredentialColumns>,
        organization_credential: Option<bool>,
        login_url: Option<Option<String>>,
        proxy: Option<Option<Column<ProxyId>>> as proxy_id,
    }
}

#[derive(Insertable)]
#[diesel(table_name = auth_connections)]
pub(super) struct NewConnection<'a> {
    id: Column<AuthConnectionId>,
    project_id: Column<ProjectId>,
    profile_id: Column<ProfileId>,
    domain: &'a str,
    status: Column<ConnectionStatus>,
    #[diesel(embed)]
    settings: SettingsColumns,
    check_taken_at: OffsetDateTime,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

impl<'a> From<&'a AuthConnection> for NewConnection<'a> {
    fn from(connection: &'a AuthConnection) -> Self {
        Self {
            id: Column(connection.id),
            project_id: Column(connection.project),
            profile_id: Column(connection.profile),
            domain: &connection.domain,
            status: Column(connection.status),
            settings: SettingsColumns::of(&connection.settings),
            check_taken_at: connection.created_at,
            created_at: connection.created_at,
            updated_at: connection.updated_at,
        }
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Default, Insertable, AsChangeset, Serialize, Deserialize)]
    #[diesel(table_name = auth_connections, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    /// The reference to a credential: its name, or a provider and the path of an item there.
    pub(super) struct CredentialColumns {
        pub(super) credential_name: Option<String>,
        credential_provider: Option<String>,
        credential_path: Option<String>,
    }
}

/// The stored provider name for an item of any provider. No provider has an empty name.
const ANY_PROVIDER: &str = "";

impl Stored<Option<CredentialRef>> for CredentialColumns {
    fn of(credential: &Option<CredentialRef>) -> Self {
        let (credential_name, credential_provider, credential_path) = match credential.clone() {
            Some(CredentialRef::Named(name)) => (Some(name), None, None),
            Some(CredentialRef::Item { provider, path }) => (None, Some(provider), Some(path)),
            Some(CredentialRef::Auto { provider }) => (None, Some(provider), None),
            Some(CredentialRef::AutoAny) => (None, Some(ANY_PROVIDER.to_owned()), None),
            None => (None, None, None),
        };
        Self { credential_name, credential_provider, credential_path }
    }

    fn value(self) -> Result<Option<CredentialRef>, BadRow> {
        Ok(match (self.credential_name, self.credential_provider, self.credential_path) {
            (Some(name), ..) => Some(CredentialRef::Named(name)),
            (None, Some(provider), Some(path)) => Some(CredentialRef::Item { provider, path }),
            (None, Some(provider), None) if provider == ANY_PROVIDER => Some(CredentialRef::AutoAny),
            (None, Some(provider), None) => Some(CredentialRef::Auto { provider }),
            (None, None, _) => None,
        })
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = auth_flows, check_for_backend(diesel::pg::Pg), treat_none_as_null = true)]
    pub(super) struct FlowRow {
        id: Column<AuthFlowId>,
        pub(super) connection_id: Column<AuthConnectionId>,
        kind: Column<FlowKind>,
        status: Column<FlowStatus>,
        step: Column<FlowStep>,
        pub(super) revision: i64,
        node_id: Option<Column<NodeId>>,
        session_id: Column<SessionId>,
        open: bool,
        details: Value,
        submission: Option<Vec<u8>>,
        entered: Option<Vec<u8>>,
        handoff: Option<Vec<u8>>,
        page_key: Option<Column<[u8; 32]>>,
        expires_at: OffsetDateTime,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
    }
}

impl Stored<Flow> for FlowRow {
    fn of(flow: &Flow) -> Self {
        Self {
            id: Column(flow.id),
            connection_id: Column(flow.connection),
            kind: Column(flow.kind),
            status: Column(flow.status),
            step: Column(flow.step),
            revision: flow.revision,
            node_id: flow.node.map(Column),
            session_id: Column(flow.session),
            open: flow.open,
            details: Details::of(flow).to_json(),
            submission: flow.submission.clone(),
            entered: flow.entered.clone(),
            handoff: flow.handoff.clone(),
            page_key: flow.page_key.map(Column),
            expires_at: flow.expires_at,
            created_at: flow.created_at,
            updated_at: flow.updated_at,
        }
    }

    fn value(self) -> Result<Flow, BadRow> {
        let flow = Flow {
            status: self.status.0,
            step: self.step.0,
            revision: self.revision,
            node: self.node_id.map(|id| id.0),
            open: self.open,
            submission: self.submission,
            entered: self.entered,
            handoff: self.handoff,
            page_key: self.page_key.map(|key| key.0),
            expires_at: self.expires_at,
            updated_at: self.updated_at,
            ..Flow::new(self.id.0, self.connection_id.0, self.kind.0, self.session_id.0, self.created_at)
        };
        Details::read(self.details)?.into_flow(flow)
    }
}
