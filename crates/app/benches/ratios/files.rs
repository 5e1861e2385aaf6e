//! Measures a listing of a session's files and the download of a directory as an archive, against `ls`, `zip -1` and
//! plain reads.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Options, Server};
use serde_json::json;
use tempfile::TempDir;

use crate::machine::quiet;
use crate::samples::Samples;
use crate::table::{Limit, Row, Table, ms};

const LISTINGS: usize = 20;
const ENTRIES: usize = 10_000;
const ROUNDS: usize = 5;
const FILES: usize = 2000;
const BYTES: usize = 100 << 10;

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let session = server.headless()?;
    let base = format!("/browsers/{}/fs", session.id());
    // A folder in memory, like the files of a session.
    let here = TempDir::new_in("/dev/shm")?;
    let tree = here.path().join("tree");
    fill(&tree)?;
    upload(&server, &base, &tree)?;
    quiet();
    archive(&server, &base, &tree, table)?;
    listing(&server, &base, table)
}

/// Fills the folder with files of random words, which compress to about a third, like logs and pages.
fn fill(tree: &Path) -> anyhow::Result<()> {
    fs::create_dir(tree)?;
    let mut state = 1_u64;
    for number in 0..FILES {
        let mut text = String::with_capacity(BYTES + 16);
        while text.len() < BYTES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = state >> 44;
            text.push_str(if word.is_multiple_of(9) { "\n" } else { " " });
            text.push_str(&format!("{:x}", word % 3000 * 7919));
        }
        fs::write(tree.join(format!("{number}.txt")), text)?;
    }
    Ok(())
}

fn upload(server: &Server, base: &str, tree: &Path) -> anyhow::Result<()> {
    let packed = Command::new("zip").args(["-q", "-r", "-0", "-", "."]).current_dir(tree).output().context("no zip")?;
    ensure!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let mut body = b"--b\r\nContent-Disposition: form-data; name=\"dest_path\"\r\n\r\n/tmp/tree\r\n\
        --b\r\nContent-Disposition: form-data; name=\"zip_file\"\r\n\r\n"
        .to_vec();
    body.extend_from_slice(&packed.stdout);
    body.extend_from_slice(b"\r\n--b--\r\n");
    let mut request = Request::new("POST", &format!("{base}/upload_zip")).bearer(server.key());
    request = request.header("content-type", "multipart/form-data; boundary=b");
    request.body = Some(body);
    request.send(server.address())?.expect(204).map(drop)
}

fn archive(server: &Server, base: &str, tree: &Path, table: &mut Table) -> anyhow::Result<()> {
    let (mut ours, mut zip, mut alone) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let request = Request::new("GET", &format!("{base}/download_dir_zip?path=/tmp/tree")).bearer(server.key());
        let received = ours.time(|| drain(request.start(server.address())?))?;
        ensure!(received > 1 << 20, "{received} bytes are no archive");
        zip.time(|| {
            let mut run = Command::new("zip")
                .args(["-q", "-r", "-1", "-", "."])
                .current_dir(tree)
                .stdout(Stdio::piped())
                .spawn()?;
            let packed = drain(run.stdout.take().context("no output")?)?;
            ensure!(run.wait()?.success() && packed > 0, "zip failed");
            anyhow::Ok(())
        })?;
        alone.time(|| read_all(tree))?;
    }
    let rate = |samples: &Samples| (FILES * BYTES) as f64 / 1e6 / (samples.p50() / 1000.0);
    let (ours, zip, alone) = (rate(&ours), rate(&zip), rate(&alone));
    let what = format!("a directory of {FILES} files, {} MB, as ZIP, median of {ROUNDS}", FILES * BYTES / 1_000_000);
    let row = Row::new(&what, format!("{ours:.0} MB/s")).against(format!("zip -1, {zip:.0} MB/s"), ours / zip);
    table.add(row.target("≥ ×1", ours / zip, Limit::Least(1.0)));
    table.add(
        Row::new("the same", format!("{ours:.0} MB/s"))
            .against(format!("reading alone, {alone:.0} MB/s"), ours / alone),
    );
    Ok(())
}

fn drain(mut from: impl std::io::Read) -> anyhow::Result<u64> {
    Ok(std::io::copy(&mut from, &mut std::io::sink())?)
}

fn read_all(tree: &Path) -> anyhow::Result<()> {
    let mut buffer = Vec::with_capacity(BYTES * 2);
    for entry in fs::read_dir(tree)? {
        buffer.clear();
        File::open(entry?.path())?.read_to_end(&mut buffer)?;
    }
    Ok(())
}

fn listing(server: &Server, base: &str, table: &mut Table) -> anyhow::Result<()> {
    let make = json!({ "command": format!("mkdir /tmp/many && cd /tmp/many && seq {ENTRIES} | xargs touch") });
    let path = base.replace("/fs", "/process/exec");
    server.post(&path, &make)?.expect(200)?;
    let here = TempDir::new_in("/dev/shm")?;
    for number in 1..=ENTRIES {
        File::create(here.path().join(number.to_string()))?;
    }
    let (mut ours, mut ls) = (Samples::default(), Samples::default());
    for _ in 0..LISTINGS {
        let path = format!("{base}/list_files?path=/tmp/many");
        let listed: Answer = ours.time(|| server.get(&path))?.expect(200)?;
        ensure!(listed.json()?.as_array().is_some_and(|entries| entries.len() == ENTRIES), "another listing");
        let run = ls.time(|| Command::new("ls").args(["-l", "--time-style=full-iso"]).arg(here.path()).output())?;
        std::io::sink().write_all(&run.stdout)?;
    }
    let (ours, ls) = (ours.p50(), ls.p50());
    let what = format!("listing of {ENTRIES} entries, p50 of {LISTINGS}");
    table.add(Row::new(what, ms(ours)).against(format!("ls -l, {}", ms(ls)), ours / ls));
    Ok(())
}
