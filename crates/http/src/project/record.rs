//! The record of a project.

use casement_domain::project::Project;
use serde::Serialize;

use crate::{answer::Moment, schema::ToSchema};

/// A project, which contains resources.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProjectBody {
    id: String,
    /// The name, unique in the organization.
    name: String,
    /// `active`, or `archived`: the project accepts no new resources.
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
}

impl From<Project> for ProjectBody {
    fn from(project: Project) -> Self {
        Self {
            id: project.id.to_string(),
            name: project.name.as_str().to_owned(),
            status: project.status.as_str(),
            created_at: Moment(project.created_at),
            updated_at: Moment(project.updated_at),
        }
    }
}
