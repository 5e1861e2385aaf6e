//! The state machine of a project.

use time::OffsetDateTime;

use super::{Project, ProjectStatus};

use crate::text_enum::text_enum;

text_enum! {
    /// What can happen to a project.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProjectEvent {
        /// It takes new resources again.
        Activate => "activated",
        /// It takes nothing new.
        Archive => "archived",
        /// It goes; whether something of it is still active, the store sees to.
        Delete => "deleted",
    }
}

/// The default project stays, and stays active: requests that name no project need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the default project cannot be {}", .0.as_str())]
pub struct ProjectRefused(pub ProjectEvent);

impl Project {
    /// The project after `event`, at `now`; `None` when it is deleted. The same status again changes nothing.
    ///
    /// # Errors
    /// [`ProjectRefused`], and nothing is changed.
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
