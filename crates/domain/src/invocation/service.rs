//! The use cases of invocations.

use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::input::parse_end;
use super::{
    Invocation, InvocationEvent, InvocationFilter, InvocationRefused, InvocationRepository, InvocationRequest,
    InvocationStatus, InvocationStored,
};
use crate::access::Scope;
use crate::clock::{Clock, IdSource};
use crate::deployment::{
    ChangeNotifier, ChangeWaiter, DeploymentRepository, DeploymentStatus, FollowDeps, Follower, LineStore, Subject,
    WakeReason,
};
use crate::error::{NotFound, SpecificError, UseCaseError};
use crate::ids::InvocationId;
use crate::page::{Listed, Page};
use crate::session::{EndSessionError, Session, Sessions};
use crate::store_error::{Replaced, StoreError};

/// The error of a use case of invocations.
pub type InvocationError = UseCaseError<InvocationFailure>;

/// An error that only use cases of invocations have.
#[derive(Debug, thiserror::Error)]
pub enum InvocationFailure {
    /// The app's deployment does not run.
    #[error("the deployment of {app} {version} is {}", status.as_str())]
    NotRunning {
        /// The app.
        app: String,
        /// The version of the app.
        version: String,
        /// The status of its deployment.
        status: DeploymentStatus,
    },
    /// The invocation has ended.
    #[error(transparent)]
    Refused(#[from] InvocationRefused),
    /// A browser of the invocation could not be ended.
    #[error(transparent)]
    Browser(#[from] EndSessionError),
}

impl SpecificError for InvocationFailure {}

/// The number of cancelled invocations that are read at once.
const BATCH: u32 = 100;
/// The time after which a waiting call reads the invocation again if the store did not answer.
const RECHECK_INTERVAL: Duration = Duration::seconds(1);

/// The dependencies of the use cases of invocations.
#[derive(Clone)]
pub struct InvocationDeps {
    /// The repository of invocations.
    pub invocations: Arc<dyn InvocationRepository>,
    /// The repository of deployments.
    pub deployments: Arc<dyn DeploymentRepository>,
    /// The store of log lines.
    pub lines: Arc<dyn LineStore>,
    /// The notifications of changes of invocations.
    pub notifier: Arc<dyn ChangeNotifier>,
    /// The use cases of sessions, for the browsers of invocations.
    pub sessions: Sessions,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of new identifiers.
    pub ids: Arc<dyn IdSource>,
}

/// The use cases of invocations.
#[derive(Clone)]
pub struct Invocations {
    pub(super) deps: InvocationDeps,
}

/// An accepted invocation.
pub struct AcceptedInvocation {
    /// The invocation, as stored.
    pub invocation: Invocation,
    waiting: Box<dyn ChangeWaiter>,
}

impl Invocations {
    /// The maximum time that a caller waits, in seconds.
    pub const MAX_WAIT_SECONDS: i64 = 300;

    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: InvocationDeps) -> Self {
        Self { deps }
    }

    /// Accepts an invocation. It runs whether or not a caller waits for it.
    ///
    /// # Errors
    /// See [`InvocationError`]; nothing is stored then.
    pub async fn accept(&self, scope: &Scope, new: InvocationRequest) -> Result<AcceptedInvocation, InvocationError> {
        scope.writable()?;
        let found = self.deps.deployments.find_app(scope.project_id(), &new.app, &new.version).await?;
        let (app, status) = found.ok_or_else(|| NotFound::new("app", format!("{} {}", new.app, new.version)))?;
        let not_running =
            |status| InvocationFailure::NotRunning { app: new.app.clone(), version: new.version.clone(), status };
        if status != DeploymentStatus::Running {
            return Err(not_running(status).into());
        }
        let action = app.actions.into_iter().find(|action| action.as_str() == new.action);
        let missing = || NotFound::new("action", format!("{} of {} {}", new.action, new.app, new.version));
        let action = action.ok_or_else(missing)?;
        let invocation = Invocation {
            id: InvocationId::mint(self.deps.ids.as_ref()),
            project: scope.project_id(),
            deployment: app.deployment,
            app: app.name,
            version: app.version,
            action,
            payload: new.payload,
            output: None,
            status: InvocationStatus::Queued,
            status_reason: None,
            node: None,
            timeout_seconds: new.timeout_seconds,
            started_at: self.deps.clock.now(),
            finished_at: None,
        };
        // Subscribes before storing, so that no notification is missed.
        let waiting = self.deps.notifier.expect(Subject::Invocation(invocation.id));
        match self.deps.invocations.create(scope.organization(), &invocation).await? {
            InvocationStored::Yes => Ok(AcceptedInvocation { invocation, waiting }),
            InvocationStored::LimitExceeded(limit) => Err(limit.into()),
            InvocationStored::NotRunning => Err(not_running(DeploymentStatus::Stopped).into()),
            InvocationStored::ProjectGone => Err(InvocationError::ProjectDeleted),
        }
    }

    /// Waits for the end of an invocation, at most until `until`, and returns its last known state. Errors of the store
    /// are not returned, because the invocation was accepted and they are no failures of it.
    pub async fn wait(&self, accepted: AcceptedInvocation, until: OffsetDateTime) -> Invocation {
        let AcceptedInvocation { mut invocation, mut waiting } = accepted;
        let mut missed = false;
        loop {
            let again = self.deps.clock.now() + RECHECK_INTERVAL;
            let next = if missed { until.min(again) } else { until };
            let wake_reason = waiting.next(Some(next)).await;
            let looked = self.deps.invocations.get(invocation.id).await;
            missed = looked.is_err();
            if let Ok(Some(now)) = looked {
                invocation = now;
            }
            let is_over = match wake_reason {
                WakeReason::Changed => false,
                WakeReason::TimeUp => next == until,
                WakeReason::Closed => true,
            };
            if invocation.status.is_final() || is_over {
                return invocation;
            }
        }
    }

    /// Returns an invocation of the project.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Invocation, InvocationError> {
        let found = match which.parse() {
            Ok(id) => self.deps.invocations.find(scope.project_id(), id).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| NotFound::new("invocation", which).into())
    }

    /// Returns the invocations of the project, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: &InvocationFilter,
        page: Page,
    ) -> Result<Listed<Invocation>, StoreError> {
        self.deps.invocations.list(scope.project_id(), filter, page).await
    }

    /// Ends an invocation on behalf of a caller: `status` is `succeeded` or `failed`, `output` is JSON text. The status
    /// `failed` cancels the invocation: its browsers end too, and its process ends when its node is notified.
    ///
    /// # Errors
    /// See [`InvocationError`].
    pub async fn update(
        &self,
        scope: &Scope,
        which: &str,
        status: Option<&str>,
        output: Option<String>,
    ) -> Result<Invocation, InvocationError> {
        // The lookup comes first, so that nothing is revealed of the invocations of other projects.
        let mut current = self.get(scope, which).await?;
        let event = parse_end(status, output)?;
        // The loop ends: every lost race means a step forward, and `on` refuses to leave a final status.
        let next = loop {
            let next = current.on(&event, self.deps.clock.now()).map_err(InvocationFailure::from)?;
            if self.deps.invocations.replace(&current, &next).await? == Replaced::Yes {
                break next;
            }
            current = self.get(scope, which).await?;
        };
        if matches!(event, InvocationEvent::Cancel(_)) {
            // `clear_canceled` ends the sessions after an error here.
            let _ = self.deps.sessions.end_of_invocation(next.id).await;
        }
        Ok(next)
    }

    /// Follows an invocation, with its lines from `since` on, or with all stored lines.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn follow(
        &self,
        scope: &Scope,
        which: &str,
        since: Option<OffsetDateTime>,
    ) -> Result<Follower, InvocationError> {
        let Invocation { id, .. } = self.get(scope, which).await?;
        let deps = FollowDeps {
            deployments: self.deps.deployments.clone(),
            invocations: self.deps.invocations.clone(),
            lines: self.deps.lines.clone(),
            notifier: self.deps.notifier.clone(),
        };
        Ok(Follower::new(deps, Subject::Invocation(id), since))
    }

    /// Returns the active sessions of an invocation.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn browsers(&self, scope: &Scope, which: &str) -> Result<Vec<Session>, InvocationError> {
        let Invocation { id, .. } = self.get(scope, which).await?;
        Ok(self.deps.sessions.of_invocation(id).await?)
    }

    /// Ends the sessions of cancelled invocations that [`update`](Self::update) did not end.
    ///
    /// # Errors
    /// [`InvocationFailure::Browser`] if a session could not be ended; the error of the store. May be called again.
    pub async fn clear_canceled(&self) -> Result<(), InvocationError> {
        for id in self.deps.invocations.canceled_with_sessions(BATCH).await? {
            self.deps.sessions.end_of_invocation(id).await.map_err(InvocationFailure::from)?;
        }
        Ok(())
    }

    /// Ends the sessions of an invocation.
    ///
    /// # Errors
    /// [`NotFound`]; [`InvocationFailure::Browser`] if a session could not be ended; the error of the store.
    pub async fn delete_browsers(&self, scope: &Scope, which: &str) -> Result<(), InvocationError> {
        let Invocation { id, .. } = self.get(scope, which).await?;
        Ok(self.deps.sessions.end_of_invocation(id).await.map_err(InvocationFailure::from)?)
    }
}

/// Applies the event that `event` returns for each invocation. Skips invocations that have ended or were deleted.
pub(crate) async fn end_all(
    rows: &dyn InvocationRepository,
    clock: &dyn Clock,
    unfinished: Vec<Invocation>,
    event: impl Fn(&Invocation) -> InvocationEvent + Send,
) -> Result<(), StoreError> {
    for mut current in unfinished {
        while let Ok(next) = current.on(&event(&current), clock.now()) {
            if rows.replace(&current, &next).await? == Replaced::Yes {
                break;
            }
            match rows.get(current.id).await? {
                Some(now) => current = now,
                None => break,
            }
        }
    }
    Ok(())
}
