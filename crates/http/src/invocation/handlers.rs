//! Invoke, list, get, change, follow; and the browsers of an invocation.

use actix_web::http::StatusCode;
use casement_domain::{
    field::FieldCode,
    invocation::{InvocationFilter, InvocationRequest, InvocationStatus, Invocations},
    page::Listed,
};
use serde::{Deserialize, Serialize};
use time::Duration;
use utoipa::ToSchema;

use super::record::{InvocationBody, InvokedBody};
use crate::{
    answer::{self, Answer},
    caller::Authorized,
    client_timeout::client_timeout,
    error::{ApiError, ErrorBody},
    follow::{self, InvocationEventBody},
    session::SessionBody,
};

/// The action to run.
#[derive(Default, Deserialize, ToSchema)]
pub(crate) struct CreateInvocation {
    /// Required.
    #[schema(required, nullable = false)]
    app_name: Option<String>,
    /// Required.
    #[schema(required, nullable = false)]
    action_name: Option<String>,
    /// Required.
    #[schema(required, nullable = false)]
    version: Option<String>,
    /// JSON text of at most 1 MiB.
    payload: Option<String>,
    /// Whether the response does not wait for the end.
    #[serde(rename = "async")]
    no_wait: Option<bool>,
    /// The timeout in seconds of an invocation that is not waited for: 10 to 3600; default: 900.
    async_timeout_seconds: Option<i64>,
}

/// The end of an invocation.
#[derive(Default, Deserialize, ToSchema)]
pub(crate) struct UpdateInvocation {
    /// `succeeded`, or `failed`, which cancels it. Required.
    #[schema(required, nullable = false)]
    status: Option<String>,
    /// JSON text of at most 1 MiB.
    output: Option<String>,
}

/// The browser sessions of an invocation.
#[derive(Serialize, ToSchema)]
pub(crate) struct InvocationBrowsers {
    browsers: Vec<SessionBody>,
}

/// Runs an action, and waits for its end unless told not to.
#[utoipa::path(
    post, path = "/invocations", tag = "Invocations", request_body = CreateInvocation,
    responses(
        (status = 200, description = "It has ended, well or not", body = InvokedBody),
        (status = 202, description = "It goes on", body = InvokedBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The project is archived", body = ErrorBody),
        (status = 404, description = "There is no such app, version or action", body = ErrorBody),
        (status = 409, description = "Its deployment does not run", body = ErrorBody),
        (status = 429, description = "A limit is reached", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn create_invocation(mut caller: Authorized) -> Answer {
    let body = caller.json::<CreateInvocation>().await?;
    let no_wait = body.no_wait == Some(true);
    let longest = Duration::seconds(Invocations::MAX_WAIT_SECONDS);
    let client_timeout =
        client_timeout(caller.headers()).and_then(|client_timeout| Duration::try_from(client_timeout).ok());
    let until =
        caller.services().clock.now() + client_timeout.map_or(longest, |client_timeout| client_timeout.min(longest));
    caller.scope().writable()?;
    // The field has no meaning for a caller that waits, and is not checked then.
    let timeout_seconds = body.async_timeout_seconds.filter(|_| no_wait);
    let request =
        InvocationRequest::parse(body.app_name, body.action_name, body.version, body.payload, timeout_seconds)?;
    let accepted =
        caller.finish(|services, scope| async move { services.invocations.accept(&scope, request).await }).await?;
    if no_wait {
        return Ok(answer::record(StatusCode::ACCEPTED, &InvokedBody::from(accepted.invocation)));
    }
    // Who hangs up only stops to wait.
    let now = caller.services().invocations.wait(accepted, until).await;
    let status = if now.status.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(answer::record(status, &InvokedBody::from(now)))
}

/// Lists invocations, newest first.
#[utoipa::path(
    get, path = "/invocations", tag = "Invocations",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("app_name" = Option<String>, Query, description = "The whole name"),
        ("action_name" = Option<String>, Query, description = "The whole name"),
        ("version" = Option<String>, Query, description = "The whole version"),
        ("status" = Option<String>, Query, description = "queued, running, succeeded or failed"),
        ("deployment_id" = Option<String>, Query, description = "Those of this deployment"),
        ("since" = Option<String>, Query, description = "Those accepted at this moment or later, or at most so long ago as 5m"),
        ("query" = Option<String>, Query, description = "Part of the name of app or action, or a whole id"),
    ),
    responses(
        (status = 200, body = [InvocationBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_invocations(caller: Authorized) -> Answer {
    let query = caller.query()?;
    let given = |name| Ok::<_, ApiError>(query.text(name)?.filter(|text| !text.is_empty()).map(str::to_owned));
    let status = match given("status")? {
        None => None,
        Some(text) => {
            let found = InvocationStatus::ALL.into_iter().find(|status| status.as_str() == text);
            let message = "must be queued, running, succeeded or failed";
            Some(found.ok_or_else(|| ApiError::field("status", FieldCode::NotAllowed, message))?)
        }
    };
    let page = query.page()?;
    let deployment = given("deployment_id")?.map(|text| text.parse());
    let filter = InvocationFilter {
        app_name: given("app_name")?,
        action_name: given("action_name")?,
        version: given("version")?,
        status,
        deployment: deployment.clone().and_then(Result::ok),
        since: query.moment_or_age("since", caller.services().clock.now())?,
        query: given("query")?,
    };
    if deployment.is_some_and(|parsed| parsed.is_err()) {
        // It names nothing.
        return Ok(answer::list(&Listed::<InvocationBody> { items: Vec::new(), next_offset: None }));
    }
    let page = caller.services().invocations.list(caller.scope(), &filter, page).await?;
    Ok(answer::list(&page.map(InvocationBody::from)))
}

/// Reads one invocation.
#[utoipa::path(
    get, path = "/invocations/{id}", tag = "Invocations", params(("id" = String, Path)),
    responses(
        (status = 200, body = InvocationBody),
        (status = 404, description = "There is no such invocation", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_invocation(caller: Authorized) -> Answer {
    let invocation = caller.services().invocations.get(caller.scope(), &caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &InvocationBody::from(invocation)))
}

/// Ends an invocation. One that fails so is cancelled: its process and its browsers end.
#[utoipa::path(
    patch, path = "/invocations/{id}", tag = "Invocations", params(("id" = String, Path)),
    request_body = UpdateInvocation,
    responses(
        (status = 200, body = InvocationBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such invocation", body = ErrorBody),
        (status = 409, description = "It has ended", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_invocation(mut caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let UpdateInvocation { status, output } = caller.json().await?;
    let changed = caller.finish(|services, scope| async move {
        services.invocations.update(&scope, &which, status.as_deref(), output).await
    });
    Ok(answer::record(StatusCode::OK, &InvocationBody::from(changed.await?)))
}

/// Follows an invocation: where it stands, and what its program writes. Ends with it.
#[utoipa::path(
    get, path = "/invocations/{id}/events", tag = "Invocations",
    params(
        ("id" = String, Path),
        ("since" = Option<String>, Query, description = "Lines from this moment on, or of so long ago as 5m; default: all that are kept"),
    ),
    responses(
        (status = 200, body = InvocationEventBody, content_type = "text/event-stream"),
        (status = 400, description = "The moment is none", body = ErrorBody),
        (status = 404, description = "There is no such invocation", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn follow_invocation(caller: Authorized) -> Answer {
    let since = caller.query()?.moment_or_age("since", caller.services().clock.now())?;
    let which = caller.path("id")?;
    let follower = caller.services().invocations.follow(caller.scope(), &which, since).await?;
    Ok(follow::answer(follower, caller.services().clock.clone()))
}

/// Lists the active browser sessions of an invocation.
#[utoipa::path(
    get, path = "/invocations/{id}/browsers", tag = "Invocations", params(("id" = String, Path)),
    responses(
        (status = 200, body = InvocationBrowsers),
        (status = 404, description = "There is no such invocation", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_invocation_browsers(caller: Authorized) -> Answer {
    let sessions = caller.services().invocations.browsers(caller.scope(), &caller.path("id")?).await?;
    let browsers = caller.api().sessions(sessions).await?;
    Ok(answer::record(StatusCode::OK, &InvocationBrowsers { browsers }))
}

/// Ends the browser sessions of an invocation.
#[utoipa::path(
    delete, path = "/invocations/{id}/browsers", tag = "Invocations", params(("id" = String, Path)),
    responses(
        (status = 204, description = "There are none any more"),
        (status = 404, description = "There is no such invocation", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_invocation_browsers(caller: Authorized) -> Answer {
    let which = caller.path("id")?;
    let deleted =
        caller.finish(|services, scope| async move { services.invocations.delete_browsers(&scope, &which).await });
    deleted.await?;
    Ok(answer::nothing())
}
