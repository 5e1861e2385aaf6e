//! Tests of the limits of one session.

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use casement_egress::{Egress, Limits, LookupPermit, Resolver};
use tokio::time::timeout;

use super::support::{Client, NO_RESPONSE, Origin, Session, until};

#[tokio::test]
async fn connections_above_the_limit_wait() {
    let origin = Origin::echo_heads().await;
    let session = Session::with_limits(&["127.0.0.1/32"], Limits { connections: 2, ..Limits::default() });
    let (one, two) = (session.tunnel(origin.address).await, session.tunnel(origin.address).await);
    let mut third = session.connect().await;
    third.send("GET http://10.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let early = timeout(Duration::from_millis(100), super::support::read_head(&mut third.stream)).await;
    assert!(early.is_err(), "a third connection was served");
    assert_eq!(session.handle.stats().connections, 2);
    drop(one);
    assert_eq!(third.answer().await.status, 403);
    drop(two);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let origin = Origin::silent().await;
    let limits = Limits { idle_timeout: Duration::from_secs(3), ..Limits::default() };
    let session = Session::with_limits(&["127.0.0.1/32"], limits);
    let mut tunnel = Client { stream: session.tunnel(origin.address).await };
    let mut waiting = session.connect().await;
    waiting.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url("/"))).await;
    assert!(tunnel.is_closed().await && waiting.is_closed().await);
    until("both are gone", || session.handle.stats().connections == 0).await;
}

#[tokio::test]
async fn an_unfinished_head_times_out() {
    let limits = Limits { head_timeout: Duration::from_secs(1), ..Limits::default() };
    let session = Session::with_limits(&[], limits);
    let mut slow = session.connect().await;
    slow.send("GET http://10.0.0.1/ HTTP/1.1\r\nX-Slow: ").await;
    until("the slow one is gone", || session.handle.stats().connections == 0).await;
}

#[tokio::test]
async fn a_huge_head_is_refused() {
    let session = Session::open(&["127.0.0.1/32"]);
    for filler in [format!("X: {}\r\n", "x".repeat(1_000_000)), "X: y\r\n".repeat(10_000)] {
        let mut client = session.connect().await;
        let request = format!("GET http://127.0.0.1/ HTTP/1.1\r\n{filler}\r\n");
        // The proxy does not read the rest, so the write may fail.
        tokio::io::AsyncWriteExt::write_all(client.stream.get_mut(), request.as_bytes()).await.ok();
        until("it is cut", || session.handle.stats().connections == 0).await;
    }
    assert!(session.handle.stats().bytes_from_session < 300_000, "{:?}", session.handle.stats());
}

#[tokio::test]
async fn a_hanging_lookup_times_out() {
    struct Hanging;
    #[async_trait::async_trait]
    impl casement_egress::Resolver for Hanging {
        async fn resolve(&self, _: &str, _: casement_egress::LookupPermit) -> std::io::Result<Vec<std::net::IpAddr>> {
            std::future::pending().await
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("egress");
    let limits = Limits { lookup_timeout: Duration::from_millis(100), ..Limits::default() };
    let egress = casement_egress::Egress::new(Default::default(), std::sync::Arc::new(Hanging), limits);
    let _handle = egress.serve("s1".to_owned(), tokio::net::UnixListener::bind(&path).unwrap());
    let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    let mut client = Client { stream: tokio::io::BufReader::new(stream) };
    assert_eq!(client.get("http://slow.example/").await.status, NO_RESPONSE);
}

/// A resolver whose lookups continue after the caller gave up, as those of the operating system do.
#[derive(Clone, Default)]
struct Stubborn {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    release: Arc<tokio::sync::Notify>,
}

#[async_trait::async_trait]
impl Resolver for Stubborn {
    async fn resolve(&self, _: &str, place: LookupPermit) -> io::Result<Vec<IpAddr>> {
        self.begun.fetch_add(1, SeqCst);
        let names = self.clone();
        let lookup = tokio::spawn(async move {
            names.release.notified().await;
            drop(place);
            names.ended.fetch_add(1, SeqCst);
        });
        lookup.await.map_err(io::Error::other)?;
        Err(io::ErrorKind::NotFound.into())
    }
}

#[tokio::test]
async fn an_abandoned_lookup_counts_until_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("egress");
    let limits = Limits { lookups: 1, lookup_timeout: Duration::from_millis(100), ..Limits::default() };
    let names = Stubborn::default();
    let egress = Egress::new(Default::default(), Arc::new(names.clone()), limits);
    let _handle = egress.serve("s1".to_owned(), tokio::net::UnixListener::bind(&path).unwrap());
    let ask = async || {
        let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let status = Client { stream: tokio::io::BufReader::new(stream) }.get("http://slow.example/").await.status;
        (status, names.begun.load(SeqCst))
    };
    assert_eq!(ask().await, (NO_RESPONSE, 1));
    assert_eq!(ask().await, (NO_RESPONSE, 1), "no second lookup begins beside the first");
    names.release.notify_one();
    until("the place is free again", || names.ended.load(SeqCst) == 1).await;
    assert_eq!(ask().await, (NO_RESPONSE, 2));
}
