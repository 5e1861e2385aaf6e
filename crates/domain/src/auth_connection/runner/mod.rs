//! Runs flows, one step after the other. Each step is stored before the next begins, so that a runner may be killed at
//! any point, and another one continues from the stored state.

mod answers;
mod failure;
mod finish;
mod health_check;
mod login;
mod phase;
mod question;
mod secrets;
mod session;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{
    AuthConnection, AuthConnections, Flow, FlowEnd, FlowEvent, FlowFailure, FlowKind, FlowStatus, OrphanedFlow,
    Settings,
};
use crate::credential::Credentials;
use crate::ids::{AuthFlowId, NodeId};
use crate::login_page::LoginPages;
use crate::project::ProjectRepository;
use crate::replay::Replays;
use crate::session::IdOrName;
use crate::store_error::StoreError;

pub use phase::{PageEvent, PageEventRefused, PagePhase, Readings};

/// The maximum number of health checks that start at a time.
const MAX_HEALTH_CHECKS: u32 = 4;

/// Stores pictures of pages that were not understood, for the operator.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait FlowPictures: Send + Sync {
    /// Stores a PNG, and may delete the oldest pictures to make room. A failure is not reported.
    async fn keep(&self, flow: AuthFlowId, png: Vec<u8>);
}

/// The ports and use cases of a runner.
#[derive(Clone)]
pub struct RunnerDeps {
    /// This node.
    pub node: NodeId,
    /// Reads and fills in login pages.
    pub pages: Arc<dyn LoginPages>,
    /// The stored projects.
    pub projects: Arc<dyn ProjectRepository>,
    /// The stored credentials.
    pub credentials: Credentials,
    /// Records sessions.
    pub replays: Replays,
    /// Stores pictures.
    pub pictures: Arc<dyn FlowPictures>,
}

/// Runs flows.
#[derive(Clone)]
pub struct FlowRunner {
    connections: AuthConnections,
    deps: RunnerDeps,
}

/// The continuation after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next step follows at once.
    Step,
    /// The next step follows when the connection changes, or at this time.
    Wait(OffsetDateTime),
    /// No step follows: the flow has ended.
    Done,
}

/// The outcome of a step.
enum Outcome {
    /// The flow changes, and is stored.
    Changed(Box<Flow>),
    /// The flow fails.
    Failed {
        /// The reason.
        failure: FlowFailure,
        /// The error that the site showed, if that is the reason.
        website_error: Option<String>,
    },
    /// The flow stays as it is; nothing is stored.
    Unchanged(Next),
}

impl From<FlowFailure> for Outcome {
    fn from(failure: FlowFailure) -> Self {
        Self::Failed { failure, website_error: None }
    }
}

impl FlowRunner {
    /// The interval at which the page of a waiting flow is read: a person may act elsewhere, or in the live view.
    pub const WATCH_INTERVAL: Duration = Duration::seconds(2);

    /// Creates a runner.
    #[must_use]
    pub fn new(connections: AuthConnections, deps: RunnerDeps) -> Self {
        Self { connections, deps }
    }

    fn now(&self) -> OffsetDateTime {
        self.connections.deps().clock.now()
    }

    /// Returns the flows that no node runs.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn orphaned_flows(&self) -> Result<Vec<OrphanedFlow>, StoreError> {
        self.connections.deps().connections.orphaned_flows(self.deps.node).await
    }

    /// Takes over a flow; returns whether this node runs it.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn take(&self, id: AuthFlowId) -> Result<bool, StoreError> {
        Ok(self.connections.deps().connections.take(id, self.deps.node).await?.is_some())
    }

    /// Starts the health checks that are due.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn start_health_checks(&self) -> Result<(), StoreError> {
        for connection in self.connections.deps().connections.due(self.now(), MAX_HEALTH_CHECKS).await? {
            let Ok(check) = self.connections.draft(&connection, FlowKind::HealthCheck) else { continue };
            // A running check suffices.
            let _ = self.connections.deps().connections.begin(&check).await?;
        }
        Ok(())
    }

    /// Deletes the flows that ended longer ago than `retention`, which the timeline no longer shows.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn forget(&self, retention: Duration) -> Result<(), StoreError> {
        self.connections.deps().connections.forget(self.now() - retention).await
    }

    /// Takes the next step of a flow. The future must not be dropped before its end, as that of
    /// [`Sessions::create`](crate::session::Sessions::create).
    ///
    /// # Errors
    /// Returns the error of the store; the next call takes the same step again.
    pub async fn step(&self, id: AuthFlowId, phase: &mut PagePhase) -> Result<Next, StoreError> {
        let Some(flow) = self.connections.deps().connections.flow(id).await? else { return Ok(Next::Done) };
        if flow.node != Some(self.deps.node) {
            return Ok(Next::Done);
        }
        if flow.status != FlowStatus::InProgress {
            return self.close(&flow).await;
        }
        let Some(connection) = self.connections.deps().connections.any(flow.connection).await? else {
            // The deletion of the connection cancels the flow in the same transaction.
            return Ok(Next::Step);
        };
        let connection = self.with_flow_settings(connection, &flow).await?;
        if flow.post_login_url.is_some() {
            return self.finish(&connection, flow).await;
        }
        if !flow.is_running(self.now()) {
            return self.end(&connection, &flow, FlowEvent::Expired).await;
        }
        let outcome = if !flow.session_made {
            phase.apply(PageEvent::Lost);
            self.begin(&connection, &flow).await?
        } else if flow.kind == FlowKind::HealthCheck {
            self.check_health(&connection, &flow, phase).await?
        } else {
            self.log_in(&connection, &flow, phase).await?
        };
        match outcome {
            Outcome::Unchanged(next) => Ok(next),
            Outcome::Failed { failure, website_error } => {
                let website_error = website_error.or_else(|| flow.website_error.clone());
                self.fail(&connection, &Flow { website_error, ..flow }, failure).await
            }
            Outcome::Changed(next) => {
                // After a lost race against a submission or a deletion, the next step reads the flow again.
                self.store(&flow, *next).await?;
                Ok(Next::Step)
            }
        }
    }

    /// Stores `next`, a change of the flow that was `read`. If only the hosted page was opened meanwhile, the changes
    /// are merged; otherwise the action on the site would be lost, and repeated.
    async fn store(&self, read: &Flow, mut next: Flow) -> Result<(), StoreError> {
        let connections = &self.connections.deps().connections;
        while !connections.put(&next).await? {
            let Some(now) = connections.flow(read.id).await? else { return Ok(()) };
            let opened = |flow: Flow| Flow {
                revision: now.revision,
                handoff_used_at: now.handoff_used_at,
                page_key: now.page_key,
                ..flow
            };
            if now.handoff_used_at == next.handoff_used_at || opened(read.clone()) != now {
                return Ok(());
            }
            next = opened(next);
        }
        Ok(())
    }

    /// Stores the flow after `event`, which ends it, with the effects on the connection.
    async fn end(&self, connection: &AuthConnection, flow: &Flow, event: FlowEvent) -> Result<Next, StoreError> {
        let Ok(next) = flow.on(event, self.now()) else { return Ok(Next::Step) };
        let mut end = FlowEnd::default();
        // An unattended login follows a health check that found the connection logged out.
        if flow.unattended && flow.kind != FlowKind::HealthCheck {
            end.status = Some(super::ConnectionStatus::NeedsAuth);
        }
        let next = match flow.kind {
            FlowKind::HealthCheck => {
                end.checked_at = Some(self.now());
                Flow { found: Some((connection.status, connection.status)), ..next }
            }
            FlowKind::Login | FlowKind::Reauth => next,
        };
        let _ = self.connections.deps().connections.end(&next, &end).await?;
        Ok(Next::Step)
    }

    async fn fail(&self, connection: &AuthConnection, flow: &Flow, failure: FlowFailure) -> Result<Next, StoreError> {
        self.end(connection, flow, FlowEvent::Failed(failure)).await
    }

    /// Returns an unattended login, for a connection that a health check found logged out.
    fn draft_reauth(&self, connection: &AuthConnection) -> Option<Box<Flow>> {
        let flow = self.connections.draft(connection, FlowKind::Reauth).ok()?;
        Some(Box::new(Flow { unattended: true, record_session: connection.settings.record_session, ..flow }))
    }

    /// Returns the connection with the settings that it had when the flow began.
    async fn with_flow_settings(&self, now: AuthConnection, flow: &Flow) -> Result<AuthConnection, StoreError> {
        let begun = flow.begun_with.as_deref().filter(|begun| begun.connection_updated_at != now.updated_at);
        let Some(begun) = begun.cloned() else { return Ok(now) };
        let credential = match begun.credential_id {
            Some(id) => self.connections.deps().credentials.find(now.project, &IdOrName::Id(id)).await?,
            None => None,
        };
        let settings = Settings {
            allowed_domains: begun.allowed_domains,
            save_credentials: begun.save_credentials,
            credential: begun.credential,
            organization_credential: begun.organization_credential,
            login_url: begun.login_url,
            ..now.settings.clone()
        };
        Ok(AuthConnection { settings, credential, ..now })
    }
}
