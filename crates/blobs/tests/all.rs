//! Tests of blobs on a disk and in an S3-compatible store, and of buckets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod all {
    mod buckets;
    mod s3;
}

use bytes::Bytes;
use casement_blobs::LocalBlobs;
use casement_domain::blob::{BlobError, BlobStore as _};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use time::Duration;

fn bytes(parts: impl IntoIterator<Item = Result<Vec<u8>, OperationError>>) -> ByteStream {
    stream::iter(parts.into_iter().map(|part| part.map(Bytes::from)).collect::<Vec<_>>()).boxed()
}

async fn read(blobs: &LocalBlobs, key: &str) -> Option<Vec<u8>> {
    let content: Vec<Bytes> = blobs.get(key).await.unwrap()?.try_collect().await.unwrap();
    Some(content.concat())
}

#[tokio::test]
async fn a_blob_is_stored_completely_or_not_at_all() {
    let place = tempfile::tempdir().unwrap();
    let blobs = LocalBlobs::open(&place.path().join("blobs")).unwrap();
    assert_eq!(read(&blobs, "extensions/a").await, None);
    let long: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let parts = long.chunks(70_000).map(|part| Ok(part.to_vec())).collect::<Vec<_>>();
    blobs.put("extensions/a", bytes(parts)).await.unwrap();
    blobs.put("extensions/b", bytes([Ok(b"b".to_vec())])).await.unwrap();
    blobs.put("extensions/empty", bytes([])).await.unwrap();
    assert_eq!(read(&blobs, "extensions/a").await, Some(long.clone()));
    assert_eq!(read(&blobs, "extensions/empty").await, Some(Vec::new()));
    for (offset, length) in [(0, 1), (70_000, 1_000_000), (2_999_999, 1)] {
        let part = blobs.get_part("extensions/a", offset as u64, length as u64).await.unwrap().unwrap();
        let part: Vec<Bytes> = part.try_collect().await.unwrap();
        assert!(part.concat() == long[offset..offset + length], "{length} bytes from {offset} on");
    }
    assert!(blobs.get_part("extensions/none", 0, 1).await.unwrap().is_none());

    let broken = [Ok(vec![1; 600_000]), Err(OperationError::Broken("gone".to_owned()))];
    let refused = blobs.put("extensions/a", bytes(broken)).await;
    assert!(matches!(refused, Err(BlobError::Content(OperationError::Broken(_)))), "{refused:?}");
    assert_eq!(read(&blobs, "extensions/a").await, Some(long), "what was there stays");

    let again = LocalBlobs::open(&place.path().join("blobs")).unwrap();
    let mut keys: Vec<String> = again.list("extensions/").await.unwrap().into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["extensions/a", "extensions/b", "extensions/empty"]);
    again.delete("extensions/a").await.unwrap();
    again.delete("extensions/a").await.unwrap();
    assert_eq!(read(&again, "extensions/a").await, None);
    assert!(again.put("../out", bytes([])).await.is_err());
}

#[tokio::test]
async fn an_unfinished_blob_is_removed_after_a_long_time_without_writes() {
    let place = tempfile::tempdir().unwrap();
    let blobs = LocalBlobs::open(place.path()).unwrap();
    blobs.put("profiles/a/b", bytes([Ok(b"kept".to_vec())])).await.unwrap();
    // The leftovers of a server that was killed during a write.
    for name in ["b#1", "b#27"] {
        std::fs::write(place.path().join("profiles/a").join(name), "half").unwrap();
    }
    assert_eq!(blobs.clear_unfinished(Duration::hours(1)).await.unwrap(), 0, "somebody may be writing it");
    assert_eq!(blobs.clear_unfinished(Duration::ZERO).await.unwrap(), 2);
    assert_eq!(read(&blobs, "profiles/a/b").await, Some(b"kept".to_vec()));
}
