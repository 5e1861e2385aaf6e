//! The resources of a caller that disconnects before its response are released.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use actix_web::{App, HttpResponse, HttpServer, web};
use casement_http::relay::{DeliveryReceipt, DeliveryReport, prepare_connection};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
};

use super::support::{eventually, read_head, soon};

#[derive(Default)]
struct Seen {
    waiting: AtomicUsize,
    finished: AtomicUsize,
    delivered: AtomicUsize,
    undelivered: AtomicUsize,
    go: Notify,
}

struct ChangeWaiter(Arc<Seen>);

impl Drop for ChangeWaiter {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

fn leased(seen: Arc<Seen>, size: usize) -> HttpResponse {
    HttpResponse::Ok()
        .message_body(DeliveryReport::new(vec![b'x'; size], DeliveryReceipt::default(), move |delivered| {
            let count = if delivered { &seen.delivered } else { &seen.undelivered };
            count.fetch_add(1, Ordering::SeqCst);
        }))
        .unwrap()
        .map_into_boxed_body()
}

async fn wait(seen: web::Data<Arc<Seen>>, _body: web::Bytes) -> HttpResponse {
    seen.waiting.fetch_add(1, Ordering::SeqCst);
    let guard = ChangeWaiter(seen.get_ref().clone());
    seen.go.notified().await;
    drop(guard);
    seen.finished.fetch_add(1, Ordering::SeqCst);
    leased(seen.get_ref().clone(), 100)
}

async fn large(seen: web::Data<Arc<Seen>>) -> HttpResponse {
    leased(seen.get_ref().clone(), 64 * 1024 * 1024)
}

async fn start() -> (std::net::SocketAddr, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let data = web::Data::new(seen.clone());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = HttpServer::new(move || {
        App::new().app_data(data.clone()).route("/wait", web::post().to(wait)).route("/large", web::get().to(large))
    })
    .workers(1)
    .h1_allow_half_closed(false)
    .on_connect(|connection, _| connection.downcast_ref().into_iter().for_each(prepare_connection))
    .disable_signals()
    .listen(listener)
    .unwrap()
    .run();
    actix_web::rt::spawn(server);
    (address, seen)
}

const WAIT: &[u8] = b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";

#[actix_web::test]
async fn a_caller_that_disconnects_ends_its_handler_at_once() {
    let (address, seen) = start().await;
    for how in ["close", "reset", "half-close", "kept alive"] {
        let mut client = TcpStream::connect(address).await.unwrap();
        if how == "kept alive" {
            client.write_all(WAIT).await.unwrap();
            eventually("it waits", || seen.waiting.load(Ordering::SeqCst) == 1).await;
            seen.go.notify_one();
            let head = soon(read_head(&mut client)).await;
            assert!(head.starts_with("HTTP/1.1 200"));
            client.read_exact(&mut [0; 100]).await.unwrap();
            seen.finished.store(0, Ordering::SeqCst);
        }
        client.write_all(WAIT).await.unwrap();
        eventually("it waits", || seen.waiting.load(Ordering::SeqCst) == 1).await;
        match how {
            "reset" => client.set_zero_linger().unwrap(),
            "half-close" => client.shutdown().await.unwrap(),
            _ => {}
        }
        let half_closed = (how == "half-close").then_some(client);
        eventually(how, || seen.waiting.load(Ordering::SeqCst) == 0).await;
        assert_eq!(seen.finished.load(Ordering::SeqCst), 0, "{how}: the handler did not go on");
        drop(half_closed);
    }
}

#[actix_web::test]
async fn an_undelivered_response_is_reported_once() {
    let (address, seen) = start().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    soon(read_head(&mut client)).await;
    assert_eq!(seen.undelivered.load(Ordering::SeqCst), 0);
    drop(client);
    eventually("it is reported", || seen.undelivered.load(Ordering::SeqCst) == 1).await;
}

#[actix_web::test]
async fn a_delivered_response_is_not_reported() {
    let (address, seen) = start().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    for _ in 0..3 {
        client.write_all(WAIT).await.unwrap();
        seen.go.notify_one();
        soon(read_head(&mut client)).await;
        soon(client.read_exact(&mut [0; 100])).await.unwrap();
    }
    client.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    soon(client.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() > 64 * 1024 * 1024);
    assert_eq!(seen.undelivered.load(Ordering::SeqCst), 0);
}
