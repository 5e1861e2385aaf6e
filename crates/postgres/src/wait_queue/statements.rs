//! The statements that lease browsers. They are long and frequent, so each is prepared once per connection.

use std::sync::LazyLock;

use casement_domain::session::Tags;
use casement_domain::{BrowserId, NodeId, PoolId, SessionId};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Double, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use time::OffsetDateTime;

use crate::audit::AuditRow;
use crate::column::Column;
use crate::session::SessionRow;
use crate::statement::Statement;

static TAKE_NOW: LazyLock<Statement> = LazyLock::new(|| Statement::cut(include_str!("take_now.sql")));
static TAKE_SEEN: LazyLock<Statement> = LazyLock::new(|| Statement::cut(include_str!("take_seen.sql")));
static GIVE_ONE: LazyLock<Statement> = LazyLock::new(|| Statement::cut(include_str!("give_one.sql")));

/// The parameters of a lease.
pub(super) struct LeaseTarget<'a> {
    pub(super) pool: Column<PoolId>,
    pub(super) session: Column<SessionId>,
    pub(super) name: Option<&'a str>,
    pub(super) start_url: Option<&'a str>,
    pub(super) tags: Column<Tags>,
    pub(super) telemetry: Option<Vec<String>>,
    pub(super) node: Column<NodeId>,
    pub(super) avoided: Vec<Column<NodeId>>,
    pub(super) now: OffsetDateTime,
}

impl LeaseTarget<'_> {
    /// Binds a parameter that both lease statements have under the same name.
    fn bind<'b>(&'b self, out: &mut AstPass<'_, 'b, Pg>, name: &str) -> QueryResult<()> {
        match name {
            "1" => out.push_bind_param::<SqlUuid, _>(&self.pool),
            "2" => out.push_bind_param::<SqlUuid, _>(&self.session),
            "3" => out.push_bind_param::<Nullable<Text>, _>(&self.name),
            "4" => out.push_bind_param::<Nullable<Text>, _>(&self.start_url),
            "5" => out.push_bind_param::<Jsonb, _>(&self.tags),
            _ => out.push_bind_param::<Timestamptz, _>(&self.now),
        }
    }
}

/// Leases an idle browser to a new session if no ticket waits. Returns a [`SessionRow`] if there was such a browser.
pub(super) struct LeaseIdleBrowser<'a> {
    pub(super) taking: LeaseTarget<'a>,
    pub(super) silent_after_seconds: f64,
    pub(super) leased_within_seconds: f64,
}

impl QueryId for LeaseIdleBrowser<'_> {
    type QueryId = LeaseIdleBrowser<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for LeaseIdleBrowser<'_> {
    type SqlType = diesel::dsl::AsSelect<SessionRow, Pg>;
}

impl QueryFragment<Pg> for LeaseIdleBrowser<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let taking = &self.taking;
        TAKE_NOW.walk(out, |out, name| match name {
            "7" => out.push_bind_param::<Double, _>(&self.silent_after_seconds),
            "8" => out.push_bind_param::<Nullable<Array<Text>>, _>(&taking.telemetry),
            "9" => out.push_bind_param::<SqlUuid, _>(&taking.node),
            "10" => out.push_bind_param::<Double, _>(&self.leased_within_seconds),
            "11" => out.push_bind_param::<Array<SqlUuid>, _>(&taking.avoided),
            shared => taking.bind(out, shared),
        })
    }
}

/// Leases a known browser, and stores the audit record of the call in the same statement.
pub(super) struct LeaseKnownBrowser<'a> {
    pub(super) taking: LeaseTarget<'a>,
    pub(super) browser: Column<BrowserId>,
    pub(super) unchanged_since: OffsetDateTime,
    pub(super) record: AuditRow<'a>,
}

impl QueryId for LeaseKnownBrowser<'_> {
    type QueryId = LeaseKnownBrowser<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for LeaseKnownBrowser<'_> {
    type SqlType = diesel::dsl::AsSelect<SessionRow, Pg>;
}

impl QueryFragment<Pg> for LeaseKnownBrowser<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let taking = &self.taking;
        TAKE_SEEN.walk(out, |out, name| match name {
            "7" => out.push_bind_param::<Nullable<Array<Text>>, _>(&taking.telemetry),
            "8" => out.push_bind_param::<SqlUuid, _>(&self.browser),
            "9" => out.push_bind_param::<Timestamptz, _>(&self.unchanged_since),
            "record" => self.record.bind(out),
            shared => taking.bind(out, shared),
        })
    }
}

/// Gives one idle browser to the first ticket of the wait queue. Returns the ticket whose outcome was set, and its
/// node.
pub(super) struct GrantTicket<'a> {
    pub(super) pool: Column<PoolId>,
    pub(super) now: OffsetDateTime,
    pub(super) silent_after_seconds: f64,
    pub(super) node: Column<NodeId>,
    pub(super) leased_within_seconds: f64,
    pub(super) avoided: &'a [Column<NodeId>],
}

impl QueryId for GrantTicket<'_> {
    type QueryId = GrantTicket<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for GrantTicket<'_> {
    type SqlType = (SqlUuid, SqlUuid);
}

impl QueryFragment<Pg> for GrantTicket<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        GIVE_ONE.walk(out, |out, number| match number {
            "1" => out.push_bind_param::<SqlUuid, _>(&self.pool),
            "2" => out.push_bind_param::<Timestamptz, _>(&self.now),
            "4" => out.push_bind_param::<SqlUuid, _>(&self.node),
            "5" => out.push_bind_param::<Double, _>(&self.leased_within_seconds),
            "6" => out.push_bind_param::<Array<SqlUuid>, _>(&self.avoided),
            _ => out.push_bind_param::<Double, _>(&self.silent_after_seconds),
        })
    }
}

diesel::define_sql_function! {
    /// Takes the advisory lock of this number until the transaction ends. The result is never read.
    fn pg_advisory_xact_lock(number: BigInt) -> Text;
}
