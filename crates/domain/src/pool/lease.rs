//! Use cases of leasing: acquire, wait, release.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use time::Duration;

use super::next_browser::{NextBrowser, NextBrowserCache};
use super::uncertain_writes::{self, UncertainWrite, UncertainWrites};
use super::{
    ImmediateLease, LeaseFrom, LeaseRequest, Pool, PoolDeps, QueueEntered, QueueEntry, TicketOutcome, Waiter,
    WaiterEvent,
};
use crate::access::{ProjectArchived, Scope};
use crate::audit::{PreparedRecord, PreparedRecordOutcome};
use crate::browser::StartUrl;
use crate::clock::MonotonicTime;
use crate::field::{Fields, InvalidInput, within};
use crate::ids::{BrowserId, PoolId, SessionId, TicketId};
use crate::name::LabelName;
use crate::session::{EndSessionError, IdOrName, Session, SessionEvent, Sessions, Tags, hand_out};
use crate::store_error::StoreError;
use crate::telemetry;

/// A lease as asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcquireInput {
    /// How long to wait, 0 to 3600; default: as long as the pool needs to fill from empty.
    pub acquire_timeout_seconds: Option<i64>,
    /// This lease only.
    pub name: Option<String>,
    /// This lease only.
    pub start_url: Option<String>,
    /// This lease only.
    pub tags: Option<BTreeMap<String, String>>,
    /// Onto the pool's.
    pub telemetry: Option<telemetry::ConfigRequest>,
    /// A bound on the wait that the caller's own patience sets.
    pub client_timeout: Option<Duration>,
}

impl AcquireInput {
    /// How long an acquire may wait, in seconds.
    pub const MAX_WAIT_SECONDS: u32 = 3600;

    /// Whether no field breaks a rule.
    ///
    /// # Errors
    /// Every field that does.
    pub fn check(&self) -> Result<(), InvalidInput> {
        self.parse().map(drop)
    }

    fn parse(&self) -> Result<CheckedRequest, InvalidInput> {
        let mut fields = Fields::new();
        let seconds = fields.take_optional("acquire_timeout_seconds", self.acquire_timeout_seconds, |n| {
            within(n, 0, Self::MAX_WAIT_SECONDS)
        });
        let name = fields.take_optional("name", self.name.as_deref(), LabelName::parse_in_path);
        let start_url = fields.take_optional("start_url", self.start_url.as_deref(), StartUrl::parse);
        let tags = fields.take_optional("tags", self.tags.clone(), Tags::parse);
        // What it comes to depends on the pool; whether it contradicts itself does not.
        fields.take("telemetry", telemetry::on_change(self.telemetry.as_ref(), None));
        fields.finish()?;
        Ok(CheckedRequest { seconds, name, start_url, tags: tags.unwrap_or_default() })
    }
}

/// What was asked for, checked.
struct CheckedRequest {
    /// How long to wait, if the caller says so.
    seconds: Option<u32>,
    name: Option<LabelName>,
    start_url: Option<StartUrl>,
    tags: Tags,
}

/// Nothing was leased.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The project takes nothing new.
    #[error(transparent)]
    Archived(#[from] ProjectArchived),
    /// The project has no such pool, or it was deleted during the wait.
    #[error("browser pool {0} not found")]
    PoolNotFound(String),
    /// Another session bears the name.
    #[error("a session named {0} exists already")]
    NameTaken(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A session was not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The project has no such pool.
    #[error("browser pool {0} not found")]
    PoolNotFound(String),
    /// The session is not leased from this pool.
    #[error("browser session {0} is not leased from this pool")]
    NotLeased(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of an acquire so far.
pub enum Acquired {
    /// A browser is the caller's.
    Leased(Box<Session>),
    /// The caller is in line. If it goes away, [`Leases::wait_for`] must be told; a wait that is dropped leaves its ticket in the line, for
    /// [`Leases::abandon`].
    Waiting(Box<WaitingCaller>),
    /// The wait is over without a browser.
    TimeUp,
}

/// A caller in line.
pub struct WaitingCaller {
    /// Its place.
    pub ticket: TicketId,
    turn: Box<dyn Waiter>,
    pool: PoolId,
    pool_text: String,
    position: Option<i64>,
    lease: LeaseRequest,
    until: MonotonicTime,
}

/// The use cases.
#[derive(Clone)]
pub struct Leases {
    deps: PoolDeps,
    sessions: Sessions,
    next_browsers: NextBrowserCache,
    uncertain: UncertainWrites,
}

/// A ticket outlives its wait by this much, so that the waiter and not the clock takes it out of the line.
const TICKET_GRACE: Duration = Duration::seconds(30);

/// How many browsers that do not answer one acquire may meet before it gives up for this time.
const DEAD_BROWSERS_MET: usize = 10;

impl Leases {
    /// The use cases on these ports.
    #[must_use]
    pub fn new(deps: PoolDeps, sessions: Sessions) -> Self {
        Self { deps, sessions, next_browsers: NextBrowserCache::default(), uncertain: UncertainWrites::default() }
    }

    async fn pool(&self, scope: &Scope, which: &str) -> Result<Option<Pool>, StoreError> {
        self.deps.pools.find(scope.project_id(), &IdOrName::parse(which)).await
    }

    /// Whether a browser is known that the next caller will most likely get at once. A guess: it may be gone a moment later.
    #[must_use]
    pub fn has_cached_candidate(&self, scope: &Scope, which: &str) -> bool {
        self.next_browsers.has(scope.project_id(), which)
    }

    /// Takes a browser at once, or a place in the line.
    ///
    /// # Errors
    /// See [`AcquireError`].
    pub async fn acquire(&self, scope: &Scope, which: &str, input: AcquireInput) -> Result<Acquired, AcquireError> {
        self.acquire_recorded(scope, which, input, None).await
    }

    /// The same; `record` says that a browser was leased, and is stored with the lease where nothing can come in between.
    ///
    /// # Errors
    /// See [`AcquireError`].
    pub async fn acquire_recorded(
        &self,
        scope: &Scope,
        which: &str,
        input: AcquireInput,
        record: Option<&PreparedRecord>,
    ) -> Result<Acquired, AcquireError> {
        scope.writable()?;
        let (mut lease, asked) = self.parse(&input)?;
        if let Some(seen) = self.next_browsers.take(scope.project_id(), which)
            && let Some(session) = self.lease_as_seen(seen, &mut lease, &input, record).await?
        {
            return Ok(Acquired::Leased(Box::new(session)));
        }
        // Stored before anything is leased, while the pool is read.
        let finding = self.pool(scope, which);
        let found = match record {
            Some(record) => record.decline_beside(finding).await?,
            None => finding.await,
        };
        let pool = found?.ok_or_else(|| AcquireError::PoolNotFound(which.to_owned()))?;
        lease.telemetry = captured(&input, &pool)?;
        let wait = Duration::seconds(i64::from(asked.unwrap_or_else(|| pool.config.time_to_fill_seconds())));
        let seconds = input.client_timeout.map_or(wait, |client_timeout| wait.min(client_timeout));
        for _ in 0..DEAD_BROWSERS_MET {
            match self.take_now(pool.id.into(), &lease).await? {
                ImmediateLease::Leased(session) => {
                    if let Some(session) = self.hand_out(*session).await {
                        return Ok(Acquired::Leased(Box::new(session)));
                    }
                    // The failed lease stays on record under its id.
                    lease.session = SessionId::mint(self.deps.ids.as_ref());
                }
                ImmediateLease::NameTaken => return Err(name_taken(&lease)),
                ImmediateLease::PoolGone => return Err(AcquireError::PoolNotFound(which.to_owned())),
                ImmediateLease::Busy => break,
            }
        }
        if seconds <= Duration::ZERO {
            return Ok(Acquired::TimeUp);
        }
        let ticket = TicketId::mint(self.deps.ids.as_ref());
        let mut waiting = WaitingCaller {
            ticket,
            turn: self.deps.tickets.expect(ticket),
            pool: pool.id,
            pool_text: which.to_owned(),
            position: None,
            lease,
            until: self.deps.monotonic.monotonic_now() + seconds,
        };
        if let Err(error) = self.enter(&mut waiting).await {
            return Err(self.out_of_line(&waiting, error).await);
        }
        Ok(Acquired::Waiting(Box::new(waiting)))
    }

    async fn take_now(&self, from: LeaseFrom, lease: &LeaseRequest) -> Result<ImmediateLease, StoreError> {
        let taken = self.deps.line.take_now(&from, lease, self.deps.clock.now()).await;
        taken.map_err(|error| self.in_doubt(lease, error))
    }

    async fn take_recorded(
        &self,
        from: LeaseFrom,
        browser: BrowserId,
        lease: &LeaseRequest,
        record: &PreparedRecord,
    ) -> Result<ImmediateLease, StoreError> {
        let now = self.deps.clock.now();
        let taken = self.deps.line.take_recorded(&from, browser, lease, record.entry(), now).await;
        let taken = taken.map_err(|error| self.in_doubt(lease, error))?;
        let leased = matches!(taken, ImmediateLease::Leased(_));
        record.resolve(if leased { PreparedRecordOutcome::Stored } else { PreparedRecordOutcome::Declined });
        Ok(taken)
    }

    /// Leases from a pool as it was seen after its last lease. `None`: it has changed, or no browser is idle, or one does not answer.
    async fn lease_as_seen(
        &self,
        seen: NextBrowser,
        lease: &mut LeaseRequest,
        input: &AcquireInput,
        record: Option<&PreparedRecord>,
    ) -> Result<Option<Session>, AcquireError> {
        let NextBrowser { pool, next } = seen;
        lease.telemetry = captured(input, &pool)?;
        let from = LeaseFrom { unchanged_since: Some(pool.updated_at), ..pool.id.into() };
        let taken = match record {
            Some(record) => self.take_recorded(from, next, lease, record).await?,
            None => self.take_now(from, lease).await?,
        };
        match taken {
            ImmediateLease::Leased(session) => {
                let handed_out = self.hand_out(*session).await;
                if handed_out.is_none() {
                    // The failed lease stays on record under its id, and what was recorded of the call was of that lease.
                    lease.session = SessionId::mint(self.deps.ids.as_ref());
                    if let Some(record) = record {
                        record.resolve(PreparedRecordOutcome::Superseded);
                    }
                }
                Ok(handed_out)
            }
            ImmediateLease::NameTaken => Err(name_taken(lease)),
            ImmediateLease::Busy | ImmediateLease::PoolGone => Ok(None),
        }
    }

    /// After a lease, and beside its answer: looks which browser comes next, so that the next caller need not read the pool. Whether it
    /// succeeds matters to nobody.
    pub async fn look_ahead(&self, scope: &Scope, which: &str) {
        let found = self.deps.pools.find_with_next(scope.project_id(), &IdOrName::parse(which)).await;
        let Ok(Some((pool, Some(next)))) = found else { return };
        self.next_browsers.note(scope.project_id(), which, NextBrowser { pool, next });
    }

    /// The lease, and how many seconds to wait, if the caller says so.
    fn parse(&self, input: &AcquireInput) -> Result<(LeaseRequest, Option<u32>), AcquireError> {
        let CheckedRequest { seconds, name, start_url, tags } = input.parse()?;
        let session = SessionId::mint(self.deps.ids.as_ref());
        Ok((LeaseRequest { session, name, start_url, tags, telemetry: None }, seconds))
    }

    async fn enter(&self, waiting: &mut WaitingCaller) -> Result<(), AcquireError> {
        let place = QueueEntry {
            pool: waiting.pool,
            ticket: waiting.ticket,
            position: waiting.position,
            lease: waiting.lease.clone(),
            node: self.deps.node,
            lasts: waiting.until - self.deps.monotonic.monotonic_now() + TICKET_GRACE,
        };
        match self.deps.line.enter(&place, self.deps.clock.now()).await? {
            QueueEntered::Yes(position) => waiting.position = Some(position),
            QueueEntered::PoolGone => return Err(AcquireError::PoolNotFound(waiting.pool_text.clone())),
        }
        Ok(())
    }

    /// Waits in line to its end: a browser, or the time is up. Never answers [`Acquired::Waiting`].
    ///
    /// # Errors
    /// See [`AcquireError`]; the caller is out of the line then, unless the store cannot be told so: in that case
    /// [`reconcile`](Self::reconcile) does it.
    pub async fn wait(&self, waiting: &mut WaitingCaller) -> Result<Acquired, AcquireError> {
        self.wait_for(waiting, std::future::pending()).await
    }

    /// The same for a caller who may go away meanwhile, which `gone` says: its ticket then leaves the line, and a browser that became its
    /// own just then goes to the next. One that it already has when it goes is answered all the same, for the answer's sender to give back.
    ///
    /// The ticket is moved by this future alone. Whoever would take it out of the line beside this future, and rested it meanwhile, could
    /// wait for a row that a rested transaction holds.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn wait_for(
        &self,
        waiting: &mut WaitingCaller,
        gone: impl Future<Output = ()> + Send,
    ) -> Result<Acquired, AcquireError> {
        match self.wait_to_the_end(waiting, pin!(gone)).await {
            Err(error) => Err(Box::pin(self.out_of_line(waiting, error)).await),
            done => done,
        }
    }

    /// After a failure of the store nobody knows whether the ticket is in line, or has a lease already; nobody may get a
    /// browser that no caller waits for.
    async fn out_of_line(&self, waiting: &WaitingCaller, error: AcquireError) -> AcquireError {
        let AcquireError::Store(error) = error else { return error };
        let error = self.in_doubt(&waiting.lease, error);
        // What cannot be told now has failed already: the first failure is the one to report.
        let _ = self.abandon(waiting.ticket).await;
        error.into()
    }

    /// What may have been leased is taken back.
    fn in_doubt(&self, lease: &LeaseRequest, error: StoreError) -> StoreError {
        self.uncertain_write(UncertainWrite::Lease(lease.session));
        error.undone()
    }

    /// Thousands of these futures stand still at a time, so what comes only at their end lies outside of them.
    async fn wait_to_the_end(
        &self,
        waiting: &mut WaitingCaller,
        mut gone: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Result<Acquired, AcquireError> {
        let (mut event, mut hung_up) = (WaiterEvent::Look, false);
        loop {
            let outcome = match event {
                WaiterEvent::Look => self.deps.line.outcome(waiting.ticket).await?,
                WaiterEvent::TimeUp | WaiterEvent::Stopping => self.deps.line.leave(waiting.ticket).await?,
            };
            match outcome {
                TicketOutcome::Waiting => {}
                TicketOutcome::Granted(session) if hung_up => {
                    Box::pin(self.undelivered(&session)).await?;
                    return Ok(Acquired::TimeUp);
                }
                TicketOutcome::Granted(session) => {
                    if let Some(session) = Box::pin(self.hand_out(*session)).await {
                        return Ok(Acquired::Leased(Box::new(session)));
                    }
                    if event != WaiterEvent::Look {
                        return Ok(Acquired::TimeUp);
                    }
                    // Its browser did not answer; it keeps its place in the line.
                    waiting.lease.session = SessionId::mint(self.deps.ids.as_ref());
                    self.enter(waiting).await?;
                    continue;
                }
                TicketOutcome::NameTaken => return Err(name_taken(&waiting.lease)),
                TicketOutcome::Gone if event == WaiterEvent::Look => {
                    return Err(AcquireError::PoolNotFound(waiting.pool_text.clone()));
                }
                TicketOutcome::Gone => return Ok(Acquired::TimeUp),
            }
            match unless(waiting.turn.wait(waiting.until), gone.as_mut()).await {
                Some(woken) => event = woken,
                // Nobody waits any more, which is as if the time were up.
                None => (event, hung_up) = (WaiterEvent::TimeUp, true),
            }
        }
    }

    /// A caller in line is gone, and nobody waits with its ticket any more: it leaves, and if it was its turn just then, the browser goes to the next.
    ///
    /// # Errors
    /// The store's failure; [`reconcile`](Self::reconcile) does it again.
    pub async fn abandon(&self, ticket: TicketId) -> Result<(), StoreError> {
        match self
            .deps
            .line
            .leave(ticket)
            .await
            .inspect_err(|_| self.uncertain_write(UncertainWrite::Ticket(ticket)))?
        {
            TicketOutcome::Granted(session) => self.undelivered(&session).await,
            _ => Ok(()),
        }
    }

    /// The answer with this session never reached its caller: the next may have the browser, unless somebody has found the session
    /// meanwhile and used it.
    ///
    /// # Errors
    /// The store's failure; [`reconcile`](Self::reconcile) does it again.
    pub async fn undelivered(&self, session: &Session) -> Result<(), StoreError> {
        let untouched = self.sessions.activity().take_back(session);
        let event = if untouched { SessionEvent::Undelivered } else { SessionEvent::StartFailed };
        self.is_ended(session.id, event)
            .await
            .inspect_err(|_| self.uncertain_write(UncertainWrite::Lease(session.id)))?;
        // Also if somebody else had ended it.
        self.sessions.activity().forget(session.id);
        Ok(())
    }

    /// Ends a session; `false` if there is none.
    async fn is_ended(&self, session: SessionId, by: SessionEvent) -> Result<bool, StoreError> {
        match self.sessions.end(session, by).await {
            Err(EndSessionError::Store(error)) => Err(error),
            Err(EndSessionError::NotFound(_)) => Ok(false),
            Ok(_) | Err(_) => Ok(true),
        }
    }

    fn uncertain_write(&self, what: UncertainWrite) {
        self.uncertain.note(what, self.deps.monotonic.monotonic_now());
    }

    /// Clears away what the store may hold for callers that were told of its failure: their tickets leave, and what they
    /// were leased ends with its browser, since it could be found and used meanwhile.
    ///
    /// # Errors
    /// The store's failure; what is not done is done at the next call.
    pub async fn reconcile(&self) -> Result<(), StoreError> {
        let mut open = self.uncertain.take();
        let (mut kept, mut done) = (Vec::new(), Ok(()));
        while let Some((uncertain_write, since)) = open.pop() {
            match self.settle_one(uncertain_write).await {
                Ok(found) if found || uncertain_writes::is_over(since, self.deps.monotonic.monotonic_now()) => {}
                Ok(_) => kept.push((uncertain_write, since)),
                // It will refuse for ever.
                Err(StoreError::Broken { .. })
                    if uncertain_writes::is_over(since, self.deps.monotonic.monotonic_now()) => {}
                Err(error) => {
                    kept.push((uncertain_write, since));
                    done = Err(error);
                    break;
                }
            }
        }
        kept.append(&mut open);
        self.uncertain.put_back(kept);
        done
    }

    /// Whether there was anything.
    async fn settle_one(&self, uncertain_write: UncertainWrite) -> Result<bool, StoreError> {
        match uncertain_write {
            UncertainWrite::Lease(session) => self.is_ended(session, SessionEvent::StartFailed).await,
            UncertainWrite::Ticket(ticket) => match self.deps.line.leave(ticket).await? {
                TicketOutcome::Granted(session) => {
                    self.uncertain_write(UncertainWrite::Lease(session.id));
                    Ok(true)
                }
                outcome => Ok(outcome != TicketOutcome::Gone),
            },
        }
    }

    /// The browser of a new lease answers now, or the lease is over before it began. It is asked after the lease was decided: an answer
    /// from before says nothing of a browser that has died since.
    async fn hand_out(&self, session: Session) -> Option<Session> {
        let browser = session.browser?;
        // Before its caller can use it: a connection that is open already must count.
        self.sessions.activity().watch(&session);
        // Before anything is opened for it: what that does is captured, too.
        if self.sessions.begin_capture(&session).await.is_err() {
            self.start_failed(session.id).await;
            return None;
        }
        match self.deps.engine.hand_out(browser, hand_out(&session)).await {
            Ok(()) => Some(session),
            Err(_) => {
                self.start_failed(session.id).await;
                None
            }
        }
    }

    async fn start_failed(&self, session: SessionId) {
        if self.is_ended(session, SessionEvent::StartFailed).await.is_err() {
            self.uncertain_write(UncertainWrite::Lease(session));
        }
    }

    /// Gives a leased browser back. The whole sandbox ends and a fresh one takes its place.
    ///
    /// # Errors
    /// See [`ReleaseError`].
    pub async fn release(&self, scope: &Scope, which: &str, session: &str) -> Result<(), ReleaseError> {
        let pool = self.pool(scope, which).await?.ok_or_else(|| ReleaseError::PoolNotFound(which.to_owned()))?;
        let not_leased = || ReleaseError::NotLeased(session.to_owned());
        let id: SessionId = session.parse().map_err(|_| not_leased())?;
        let found = self.sessions.active(id).await.map_err(|error| match error {
            crate::session::UseSessionError::Store(error) => ReleaseError::Store(error),
            _ => not_leased(),
        })?;
        let from_here = found.pool.as_ref().is_some_and(|from| from.id == pool.id);
        if !from_here {
            return Err(not_leased());
        }
        match self.sessions.end(id, SessionEvent::Release).await {
            Ok(_) => Ok(()),
            Err(EndSessionError::Store(error)) => Err(error.into()),
            Err(_) => Err(not_leased()),
        }
    }
}

/// What is captured of the session: what the pool says, and what the caller changes of it.
/// What `work` ends with, if `end` does not come first.
async fn unless<T>(work: impl Future<Output = T>, mut end: Pin<&mut impl Future<Output = ()>>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

fn captured(input: &AcquireInput, pool: &Pool) -> Result<Option<telemetry::Capture>, InvalidInput> {
    telemetry::on_change(input.telemetry.as_ref(), pool.config.telemetry.as_ref())
        .map_err(|bad| InvalidInput::of("telemetry", bad))
}

fn name_taken(lease: &LeaseRequest) -> AcquireError {
    AcquireError::NameTaken(lease.name.as_ref().map(ToString::to_string).unwrap_or_default())
}
