//! Create, list, get, update, delete.

use actix_web::http::StatusCode;
use casement_domain::project::{Project, ProjectFilter};
use serde::Deserialize;
use utoipa::ToSchema;

use super::record::ProjectBody;
use crate::{
    answer::{self, Answer},
    caller::{Member, OrganizationCaller},
    error::{ApiError, ErrorBody},
};

/// A project to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateProject {
    /// 1 to 255 characters without `/`; unique in the organization. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
}

/// What to change of a project.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ProjectChanges {
    /// Its name.
    name: Option<String>,
    /// `active` or `archived`.
    status: Option<String>,
}

impl Member {
    /// The project of that id or name.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for a key of one project that asks for anything else.
    pub(super) async fn project(&self, which: &str) -> Result<Project, ApiError> {
        let found = self.services().projects.get(self.caller().organization, which).await;
        self.reads(found.map_err(ApiError::from))
    }
}

/// Creates a project.
#[utoipa::path(
    post, path = "/org/projects", tag = "Projects", request_body = CreateProject,
    responses(
        (status = 201, body = ProjectBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 409, description = "The name is taken", body = ErrorBody),
    )
)]
pub(crate) async fn create_project(mut caller: OrganizationCaller) -> Answer {
    let wish = caller.json::<CreateProject>().await?;
    let project = caller.services().projects.create(caller.organization(), wish.name).await?;
    let location = format!("/org/projects/{}", project.id);
    Ok(answer::created(&location, &ProjectBody::from(project)))
}

/// Lists projects, newest first.
#[utoipa::path(
    get, path = "/org/projects", tag = "Projects",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("name" = Option<String>, Query, description = "Exactly this name, whatever the case and the accents"),
        ("query" = Option<String>, Query, description = "Part of the name, or the whole id"),
    ),
    responses(
        (status = 200, body = [ProjectBody], headers(("X-Has-More" = String), ("X-Next-Offset" = u64))),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
    )
)]
pub(crate) async fn list_projects(caller: OrganizationCaller) -> Answer {
    let query = caller.query()?;
    let text = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter = ProjectFilter { name: text("name")?, query: text("query")? };
    let found = caller.services().projects.list(caller.organization(), &filter, query.page()?).await?;
    Ok(answer::list(&found.map(ProjectBody::from)))
}

/// One project, by id or name.
#[utoipa::path(
    get, path = "/org/projects/{id}", tag = "Projects", params(("id" = String, Path)),
    responses(
        (status = 200, body = ProjectBody),
        (status = 403, description = "The key is of another project", body = ErrorBody),
        (status = 404, description = "There is no such project", body = ErrorBody),
    )
)]
pub(crate) async fn get_project(caller: Member) -> Answer {
    let project = caller.project(&caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ProjectBody::from(project)))
}

/// Changes a project.
#[utoipa::path(
    patch, path = "/org/projects/{id}", tag = "Projects", params(("id" = String, Path)), request_body = ProjectChanges,
    responses(
        (status = 200, body = ProjectBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = 409, description = "The name is taken, or it is the default project", body = ErrorBody),
    )
)]
pub(crate) async fn update_project(mut caller: OrganizationCaller) -> Answer {
    let id = caller.path("id")?;
    let ProjectChanges { name, status } = caller.json().await?;
    let project = caller.services().projects.update(caller.organization(), &id, name, status).await?;
    Ok(answer::record(StatusCode::OK, &ProjectBody::from(project)))
}

/// Deletes a project in which nothing is active; its keys go with it.
#[utoipa::path(
    delete, path = "/org/projects/{id}", tag = "Projects", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such project", body = ErrorBody),
        (status = 409, description = "Something of it is active, or it is the default project", body = ErrorBody),
    )
)]
pub(crate) async fn delete_project(caller: OrganizationCaller) -> Answer {
    let id = caller.path("id")?;
    caller.services().projects.delete(caller.organization(), &id).await?;
    Ok(answer::nothing())
}
