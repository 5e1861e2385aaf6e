//! Follows the status and the log lines of a deployment or an invocation until it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use time::OffsetDateTime;

use super::{
    AppVersion, ChangeNotifier, ChangeWaiter, Deployment, DeploymentRepository, DeploymentStatus, Line, LineRange,
    LineStore, Subject, WakeReason,
};
use crate::invocation::{Invocation, InvocationRepository};
use crate::store_error::StoreError;

/// The number of lines that are read at once.
const MAX_PARALLEL: u32 = 200;

/// An event of a followed deployment or invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The deployment, after a change of its status.
    Deployment(Box<Deployment>),
    /// The invocation, after a change of its status.
    Invocation(Box<Invocation>),
    /// An app that the deployment registered.
    App(AppVersion),
    /// A line that a program wrote.
    Line(Line),
}

/// The ports of followers.
#[derive(Clone)]
pub struct FollowDeps {
    /// The stored deployments.
    pub deployments: Arc<dyn DeploymentRepository>,
    /// The stored invocations.
    pub invocations: Arc<dyn InvocationRepository>,
    /// The stored lines.
    pub lines: Arc<dyn LineStore>,
    /// The notifications of changes.
    pub notifier: Arc<dyn ChangeNotifier>,
}

/// A follower of one deployment or invocation.
pub struct Follower {
    deps: FollowDeps,
    subject: Subject,
    waiting: Box<dyn ChangeWaiter>,
    since: Option<OffsetDateTime>,
    from: u64,
    last_event: Option<LastEvent>,
    next: VecDeque<Followed>,
    waits: bool,
    over: bool,
}

/// The parts of the last event that are compared with the next.
#[derive(Clone, PartialEq, Eq)]
enum LastEvent {
    Deployment(DeploymentStatus, Option<String>),
    Invocation(crate::invocation::InvocationStatus),
}

impl Follower {
    /// Creates a follower that begins with the stored lines from `since` on; `None`: all stored lines.
    #[must_use]
    pub fn new(deps: FollowDeps, subject: Subject, since: Option<OffsetDateTime>) -> Self {
        // Subscribed before the first read, so that no change is missed.
        let waiting = deps.notifier.expect(subject);
        Self {
            deps,
            subject,
            waiting,
            since,
            from: 0,
            last_event: None,
            next: VecDeque::new(),
            waits: true,
            over: false,
        }
    }

    /// Ends after what is stored, instead of waiting for further events.
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Returns the next event; `None` at the end.
    ///
    /// # Errors
    /// Returns the error of the store; no events follow.
    pub async fn next(&mut self) -> Result<Option<Followed>, StoreError> {
        loop {
            if let Some(next) = self.next.pop_front() {
                return Ok(Some(next));
            }
            if self.over {
                return Ok(None);
            }
            let looked = self.look().await;
            if looked.is_err() {
                self.over = true;
            }
            looked?;
            if self.next.is_empty() && !self.over {
                self.over = !self.waits || self.waiting.next(None).await == WakeReason::Closed;
            }
        }
    }

    /// Reads the record before the lines, because all lines of an ended record were stored before its end.
    async fn look(&mut self) -> Result<(), StoreError> {
        let Some((records, event, ended)) = self.records().await? else {
            self.over = true;
            return Ok(());
        };
        let first = self.last_event.is_none();
        let changed = self.last_event.as_ref() != Some(&event);
        if first {
            // The first event is the current state, before the lines.
            self.next.extend(records.iter().cloned());
            self.last_event = Some(event.clone());
        }
        let span = LineRange { from: self.from, since: self.since, max: MAX_PARALLEL };
        let lines = self.deps.lines.page(self.subject, span).await?;
        let more = lines.len() == MAX_PARALLEL as usize;
        if let Some(last) = lines.last() {
            self.from = last.number + 1;
        }
        self.next.extend(lines.into_iter().map(Followed::Line));
        if more {
            return Ok(());
        }
        if changed && !first {
            // The apps come before the status `running`, because callers may stop reading at the status.
            self.next.extend(records.into_iter().rev());
            self.last_event = Some(event);
        }
        self.over = ended;
        Ok(())
    }

    async fn records(&self) -> Result<Option<(Vec<Followed>, LastEvent, bool)>, StoreError> {
        Ok(match self.subject {
            Subject::Deployment(id) => {
                let Some(deployment) = self.deps.deployments.get(id).await? else { return Ok(None) };
                let status = deployment.status;
                let event = LastEvent::Deployment(status, deployment.source_checksum.clone());
                let mut records = Vec::new();
                if status == DeploymentStatus::Running && self.last_event.as_ref() != Some(&event) {
                    let apps = self.deps.deployments.apps_of(id).await?;
                    records.extend(apps.into_iter().map(Followed::App));
                }
                records.insert(0, Followed::Deployment(Box::new(deployment)));
                Some((records, event, status.is_final()))
            }
            Subject::Invocation(id) => {
                // The record may be large, and most notifications are about lines.
                if let Some(event @ LastEvent::Invocation(before)) = &self.last_event
                    && self.deps.invocations.status(id).await? == Some(*before)
                {
                    return Ok(Some((Vec::new(), event.clone(), before.is_final())));
                }
                let Some(invocation) = self.deps.invocations.get(id).await? else { return Ok(None) };
                let (event, ended) = (LastEvent::Invocation(invocation.status), invocation.status.is_final());
                Some((vec![Followed::Invocation(Box::new(invocation))], event, ended))
            }
        })
    }
}
