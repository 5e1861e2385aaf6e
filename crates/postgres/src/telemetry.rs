//! Telemetry events: numbered and written in groups, read in order, stored in daily partitions.

mod statements;

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use casement_domain::storage::{ROW_BYTES, StorageBounds, StorageLimit};
use casement_domain::telemetry::{
    Batch, Event, NumberedEvent, Order, SequenceState, Span, StoredBatch, TelemetryStore, number,
};
use casement_domain::{ProjectId, SessionId, StoreError};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use ulid::Ulid;

use crate::column::Column;
use crate::database::Database;
use crate::error::BadRow;
use crate::partitions::{self, Partitioned};
use crate::schema::{sessions, telemetry_counts};
use crate::storage::{self, Kind, StorageLedger};
use statements::{Advance, Append, Hold, Page, Row};

const EVENTS: Partitioned = Partitioned { table: "telemetry_events", span: partitions::Span::Day };

/// Telemetry events in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgTelemetry {
    database: Database,
    bounds: StorageBounds,
}

impl PgTelemetry {
    /// Creates the store on this database, within these bounds.
    #[must_use]
    pub fn new(database: Database, bounds: StorageBounds) -> Self {
        Self { database, bounds }
    }
}

/// The row of the sequence state of a session.
#[derive(Debug, Queryable)]
struct CountRow {
    session_id: Column<SessionId>,
    last_seq: Column<u64>,
    last_at: OffsetDateTime,
    agent_seq: Column<u64>,
    /// The id of the batch that was stored last.
    last_batch: Column<Ulid>,
    bytes: Column<u64>,
    untold: Column<u64>,
    storage_limit: Option<Column<StorageLimit>>,
    told_at: OffsetDateTime,
}

impl CountRow {
    fn state(&self) -> SequenceState {
        SequenceState {
            last_seq: self.last_seq.0,
            last_at: self.last_at,
            agent_seq: self.agent_seq.0,
            bytes: self.bytes.0,
            untold: self.untold.0,
            limit: self.storage_limit.map(|limit| limit.0),
            reported_at: self.told_at,
        }
    }
}

/// `None` for an event whose body was left out because the page is full.
fn numbered(Row { seq: Column(seq), at, category: Column(category), body }: Row) -> Option<NumberedEvent> {
    Some(NumberedEvent { seq, at, event: Event { category, at, body: body?.into() } })
}

#[async_trait]
impl TelemetryStore for PgTelemetry {
    async fn append(&self, batches: &[Batch], now: OffsetDateTime) -> Result<Vec<StoredBatch>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let sessions: Vec<Column<SessionId>> = batches.iter().map(|batch| Column(batch.session)).collect();
            let held: Vec<CountRow> = Hold { sessions: sessions.clone() }.load(connection).await?;
            let held: HashMap<_, CountRow> = held.into_iter().map(|row| (row.session_id, row)).collect();
            let projects =
                sessions::table.filter(sessions::id.eq_any(sessions)).select((sessions::id, sessions::project_id));
            let projects: HashMap<Column<SessionId>, Column<ProjectId>> =
                projects.load(connection).await?.into_iter().collect();
            let requested: BTreeSet<_> = projects.values().copied().collect();
            let mut ledger =
                StorageLedger::open(connection, &self.bounds, Kind::Telemetry, requested.into_iter().collect()).await?;
            let (mut append, mut advance, mut stored) = (Append::default(), Advance::default(), Vec::new());
            for batch in batches {
                let id = Column(batch.session);
                let none = || BadRow::new("telemetry_counts", "no row is held");
                let (row, project) = held.get(&id).zip(projects.get(&id).copied()).ok_or_else(none)?;
                let before = row.state();
                let (mut counted, mut events) = (before, Vec::new());
                if row.last_batch.0 != batch.id {
                    let mut room = ledger.room(project);
                    room.session = self.bounds.budgets.session.saturating_sub(before.bytes);
                    events = number(&mut counted, batch.items.clone(), now, &mut room);
                    ledger.add(project, counted.bytes - before.bytes);
                    append.add(id, &events);
                    advance.add(id, &counted, Column(batch.id));
                }
                stored.push(StoredBatch { session: batch.session, before: before.last_seq, counted, events });
            }
            if !append.is_empty() {
                append.execute(connection).await?;
            }
            if !advance.is_empty() {
                advance.execute(connection).await?;
            }
            ledger.close(connection, Some(now)).await?;
            Ok(stored)
        };
        self.database.transaction("telemetry.append", work).await
    }

    async fn page(&self, session: SessionId, span: &Span) -> Result<(Vec<NumberedEvent>, bool), StoreError> {
        let page = Page {
            session: Column(session),
            since: span.since,
            until: span.until,
            behind: span.behind.map(Column),
            categories: span.categories.iter().map(|category| category.as_str().to_owned()).collect(),
            types: (!span.types.selects_all()).then(|| span.types.types().map(str::to_owned).collect()),
            limit: i64::from(span.limit) + 1,
            newest_first: span.order == Order::Descending,
        };
        let work = async |connection: &mut AsyncPgConnection| {
            let rows: Vec<Row> = page.load(connection).await?;
            let found = rows.len();
            let rows = rows.into_iter().take(span.limit as usize);
            let events: Vec<NumberedEvent> = rows.map_while(numbered).collect();
            let more = found > events.len();
            Ok((events, more))
        };
        self.database.fetch("telemetry.page", work).await
    }

    async fn counted(&self, session: SessionId) -> Result<SequenceState, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = telemetry_counts::table.find(Column(session));
            let row: Option<CountRow> = row.get_result(connection).await.optional()?;
            Ok(row.as_ref().map_or(SequenceState::NOTHING, CountRow::state))
        };
        self.database.fetch("telemetry.counted", work).await
    }

    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            EVENTS.tidy(connection, now, oldest).await?;
            storage::forget(connection, Kind::Telemetry, oldest).await?;
            // Counts the bytes of running sessions again, without the events that were dropped.
            diesel::sql_query(
                "UPDATE telemetry_counts c SET bytes = coalesce((SELECT sum(octet_length(body) + $2) FROM telemetry_events e
                     WHERE e.session_id = c.session_id), 0)
                 FROM sessions s WHERE s.id = c.session_id AND s.state <> 'ended' AND s.created_at < $1 AND c.bytes > 0",
            )
            .bind::<diesel::sql_types::Timestamptz, _>(oldest)
            .bind::<diesel::sql_types::BigInt, _>(Column(ROW_BYTES))
            .execute(connection)
            .await?;
            // The counts of running sessions stay, since their numbering goes on.
            diesel::sql_query(
                "DELETE FROM telemetry_counts c USING sessions s
                 WHERE s.id = c.session_id AND s.state = 'ended' AND s.ended_at < $1 AND c.last_at < $1",
            )
            .bind::<diesel::sql_types::Timestamptz, _>(oldest)
            .execute(connection)
            .await?;
            Ok(())
        };
        self.database.transaction("telemetry.tidy", work).await
    }
}

impl Append {
    fn add(&mut self, session: Column<SessionId>, events: &[NumberedEvent]) {
        for NumberedEvent { seq, at, event } in events {
            self.push(session, Column(*seq), *at, event.category.as_str(), &event.body);
        }
    }
}
