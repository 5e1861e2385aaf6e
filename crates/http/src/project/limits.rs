//! The limits of a project, and of the organization.

use actix_web::http::StatusCode;
use casement_domain::{
    auth_connection::Settings,
    organization::{Caps, Organization, OrganizationUsage},
};
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer},
    json::nullable,
    request::{AnyKey, OrganizationKey, Request},
    schema::ToSchema,
};

/// The limits of a project; null: only the organization's own limit applies.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProjectLimitsBody {
    /// The maximum number of sessions on demand plus the sizes of all pools.
    max_concurrent_sessions: Option<u32>,
    /// The maximum number of queued and running invocations.
    max_concurrent_invocations: Option<u32>,
    /// The maximum sum of the sizes of all pools.
    max_pooled_sessions: Option<u32>,
}

impl From<Caps> for ProjectLimitsBody {
    fn from(caps: Caps) -> Self {
        Self {
            max_concurrent_sessions: caps.concurrent_sessions,
            max_concurrent_invocations: caps.concurrent_invocations,
            max_pooled_sessions: caps.pooled_sessions,
        }
    }
}

/// The limits to set: an absent field leaves a limit unchanged, null or 0 removes it.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ProjectLimitsChanges {
    /// The maximum number of sessions on demand plus the sizes of all pools.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    max_concurrent_sessions: Option<Option<i64>>,
    /// The maximum number of queued and running invocations.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    max_concurrent_invocations: Option<Option<i64>>,
    /// The maximum sum of the sizes of all pools.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    max_pooled_sessions: Option<Option<i64>>,
}

/// The limits of the organization, and the default limit of its projects; null: no limit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OrganizationLimitsBody {
    /// The maximum number of sessions on demand plus the sizes of all pools. Set by the operator of the server.
    max_concurrent_sessions: Option<u32>,
    /// The `max_concurrent_sessions` of projects that have no such limit of their own.
    default_project_max_concurrent_sessions: Option<u32>,
    /// The maximum number of queued and running invocations. Set by the operator of the server.
    max_concurrent_invocations: Option<u32>,
    /// The maximum sum of the sizes of all pools. Set by the operator of the server.
    max_pooled_sessions: Option<u32>,
    /// The sessions on demand plus the sizes of all pools now.
    concurrent_sessions_used: u32,
    /// The sessions that may still be started; null: no limit.
    concurrent_sessions_available: Option<u32>,
    /// The number of auth connections in all projects.
    auth_connections_used: u32,
    /// The maximum number of auth connections in all projects. Always null: only each project has a maximum, set by the
    /// operator of the server.
    max_auth_connections: Option<u32>,
    /// The minimum of `health_check_interval` of an auth connection, in seconds.
    min_health_check_interval_seconds: u32,
    /// Always 0: this server has no vaults.
    vaults_used: u32,
    /// Always 0: this server has no vaults.
    max_vaults: u32,
}

impl OrganizationLimitsBody {
    fn new(organization: Organization, usage: OrganizationUsage) -> Self {
        let used = usage.limited.sessions();
        Self {
            concurrent_sessions_used: used,
            concurrent_sessions_available: organization.caps.concurrent_sessions.map(|max| max.saturating_sub(used)),
            auth_connections_used: usage.auth_connections,
            max_auth_connections: None,
            min_health_check_interval_seconds: Settings::MIN_INTERVAL,
            vaults_used: 0,
            max_vaults: 0,
            max_concurrent_sessions: organization.caps.concurrent_sessions,
            default_project_max_concurrent_sessions: organization.default_project_max_concurrent_sessions,
            max_concurrent_invocations: organization.caps.concurrent_invocations,
            max_pooled_sessions: organization.caps.pooled_sessions,
        }
    }
}

/// The limit of the organization that can be set.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OrganizationLimitsChanges {
    /// The `max_concurrent_sessions` of projects that have no such limit of their own. An absent field leaves it
    /// unchanged, null or 0 removes it.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    default_project_max_concurrent_sessions: Option<Option<i64>>,
}

pub(crate) async fn get_project_limits(request: Request<AnyKey>) -> Answer {
    let project = request.project(&request.path("id_or_name")?).await?;
    Ok(answer::record(StatusCode::OK, &ProjectLimitsBody::from(project.caps)))
}

pub(crate) async fn update_project_limits(mut request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id_or_name")?;
    let ProjectLimitsChanges { max_concurrent_sessions, max_concurrent_invocations, max_pooled_sessions } =
        request.json().await?;
    let (sessions, invocations, pooled) = (max_concurrent_sessions, max_concurrent_invocations, max_pooled_sessions);
    let projects = &request.services().projects;
    let limits = projects.set_limits(request.organization(), &id, sessions, invocations, pooled).await?;
    Ok(answer::record(StatusCode::OK, &ProjectLimitsBody::from(limits)))
}

pub(crate) async fn get_organization_limits(request: Request<OrganizationKey>) -> Answer {
    let organization = request.services().projects.organization(request.organization()).await?;
    limits(&request, organization).await
}

pub(crate) async fn update_organization_limits(mut request: Request<OrganizationKey>) -> Answer {
    let input = request.json::<OrganizationLimitsChanges>().await?;
    let value = input.default_project_max_concurrent_sessions;
    let organization = request.services().projects.set_default_sessions(request.organization(), value).await?;
    limits(&request, organization).await
}

async fn limits(request: &Request<OrganizationKey>, organization: Organization) -> Answer {
    let usage = request.services().projects.usage(request.organization()).await?;
    Ok(answer::record(StatusCode::OK, &OrganizationLimitsBody::new(organization, usage)))
}
