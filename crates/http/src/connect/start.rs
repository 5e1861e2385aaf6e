//! Makes the session of a client that connects.

use casement_domain::{
    permission::{Action, Kind, Target, Verb, Which},
    pool::AcquireRequest,
};
use tokio_util::sync::CancellationToken;

use super::options::{BrowserOptions, Source};
use crate::{
    error::{ApiError, Code},
    pool::acquire,
    request::{ProjectKey, Request},
    undelivered::UndeliveredSession,
};

/// Makes a session, or leases one from a pool, that is ready to use. If the caller disconnects meanwhile, the session is
/// returned.
///
/// # Errors
/// `insufficient_scope`; those of creating a session or acquiring one; `unavailable` if no browser of the pool became free in time.
pub(crate) async fn start(
    request: &Request<ProjectKey>,
    options: BrowserOptions,
) -> Result<UndeliveredSession, ApiError> {
    let (permissions, project) = (&request.scope().permissions, request.scope().project_id());
    match options.into_source()? {
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
