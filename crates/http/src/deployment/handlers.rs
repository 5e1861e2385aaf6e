//! The handlers of deployments (create, list, get, stop, follow) and of the list of apps.

use actix_web::http::StatusCode;
use casement_domain::{
    deployment::{AppFilter, DeploymentFilter, MAX_PACKAGE_BYTES},
    field::FieldCode,
};
use serde::Deserialize;

use super::{AppBody, DeploymentBody, form};
use crate::{
    answer::{self, Answer},
    error::ApiError,
    follow::{self, FollowParams},
    multipart::Form,
    query::non_empty,
    request::{ProjectKey, Request},
    schema::{IntoParams, ToSchema},
};

const FILE: &str = "file";
/// The maximum size of a form without its file, in bytes.
const FORM: u64 = 2 << 20;

/// Source code of apps: an archive, or the repository from which it is fetched.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
pub(crate) struct DeploymentForm {
    /// A ZIP archive of the source code, at most 256 MiB.
    #[schema(value_type = Option<String>, format = Binary)]
    file: Option<Vec<u8>>,
    /// The path of the file that is loaded: `.py` for Python, `.ts`, `.mts`, `.js`, `.mjs` or `.cjs` for Node. Required
    /// with `file`.
    entrypoint_rel_path: Option<String>,
    /// The repository, instead of `file`: JSON, or parts `source[type]`, `source[url]`, …
    source: Option<GitSource>,
    /// A label of 1 to 255 characters; default: `latest`.
    version: Option<String>,
    /// A label, which changes nothing. Default: the first that the operator has set, or `aws.us-east-1a`.
    region: Option<String>,
    /// Whether the deployment replaces an existing app of the same version.
    force: Option<bool>,
    /// The environment variables: JSON, or parts `env_vars[NAME]`; at most 200.
    env_vars: Option<std::collections::BTreeMap<String, String>>,
}

/// A Git repository.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
pub(crate) struct GitSource {
    /// `github`.
    #[schema(rename = "type")]
    kind: String,
    /// `<origin>/<owner>/<repository>`.
    url: String,
    /// A branch, a tag or a commit.
    #[schema(rename = "ref")]
    git_ref: String,
    /// The path of the file that is loaded, relative to `path`.
    entrypoint: String,
    /// The directory of the source code; default: the root.
    path: Option<String>,
    /// Required for a private repository.
    auth: Option<GitAuth>,
}

/// The credential of a private repository.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
pub(crate) struct GitAuth {
    /// `github_token`.
    method: String,
    /// Stored sealed, and never returned.
    token: String,
}

pub(crate) async fn create_deployment(mut request: Request<ProjectKey>) -> Answer {
    let mut form = request.form(MAX_PACKAGE_BYTES + FORM, &[FILE]).await?;
    let rest = form.take_body_end();
    let done = create(&request, form).await;
    if let (Err(_), Some(rest)) = (&done, rest) {
        // A client that still sends would not read the response.
        rest.wait().await;
    }
    done
}

async fn create(request: &Request<ProjectKey>, mut form: Form) -> Answer {
    let archive = form.spool_only_file(FILE, &request.api().spool).await?;
    let deployment = form::request(&form, archive.is_some())?;
    let user = request.user();
    let made = request.finish(move |services, scope| async move {
        services.deployments.create(&scope, user, deployment, archive).await
    });
    let body = DeploymentBody::from(made.await?);
    Ok(answer::created(&format!("/deployments/{}", body.id()), &body))
}

/// The filter of a list of deployments.
#[derive(Deserialize, IntoParams)]
pub(super) struct DeploymentListParams {
    /// The name of an app that the deployment registered.
    app_name: Option<String>,
    /// The version of the deployment; requires `app_name`.
    app_version: Option<String>,
    /// Part of the name of an app, or the whole id.
    query: Option<String>,
}

pub(crate) async fn list_deployments(request: Request<ProjectKey>) -> Answer {
    let DeploymentListParams { app_name, app_version, query } = request.query()?;
    let filter = DeploymentFilter {
        app_name: non_empty(app_name),
        app_version: non_empty(app_version),
        query: non_empty(query),
    };
    if filter.app_version.is_some() && filter.app_name.is_none() {
        return Err(ApiError::field("app_name", FieldCode::Required, "is required with app_version"));
    }
    let page = request.services().deployments.list(request.scope(), &filter, request.page()?).await?;
    Ok(answer::list(&page.map(DeploymentBody::from)))
}

pub(crate) async fn get_deployment(request: Request<ProjectKey>) -> Answer {
    let deployment = request.services().deployments.get(request.scope(), &request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &DeploymentBody::from(deployment)))
}

pub(crate) async fn stop_deployment(request: Request<ProjectKey>) -> Answer {
    let which = request.path("id")?;
    let stopped = request.finish(|services, scope| async move { services.deployments.stop(&scope, &which).await });
    stopped.await?;
    Ok(answer::nothing())
}

pub(crate) async fn follow_deployment(request: Request<ProjectKey>) -> Answer {
    let params = request.query::<FollowParams>()?;
    let since = params.since(request.services().clock.now())?;
    let which = request.path("id")?;
    let follower = request.services().deployments.follow(request.scope(), &which, since).await?;
    Ok(follow::answer(params.applied_to(follower), request.services().clock.clone()))
}

/// The filter of a list of apps.
#[derive(Deserialize, IntoParams)]
pub(super) struct AppListParams {
    /// The whole name.
    app_name: Option<String>,
    /// The whole version.
    version: Option<String>,
    /// Part of the name.
    query: Option<String>,
}

pub(crate) async fn list_apps(request: Request<ProjectKey>) -> Answer {
    let AppListParams { app_name, version, query } = request.query()?;
    let filter = AppFilter { app_name: non_empty(app_name), version: non_empty(version), query: non_empty(query) };
    let page = request.services().deployments.apps(request.scope(), &filter, request.page()?).await?;
    Ok(answer::list(&page.map(AppBody::from)))
}
