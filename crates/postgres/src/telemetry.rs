//! Telemetry events: numbered and written in groups, read in order, stored in daily partitions.

mod statements;

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use casement_domain::storage::{ROW_BYTES, StorageBounds, StorageLimit, StorageRoom};
use casement_domain::telemetry::{
    Batch, Capture, Delivery, Event, NumberedEvent, Order, SequenceState, Span, StoredBatch, TelemetryStore,
    Unexported, number,
};
use casement_domain::{NodeId, ProjectId, SessionId, StoreError, TelemetryDestinationId};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use ulid::Ulid;

use crate::column::{Column, Stored as _};
use crate::database::Database;
use crate::error::{BadRow, CallError};
use crate::heartbeat::is_alive;
use crate::partitions::{self, Partitioned};
use crate::schema::{nodes, sessions, telemetry_counts, telemetry_exports};
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

/// What an append needs to know of a session.
#[derive(Clone, Copy)]
struct SessionFacts {
    project: Column<ProjectId>,
    delivery: Delivery,
}

/// The columns of [`SessionFacts`], with the id of the session.
type FactsRow = (Column<SessionId>, Column<ProjectId>, Option<Vec<String>>);

impl SessionFacts {
    async fn of(
        connection: &mut AsyncPgConnection,
        sessions: Vec<Column<SessionId>>,
    ) -> Result<HashMap<Column<SessionId>, Self>, CallError> {
        let rows = sessions::table.filter(sessions::id.eq_any(sessions));
        let rows = rows.select((sessions::id, sessions::project_id, sessions::telemetry));
        let rows: Vec<FactsRow> = rows.load(connection).await?;
        let facts = |(id, project, telemetry)| Ok((id, Self { project, delivery: delivery(telemetry)? }));
        rows.into_iter().map(facts).collect()
    }
}

fn delivery(telemetry: Option<Vec<String>>) -> Result<Delivery, BadRow> {
    let capture: Option<Capture> = telemetry.value()?;
    Ok(capture.map(|capture| capture.delivery()).unwrap_or_default())
}

/// Stores the number of the last event that counts as exported.
async fn exported(connection: &mut AsyncPgConnection, session: SessionId, through: u64) -> Result<(), CallError> {
    let row = (telemetry_exports::session_id.eq(Column(session)), telemetry_exports::exported_seq.eq(Column(through)));
    let row = diesel::insert_into(telemetry_exports::table).values(row).on_conflict(telemetry_exports::session_id);
    // Never back: a request that was sent before an export ended and began anew may be accepted afterwards.
    let later = diesel::dsl::sql::<BigInt>("greatest(telemetry_exports.exported_seq, excluded.exported_seq)");
    row.do_update().set(telemetry_exports::exported_seq.eq(later)).execute(connection).await?;
    Ok(())
}

/// Begins the export of a session with its next event.
pub(crate) async fn export_from_now(connection: &mut AsyncPgConnection, session: SessionId) -> Result<(), CallError> {
    let last = telemetry_counts::table.find(Column(session)).select(telemetry_counts::last_seq);
    let last: Option<Column<u64>> = last.get_result(connection).await.optional()?;
    exported(connection, session, last.map_or(0, |last| last.0)).await
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
            let facts = SessionFacts::of(connection, sessions).await?;
            let requested: BTreeSet<_> = facts.values().map(|facts| facts.project).collect();
            let mut ledger =
                StorageLedger::open(connection, &self.bounds, Kind::Telemetry, requested.into_iter().collect()).await?;
            let (mut append, mut advance, mut stored) = (Append::default(), Advance::default(), Vec::new());
            for batch in batches {
                let id = Column(batch.session);
                let none = || BadRow::new("telemetry_counts", "no row is held");
                let (row, &SessionFacts { project, delivery }) = held.get(&id).zip(facts.get(&id)).ok_or_else(none)?;
                let before = row.state();
                let (mut counted, mut events) = (before, Vec::new());
                if row.last_batch.0 != batch.id && !delivery.stored {
                    events = number(&mut counted, batch.items.clone(), now, &mut StorageRoom::unbounded());
                    // The events take no place, so that they leave it to the session's other data.
                    counted.bytes = before.bytes;
                    advance.add(id, &counted, Column(batch.id));
                } else if row.last_batch.0 != batch.id {
                    let mut room = ledger.room(project);
                    room.session = self.bounds.budgets.session.saturating_sub(before.bytes);
                    events = number(&mut counted, batch.items.clone(), now, &mut room);
                    ledger.add(project, counted.bytes - before.bytes);
                    append.add(id, &events);
                    advance.add(id, &counted, Column(batch.id));
                }
                let before = before.last_seq;
                stored.push(StoredBatch { session: batch.session, before, counted, events, delivery });
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

    async fn unexported(&self, session: SessionId) -> Result<Option<Unexported>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let facts = SessionFacts::of(connection, vec![Column(session)]).await?;
            let delivery = facts.into_values().next().map(|facts| facts.delivery).filter(|delivery| delivery.stored);
            let Some(destination) = delivery.and_then(|delivery| delivery.destination) else { return Ok(None) };
            let row = telemetry_exports::table.find(Column(session)).select(telemetry_exports::exported_seq);
            let after: Option<Column<u64>> = row.get_result(connection).await.optional()?;
            Ok(Some(Unexported { destination, after: after.map_or(0, |after| after.0) }))
        };
        self.database.fetch("telemetry.unexported", work).await
    }

    async fn set_exported(&self, session: SessionId, through: u64) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| exported(connection, session, through).await;
        self.database.call("telemetry.set_exported", work).await
    }

    async fn with_unexported(&self, node: NodeId) -> Result<Vec<(SessionId, TelemetryDestinationId)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let last = || {
                let row = telemetry_exports::table.filter(telemetry_exports::session_id.eq(sessions::id));
                row.select(telemetry_exports::exported_seq).single_value()
            };
            let counts = telemetry_counts::table.on(telemetry_counts::session_id.eq(sessions::id));
            let behind = telemetry_counts::last_seq.nullable().gt(last()).assume_not_null();
            let rows = sessions::table.inner_join(counts).filter(last().is_null().or(behind));
            // One node exports for the lost ones, so that two do not export the same.
            let alive = || nodes::table.filter(is_alive()).select(nodes::id);
            let first = alive().order(nodes::id).limit(1).single_value();
            let is_lost = sessions::node_id.ne_all(alive()).and(first.eq(Column(node)).assume_not_null());
            let rows = rows.filter(sessions::node_id.eq(Column(node)).or(is_lost));
            let rows = rows.filter(sessions::telemetry.is_not_null());
            let rows = rows.select((sessions::id, sessions::telemetry));
            let rows: Vec<(Column<SessionId>, Option<Vec<String>>)> = rows.load(connection).await?;
            let mut found = Vec::new();
            for (Column(session), telemetry) in rows {
                let delivery = delivery(telemetry)?;
                found.extend(delivery.destination.filter(|_| delivery.stored).map(|to| (session, to)));
            }
            Ok(found)
        };
        self.database.fetch("telemetry.with_unexported", work).await
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
            diesel::sql_query(
                "DELETE FROM telemetry_exports e USING sessions s
                 WHERE s.id = e.session_id AND s.state = 'ended' AND s.ended_at < $1",
            )
            .bind::<diesel::sql_types::Timestamptz, _>(oldest)
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
        self.database.transaction("telemetry.tidy", work).await?;
        EVENTS.forget(&self.database, "telemetry.forget", oldest).await
    }
}

impl Append {
    fn add(&mut self, session: Column<SessionId>, events: &[NumberedEvent]) {
        for NumberedEvent { seq, at, event } in events {
            self.push(session, Column(*seq), *at, event.category.as_str(), &event.body);
        }
    }
}
