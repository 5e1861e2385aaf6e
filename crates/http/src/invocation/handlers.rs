//! The handlers of invocations (invoke, list, get, change, follow) and of their browsers.

use actix_web::http::StatusCode;
use casement_domain::{
    field::FieldCode,
    invocation::{InvocationFilter, InvocationRequest, InvocationStatus, Invocations},
    page::Listed,
    permission::{Action, Kind, Target, Verb, Which},
};
use serde::{Deserialize, Serialize};
use time::Duration;

use super::record::{InvocationBody, InvokedBody};
use crate::{
    answer::{self, Answer},
    client_timeout::client_timeout,
    error::ApiError,
    follow::{self, FollowParams},
    query::{date_time_or_age, non_empty},
    request::{ProjectKey, Request},
    schema::{IntoParams, ToSchema},
    session::SessionBody,
};

/// The action to run.
#[derive(Default, Deserialize, ToSchema)]
pub(crate) struct CreateInvocation {
    /// The name of the app. Required.
    #[schema(required, nullable = false)]
    app_name: Option<String>,
    /// The name of the action. Required.
    #[schema(required, nullable = false)]
    action_name: Option<String>,
    /// The version of the app. Required.
    #[schema(required, nullable = false)]
    version: Option<String>,
    /// The payload: JSON text of at most 1 MiB.
    payload: Option<String>,
    /// Whether the response is sent without waiting for the end of the invocation.
    #[serde(rename = "async")]
    no_wait: Option<bool>,
    /// The timeout of the invocation in seconds, with `async` only: 10 to 3600; default: 900.
    async_timeout_seconds: Option<i64>,
}

/// The end of an invocation.
#[derive(Default, Deserialize, ToSchema)]
pub(crate) struct UpdateInvocation {
    /// `succeeded`, or `failed`, which cancels the invocation. Required.
    #[schema(required, nullable = false)]
    status: Option<String>,
    /// The output: JSON text of at most 1 MiB.
    output: Option<String>,
}

/// The browser sessions of an invocation.
#[derive(Serialize, ToSchema)]
pub(crate) struct InvocationBrowsers {
    browsers: Vec<SessionBody>,
}

pub(crate) async fn create_invocation(mut request: Request<ProjectKey>) -> Answer {
    let body = request.json::<CreateInvocation>().await?;
    let no_wait = body.no_wait == Some(true);
    let longest = Duration::seconds(Invocations::MAX_WAIT_SECONDS);
    let client_timeout =
        client_timeout(request.headers()).and_then(|client_timeout| Duration::try_from(client_timeout).ok());
    let until =
        request.services().clock.now() + client_timeout.map_or(longest, |client_timeout| client_timeout.min(longest));
    request.scope().writable()?;
    // The field has no meaning for a caller that waits, and is not checked then.
    let timeout_seconds = body.async_timeout_seconds.filter(|_| no_wait);
    let invocation =
        InvocationRequest::parse(body.app_name, body.action_name, body.version, body.payload, timeout_seconds)?;
    let accepted =
        request.finish(|services, scope| async move { services.invocations.accept(&scope, invocation).await }).await?;
    if no_wait {
        return Ok(answer::record(StatusCode::ACCEPTED, &InvokedBody::from(accepted.invocation)));
    }
    // If the caller disconnects, only the wait ends.
    let now = request.services().invocations.wait(accepted, until).await;
    let status = if now.status.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(answer::record(status, &InvokedBody::from(now)))
}

/// The filter of a list of invocations.
#[derive(Deserialize, IntoParams)]
pub(super) struct InvocationListParams {
    /// The whole name of the app.
    app_name: Option<String>,
    /// The whole name of the action.
    action_name: Option<String>,
    /// The whole version.
    version: Option<String>,
    /// `queued`, `running`, `succeeded` or `failed`.
    status: Option<String>,
    /// The id of the deployment.
    deployment_id: Option<String>,
    /// Invocations accepted at this moment or later: a date-time, or an age such as `5m`.
    since: Option<String>,
    /// Part of the name of the app or the action, or the whole id.
    query: Option<String>,
}

pub(crate) async fn list_invocations(request: Request<ProjectKey>) -> Answer {
    let params = request.query::<InvocationListParams>()?;
    let status = match non_empty(params.status) {
        None => None,
        Some(text) => {
            let found = InvocationStatus::ALL.into_iter().find(|status| status.as_str() == text);
            let message = "must be queued, running, succeeded or failed";
            Some(found.ok_or_else(|| ApiError::field("status", FieldCode::NotAllowed, message))?)
        }
    };
    let page = request.page()?;
    let deployment = non_empty(params.deployment_id).map(|text| text.parse());
    let filter = InvocationFilter {
        app_name: non_empty(params.app_name),
        action_name: non_empty(params.action_name),
        version: non_empty(params.version),
        status,
        deployment: deployment.clone().and_then(Result::ok),
        since: date_time_or_age("since", params.since, request.services().clock.now())?,
        query: non_empty(params.query),
    };
    if deployment.is_some_and(|parsed| parsed.is_err()) {
        // No deployment has a malformed id.
        return Ok(answer::list(&Listed::<InvocationBody> { items: Vec::new(), next_offset: None }));
    }
    let page = request.services().invocations.list(request.scope(), &filter, page).await?;
    Ok(answer::list(&page.map(InvocationBody::from)))
}

pub(crate) async fn get_invocation(request: Request<ProjectKey>) -> Answer {
    let invocation = request.services().invocations.get(request.scope(), &request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &InvocationBody::from(invocation)))
}

pub(crate) async fn update_invocation(mut request: Request<ProjectKey>) -> Answer {
    let which = request.path("id")?;
    let UpdateInvocation { status, output } = request.json().await?;
    let changed = request.finish(|services, scope| async move {
        services.invocations.update(&scope, &which, status.as_deref(), output).await
    });
    Ok(answer::record(StatusCode::OK, &InvocationBody::from(changed.await?)))
}

pub(crate) async fn follow_invocation(request: Request<ProjectKey>) -> Answer {
    let params = request.query::<FollowParams>()?;
    let since = params.since(request.services().clock.now())?;
    let which = request.path("id")?;
    let follower = request.services().invocations.follow(request.scope(), &which, since).await?;
    Ok(follow::answer(params.applied_to(follower), request.services().clock.clone()))
}

pub(crate) async fn list_invocation_browsers(request: Request<ProjectKey>) -> Answer {
    require_of_sessions(&request, Verb::Read)?;
    let sessions = request.services().invocations.browsers(request.scope(), &request.path("id")?).await?;
    let browsers = request.api().sessions(request.scope(), sessions).await?;
    Ok(answer::record(StatusCode::OK, &InvocationBrowsers { browsers }))
}

pub(crate) async fn delete_invocation_browsers(request: Request<ProjectKey>) -> Answer {
    require_of_sessions(&request, Verb::Delete)?;
    let which = request.path("id")?;
    let deleted =
        request.finish(|services, scope| async move { services.invocations.delete_browsers(&scope, &which).await });
    deleted.await?;
    Ok(answer::nothing())
}

/// Checks that the key allows this with all sessions of the project, beside the action of the operation.
fn require_of_sessions(request: &Request<ProjectKey>, verb: Verb) -> Result<(), ApiError> {
    let scope = request.scope();
    let target = Target::InProject(scope.project_id(), Kind::Browsers, Which::Any);
    Ok(scope.permissions.require(Action::new(Kind::Browsers, verb), target)?)
}
