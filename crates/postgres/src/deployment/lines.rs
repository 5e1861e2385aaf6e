//! Output lines of builds and invocations.

use async_trait::async_trait;
use casement_domain::deployment::{Line, LineRange, LineStore, StoredLines, Subject, keep};
use casement_domain::storage::{StorageBounds, StorageRoom};
use casement_domain::{ProjectId, StoreError};
use diesel::prelude::*;
use diesel::sql_types;
use diesel::upsert::excluded;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use super::report;
use crate::column::{Column, ColumnValue, Stored, row};
use crate::database::Database;
use crate::error::CallError;
use crate::query::find;
use crate::schema::{app_line_counts, app_lines, deployments, invocations};
use crate::storage::{self, Kind, StorageLedger};

/// The maximum number of lines that one statement deletes, so that it stays short.
const FORGOTTEN_AT_ONCE: i64 = 20_000;

/// Output lines in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgLines {
    database: Database,
    bounds: StorageBounds,
}

impl PgLines {
    /// Creates the store on this database, within these bounds.
    #[must_use]
    pub fn new(database: Database, bounds: StorageBounds) -> Self {
        Self { database, bounds }
    }
}

fn id(subject: Subject) -> Uuid {
    match subject {
        Subject::Deployment(id) => id.to_raw(),
        Subject::Invocation(id) => id.to_raw(),
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, AsChangeset)]
    #[diesel(table_name = app_line_counts, check_for_backend(diesel::pg::Pg))]
    struct CountRow for StoredLines {
        next: Column<u64> as next_number,
        bytes: Column<u64>,
        full: bool as is_full,
    }
}

row! {
    #[derive(Debug, Queryable, Selectable)]
    #[diesel(table_name = app_lines, check_for_backend(diesel::pg::Pg))]
    struct LineRow for Line {
        number: Column<u64>,
        at: OffsetDateTime,
        text: String as message,
    }
}

#[async_trait]
impl LineStore for PgLines {
    async fn append(&self, subject: Subject, lines: &[Line]) -> Result<StoredLines, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let id = id(subject);
            let Some(newest) = lines.iter().map(|line| line.at).max() else { return read(connection, id).await };
            // Inserted or locked, so that of two writers of the same lines the second finds them stored.
            let none = (
                app_line_counts::subject_id.eq(id),
                app_line_counts::next_number.eq(0),
                app_line_counts::bytes.eq(0),
                app_line_counts::is_full.eq(false),
                app_line_counts::last_at.eq(newest),
            );
            let row = diesel::insert_into(app_line_counts::table).values(none);
            let row = row.on_conflict(app_line_counts::subject_id).do_update();
            let row = row.set(app_line_counts::last_at.eq(excluded(app_line_counts::last_at)));
            let before = row.returning(CountRow::as_returning()).get_result(connection).await?.value()?;
            // If the subject was deleted meanwhile there is no project, and its lines are deleted soon.
            let project = project(connection, subject).await?;
            let mut ledger =
                StorageLedger::open(connection, &self.bounds, Kind::Logs, project.into_iter().collect()).await?;
            let mut room = project.map_or(StorageRoom::unbounded(), |project| ledger.room(project));
            let (taken, after) = keep(before, lines, &mut room);
            if after == before {
                return Ok(before);
            }
            if let Some(project) = project {
                ledger.add(project, taken.iter().map(Line::stored_bytes).sum());
            }
            let rows: Vec<_> = taken
                .iter()
                .map(|line| {
                    (
                        app_lines::subject_id.eq(id),
                        app_lines::number.eq(Column(line.number)),
                        app_lines::at.eq(line.at),
                        app_lines::message.eq(&line.text),
                    )
                })
                .collect();
            for some in rows.chunks(1000) {
                let some: Vec<_> = some.to_vec();
                diesel::insert_into(app_lines::table).values(some).execute(connection).await?;
            }
            let row = diesel::update(app_line_counts::table.find(id));
            row.set(CountRow::of(&after)).execute(connection).await?;
            ledger.close(connection, None).await?;
            report(connection, subject, false).await?;
            Ok(after)
        };
        self.database.transaction("app_line.append", work).await
    }

    async fn stored(&self, subject: Subject) -> Result<StoredLines, StoreError> {
        self.database.fetch("app_line.kept", async |connection| read(connection, id(subject)).await).await
    }

    async fn page(&self, subject: Subject, span: LineRange) -> Result<Vec<Line>, StoreError> {
        let mut rows = app_lines::table.filter(app_lines::subject_id.eq(id(subject))).into_boxed();
        rows = rows.filter(app_lines::number.ge(Column(span.from)));
        if let Some(since) = span.since {
            rows = rows.filter(app_lines::at.ge(since));
        }
        let rows = rows.order(app_lines::number).limit(span.max.into()).select(LineRow::as_select());
        self.database.all("app_line.page", rows).await
    }

    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            storage::forget(connection, Kind::Logs, before).await?;
            // Deletes all lines of a subject that is no longer written to, since those are found by their key.
            let old = app_line_counts::table.filter(app_line_counts::last_at.lt(before));
            let old = old.order(app_line_counts::last_at).limit(max.into()).select(app_line_counts::subject_id);
            let old: Vec<Uuid> = old.load(connection).await?;
            let lines = diesel::sql_query(
                "DELETE FROM app_lines WHERE ctid = ANY(ARRAY(
                     SELECT ctid FROM app_lines WHERE subject_id = ANY($1) LIMIT $2))",
            );
            let lines = lines.bind::<sql_types::Array<sql_types::Uuid>, _>(&old);
            let lines = lines.bind::<sql_types::BigInt, _>(FORGOTTEN_AT_ONCE).execute(connection).await?;
            if lines > 0 {
                return Ok(lines);
            }
            let counts = app_line_counts::table.filter(app_line_counts::subject_id.eq_any(old));
            Ok(diesel::delete(counts).execute(connection).await?)
        };
        self.database.transaction("app_line.forget", work).await
    }
}

async fn project(connection: &mut AsyncPgConnection, subject: Subject) -> QueryResult<Option<Column<ProjectId>>> {
    let id = id(subject);
    match subject {
        Subject::Deployment(_) => {
            deployments::table.find(id).select(deployments::project_id).get_result(connection).await.optional()
        }
        Subject::Invocation(_) => {
            invocations::table.find(id).select(invocations::project_id).get_result(connection).await.optional()
        }
    }
}

async fn read(connection: &mut AsyncPgConnection, id: Uuid) -> Result<StoredLines, CallError> {
    let row = app_line_counts::table.find(id).select(CountRow::as_select());
    Ok(find(connection, row).await?.unwrap_or_default())
}
