//! The project.

use time::OffsetDateTime;

use crate::ids::{OrganizationId, ProjectId};
use crate::name::LabelName;
use crate::organization::{Caps, Organization};
use crate::text_enum::text_enum;

text_enum! {
    /// The status of a project.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProjectStatus {
        /// The project accepts new resources.
        Active => "active",
        /// The project accepts no new resources. Existing ones can be read, used and deleted.
        Archived => "archived",
    }
}

/// A container of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// The identifier.
    pub id: ProjectId,
    /// The organization.
    pub organization: OrganizationId,
    /// The name, unique in the organization without regard to case and accents.
    pub name: LabelName,
    /// Whether unscoped requests use this project. Each organization has exactly one such project.
    pub is_default: bool,
    /// The status.
    pub status: ProjectStatus,
    /// The project's own limits; where they are `None`, those of the organization apply.
    pub caps: Caps,
    /// The time of the creation.
    pub created_at: OffsetDateTime,
    /// The time of the last change.
    pub updated_at: OffsetDateTime,
}

impl Project {
    /// The name of the default project.
    pub const DEFAULT_NAME: &str = "default";

    /// Returns the effective limits of this project. Those of the organization apply in addition.
    #[must_use]
    pub fn caps_in_force(&self, organization: &Organization) -> Caps {
        Caps {
            concurrent_sessions: self.caps.concurrent_sessions.or(organization.default_project_max_concurrent_sessions),
            ..self.caps
        }
    }
}
