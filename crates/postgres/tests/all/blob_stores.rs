//! The record of the blob store: the first one stays until a move replaces it.

use casement_domain::node::{Epoch, NodeRepository as _};
use casement_domain::testing;
use casement_domain::{BlobStoreId, DatabaseId};
use casement_postgres::PgBlobStore;
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::World;

fn store(n: u128) -> BlobStoreId {
    BlobStoreId::from_ulid(Ulid::from_parts(20, n))
}

fn database(n: u128) -> DatabaseId {
    DatabaseId::from_ulid(Ulid::from_parts(21, n))
}

#[tokio::test]
async fn the_first_store_and_the_first_identifier_of_a_database_stay() -> TestResult {
    let world = World::without_anything().await?;
    let rows = PgBlobStore::new(world.db.database().clone());
    assert_eq!(rows.find().await?, None);
    for n in [1, 2] {
        let record = rows.read(database(n)).await?;
        assert_eq!((record.database, record.store, record.location), (database(1), None, None));
    }
    for n in [1, 2] {
        let record = rows.record_first(store(n), &format!("place {n}")).await?;
        assert_eq!((record.store, record.location.as_deref()), (Some(store(1)), Some("place 1")));
    }
    assert_eq!(rows.find().await?.and_then(|record| record.store), Some(store(1)));
    Ok(())
}

#[tokio::test]
async fn a_store_is_replaced_unless_a_node_lives_or_another_store_is_recorded() -> TestResult {
    let world = World::new().await?;
    let rows = PgBlobStore::new(world.db.database().clone());
    rows.read(database(1)).await?;
    rows.record_first(store(1), "here").await?;
    let quiet_since = rows.last_heartbeat().await?;
    assert!(!rows.replace(Some(store(3)), (store(2), "there"), quiet_since).await?);
    assert!(world.nodes.heartbeat(testing::node_id(), Epoch(1)).await?.is_some());
    assert!(!rows.replace(Some(store(1)), (store(2), "there"), quiet_since).await?);
    assert_eq!(rows.read(database(2)).await?.location.as_deref(), Some("here"));

    let quiet_since = rows.last_heartbeat().await?;
    assert!(rows.replace(Some(store(1)), (store(2), "there"), quiet_since).await?);
    let record = rows.read(database(2)).await?;
    assert_eq!((record.database, record.store), (database(1), Some(store(2))));
    assert_eq!(record.location.as_deref(), Some("there"));
    Ok(())
}
