//! The limits of a project, and of the organization.

use actix_web::http::StatusCode;
use casement_domain::organization::{Caps, Organization};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    json::nullable,
    request::{AnyKey, OrganizationKey, Request},
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
}

impl From<Organization> for OrganizationLimitsBody {
    fn from(organization: Organization) -> Self {
        Self {
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
    let project = request.project(&request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ProjectLimitsBody::from(project.caps)))
}

pub(crate) async fn update_project_limits(mut request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    let ProjectLimitsChanges { max_concurrent_sessions, max_concurrent_invocations, max_pooled_sessions } =
        request.json().await?;
    let (sessions, invocations, pooled) = (max_concurrent_sessions, max_concurrent_invocations, max_pooled_sessions);
    let projects = &request.services().projects;
    let limits = projects.set_limits(request.organization(), &id, sessions, invocations, pooled).await?;
    Ok(answer::record(StatusCode::OK, &ProjectLimitsBody::from(limits)))
}

pub(crate) async fn get_organization_limits(request: Request<OrganizationKey>) -> Answer {
    let organization = request.services().projects.organization(request.organization()).await?;
    Ok(answer::record(StatusCode::OK, &OrganizationLimitsBody::from(organization)))
}

pub(crate) async fn update_organization_limits(mut request: Request<OrganizationKey>) -> Answer {
    let input = request.json::<OrganizationLimitsChanges>().await?;
    let value = input.default_project_max_concurrent_sessions;
    let organization = request.services().projects.set_default_sessions(request.organization(), value).await?;
    Ok(answer::record(StatusCode::OK, &OrganizationLimitsBody::from(organization)))
}
