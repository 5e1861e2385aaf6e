//! The organization and its limits.

use time::OffsetDateTime;

use super::Caps;
use crate::api_key::ApiKey;
use crate::ids::{OrganizationId, UserId};
use crate::name::LabelName;
use crate::project::Project;

/// The owner of projects and API keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organization {
    /// The identifier.
    pub id: OrganizationId,
    /// The name.
    pub name: LabelName,
    /// The limits of the organization.
    pub caps: Caps,
    /// The limit of concurrent sessions of projects that have none of their own; `None`: no limit.
    pub default_project_max_concurrent_sessions: Option<u32>,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
}

impl Organization {
    /// The default limits of a new organization, for one host: 50 sessions, 50 pooled browsers, 100 invocations.
    pub const DEFAULT_CAPS: Caps =
        Caps { concurrent_sessions: Some(50), pooled_sessions: Some(50), concurrent_invocations: Some(100) };
}

/// A person or program that creates API keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The identifier.
    pub id: UserId,
    /// The organization.
    pub organization: OrganizationId,
    /// The e-mail address; may be empty.
    pub email: String,
    /// The name.
    pub name: Option<String>,
}

/// The initial rows of an empty store.
#[derive(Clone, Debug)]
pub struct FirstStart {
    /// The organization.
    pub organization: Organization,
    /// The owner of the organization.
    pub owner: User,
    /// The default project.
    pub project: Project,
    /// The first API key, which gives access to the whole organization.
    pub key: ApiKey,
}
