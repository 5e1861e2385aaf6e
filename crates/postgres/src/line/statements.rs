//! The statements that hand browsers out: long and hot, so each is prepared once per connection.

use std::sync::LazyLock;

use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::AuditRow;
use crate::session::SessionRow;

static TAKE_NOW: LazyLock<Statement> = LazyLock::new(|| Statement::cut(include_str!("take_now.sql")));
static TAKE_SEEN: LazyLock<Statement> = LazyLock::new(|| Statement::cut(include_str!("take_seen.sql")));
static GIVE_ONE: LazyLock<Statement> = LazyLock::new(|| Statement::cut(include_str!("give_one.sql")));

/// A long statement of a file of its own, without its comments, cut at its parameters. Diesel goes through a statement three times each
/// time that it is asked.
pub(crate) struct Statement {
    head: String,
    /// Each parameter, and what follows it.
    rest: Vec<(&'static str, String)>,
}

impl Statement {
    pub(crate) fn cut(text: &'static str) -> Self {
        let mut statement = Self { head: String::new(), rest: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with("--")) {
            let mut pieces = line.split('$');
            statement.last().push_str(pieces.next().unwrap_or_default());
            for piece in pieces {
                let end = piece.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(piece.len());
                let (name, after) = piece.split_at(end);
                statement.rest.push((name, after.to_owned()));
            }
            statement.last().push('\n');
        }
        statement
    }

    fn last(&mut self) -> &mut String {
        self.rest.last_mut().map_or(&mut self.head, |(_, after)| after)
    }

    /// Writes it out. Diesel numbers the parameters itself, in the order in which they come, so `bind` makes one of each `$n`, or several
    /// of a `$name`.
    pub(crate) fn walk<'a, 'b>(
        &self,
        mut out: AstPass<'a, 'b, Pg>,
        bind: impl Fn(&mut AstPass<'a, 'b, Pg>, &str) -> QueryResult<()>,
    ) -> QueryResult<()> {
        out.push_sql(&self.head);
        for (name, after) in &self.rest {
            bind(&mut out, name)?;
            out.push_sql(after);
        }
        Ok(())
    }
}

/// What is leased to whom.
pub(super) struct Taking<'a> {
    pub(super) pool: Uuid,
    pub(super) session: Uuid,
    pub(super) name: Option<&'a str>,
    pub(super) start_url: Option<&'a str>,
    pub(super) tags: Value,
    pub(super) telemetry: Option<Vec<String>>,
    pub(super) now: OffsetDateTime,
    pub(super) unchanged_since: Option<OffsetDateTime>,
}

/// Leases an idle browser to a session of the caller's if nobody is in line; a [`SessionRow`] if there was one.
pub(super) struct TakeNow<'a> {
    pub(super) taking: Taking<'a>,
    pub(super) heartbeats_after: OffsetDateTime,
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
        let taking = &self.taking;
        TAKE_NOW.walk(out, |out, name| match name {
            "1" => out.push_bind_param::<SqlUuid, _>(&taking.pool),
            "2" => out.push_bind_param::<SqlUuid, _>(&taking.session),
            "3" => out.push_bind_param::<Nullable<Text>, _>(&taking.name),
            "4" => out.push_bind_param::<Nullable<Text>, _>(&taking.start_url),
            "5" => out.push_bind_param::<Jsonb, _>(&taking.tags),
            "6" => out.push_bind_param::<Timestamptz, _>(&taking.now),
            "7" => out.push_bind_param::<Timestamptz, _>(&self.heartbeats_after),
            "8" => out.push_bind_param::<Nullable<Array<Text>>, _>(&taking.telemetry),
            _ => out.push_bind_param::<Nullable<Timestamptz>, _>(&taking.unchanged_since),
        })
    }
}

/// The same for a browser that is known, together with the record of the call.
pub(super) struct TakeSeen<'a> {
    pub(super) taking: Taking<'a>,
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
        TAKE_SEEN.walk(out, |out, name| match name {
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
        GIVE_ONE.walk(out, |out, number| match number {
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
