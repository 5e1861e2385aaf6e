//! Tests that incomplete and too large uploads of packages leave nothing.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;

use casement_test_support::program::{Options, Server, until};

use super::host::count;
use super::programs::{Place, TEST_TIMEOUT};

/// Returns the size of all files below a folder in bytes, except for the mark of a blob store.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        _ if entry.file_name() == "store-id" => 0,
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn nothing_stays(server: &Server) -> anyhow::Result<()> {
    let blobs = server.data_dir().join("blobs");
    until("no part of it is kept", TEST_TIMEOUT, || (bytes_below(&blobs) == 0).then_some(()))?;
    assert_eq!(count(server, "select count(*) from deployments")?, 0);
    assert_eq!(count(server, "select count(*) from deployment_secrets")?, 0);
    assert_eq!(count(server, "select count(*) from api_keys where for_deployment")?, 0);
    Ok(())
}

#[test]
fn an_incomplete_or_too_large_package_leaves_neither_bytes_nor_a_row() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let place = Place::new(&server, "uploads")?;

    // The client sends half of the announced bytes and disconnects.
    let noise: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let mut request = place.form(&[("entrypoint_rel_path", b"main.py"), ("file", &noise)]);
    let body = request.body.take().unwrap_or_default();
    let request = request.header("Content-Length", &body.len().to_string());
    let mut stream = request.start(server.address())?;
    stream.write_all(&body[..body.len() / 2])?;
    stream.shutdown(Shutdown::Both)?;
    drop(stream);
    nothing_stays(&server)?;

    // The client sends more than the maximum size of a package.
    let mut request = place.form(&[("entrypoint_rel_path", b"main.py"), ("file", b"")]);
    let body = request.body.take().unwrap_or_default();
    let head = &body[..body.len() - b"\r\n--b--\r\n".len()];
    let request = request.header("Content-Length", &(1_u64 << 33).to_string());
    let mut stream = request.start(server.address())?;
    let (sent, answer) = {
        let mut reading = stream.try_clone()?;
        let answer = std::thread::spawn(move || {
            let mut bytes = vec![0; 1000];
            let read = reading.read(&mut bytes).unwrap_or_default();
            bytes.truncate(read);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        // The server stops to read above the limit.
        let mut sent = stream.write_all(head).map(|()| 0_u64);
        while let Ok(so_far @ 0..400_000_000) = sent {
            sent = stream.write_all(&noise).map(|()| so_far + noise.len() as u64);
        }
        // Waits for the response before the connection ends.
        let answer = answer.join().unwrap();
        stream.shutdown(Shutdown::Both).ok();
        (sent, answer)
    };
    // The response may be lost if the server closes the connection with unread bytes.
    assert!(answer.starts_with("HTTP/1.1 413") || (answer.is_empty() && sent.is_err()), "{answer}");
    nothing_stays(&server)
}
