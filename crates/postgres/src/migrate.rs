//! The migrations of the schema: embedded in the program, and applied under a lock so that two nodes do not race.

use std::time::Duration;

use diesel::Connection;
use diesel::migration::MigrationSource;
use diesel::pg::Pg;
use diesel_async::async_connection_wrapper::AsyncConnectionWrapper;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::database_config::DatabaseConfig;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations");
/// The number of the advisory lock, the same in all versions: "casement" in ASCII.
const LOCK: i64 = 0x6361_7365_6d65_6e74;
const LOCK_POLL: Duration = Duration::from_millis(100);
const LOCK_LIMIT: Duration = Duration::from_secs(300);

/// The schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database can't be reached.
    #[error("the database can't be reached: {0}")]
    Unreachable(#[source] diesel::ConnectionError),
    /// Another node has been migrating for too long.
    #[error("another node has held the migration lock for {} s", LOCK_LIMIT.as_secs())]
    Locked,
    /// The migration lock could not be requested.
    #[error("the migration lock could not be requested: {0}")]
    Lock(#[source] diesel::result::Error),
    /// A migration failed and was rolled back.
    #[error("{0}")]
    Migration(String),
}

type SyncConnection = AsyncConnectionWrapper<AsyncPgConnection>;

/// Applies every missing migration and returns their versions. Waits while another node migrates.
///
/// # Errors
/// [`MigrateError`]; each migration is a transaction of its own, so the ones applied before a failure stay.
pub async fn migrate(config: &DatabaseConfig) -> Result<Vec<String>, MigrateError> {
    run(config, |connection| {
        refuse_newer(connection)?;
        connection.run_pending_migrations(MIGRATIONS).map(|done| names(&done))
    })
    .await
}

/// Reverts every migration, the newest first, which leaves the schema empty. For tests, and for removing Casement.
///
/// # Errors
/// [`MigrateError`], as [`migrate`].
pub async fn revert_all(config: &DatabaseConfig) -> Result<Vec<String>, MigrateError> {
    run(config, |connection| connection.revert_all_migrations(MIGRATIONS).map(|done| names(&done))).await
}

/// Refuses a schema with migrations that this version does not know: the server would start, and fail later.
fn refuse_newer(connection: &mut SyncConnection) -> diesel::migration::Result<()> {
    let known = MigrationSource::<Pg>::migrations(&MIGRATIONS)?;
    let applied = connection.applied_migrations()?;
    match applied.iter().find(|applied| !known.iter().any(|known| known.name().version() == **applied)) {
        Some(newer) => {
            Err(format!("a later casement has used the database (migration {newer}): start that one").into())
        }
        None => Ok(()),
    }
}

/// Returns true if this version of the program has the migration, which
/// [`Snapshot::schema`](crate::Snapshot::schema) returns.
#[must_use]
pub fn knows_schema(version: &str) -> bool {
    let known = MigrationSource::<Pg>::migrations(&MIGRATIONS).unwrap_or_default();
    known.iter().any(|known| known.name().version() == version.into())
}

fn names(versions: &[impl ToString]) -> Vec<String> {
    versions.iter().map(ToString::to_string).collect()
}

type Migrated = diesel::migration::Result<Vec<String>>;

async fn run(
    config: &DatabaseConfig,
    work: impl FnOnce(&mut SyncConnection) -> Migrated + Send + 'static,
) -> Result<Vec<String>, MigrateError> {
    let mut connection = config.unhurried().open().await.map_err(MigrateError::Unreachable)?;
    lock(&mut connection).await?;
    // The harness blocks its thread, so it runs outside of the runtime's threads. The lock is released with the
    // connection.
    let blocking = tokio::task::spawn_blocking(move || {
        let mut connection = SyncConnection::from(connection);
        connection.set_instrumentation(None::<Box<dyn diesel::connection::Instrumentation>>);
        work(&mut connection).map_err(|error| error.to_string())
    });
    let applied = blocking.await.map_err(|error| MigrateError::Migration(error.to_string()))?;
    let applied = applied.map_err(MigrateError::Migration)?;
    if !applied.is_empty() {
        tracing::info!(migrations = applied.len(), "the database schema is up to date");
    }
    Ok(applied)
}

#[derive(diesel::QueryableByName)]
struct Locked {
    #[diesel(sql_type = diesel::sql_types::Bool)]
    locked: bool,
}

async fn lock(connection: &mut AsyncPgConnection) -> Result<(), MigrateError> {
    let trying = async {
        let mut reported = false;
        loop {
            let asking = diesel::sql_query("SELECT pg_try_advisory_lock($1) AS locked");
            let asking = asking.bind::<diesel::sql_types::BigInt, _>(LOCK);
            if asking.get_result::<Locked>(connection).await?.locked {
                return Ok(());
            }
            if !reported {
                tracing::info!("another node is migrating the database; waiting for it");
                reported = true;
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    };
    tokio::time::timeout(LOCK_LIMIT, trying).await.map_err(|_| MigrateError::Locked)?.map_err(MigrateError::Lock)
}
