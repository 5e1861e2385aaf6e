//! Use cases of audit records.

use std::sync::Arc;

use super::{AuditFilter, AuditQuery, AuditRecord, AuditRepository, BadCursor, Position, Reading};
use crate::field::InvalidInput;
use crate::ids::OrganizationId;
use crate::store_error::StoreError;

/// How many records are read at once for an export: what it holds in memory.
const BATCH: u32 = 2_000;

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

/// A page of records, and the token of the next one.
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
    /// Leads to the next chunk of older records; absent at the end.
    pub next: Option<String>,
    /// Which span it covers, for a file name.
    pub filter: AuditFilter,
    organization: OrganizationId,
    after: Option<Position>,
    /// The last record of the chunk. A boundary, not a count: a record that arrives late must not push another one out.
    last: Option<Position>,
    repository: Arc<dyn AuditRepository>,
}

/// The use cases.
#[derive(Clone)]
pub struct AuditLogs {
    repository: Arc<dyn AuditRepository>,
}

impl AuditLogs {
    /// The use cases on this port.
    #[must_use]
    pub fn new(repository: Arc<dyn AuditRepository>) -> Self {
        Self { repository }
    }

    /// A page for people.
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
        let after = token.map(|token| Position::parse(token, organization, &filter)).transpose()?;
        let mut records = self.repository.page(organization, &filter, after, limit + 1).await?;
        let more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let next = records.last().filter(|_| more).map(|last| last.position().token(organization, &filter));
        Ok(AuditPage { records, next })
    }

    /// A chunk for a machine. What it holds is known before the first record is read.
    ///
    /// # Errors
    /// See [`ReadAuditError`].
    pub async fn export(
        &self,
        organization: OrganizationId,
        query: AuditQuery,
        cursor: Option<&str>,
    ) -> Result<AuditChunk, ReadAuditError> {
        let (filter, limit) = query.parse(Reading::Export)?;
        let after = cursor.map(|token| Position::parse(token, organization, &filter)).transpose()?;
        let (count, last, more) = self.repository.measure(organization, &filter, after, limit).await?;
        let next = last.filter(|_| more).map(|last| last.token(organization, &filter));
        let repository = Arc::clone(&self.repository);
        Ok(AuditChunk { count, next, filter, organization, after, last, repository })
    }
}

impl AuditChunk {
    /// The next records of the chunk; none at its end.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn next_batch(&mut self) -> Result<Vec<AuditRecord>, StoreError> {
        let Some(end) = self.last else { return Ok(Vec::new()) };
        let mut records = self.repository.page(self.organization, &self.filter, self.after, BATCH).await?;
        let whole = records.len() == BATCH as usize;
        let inside = records.iter().take_while(|record| (record.entry.at, record.entry.id) >= (end.at, end.id)).count();
        records.truncate(inside);
        self.after = records.last().map(AuditRecord::position);
        if !whole || inside < BATCH as usize || self.after == Some(end) {
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
