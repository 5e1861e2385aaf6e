//! All pools in one statement: their counts and queues, and whether something about them has changed.

use casement_domain::node::Node;
use casement_domain::pool::{PoolCounts, QueueLength};
use casement_domain::{NodeId, PoolId};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::Column;
use crate::error::CallError;
use crate::query::count;

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct CountsRow {
    #[diesel(sql_type = SqlUuid)]
    id: Column<PoolId>,
    #[diesel(sql_type = BigInt)]
    idle: i64,
    #[diesel(sql_type = BigInt)]
    leased: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    callers: Option<i64>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    since: Option<OffsetDateTime>,
}

const COUNTS: &str = "
    SELECT p.id, b.idle, b.leased, w.callers, w.since
    FROM browser_pools p
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE state = 'idle') AS idle, count(*) FILTER (WHERE state = 'leased') AS leased
        FROM browsers WHERE pool_id = p.id) b
    LEFT JOIN (
        SELECT pool_id, count(*) AS callers, min(created_at) AS since FROM pool_waiters WHERE outcome IS NULL
        GROUP BY pool_id) w ON w.pool_id = p.id
    WHERE p.deleted_at IS NULL";

pub(super) async fn all_counts(
    connection: &mut AsyncPgConnection,
) -> Result<Vec<(PoolId, PoolCounts, Option<QueueLength>)>, CallError> {
    let rows: Vec<CountsRow> = diesel::sql_query(COUNTS).load(connection).await?;
    let of = |row: CountsRow| {
        let queue = row.callers.zip(row.since);
        let queue = queue.map(|(callers, since)| QueueLength { callers: count(callers), since });
        (row.id.0, PoolCounts { available: count(row.idle), acquired: count(row.leased) }, queue)
    };
    Ok(rows.into_iter().map(of).collect())
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct ConditionRow {
    #[diesel(sql_type = SqlUuid)]
    id: Column<PoolId>,
    #[diesel(sql_type = Text)]
    condition: String,
}

/// A checksum of what [`observe`](super::observe::observe), the taking of the lead and the reading of the pool depend on. The end of a lead
/// changes with each renewal; what counts is whether it is over.
pub(super) async fn all_conditions(
    connection: &mut AsyncPgConnection,
    node: NodeId,
) -> Result<Vec<(PoolId, String)>, CallError> {
    let seconds = Node::LOST_AFTER.whole_seconds();
    let reading = diesel::sql_query(format!(
        "SELECT p.id, md5(row(to_jsonb(p) - 'lease_until', p.lease_until > now(), b.everything, v.version_id, n.everything)::text) AS condition
         FROM browser_pools p
         LEFT JOIN profiles v ON v.id = p.profile_id
         CROSS JOIN LATERAL (
             SELECT string_agg(row(id, node_id, state, generation, profile_version_id)::text, ' ' ORDER BY id) AS everything
             FROM browsers WHERE pool_id = p.id AND state <> 'ending') b
         CROSS JOIN (
             SELECT string_agg(row(id, max_sessions)::text, ' ' ORDER BY id) AS everything FROM nodes
             WHERE state = 'serving' AND (id = $1 OR heartbeat_at > now() - interval '{seconds} seconds')) n
         WHERE p.deleted_at IS NULL"
    ));
    let rows: Vec<ConditionRow> = reading.bind::<SqlUuid, _>(Column(node)).load(connection).await?;
    Ok(rows.into_iter().map(|row| (row.id.0, row.condition)).collect())
}
