//! Tests of CONNECT tunnels: bytes in both directions, and the end of a tunnel.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    time::timeout,
};

use super::support::{Client, Origin, Session, TEST_TIMEOUT, until};

const MIB: u64 = 1024 * 1024;

/// An origin that sends back what it receives, until the peer closes.
async fn echo() -> Origin {
    Origin::start(|stream| async move {
        let (mut read, mut write) = stream.into_inner().into_split();
        copy(&mut read, &mut write).await.ok();
        write.shutdown().await.ok();
    })
    .await
}

#[tokio::test]
async fn a_tunnel_carries_100_mib_both_ways_at_once() {
    let origin = echo().await;
    let session = Session::open(&["127.0.0.1/32"]);
    let (mut read, mut write) = session.tunnel(origin.address).await.into_inner().into_split();
    let writing = tokio::spawn(async move {
        let block = vec![7; MIB as usize];
        for _ in 0..100 {
            write.write_all(&block).await.unwrap();
        }
        // Half-closed: bytes in transit must still come back.
        write.shutdown().await.unwrap();
    });
    let mut received = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = timeout(TEST_TIMEOUT, read.read(&mut buffer)).await.expect("bytes in time").unwrap();
        if read == 0 {
            break;
        }
        assert!(buffer[..read].iter().all(|byte| *byte == 7));
        received += read as u64;
    }
    writing.await.unwrap();
    assert_eq!(received, 100 * MIB);
    let stats = session.handle.stats();
    assert!(stats.bytes_from_session >= 100 * MIB && stats.bytes_to_session >= 100 * MIB, "{stats:?}");
    until("the tunnel is gone", || session.handle.stats().connections == 0).await;
}

#[tokio::test]
async fn bytes_sent_with_connect_reach_the_tunnel() {
    let origin = echo().await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut client = session.connect().await;
    let answer = client.ask(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\nearly", origin.address)).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.head.to_lowercase().contains("content-length"), "{}", answer.head);
    let mut early = [0; 5];
    client.stream.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"early");
}

#[tokio::test]
async fn a_tunnel_ends_with_either_side() {
    let origin = Origin::start(|mut stream| async move {
        stream.get_mut().write_all(b"bye").await.unwrap();
    })
    .await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut tunnel = session.tunnel(origin.address).await;
    let mut all = Vec::new();
    timeout(TEST_TIMEOUT, tunnel.read_to_end(&mut all)).await.expect("the origin's end arrives").unwrap();
    assert_eq!(all, b"bye");
    drop(tunnel);
    until("the tunnel is gone", || session.handle.stats().connections == 0).await;
}

#[tokio::test]
async fn closing_ends_every_tunnel_and_connection() {
    let origin = echo().await;
    let silent = Origin::silent().await;
    let session = Session::open(&["127.0.0.1/32"]);
    let tunnel = session.tunnel(origin.address).await;
    let mut waiting = session.connect().await;
    waiting.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", silent.url("/"))).await;
    let idle = session.connect().await;
    until("all stand", || silent.connections() == 1 && session.handle.stats().connections == 3).await;

    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let Session { handle, .. } = session;
    timeout(TEST_TIMEOUT, handle.close()).await.expect("closing does not wait for anybody");
    for mut client in [Client { stream: tunnel }, waiting, idle] {
        assert!(client.is_closed().await);
    }
    // Three connections, the driver of the connection to the silent origin, the listener.
    until("the tasks are gone", || tokio::runtime::Handle::current().metrics().num_alive_tasks() <= before - 5).await;
}

#[tokio::test]
async fn dropping_the_handle_closes_the_egress() {
    let origin = echo().await;
    let session = Session::open(&["127.0.0.1/32"]);
    let mut tunnel = Client { stream: session.tunnel(origin.address).await };
    drop(session);
    assert!(tunnel.is_closed().await);
}

#[tokio::test]
async fn sessions_do_not_end_with_each_other() {
    let origin = echo().await;
    let (one, two) = (Session::open(&["127.0.0.1/32"]), Session::open(&["127.0.0.1/32"]));
    let mut tunnel = two.tunnel(origin.address).await;
    let Session { handle, .. } = one;
    handle.close().await;
    tunnel.write_all(b"still").await.unwrap();
    let mut back = [0; 5];
    timeout(TEST_TIMEOUT, tunnel.read_exact(&mut back)).await.expect("the other session goes on").unwrap();
}
