//! Measures a thousand readers of a session's stream, first without events, then with one event.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::ensure;
use casement_test_support::program::{Cdp, Options, Server, Session};

use super::{a_page, capturing};
use crate::machine::{cpu_ms, open_files, pss_kib, quiet, server_pid};
use crate::table::{Limit, Row, Table, ms};

const READERS: usize = 1_000;
/// The measured idle time, which is longer than the keep-alive interval.
const IDLE_INTERVAL: Duration = Duration::from_secs(20);
const TIMEOUT: Duration = Duration::from_secs(60);
/// The limits of the server's memory per reader, in KiB, and of the processor time for all readers, in ms per second.
const MAX_MEMORY_KIB: f64 = 40.0;
const MAX_CPU_MS_PER_SECOND: f64 = 20.0;

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let pages = a_page()?;
    let server = Server::start(Options::reaching(&pages))?;
    let pid = server_pid(&server.data_dir())?;
    let session = capturing(&server, &["console"])?;
    let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = cdp.page()?;
    cdp.open(&page, &pages.url("/plain"))?;
    // The one-time cost of the first reader is not counted.
    let mut first = follow(&server, &session)?;
    quiet();
    let (memory, work) = (pss_kib(pid)?, cpu_while_idle(pid)?);
    let wanted = READERS.min(open_files().saturating_sub(500));
    let mut readers = (0..wanted).map(|_| follow(&server, &session)).collect::<anyhow::Result<Vec<_>>>()?;
    quiet();
    let each = (pss_kib(pid)? as f64 - memory as f64) / wanted as f64;
    let still = cpu_while_idle(pid)?;
    let what = format!("each of {wanted} idle followers of a session, PSS of the server");
    let row = Row::new(what, format!("{each:.1} KiB"));
    table.add(row.target(&format!("≤ {MAX_MEMORY_KIB:.0} KiB"), each, Limit::Most(MAX_MEMORY_KIB)));
    let row = Row::new("processor time while all are idle", format!("{still:.1} ms per second"));
    let row = row.beside(format!("with one follower, {work:.1} ms per second"));
    table.add(row.target(&format!("≤ {MAX_CPU_MS_PER_SECOND:.0} ms"), still, Limit::Most(MAX_CPU_MS_PER_SECOND)));

    let began = Instant::now();
    cdp.evaluate(&page, "console.log('to all'), 0")?;
    until_first_event(&mut first)?;
    let soonest = began.elapsed();
    readers.iter_mut().try_for_each(until_first_event)?;
    let row = Row::new(format!("a line of the console is with all {wanted} after"), ms(millis(began.elapsed())));
    table.add(row.beside(format!("with the first one, {}", ms(millis(soonest)))));
    Ok(())
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}

/// Returns the processor time in milliseconds per second.
fn cpu_while_idle(pid: u32) -> anyhow::Result<f64> {
    let before = cpu_ms(pid)?;
    std::thread::sleep(IDLE_INTERVAL);
    Ok((cpu_ms(pid)? - before) as f64 / IDLE_INTERVAL.as_secs_f64())
}

/// Opens the stream of a session's events.
fn follow(server: &Server, session: &Session) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(server.address())?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let (id, key, host) = (session.id(), server.key(), server.address());
    write!(
        stream,
        "GET /browsers/{id}/telemetry/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n"
    )?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    ensure!(&head == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&head));
    Ok(stream)
}

/// Waits for the first event.
fn until_first_event(stream: &mut TcpStream) -> anyhow::Result<()> {
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    while !text.windows(b"\nid: ".len()).any(|found| found == b"\nid: ") {
        let read = stream.read(&mut part)?;
        ensure!(read > 0, "the stream ended");
        text.extend_from_slice(&part[..read]);
    }
    Ok(())
}
