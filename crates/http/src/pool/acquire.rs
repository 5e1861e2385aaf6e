//! Acquire: leases a browser at once, or waits in the pool's queue.

use std::{collections::BTreeMap, sync::Arc};

use actix_web::http::StatusCode;
use casement_domain::{
    access::Scope,
    audit::PreparedRecord,
    field::Fields,
    pool::{AcquireRequest, Acquired},
    session::{Refusal, Session},
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    answer::{self, Answer},
    client_timeout::client_timeout,
    error::ApiError,
    json::in_order,
    request::{DeferredAudit, Request},
    schema::ToSchema,
    session::{Profile, Telemetry, checked, config_request},
    state::Services,
    undelivered::UndeliveredSession,
};

/// The request for a lease. All fields apply to this lease only.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct AcquireBrowser {
    /// The longest wait in seconds, 0 to 3600; 0: no wait. Default: the time in which the pool fills from empty.
    acquire_timeout_seconds: Option<i64>,
    /// 1 to 255 characters, unique among the project's active sessions.
    name: Option<String>,
    /// An absolute URL that is opened first, instead of the pool's.
    start_url: Option<String>,
    /// At most 50 pairs.
    tags: Option<BTreeMap<String, String>>,
    /// Changes to the pool's telemetry capture.
    telemetry: Option<Telemetry>,
    /// The profile to load, if the pool has none. It is loaded before the response, in a restart of the browser.
    profile: Option<Profile>,
}

impl AcquireBrowser {
    /// # Errors
    /// `invalid_input`, with all fields that are refused.
    fn input(self) -> Result<AcquireRequest, ApiError> {
        let Self { acquire_timeout_seconds, name, start_url, tags, telemetry, profile } = self;
        let mut fields = Fields::new();
        let telemetry = config_request(telemetry, &mut fields);
        let profile = profile.map(Into::into);
        let input =
            AcquireRequest { acquire_timeout_seconds, name, start_url, tags, telemetry, profile, client_timeout: None };
        checked(input, fields, |input| input.check().map_err(Refusal::Invalid))
    }
}

pub(crate) async fn acquire_browser(mut request: Request<DeferredAudit>) -> Answer {
    let which = request.path("id_or_name")?;
    let requested = request.json::<AcquireBrowser>().await?.input().map_err(in_order::<AcquireBrowser>)?;
    let client_timeout = client_timeout(request.headers()).and_then(|client_timeout| client_timeout.try_into().ok());
    let input = AcquireRequest { client_timeout, ..requested };
    // Cancelled when the caller disconnects, because this handler is dropped then.
    let gone = CancellationToken::new();
    let _hang_up = gone.clone().drop_guard();
    let record = request.prepared_record(StatusCode::OK);
    let pool = which.clone();
    let loads_profile = input.profile.is_some();
    let work = |services, scope| acquire(services, scope, pool, input, record, gone);
    // Waiters are queued on the main runtime: on a web worker they would fragment the memory of its connection buffers.
    let is_fast = !loads_profile && request.services().leases.has_cached_candidate(request.scope(), &which);
    let acquired = match is_fast {
        true => request.finish_here(work).await?,
        false => request.finish(work).await?,
    };
    let Some(Taken { undelivered, at_once }) = acquired else { return Ok(answer::nothing()) };
    request.note_ignored_fields(undelivered.session()).await;
    let body = request.api().session(request.scope(), undelivered.session().clone()).await?;
    let answer = answer::record(StatusCode::OK, &body);
    if !at_once {
        return Ok(undelivered.deliver(request.receipt(), answer));
    }
    // The look-ahead starts after the response is sent, so that it does not delay it.
    let (leases, runtime) = (request.services().leases.clone(), request.services().runtime.clone());
    let scope = request.scope().clone();
    let look_ahead = Box::pin(async move { leases.look_ahead(&scope, &which).await });
    Ok(undelivered.deliver_then(request.receipt(), answer, move || drop(runtime.spawn(look_ahead))))
}

/// The session that this request got.
pub(crate) struct Taken {
    pub(crate) undelivered: UndeliveredSession,
    /// True if the caller did not wait in the queue.
    at_once: bool,
}

/// Leases a browser, at once or after a wait; `None` if the wait ends without one. `gone` is cancelled when the caller
/// disconnects.
///
/// Thousands of these futures may wait at a time, so large and short-lived values are boxed or stay outside.
pub(crate) async fn acquire(
    services: Arc<Services>,
    scope: Scope,
    which: String,
    input: AcquireRequest,
    record: Option<Arc<PreparedRecord>>,
    gone: CancellationToken,
) -> Result<Option<Taken>, ApiError> {
    let acquiring = services.leases.acquire_recorded(&scope, &which, input, record.as_deref());
    let acquired = Box::pin(acquiring.instrument(tracing::debug_span!("acquire"))).await?;
    drop(record);
    let at_once = matches!(acquired, Acquired::Leased(_));
    let acquired = match acquired {
        // After a disconnect the wait still ends in order: a browser that is granted then returns to the pool with the undelivered response.
        Acquired::Waiting(mut waiting) => {
            let wait = services.leases.wait_for(&mut waiting, gone.cancelled());
            wait.instrument(tracing::debug_span!("wait in queue")).await?
        }
        over => over,
    };
    Ok(leased(acquired).map(|session| Taken { undelivered: UndeliveredSession::new(session, &services), at_once }))
}

fn leased(acquired: Acquired) -> Option<Session> {
    match acquired {
        Acquired::Leased(session) => Some(*session),
        Acquired::Waiting(_) | Acquired::TimeUp => None,
    }
}
