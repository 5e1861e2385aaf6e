//! The project: a container of resources with limits of its own.

mod model;
mod ports;

pub use model::{Project, ProjectStatus};
#[cfg(feature = "mocks")]
pub use ports::MockProjectRepository;
pub use ports::ProjectRepository;
