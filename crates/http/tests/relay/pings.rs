//! Pings keep WebSockets open on which nothing flows, and the browser does not notice them.

use std::time::Duration;

use casement_http::relay::Limits;
use futures_util::StreamExt as _;
use pretty_assertions::assert_eq;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_tungstenite::{accept_async, client_async, tungstenite::Message};

use super::support::{Server, frame, frame_header, read_frame, soon};

const MASK: Option<[u8; 4]> = Some([1, 2, 3, 4]);
const PING: u8 = 9;

async fn server() -> Server {
    Server::with(Limits { ping_interval: Duration::from_millis(20), ..Limits::default() }).await
}

#[actix_web::test]
async fn a_silent_relay_stays_open_by_pings_whose_answers_do_not_reach_the_browser() {
    let server = server().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    for _ in 0..3 {
        assert_eq!(soon(read_frame(&mut client)).await, (PING, Vec::new()));
        client.write_all(&frame(true, 10, b"", MASK)).await.unwrap();
    }
    // A pong that the client sends of its own accord would be forwarded, if no ping of the server were open.
    let text = frame(true, 1, b"text", MASK);
    client.write_all(&text).await.unwrap();
    let mut seen = vec![0; text.len()];
    soon(upstream.read_exact(&mut seen)).await.unwrap();
    assert_eq!(seen, text);
}

#[actix_web::test]
async fn no_ping_is_sent_within_a_frame() {
    let server = server().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    let payload = [7; 200];
    let head = frame_header(true, 1, payload.len() as u64, false);
    upstream.write_all(&[head.as_slice(), &payload[..100]].concat()).await.unwrap();
    let mut begun = vec![0; head.len() + 100];
    // A ping may have been sent before the frame began.
    loop {
        soon(client.read_exact(&mut begun[..2])).await.unwrap();
        if begun[0] & 0x0f != PING {
            break;
        }
    }
    soon(client.read_exact(&mut begun[2..])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    upstream.write_all(&payload[100..]).await.unwrap();
    let mut rest = vec![0; 100];
    soon(client.read_exact(&mut rest)).await.unwrap();
    assert_eq!(rest, &payload[100..]);
    assert_eq!(soon(read_frame(&mut client)).await, (PING, Vec::new()));
}

#[actix_web::test]
async fn a_live_view_without_frames_stays_open_by_pings() {
    let server = server().await;
    let client = TcpStream::connect(server.address).await.unwrap();
    let browser = async { accept_async(server.upstream.accept().await.unwrap().0).await.unwrap() };
    let opening = client_async("ws://casement.test/live/view", client);
    let (client, _browser) = soon(async { tokio::join!(opening, browser) }).await;
    let mut client = client.unwrap().0;
    let mut pings = 0;
    while pings < 3 {
        if let Message::Ping(_) = soon(client.next()).await.unwrap().unwrap() {
            pings += 1;
        }
    }
}
