//! The stream of the state of an auth connection's login.

use std::pin::Pin;
use std::time::Duration;

use actix_web::web::Bytes;
use casement_domain::auth_connection::{Flow, FlowStatus};
use casement_domain::{AuthConnectionId, AuthFlowId};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;
use tokio::time::Instant;
use url::Url;

use super::{may_use, record::FlowFacts};
use crate::{
    answer::{Answer, Moment},
    error::{ApiError, ErrorBody},
    public_url,
    request::{ProjectKey, Request},
    schema::ToSchema,
    sse,
    state::Api,
};

/// The maximum time that a stream waits for the first login.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// One event of a login's stream.
#[derive(Serialize, ToSchema)]
#[schema(as = AuthConnectionEvent)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum StreamEvent {
    /// The state of a login.
    ManagedAuthState {
        #[schema(value_type = String, format = DateTime)]
        timestamp: Moment,
        flow_status: &'static str,
        flow_step: &'static str,
        flow_type: &'static str,
        #[serde(flatten)]
        facts: Box<FlowFacts>,
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

pub(crate) async fn follow_auth_connection(request: Request<ProjectKey>) -> Answer {
    let found = request.services().auth_connections.get(request.scope(), &request.path("id")?).await?;
    // Subscribes before the state is read, so that no change is missed.
    let changes = request.services().auth_connections.follow(found.id);
    let state = Following {
        api: request.shared_api(),
        public_url: public_url::of_request(),
        connection: found.id,
        with_addresses: may_use(request.scope(), found.id),
        changes,
        must_read: true,
        last_mark: None,
        last: None,
        until: Instant::now() + TIMEOUT,
        has_ended: false,
    };
    Ok(sse::response(frames(state)))
}

struct Following {
    api: actix_web::web::Data<Api>,
    /// The URL of the request, because the stream goes on outside of its task.
    public_url: Option<Url>,
    connection: AuthConnectionId,
    /// Whether the caller may have the URLs of a running login.
    with_addresses: bool,
    changes: Pin<Box<dyn Stream<Item = ()> + Send>>,
    /// Whether to read the state without waiting for a notification.
    must_read: bool,
    /// The id, revision and status of the flow that was sent last.
    last_mark: Option<(AuthFlowId, i64, FlowStatus)>,
    /// The flow that was sent last.
    last: Option<Flow>,
    until: Instant,
    has_ended: bool,
}

fn frames(state: Following) -> impl Stream<Item = Bytes> {
    stream::unfold(state, |mut state| async move { state.next().await.map(|frame| (frame, state)) })
}

impl Following {
    /// Returns the next frame; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.has_ended {
            if !std::mem::take(&mut self.must_read) && !self.receive().await? {
                return Some(sse::frame(&StreamEvent::SseHeartbeat { timestamp: self.now() }));
            }
            match self.read_state().await {
                Ok(Some(frame)) => return Some(frame),
                Ok(None) => {}
                Err(error) => {
                    self.has_ended = true;
                    let error = error.to_body();
                    return Some(sse::frame(&StreamEvent::Error { timestamp: self.now(), error }));
                }
            }
        }
        None
    }

    /// Waits until the state must be read again. Returns `Some(false)` if a heartbeat is due first, and `None` if no
    /// login started within [`TIMEOUT`] or the notifications end.
    async fn receive(&mut self) -> Option<bool> {
        let silence = tokio::time::sleep(sse::KEEP_ALIVE_INTERVAL);
        // No notification reports that a flow has expired if the node that runs the flow is down.
        let expiry = self.last.as_ref().map(|flow| flow.expires_at - self.now().0);
        let expiry = expiry.map_or(TIMEOUT, |left| Duration::try_from(left).unwrap_or(Duration::from_secs(1)));
        tokio::select! {
            changes = self.changes.next() => changes.map(|()| true),
            () = tokio::time::sleep(expiry) => Some(true),
            () = silence => Some(false),
            () = tokio::time::sleep_until(self.until), if self.last.is_none() => None,
        }
    }

    fn now(&self) -> Moment {
        Moment(self.api.services.clock.now())
    }

    /// Returns the frame of the present state, unless that state was sent before.
    async fn read_state(&mut self) -> Result<Option<Bytes>, ApiError> {
        let flow = match self.api.services.auth_connections.look(self.connection).await? {
            Some(connection) => match connection.flow {
                Some(flow) => *flow,
                None => return Ok(None),
            },
            // The connection was deleted, which canceled its running flow.
            None => {
                self.has_ended = true;
                return Ok(self.last.take().map(|last| self.canceled(last)));
            }
        };
        let mark = (flow.id, flow.revision, flow.status);
        if self.last_mark.as_ref().is_some_and(|last_mark| *last_mark == mark) {
            return Ok(None);
        }
        self.last_mark = Some(mark);
        self.has_ended = flow.status != FlowStatus::InProgress;
        let facts = match self.with_addresses {
            true => public_url::scope(self.public_url.clone(), FlowFacts::of(&self.api, &flow)).await?,
            false => FlowFacts::without_addresses(&flow),
        };
        let frame = self.frame(&flow, facts);
        self.last = Some(flow);
        Ok(Some(frame))
    }

    fn canceled(&self, last: Flow) -> Bytes {
        let flow = Flow { status: FlowStatus::Canceled, ..last };
        self.frame(&flow, FlowFacts::without_addresses(&flow))
    }

    fn frame(&self, flow: &Flow, facts: FlowFacts) -> Bytes {
        sse::frame(&StreamEvent::ManagedAuthState {
            timestamp: self.now(),
            flow_status: flow.status.as_str(),
            flow_step: flow.step.as_str(),
            flow_type: flow.kind.as_str(),
            facts: Box::new(facts),
        })
    }
}
