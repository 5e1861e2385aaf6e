//! The numbers of bytes stored for projects and nodes.

use std::collections::BTreeMap;

use async_trait::async_trait;
use casement_domain::storage::{StorageBounds, StorageRoom, StorageUsage};
use casement_domain::{ProjectId, StoreError};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::Column;
use crate::database::Database;
use crate::error::CallError;

/// The kinds of stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Telemetry,
    Logs,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Telemetry => "telemetry",
            Self::Logs => "logs",
        }
    }
}

/// The stored bytes of some projects and of this node, and the bytes added to them, within the caller's transaction.
#[derive(Debug)]
pub(crate) struct StorageLedger<'a> {
    bounds: &'a StorageBounds,
    kind: Kind,
    used: BTreeMap<Column<ProjectId>, u64>,
    node_used: u64,
    added: BTreeMap<Column<ProjectId>, u64>,
}

#[derive(Debug, QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct StoredBytes {
    /// `None` for the total of the node.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    project_id: Option<Column<ProjectId>>,
    #[diesel(sql_type = BigInt)]
    bytes: i64,
}

impl<'a> StorageLedger<'a> {
    pub(crate) async fn open(
        connection: &mut AsyncPgConnection,
        bounds: &'a StorageBounds,
        kind: Kind,
        projects: Vec<Column<ProjectId>>,
    ) -> Result<Self, CallError> {
        let rows: Vec<StoredBytes> = diesel::sql_query(
            "SELECT project_id, sum(bytes)::bigint AS bytes FROM stored_bytes WHERE project_id = ANY($1) GROUP BY project_id
             UNION ALL SELECT NULL, coalesce(sum(bytes), 0)::bigint FROM stored_bytes WHERE node_id = $2",
        )
        .bind::<Array<SqlUuid>, _>(projects)
        .bind::<SqlUuid, _>(Column(bounds.node))
        .load(connection)
        .await?;
        let mut ledger = Self { bounds, kind, used: BTreeMap::new(), node_used: 0, added: BTreeMap::new() };
        for StoredBytes { project_id, bytes } in rows {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            match project_id {
                Some(project) => drop(ledger.used.insert(project, bytes)),
                None => ledger.node_used = bytes,
            }
        }
        Ok(ledger)
    }

    /// The remaining storage of a project.
    pub(crate) fn room(&self, project: Column<ProjectId>) -> StorageRoom {
        self.bounds.room(self.used.get(&project).copied().unwrap_or(0), self.node_used)
    }

    /// Adds bytes that are stored for a project.
    pub(crate) fn add(&mut self, project: Column<ProjectId>, bytes: u64) {
        if bytes > 0 {
            for of in [&mut self.used, &mut self.added] {
                let all = of.entry(project).or_default();
                *all = all.saturating_add(bytes);
            }
            self.node_used = self.node_used.saturating_add(bytes);
        }
    }

    /// Stores the added bytes, for the day of `now`, or of the database's clock without it. In the order of the
    /// projects, so that two of these never deadlock.
    pub(crate) async fn close(
        self,
        connection: &mut AsyncPgConnection,
        now: Option<OffsetDateTime>,
    ) -> Result<(), CallError> {
        if self.added.is_empty() {
            return Ok(());
        }
        let (projects, bytes): (Vec<Column<ProjectId>>, Vec<Column<u64>>) =
            self.added.into_iter().map(|(project, bytes)| (project, Column(bytes))).unzip();
        diesel::sql_query(
            "INSERT INTO stored_bytes (project_id, node_id, day_at, kind, bytes)
             SELECT project_id, $1, date_trunc('day', coalesce($2, now()), 'UTC'), $3, bytes
             FROM unnest($4, $5) AS added (project_id, bytes) ORDER BY project_id
             ON CONFLICT (project_id, node_id, day_at, kind) DO UPDATE SET bytes = stored_bytes.bytes + excluded.bytes",
        )
        .bind::<SqlUuid, _>(Column(self.bounds.node))
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Text, _>(self.kind.as_str())
        .bind::<Array<SqlUuid>, _>(projects)
        .bind::<Array<BigInt>, _>(bytes)
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// Deletes the counts of days that ended before `oldest`.
pub(crate) async fn forget(
    connection: &mut AsyncPgConnection,
    kind: Kind,
    oldest: OffsetDateTime,
) -> Result<(), CallError> {
    diesel::sql_query("DELETE FROM stored_bytes WHERE kind = $1 AND day_at < date_trunc('day', $2, 'UTC')")
        .bind::<Text, _>(kind.as_str())
        .bind::<Timestamptz, _>(oldest)
        .execute(connection)
        .await?;
    Ok(())
}

/// Storage usage in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PgStorageUsage {
    database: Database,
    bounds: StorageBounds,
}

impl PgStorageUsage {
    /// Creates the repository on this database, for the node of `bounds`.
    #[must_use]
    pub fn new(database: Database, bounds: StorageBounds) -> Self {
        Self { database, bounds }
    }
}

#[async_trait]
impl StorageUsage for PgStorageUsage {
    async fn of_node(&self) -> Result<u64, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            Ok(StorageLedger::open(connection, &self.bounds, Kind::Telemetry, Vec::new()).await?.node_used)
        };
        self.database.fetch("storage.of_node", work).await
    }
}
