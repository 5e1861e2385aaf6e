//! The project.

use time::OffsetDateTime;

use crate::ids::{OrganizationId, ProjectId};
use crate::name::LabelName;
use crate::organization::{Caps, Organization};
use crate::text_enum::text_enum;

text_enum! {
    /// Whether a project takes new resources.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProjectStatus {
        /// It does.
        Active => "active",
        /// It does not; what is there can be read, used and removed.
        Archived => "archived",
    }
}

/// A container of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// The identifier.
    pub id: ProjectId,
    /// The project that owns it.
    pub organization: OrganizationId,
    /// For people; unique in the organization, whatever the case and the accents.
    pub name: LabelName,
    /// Whether unscoped requests mean this one; exactly one of an organization.
    pub is_default: bool,
    /// Whether it takes new resources.
    pub status: ProjectStatus,
    /// Its own limits; `None` falls to the organization's.
    pub caps: Caps,
    /// The time of its creation.
    pub created_at: OffsetDateTime,
    /// When it last changed.
    pub updated_at: OffsetDateTime,
}

impl Project {
    /// The name of the default project.
    pub const DEFAULT_NAME: &str = "default";

    /// The caps in force for this project alone; the organization's own come on top.
    #[must_use]
    pub fn caps_in_force(&self, organization: &Organization) -> Caps {
        Caps {
            concurrent_sessions: self.caps.concurrent_sessions.or(organization.default_project_max_concurrent_sessions),
            ..self.caps
        }
    }
}
