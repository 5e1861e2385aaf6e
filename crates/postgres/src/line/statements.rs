//! The statements that hand browsers out: long and hot, so each is prepared once per connection.

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::AuditRow;
use crate::session::SessionRow;

const TAKE_NOW: &str = include_str!("take_now.sql");
const TAKE_SEEN: &str = include_str!("take_seen.sql");
const GIVE_ONE: &str = include_str!("give_one.sql");

/// Writes a statement out. Diesel numbers the parameters itself, in the order in which they come, so `bind` makes one of
/// each `$n`, or several of a `$name`.
pub(crate) fn walk<'a, 'b>(
    statement: &'static str,
    mut out: AstPass<'a, 'b, Pg>,
    bind: impl Fn(&mut AstPass<'a, 'b, Pg>, &str) -> QueryResult<()>,
) -> QueryResult<()> {
    for line in statement.lines().filter(|line| !line.starts_with("--")) {
        let mut pieces = line.split('$');
        out.push_sql(pieces.next().unwrap_or_default());
        for piece in pieces {
            let end = piece.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(piece.len());
            let (name, rest) = piece.split_at(end);
            bind(&mut out, name)?;
            out.push_sql(rest);
        }
        out.push_sql("\n");
    }
    Ok(())
}

/// Leases an idle browser to a session of the caller's if nobody is in line; a [`SessionRow`] if there was one.
pub(super) struct TakeNow<'a> {
    pub(super) pool: Uuid,
    pub(super) session: Uuid,
    pub(super) name: Option<&'a str>,
    pub(super) start_url: Option<&'a str>,
    pub(super) tags: Value,
    pub(super) telemetry: Option<Vec<String>>,
    pub(super) now: OffsetDateTime,
    pub(super) heartbeats_after: OffsetDateTime,
    pub(super) unchanged_since: Option<OffsetDateTime>,
}

impl QueryId for TakeNow<'_> {
    type QueryId = TakeNow<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for TakeNow<'_> {
    type SqlType = diesel::dsl::AsSelect<SessionRow, Pg>;
}

impl QueryFragment<Pg> for TakeNow<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        walk(TAKE_NOW, out, |out, name| match name {
            "1" => out.push_bind_param::<SqlUuid, _>(&self.pool),
            "2" => out.push_bind_param::<SqlUuid, _>(&self.session),
            "3" => out.push_bind_param::<Nullable<Text>, _>(&self.name),
            "4" => out.push_bind_param::<Nullable<Text>, _>(&self.start_url),
            "5" => out.push_bind_param::<Jsonb, _>(&self.tags),
            "6" => out.push_bind_param::<Timestamptz, _>(&self.now),
            "7" => out.push_bind_param::<Timestamptz, _>(&self.heartbeats_after),
            "8" => out.push_bind_param::<Nullable<Array<Text>>, _>(&self.telemetry),
            _ => out.push_bind_param::<Nullable<Timestamptz>, _>(&self.unchanged_since),
        })
    }
}

/// The same for a browser that is known, together with the record of the call.
pub(super) struct TakeSeen<'a> {
    pub(super) taking: TakeNow<'a>,
    pub(super) browser: Uuid,
    pub(super) record: AuditRow<'a>,
}

impl QueryId for TakeSeen<'_> {
    type QueryId = TakeSeen<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for TakeSeen<'_> {
    type SqlType = diesel::dsl::AsSelect<SessionRow, Pg>;
}

impl QueryFragment<Pg> for TakeSeen<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let taking = &self.taking;
        walk(TAKE_SEEN, out, |out, name| match name {
            "1" => out.push_bind_param::<SqlUuid, _>(&taking.pool),
            "2" => out.push_bind_param::<SqlUuid, _>(&taking.session),
            "3" => out.push_bind_param::<Nullable<Text>, _>(&taking.name),
            "4" => out.push_bind_param::<Nullable<Text>, _>(&taking.start_url),
            "5" => out.push_bind_param::<Jsonb, _>(&taking.tags),
            "6" => out.push_bind_param::<Timestamptz, _>(&taking.now),
            "7" => out.push_bind_param::<Nullable<Array<Text>>, _>(&taking.telemetry),
            "8" => out.push_bind_param::<SqlUuid, _>(&self.browser),
            "9" => out.push_bind_param::<Nullable<Timestamptz>, _>(&taking.unchanged_since),
            _ => self.record.bind(out),
        })
    }
}

/// Gives one idle browser to the first in line; the ticket about which something was decided, and its node.
#[derive(QueryId)]
pub(super) struct GiveOne {
    pub(super) pool: Uuid,
    pub(super) now: OffsetDateTime,
    pub(super) heartbeats_after: OffsetDateTime,
}

impl Query for GiveOne {
    type SqlType = (SqlUuid, SqlUuid);
}

impl QueryFragment<Pg> for GiveOne {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        walk(GIVE_ONE, out, |out, number| match number {
            "1" => out.push_bind_param::<SqlUuid, _>(&self.pool),
            "2" => out.push_bind_param::<Timestamptz, _>(&self.now),
            _ => out.push_bind_param::<Timestamptz, _>(&self.heartbeats_after),
        })
    }
}

// Both give back nothing that is ever read.
diesel::define_sql_function! {
    /// Holds the lock of this number until the transaction ends.
    fn pg_advisory_xact_lock(number: BigInt) -> Text;
}
diesel::define_sql_function! {
    /// Says something on a channel when the transaction commits.
    fn pg_notify(channel: Text, payload: Text) -> Text;
}
