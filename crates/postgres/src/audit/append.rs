//! How records are written: the statement for any number of them, prepared once per connection, and one record as part of another
//! statement.

use casement_domain::audit::AuditEntry;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Owner;
use crate::convert::uuid;

/// One column after the other.
#[derive(Debug, QueryId)]
pub(super) struct Append {
    id: Vec<Uuid>,
    organization: Vec<Uuid>,
    at: Vec<OffsetDateTime>,
    auth_strategy: Vec<String>,
    service: Vec<String>,
    user: Vec<String>,
    email: Vec<String>,
    api_key: Vec<Option<Uuid>>,
    project: Vec<Option<Uuid>>,
    client_ip: Vec<String>,
    domain: Vec<String>,
    method: Vec<String>,
    path: Vec<String>,
    route: Vec<String>,
    status: Vec<i32>,
    duration_ms: Vec<i64>,
    user_agent: Vec<String>,
    request_id: Vec<String>,
}

impl Append {
    pub(super) fn of(rows: &[(&AuditEntry, Owner)]) -> Self {
        fn all<T>(rows: &[(&AuditEntry, Owner)], of: impl Fn(&AuditEntry) -> T) -> Vec<T> {
            rows.iter().map(|(entry, _)| of(entry)).collect()
        }
        let text = |of: fn(&AuditEntry) -> &str| all(rows, |entry| of(entry).to_owned());
        Self {
            id: all(rows, |entry| uuid(entry.id.ulid())),
            organization: rows.iter().map(|(_, owner)| owner.organization).collect(),
            at: all(rows, |entry| entry.at),
            auth_strategy: text(|entry| entry.auth_strategy.as_str()),
            service: text(|entry| entry.service.as_str()),
            user: rows.iter().map(|(_, owner)| owner.user.clone()).collect(),
            email: rows.iter().map(|(_, owner)| owner.email.clone()).collect(),
            api_key: all(rows, |entry| entry.api_key.map(|id| uuid(id.ulid()))),
            project: all(rows, |entry| entry.project.map(|id| uuid(id.ulid()))),
            client_ip: text(|entry| &entry.client_ip),
            domain: text(|entry| &entry.domain),
            method: text(|entry| &entry.method),
            path: text(|entry| &entry.path),
            route: text(|entry| &entry.route),
            status: all(rows, |entry| i32::from(entry.status)),
            duration_ms: all(rows, |entry| i64::try_from(entry.duration_ms).unwrap_or(i64::MAX)),
            user_agent: text(|entry| &entry.user_agent),
            request_id: text(|entry| &entry.request_id),
        }
    }
}

impl QueryFragment<Pg> for Append {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(
            "INSERT INTO audit_records (id, organization_id, at, auth_strategy, service, user_id, email, api_key_id, \
             project_id, client_ip, domain, method, path, route, status, duration_ms, user_agent, \
             request_id) SELECT * FROM unnest(",
        );
        out.push_bind_param::<Array<SqlUuid>, _>(&self.id)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<SqlUuid>, _>(&self.organization)?;
        out.push_sql(", ");
        out.push_bind_param::<Array<Timestamptz>, _>(&self.at)?;
        for texts in [&self.auth_strategy, &self.service, &self.user, &self.email] {
            out.push_sql(", ");
            out.push_bind_param::<Array<Text>, _>(texts)?;
        }
        for ids in [&self.api_key, &self.project] {
            out.push_sql(", ");
            out.push_bind_param::<Array<Nullable<SqlUuid>>, _>(ids)?;
        }
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
        // What the record of a lease said before the call had its answer.
        out.push_sql(
            ") ON CONFLICT (at, id) DO UPDATE SET status = excluded.status, duration_ms = excluded.duration_ms, route = excluded.route",
        );
        Ok(())
    }
}

/// One record that another statement stores, too.
#[derive(Debug)]
pub(crate) struct AuditRow<'a> {
    id: Uuid,
    organization: Uuid,
    at: OffsetDateTime,
    /// How its caller showed who it is, which service; who made the key, and that user's address.
    who: [&'a str; 4],
    /// The key and the project.
    credential: [Option<Uuid>; 2],
    /// From where, to which host, method, path, route.
    what: [&'a str; 5],
    status: i32,
    duration_ms: i64,
    /// User agent and request id.
    told: [&'a str; 2],
}

impl<'a> AuditRow<'a> {
    pub(crate) fn of(entry: &'a AuditEntry, owner: &'a Owner) -> Self {
        Self {
            id: uuid(entry.id.ulid()),
            organization: owner.organization,
            at: entry.at,
            who: [entry.auth_strategy.as_str(), entry.service.as_str(), &owner.user, &owner.email],
            credential: [entry.api_key.map(|id| uuid(id.ulid())), entry.project.map(|id| uuid(id.ulid()))],
            what: [&entry.client_ip, &entry.domain, &entry.method, &entry.path, &entry.route],
            status: i32::from(entry.status),
            duration_ms: i64::try_from(entry.duration_ms).unwrap_or(i64::MAX),
            told: [&entry.user_agent, &entry.request_id],
        }
    }

    /// Its columns, in the order of [`Append`].
    pub(crate) fn bind<'b>(&'b self, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_bind_param::<SqlUuid, _>(&self.id)?;
        out.push_sql(", ");
        out.push_bind_param::<SqlUuid, _>(&self.organization)?;
        out.push_sql(", ");
        out.push_bind_param::<Timestamptz, _>(&self.at)?;
        texts(&self.who, out)?;
        for id in &self.credential {
            out.push_sql(", ");
            out.push_bind_param::<Nullable<SqlUuid>, _>(id)?;
        }
        texts(&self.what, out)?;
        out.push_sql(", ");
        out.push_bind_param::<Integer, _>(&self.status)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, _>(&self.duration_ms)?;
        texts(&self.told, out)
    }
}

fn texts<'b>(columns: &'b [&str], out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
    for text in columns {
        out.push_sql(", ");
        out.push_bind_param::<Text, _>(text)?;
    }
    Ok(())
}
