//! The handlers of projects: create, list, get, update, delete.

use actix_web::http::StatusCode;
use casement_domain::project::{Project, ProjectFilter};
use serde::Deserialize;

use super::record::ProjectBody;
use crate::{
    answer::{self, Answer},
    error::{ApiError, Code},
    query::non_empty,
    request::{AnyKey, OrganizationKey, Request},
    schema::{IntoParams, ToSchema},
};

/// A project to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateProject {
    /// The name: 1 to 255 characters without `/`; unique in the organization. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
}

/// The changes of a project; an absent field leaves its value unchanged.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ProjectChanges {
    /// The name: 1 to 255 characters without `/`; unique in the organization.
    name: Option<String>,
    /// `active` or `archived`.
    status: Option<String>,
}

impl Request<AnyKey> {
    /// Finds a project by id or name. A key of one project finds only that project; the response is the same for other
    /// projects and for projects that do not exist.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for a key of another project.
    pub(super) async fn project(&self, id_or_name: &str) -> Result<Project, ApiError> {
        let caller = self.caller();
        let found = self.services().projects.get(caller.organization, id_or_name).await.map_err(ApiError::from);
        match (caller.project, found) {
            (Some(own), Ok(project)) if own == project.id => Ok(project),
            (None, found) => found,
            (Some(_), Err(error)) if error.code() != Code::NotFound => Err(error),
            (Some(_), _) => Err(ApiError::new(Code::Forbidden, "the key does not open this project")),
        }
    }
}

pub(crate) async fn create_project(mut request: Request<OrganizationKey>) -> Answer {
    let input = request.json::<CreateProject>().await?;
    let project = request.services().projects.create(request.organization(), input.name).await?;
    let location = format!("/org/projects/{}", project.id);
    Ok(answer::created(&location, &ProjectBody::from(project)))
}

/// The filter of a list of projects.
#[derive(Deserialize, IntoParams)]
pub(super) struct ProjectListParams {
    /// The whole name; case and accents are ignored.
    name: Option<String>,
    /// Part of the name, or the whole id.
    query: Option<String>,
}

pub(crate) async fn list_projects(request: Request<OrganizationKey>) -> Answer {
    let ProjectListParams { name, query } = request.query()?;
    let filter = ProjectFilter { name: non_empty(name), query: non_empty(query) };
    let found = request.services().projects.list(request.organization(), &filter, request.page()?).await?;
    Ok(answer::list(&found.map(ProjectBody::from)))
}

pub(crate) async fn get_project(request: Request<AnyKey>) -> Answer {
    let project = request.project(&request.path("id_or_name")?).await?;
    Ok(answer::record(StatusCode::OK, &ProjectBody::from(project)))
}

pub(crate) async fn update_project(mut request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id_or_name")?;
    let ProjectChanges { name, status } = request.json().await?;
    let project = request.services().projects.update(request.organization(), &id, name, status).await?;
    Ok(answer::record(StatusCode::OK, &ProjectBody::from(project)))
}

pub(crate) async fn delete_project(request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id_or_name")?;
    request.services().projects.delete(request.organization(), &id).await?;
    Ok(answer::nothing())
}
