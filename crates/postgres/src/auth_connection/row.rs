//! Rows of connections and flows, and what of the domain they are.

use casement_domain::auth_connection::{
    AuthConnection, ConnectionChange, ConnectionStatus, CredentialRef, Flow, FlowKind, FlowRequirement, FlowStatus,
    FlowStep, Settings,
};
use casement_domain::login_page::HostPattern;
use casement_domain::{AuthConnectionId, AuthFlowId, NodeId, OrganizationId, ProfileId, ProjectId, ProxyId, SessionId};
use diesel::prelude::*;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::details::Details;
use crate::convert::{by_text, int, number, ulid, unreadable, uuid};
use crate::error::BadRow;
use crate::schema::{auth_connections, auth_flows, profiles, projects};

#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = auth_connections, check_for_backend(diesel::pg::Pg))]
pub(super) struct ConnectionRow {
    pub(super) id: Uuid,
    pub(super) project_id: Uuid,
    profile_id: Uuid,
    proxy_id: Option<Uuid>,
    domain: String,
    status: String,
    allowed_domains: Vec<String>,
    auto_reauth: bool,
    health_checks: bool,
    health_check_interval_seconds: i32,
    record_session: bool,
    save_credentials: bool,
    pub(super) credential_name: Option<String>,
    credential_provider: Option<String>,
    credential_path: Option<String>,
    login_url: Option<String>,
    needs: Option<Vec<String>>,
    last_check_at: Option<OffsetDateTime>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    organization_credential: bool,
    #[diesel(select_expression = projects::organization_id)]
    organization_id: Uuid,
    #[diesel(select_expression = profiles::name)]
    profile_name: Option<String>,
}

impl TryFrom<ConnectionRow> for AuthConnection {
    type Error = BadRow;

    fn try_from(row: ConnectionRow) -> Result<Self, BadRow> {
        let credential = whole(row.credential_name, row.credential_provider, row.credential_path);
        let (status, interval) = ("auth_connections.status", "auth_connections.health_check_interval_seconds");
        Ok(Self {
            id: AuthConnectionId::from_ulid(ulid(row.id)),
            project: ProjectId::from_ulid(ulid(row.project_id)),
            organization: OrganizationId::from_ulid(ulid(row.organization_id)),
            domain: row.domain,
            profile: ProfileId::from_ulid(ulid(row.profile_id)),
            profile_name: row.profile_name.unwrap_or_default(),
            status: by_text(status, &ConnectionStatus::ALL, ConnectionStatus::as_str, row.status)?,
            settings: Settings {
                allowed_domains: patterns("auth_connections.allowed_domains", &row.allowed_domains)?,
                auto_reauth: row.auto_reauth,
                health_checks: row.health_checks,
                health_check_interval_seconds: number(interval, row.health_check_interval_seconds)?,
                record_session: row.record_session,
                save_credentials: row.save_credentials,
                credential,
                organization_credential: row.organization_credential,
                login_url: row.login_url,
                proxy: row.proxy_id.map(|id| ProxyId::from_ulid(ulid(id))),
            },
            needs: row.needs.map(|needs| needs.iter().filter_map(|text| FlowRequirement::parse(text)).collect()),
            last_check_at: row.last_check_at,
            created_at: row.created_at,
            updated_at: row.updated_at,
            credential: None,
            flow: None,
        })
    }
}

#[derive(Insertable)]
#[diesel(table_name = auth_connections)]
pub(super) struct NewConnection<'a> {
    id: Uuid,
    project_id: Uuid,
    profile_id: Uuid,
    proxy_id: Option<Uuid>,
    domain: &'a str,
    status: &'a str,
    allowed_domains: Vec<String>,
    auto_reauth: bool,
    health_checks: bool,
    health_check_interval_seconds: i32,
    record_session: bool,
    save_credentials: bool,
    credential_name: Option<&'a str>,
    credential_provider: Option<&'a str>,
    credential_path: Option<&'a str>,
    login_url: Option<&'a str>,
    check_taken_at: OffsetDateTime,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    organization_credential: bool,
}

/// What stands for the provider where the item of any is taken: none is called so.
const ANY_PROVIDER: &str = "";

/// Name, provider and path.
pub(super) fn parts(credential: Option<&CredentialRef>) -> (Option<&str>, Option<&str>, Option<&str>) {
    match credential {
        Some(CredentialRef::Named(name)) => (Some(name), None, None),
        Some(CredentialRef::Item { provider, path }) => (None, Some(provider), Some(path)),
        Some(CredentialRef::Auto { provider }) => (None, Some(provider), None),
        Some(CredentialRef::AutoAny) => (None, Some(ANY_PROVIDER), None),
        None => (None, None, None),
    }
}

/// The credential of that name, or provider and path.
pub(super) fn whole(name: Option<String>, provider: Option<String>, path: Option<String>) -> Option<CredentialRef> {
    match (name, provider, path) {
        (Some(name), ..) => Some(CredentialRef::Named(name)),
        (None, Some(provider), Some(path)) => Some(CredentialRef::Item { provider, path }),
        (None, Some(provider), None) if provider == ANY_PROVIDER => Some(CredentialRef::AutoAny),
        (None, Some(provider), None) => Some(CredentialRef::Auto { provider }),
        (None, None, _) => None,
    }
}

pub(super) fn texts(patterns: &[HostPattern]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

pub(super) fn patterns(column: &'static str, texts: &[String]) -> Result<Vec<HostPattern>, BadRow> {
    texts.iter().map(|text| HostPattern::parse(text).map_err(|bad| unreadable(column, &bad))).collect()
}

impl<'a> From<&'a AuthConnection> for NewConnection<'a> {
    fn from(connection: &'a AuthConnection) -> Self {
        let settings = &connection.settings;
        let (credential_name, credential_provider, credential_path) = parts(settings.credential.as_ref());
        Self {
            id: uuid(connection.id.ulid()),
            project_id: uuid(connection.project.ulid()),
            profile_id: uuid(connection.profile.ulid()),
            proxy_id: settings.proxy.map(|id| uuid(id.ulid())),
            domain: &connection.domain,
            status: connection.status.as_str(),
            allowed_domains: texts(&settings.allowed_domains),
            auto_reauth: settings.auto_reauth,
            health_checks: settings.health_checks,
            health_check_interval_seconds: int(settings.health_check_interval_seconds),
            record_session: settings.record_session,
            save_credentials: settings.save_credentials,
            credential_name,
            credential_provider,
            credential_path,
            login_url: settings.login_url.as_deref(),
            check_taken_at: connection.created_at,
            created_at: connection.created_at,
            updated_at: connection.updated_at,
            organization_credential: settings.organization_credential,
        }
    }
}

/// What is absent stays as it is.
#[derive(AsChangeset)]
#[diesel(table_name = auth_connections)]
pub(super) struct ConnectionChanges<'a> {
    proxy_id: Option<Option<Uuid>>,
    allowed_domains: Option<Vec<String>>,
    auto_reauth: Option<bool>,
    health_checks: Option<bool>,
    health_check_interval_seconds: Option<i32>,
    record_session: Option<bool>,
    save_credentials: Option<bool>,
    credential_name: Option<Option<&'a str>>,
    credential_provider: Option<Option<&'a str>>,
    credential_path: Option<Option<&'a str>>,
    login_url: Option<Option<&'a str>>,
    organization_credential: Option<bool>,
    updated_at: OffsetDateTime,
}

impl<'a> ConnectionChanges<'a> {
    pub(super) fn new(change: &'a ConnectionChange, updated_at: OffsetDateTime) -> Self {
        let credential = change.credential.as_ref().map(|credential| parts(credential.as_ref()));
        Self {
            proxy_id: change.proxy.map(|proxy| proxy.map(|id| uuid(id.ulid()))),
            allowed_domains: change.allowed_domains.as_deref().map(texts),
            auto_reauth: change.auto_reauth,
            health_checks: change.health_checks,
            health_check_interval_seconds: change.health_check_interval_seconds.map(int),
            record_session: change.record_session,
            save_credentials: change.save_credentials,
            credential_name: credential.map(|parts| parts.0),
            credential_provider: credential.map(|parts| parts.1),
            credential_path: credential.map(|parts| parts.2),
            login_url: change.login_url.as_ref().map(Option::as_deref),
            organization_credential: change.organization_credential,
            updated_at,
        }
    }
}

#[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = auth_flows, check_for_backend(diesel::pg::Pg), treat_none_as_null = true)]
pub(super) struct FlowRow {
    pub(super) id: Uuid,
    pub(super) connection_id: Uuid,
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) step: String,
    pub(super) revision: i64,
    pub(super) node_id: Option<Uuid>,
    pub(super) session_id: Uuid,
    pub(super) open: bool,
    pub(super) details: Value,
    pub(super) submission: Option<Vec<u8>>,
    pub(super) entered: Option<Vec<u8>>,
    pub(super) handoff: Option<Vec<u8>>,
    pub(super) page_key: Option<Vec<u8>>,
    pub(super) expires_at: OffsetDateTime,
    pub(super) created_at: OffsetDateTime,
    pub(super) updated_at: OffsetDateTime,
}

impl From<&Flow> for FlowRow {
    fn from(flow: &Flow) -> Self {
        Self {
            id: uuid(flow.id.ulid()),
            connection_id: uuid(flow.connection.ulid()),
            kind: flow.kind.as_str().to_owned(),
            status: flow.status.as_str().to_owned(),
            step: flow.step.as_str().to_owned(),
            revision: flow.revision,
            node_id: flow.node.map(|id| uuid(id.ulid())),
            session_id: uuid(flow.session.ulid()),
            open: flow.open,
            details: Details::of(flow).to_json(),
            submission: flow.submission.clone(),
            entered: flow.entered.clone(),
            handoff: flow.handoff.clone(),
            page_key: flow.page_key.map(|hash| hash.to_vec()),
            expires_at: flow.expires_at,
            created_at: flow.created_at,
            updated_at: flow.updated_at,
        }
    }
}

impl TryFrom<FlowRow> for Flow {
    type Error = BadRow;

    fn try_from(row: FlowRow) -> Result<Self, BadRow> {
        let page_key =
            row.page_key.map(|hash| hash.try_into().map_err(|_| BadRow::new("auth_flows.page_key", "not 32 bytes")));
        let kind = by_text("auth_flows.kind", &FlowKind::ALL, FlowKind::as_str, row.kind)?;
        let (id, connection) = (ulid(row.id), ulid(row.connection_id));
        let (id, connection) = (AuthFlowId::from_ulid(id), AuthConnectionId::from_ulid(connection));
        let flow = Self {
            status: by_text("auth_flows.status", &FlowStatus::ALL, FlowStatus::as_str, row.status)?,
            step: by_text("auth_flows.step", &FlowStep::ALL, FlowStep::as_str, row.step)?,
            revision: row.revision,
            node: row.node_id.map(|id| NodeId::from_ulid(ulid(id))),
            open: row.open,
            submission: row.submission,
            entered: row.entered,
            handoff: row.handoff,
            page_key: page_key.transpose()?,
            expires_at: row.expires_at,
            updated_at: row.updated_at,
            ..Self::new(id, connection, kind, SessionId::from_ulid(ulid(row.session_id)), row.created_at)
        };
        Details::read(row.details)?.into_flow(flow)
    }
}
