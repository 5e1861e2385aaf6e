//! Recordings, without their films.

use async_trait::async_trait;
use casement_domain::replay::{Replay, ReplayRepository, ReplayState};
use casement_domain::{ReplayId, SessionId, StoreError};
use diesel::dsl::{exists, not, sql};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::convert::{ulid, uuid};
use crate::database::Database;
use crate::error::BadRow;
use crate::schema::{browsers, replays, sessions};

const RUNNING: &str = "running";
const FINISHED: &str = "finished";
const FAILED: &str = "failed";
/// How many whose time is over are told at a time.
const SOME: i64 = 200;

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = replays, check_for_backend(diesel::pg::Pg))]
struct ReplayRow {
    id: Uuid,
    session_id: Uuid,
    started_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
    state: String,
    size_bytes: i64,
    detail: Option<String>,
}

impl TryFrom<ReplayRow> for Replay {
    type Error = BadRow;

    fn try_from(row: ReplayRow) -> Result<Self, BadRow> {
        let state = match row.state.as_str() {
            RUNNING => ReplayState::Running,
            FINISHED => ReplayState::Finished,
            FAILED => ReplayState::Failed,
            other => return Err(BadRow::new("replays.state", other)),
        };
        Ok(Self {
            id: replay_id(row.id),
            started_at: row.started_at,
            finished_at: row.finished_at,
            state,
            size_bytes: u64::try_from(row.size_bytes).map_err(|error| BadRow::new("replays.size_bytes", error))?,
            detail: row.detail,
        })
    }
}

fn replay_id(id: Uuid) -> ReplayId {
    ReplayId::from_ulid(ulid(id))
}

fn state(state: ReplayState) -> &'static str {
    match state {
        ReplayState::Running => RUNNING,
        ReplayState::Finished => FINISHED,
        ReplayState::Failed => FAILED,
    }
}

/// Recordings in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgReplays {
    database: Database,
}

impl PgReplays {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ReplayRepository for PgReplays {
    async fn begin(&self, session: SessionId, id: ReplayId, at: OffsetDateTime) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Held, so that the session does not end meanwhile and whoever ends it sees the recording.
            let row = sessions::table.find(uuid(session.ulid())).filter(sessions::state.eq("active"));
            let held: Option<Uuid> = row.select(sessions::id).for_share().get_result(connection).await.optional()?;
            let Some(session_id) = held else { return Ok(false) };
            let row = ReplayRow {
                id: uuid(id.ulid()),
                session_id,
                started_at: at,
                finished_at: None,
                state: RUNNING.to_owned(),
                size_bytes: 0,
                detail: None,
            };
            diesel::insert_into(replays::table).values(row).execute(connection).await?;
            Ok(true)
        };
        self.database.transaction("replay.begin", work).await
    }

    async fn forget(&self, id: ReplayId) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            diesel::delete(replays::table.find(uuid(id.ulid()))).execute(connection).await?;
            Ok(())
        };
        self.database.call("replay.forget", work).await
    }

    async fn of_session(&self, session: SessionId) -> Result<Vec<Replay>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = replays::table.filter(replays::session_id.eq(uuid(session.ulid())));
            let rows = rows.order((replays::started_at, replays::id)).select(ReplayRow::as_select());
            let rows = rows.load(connection).await?.into_iter().map(Replay::try_from);
            Ok(rows.collect::<Result<_, BadRow>>()?)
        };
        self.database.fetch("replay.of_session", work).await
    }

    async fn unsettled(&self, session: SessionId) -> Result<Vec<ReplayId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = replays::table.filter(replays::session_id.eq(uuid(session.ulid())));
            let rows = rows.filter(replays::state.eq(RUNNING)).select(replays::id);
            Ok(rows.load(connection).await?.into_iter().map(replay_id).collect())
        };
        self.database.fetch("replay.unsettled", work).await
    }

    async fn settle(&self, replay: &Replay) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = replays::table.find(uuid(replay.id.ulid())).filter(replays::state.eq(RUNNING));
            let changes = (
                replays::started_at.eq(replay.started_at),
                replays::finished_at.eq(replay.finished_at),
                replays::state.eq(state(replay.state)),
                replays::size_bytes.eq(i64::try_from(replay.size_bytes).unwrap_or(i64::MAX)),
                // What a session says of itself; the database takes no NUL.
                replays::detail.eq(replay.detail.as_ref().map(|detail| detail.replace('\0', "\u{fffd}"))),
            );
            diesel::update(row).set(changes).execute(connection).await?;
            Ok(())
        };
        self.database.call("replay.settle", work).await
    }

    async fn reconcile_lost(&self, at: OffsetDateTime, why: &str) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let living = browsers::table.filter(browsers::id.nullable().eq(sessions::browser_id));
            let over = sessions::table.filter(sessions::state.eq("ended")).filter(not(exists(living)));
            let lost = replays::table.filter(replays::state.eq(RUNNING));
            let lost = lost.filter(replays::session_id.eq_any(over.select(sessions::id)));
            let changes = (replays::state.eq(FAILED), replays::finished_at.eq(at), replays::detail.eq(why));
            diesel::update(lost).set(changes).execute(connection).await?;
            Ok(())
        };
        self.database.call("replay.settle_lost", work).await
    }

    async fn stored_bytes(&self) -> Result<u64, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let total = sql::<BigInt>("coalesce(sum(size_bytes), 0)::bigint");
            let total: i64 = replays::table.select(total).get_result(connection).await?;
            Ok(u64::try_from(total).unwrap_or(0))
        };
        self.database.fetch("replay.kept_bytes", work).await
    }

    async fn outdated(&self, before: OffsetDateTime) -> Result<Vec<(SessionId, ReplayId)>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let rows = replays::table.inner_join(sessions::table).filter(sessions::ended_at.lt(before));
            // Whoever is at it still has something to say.
            let rows = rows.filter(replays::state.ne(RUNNING)).order(replays::id).limit(SOME);
            let rows: Vec<(Uuid, Uuid)> = rows.select((replays::session_id, replays::id)).load(connection).await?;
            Ok(rows.into_iter().map(|(session, id)| (SessionId::from_ulid(ulid(session)), replay_id(id))).collect())
        };
        self.database.fetch("replay.outdated", work).await
    }

    async fn stored(&self, ids: &[ReplayId]) -> Result<Vec<ReplayId>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let wanted: Vec<Uuid> = ids.iter().map(|id| uuid(id.ulid())).collect();
            let rows = replays::table.filter(replays::id.eq_any(wanted)).filter(replays::state.ne(RUNNING));
            let rows = rows.filter(replays::size_bytes.gt(0)).select(replays::id);
            Ok(rows.load(connection).await?.into_iter().map(replay_id).collect())
        };
        self.database.fetch("replay.kept", work).await
    }
}
