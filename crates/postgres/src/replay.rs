//! Replays, without their videos.

use async_trait::async_trait;
use casement_domain::replay::{Replay, ReplayRepository, ReplayState};
use casement_domain::{ReplayId, SessionId, StoreError};
use diesel::dsl::{exists, not, sql};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::{Column, columns, row};
use crate::database::repository;
use crate::query::is_there;
use crate::schema::{browsers, replays, sessions};

const RUNNING: &str = ReplayState::Running.as_str();
/// The maximum number of outdated replays that are returned at once.
const SOME: i64 = 200;

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = replays, check_for_backend(diesel::pg::Pg))]
    struct ReplayRow for Replay {
        id: Column<ReplayId>,
        started_at: OffsetDateTime,
        finished_at: Option<OffsetDateTime>,
        state: Column<ReplayState>,
        size_bytes: Column<u64>,
        detail: Option<String>,
    }
}

repository! {
    /// Replays in PostgreSQL.
    PgReplays
}

#[async_trait]
impl ReplayRepository for PgReplays {
    async fn begin(&self, session: SessionId, id: ReplayId, at: OffsetDateTime) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // Locked, so that the session does not end meanwhile, and a later end finds the replay.
            let row = sessions::table.find(Column(session)).filter(sessions::state.eq("active"));
            if !is_there(connection, row.select(sessions::id).for_share()).await? {
                return Ok(false);
            }
            let row = (
                replays::id.eq(Column(id)),
                replays::session_id.eq(Column(session)),
                replays::started_at.eq(at),
                replays::state.eq(RUNNING),
                replays::size_bytes.eq(0),
            );
            diesel::insert_into(replays::table).values(row).execute(connection).await?;
            Ok(true)
        };
        self.database.transaction("replay.begin", work).await
    }

    async fn forget(&self, id: ReplayId) -> Result<(), StoreError> {
        self.database.change("replay.forget", diesel::delete(replays::table.find(Column(id)))).await
    }

    async fn of_session(&self, session: SessionId) -> Result<Vec<Replay>, StoreError> {
        let rows = replays::table.filter(replays::session_id.eq(Column(session)));
        let rows = rows.order((replays::started_at, replays::id)).select(ReplayRow::as_select());
        self.database.all("replay.of_session", rows).await
    }

    async fn unsettled(&self, session: SessionId) -> Result<Vec<ReplayId>, StoreError> {
        let rows = replays::table.filter(replays::session_id.eq(Column(session))).filter(replays::state.eq(RUNNING));
        self.database.ids("replay.unsettled", rows.select(replays::id)).await
    }

    async fn settle(&self, replay: &Replay) -> Result<(), StoreError> {
        let row = replays::table.find(Column(replay.id)).filter(replays::state.eq(RUNNING));
        let changes = (
            replays::started_at.eq(replay.started_at),
            replays::finished_at.eq(replay.finished_at),
            replays::state.eq(Column(replay.state)),
            replays::size_bytes.eq(Column(replay.size_bytes)),
            // Text from inside of a session. PostgreSQL does not accept NUL.
            replays::detail.eq(replay.detail.as_ref().map(|detail| detail.replace('\0', "\u{fffd}"))),
        );
        self.database.change("replay.settle", diesel::update(row).set(changes)).await
    }

    async fn reconcile_lost(&self, at: OffsetDateTime, why: &str) -> Result<(), StoreError> {
        let not_deleted = browsers::table.filter(browsers::id.nullable().eq(sessions::browser_id));
        let over = sessions::table.filter(sessions::state.eq("ended")).filter(not(exists(not_deleted)));
        let lost = replays::table.filter(replays::state.eq(RUNNING));
        let lost = lost.filter(replays::session_id.eq_any(over.select(sessions::id)));
        let failed = replays::state.eq(ReplayState::Failed.as_str());
        let changes = (failed, replays::finished_at.eq(at), replays::detail.eq(why));
        self.database.change("replay.settle_lost", diesel::update(lost).set(changes)).await
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
        let rows = replays::table.inner_join(sessions::table).filter(sessions::ended_at.lt(before));
        // A running replay is settled first.
        let rows = rows.filter(replays::state.ne(RUNNING)).order(replays::id).limit(SOME);
        let rows = rows.select((replays::session_id, replays::id));
        self.database.all::<(Column<_>, Column<_>), _>("replay.outdated", rows).await
    }

    async fn stored(&self, ids: &[ReplayId]) -> Result<Vec<ReplayId>, StoreError> {
        let rows = replays::table.filter(replays::id.eq_any(columns(ids))).filter(replays::state.ne(RUNNING));
        self.database.ids("replay.kept", rows.filter(replays::size_bytes.gt(0)).select(replays::id)).await
    }
}
