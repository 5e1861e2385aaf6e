//! The statements that write any number of records, each prepared once per connection, and a single record as part of
//! another statement.

use casement_domain::audit::{AuditEntry, NodeRun};
use casement_domain::{ApiKeyId, AuditRecordId, NodeId, NodeRunId, OrganizationId, ProjectId};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use time::OffsetDateTime;

use super::Owner;
use super::marks::RECENT_SECONDS;
use crate::column::Column;

/// The columns of a record, in the order of [`Columns`] and [`AuditRow`], or with other expressions for some of them.
macro_rules! columns {
    () => {
        columns!("at", "status", "duration_ms")
    };
    ($at:literal, $status:literal, $duration_ms:literal) => {
        concat!(
            "id, organization_id, ",
            $at,
            ", auth_strategy, service, user_id, email, api_key_id, project_id, client_ip, domain, method, path, route, ",
            $status,
            ", ",
            $duration_ms,
            ", user_agent, request_id, count"
        )
    };
}

/// Any number of records, one array per column.
#[derive(Debug)]
struct Columns {
    id: Vec<Column<AuditRecordId>>,
    organization: Vec<Column<OrganizationId>>,
    at: Vec<OffsetDateTime>,
    auth_strategy: Vec<String>,
    service: Vec<String>,
    user: Vec<String>,
    email: Vec<String>,
    api_key: Vec<Option<Column<ApiKeyId>>>,
    project: Vec<Option<Column<ProjectId>>>,
    client_ip: Vec<String>,
    domain: Vec<String>,
    method: Vec<String>,
    path: Vec<String>,
    route: Vec<String>,
    status: Vec<i32>,
    duration_ms: Vec<i64>,
    user_agent: Vec<String>,
    request_id: Vec<String>,
    count: Vec<i64>,
}

impl Columns {
    fn of(rows: &[(&AuditEntry, Owner)]) -> Self {
        fn all<T>(rows: &[(&AuditEntry, Owner)], of: impl Fn(&AuditEntry) -> T) -> Vec<T> {
            rows.iter().map(|(entry, _)| of(entry)).collect()
        }
        let text = |of: fn(&AuditEntry) -> &str| all(rows, |entry| of(entry).to_owned());
        Self {
            id: all(rows, |entry| Column(entry.id)),
            organization: rows.iter().map(|(_, owner)| owner.organization).collect(),
            at: all(rows, |entry| entry.at),
            auth_strategy: text(|entry| entry.auth_strategy.as_str()),
            service: text(|entry| entry.service.as_str()),
            user: rows.iter().map(|(_, owner)| owner.user.clone()).collect(),
            email: rows.iter().map(|(_, owner)| owner.email.clone()).collect(),
            api_key: all(rows, |entry| entry.api_key.map(Column)),
            project: all(rows, |entry| entry.project.map(Column)),
            client_ip: text(|entry| &entry.client_ip),
            domain: text(|entry| &entry.domain),
            method: text(|entry| &entry.method),
            path: text(|entry| &entry.path),
            route: text(|entry| &entry.route),
            status: all(rows, |entry| i32::from(entry.status)),
            duration_ms: all(rows, |entry| i64::try_from(entry.duration_ms).unwrap_or(i64::MAX)),
            user_agent: text(|entry| &entry.user_agent),
            request_id: text(|entry| &entry.request_id),
            count: all(rows, |entry| i64::from(entry.count)),
        }
    }

    /// Writes the records as a row source.
    fn unnest<'b>(&'b self, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("unnest(");
        push_opaque(&self.id, out)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.organization)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Timestamptz>, _>(&self.at)?;
        for texts in [&self.auth_strategy, &self.service, &self.user, &self.email] {
            out.push_sql(", ");
            out.push_bind_param::<Array<Text>, _>(texts)?;
        }
        out.push_sql(", ");
        out.push_bind_param::<Array<Nullable<SqlUuid>>, _>(&self.api_key)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Nullable<SqlUuid>>, _>(&self.project)?;
        for texts in [&self.client_ip, &self.domain, &self.method, &self.path, &self.route] {
            out.push_sql(", ");
            out.push_bind_param::<Array<Text>, _>(texts)?;
        }
        out.push_sql(", ");
        out.push_bind_param::<Array<Integer>, _>(&self.status)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.duration_ms)?;
        for texts in [&self.user_agent, &self.request_id] {
            out.push_sql(", ");
            out.push_bind_param::<Array<Text>, _>(texts)?;
        }
        out.push_sql(", ");
        out.push_bind_param::<Array<BigInt>, _>(&self.count)?;
        out.push_sql(")");
        Ok(())
    }
}

/// Binds an array so that the planner does not see its length. With it, the planner would prefer a new plan for each
/// number of records over the stored one, and planning takes longer than running.
fn push_opaque<'b>(ids: &'b Vec<Column<AuditRecordId>>, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
    out.push_sql("(SELECT ");
    out.push_bind_param::<Array<SqlUuid>, _>(ids)?;
    // Without the second type, `ANY` would take the selection for rows instead of an array.
    out.push_sql("::uuid[])::uuid[]");
    Ok(())
}

/// Stores records, and deletes the audit intents of their calls. A record that another node has recovered is completed.
#[derive(Debug, QueryId)]
pub(super) struct Append {
    columns: Columns,
    calls: Vec<Column<AuditRecordId>>,
    node: Option<Column<NodeId>>,
    oldest: Option<OffsetDateTime>,
}

impl Append {
    /// Stores nothing if `node` has no recent mark and a record is from before the time that exports have reached; see
    /// [`marks`](super::marks).
    pub(super) fn of(rows: &[(&AuditEntry, Owner)], node: Option<NodeId>) -> Self {
        let columns = Columns::of(rows);
        let oldest = columns.at.iter().min().copied();
        Self { calls: columns.id.clone(), columns, node: node.map(Column), oldest }
    }
}

impl QueryFragment<Pg> for Append {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("WITH node AS (SELECT ");
        out.push_bind_param::<Nullable<SqlUuid>, _>(&self.node)?;
        out.push_sql(
            "::uuid AS id),
             recent AS (SELECT 1 FROM node WHERE id IS NULL OR EXISTS (SELECT FROM audit_records_marks AS mark
                 WHERE mark.node_id = node.id AND mark.marked_at > now() - make_interval(secs => ",
        );
        out.push_sql(&RECENT_SECONDS.to_string());
        out.push_sql(
            "))),
             passed AS (SELECT until FROM audit_records_complete WHERE NOT EXISTS (SELECT FROM recent) FOR SHARE),
             open AS (SELECT 1 FROM recent UNION ALL SELECT 1 FROM passed WHERE until <= ",
        );
        out.push_bind_param::<Nullable<Timestamptz>, _>(&self.oldest)?;
        out.push_sql("), completed AS (DELETE FROM audit_records_pending WHERE id = ANY (");
        push_opaque(&self.calls, &mut out)?;
        out.push_sql(
            ") AND EXISTS (SELECT FROM open)),
             recovered AS (DELETE FROM audit_records_recovered WHERE id = ANY (",
        );
        push_opaque(&self.calls, &mut out)?;
        // The record of a recovered call has the time of the recovery.
        out.push_sql(concat!(
            ") AND EXISTS (SELECT FROM open) RETURNING id, at),
             given (",
            columns!(),
            ") AS (SELECT * FROM "
        ));
        self.columns.unnest(&mut out)?;
        out.push_sql(concat!(
            ") INSERT INTO audit_records (",
            columns!(),
            ") SELECT ",
            columns!("coalesce(recovered.at, given.at)", "status", "duration_ms"),
            " FROM given LEFT JOIN recovered USING (id) WHERE EXISTS (SELECT FROM open)"
        ));
        // The record of a lease was stored before the response of its call was known.
        out.push_sql(
            " ON CONFLICT (at, id) DO UPDATE SET status = excluded.status, duration_ms = excluded.duration_ms, route = excluded.route",
        );
        Ok(())
    }
}

/// Stores the audit intents of calls. The commit is asynchronous: the changes of these calls follow in the same
/// write-ahead log.
#[derive(Debug, QueryId)]
pub(super) struct Begin {
    columns: Columns,
    node: Column<NodeId>,
    run: Column<NodeRunId>,
}

impl Begin {
    pub(super) fn of(rows: &[(&AuditEntry, Owner)], run: NodeRun) -> Self {
        Self { columns: Columns::of(rows), node: Column(run.node), run: Column(run.run) }
    }
}

impl QueryFragment<Pg> for Begin {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(concat!("INSERT INTO audit_records_pending (", columns!(), ", node_id, run_id) SELECT begun.*, "));
        out.push_bind_param::<SqlUuid, _>(&self.node)?;
        out.push_sql(", ");
        out.push_bind_param::<SqlUuid, _>(&self.run)?;
        out.push_sql(" FROM ");
        self.columns.unnest(&mut out)?;
        out.push_sql(
            " AS begun WHERE set_config('synchronous_commit', 'off', true) = 'off' ON CONFLICT (id) DO NOTHING",
        );
        Ok(())
    }
}

/// Makes records of abandoned audit intents, at the time `$4` with the status `$5`: those of node `$1` from other runs
/// than `$2`, and those of nodes without a heartbeat for `$3` seconds, by the database's clock as in
/// [`is_alive`](crate::heartbeat::is_alive). The latter are noted for a day, because the node may still complete them.
pub(super) const RECOVER: &str = concat!(
    "WITH left_behind AS (
         DELETE FROM audit_records_pending
         WHERE (node_id = $1 AND run_id <> $2)
             OR node_id IN (SELECT id FROM nodes WHERE id <> $1 AND heartbeat_at <= now() - make_interval(secs => $3))
         RETURNING *
     ), noted AS (
         INSERT INTO audit_records_recovered (id, at) SELECT id, $4 FROM left_behind WHERE node_id <> $1 ON CONFLICT (id) DO NOTHING
     ), forgotten AS (
         DELETE FROM audit_records_recovered WHERE at < $4 - interval '1 day'
     )
     INSERT INTO audit_records (",
    columns!(),
    ") SELECT ",
    columns!("$4", "$5", "greatest(0, extract(epoch FROM $4 - at) * 1000)::bigint"),
    "
     FROM left_behind
     ON CONFLICT (at, id) DO NOTHING"
);

/// One record that another statement stores.
#[derive(Debug)]
pub(crate) struct AuditRow<'a> {
    id: Column<AuditRecordId>,
    organization: Column<OrganizationId>,
    at: OffsetDateTime,
    /// Authentication strategy, service, id of the user who created the key, e-mail address of that user.
    who: [&'a str; 4],
    api_key: Option<Column<ApiKeyId>>,
    project: Option<Column<ProjectId>>,
    /// Client address, domain, method, path, route.
    what: [&'a str; 5],
    status: i32,
    duration_ms: i64,
    /// User agent and request id.
    reported: [&'a str; 2],
    count: i64,
}

impl<'a> AuditRow<'a> {
    pub(crate) fn of(entry: &'a AuditEntry, owner: &'a Owner) -> Self {
        Self {
            id: Column(entry.id),
            organization: owner.organization,
            at: entry.at,
            who: [entry.auth_strategy.as_str(), entry.service.as_str(), &owner.user, &owner.email],
            api_key: entry.api_key.map(Column),
            project: entry.project.map(Column),
            what: [&entry.client_ip, &entry.domain, &entry.method, &entry.path, &entry.route],
            status: i32::from(entry.status),
            duration_ms: i64::try_from(entry.duration_ms).unwrap_or(i64::MAX),
            reported: [&entry.user_agent, &entry.request_id],
            count: i64::from(entry.count),
        }
    }

    /// Binds the columns of the record, in the order of [`Columns`].
    pub(crate) fn bind<'b>(&'b self, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_bind_param::<SqlUuid, _>(&self.id)?;
        out.push_sql(", ");
        out.push_bind_param::<SqlUuid, _>(&self.organization)?;
        out.push_sql(", ");
        out.push_bind_param::<Timestamptz, _>(&self.at)?;
        texts(&self.who, out)?;
        out.push_sql(", ");
        out.push_bind_param::<Nullable<SqlUuid>, _>(&self.api_key)?;
        out.push_sql(", ");
        out.push_bind_param::<Nullable<SqlUuid>, _>(&self.project)?;
        texts(&self.what, out)?;
        out.push_sql(", ");
        out.push_bind_param::<Integer, _>(&self.status)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, _>(&self.duration_ms)?;
        texts(&self.reported, out)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, _>(&self.count)
    }
}

fn texts<'b>(columns: &'b [&str], out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
    for text in columns {
        out.push_sql(", ");
        out.push_bind_param::<Text, _>(text)?;
    }
    Ok(())
}
