//! The organization and its limits.

use time::OffsetDateTime;

use super::Caps;
use crate::api_key::ApiKey;
use crate::ids::{OrganizationId, UserId};
use crate::name::LabelName;
use crate::project::Project;

/// The owner of projects and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organization {
    /// The identifier.
    pub id: OrganizationId,
    /// For people.
    pub name: LabelName,
    /// What it may have at once.
    pub caps: Caps,
    /// What each of its projects may have at once, unless the project says otherwise; sessions only. `None`: no cap.
    pub default_project_max_concurrent_sessions: Option<u32>,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
}

impl Organization {
    /// The limits of a new organization unless configured: 50 sessions, 50 pooled browsers, 100 invocations, for one host.
    pub const DEFAULT_CAPS: Caps =
        Caps { concurrent_sessions: Some(50), pooled_sessions: Some(50), concurrent_invocations: Some(100) };
}

/// A person or program that keys are made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The identifier.
    pub id: UserId,
    /// Where it belongs.
    pub organization: OrganizationId,
    /// Its address; may be empty.
    pub email: String,
    /// For people.
    pub name: Option<String>,
}

/// What an empty store begins with.
#[derive(Clone, Debug)]
pub struct FirstStart {
    /// The one organization.
    pub organization: Organization,
    /// Its owner.
    pub owner: User,
    /// Its default project.
    pub project: Project,
    /// Its first key, organization-wide.
    pub key: ApiKey,
}
