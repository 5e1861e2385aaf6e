//! Requests of the server itself: they keep to the rules, and follow no redirect.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use casement_egress::{Egress, FetchError, Limits, Rules};
use http::{Request, StatusCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use url::Url;

use super::support::{Names, TEST_TIMEOUT};

/// Returns an egress that may reach the name `origin.test`, and the URL of an origin that answers with `answer` and
/// sends what it received.
async fn origin(answer: &'static str) -> (Egress, Url, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let names = Arc::new(Names::default());
    names.answer("origin.test", &[&["127.0.0.1"]]);
    names.answer("private.test", &[&["127.0.0.1"]]);
    names.answer("public.test", &[&["1.1.1.1"]]);
    let egress = Egress::new(Rules::new(vec![Rules::parse("origin.test").unwrap()]), names, Limits::default());
    let received = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"content") {
            received.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(received).unwrap()
    });
    (egress, Url::parse(&format!("http://origin.test:{port}/base/v1/logs")).unwrap(), received)
}

fn request() -> Request<Bytes> {
    Request::post("http://ignored.test/").header("x-key", "1").body(Bytes::from_static(b"content")).unwrap()
}

#[tokio::test]
async fn a_request_arrives_with_its_headers_and_a_redirect_is_the_answer() {
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://private.test/\r\nContent-Length: 2\r\n\r\nno";
    let (egress, url, received) = origin(redirect).await;
    let answer = egress.post(&url, request(), 1024, TEST_TIMEOUT).await.unwrap();
    assert_eq!((answer.status(), answer.body().as_ref()), (StatusCode::FOUND, &b"no"[..]));
    let received = received.await.unwrap().to_lowercase();
    assert!(received.starts_with("post /base/v1/logs http/1.1\r\n"), "{received}");
    let host = format!("\r\nhost: origin.test:{}\r\n", url.port().unwrap());
    assert!(received.contains(&host) && received.contains("\r\nx-key: 1\r\n"), "{received}");
}

#[tokio::test]
async fn an_answer_is_bounded_in_size_and_time() {
    let (egress, url, _) = origin("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789").await;
    let long = egress.post(&url, request(), 8, TEST_TIMEOUT).await.unwrap_err();
    assert!(matches!(long, FetchError::TooLong(8)), "{long}");
    let (egress, url, _) = origin("HTTP/1.1 200 OK\r\n").await;
    let silent = egress.post(&url, request(), 8, Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(silent, FetchError::Silent | FetchError::Connection(_)), "{silent}");
}

#[tokio::test]
async fn a_host_at_a_private_address_is_not_reached() {
    let (egress, url, received) = origin("").await;
    for (text, reachable) in [
        (url.as_str(), true),
        ("https://public.test/otlp", true),
        ("http://private.test/", false),
        ("http://127.0.0.1:4318/", false),
        ("http://[::ffff:10.0.0.1]/", false),
        ("http://unknown.test/", false),
    ] {
        assert_eq!(egress.may_reach(&Url::parse(text).unwrap()).await, reachable, "{text}");
    }
    let mut private = url.clone();
    private.set_host(Some("private.test")).unwrap();
    let refused = egress.post(&private, request(), 8, TEST_TIMEOUT).await.unwrap_err();
    assert!(matches!(refused, FetchError::ConnectError), "{refused}");
    received.abort();
}
