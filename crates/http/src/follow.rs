//! Streams that follow a deployment or an invocation to its end.

use std::sync::Arc;
use time::OffsetDateTime;

use actix_web::{HttpResponse, web::Bytes};
use casement_domain::{
    Clock,
    deployment::{Followed, Follower, Line},
};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    answer::Moment,
    deployment::{AppSummaryBody, DeploymentBody},
    error::{ApiError, ErrorBody},
    invocation::InvocationBody,
    query::date_time_or_age,
    sse,
};

/// One event of a deployment's stream.
#[derive(Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum DeploymentEventBody {
    /// What its build said.
    Log(LogBody),
    /// Where it stands now.
    DeploymentState {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        deployment: Box<DeploymentBody>,
    },
    /// What it registered.
    AppVersionSummary(AppSummaryBody),
    /// The stream broke off.
    Error {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        error: ErrorBody,
    },
    /// Nothing happened for a while.
    SseHeartbeat {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
    },
}

/// One event of an invocation's stream.
#[expect(
    dead_code,
    reason = "most of it stands in the description only: what is sent is the other stream's, which is the same"
)]
#[derive(Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum InvocationEventBody {
    /// What its program wrote.
    Log(LogBody),
    /// Where it stands now.
    InvocationState {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        invocation: Box<InvocationBody>,
    },
    /// The stream broke off.
    Error {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        error: ErrorBody,
    },
    /// Nothing happened for a while.
    SseHeartbeat {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
    },
}

/// A line.
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

/// From when on output is streamed.
#[derive(Deserialize, IntoParams)]
pub(crate) struct FollowParams {
    /// Lines from this moment on: a date-time, or an age such as `5m`. Default: all stored lines.
    since: Option<String>,
}

impl FollowParams {
    pub(crate) fn since(self, now: OffsetDateTime) -> Result<Option<OffsetDateTime>, ApiError> {
        date_time_or_age("since", self.since, now)
    }
}

/// What `follower` learns, as the body of an answer: an event each, a sign of life after a while of silence, and its end with it.
pub(crate) fn answer(follower: Follower, clock: Arc<dyn Clock>) -> HttpResponse {
    let events = stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        match follower.next().await {
            Ok(Some(event)) => Some((Ok(event), Some(follower))),
            Ok(None) => None,
            Err(error) => Some((Err(ApiError::from(error)), None)),
        }
    });
    let frames = stream::unfold(Some((Box::pin(events), clock)), |state| async move {
        let (mut events, clock) = state?;
        let Ok(next) = tokio::time::timeout(sse::KEEP_ALIVE, events.next()).await else {
            let timestamp = Moment(clock.now());
            return Some((sse::frame(&DeploymentEventBody::SseHeartbeat { timestamp }), Some((events, clock))));
        };
        let timestamp = Moment(clock.now());
        match next? {
            Ok(event) => Some((frame(event, timestamp), Some((events, clock)))),
            Err(error) => {
                tracing::info!(error = error.chain(), "a stream of events broke off");
                Some((sse::frame(&DeploymentEventBody::Error { timestamp, error: error.to_body() }), None))
            }
        }
    });
    sse::head().streaming(frames.map(Ok::<_, actix_web::Error>))
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
