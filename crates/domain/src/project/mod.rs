//! The project: a container of resources with limits of its own.

mod model;
mod ports;
mod service;
mod transitions;

pub use model::{Project, ProjectStatus};
#[cfg(feature = "mocks")]
pub use ports::MockProjectRepository;
pub use ports::{ProjectDeleted, ProjectFilter, ProjectReplaced, ProjectRepository, ProjectStored, ResourceCount};
pub use service::MAX_LIMIT;
pub use service::{DeleteProjectError, DeleteProjectFailure, ProjectLimits, Projects, UpdateProjectError};
pub use transitions::{ProjectEvent, ProjectRefused};
