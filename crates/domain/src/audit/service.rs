//! The use cases of audit records.

use std::sync::Arc;

use time::OffsetDateTime;

use super::{
    AuditFilter, AuditQuery, AuditRange, AuditRecord, AuditRepository, AuditTrail, BadCursor, Position,
    RangeMeasurement, Reading,
};
use crate::error::{SpecificError, UseCaseError};
use crate::ids::OrganizationId;
use crate::store_error::StoreError;

/// The number of records that an export reads at once.
const BATCH: u32 = 2_000;

/// The number of records that one text search scans at once. No index supports the search, so the store reads every
/// record.
const STEP: u32 = 250_000;
/// The maximum number of scans of one call that find nothing. The next call continues from there.
const MAX_STEPS: u32 = 80;

/// The error of reading records.
pub type ReadAuditError = UseCaseError<BadCursor>;

impl SpecificError for BadCursor {}

/// A page of records. In a text search among very many records a page may be shorter than requested, or empty, although
/// there is a next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    /// The records, newest first.
    pub records: Vec<AuditRecord>,
    /// The token of the next page; absent on the last page.
    pub next: Option<String>,
}

/// One chunk of an export, which is read in batches.
#[derive(Clone)]
pub struct AuditChunk {
    /// The number of records.
    pub count: u32,
    /// The token of the next chunk, of older records; absent at the end. In a text search among very many records a
    /// chunk may hold fewer records than requested, or none, although there is a next one.
    pub next: Option<String>,
    /// The requested filter, for a file name.
    pub requested: AuditFilter,
    /// Of the first chunk: the exclusive end of the exported range. It is the requested `end`, or earlier if records
    /// from before `end` may still be stored. The next export begins there.
    pub until: Option<OffsetDateTime>,
    filter: AuditFilter,
    organization: OrganizationId,
    after: Option<Position>,
    /// The last record of the chunk. It is a boundary and not a count, so that a record that is added meanwhile
    /// displaces no other.
    last: Option<Position>,
    repository: Arc<dyn AuditRepository>,
}

/// The use cases of audit records.
#[derive(Clone)]
pub struct AuditLogs {
    repository: Arc<dyn AuditRepository>,
    trail: Arc<dyn AuditTrail>,
}

impl AuditLogs {
    /// Creates the use cases.
    #[must_use]
    pub fn new(repository: Arc<dyn AuditRepository>, trail: Arc<dyn AuditTrail>) -> Self {
        Self { repository, trail }
    }

    /// Returns a page of records. The first page contains every call that this node answered before; calls that other
    /// nodes answered may appear a little later.
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
            // An error is ignored: the stored records are shown nevertheless.
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

    /// Returns the end of the next scan of a text search; `None` if an index supports the filter.
    async fn step(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
    ) -> Result<Option<Position>, StoreError> {
        match filter.search {
            Some(_) => self.repository.position_after(organization, filter, after, STEP).await,
            None => Ok(None),
        }
    }

    /// Returns a chunk of an export. The number of its records is known before the first one is read. The first chunk
    /// of a range has the end of the range: no more records from before that time will be stored.
    ///
    /// # Errors
    /// See [`ReadAuditError`]. The store also counts as unavailable if records of a past range take too long to be
    /// stored.
    pub async fn export(
        &self,
        organization: OrganizationId,
        query: AuditQuery,
        cursor: Option<&str>,
    ) -> Result<AuditChunk, ReadAuditError> {
        let (requested, limit) = query.parse(Reading::Export)?;
        let mut after = cursor.map(|token| Position::parse(token, organization, &requested)).transpose()?;
        let until = match cursor {
            None => Some(self.trail.whole_until(requested.end).await?.max(requested.start)),
            Some(_) => None,
        };
        let filter = AuditFilter { end: until.unwrap_or(requested.end), ..requested.clone() };
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
            let next = next.map(|next| next.token(organization, &requested));
            let repository = Arc::clone(&self.repository);
            // Newer records, before the first one, belong to the next export.
            let after = first.map(Position::ahead);
            return Ok(AuditChunk { count, next, requested, until, filter, organization, after, last, repository });
        }
    }
}

impl AuditChunk {
    /// Returns the next records of the chunk; an empty list at its end.
    ///
    /// # Errors
    /// Returns the error of the store.
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

impl AuditChunk {
    /// Ends the chunk at this record. The next chunk begins after it.
    pub fn cut(&mut self, last: Position) {
        self.next = Some(last.token(self.organization, &self.requested));
        self.last = None;
    }
}

impl AuditRecord {
    /// Returns the position in the order.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { at: self.entry.at, id: self.entry.id }
    }
}
