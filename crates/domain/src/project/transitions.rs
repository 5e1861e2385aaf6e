//! The state machine of a project.

use time::OffsetDateTime;

use super::{Project, ProjectStatus};

use crate::text_enum::text_enum;

text_enum! {
    /// An event of a project.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProjectEvent {
        /// The project accepts new resources again.
        Activate => "activated",
        /// The project accepts no new resources.
        Archive => "archived",
        /// The project is deleted. The store checks that it has no active resources.
        Delete => "deleted",
    }
}

/// The error of archiving or deleting the default project, which requests without a project use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the default project cannot be {}", .0.as_str())]
pub struct ProjectRefused(pub ProjectEvent);

impl Project {
    /// Returns the project after `event` at `now`; `None` if it is deleted. Setting the current status changes nothing.
    ///
    /// # Errors
    /// [`ProjectRefused`] if the default project would be archived or deleted.
    pub fn on(&self, event: ProjectEvent, now: OffsetDateTime) -> Result<Option<Self>, ProjectRefused> {
        let status = match event {
            ProjectEvent::Activate => ProjectStatus::Active,
            ProjectEvent::Archive | ProjectEvent::Delete if self.is_default => return Err(ProjectRefused(event)),
            ProjectEvent::Archive => ProjectStatus::Archived,
            ProjectEvent::Delete => return Ok(None),
        };
        let updated_at = if status == self.status { self.updated_at } else { now };
        Ok(Some(Self { status, updated_at, ..self.clone() }))
    }
}
