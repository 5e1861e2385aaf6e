//! Makes the session of a client that connects.

use actix_web::HttpResponse;
use casement_domain::{
    permission::{Action, Kind, Target, Verb, Which},
    pool::AcquireRequest,
};
use tokio_util::sync::CancellationToken;

use super::options::{BrowserOptions, Source};
use crate::{
    answer::Answer,
    cluster::Destination,
    error::{ApiError, Code},
    pool::acquire,
    request::{ProjectKey, Request},
    undelivered::UndeliveredSession,
};

/// What came of a request for a session.
pub(crate) enum Made {
    /// A session, which this node has made or leased.
    Here(Box<UndeliveredSession>),
    /// The response of the node that has made a session.
    Elsewhere(HttpResponse),
}

/// Makes a session where the nodes have room for one, or leases one from a pool; see [`start`]. `forward` relays the
/// request to another node.
///
/// # Errors
/// Those of [`start`], [`Request::placed`] and `forward`.
pub(crate) async fn make(
    request: &mut Request<ProjectKey>,
    options: &BrowserOptions,
    mut forward: impl AsyncFnMut(&mut Request<ProjectKey>, &Destination) -> Answer,
) -> Result<Made, ApiError> {
    let here = async |request: &Request<ProjectKey>| {
        start(request, options.clone()).await.map(|started| Made::Here(Box::new(started)))
    };
    let Some(places) = options.places(&request.services().sessions) else { return here(request).await };
    let make = async |request: &mut Request<ProjectKey>, elsewhere: Option<Destination>| match elsewhere {
        Some(node) => forward(request, &node).await.map(Made::Elsewhere),
        None => here(request).await,
    };
    request.placed(places, make).await
}

/// Makes a session, or leases one from a pool, that is ready to use. If the caller disconnects meanwhile, the session is
/// returned.
///
/// # Errors
/// `insufficient_scope`; those of creating a session or acquiring one; `unavailable` if no browser of the pool became free in time.
async fn start(request: &Request<ProjectKey>, options: BrowserOptions) -> Result<UndeliveredSession, ApiError> {
    let (permissions, project) = (&request.scope().permissions, request.scope().project_id());
    match options.into_source(request.services().sessions.engines())? {
        Source::Pool(pool, lease) => {
            let target = Target::InProject(project, Kind::BrowserPools, Which::named(&pool));
            permissions.require(Action::new(Kind::BrowserPools, Verb::Use), target)?;
            leased(request, pool, *lease).await
        }
        Source::New(new) => {
            let target = Target::InProject(project, Kind::Browsers, Which::Any);
            permissions.require(Action::new(Kind::Browsers, Verb::Create), target)?;
            let made = request.finish(|services, scope| async move {
                let made = services.sessions.create(&scope, *new).await;
                made.map(|session| UndeliveredSession::new(session, &services))
            });
            made.await
        }
    }
}

async fn leased(
    request: &Request<ProjectKey>,
    pool: String,
    lease: AcquireRequest,
) -> Result<UndeliveredSession, ApiError> {
    // Cancelled when the caller disconnects, because this future is dropped then.
    let gone = CancellationToken::new();
    let _hang_up = gone.clone().drop_guard();
    let taken = request.finish(|services, scope| acquire(services, scope, pool, lease, None, gone)).await?;
    let taken = taken.ok_or_else(|| ApiError::new(Code::Unavailable, "no browser of the pool became free in time"))?;
    Ok(taken.undelivered)
}
