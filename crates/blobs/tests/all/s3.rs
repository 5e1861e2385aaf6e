//! Tests of blobs in a real S3-compatible store.

use std::time::{Duration as StdDuration, Instant};

use bytes::Bytes;
use casement_blobs::{BlobPlace, Blobs, S3Blobs, S3Settings};
use casement_domain::blob::{BlobError, BlobStore as _, StoreMark};
use casement_domain::session_operation::{ByteStream, OperationError};
use casement_domain::{BlobStoreId, DatabaseId};
use casement_test_support::program::ObjectStore;
use casement_test_support::within;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use time::Duration;

/// The timeout of what waits for a store, on a busy machine.
const TEST_TIMEOUT: StdDuration = StdDuration::from_secs(300);

fn settings(store: &ObjectStore, prefix: &str) -> S3Settings {
    let (id, secret) = ObjectStore::KEY;
    let variables = [("AWS_ACCESS_KEY_ID", id), ("AWS_SECRET_ACCESS_KEY", secret)];
    S3Settings {
        bucket: ObjectStore::BUCKET.to_owned(),
        prefix: prefix.to_owned(),
        endpoint: Some(store.url().parse().unwrap()),
        region: None,
        path_style: true,
        variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
    }
}

fn opened(settings: S3Settings) -> S3Blobs {
    match Blobs::open(&BlobPlace::S3(settings)).unwrap() {
        Blobs::S3(blobs) => blobs,
        Blobs::Local(_) => unreachable!("the place is a bucket"),
    }
}

/// A content of `length` bytes in parts of some KiB, which ends with this error if there is one.
fn content(length: usize, error: Option<OperationError>) -> ByteStream {
    let parts = (0..length).step_by(70_000).map(move |at| Ok(Bytes::from(pattern(at, 70_000.min(length - at)))));
    stream::iter(parts.collect::<Vec<_>>()).chain(stream::iter(error.map(Err))).boxed()
}

fn pattern(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|at| (at * 31 + at / 251) as u8).collect()
}

async fn read(content: Option<ByteStream>) -> Option<Vec<u8>> {
    let content: Vec<Bytes> = content?.try_collect().await.unwrap();
    Some(content.concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_in_a_bucket_is_stored_completely_or_not_at_all() {
    let store = ObjectStore::start().unwrap();
    let blobs = opened(settings(&store, "installation/one"));
    assert_eq!(read(blobs.get("profiles/a/b").await.unwrap()).await, None);
    assert_eq!(blobs.find("profiles/a/b").await.unwrap(), None);
    // Shorter than a part, longer than several parts, and empty.
    for (key, length) in [("profiles/a/b", 200_000), ("profiles/a/long", 30_000_001), ("extensions/empty", 0)] {
        blobs.put(key, content(length, None)).await.unwrap();
        assert!(read(blobs.get(key).await.unwrap()).await.unwrap() == pattern(0, length), "{key}");
        assert_eq!(blobs.find(key).await.unwrap().unwrap().size_bytes, length as u64);
    }
    for (offset, length) in [(0, 1), (8_388_600, 20_000), (30_000_000, 1)] {
        let part = blobs.get_part("profiles/a/long", offset as u64, length as u64).await.unwrap();
        assert!(read(part).await.unwrap() == pattern(offset, length), "{length} bytes from {offset} on");
    }
    assert!(blobs.get_part("profiles/none", 0, 1).await.unwrap().is_none());

    for length in [300_000, 20_000_000] {
        let gone = Some(OperationError::Broken("gone".to_owned()));
        let refused = blobs.put("profiles/a/b", content(length, gone)).await;
        assert!(matches!(refused, Err(BlobError::Content(OperationError::Broken(_)))), "{refused:?}");
        assert!(read(blobs.get("profiles/a/b").await.unwrap()).await.unwrap() == pattern(0, 200_000), "it stays");
    }
    assert_eq!(blobs.abort_uploads(Duration::ZERO).await.unwrap(), 0, "an upload that failed is aborted at once");

    let keys = async |prefix: &str| {
        let mut keys: Vec<_> = blobs.list(prefix).await.unwrap().into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(keys("profiles/").await, ["profiles/a/b", "profiles/a/long"]);
    assert_eq!(keys("").await, ["extensions/empty", "profiles/a/b", "profiles/a/long"]);
    assert!(opened(settings(&store, "installation")).list("").await.unwrap().len() == 3, "a prefix is a folder");
    assert!(opened(settings(&store, "installation/o")).list("").await.unwrap().is_empty());
    blobs.delete("profiles/a/b").await.unwrap();
    blobs.delete("profiles/a/b").await.unwrap();
    assert_eq!(keys("profiles/").await, ["profiles/a/long"]);
    assert!(blobs.put("../out", content(1, None)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_all_pages() {
    let store = ObjectStore::start().unwrap();
    let blobs = opened(settings(&store, ""));
    let keys = (0..2_345).map(|number| format!("extensions/{number}"));
    let puts = keys.map(|key| {
        let blobs = blobs.clone();
        async move { blobs.put(&key, content(1, None)).await }
    });
    stream::iter(puts).buffer_unordered(16).try_collect::<()>().await.unwrap();
    assert_eq!(blobs.list("extensions/").await.unwrap().len(), 2_345);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_of_a_killed_server_is_aborted() {
    let store = ObjectStore::start().unwrap();
    let (blobs, other) = (opened(settings(&store, "ours")), opened(settings(&store, "theirs")));
    for blobs in [&blobs, &other] {
        // The upload is dropped in its middle, as at the end of the process.
        let endless = content(20_000_000, None).chain(stream::pending()).boxed();
        let uploading = blobs.put("replays/a/b", endless);
        assert!(tokio::time::timeout(StdDuration::from_secs(5), uploading).await.is_err());
    }
    assert_eq!(blobs.clear_unfinished(Duration::ZERO).await.unwrap(), 0, "another server may be writing it");
    assert_eq!(blobs.abort_uploads(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(blobs.abort_uploads(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(other.abort_uploads(Duration::ZERO).await.unwrap(), 1, "it has another prefix");
    assert!(blobs.list("").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_has_the_mark_that_was_written_first() {
    let store = ObjectStore::start().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for place in [BlobPlace::S3(settings(&store, "a")), BlobPlace::Directory(directory.path().join("blobs"))] {
        let blobs = Blobs::open(&place).unwrap();
        assert_eq!(blobs.mark().await.unwrap(), None);
        let mark = |number: u128| StoreMark {
            store: BlobStoreId::from_ulid(number.into()),
            database: DatabaseId::from_ulid((number + 1).into()),
        };
        blobs.create_mark(&mark(7)).await.unwrap();
        blobs.create_mark(&mark(8)).await.unwrap();
        assert_eq!(blobs.mark().await.unwrap(), Some(mark(7)));
        assert!(blobs.port().list("").await.unwrap().is_empty(), "it is no blob");
        blobs.remove_mark().await.unwrap();
        assert_eq!(blobs.mark().await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_store_that_is_away_fail_in_time_and_then_at_once() {
    let mut store = ObjectStore::start().unwrap();
    let blobs = opened(settings(&store, ""));
    blobs.put("extensions/a", content(10, None)).await.unwrap();
    for is_killed in [true, false] {
        if is_killed {
            store.stop()
        } else {
            store.pause(true).unwrap()
        }
        let refused = within(TEST_TIMEOUT, blobs.put("extensions/b", content(10, None))).await.unwrap().unwrap_err();
        assert_eq!(refused.to_string(), "the object store does not respond");
        for _ in 0..100 {
            let refused = blobs.get("extensions/a").now_or_never().expect("nobody waits for it again");
            let refused = refused.map(drop).unwrap_err();
            assert!(matches!(refused, BlobError::Unavailable(_)), "{refused}");
        }
        if is_killed {
            store.restart().unwrap()
        } else {
            store.pause(false).unwrap()
        }
        // The store needs a while until it has found its volumes.
        let deadline = Instant::now() + TEST_TIMEOUT;
        let found = loop {
            blobs.allow();
            match blobs.get("extensions/a").await {
                Err(error) if Instant::now() > deadline => panic!("{error}"),
                Err(_) => tokio::time::sleep(StdDuration::from_millis(200)).await,
                Ok(found) => break found,
            }
        };
        assert_eq!(read(found).await, Some(pattern(0, 10)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_store_is_its_status_and_code_and_no_missing_blob() {
    let store = ObjectStore::start().unwrap();
    let mut wrong = settings(&store, "");
    wrong.variables[1].1 = "barracuda".to_owned();
    let refused = opened(wrong).get("extensions/a").await.map(drop).unwrap_err().to_string();
    assert_eq!(refused, "the object store answers 403 SignatureDoesNotMatch");
    let other = opened(S3Settings { bucket: "missing".to_owned(), ..settings(&store, "") });
    let refused = other.get("extensions/a").await.map(drop).unwrap_err().to_string();
    assert!(refused.starts_with("the object store answers 40"), "{refused}");
    assert_eq!(other.refuses(), None, "the store itself responds");
    assert!(!format!("{:?} {other:?}", settings(&store, "")).contains("swordfish"));
}
