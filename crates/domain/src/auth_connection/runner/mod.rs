//! Carries flows, one step after the other. Every step is stored before the next begins; whoever carries a flow may be killed at any
//! line, and another goes on from what is stored.

mod answers;
mod finish;
mod known;
mod look;
mod round;
mod session;

use std::sync::Arc;

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{
    AuthConnection, AuthConnections, Flow, FlowEnd, FlowEvent, FlowFailure, FlowKind, FlowStatus, OrphanedFlow,
    Settings,
};
use crate::credential::Credentials;
use crate::ids::{AuthFlowId, NodeId};
use crate::login_page::{LoginPages, Mark};
use crate::project::ProjectRepository;
use crate::replay::Replays;
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// How many looks are begun at a time.
const LOOKS: u32 = 4;
/// For how long ended flows are kept for the timeline.
const RETENTION: Duration = Duration::days(30);

/// Keeps pictures of pages that were not understood, for the operator.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait FlowPictures: Send + Sync {
    /// Keeps a PNG; some of the oldest may go for it. That it cannot be kept is nobody's loss but the operator's.
    async fn keep(&self, flow: AuthFlowId, png: Vec<u8>);
}

/// What carrying flows stands on.
#[derive(Clone)]
pub struct RunnerDeps {
    /// This node.
    pub node: NodeId,
    /// Reads and fills in login pages.
    pub pages: Arc<dyn LoginPages>,
    /// Where projects are kept.
    pub projects: Arc<dyn ProjectRepository>,
    /// What is stored to log in with.
    pub credentials: Credentials,
    /// Records.
    pub replays: Replays,
    /// Keeps pictures.
    pub pictures: Arc<dyn FlowPictures>,
}

/// Carries flows.
#[derive(Clone)]
pub struct FlowRunner {
    connections: AuthConnections,
    deps: RunnerDeps,
}

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take the next one.
    Step,
    /// Wait until something about the connection changes or that time has passed; then take the next one.
    Wait(OffsetDateTime),
    /// Nothing is left to do.
    Done,
}

/// What whoever carries a flow remembers from step to step. Losing it costs time only.
#[derive(Debug, Default)]
pub struct Memory {
    /// Whether the login page was opened, or the page is to be taken as it is.
    opened: bool,
    /// Whether somebody else has brought the page to where it is, and nothing was done to it since.
    taken_over: bool,
    /// What the page showed before it was last acted on.
    acted_on: Option<Mark>,
    /// How often in a row nothing came of a reading.
    fruitless: u32,
    /// How often in a row the page could not be acted on.
    untaken: u32,
    /// Whether something was sent, and the page not read since.
    answered: bool,
    /// What the page said was wrong before something was sent.
    refused_before: Option<String>,
    /// Since when a page that has not come to rest asks for what was sent.
    resent_since: Option<OffsetDateTime>,
    /// How often in a row a page that waits was another one and had not come to rest.
    restless: u32,
    /// How often another step elsewhere took the place of one.
    retold: u32,
    /// Whether a page that waits for a person was freed of passwords, so that people may act on it.
    for_people: bool,
}

/// What happens to a flow in a step.
enum Outcome {
    /// It moves, and is stored so.
    Moves(Box<Flow>),
    /// It cannot go on.
    Fails {
        /// Why.
        failure: FlowFailure,
        /// What the site said, if that is the reason.
        website_error: Option<String>,
    },
    /// Nothing is to be stored; this is next.
    Goes(Next),
}

impl From<FlowFailure> for Outcome {
    fn from(failure: FlowFailure) -> Self {
        Self::Fails { failure, website_error: None }
    }
}

impl FlowRunner {
    /// How often the page of a flow that waits is looked at: somebody may have acted elsewhere, or in the live view.
    pub const GLANCE: Duration = Duration::seconds(2);

    /// On these use cases and ports.
    #[must_use]
    pub fn new(connections: AuthConnections, deps: RunnerDeps) -> Self {
        Self { connections, deps }
    }

    fn now(&self) -> OffsetDateTime {
        self.connections.deps().clock.now()
    }

    /// The flows that this node should carry, were it alone.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn to_carry(&self) -> Result<Vec<OrphanedFlow>, StoreError> {
        self.connections.deps().connections.to_carry(self.deps.node).await
    }

    /// Takes a flow on; whether it is this node's to carry.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn take(&self, id: AuthFlowId) -> Result<bool, StoreError> {
        Ok(self.connections.deps().connections.take(id, self.deps.node).await?.is_some())
    }

    /// Begins to look whether logins hold, where that is due.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn begin_looks(&self) -> Result<(), StoreError> {
        for connection in self.connections.deps().connections.due(self.now(), LOOKS).await? {
            let Ok(look) = self.connections.draft(&connection, FlowKind::HealthCheck) else { continue };
            // One that is under way already is as good.
            let _ = self.connections.deps().connections.begin(&look).await?;
        }
        Ok(())
    }

    /// Forgets what the timeline does not need any more.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn forget(&self) -> Result<(), StoreError> {
        self.connections.deps().connections.forget(self.now() - RETENTION).await
    }

    /// Takes the next step of a flow. Must run to its end: see [`Sessions::create`](crate::session::Sessions::create).
    ///
    /// # Errors
    /// The store's failure; the same step is taken again then.
    pub async fn step(&self, id: AuthFlowId, memory: &mut Memory) -> Result<Next, StoreError> {
        let Some(flow) = self.connections.deps().connections.flow(id).await? else { return Ok(Next::Done) };
        if flow.node != Some(self.deps.node) {
            return Ok(Next::Done);
        }
        if flow.status != FlowStatus::InProgress {
            return self.close(&flow).await;
        }
        let Some(connection) = self.connections.deps().connections.any(flow.connection).await? else {
            // Its deletion cancels it in the same transaction.
            return Ok(Next::Step);
        };
        let connection = self.as_begun(connection, &flow).await?;
        if flow.post_login_url.is_some() {
            return self.finish(&connection, flow).await;
        }
        if !flow.is_running(self.now()) {
            return self.move_on(&connection, &flow, FlowEvent::Expired).await;
        }
        let outcome = if !flow.session_made {
            // Nothing that is remembered is of a session that is yet to be made.
            *memory = Memory::default();
            self.begin(&connection, &flow).await?
        } else if flow.kind == FlowKind::HealthCheck {
            self.look(&connection, &flow, memory).await?
        } else {
            self.round(&connection, &flow, memory).await?
        };
        match outcome {
            Outcome::Goes(next) => Ok(next),
            Outcome::Fails { failure, website_error } => {
                let said = website_error.or_else(|| flow.website_error.clone());
                self.fail(&connection, &Flow { website_error: said, ..flow }, failure).await
            }
            Outcome::Moves(next) => {
                // A lost race: a submission, a deletion. It is looked at again.
                self.store(&flow, *next).await?;
                Ok(Next::Step)
            }
        }
    }

    /// Stores what became of the flow that was `seen`. That a person has opened its page meanwhile is no move of it: what was done to the site
    /// would be forgotten, and done again.
    async fn store(&self, seen: &Flow, mut next: Flow) -> Result<(), StoreError> {
        let connections = &self.connections.deps().connections;
        while !connections.put(&next).await? {
            let Some(now) = connections.flow(seen.id).await? else { return Ok(()) };
            let opened = |flow: Flow| Flow {
                revision: now.revision,
                handoff_used_at: now.handoff_used_at,
                page_key: now.page_key,
                ..flow
            };
            if now.handoff_used_at == next.handoff_used_at || opened(seen.clone()) != now {
                return Ok(());
            }
            next = opened(next);
        }
        Ok(())
    }

    /// Stores what the event makes of the flow, and what its end does to its connection.
    async fn move_on(&self, connection: &AuthConnection, flow: &Flow, event: FlowEvent) -> Result<Next, StoreError> {
        let Ok(next) = flow.on(event, self.now()) else { return Ok(Next::Step) };
        let mut end = FlowEnd::default();
        // Nobody asked, nobody watched: that the login is gone was found before it was tried to make it anew.
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
        self.move_on(connection, flow, FlowEvent::Failed(failure)).await
    }

    /// A login by itself, for when a look found that the login is gone.
    fn draft_reauth(&self, connection: &AuthConnection) -> Option<Box<Flow>> {
        let flow = self.connections.draft(connection, FlowKind::Reauth).ok()?;
        Some(Box::new(Flow { unattended: true, record_session: connection.settings.record_session, ..flow }))
    }

    /// The connection as it was told when the flow began.
    async fn as_begun(&self, now: AuthConnection, flow: &Flow) -> Result<AuthConnection, StoreError> {
        let begun = flow.begun_with.as_deref().filter(|begun| begun.told_at != now.updated_at);
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
