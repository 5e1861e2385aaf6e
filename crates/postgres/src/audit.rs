//! Audit records: written in groups, read in order, stored in monthly partitions.

mod append;
mod marks;
mod row;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::audit::{
    AuditEntry, AuditFilter, AuditRange, AuditRecord, AuditRepository, AuditService, AuthStrategy, NodeRun, Position,
    RangeMeasurement,
};
use casement_domain::node::Node;
use casement_domain::{ApiKeyId, AuditRecordId, NodeId, OrganizationId, ProjectId, StoreError, UserId};
use diesel::deserialize::{self, FromSql};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::row::{Field as _, NamedRow};
use diesel::sql_types::{Array, BigInt, Double, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use parking_lot::{Mutex, MutexGuard};
use time::OffsetDateTime;

use crate::column::{Column, columns};
use crate::database::Database;
use crate::error::{BadRow, CallError};
use crate::partitions::{Partitioned, Span};
use crate::schema::{api_keys, audit_records, audit_records_pending, projects, users};
pub(crate) use append::AuditRow;
use append::{Append, Begin};
use row::Row;

const RECORDS: Partitioned = Partitioned { table: "audit_records", span: Span::Month };
/// The maximum number of cached owners. The cache is cleared beyond it.
const MAX_OWNERS: usize = 10_000;

/// The conditions of [`audit_query`]. `at <=` and `at >=` repeat the comparisons of pairs, so that PostgreSQL skips
/// partitions. Absent conditions cost nothing, since the statement is planned with its values.
macro_rules! matching {
    () => {
        "organization_id = $1 AND at >= $2 AND at < $3
         AND ($4::timestamptz IS NULL OR (at <= $4 AND (at, id) < ($4, $5)))
         AND ($6::text IS NULL OR auth_strategy = $6) AND ($7::text IS NULL OR service = $7) AND ($8::text IS NULL OR method = $8)
         AND ($13::timestamptz IS NULL OR (at >= $13 AND (at, id) >= ($13, $14)))
         AND method <> ALL ($9)
         AND (($10::text IS NULL AND cardinality($11) = 0)
              OR path ILIKE $10 OR user_id ILIKE $10 OR email ILIKE $10 OR client_ip ILIKE $10 OR status::text = $12
              OR user_id = ANY ($11))"
    };
}

/// The columns of a [`Row`], in its order.
macro_rules! columns {
    () => {
        "id, at, auth_strategy, service, user_id, email, api_key_id, project_id, client_ip, domain, method, path, route, status,
         duration_ms, user_agent, request_id, count"
    };
}

const PAGE: &str =
    concat!("SELECT ", columns!(), " FROM audit_records WHERE ", matching!(), " ORDER BY at DESC, id DESC LIMIT $15");
/// The number of matching records, up to one more than the limit, with the positions of the first and of the last
/// within the limit. Relies on `found` keeping the order of its rows: numbering them would take longer than finding
/// them.
const MEASURE: &str = concat!(
    "WITH found AS MATERIALIZED (SELECT at, id FROM audit_records WHERE ",
    matching!(),
    " ORDER BY at DESC, id DESC LIMIT $15 + 1), total AS (SELECT count(*) AS count FROM found)
     SELECT total.count, last.at, last.id, first.at AS first_at, first.id AS first_id
     FROM total, LATERAL (SELECT at, id FROM found LIMIT 1) AS first,
         LATERAL (SELECT at, id FROM found OFFSET greatest(least(total.count, $15) - 1, 0) LIMIT 1) AS last"
);
const FOLLOWING: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM audit_records WHERE organization_id = $1 AND at >= $2 AND (at, id) > ($2, $3) AND at <= $4 AND (at, id) < ($4, $5)
     ORDER BY at, id LIMIT $6"
);
const FAR_BEHIND: &str = "SELECT at, id FROM audit_records WHERE organization_id = $1 AND at >= $2 AND at < $3
    AND ($4::timestamptz IS NULL OR (at <= $4 AND (at, id) < ($4, $5))) ORDER BY at DESC, id DESC OFFSET $6 LIMIT 1";

/// Audit records in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgAudit {
    database: Database,
    owners: Arc<Mutex<Owners>>,
    node: Option<NodeId>,
}

impl PgAudit {
    /// Creates the repository on this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, owners: Arc::default(), node: None }
    }

    /// Names the node that stores records, so that it stores none that exports have passed.
    #[must_use]
    pub fn on_node(self, node: NodeId) -> Self {
        Self { node: Some(node), ..self }
    }

    /// PostgreSQL's plan for reading a page.
    ///
    /// # Errors
    /// The same as of reading the page.
    #[cfg(feature = "testing")]
    pub async fn plan(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        stretch: AuditRange,
        limit: u32,
    ) -> Result<String, StoreError> {
        let query = audit_query(format!("EXPLAIN {PAGE}"), organization, filter, stretch, i64::from(limit));
        let work = async |connection: &mut AsyncPgConnection| {
            let lines: Vec<Plan> = query.load(connection).await?;
            Ok(lines.into_iter().map(|line| line.line + "\n").collect())
        };
        self.database.fetch("audit.plan", work).await
    }

    /// The owner of an entry. `None` if the entry has neither a known key nor a known project.
    pub(crate) async fn owner(
        &self,
        connection: &AsyncPgConnection,
        entry: &AuditEntry,
    ) -> Result<Option<Owner>, CallError> {
        let Some(credential) = Credential::of(entry) else { return Ok(None) };
        if let Some(owner) = self.owners().get(&credential) {
            return Ok(Some(owner.clone()));
        }
        let mut found = Owners::new();
        learn(connection, &mut found, std::slice::from_ref(entry)).await?;
        let owner = found.get(&credential).cloned();
        let mut owners = self.owners();
        if owners.len() < MAX_OWNERS {
            owners.extend(found);
        }
        Ok(owner)
    }

    /// Does `work` with the entries whose owners are known.
    async fn owned<'e, T>(
        &self,
        operation: &'static str,
        entries: &'e [AuditEntry],
        work: impl AsyncFnOnce(&mut AsyncPgConnection, &[(&'e AuditEntry, Owner)]) -> Result<T, CallError>,
    ) -> Result<T, StoreError> {
        let mut known = self.known(entries);
        let looked_up = async |connection: &mut AsyncPgConnection| {
            learn(connection, &mut known, entries).await?;
            let owner = |entry| Credential::of(entry).and_then(|credential| known.get(&credential));
            let rows: Vec<(&AuditEntry, Owner)> =
                entries.iter().filter_map(|entry| Some((entry, owner(entry)?.clone()))).collect();
            work(connection, &rows).await
        };
        let done = self.database.call(operation, looked_up).await;
        let mut owners = self.owners();
        if owners.len() + known.len() > MAX_OWNERS {
            owners.clear();
        }
        owners.extend(known);
        done
    }

    fn known(&self, entries: &[AuditEntry]) -> Owners {
        let owners = self.owners();
        let credentials = entries.iter().filter_map(Credential::of);
        credentials.filter_map(|credential| Some((credential, owners.get(&credential)?.clone()))).collect()
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock()
    }
}

#[cfg(feature = "testing")]
#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Plan {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    line: String,
}

/// The organization and user of a call.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    organization: Column<OrganizationId>,
    user: String,
    email: String,
}

/// The key or project of a call, by which its owner is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Credential {
    Key(ApiKeyId),
    Project(ProjectId),
}

impl Credential {
    fn of(entry: &AuditEntry) -> Option<Self> {
        entry.api_key.map(Self::Key).or_else(|| entry.project.map(Self::Project))
    }
}

/// Cached owners. They stay valid: neither the organization and creator of a key nor the organization of a project ever
/// changes.
type Owners = HashMap<Credential, Owner>;

type OwnerOfKey = (Column<ApiKeyId>, Column<OrganizationId>, Column<UserId>, String);

/// Adds the owners of the entries that are not in `known` yet.
async fn learn(
    mut connection: &AsyncPgConnection,
    known: &mut Owners,
    entries: &[AuditEntry],
) -> Result<(), CallError> {
    let unknown = entries.iter().filter_map(Credential::of).filter(|credential| !known.contains_key(credential));
    let (mut keys, mut projects) = (Vec::new(), Vec::new());
    for credential in unknown {
        match credential {
            Credential::Key(id) => keys.push(Column(id)),
            Credential::Project(id) => projects.push(Column(id)),
        }
    }
    if !keys.is_empty() {
        let found = api_keys::table
            .inner_join(users::table.on(users::id.eq(api_keys::created_by)))
            .filter(api_keys::id.eq_any(keys));
        let found = found.select((api_keys::id, api_keys::organization_id, users::id, users::email));
        for (Column(key), organization, Column(user), email) in found.load::<OwnerOfKey>(&mut connection).await? {
            known.insert(Credential::Key(key), Owner { organization, user: user.to_string(), email });
        }
    }
    if !projects.is_empty() {
        let found =
            projects::table.filter(projects::id.eq_any(projects)).select((projects::id, projects::organization_id));
        for (Column(project), organization) in found.load::<(Column<_>, Column<_>)>(&mut connection).await? {
            let without_user = Owner { organization, user: String::new(), email: String::new() };
            known.insert(Credential::Project(project), without_user);
        }
    }
    Ok(())
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct MeasuredRow {
    #[diesel(sql_type = BigInt)]
    count: i64,
    #[diesel(sql_type = Timestamptz)]
    at: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    id: Column<AuditRecordId>,
    #[diesel(sql_type = Timestamptz)]
    first_at: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    first_id: Column<AuditRecordId>,
}

type AuditQuery = BoxedSqlQuery<'static, Pg, SqlQuery>;

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct PositionRow {
    #[diesel(sql_type = Timestamptz)]
    at: OffsetDateTime,
    #[diesel(sql_type = SqlUuid)]
    id: Column<AuditRecordId>,
}

impl PositionRow {
    fn position(self) -> Position {
        Position { at: self.at, id: self.id.0 }
    }
}

/// Binds the parameters of `matching`, and the limit as `$15`.
fn audit_query(
    sql: String,
    organization: OrganizationId,
    filter: &AuditFilter,
    stretch: AuditRange,
    limit: i64,
) -> AuditQuery {
    let AuditRange { after, through } = stretch;
    let literally = |text: &String| format!("%{}%", text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_"));
    diesel::sql_query(sql)
        .into_boxed::<Pg>()
        .bind::<SqlUuid, _>(Column(organization))
        .bind::<Timestamptz, _>(filter.start)
        .bind::<Timestamptz, _>(filter.end)
        .bind::<Nullable<Timestamptz>, _>(after.map(|place| place.at))
        .bind::<Nullable<SqlUuid>, _>(after.map(|place| Column(place.id)))
        .bind::<Nullable<Text>, _>(filter.auth_strategy.clone())
        .bind::<Nullable<Text>, _>(filter.service.clone())
        .bind::<Nullable<Text>, _>(filter.method.clone())
        .bind::<Array<Text>, _>(filter.exclude_methods.clone())
        .bind::<Nullable<Text>, _>(filter.search.as_ref().map(literally))
        .bind::<Array<Text>, _>(filter.search_users.clone())
        .bind::<Nullable<Text>, _>(filter.search.clone())
        .bind::<Nullable<Timestamptz>, _>(through.map(|place| place.at))
        .bind::<Nullable<SqlUuid>, _>(through.map(|place| Column(place.id)))
        .bind::<BigInt, _>(limit)
}

#[async_trait]
impl AuditRepository for PgAudit {
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection, rows: &[(&AuditEntry, Owner)]| {
            let stored = Append::of(rows, self.node).execute(connection).await?;
            if stored == 0 && !rows.is_empty() { Err(CallError::Fenced) } else { Ok(()) }
        };
        self.owned("audit.append", entries, work).await
    }

    async fn begin(&self, run: NodeRun, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection, rows: &[(&AuditEntry, Owner)]| {
            Begin::of(rows, run).execute(connection).await?;
            Ok(())
        };
        self.owned("audit.begin", entries, work).await
    }

    async fn withdraw(&self, calls: &[AuditRecordId]) -> Result<(), StoreError> {
        let begun = audit_records_pending::table.filter(audit_records_pending::id.eq_any(columns(calls)));
        self.database.change("audit.withdraw", diesel::delete(begun)).await
    }

    async fn recorded(&self, calls: &[AuditRecordId], since: OffsetDateTime) -> Result<Vec<AuditRecordId>, StoreError> {
        let rows = audit_records::table.filter(audit_records::at.ge(since));
        let rows = rows.filter(audit_records::id.eq_any(columns(calls)));
        self.database.ids("audit.recorded", rows.select(audit_records::id)).await
    }

    async fn recover(&self, run: NodeRun, at: OffsetDateTime) -> Result<u64, StoreError> {
        let recovering = diesel::sql_query(append::RECOVER)
            .bind::<SqlUuid, _>(Column(run.node))
            .bind::<SqlUuid, _>(Column(run.run))
            .bind::<Double, _>(Node::LOST_AFTER.as_seconds_f64())
            .bind::<Timestamptz, _>(at)
            .bind::<Integer, _>(i32::from(AuditEntry::UNKNOWN));
        let work = async |connection: &mut AsyncPgConnection| {
            let recovered = recovering.execute(connection).await?;
            Ok(u64::try_from(recovered).unwrap_or(u64::MAX))
        };
        self.database.call("audit.recover", work).await
    }

    async fn fence(&self, node: NodeId) -> Result<Option<OffsetDateTime>, StoreError> {
        self.database.fetch("audit.fence", async |connection| marks::fence(connection, node).await).await
    }

    async fn mark(&self, node: NodeId, whole_until: OffsetDateTime) -> Result<bool, StoreError> {
        let renewing = async |connection: &mut AsyncPgConnection| marks::renew(connection, node, whole_until).await;
        if self.database.call("audit.renew_mark", renewing).await? {
            return Ok(true);
        }
        let work = async |connection: &mut AsyncPgConnection| marks::mark(connection, node, whole_until).await;
        self.database.transaction("audit.mark", work).await
    }

    async fn complete(&self, node: NodeId, own: OffsetDateTime) -> Result<OffsetDateTime, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| marks::complete(connection, node, own).await;
        self.database.transaction("audit.complete", work).await
    }

    async fn page(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        stretch: AuditRange,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let query = audit_query(PAGE.to_owned(), organization, filter, stretch, i64::from(limit));
        let work = async |connection: &mut AsyncPgConnection| {
            let rows: Vec<Row> = query.load(connection).await?;
            Ok(rows.into_iter().map(|row| row.record(organization)).collect::<Result<_, _>>()?)
        };
        self.database.fetch("audit.page", work).await
    }

    async fn measure(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        stretch: AuditRange,
        limit: u32,
    ) -> Result<RangeMeasurement, StoreError> {
        let query = audit_query(MEASURE.to_owned(), organization, filter, stretch, i64::from(limit));
        let work = async |connection: &mut AsyncPgConnection| {
            let found: Option<MeasuredRow> = query.get_result(connection).await.optional()?;
            let Some(row) = found else { return Ok(RangeMeasurement::default()) };
            let first = PositionRow { at: row.first_at, id: row.first_id }.position();
            let last = PositionRow { at: row.at, id: row.id }.position();
            let total = u32::try_from(row.count).unwrap_or(u32::MAX);
            Ok(RangeMeasurement { count: total.min(limit), ends: Some((first, last)), more: total > limit })
        };
        self.database.fetch("audit.measure", work).await
    }

    async fn following(
        &self,
        organization: OrganizationId,
        after: Position,
        before: Position,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let query = diesel::sql_query(FOLLOWING)
            .bind::<SqlUuid, _>(Column(organization))
            .bind::<Timestamptz, _>(after.at)
            .bind::<SqlUuid, _>(Column(after.id))
            .bind::<Timestamptz, _>(before.at)
            .bind::<SqlUuid, _>(Column(before.id))
            .bind::<BigInt, _>(i64::from(limit));
        let work = async |connection: &mut AsyncPgConnection| {
            let rows: Vec<Row> = query.load(connection).await?;
            Ok(rows.into_iter().map(|row| row.record(organization)).collect::<Result<_, _>>()?)
        };
        self.database.fetch("audit.following", work).await
    }

    async fn position_after(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
        count: u32,
    ) -> Result<Option<Position>, StoreError> {
        let query = diesel::sql_query(FAR_BEHIND)
            .bind::<SqlUuid, _>(Column(organization))
            .bind::<Timestamptz, _>(filter.start)
            .bind::<Timestamptz, _>(filter.end)
            .bind::<Nullable<Timestamptz>, _>(after.map(|place| place.at))
            .bind::<Nullable<SqlUuid>, _>(after.map(|place| Column(place.id)))
            .bind::<BigInt, _>(i64::from(count.max(1)) - 1);
        let work = async |connection: &mut AsyncPgConnection| {
            let found: Option<PositionRow> = query.get_result(connection).await.optional()?;
            Ok(found.map(PositionRow::position))
        };
        self.database.fetch("audit.position_after", work).await
    }

    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| RECORDS.tidy(connection, now, oldest).await;
        self.database.transaction("audit.tidy", work).await?;
        RECORDS.forget(&self.database, "audit.forget", oldest).await
    }
}
