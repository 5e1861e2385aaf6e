//! `/org/projects`, the limits of the organization, and the two routes that `/projects/{id}` still has.

mod deprecated;
mod handlers;
mod limits;
mod record;

#[expect(deprecated, reason = "callers of before still ask for them")]
pub(crate) use self::{
    deprecated::{
        __path_delete_project_deprecated, __path_get_project_deprecated, delete_project_deprecated,
        get_project_deprecated,
    },
    handlers::{
        __path_create_project, __path_delete_project, __path_get_project, __path_list_projects, __path_update_project,
        create_project, delete_project, get_project, list_projects, update_project,
    },
    limits::{
        __path_get_organization_limits, __path_get_project_limits, __path_update_organization_limits,
        __path_update_project_limits, get_organization_limits, get_project_limits, update_organization_limits,
        update_project_limits,
    },
};
