//! The memory of a relay is bounded even if a peer does not read.

use std::time::{Duration, Instant};

use casement_http::relay::Limits;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::support::{Server, close_payload, eventually, frame, frame_header, soon};

const MIB: usize = 1024 * 1024;
/// The environment variable that marks the child process of a test.
const ALONE: &str = "CASEMENT_TEST_ALONE";

/// Returns this process's resident memory, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Writes `block` repeatedly, up to `max` bytes, until none are accepted for two seconds: on a busy machine, a reader
/// may pause for a fraction of a second. Returns the number of accepted bytes.
async fn flood(to: &mut TcpStream, block: &[u8], max: usize) -> usize {
    let mut taken = 0;
    while taken < max {
        match timeout(Duration::from_secs(2), to.write(block)).await {
            Ok(Ok(written)) => taken += written,
            Ok(Err(_)) | Err(_) => break,
        }
    }
    taken
}

#[actix_web::test]
async fn a_client_that_does_not_read_stops_reads_from_the_browser() {
    let server = Server::start().await;
    let (client, mut upstream, _) = server.pair("/cdp").await;
    upstream.write_all(&frame_header(true, 2, 1 << 40, false)).await.unwrap();
    let taken = flood(&mut upstream, &vec![0; 64 * 1024], 256 * MIB).await;
    // Nearly all of these bytes are in the kernel's buffers of two loopback connections.
    assert!(taken < 24 * MIB, "{taken} bytes were taken for a client that reads none");
    drop(client);
}

#[actix_web::test]
async fn a_browser_that_does_not_read_stops_reads_from_the_client() {
    let server = Server::with(Limits { max_client_message_bytes: u64::MAX, ..Limits::default() }).await;
    let (mut client, upstream, _) = server.pair("/cdp").await;
    client.write_all(&frame_header(true, 1, 1 << 40, true)).await.unwrap();
    let taken = flood(&mut client, &vec![0; 64 * 1024], 256 * MIB).await;
    assert!(taken < 24 * MIB, "{taken} bytes were taken for a browser that reads none");
    drop(upstream);
}

#[actix_web::test]
async fn a_client_that_stalls_too_long_is_a_slow_reader() {
    let server = Server::with(Limits { stall_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    // One-byte frames of three bytes each: most positions in the stream are close to a boundary.
    let block = frame(true, 2, b"x", None).repeat(20_000);
    // The flood ends when no bytes were accepted for two seconds, which is longer than the stall timeout.
    flood(&mut upstream, &block, 256 * MIB).await;
    let mut seen = Vec::new();
    soon(client.read_to_end(&mut seen)).await.unwrap();
    let close = frame(true, 8, &close_payload(4005, "slow_reader"), None);
    // Inside a frame, no close frame can be sent, and the connection is only closed.
    let between = (seen.len() - if seen.ends_with(&close) { close.len() } else { 0 }) % 3 == 0;
    assert_eq!(seen.ends_with(&close), between, "the close frame stands exactly where it may");
    eventually("the relay is over", || server.open() == 0).await;
}

/// Streams one message of `length` bytes from one end to the other. Returns the peak memory in bytes.
async fn stream(from: &mut TcpStream, to: &mut TcpStream, length: usize, masked: bool) -> usize {
    let mut head = frame_header(true, 1, length as u64, masked);
    head.extend(if masked { &[0; 4][..] } else { &[] });
    let block = vec![0xA5; 256 * 1024];
    let send = async {
        from.write_all(&head).await.unwrap();
        let mut left = length;
        while left > 0 {
            let part = left.min(block.len());
            from.write_all(&block[..part]).await.unwrap();
            left -= part;
        }
    };
    let receive = async {
        let (mut seen, mut heads, mut max, mut buffer) = (0, 0, 0, vec![0; 256 * 1024]);
        while seen < length {
            let read = to.read(&mut buffer).await.unwrap();
            assert!(read > 0, "ended after {seen} bytes");
            let payload = buffer[..read].iter().filter(|byte| **byte == 0xA5).count();
            (seen, heads) = (seen + payload, heads + read - payload);
            max = max.max(resident());
        }
        assert_eq!(seen, length);
        assert!(heads <= 4 * 14, "{heads} bytes besides the payload: a long message passes in a few pieces");
        max
    };
    tokio::join!(send, receive).1
}

/// The test runs in a separate process.
#[actix_web::test]
async fn a_hundred_megabytes_pass_both_ways_within_a_few_of_memory() {
    if std::env::var_os(ALONE).is_none() {
        // Other tests hold bodies of many megabytes, which would be counted too.
        let (_, module) = module_path!().split_once("::").unwrap();
        let name = format!("{module}::a_hundred_megabytes_pass_both_ways_within_a_few_of_memory");
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = alone.args(["--exact", &name]).env(ALONE, "1").output().unwrap();
        let output = [&*ran.stdout, &ran.stderr].map(String::from_utf8_lossy).concat();
        assert!(ran.status.success() && output.contains("1 passed"), "{output}");
        return;
    }
    let server = Server::start().await;
    let (mut client, mut upstream, _) = server.pair("/cdp").await;
    let before = resident();
    let begun = Instant::now();
    let up = timeout(Duration::from_secs(120), stream(&mut client, &mut upstream, 100 * MIB, true)).await.unwrap();
    let down = timeout(Duration::from_secs(120), stream(&mut upstream, &mut client, 256 * MIB, false)).await.unwrap();
    // The growth would be far higher if the message were buffered.
    let growth = up.max(down).saturating_sub(before);
    assert!(growth < 48 * MIB, "{growth} bytes more after {:?}", begun.elapsed());
}
