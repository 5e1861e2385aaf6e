//! The routes `/org/projects`, the limits of the organization, and the two removed operations of `/projects/{id}`.

mod deprecated;
mod handlers;
mod limits;
mod record;

pub(crate) use self::handlers::list_projects;
use self::{
    handlers::{CreateProject, ProjectChanges, ProjectListParams},
    limits::{OrganizationLimitsBody, OrganizationLimitsChanges, ProjectLimitsBody, ProjectLimitsChanges},
    record::ProjectBody,
};
use crate::operation::{NAME_TAKEN, Operations};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Projects", "The project does not exist");
    api.post("/org/projects", "create_project", handlers::create_project)
        .summary("Creates a project.")
        .body::<CreateProject>()
        .created::<ProjectBody>()
        .refuses([NAME_TAKEN]);
    api.get("/org/projects", "list_projects", list_projects)
        .summary("Lists projects, newest first.")
        .query::<ProjectListParams>()
        .returns_page::<ProjectBody>();
    api.get("/org/projects/{id_or_name}", "get_project", handlers::get_project)
        .summary("Returns a project, by id or name.")
        .returns::<ProjectBody>();
    api.patch("/org/projects/{id_or_name}", "update_project", handlers::update_project)
        .summary("Updates a project.")
        .body::<ProjectChanges>()
        .returns::<ProjectBody>()
        .refuses([("409", "The name is taken, or the project is the default project")]);
    api.delete("/org/projects/{id_or_name}", "delete_project", handlers::delete_project)
        .summary("Deletes a project in which nothing is active, with its keys.")
        .no_content("Deleted")
        .refuses([("409", "Something of the project is active, or it is the default project")]);
    api.get("/org/projects/{id_or_name}/limits", "get_project_limits", limits::get_project_limits)
        .summary("Returns the limits of a project.")
        .returns::<ProjectLimitsBody>();
    api.patch("/org/projects/{id_or_name}/limits", "update_project_limits", limits::update_project_limits)
        .summary("Sets the limits of a project. They apply from the next request on, and end nothing.")
        .body::<ProjectLimitsChanges>()
        .returns::<ProjectLimitsBody>()
        .refuses([("400", "A limit is above the organization's")]);
    api.get("/org/limits", "get_organization_limits", limits::get_organization_limits)
        .summary("Returns the limits of the organization.")
        .returns::<OrganizationLimitsBody>();
    api.patch("/org/limits", "update_organization_limits", limits::update_organization_limits)
        .summary("Sets the limits of projects that have none of their own.")
        .body::<OrganizationLimitsChanges>()
        .returns::<OrganizationLimitsBody>()
        .refuses([("400", "The limit is above the organization's")]);
    api.get("/projects/{id}", "get_project_deprecated", deprecated::get_project_deprecated)
        .summary("Removed on 2026-11-24. Use `GET /org/projects/{id_or_name}`.")
        .removed("The operation was removed; `Link` names its successor");
    api.delete("/projects/{id}", "delete_project_deprecated", deprecated::delete_project_deprecated)
        .summary("Removed on 2026-11-24. Use `DELETE /org/projects/{id_or_name}`.")
        .removed("The operation was removed; `Link` names its successor. Nothing is deleted");
}
