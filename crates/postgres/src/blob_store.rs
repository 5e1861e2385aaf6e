//! Which store has the blobs of the database.

use casement_domain::blob::RecordedStore;
use casement_domain::{BlobStoreId, DatabaseId, StoreError};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use time::OffsetDateTime;

use crate::column::Column;
use crate::database::repository;
use crate::error::CallError;
use crate::schema::{blob_stores, nodes};

repository! {
    /// The record of the blob store in PostgreSQL.
    PgBlobStore
}

type Row = (Column<DatabaseId>, Option<Column<BlobStoreId>>, Option<String>);

impl PgBlobStore {
    /// Returns the record, whose database has the identifier `database` if it had none before.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn read(&self, database: DatabaseId) -> Result<RecordedStore, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let row = diesel::insert_into(blob_stores::table).values(blob_stores::database_id.eq(Column(database)));
            row.on_conflict_do_nothing().execute(connection).await?;
            locked(connection).await
        };
        self.database.transaction("blob_store.read", work).await
    }

    /// Returns the record, without changing anything; `None` if there is none, or the schema is older.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn find(&self) -> Result<Option<RecordedStore>, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let known = diesel::select(sql::<Bool>("to_regclass('blob_stores') IS NOT NULL"));
            if !known.get_result::<bool>(connection).await? {
                return Ok(None);
            }
            let columns = (blob_stores::database_id, blob_stores::store_id, blob_stores::location);
            let row = blob_stores::table.select(columns).first::<Row>(connection).await.optional()?;
            Ok(row.map(record))
        };
        self.database.fetch("blob_store.find", work).await
    }

    /// Records the first store. Returns the record, which names another store if that one was recorded before.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn record_first(&self, store: BlobStoreId, location: &str) -> Result<RecordedStore, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            let unset = diesel::update(blob_stores::table.filter(blob_stores::store_id.is_null()));
            let changes = (blob_stores::store_id.eq(Column(store)), blob_stores::location.eq(location));
            unset.set(changes).execute(connection).await?;
            locked(connection).await
        };
        self.database.transaction("blob_store.record_first", work).await
    }

    /// Returns the time of the latest sign of life of any node.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn last_heartbeat(&self) -> Result<Option<OffsetDateTime>, StoreError> {
        self.database.fetch("blob_store.last_heartbeat", last_heartbeat).await
    }

    /// Records another store, if `from` is recorded and no node has given a sign of life after `quiet_since`. Returns
    /// whether it is recorded.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn replace(
        &self,
        from: Option<BlobStoreId>,
        (to, location): (BlobStoreId, &str),
        quiet_since: Option<OffsetDateTime>,
    ) -> Result<bool, StoreError> {
        let work = async |connection: &mut AsyncPgConnection| {
            // A server gives a sign of life before it reads the record: it either is seen here, or waits for the end of
            // this transaction.
            let row = blob_stores::table.select(blob_stores::store_id).for_update();
            let current = row.first::<Option<Column<BlobStoreId>>>(connection).await?.map(|column| column.0);
            if current != from || last_heartbeat(connection).await? > quiet_since {
                return Ok(false);
            }
            let changes = (blob_stores::store_id.eq(Column(to)), blob_stores::location.eq(location));
            diesel::update(blob_stores::table).set(changes).execute(connection).await?;
            Ok(true)
        };
        self.database.transaction("blob_store.replace", work).await
    }
}

/// Reads the record, after a transaction that replaces it has ended.
async fn locked(connection: &mut AsyncPgConnection) -> Result<RecordedStore, CallError> {
    let columns = (blob_stores::database_id, blob_stores::store_id, blob_stores::location);
    Ok(record(blob_stores::table.select(columns).for_share().first::<Row>(connection).await?))
}

fn record((database, store, location): Row) -> RecordedStore {
    RecordedStore { database: database.0, store: store.map(|column| column.0), location }
}

async fn last_heartbeat(connection: &mut AsyncPgConnection) -> Result<Option<OffsetDateTime>, CallError> {
    Ok(nodes::table.select(diesel::dsl::max(nodes::heartbeat_at)).first(connection).await?)
}
