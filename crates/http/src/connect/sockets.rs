//! WebSockets that make a session: CDP and WebDriver BiDi.

use std::time::Duration;

use actix_web::http::{
    StatusCode,
    header::{HeaderName, HeaderValue},
};
use casement_domain::{
    SessionId,
    session::{Activity, SessionEvent, Sessions},
};

use super::{
    parameters::{self, Target},
    start::{Made, make},
};
use crate::{
    answer::Answer,
    cluster::{self, Destination, Hop, Lifetime},
    connections::SESSION_HEADER,
    relay::ClientHandshake,
    request::{ActiveSession, ProjectKey, Request},
    state::Services,
    undelivered::UndeliveredSession,
    vm,
};

/// The time without use after which a session ends that a connection has made.
const IDLE_TIMEOUT: time::Duration = time::Duration::seconds(5);

/// The protocol of a connection.
#[derive(Clone, Copy)]
enum Protocol {
    Cdp,
    Bidi,
}

impl Protocol {
    /// Returns the path that connects to an existing session.
    fn path(self, session: SessionId) -> String {
        match self {
            Self::Cdp => format!("/connect?session={session}"),
            Self::Bidi => format!("/connect/webdriver?session={session}"),
        }
    }

    async fn open(self, request: Request<ActiveSession>, client: &ClientHandshake) -> Answer {
        match self {
            Self::Cdp => vm::open_cdp(request, client, None).await,
            Self::Bidi => vm::open_bidi(request, client).await,
        }
    }
}

/// `GET /connect`: a WebSocket of the DevTools protocol to a browser of its own.
pub(super) async fn connect_browser(request: Request<ProjectKey>) -> Answer {
    connect(request, Protocol::Cdp).await
}

/// `GET /connect/webdriver`: a WebSocket of WebDriver BiDi to a browser of its own.
pub(super) async fn connect_webdriver(request: Request<ProjectKey>) -> Answer {
    connect(request, Protocol::Bidi).await
}

async fn connect(mut request: Request<ProjectKey>, protocol: Protocol) -> Answer {
    let client = ClientHandshake::read(request.http())?;
    match parameters::read(&request.raw_query()?)? {
        Target::Existing(which) => {
            let session = request.services().sessions.get(request.scope(), &which, false).await?;
            if let Some(response) = request.relayed(&session).await? {
                return Ok(response);
            }
            let (api, lifetime) = (request.shared_api(), Hop::of(request.http()).and_then(|hop| hop.lifetime));
            let request = request.into_session(session)?;
            // Reads the session again: it may have ended before the connection was registered.
            let id = request.services().sessions.active(request.session().id).await?.id;
            let response = protocol.open(request, &client).await?;
            if let Some(lifetime) = lifetime {
                limit(id, lifetime, &api.services);
            }
            Ok(response)
        }
        Target::Own(lifetime, options) => {
            let forward = async |request: &mut Request<ProjectKey>, node: &Destination| {
                let (api, http) = (request.shared_api(), request.http().clone());
                cluster::forward_upgrade(&api, &http, || request.take_payload(), node).await
            };
            match make(&mut request, &options, forward).await? {
                Made::Here(started) => connect_own(request, protocol, &client, lifetime, *started).await,
                Made::Elsewhere(response) => Ok(response),
            }
        }
    }
}

async fn connect_own(
    mut request: Request<ProjectKey>,
    protocol: Protocol,
    client: &ClientHandshake,
    lifetime: Lifetime,
    started: UndeliveredSession,
) -> Answer {
    let (api, id) = (request.shared_api(), started.session().id);
    let mut response = match request.elsewhere(started.session(), Some(protocol.path(id))) {
        Some(owner) => {
            let (payload, owner) = (request.take_payload()?, Destination { lifetime: Some(lifetime), ..owner });
            let response = cluster::forward(&api, request.http(), payload, owner).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                // The session ends with `started`.
                return Ok(response);
            }
            started.hand_over();
            response
        }
        None => {
            let response = protocol.open(request.into_session(started.session().clone())?, client).await?;
            limit(started.hand_over().id, lifetime, &api.services);
            response
        }
    };
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(HeaderName::from_static(SESSION_HEADER), id);
    }
    Ok(response)
}

/// Limits the life of a session whose first connection is open.
fn limit(id: SessionId, lifetime: Lifetime, services: &Services) {
    if !lifetime.keep {
        let activity: &Activity = services.sessions.activity();
        activity.shorten_timeout(id, IDLE_TIMEOUT);
    }
    if let Some(max_duration) = lifetime.max_duration {
        let sessions = services.sessions.clone();
        services.runtime.spawn(async move {
            tokio::time::sleep(max_duration).await;
            end_session(&sessions, id, max_duration).await;
        });
    }
}

async fn end_session(sessions: &Sessions, id: SessionId, after: Duration) {
    if let Err(error) = sessions.end(id, SessionEvent::Delete).await {
        // A session that has ended by itself refuses the event.
        tracing::debug!(session = %id, after_ms = after.as_millis(), %error, "a session was not ended at its bound");
    }
}
