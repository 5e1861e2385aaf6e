//! Bring, list, get, stop, follow.

use actix_web::http::StatusCode;
use casement_domain::{
    deployment::{AppFilter, DeploymentFilter, MAX_PACKAGE_BYTES},
    field::FieldCode,
    session_operation::{ByteStream, OperationError},
};
use futures_util::{StreamExt as _, stream};
use utoipa::ToSchema;

use super::{AppBody, DeploymentBody, form};
use crate::{
    answer::{self, Answer},
    caller::Authorized,
    error::{ApiError, ErrorBody},
    follow::{self, DeploymentEventBody},
    multipart::Form,
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

/// Brings a program. It is built next; follow it to see how.
#[utoipa::path(
    post, path = "/deployments", tag = "Deployments",
    request_body(content = DeploymentForm, content_type = "multipart/form-data"),
    responses(
        (status = 201, body = DeploymentBody),
        (status = 400, description = "A field breaks a rule, or the archive is not safe to unpack", body = ErrorBody),
        (status = 413, description = "The archive has more than 256 MiB", body = ErrorBody),
        (status = "5XX", description = "The database or the stored files are away", body = ErrorBody),
    )
)]
pub(crate) async fn create_deployment(mut caller: Authorized) -> Answer {
    let mut form = caller.form(MAX_PACKAGE_BYTES + FORM, &[FILE]).await?;
    let rest = form.take_body_end();
    let done = create(&caller, form).await;
    if let (Err(_), Some(rest)) = (&done, rest) {
        // A client that sends still would not read the answer.
        rest.wait().await;
    }
    done
}

async fn create(caller: &Authorized, mut form: Form) -> Answer {
    let request = form::request(&form)?;
    let archive = form.next_file().await?.map(|file| whole(file.boxed(), form));
    let user = caller.user();
    let made = caller.finish(move |services, scope| async move {
        services.deployments.create(&scope, user, request, archive).await
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

/// Lists deployments, newest first.
#[utoipa::path(
    get, path = "/deployments", tag = "Deployments",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("app_name" = Option<String>, Query, description = "Those that registered this app"),
        ("app_version" = Option<String>, Query, description = "Those of this version; needs app_name"),
        ("query" = Option<String>, Query, description = "Part of the name of an app, or a whole id"),
    ),
    responses(
        (status = 200, body = [DeploymentBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_deployments(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter =
        DeploymentFilter { app_name: given("app_name")?, app_version: given("app_version")?, query: given("query")? };
    if filter.app_version.is_some() && filter.app_name.is_none() {
        return Err(ApiError::field("app_name", FieldCode::Required, "is required with app_version"));
    }
    let page = caller.services().deployments.list(caller.scope(), &filter, query.page()?).await?;
    Ok(answer::list(&page.map(DeploymentBody::from)))
}

/// Reads one deployment.
#[utoipa::path(
    get, path = "/deployments/{id}", tag = "Deployments", params(("id" = String, Path)),
    responses(
        (status = 200, body = DeploymentBody),
        (status = 404, description = "There is no such deployment", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_deployment(caller: Authorized) -> Answer {
    let deployment = caller.services().deployments.get(caller.scope(), &caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &DeploymentBody::from(deployment)))
}

/// Stops a deployment. Its unfinished invocations fail; of one that has ended, nothing is done.
#[utoipa::path(
    delete, path = "/deployments/{id}", tag = "Deployments", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is stopped"),
        (status = 404, description = "There is no such deployment", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn stop_deployment(caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let stopped = caller.finish(|services, scope| async move { services.deployments.stop(&scope, &which).await });
    stopped.await?;
    Ok(answer::nothing())
}

/// Follows a deployment: where it stands, what its build says, what it registers. Ends with it.
#[utoipa::path(
    get, path = "/deployments/{id}/events", tag = "Deployments",
    params(
        ("id" = String, Path),
        ("since" = Option<String>, Query, description = "Lines from this moment on, or of so long ago as 5m; default: all that are kept"),
    ),
    responses(
        (status = 200, body = DeploymentEventBody, content_type = "text/event-stream"),
        (status = 400, description = "The moment is none", body = ErrorBody),
        (status = 404, description = "There is no such deployment", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn follow_deployment(caller: Authorized) -> Answer {
    let since = caller.query()?.moment_or_age("since", caller.services().clock.now())?;
    let which = caller.path("id")?;
    let follower = caller.services().deployments.follow(caller.scope(), &which, since).await?;
    Ok(follow::answer(follower, caller.services().clock.clone()))
}

/// Lists the apps that can be invoked, newest first.
#[utoipa::path(
    get, path = "/apps", tag = "Apps",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("app_name" = Option<String>, Query, description = "The whole name"),
        ("version" = Option<String>, Query, description = "The whole version"),
        ("query" = Option<String>, Query, description = "Part of the name"),
    ),
    responses(
        (status = 200, body = [AppBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_apps(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let filter = AppFilter { app_name: given("app_name")?, version: given("version")?, query: given("query")? };
    let page = caller.services().deployments.apps(caller.scope(), &filter, query.page()?).await?;
    Ok(answer::list(&page.map(AppBody::from)))
}
