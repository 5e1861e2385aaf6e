//! Event streams that follow a deployment or an invocation until it ends.

use std::sync::Arc;
use time::OffsetDateTime;

use actix_web::{HttpResponse, web::Bytes};
use casement_domain::{
    Clock,
    deployment::{Followed, Follower, Line},
};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

use crate::{
    answer::Moment,
    deployment::{AppSummaryBody, DeploymentBody},
    error::{ApiError, ErrorBody},
    invocation::InvocationBody,
    query::date_time_or_age,
    schema::{IntoParams, ToSchema},
    sse,
};

/// One event of a deployment's stream.
#[derive(Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum DeploymentEventBody {
    /// A line of the build's output.
    Log(LogBody),
    /// The present state of the deployment.
    DeploymentState {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        deployment: Box<DeploymentBody>,
    },
    /// An app that the deployment registered.
    AppVersionSummary(AppSummaryBody),
    /// The stream ends with an error.
    Error {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        error: ErrorBody,
    },
    /// A heartbeat, because there was no other event for a while.
    SseHeartbeat {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
    },
}

/// One event of an invocation's stream.
#[expect(
    dead_code,
    reason = "most variants only describe the schema; the deployment's variants, which serialize equally, are sent"
)]
#[derive(Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum InvocationEventBody {
    /// A line of the program's output.
    Log(LogBody),
    /// The present state of the invocation.
    InvocationState {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        invocation: Box<InvocationBody>,
    },
    /// The stream ends with an error.
    Error {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        error: ErrorBody,
    },
    /// A heartbeat, because there was no other event for a while.
    SseHeartbeat {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
    },
}

/// A line of output.
#[derive(Serialize, ToSchema)]
pub(crate) struct LogBody {
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    message: String,
}

impl From<Line> for LogBody {
    fn from(line: Line) -> Self {
        Self { timestamp: Moment(line.at), message: line.text }
    }
}

/// The start of the streamed output.
#[derive(Deserialize, IntoParams)]
pub(crate) struct FollowParams {
    /// The time of the first line: a date-time, or an age such as `5m`. Default: all stored lines.
    since: Option<String>,
    /// Whether the stream waits for further events; otherwise it ends after the stored ones. Default: true.
    follow: Option<bool>,
}

impl FollowParams {
    pub(crate) fn since(&self, now: OffsetDateTime) -> Result<Option<OffsetDateTime>, ApiError> {
        date_time_or_age("since", self.since.clone(), now)
    }

    /// Returns the follower, which waits only if it is to follow.
    pub(crate) fn applied_to(&self, follower: Follower) -> Follower {
        if self.follow == Some(false) { follower.without_waiting() } else { follower }
    }
}

/// Streams the events of `follower` as a response, with a heartbeat after each silent interval. It ends with the
/// follower.
pub(crate) fn answer(follower: Follower, clock: Arc<dyn Clock>) -> HttpResponse {
    let events = stream::unfold(follower, |mut follower| async move {
        follower.next().await.transpose().map(|event| (event.map_err(ApiError::from), follower))
    });
    let now = move || Moment(clock.now());
    let heartbeat = now.clone();
    let frames = sse::until_error(events).map(move |event| match event {
        Ok(event) => frame(event, now()),
        Err(error) => {
            tracing::info!(error = error.chain(), "an event stream ended with an error");
            sse::frame(&DeploymentEventBody::Error { timestamp: now(), error: error.to_body() })
        }
    });
    sse::response(sse::keep_alive(frames, move || {
        sse::frame(&DeploymentEventBody::SseHeartbeat { timestamp: heartbeat() })
    }))
}

fn frame(event: Followed, timestamp: Moment) -> Bytes {
    match event {
        Followed::Line(line) => sse::frame(&DeploymentEventBody::Log(line.into())),
        Followed::App(app) => sse::frame(&DeploymentEventBody::AppVersionSummary(app.into())),
        Followed::Deployment(deployment) => {
            let deployment = Box::new((*deployment).into());
            sse::frame(&DeploymentEventBody::DeploymentState { timestamp, deployment })
        }
        Followed::Invocation(invocation) => {
            let invocation = Box::new((*invocation).into());
            sse::frame(&InvocationEventBody::InvocationState { timestamp, invocation })
        }
    }
}
