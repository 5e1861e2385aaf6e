//! The client with an agent that cannot be trusted.

use std::fs::{self, File};
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use casement_agent_protocol::client::{AgentClient, ClientError, dial};
use casement_agent_protocol::{Channel, ErrorCode};
use futures_util::stream;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sendmsg, socket};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::headless::{LARGE, refusal};
use crate::sandbox::{SILENT, SLOWLY, Sandbox, config};

/// Creates a `dial` socket that answers one connection with `byte` and the descriptor `passed`.
fn answering(byte: u8, passed: Option<OwnedFd>) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dial");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut caller, _) = listener.accept().await.unwrap();
        assert_eq!(caller.read_u8().await.unwrap(), b'C');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        if !sockets.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&sockets)));
        }
        sendmsg(&caller, &[IoSlice::new(&[byte])], &mut control, SendFlags::NOSIGNAL).unwrap();
    });
    (directory, path)
}

#[tokio::test]
async fn only_a_connected_tcp_socket_is_taken_from_a_sandbox() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_directory, path) = answering(0, Some(connected.into()));
    let taken = dial(&path, Channel::Cdp).await.unwrap();
    assert_eq!(taken.peer_addr().unwrap(), listener.local_addr().unwrap());
    let flags = rustix::io::fcntl_getfd(&taken).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));

    let (_directory, path) = answering(0, Some(File::open("/dev/null").unwrap().into()));
    assert!(matches!(dial(&path, Channel::Cdp).await, Err(ClientError::NotASocket)));
    let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let (_directory, path) = answering(0, Some(unix.into()));
    assert!(matches!(dial(&path, Channel::Cdp).await, Err(ClientError::NotASocket)));
    let datagrams = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    let (_directory, path) = answering(0, Some(datagrams));
    assert!(matches!(dial(&path, Channel::Cdp).await, Err(ClientError::NotASocket)));
    let (_directory, path) = answering(0, Some(listener.into()));
    assert!(matches!(dial(&path, Channel::Cdp).await, Err(ClientError::NotConnected(_))));
    let (_directory, path) = answering(0, None);
    assert!(matches!(dial(&path, Channel::Cdp).await, Err(ClientError::NotASocket)));
    let (_directory, path) = answering(1, None);
    assert!(matches!(dial(&path, Channel::Cdp).await, Err(ClientError::NotConnected(_))));
}

#[tokio::test]
async fn a_socket_is_reached_however_long_its_path_is() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    let short = directory.path().join("agent");
    let listener = UnixListener::bind(&short).unwrap();
    fs::rename(&short, deep.join("agent")).unwrap();
    let client = AgentClient::connect(deep.join("agent")).await;
    assert!(client.is_ok(), "{client:?}");
    listener.accept().await.unwrap();
    let no_one = AgentClient::connect(deep.join("nobody")).await;
    assert!(matches!(no_one, Err(ClientError::Connect(_))), "{no_one:?}");
}

#[tokio::test]
async fn an_answer_longer_than_its_bound_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut caller, _) = listener.accept().await.unwrap();
        assert_ne!(caller.read(&mut [0; 4096]).await.unwrap(), 0);
        caller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n").await.unwrap();
        // The client closes the connection before the end.
        drop(caller.write_all(&vec![b' '; 2_000_000]).await);
    });
    let client = AgentClient::connect(&path).await.unwrap();
    let answer = client.status().await;
    assert!(matches!(answer, Err(ClientError::TooLong)), "{answer:?}");
}

#[tokio::test]
async fn an_upload_that_is_refused_before_its_end_shows_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let client = AgentClient::connect(&path).await.unwrap();
    let (_buffered, _) = listener.accept().unwrap();
    let mut requested = 0;
    // The agent answers and disconnects between two pieces, with the first one unread.
    let content = stream::poll_fn(move |_| {
        requested += 1;
        if requested == 2 {
            let body = r#"{"code":"disk_full","message":"no place"}"#;
            let length = body.len();
            let (mut caller, _) = listener.accept().unwrap();
            write!(caller, "HTTP/1.1 507 Full\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
        Poll::Ready(Some(Ok(Bytes::from_static(&[0; 4096]))))
    });
    let refused = client.upload::<Value>("/v1/fs/write", &json!({}), content, Duration::from_secs(20)).await;
    assert_eq!(refusal(refused), ErrorCode::DiskFull);
}

#[tokio::test]
async fn the_agent_refuses_what_it_cannot_serve() {
    let mut config = config(true);
    config.chromium = PathBuf::from(SILENT);
    let sandbox = Sandbox::start(&config);
    let client = sandbox.client().await;
    assert_eq!(refusal(client.handout(None, None, SLOWLY).await), ErrorCode::NotReady);
    assert_eq!(refusal(client.screenshot(None, LARGE).await), ErrorCode::NotReady);
    let ask = async |head: &str, body: usize| {
        let mut stream = UnixStream::connect(sandbox.socket("agent")).await.unwrap();
        let head = format!("{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {body}\r\n");
        stream.write_all(format!("{head}casement-agent-version: 1\r\n\r\n").as_bytes()).await.unwrap();
        drop(stream.write_all(&vec![b' '; body]).await);
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert_eq!(ask("POST /v1/handout", 1 << 21).await, "HTTP/1.1 413");
    assert_eq!(ask("POST /v1/handout", 8).await, "HTTP/1.1 400");
    assert_eq!(ask("GET /v1/nothing", 0).await, "HTTP/1.1 404");
    let nothing_listens = dial(sandbox.socket("dial"), Channel::Cdp).await;
    assert!(
        matches!(&nothing_listens, Err(ClientError::NotConnected(word)) if word == "not_listening"),
        "{nothing_listens:?}"
    );
}
