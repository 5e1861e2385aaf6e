//! Bring, list, get, stop, follow.

use actix_web::http::StatusCode;
use casement_domain::{
    deployment::{AppFilter, DeploymentFilter, MAX_PACKAGE_BYTES},
    field::FieldCode,
    session_operation::{ByteStream, OperationError},
};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{AppBody, DeploymentBody, form};
use crate::{
    answer::{self, Answer},
    error::ApiError,
    follow::{self, FollowParams},
    multipart::Form,
    query::non_empty,
    request::{ProjectKey, Request},
};

const FILE: &str = "file";
/// What a form may have beside its file.
const FORM: u64 = 2 << 20;

/// A program: an archive, or where to fetch it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
pub(crate) struct DeploymentForm {
    /// A ZIP of at most 256 MiB, with the files of the program. It comes last.
    #[schema(value_type = Option<String>, format = Binary)]
    file: Option<Vec<u8>>,
    /// Which file of the program is loaded: `.py` for Python, `.ts`, `.mts`, `.js`, `.mjs` or `.cjs` for Node. Required with `file`.
    entrypoint_rel_path: Option<String>,
    /// Instead of `file`: JSON, or parts `source[type]`, `source[url]`, …
    source: Option<GitSource>,
    /// A label of 1 to 255 characters; default: `latest`.
    version: Option<String>,
    /// Default: `aws.us-east-1a`.
    region: Option<String>,
    /// Whether it takes the place of an app that has the version already.
    force: Option<bool>,
    /// Variables of its environment: JSON, or parts `env_vars[NAME]`; at most 200.
    env_vars: Option<std::collections::BTreeMap<String, String>>,
}

/// A Git repository.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
pub(crate) struct GitSource {
    /// `github`.
    #[schema(rename = "type")]
    kind: String,
    /// `<origin>/<owner>/<repository>`.
    url: String,
    /// A branch, a tag or a commit.
    #[schema(rename = "ref")]
    git_ref: String,
    /// Relative to `path`.
    entrypoint: String,
    /// Which folder is the program; default: the root.
    path: Option<String>,
    /// For a private one.
    auth: Option<GitAuth>,
}

/// What opens a private repository.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it stands in the description only; the form is read as it comes")]
pub(crate) struct GitAuth {
    /// `github_token`.
    method: String,
    /// Kept sealed, and never shown.
    token: String,
}

pub(crate) async fn create_deployment(mut request: Request<ProjectKey>) -> Answer {
    let mut form = request.form(MAX_PACKAGE_BYTES + FORM, &[FILE]).await?;
    let rest = form.take_body_end();
    let done = create(&request, form).await;
    if let (Err(_), Some(rest)) = (&done, rest) {
        // A client that sends still would not read the answer.
        rest.wait().await;
    }
    done
}

async fn create(request: &Request<ProjectKey>, mut form: Form) -> Answer {
    let deployment = form::request(&form)?;
    let archive = form.next_file().await?.map(|file| whole(file.boxed(), form));
    let user = request.user();
    let made = request.finish(move |services, scope| async move {
        services.deployments.create(&scope, user, deployment, archive).await
    });
    let body = DeploymentBody::from(made.await?);
    Ok(answer::created(&format!("/deployments/{}", body.id()), &body))
}

/// The file with the rest of its form: only then is it whole.
fn whole(file: ByteStream, mut form: Form) -> ByteStream {
    let rest = stream::once(async move {
        match form.next_file().await {
            Ok(None) => None,
            Ok(Some(_)) => Some(Err(OperationError::Broken("the form's part file is given twice".to_owned()))),
            Err(error) => Some(Err(error)),
        }
    });
    file.chain(rest.filter_map(std::future::ready)).boxed()
}

/// Which deployments are listed.
#[derive(Deserialize, IntoParams)]
pub(super) struct DeploymentListParams {
    /// Deployments that registered this app.
    app_name: Option<String>,
    /// Deployments of this version; needs `app_name`.
    app_version: Option<String>,
    /// Part of the name of an app, or a whole id.
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
    let since = request.query::<FollowParams>()?.since(request.services().clock.now())?;
    let which = request.path("id")?;
    let follower = request.services().deployments.follow(request.scope(), &which, since).await?;
    Ok(follow::answer(follower, request.services().clock.clone()))
}

/// Which apps are listed.
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
