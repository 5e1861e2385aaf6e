//! The rows of deleted resources.

use async_trait::async_trait;
use casement_domain::StoreError;
use casement_domain::deleted_resource::DeletedResources;
use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::database::Database;

/// The tables with deleted rows, those that refer to others first, each with the columns that refer to it. Not all of these
/// are foreign keys.
const TABLES: [(&str, &[(&str, &str)]); 5] = [
    ("browser_pools", &[("sessions", "pool_id"), ("browsers", "pool_id"), ("pool_waiters", "pool_id")]),
    (
        "profiles",
        &[
            ("profile_versions", "profile_id"),
            ("auth_connections", "profile_id"),
            ("browser_pools", "profile_id"),
            ("browsers", "profile_id"),
            ("sessions", "profile_id"),
        ],
    ),
    (
        "proxies",
        &[
            ("auth_connections", "proxy_id"),
            ("browser_pools", "proxy_id"),
            ("browsers", "proxy_id"),
            ("sessions", "proxy_id"),
        ],
    ),
    ("api_keys", &[("deployments", "api_key_id")]),
    (
        "projects",
        &[
            ("api_keys", "project_id"),
            ("app_versions", "project_id"),
            ("auth_connections", "project_id"),
            ("browser_pools", "project_id"),
            ("credentials", "project_id"),
            ("deployments", "project_id"),
            ("extensions", "project_id"),
            ("invocations", "project_id"),
            ("profiles", "project_id"),
            ("proxies", "project_id"),
            ("sessions", "project_id"),
            ("stored_bytes", "project_id"),
        ],
    ),
];

/// The rows of deleted resources, in PostgreSQL.
#[derive(Clone)]
pub struct PgDeletedResources {
    database: Database,
}

impl PgDeletedResources {
    /// Creates the port.
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self { database }
    }

    /// Returns the columns that keep a deleted row, each as `table.column -> table`.
    pub fn references() -> impl Iterator<Item = String> {
        TABLES.into_iter().flat_map(|(table, references)| {
            references.iter().map(move |(other, column)| format!("{other}.{column} -> {table}"))
        })
    }
}

#[async_trait]
impl DeletedResources for PgDeletedResources {
    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError> {
        let mut forgotten = 0;
        for (table, references) in TABLES {
            let statement = statement(table, references);
            let work = async |connection: &mut AsyncPgConnection| {
                let deleting = diesel::sql_query(&*statement).bind::<Timestamptz, _>(before);
                Ok(deleting.bind::<BigInt, _>(i64::from(max)).execute(connection).await?)
            };
            forgotten += self.database.call("deleted_resource.forget", work).await?;
        }
        Ok(forgotten)
    }
}

fn statement(table: &str, references: &[(&str, &str)]) -> String {
    let unused = references
        .iter()
        .map(|(other, column)| format!(" AND NOT EXISTS (SELECT 1 FROM {other} WHERE {other}.{column} = deleted.id)"));
    format!(
        "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} deleted WHERE deleted_at < $1{}
             ORDER BY deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED)",
        unused.collect::<String>()
    )
}
