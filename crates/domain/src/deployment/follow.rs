//! Following a deployment or an invocation: where it stands, what it said, and what it says, to its end.

use std::collections::VecDeque;
use std::sync::Arc;

use time::OffsetDateTime;

use super::{
    AppVersion, ChangeNotifier, ChangeWaiter, Deployment, DeploymentRepository, DeploymentStatus, Line, LineRange,
    LineStore, Subject, WakeReason,
};
use crate::invocation::{Invocation, InvocationRepository};
use crate::store_error::StoreError;

/// How many lines are read at once.
const MAX_PARALLEL: u32 = 200;

/// What a follower learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Where the deployment stands.
    Deployment(Box<Deployment>),
    /// Where the invocation stands.
    Invocation(Box<Invocation>),
    /// An app that the deployment registered.
    App(AppVersion),
    /// What a program wrote.
    Line(Line),
}

/// What followers look into.
#[derive(Clone)]
pub struct FollowDeps {
    /// Where deployments are kept.
    pub deployments: Arc<dyn DeploymentRepository>,
    /// Where invocations are kept.
    pub invocations: Arc<dyn InvocationRepository>,
    /// Where lines are kept.
    pub lines: Arc<dyn LineStore>,
    /// News of all of them.
    pub news: Arc<dyn ChangeNotifier>,
}

/// One who follows.
pub struct Follower {
    deps: FollowDeps,
    subject: Subject,
    waiting: Box<dyn ChangeWaiter>,
    since: Option<OffsetDateTime>,
    from: u64,
    told: Option<LastEvent>,
    next: VecDeque<Followed>,
    over: bool,
}

/// What was told last, as far as it is compared.
#[derive(Clone, PartialEq, Eq)]
enum LastEvent {
    Deployment(DeploymentStatus, Option<String>),
    Invocation(crate::invocation::InvocationStatus),
}

impl Follower {
    /// Follows from now on, and from `since` on what was written before: `None` is everything that is kept.
    #[must_use]
    pub fn new(deps: FollowDeps, subject: Subject, since: Option<OffsetDateTime>) -> Self {
        // Before the first look, so that nothing falls between.
        let waiting = deps.news.expect(subject);
        Self { deps, subject, waiting, since, from: 0, told: None, next: VecDeque::new(), over: false }
    }

    /// What comes next; `None` at the end.
    ///
    /// # Errors
    /// The store's failure; then nothing more comes.
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
            if self.next.is_empty() && !self.over && self.waiting.next(None).await == WakeReason::Closed {
                self.over = true;
            }
        }
    }

    /// The record first and the lines after it: whatever an end has behind it was written before.
    async fn look(&mut self) -> Result<(), StoreError> {
        let Some((records, told, ended)) = self.records().await? else {
            self.over = true;
            return Ok(());
        };
        let first = self.told.is_none();
        let changed = self.told.as_ref() != Some(&told);
        if first {
            // Where it stands, then what was said.
            self.next.extend(records.iter().cloned());
            self.told = Some(told.clone());
        }
        let span = LineRange { from: self.from, since: self.since, most: MAX_PARALLEL };
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
            // What it registered before that it runs: who waits for that looks no further.
            self.next.extend(records.into_iter().rev());
            self.told = Some(told);
        }
        self.over = ended;
        Ok(())
    }

    async fn records(&self) -> Result<Option<(Vec<Followed>, LastEvent, bool)>, StoreError> {
        Ok(match self.subject {
            Subject::Deployment(id) => {
                let Some(deployment) = self.deps.deployments.get(id).await? else { return Ok(None) };
                let status = deployment.status;
                let told = LastEvent::Deployment(status, deployment.source_checksum.clone());
                let mut records = Vec::new();
                if status == DeploymentStatus::Running && self.told.as_ref() != Some(&told) {
                    let apps = self.deps.deployments.apps_of(id).await?;
                    records.extend(apps.into_iter().map(Followed::App));
                }
                records.insert(0, Followed::Deployment(Box::new(deployment)));
                Some((records, told, status.is_final()))
            }
            Subject::Invocation(id) => {
                // What it holds may be large, and most of what is heard of it is about lines.
                if let Some(told @ LastEvent::Invocation(before)) = &self.told
                    && self.deps.invocations.status(id).await? == Some(*before)
                {
                    return Ok(Some((Vec::new(), told.clone(), before.is_final())));
                }
                let Some(invocation) = self.deps.invocations.get(id).await? else { return Ok(None) };
                let (told, ended) = (LastEvent::Invocation(invocation.status), invocation.status.is_final());
                Some((vec![Followed::Invocation(Box::new(invocation))], told, ended))
            }
        })
    }
}
