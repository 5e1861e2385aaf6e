//! Use cases of audit records.

use std::sync::Arc;

use time::OffsetDateTime;

use super::{
    AuditFilter, AuditQuery, AuditRange, AuditRecord, AuditRepository, AuditTrail, BadCursor, Position,
    RangeMeasurement, Reading,
};
use crate::field::InvalidInput;
use crate::ids::OrganizationId;
use crate::store_error::StoreError;

/// How many records are read at once for an export: what it holds in memory.
const BATCH: u32 = 2_000;

/// How many records a text is looked for in at once. No index helps there, so the store looks at one after the other.
const STEP: u32 = 250_000;
/// How many steps one call may take while it finds nothing. The caller goes on from there.
const MAX_STEPS: u32 = 80;

/// Records were not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadAuditError {
    /// A field breaks a rule.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The token is none of this question.
    #[error(transparent)]
    Cursor(#[from] BadCursor),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A page of records, and the token of the next one. Where a text is looked for among very many records, it may be shorter than asked,
/// or even empty, and yet have a next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    /// The records, newest first.
    pub records: Vec<AuditRecord>,
    /// Leads to the next page; absent on the last.
    pub next: Option<String>,
}

/// One chunk of an export, to be read batch by batch.
pub struct AuditChunk {
    /// How many records it holds.
    pub count: u32,
    /// Leads to the next chunk of older records; absent at the end. Where a text is looked for among very many records, a chunk may hold
    /// less than asked, or nothing, and yet have a next one.
    pub next: Option<String>,
    /// Which span was asked for, for a file name.
    pub asked: AuditFilter,
    /// Of the first chunk: the moment, exclusive, at which the exported range ends. That is the `end` that was asked for, or earlier where
    /// records from before `end` may still come. The next export begins there.
    pub until: Option<OffsetDateTime>,
    filter: AuditFilter,
    organization: OrganizationId,
    after: Option<Position>,
    /// The last record of the chunk. A boundary, not a count: a record that comes in between must not push another one out.
    last: Option<Position>,
    repository: Arc<dyn AuditRepository>,
}

/// The use cases.
#[derive(Clone)]
pub struct AuditLogs {
    repository: Arc<dyn AuditRepository>,
    trail: Arc<dyn AuditTrail>,
}

impl AuditLogs {
    /// The use cases on these ports.
    #[must_use]
    pub fn new(repository: Arc<dyn AuditRepository>, trail: Arc<dyn AuditTrail>) -> Self {
        Self { repository, trail }
    }

    /// A page for people. The first one holds every call that this node answered before; another node's may come a little later.
    ///
    /// # Errors
    /// See [`ReadAuditError`].
    pub async fn list(
        &self,
        organization: OrganizationId,
        query: AuditQuery,
        token: Option<&str>,
    ) -> Result<AuditPage, ReadAuditError> {
        let (filter, limit) = query.parse(Reading::List)?;
        let mut after = token.map(|token| Position::parse(token, organization, &filter)).transpose()?;
        if after.is_none() {
            // Where it cannot be told, a person is still shown what there is.
            self.trail.whole_until(filter.end).await.ok();
        }
        let mut steps = 0;
        loop {
            let through = self.step(organization, &filter, after).await?;
            let mut records =
                self.repository.page(organization, &filter, AuditRange { after, through }, limit + 1).await?;
            let more = records.len() > limit as usize;
            records.truncate(limit as usize);
            steps += 1;
            if records.is_empty() && through.is_some() && steps < MAX_STEPS {
                after = through;
                continue;
            }
            let last = if more { records.last().map(AuditRecord::position) } else { through };
            return Ok(AuditPage { records, next: last.map(|last| last.token(organization, &filter)) });
        }
    }

    /// How far a text is looked for before what was found is answered; no bound where an index leads.
    async fn step(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
    ) -> Result<Option<Position>, StoreError> {
        match filter.search {
            Some(_) => self.repository.far_behind(organization, filter, after, STEP).await,
            None => Ok(None),
        }
    }

    /// A chunk for a machine. What it holds is known before the first record is read. The first chunk of a range says where the range ends:
    /// no record from before that moment comes any more.
    ///
    /// # Errors
    /// See [`ReadAuditError`]. The store is unavailable, too, if records of a range that is past wait to be stored.
    pub async fn export(
        &self,
        organization: OrganizationId,
        query: AuditQuery,
        cursor: Option<&str>,
    ) -> Result<AuditChunk, ReadAuditError> {
        let (asked, limit) = query.parse(Reading::Export)?;
        let mut after = cursor.map(|token| Position::parse(token, organization, &asked)).transpose()?;
        let until = match cursor {
            None => Some(self.trail.whole_until(asked.end).await?.max(asked.start)),
            Some(_) => None,
        };
        let filter = AuditFilter { end: until.unwrap_or(asked.end), ..asked.clone() };
        let mut steps = 0;
        loop {
            let through = self.step(organization, &filter, after).await?;
            let RangeMeasurement { count, ends, more } =
                self.repository.measure(organization, &filter, AuditRange { after, through }, limit).await?;
            steps += 1;
            if count == 0 && through.is_some() && steps < MAX_STEPS {
                after = through;
                continue;
            }
            let (first, last) = ends.unzip();
            let next = if more { last } else { through };
            let next = next.map(|next| next.token(organization, &asked));
            let repository = Arc::clone(&self.repository);
            // What has come since, ahead of the first, is the next export's.
            let after = first.map(Position::ahead);
            return Ok(AuditChunk { count, next, asked, until, filter, organization, after, last, repository });
        }
    }
}

impl AuditChunk {
    /// The next records of the chunk; none at its end.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn next_batch(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        let Some(end) = self.last else { return Ok(Vec::new()) };
        let rest = AuditRange { after: self.after, through: Some(end) };
        let records = self.repository.page(self.organization, &self.filter, rest, BATCH).await?;
        self.after = records.last().map(AuditRecord::position);
        if records.len() < BATCH as usize || self.after == Some(end) {
            self.last = None;
        }
        Ok(records)
    }
}

impl AuditRecord {
    /// Its place in the order.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { at: self.entry.at, id: self.entry.id }
    }
}
