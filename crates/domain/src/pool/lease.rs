//! The use cases of leases: acquire, wait, release, return of undelivered sessions.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use time::Duration;

use super::fast_path::NextBrowserCache;
use super::hand_out::{FailedLoads, LeaseHandOut};
use super::model::MAX_WAIT_SECONDS;
use super::service::not_found;
use super::uncertain_writes::{UncertainWrite, UncertainWrites};
use super::{
    ImmediateLease, LeaseRequest, Pool, PoolDeps, QueueEntered, QueueEntry, TicketOutcome, Waiter, WaiterEvent,
};
use crate::access::Scope;
use crate::audit::PreparedRecord;
use crate::browser::StartUrl;
use crate::clock::MonotonicTime;
use crate::engine::{Capability, check_fields, describe};
use crate::error::{NameTaken, SpecificError, UseCaseError};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, within};
use crate::ids::{PoolId, SessionId, TicketId};
use crate::name::LabelName;
use crate::profile::{LoadedProfile, ProfileRequest};
use crate::session::{
    EndSessionError, IdOrName, NotSupported, Session, SessionEvent, Sessions, Tags, UseSessionError, check_start_url,
};
use crate::store_error::StoreError;
use crate::telemetry;

/// The unchecked request for a lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcquireRequest {
    /// The wait in seconds, 0 to 3600; default: the time in which the pool fills from empty.
    pub acquire_timeout_seconds: Option<i64>,
    /// Applies to this lease only.
    pub name: Option<String>,
    /// Applies to this lease only.
    pub start_url: Option<String>,
    /// Applies to this lease only.
    pub tags: Option<BTreeMap<String, String>>,
    /// Changes to the pool's telemetry capture.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// The profile, of the project, for a pool without one. Applies to this lease only.
    pub profile: Option<ProfileRequest>,
    /// The timeout of the client, which bounds the wait.
    pub client_timeout: Option<Duration>,
}

impl AcquireRequest {
    /// Checks all fields.
    ///
    /// # Errors
    /// Returns every field that breaks a rule.
    pub fn check(&self) -> Result<(), InvalidInput> {
        self.parse().map(drop)
    }

    fn parse(&self) -> Result<CheckedRequest, InvalidInput> {
        let mut fields = Fields::new();
        let seconds = fields
            .take_optional("acquire_timeout_seconds", self.acquire_timeout_seconds, |n| within(n, 0, MAX_WAIT_SECONDS));
        let name = fields.take_optional("name", self.name.as_deref(), LabelName::parse_in_path);
        let start_url = fields.take_optional("start_url", self.start_url.as_deref(), StartUrl::parse);
        let tags = fields.take_optional("tags", self.tags.clone(), Tags::parse);
        fields.take_optional("profile", self.profile.as_ref(), |profile| profile.which.parse());
        // The result depends on the pool, but contradictions are found here.
        fields.take("telemetry", telemetry::check_change(self.telemetry.as_ref()));
        fields.finish()?;
        Ok(CheckedRequest { seconds, name, start_url, tags: tags.unwrap_or_default() })
    }
}

/// The checked request.
struct CheckedRequest {
    /// The wait in seconds, if the caller sets it.
    seconds: Option<u32>,
    name: Option<LabelName>,
    start_url: Option<StartUrl>,
    tags: Tags,
}

/// The error of a release.
pub type ReleaseError = UseCaseError<NotLeased>;

/// The error of a session that is not leased from the pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("browser session {0} is not leased from this pool")]
pub struct NotLeased(pub String);

impl SpecificError for NotLeased {}

/// The state of an acquire.
pub enum Acquired {
    /// A browser is leased to the caller.
    Leased(Box<Session>),
    /// The caller is queued. If the caller disconnects, [`Leases::wait_for`] must be notified. A dropped wait leaves
    /// its ticket in the queue, which [`Leases::abandon`] removes.
    Waiting(Box<WaitingCaller>),
    /// The wait ended without a browser.
    TimeUp,
}

/// A caller in the wait queue.
pub struct WaitingCaller {
    /// The ticket of the caller.
    pub ticket: TicketId,
    turn: Box<dyn Waiter>,
    pool: PoolId,
    pool_text: String,
    position: Option<i64>,
    lease: LeaseRequest,
    failed_loads: FailedLoads,
    until: MonotonicTime,
}

/// The use cases.
#[derive(Clone)]
pub struct Leases {
    pub(super) deps: PoolDeps,
    pub(super) sessions: Sessions,
    pub(super) next_browsers: NextBrowserCache,
    pub(super) uncertain: UncertainWrites,
}

/// The lifetime of a ticket beyond its wait, so that the waiter and not the clock removes it from the queue.
const TICKET_GRACE: Duration = Duration::seconds(30);

/// The number of browsers that may fail to answer before one acquire gives up.
const MAX_DEAD_BROWSERS: usize = 10;

impl Leases {
    /// Creates the use cases on these ports.
    #[must_use]
    pub fn new(deps: PoolDeps, sessions: Sessions) -> Self {
        Self { deps, sessions, next_browsers: NextBrowserCache::default(), uncertain: UncertainWrites::default() }
    }

    async fn pool(&self, scope: &Scope, which: &str) -> Result<Option<Pool>, StoreError> {
        self.deps.pools.find(scope.project_id(), &IdOrName::parse(which)).await
    }

    /// Leases a browser at once, or enters the wait queue.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn acquire(&self, scope: &Scope, which: &str, input: AcquireRequest) -> Result<Acquired, UseCaseError> {
        self.acquire_recorded(scope, which, input, None).await
    }

    /// Like [`acquire`](Self::acquire). `record` is the audit record of the lease; it is stored in one step with the
    /// lease where possible.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn acquire_recorded(
        &self,
        scope: &Scope,
        which: &str,
        mut input: AcquireRequest,
        record: Option<&PreparedRecord>,
    ) -> Result<Acquired, UseCaseError> {
        scope.writable()?;
        self.sessions.find_destination(scope, &mut input.telemetry).await?;
        let (mut lease, requested) = self.parse(&input)?;
        if let Some(record) = record.filter(|_| input.profile.is_none())
            && let Some(session) = self.lease_cached(scope, which, &input, &mut lease, record).await?
        {
            return Ok(Acquired::Leased(Box::new(session)));
        }
        // The record is stored before anything is leased, concurrently with reading the pool.
        let finding = self.pool(scope, which);
        let found = match record {
            Some(record) => record.decline_beside(finding).await?,
            None => finding.await,
        };
        let pool = found?.ok_or_else(|| not_found(which))?;
        check_start_url(&pool.config.shape, lease.start_url.as_ref())?;
        lease.telemetry = merged_capture(&input, &pool)?;
        self.check_engine(&input, &pool)?;
        lease.profile = self.lease_profile(scope, &input, &pool).await?;
        let mut failed_loads = FailedLoads::default();
        if let Some(session) = self.lease_idle(&pool, which, &mut lease, &mut failed_loads).await? {
            return Ok(Acquired::Leased(Box::new(session)));
        }
        let wait = Duration::seconds(i64::from(requested.unwrap_or_else(|| pool.config.time_to_fill_seconds())));
        let wait = input.client_timeout.map_or(wait, |client_timeout| wait.min(client_timeout));
        match wait > Duration::ZERO {
            true => self.enter_queue(pool.id, which, (lease, failed_loads), wait).await,
            false => Ok(Acquired::TimeUp),
        }
    }

    /// Checks that the engine of the pool supports the options of a lease.
    pub(super) fn check_engine(&self, input: &AcquireRequest, pool: &Pool) -> Result<(), NotSupported> {
        check_fields(
            &describe(self.sessions.engines(), &pool.config.shape.engine),
            &[
                ("telemetry", Capability::Telemetry, input.telemetry.is_some()),
                ("profile", Capability::Profiles, input.profile.is_some()),
            ],
        )
    }

    /// Returns the profile that a lease loads, if one is requested.
    async fn lease_profile(
        &self,
        scope: &Scope,
        input: &AcquireRequest,
        pool: &Pool,
    ) -> Result<Option<LoadedProfile>, UseCaseError> {
        let Some(request) = &input.profile else { return Ok(None) };
        if pool.config.shape.profile.is_some() {
            let why = "must be absent, because the browsers of the pool have a profile";
            return Err(InvalidInput::of("profile", InvalidValue::new(FieldCode::MutuallyExclusive, why)).into());
        }
        self.sessions.profile::<UseCaseError>(scope, request).await.map(Some)
    }

    /// Leases an idle browser that answers; `None` if none is idle or callers wait.
    async fn lease_idle(
        &self,
        pool: &Pool,
        which: &str,
        lease: &mut LeaseRequest,
        failed_loads: &mut FailedLoads,
    ) -> Result<Option<Session>, UseCaseError> {
        for _ in 0..MAX_DEAD_BROWSERS {
            let taken = self.deps.wait_queue.take_now(pool.id, lease, self.deps.clock.now()).await;
            match taken.map_err(|error| self.note_uncertain_lease(lease, error))? {
                ImmediateLease::Leased(session) => {
                    let node = session.node;
                    match self.hand_out(*session, lease.profile, failed_loads).await? {
                        LeaseHandOut::Done(session) => return Ok(Some(*session)),
                        LeaseHandOut::NotAnswering => {}
                        LeaseHandOut::NodeUnreachable => lease.avoided.push(node),
                    }
                    // The failed lease keeps its session id, so the next attempt needs a new one.
                    lease.session = SessionId::mint(self.deps.ids.as_ref());
                }
                ImmediateLease::NameTaken => return Err(name_taken(lease)),
                ImmediateLease::PoolGone => return Err(not_found(which).into()),
                ImmediateLease::Busy => break,
            }
        }
        Ok(None)
    }

    async fn enter_queue(
        &self,
        pool: PoolId,
        which: &str,
        (lease, failed_loads): (LeaseRequest, FailedLoads),
        wait: Duration,
    ) -> Result<Acquired, UseCaseError> {
        let ticket = TicketId::mint(self.deps.ids.as_ref());
        let mut waiting = WaitingCaller {
            ticket,
            turn: self.deps.tickets.expect(ticket),
            pool,
            pool_text: which.to_owned(),
            position: None,
            lease,
            failed_loads,
            until: self.deps.monotonic.monotonic_now() + wait,
        };
        if let Err(error) = self.enter(&mut waiting).await {
            return Err(self.leave_queue_after_error(&waiting, error).await);
        }
        Ok(Acquired::Waiting(Box::new(waiting)))
    }

    /// Returns the lease and the wait in seconds, if the caller sets one.
    fn parse(&self, input: &AcquireRequest) -> Result<(LeaseRequest, Option<u32>), UseCaseError> {
        let CheckedRequest { seconds, name, start_url, tags } = input.parse()?;
        let lease = LeaseRequest {
            session: SessionId::mint(self.deps.ids.as_ref()),
            node: self.deps.node,
            avoided: Vec::new(),
            name,
            start_url,
            tags,
            telemetry: None,
            profile: None,
        };
        Ok((lease, seconds))
    }

    async fn enter(&self, waiting: &mut WaitingCaller) -> Result<(), UseCaseError> {
        let place = QueueEntry {
            pool: waiting.pool,
            ticket: waiting.ticket,
            position: waiting.position,
            lease: waiting.lease.clone(),
            node: self.deps.node,
            lasts: waiting.until - self.deps.monotonic.monotonic_now() + TICKET_GRACE,
        };
        match self.deps.wait_queue.enter(&place, self.deps.clock.now()).await? {
            QueueEntered::Yes(position) => waiting.position = Some(position),
            QueueEntered::PoolGone => return Err(not_found(&waiting.pool_text).into()),
        }
        Ok(())
    }

    /// Waits until a browser is granted or the time is up. Never returns [`Acquired::Waiting`].
    ///
    /// # Errors
    /// See [`UseCaseError`]. The ticket has left the queue then, unless the store failed; in that case
    /// [`reconcile`](Self::reconcile) removes it.
    pub async fn wait(&self, waiting: &mut WaitingCaller) -> Result<Acquired, UseCaseError> {
        self.wait_for(waiting, std::future::pending()).await
    }

    /// Like [`wait`](Self::wait), for a caller that may disconnect, which `gone` reports: its ticket then leaves the
    /// queue, and a browser that was granted just then goes to the next waiter. A browser granted before is returned
    /// all the same; the sender of the response returns it to the pool.
    ///
    /// Only this future may move the ticket. Another task that removed the ticket while this future is suspended could
    /// wait for a row that a suspended transaction has locked.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn wait_for(
        &self,
        waiting: &mut WaitingCaller,
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Acquired, UseCaseError> {
        match self.wait_for_outcome(waiting, pin!(gone)).await {
            Err(error) => Err(Box::pin(self.leave_queue_after_error(waiting, error)).await),
            done => done,
        }
    }

    /// Removes the ticket after an error of the store, because it may be queued or have a lease already. No browser may
    /// be granted without a waiting caller.
    async fn leave_queue_after_error(&self, waiting: &WaitingCaller, error: UseCaseError) -> UseCaseError {
        let UseCaseError::Store(error) = error else { return error };
        let error = self.note_uncertain_lease(&waiting.lease, error);
        // A second error is ignored: the first one is reported.
        let _ = self.abandon(waiting.ticket).await;
        error.into()
    }

    /// Notes a lease that may have been stored, so that it is taken back later.
    pub(super) fn note_uncertain_lease(&self, lease: &LeaseRequest, error: StoreError) -> StoreError {
        self.uncertain_write(UncertainWrite::Lease(lease.session));
        error.with_maybe_done(false)
    }

    /// Thousands of these futures are suspended at a time, so the code of their end is boxed to keep them small.
    async fn wait_for_outcome(
        &self,
        waiting: &mut WaitingCaller,
        mut gone: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<Acquired, UseCaseError> {
        let (mut event, mut disconnected) = (WaiterEvent::Look, false);
        loop {
            let outcome = match event {
                WaiterEvent::Look => self.deps.wait_queue.outcome(waiting.ticket).await?,
                WaiterEvent::TimeUp | WaiterEvent::Stopping => self.deps.wait_queue.leave(waiting.ticket).await?,
            };
            match outcome {
                TicketOutcome::Waiting => {}
                TicketOutcome::Granted(session) if disconnected => {
                    Box::pin(self.undelivered(&session)).await?;
                    return Ok(Acquired::TimeUp);
                }
                TicketOutcome::Granted(session) => {
                    let handing_out = self.hand_out(*session, waiting.lease.profile, &mut waiting.failed_loads);
                    if let LeaseHandOut::Done(session) = Box::pin(handing_out).await? {
                        return Ok(Acquired::Leased(session));
                    }
                    if event != WaiterEvent::Look {
                        return Ok(Acquired::TimeUp);
                    }
                    // The browser did not answer; the caller keeps its position in the queue.
                    waiting.lease.session = SessionId::mint(self.deps.ids.as_ref());
                    self.enter(waiting).await?;
                    continue;
                }
                TicketOutcome::NameTaken => return Err(name_taken(&waiting.lease)),
                TicketOutcome::Gone if event == WaiterEvent::Look => {
                    // This node was lost and its tickets were removed, or the pool was deleted, which is an error here.
                    waiting.lease.session = SessionId::mint(self.deps.ids.as_ref());
                    self.enter(waiting).await?;
                    continue;
                }
                TicketOutcome::Gone => return Ok(Acquired::TimeUp),
            }
            match run_until(waiting.turn.wait(waiting.until), gone.as_mut()).await {
                Some(wake_reason) => event = wake_reason,
                // A disconnected caller is handled like a timeout.
                None => (event, disconnected) = (WaiterEvent::TimeUp, true),
            }
        }
    }

    /// Returns a leased browser to its pool. Its sandbox ends and a new browser replaces it.
    ///
    /// # Errors
    /// See [`ReleaseError`].
    pub async fn release(&self, scope: &Scope, which: &str, session: &str) -> Result<(), ReleaseError> {
        let pool = self.pool(scope, which).await?.ok_or_else(|| not_found(which))?;
        let not_leased = || NotLeased(session.to_owned());
        let id: SessionId = session.parse().map_err(|_| not_leased())?;
        let found = self.sessions.active(id).await.map_err(|error| match error {
            UseSessionError::Store(error) => ReleaseError::Store(error),
            _ => not_leased().into(),
        })?;
        let from_here = found.pool.as_ref().is_some_and(|from| from.id == pool.id);
        if !from_here {
            return Err(not_leased().into());
        }
        match self.sessions.end(id, SessionEvent::Release).await {
            Ok(_) => Ok(()),
            Err(EndSessionError::Store(error)) => Err(error.into()),
            Err(_) => Err(not_leased().into()),
        }
    }
}

/// Runs `work`; returns `None` if `end` completes first.
async fn run_until<T>(work: impl Future<Output = T>, mut end: Pin<&mut impl Future<Output = ()>>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

pub(super) fn merged_capture(input: &AcquireRequest, pool: &Pool) -> Result<Option<telemetry::Capture>, InvalidInput> {
    telemetry::on_change(input.telemetry.as_ref(), pool.config.telemetry.as_ref())
        .map_err(|bad| InvalidInput::of("telemetry", bad))
}

pub(super) fn name_taken(lease: &LeaseRequest) -> UseCaseError {
    NameTaken::new("a session", lease.name.as_ref().map(ToString::to_string).unwrap_or_default()).into()
}
