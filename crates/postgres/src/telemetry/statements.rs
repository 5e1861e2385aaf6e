//! The statements that write and read events. The text of each is constant, so it is prepared once per connection.

use casement_domain::SessionId;
use casement_domain::storage::StorageLimit;
use casement_domain::telemetry::{EventCategory, SequenceState};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use time::OffsetDateTime;
use ulid::Ulid;

use crate::column::Column;

/// Locks the counts of sessions until the transaction ends, and inserts missing ones. Works in the order of the session
/// ids, so that two of these statements never deadlock.
#[derive(Debug, QueryId)]
pub(super) struct Hold {
    pub(super) sessions: Vec<Column<SessionId>>,
}

impl Query for Hold {
    type SqlType = (SqlUuid, BigInt, Timestamptz, BigInt, SqlUuid, BigInt, BigInt, Nullable<Text>, Timestamptz);
}

impl QueryFragment<Pg> for Hold {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "INSERT INTO telemetry_counts (session_id, last_seq, last_at, agent_seq, last_batch)
             SELECT id, 0, 'epoch', 0, '00000000-0000-0000-0000-000000000000' FROM unnest(",
        );
        out.push_bind_param::<Array<SqlUuid>, _>(&self.sessions)?;
        out.push_sql(
            ") AS asked (id) ORDER BY id
             ON CONFLICT (session_id) DO UPDATE SET last_seq = telemetry_counts.last_seq
             RETURNING session_id, last_seq, last_at, agent_seq, last_batch, bytes, untold, storage_limit, told_at",
        );
        Ok(())
    }
}

/// Inserts events, given as one array per column.
#[derive(Debug, Default, QueryId)]
pub(super) struct Append {
    session: Vec<Column<SessionId>>,
    seq: Vec<Column<u64>>,
    at: Vec<OffsetDateTime>,
    category: Vec<String>,
    body: Vec<String>,
}

impl Append {
    pub(super) fn push(
        &mut self,
        session: Column<SessionId>,
        seq: Column<u64>,
        at: OffsetDateTime,
        category: &str,
        body: &str,
    ) {
        self.session.push(session);
        self.seq.push(seq);
        self.at.push(at);
        self.category.push(category.to_owned());
        self.body.push(body.to_owned());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.session.is_empty()
    }
}

impl QueryFragment<Pg> for Append {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("INSERT INTO telemetry_events (session_id, seq, at, category, body) SELECT * FROM unnest(");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.session)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.seq)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Timestamptz>, _>(&self.at)?;
        for texts in [&self.category, &self.body] {
            out.push_sql(", ");
            out.push_bind_param::<Array<Text>, _>(texts)?;
        }
        out.push_sql(")");
        Ok(())
    }
}

/// Stores the sequence states of sessions.
#[derive(Debug, Default, QueryId)]
pub(super) struct Advance {
    session: Vec<Column<SessionId>>,
    last_seq: Vec<Column<u64>>,
    last_at: Vec<OffsetDateTime>,
    agent_seq: Vec<Column<u64>>,
    batch: Vec<Column<Ulid>>,
    bytes: Vec<Column<u64>>,
    untold: Vec<Column<u64>>,
    limit: Vec<Option<&'static str>>,
    told_at: Vec<OffsetDateTime>,
}

impl Advance {
    pub(super) fn add(&mut self, session: Column<SessionId>, counted: &SequenceState, batch: Column<Ulid>) {
        self.session.push(session);
        self.last_seq.push(Column(counted.last_seq));
        self.last_at.push(counted.last_at);
        self.agent_seq.push(Column(counted.agent_seq));
        self.batch.push(batch);
        self.bytes.push(Column(counted.bytes));
        self.untold.push(Column(counted.untold));
        self.limit.push(counted.limit.map(StorageLimit::as_str));
        self.told_at.push(counted.reported_at);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.session.is_empty()
    }
}

impl QueryFragment<Pg> for Advance {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "UPDATE telemetry_counts c SET last_seq = n.last_seq, last_at = n.last_at, agent_seq = n.agent_seq,
                 last_batch = n.batch, bytes = n.bytes, untold = n.untold, storage_limit = n.storage_limit, told_at = n.told_at
             FROM unnest(",
        );
        out.push_bind_param::<Array<SqlUuid>, _>(&self.session)?;
        for numbers in [&self.last_seq, &self.agent_seq, &self.bytes, &self.untold] {
            out.push_sql(", ");
            out.push_bind_param::<Array<BigInt>, _>(numbers)?;
        }
        for times in [&self.last_at, &self.told_at] {
            out.push_sql(", ");
            out.push_bind_param::<Array<Timestamptz>, _>(times)?;
        }
        out.push_sql(", ");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.batch)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Nullable<Text>>, _>(&self.limit)?;
        out.push_sql(
            ") AS n (id, last_seq, agent_seq, bytes, untold, last_at, told_at, batch, storage_limit)
             WHERE c.session_id = n.id",
        );
        Ok(())
    }
}

/// The size of a page, in bytes, from which on no further event is added.
const LONG_ENOUGH: i64 = 8 << 20;

/// Compares the type of an event with an array. The type is the first member of an event of an agent, and the last one
/// of an event of the server. Only the beginning of a longer body is read.
const IS_OF_TYPES: &str = " AND CASE WHEN starts_with(body, '{\"type\":') THEN split_part(left(body, 80), '\"', 4)
    ELSE substring(right(body, 80) from '\"type\":\"([a-z0-9_]+)\"}$') END = ANY (";

/// An event as it is stored.
#[derive(Debug, Queryable)]
pub(super) struct Row {
    pub(super) seq: Column<u64>,
    pub(super) at: OffsetDateTime,
    pub(super) category: Column<EventCategory>,
    /// `None` if the events before this one fill the page.
    pub(super) body: Option<String>,
}

/// Reads a page of events: the first `limit` of each category, and the first `limit` of those.
///
/// Times are converted to sequence numbers first, since both rise together; then only numbers are compared, along one
/// index.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) session: Column<SessionId>,
    pub(super) since: Option<OffsetDateTime>,
    pub(super) until: Option<OffsetDateTime>,
    pub(super) behind: Option<Column<u64>>,
    pub(super) categories: Vec<String>,
    /// `None` reads events of all types.
    pub(super) types: Option<Vec<String>>,
    pub(super) limit: i64,
    pub(super) newest_first: bool,
}

impl QueryId for Page {
    type QueryId = ();
    // There is a statement for each direction, with and without types.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Page {
    type SqlType = (BigInt, Timestamptz, Text, Nullable<Text>);
}

impl Page {
    /// Writes the number of the first event at or after a time; without a time, `otherwise`.
    fn number<'b>(
        &'b self,
        out: &mut AstPass<'_, 'b, Pg>,
        at: &'b Option<OffsetDateTime>,
        otherwise: &'static str,
    ) -> QueryResult<()> {
        out.push_sql("CASE WHEN ");
        out.push_bind_param::<Nullable<Timestamptz>, _>(at)?;
        out.push_sql(" IS NULL THEN ");
        out.push_sql(otherwise);
        out.push_sql(" ELSE coalesce((SELECT seq FROM telemetry_events WHERE session_id = ");
        out.push_bind_param::<SqlUuid, _>(&self.session)?;
        out.push_sql(" AND at >= ");
        out.push_bind_param::<Nullable<Timestamptz>, _>(at)?;
        out.push_sql(" ORDER BY at, seq LIMIT 1), 9223372036854775807) END");
        Ok(())
    }
}

impl QueryFragment<Pg> for Page {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let (compare, order) = if self.newest_first { ("<", " DESC") } else { (">", "") };
        out.push_sql("WITH bounds AS MATERIALIZED (SELECT ");
        self.number(&mut out, &self.since, "0::bigint")?;
        out.push_sql(" AS low, ");
        self.number(&mut out, &self.until, "9223372036854775807")?;
        out.push_sql(" AS high, coalesce(");
        out.push_bind_param::<Nullable<BigInt>, _>(&self.behind)?;
        out.push_sql(if self.newest_first { ", 9223372036854775807" } else { ", 0" });
        out.push_sql(") AS behind), found AS (SELECT found.* FROM bounds, unnest(");
        out.push_bind_param::<Array<Text>, _>(&self.categories)?;
        out.push_sql(
            ") AS asked (category) CROSS JOIN LATERAL (
                 SELECT seq, at, e.category, body FROM telemetry_events e WHERE session_id = ",
        );
        out.push_bind_param::<SqlUuid, _>(&self.session)?;
        out.push_sql(" AND e.category = asked.category AND seq >= bounds.low AND seq < bounds.high AND seq ");
        out.push_sql(compare);
        out.push_sql(" bounds.behind");
        if let Some(types) = &self.types {
            out.push_sql(IS_OF_TYPES);
            out.push_bind_param::<Array<Text>, _>(types)?;
            out.push_sql(")");
        }
        out.push_sql(" ORDER BY seq");
        out.push_sql(order);
        out.push_sql(" LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.limit)?;
        out.push_sql(") AS found ORDER BY found.seq");
        out.push_sql(order);
        out.push_sql(" LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.limit)?;
        out.push_sql(") SELECT seq, at, category, CASE WHEN before < ");
        out.push_bind_param::<BigInt, _>(&LONG_ENOUGH)?;
        // PostgreSQL stores the length of a text separately, so measuring fetches no body.
        out.push_sql(
            " THEN body END FROM (
                 SELECT *, coalesce(sum(octet_length(body)) OVER (ORDER BY seq",
        );
        out.push_sql(order);
        out.push_sql(
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM found) AS measured ORDER BY seq",
        );
        out.push_sql(order);
        Ok(())
    }
}
