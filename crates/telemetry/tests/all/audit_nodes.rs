//! Two nodes store records in one trail and export it to one bucket.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use casement_domain::StoreError;
use pretty_assertions::assert_eq;
use time::Duration;

use crate::world::{TestResult, World};

/// The time after which another node takes over a destination.
const CLAIM: Duration = Duration::minutes(2);

fn each_once(until: u32) -> BTreeMap<u32, u32> {
    (1..until).map(|n| (n, 1)).collect()
}

#[tokio::test]
async fn two_nodes_that_store_and_export_at_once_export_each_record_once() -> TestResult {
    let world = World::new().await?;
    let (mut one, mut other) = (world.node(1).await?, world.node(2).await?);
    let mut next = 1;
    for _ in 0..8 {
        world.second();
        tokio::try_join!(one.calls.record(next..next + 20), other.calls.record(next + 20..next + 40))?;
        next += 40;
        world.second();
        tokio::try_join!(one.calls.report(), other.calls.report())?;
        let storing = other.calls.record(next..next + 5);
        let exporting = async { tokio::try_join!(one.exporter.run(), other.exporter.run()) };
        let (stored, exported) = tokio::join!(storing, exporting);
        stored?;
        exported?;
        next += 5;
    }
    world.second();
    tokio::try_join!(one.calls.report(), other.calls.report())?;
    one.exporter.run().await?;
    assert_eq!(world.bucket.counts(), each_once(next));
    Ok(())
}

#[tokio::test]
async fn what_a_living_node_stores_late_is_waited_for() -> TestResult {
    let world = World::new().await?;
    let (mut one, late) = (world.node(1).await?, world.node(2).await?);
    world.second();
    let call = late.calls.begin(1);
    world.second();
    one.calls.record(2..3).await?;
    world.second();
    one.calls.report().await?;
    one.exporter.run().await?;
    assert_eq!(world.bucket.counts(), BTreeMap::new(), "an earlier record may follow");

    late.calls.end(call).await?;
    tokio::try_join!(one.calls.report(), late.calls.report())?;
    one.exporter.run().await?;
    assert_eq!(world.bucket.counts(), each_once(3));
    Ok(())
}

#[tokio::test]
async fn a_record_stored_after_later_exported_ones_is_exported_once_though_one_dies() -> TestResult {
    let world = World::new().await?;
    let (one, mut late) = (world.node(1).await?, world.node(2).await?);
    world.second();
    let call = late.calls.begin(1);
    world.silence(late.id).await?;
    world.second();
    one.calls.record(2..10).await?;
    world.second();
    one.calls.report().await?;

    // The first node writes an object, and is killed before it has noted that.
    world.bucket.is_silent.store(true, Ordering::Relaxed);
    let killed = one.id;
    let export = tokio::spawn(async move {
        let mut one = one;
        one.exporter.run().await
    });
    world.bucket.written.notified().await;
    export.abort();
    assert!(export.await.is_err_and(|ended| ended.is_cancelled()));
    assert!(world.bucket.has(9) && !world.bucket.has(1));

    let refused = late.calls.end(call).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "exports have passed its time: {refused:?}");
    late.calls.report().await?;
    late.calls.record(10..12).await?;
    late.exporter.run().await?;
    assert_eq!(world.bucket.counts().len(), 8, "the killed node has the destination still");

    world.silence(killed).await?;
    world.clock.advance(CLAIM);
    late.calls.report().await?;
    late.exporter.run().await?;
    assert_eq!(world.bucket.counts(), each_once(12));
    Ok(())
}
