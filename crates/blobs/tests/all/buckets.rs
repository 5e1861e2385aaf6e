//! Tests of the requests to buckets, with a store that notes them.

use std::sync::Arc;

use bytes::Bytes;
use casement_blobs::{BucketKeys, BucketSettings, OperatorBuckets};
use casement_domain::audit_destination::{AuditBuckets as _, BucketFault, BucketTarget};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// The heads of the requests to a store that answers each of them so, and its URL.
async fn store(status: u16, body: &str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, heads) = (format!("http://{}", listener.local_addr().unwrap()), Arc::<Mutex<Vec<String>>>::default());
    let noting = Arc::clone(&heads);
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status} S\r\nETag: \"1\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.windows(4).any(|window| window == b"\r\n\r\n") {
                stream.read_buf(&mut request).await.unwrap();
            }
            noting.lock().push(String::from_utf8_lossy(&request).to_ascii_lowercase());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, heads)
}

fn buckets(url: &str) -> OperatorBuckets {
    let keys = BucketKeys { id: "writer".to_owned(), secret: "swordfish".into(), token: Some("session-token".into()) };
    let endpoint = Some(url.parse().unwrap());
    OperatorBuckets::new(Some(BucketSettings { buckets: vec!["records".to_owned()], endpoint, keys })).unwrap()
}

fn target() -> BucketTarget {
    BucketTarget {
        bucket: "records".to_owned(),
        prefix: String::new(),
        region: "eu-central-1".to_owned(),
        kms_key_id: Some("alias/audit".to_owned()),
    }
}

#[tokio::test]
async fn an_object_is_signed_and_encrypted_with_the_key_of_the_destination() {
    let (url, heads) = store(200, "").await;
    buckets(&url).put(&target(), "a=1/b.jsonl.gz", Bytes::from_static(b"x")).await.unwrap();
    let head = heads.lock().pop().unwrap();
    assert!(
        head.starts_with("put /records/a%3d1/b.jsonl.gz ") || head.starts_with("put /records/a=1/b.jsonl.gz "),
        "{head}"
    );
    assert!(head.contains("\r\nx-amz-server-side-encryption: aws:kms\r\n"), "{head}");
    assert!(head.contains("\r\nx-amz-server-side-encryption-aws-kms-key-id: alias/audit\r\n"), "{head}");
    assert!(head.contains("credential=writer/") && head.contains("/eu-central-1/s3/aws4_request"), "{head}");
    assert!(head.contains("\r\nx-amz-security-token: session-token\r\n"), "{head}");
    assert!(!head.contains("swordfish"), "{head}");
}

#[tokio::test]
async fn a_bucket_that_the_operator_does_not_offer_gets_no_request() {
    let (url, heads) = store(200, "").await;
    let other = BucketTarget { bucket: "others".to_owned(), ..target() };
    assert_eq!(buckets(&url).put(&other, "a", Bytes::new()).await, Err(BucketFault::NotOffered));
    assert_eq!(OperatorBuckets::new(None).unwrap().remove(&target(), "a").await, Err(BucketFault::NotOffered));
    assert!(heads.lock().is_empty());
}

#[tokio::test]
async fn a_refusal_is_its_status_and_code_and_nothing_else_that_the_store_writes() {
    for (body, code) in [
        ("<Error><Code>AccessDenied</Code><Message>swordfish</Message></Error>", Some("AccessDenied")),
        ("<Error><Code>swordfish or barracuda</Code></Error>", None),
        ("", None),
    ] {
        let (url, heads) = store(403, body).await;
        let refused = buckets(&url).put(&target(), "a", Bytes::from_static(b"x")).await;
        assert_eq!(refused, Err(BucketFault::Refused { status: 403, code: code.map(str::to_owned) }));
        assert_eq!(heads.lock().len(), 1, "the export itself repeats");
    }
    let unreachable = buckets("http://127.0.0.1:1").put(&target(), "a", Bytes::new()).await;
    assert_eq!(unreachable, Err(BucketFault::Unreachable));
}

#[test]
fn keys_show_nowhere() {
    let shown = format!("{:?}", buckets("http://127.0.0.1:1"));
    assert!(!shown.contains("swordfish") && !shown.contains("session-token") && !shown.contains("writer"), "{shown}");
}
