//! Audit records: written in groups, read in order, kept in partitions of a month each.

mod append;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use casement_domain::audit::{
    AuditEntry, AuditFilter, AuditRecord, AuditRepository, AuditService, AuthStrategy, Position,
};
use casement_domain::{ApiKeyId, AuditRecordId, OrganizationId, ProjectId, StoreError, UserId};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::{Date, Month, OffsetDateTime};
use uuid::Uuid;

use crate::convert::{ulid, uuid};
use crate::database::Database;
use crate::error::{BadRow, CallError};
use crate::schema::{api_keys, projects, users};
use append::Append;

/// How many months have their partition made ahead, the present one included.
const MONTHS_AHEAD: u32 = 3;
/// How many owners are remembered; beyond that all are forgotten.
const MOST_OWNERS: usize = 10_000;

/// What a reading asks for. `at <=` says what the comparison of pairs says already, so that partitions are left out.
const MATCHING: &str = "
    organization_id = $1 AND at >= $2 AND at < $3
    AND ($4::timestamptz IS NULL OR (at <= $4 AND (at, id) < ($4, $5)))
    AND ($6::text IS NULL OR auth_strategy = $6) AND ($7::text IS NULL OR service = $7) AND ($8::text IS NULL OR method = $8)
    AND method <> ALL ($9)
    AND (($10::text IS NULL AND cardinality($11) = 0)
         OR path ILIKE $10 OR user_id ILIKE $10 OR email ILIKE $10 OR client_ip ILIKE $10 OR status::text = $12
         OR user_id = ANY ($11))";

/// Audit records in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgAudit {
    database: Database,
    owners: Arc<Mutex<Owners>>,
}

impl PgAudit {
    /// On this database.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, owners: Arc::default() }
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Row {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Timestamptz)]
    at: OffsetDateTime,
    #[diesel(sql_type = Text)]
    auth_strategy: String,
    #[diesel(sql_type = Text)]
    service: String,
    #[diesel(sql_type = Text)]
    user_id: String,
    #[diesel(sql_type = Text)]
    email: String,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    api_key_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    project_id: Option<Uuid>,
    #[diesel(sql_type = Text)]
    client_ip: String,
    #[diesel(sql_type = Text)]
    domain: String,
    #[diesel(sql_type = Text)]
    method: String,
    #[diesel(sql_type = Text)]
    path: String,
    #[diesel(sql_type = Text)]
    route: String,
    #[diesel(sql_type = Integer)]
    status: i32,
    #[diesel(sql_type = BigInt)]
    duration_ms: i64,
    #[diesel(sql_type = Text)]
    user_agent: String,
}

impl Row {
    fn record(self, organization: OrganizationId) -> Result<AuditRecord, BadRow> {
        let strategy = AuthStrategy::parse(&self.auth_strategy);
        let service = AuditService::parse(&self.service);
        let user = (!self.user_id.is_empty()).then(|| self.user_id.parse::<UserId>()).transpose();
        let entry = AuditEntry {
            id: AuditRecordId::from_ulid(ulid(self.id)),
            at: self.at,
            auth_strategy: strategy.ok_or_else(|| BadRow::new("auth_strategy", &self.auth_strategy))?,
            service: service.ok_or_else(|| BadRow::new("service", &self.service))?,
            api_key: self.api_key_id.map(|id| ApiKeyId::from_ulid(ulid(id))),
            project: self.project_id.map(|id| ProjectId::from_ulid(ulid(id))),
            client_ip: self.client_ip,
            domain: self.domain,
            method: self.method,
            path: self.path,
            route: self.route,
            status: u16::try_from(self.status).map_err(|error| BadRow::new("status", error))?,
            duration_ms: u64::try_from(self.duration_ms).map_err(|error| BadRow::new("duration_ms", error))?,
            user_agent: self.user_agent,
        };
        let user = user.map_err(|error| BadRow::new("user_id", error))?;
        Ok(AuditRecord { organization, user, email: self.email, entry })
    }
}

/// Whose a call was.
#[derive(Clone, Debug)]
struct Owner {
    organization: Uuid,
    user: String,
    email: String,
}

/// Which key or project a call was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Credential {
    Key(Uuid),
    Project(Uuid),
}

impl Credential {
    fn of(entry: &AuditEntry) -> Option<Self> {
        let key = entry.api_key.map(|id| Self::Key(uuid(id.ulid())));
        key.or_else(|| entry.project.map(|id| Self::Project(uuid(id.ulid()))))
    }
}

/// Owners that were looked up. A key never changes its organization or its maker, nor a project its organization.
type Owners = HashMap<Credential, Owner>;

/// Looks up those that are not known yet.
async fn learn(
    connection: &mut AsyncPgConnection,
    known: &mut Owners,
    entries: &[AuditEntry],
) -> Result<(), CallError> {
    let unknown = entries.iter().filter_map(Credential::of).filter(|credential| !known.contains_key(credential));
    let (mut keys, mut projects) = (Vec::new(), Vec::new());
    for credential in unknown {
        match credential {
            Credential::Key(id) => keys.push(id),
            Credential::Project(id) => projects.push(id),
        }
    }
    if !keys.is_empty() {
        let found = api_keys::table
            .inner_join(users::table.on(users::id.eq(api_keys::created_by)))
            .filter(api_keys::id.eq_any(keys));
        let found = found.select((api_keys::id, api_keys::organization_id, users::id, users::email));
        for (key, organization, user, email) in found.load::<(Uuid, Uuid, Uuid, String)>(connection).await? {
            let user = UserId::from_ulid(ulid(user)).to_string();
            known.insert(Credential::Key(key), Owner { organization, user, email });
        }
    }
    if !projects.is_empty() {
        let found =
            projects::table.filter(projects::id.eq_any(projects)).select((projects::id, projects::organization_id));
        for (project, organization) in found.load::<(Uuid, Uuid)>(connection).await? {
            let nobody = Owner { organization, user: String::new(), email: String::new() };
            known.insert(Credential::Project(project), nobody);
        }
    }
    Ok(())
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Measured {
    #[diesel(sql_type = BigInt)]
    count: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    id: Option<Uuid>,
}

type Asked = BoxedSqlQuery<'static, Pg, SqlQuery>;

/// `sql` with what [`MATCHING`] is about, and the limit as `$13`.
fn asked(
    sql: String,
    organization: OrganizationId,
    filter: &AuditFilter,
    after: Option<Position>,
    limit: i64,
) -> Asked {
    let literally = |text: &String| format!("%{}%", text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_"));
    diesel::sql_query(sql)
        .into_boxed::<Pg>()
        .bind::<SqlUuid, _>(uuid(organization.ulid()))
        .bind::<Timestamptz, _>(filter.start)
        .bind::<Timestamptz, _>(filter.end)
        .bind::<Nullable<Timestamptz>, _>(after.map(|place| place.at))
        .bind::<Nullable<SqlUuid>, _>(after.map(|place| uuid(place.id.ulid())))
        .bind::<Nullable<Text>, _>(filter.auth_strategy.clone())
        .bind::<Nullable<Text>, _>(filter.service.clone())
        .bind::<Nullable<Text>, _>(filter.method.clone())
        .bind::<Array<Text>, _>(filter.exclude_methods.clone())
        .bind::<Nullable<Text>, _>(filter.search.as_ref().map(literally))
        .bind::<Array<Text>, _>(filter.search_users.clone())
        .bind::<Nullable<Text>, _>(filter.search.clone())
        .bind::<BigInt, _>(limit)
}

#[async_trait]
impl AuditRepository for PgAudit {
    async fn append(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let mut known = std::mem::take(&mut *self.owners());
        let work = async |connection: &mut AsyncPgConnection| {
            learn(connection, &mut known, entries).await?;
            let owner = |entry| Credential::of(entry).and_then(|credential| known.get(&credential));
            let rows: Vec<(&AuditEntry, Owner)> =
                entries.iter().filter_map(|entry| Some((entry, owner(entry)?.clone()))).collect();
            Append::of(&rows).execute(connection).await?;
            Ok(())
        };
        let appended = self.database.call("audit.append", work).await;
        if known.len() <= MOST_OWNERS {
            *self.owners() = known;
        }
        appended
    }

    async fn page(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let sql = format!("SELECT * FROM audit_records WHERE {MATCHING} ORDER BY at DESC, id DESC LIMIT $13");
        let query = asked(sql, organization, filter, after, i64::from(limit));
        let work = async |connection: &mut AsyncPgConnection| {
            let rows: Vec<Row> = query.load(connection).await?;
            Ok(rows.into_iter().map(|row| row.record(organization)).collect::<Result<_, _>>()?)
        };
        self.database.call("audit.page", work).await
    }

    async fn measure(
        &self,
        organization: OrganizationId,
        filter: &AuditFilter,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(u32, Option<Position>, bool), StoreError> {
        // The place of each among those that match, up to one more than wanted: the last that is wanted, and whether there is one more.
        let sql = format!(
            "SELECT greatest(total, 0) AS count, at, id FROM (
                 SELECT at, id, row_number() OVER (ORDER BY at DESC, id DESC) AS place, count(*) OVER () AS total
                 FROM (SELECT at, id FROM audit_records WHERE {MATCHING} ORDER BY at DESC, id DESC LIMIT $13 + 1) AS found
             ) AS placed WHERE place = least(total, $13)"
        );
        let query = asked(sql, organization, filter, after, i64::from(limit));
        let work = async |connection: &mut AsyncPgConnection| {
            let found: Option<Measured> = query.get_result(connection).await.optional()?;
            let Some(Measured { count, at: Some(at), id: Some(id) }) = found else { return Ok((0, None, false)) };
            let last = Position { at, id: AuditRecordId::from_ulid(ulid(id)) };
            let total = u32::try_from(count).unwrap_or(u32::MAX);
            Ok((total.min(limit), Some(last), total > limit))
        };
        self.database.call("audit.measure", work).await
    }

    async fn tidy(&self, now: OffsetDateTime, oldest: OffsetDateTime) -> Result<(), StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let mut month = first_of_month(now);
            for _ in 0..MONTHS_AHEAD {
                let next = next_month(month);
                make_partition(connection, month, next).await?;
                month = next;
            }
            drop_partitions(connection, oldest).await
        };
        self.database.transaction("audit.tidy", work).await
    }
}

fn first_of_month(at: OffsetDateTime) -> Date {
    let date = at.to_offset(time::UtcOffset::UTC).date();
    date.replace_day(1).unwrap_or(date)
}

fn next_month(first: Date) -> Date {
    let (year, month) = match first.month() {
        Month::December => (first.year() + 1, Month::January),
        other => (first.year(), other.next()),
    };
    Date::from_calendar_date(year, month, 1).unwrap_or(first)
}

/// `audit_records_2026_11`. The name is made of numbers alone.
fn partition(first: Date) -> String {
    format!("audit_records_{:04}_{:02}", first.year(), u8::from(first.month()))
}

async fn make_partition(connection: &mut AsyncPgConnection, first: Date, next: Date) -> Result<(), CallError> {
    let midnight = |date: Date| format!("{:04}-{:02}-01T00:00:00Z", date.year(), u8::from(date.month()));
    let name = partition(first);
    // Several nodes may do this at once; and a month may have records already, in the default partition.
    let there: Option<Exists> = diesel::sql_query("SELECT 1 AS one FROM pg_class WHERE relname = $1")
        .bind::<Text, _>(&name)
        .get_result(connection)
        .await
        .optional()?;
    if there.is_some() {
        return Ok(());
    }
    for sql in [
        "LOCK TABLE audit_records IN ACCESS EXCLUSIVE MODE".to_owned(),
        format!("CREATE TABLE IF NOT EXISTS {name} (LIKE audit_records INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"),
        format!(
            "WITH moved AS (DELETE FROM audit_records_other WHERE at >= '{0}' AND at < '{1}' RETURNING *)
             INSERT INTO {name} SELECT * FROM moved",
            midnight(first),
            midnight(next)
        ),
        format!(
            "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = '{name}'::regclass) THEN
                 ALTER TABLE audit_records ATTACH PARTITION {name} FOR VALUES FROM ('{0}') TO ('{1}');
             END IF; END $$",
            midnight(first),
            midnight(next)
        ),
    ] {
        diesel::sql_query(sql).execute(connection).await?;
    }
    Ok(())
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Exists {
    #[diesel(sql_type = Integer)]
    #[expect(dead_code, reason = "that there is a row is all that counts")]
    one: i32,
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(Pg))]
struct Named {
    #[diesel(sql_type = Text)]
    relname: String,
}

/// Drops the months that ended before `oldest`, and what the default partition holds of that time.
async fn drop_partitions(connection: &mut AsyncPgConnection, oldest: OffsetDateTime) -> Result<(), CallError> {
    let kept = partition(first_of_month(oldest));
    let old: Vec<Named> = diesel::sql_query(
        "SELECT relname::text AS relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
         WHERE inhparent = 'audit_records'::regclass AND relname ~ '^audit_records_[0-9]{4}_[0-9]{2}$' AND relname < $1",
    )
    .bind::<Text, _>(kept)
    .load(connection)
    .await?;
    for Named { relname } in old {
        diesel::sql_query(format!("DROP TABLE {relname}")).execute(connection).await?;
    }
    diesel::sql_query("DELETE FROM audit_records_other WHERE at < $1")
        .bind::<Timestamptz, _>(oldest)
        .execute(connection)
        .await?;
    Ok(())
}
