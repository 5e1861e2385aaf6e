//! The limits of a project, and of the organization.

use actix_web::http::StatusCode;
use casement_domain::organization::{Caps, Organization};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    caller::{Member, OrganizationCaller},
    error::ErrorBody,
    json::nullable,
};

/// What a project may have at once; null: only the organization's own limit counts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProjectLimitsBody {
    /// Sessions on demand plus the sum of the sizes of pools.
    max_concurrent_sessions: Option<u32>,
    /// Invocations queued or running.
    max_concurrent_invocations: Option<u32>,
    /// The sum of the sizes of pools.
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

/// Limits to set: absent keeps one, null or 0 clears it.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ProjectLimitsChanges {
    /// Sessions on demand plus the sum of the sizes of pools.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    max_concurrent_sessions: Option<Option<i64>>,
    /// Invocations queued or running.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    max_concurrent_invocations: Option<Option<i64>>,
    /// The sum of the sizes of pools.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    max_pooled_sessions: Option<Option<i64>>,
}

/// What the organization may have at once, and each of its projects unless the project says otherwise.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OrganizationLimitsBody {
    /// Sessions on demand plus the sum of the sizes of pools. Set by whoever runs the server.
    max_concurrent_sessions: Option<u32>,
    /// What holds for a project without a limit of its own.
    default_project_max_concurrent_sessions: Option<u32>,
    /// Invocations queued or running. Set by whoever runs the server.
    max_concurrent_invocations: Option<u32>,
    /// The sum of the sizes of pools. Set by whoever runs the server.
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

/// What of the organization's limits may be set.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OrganizationLimitsChanges {
    /// What holds for a project without a limit of its own: absent keeps it, null or 0 clears it.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i64>)]
    default_project_max_concurrent_sessions: Option<Option<i64>>,
}

/// The limits of a project.
#[utoipa::path(
    get, path = "/org/projects/{id}/limits", tag = "Projects", params(("id" = String, Path)),
    responses(
        (status = 200, body = ProjectLimitsBody),
        (status = 403, description = "The key is of another project", body = ErrorBody),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = "5XX", description = "They cannot be read now", body = ErrorBody),
    )
)]
pub(crate) async fn get_project_limits(caller: Member) -> Answer {
    let project = caller.project(&caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ProjectLimitsBody::from(project.caps)))
}

/// Sets the limits of a project. They count from the next request, and end nothing.
#[utoipa::path(
    patch, path = "/org/projects/{id}/limits", tag = "Projects", params(("id" = String, Path)),
    request_body = ProjectLimitsChanges,
    responses(
        (status = 200, body = ProjectLimitsBody),
        (status = 400, description = "A limit is above the organization's", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such project", body = ErrorBody),
    )
)]
pub(crate) async fn update_project_limits(mut caller: OrganizationCaller) -> Answer {
    let id = caller.path("id")?;
    let ProjectLimitsChanges { max_concurrent_sessions, max_concurrent_invocations, max_pooled_sessions } =
        caller.json().await?;
    let (sessions, invocations, pooled) = (max_concurrent_sessions, max_concurrent_invocations, max_pooled_sessions);
    let projects = &caller.services().projects;
    let limits = projects.set_limits(caller.organization(), &id, sessions, invocations, pooled).await?;
    Ok(answer::record(StatusCode::OK, &ProjectLimitsBody::from(limits)))
}

/// The limits of the organization.
#[utoipa::path(
    get, path = "/org/limits", tag = "Projects",
    responses(
        (status = 200, body = OrganizationLimitsBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
    )
)]
pub(crate) async fn get_organization_limits(caller: OrganizationCaller) -> Answer {
    let organization = caller.services().projects.organization(caller.organization()).await?;
    Ok(answer::record(StatusCode::OK, &OrganizationLimitsBody::from(organization)))
}

/// Sets what holds for projects without limits of their own.
#[utoipa::path(
    patch, path = "/org/limits", tag = "Projects", request_body = OrganizationLimitsChanges,
    responses(
        (status = 200, body = OrganizationLimitsBody),
        (status = 400, description = "The limit is above the organization's own", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
    )
)]
pub(crate) async fn update_organization_limits(mut caller: OrganizationCaller) -> Answer {
    let wish = caller.json::<OrganizationLimitsChanges>().await?;
    let value = wish.default_project_max_concurrent_sessions;
    let organization = caller.services().projects.set_default_sessions(caller.organization(), value).await?;
    Ok(answer::record(StatusCode::OK, &OrganizationLimitsBody::from(organization)))
}
