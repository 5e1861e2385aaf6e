//! Tests with large files and directories, and of the memory that they need.

use std::fs;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Options, Process, Server, flood};

use super::files::Files;

/// Returns the memory of the server and of the largest agent, in MiB.
fn memory(server: &Server) -> anyhow::Result<(u64, u64)> {
    let resident = |pid: i32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok())
    };
    let processes = server.processes();
    let agent =
        processes.iter().filter(|p| p.argv.get(1).is_some_and(|word| word == "agent")).filter_map(|p| resident(p.pid));
    let serves = |p: &&Process| p.argv.get(1).is_some_and(|word| word == "serve");
    let own = processes.iter().find(serves).and_then(|p| resident(p.pid)).context("no server")?;
    Ok((own >> 10, agent.max().context("no agent")? >> 10))
}

/// Returns the maximum memory of server and agent during `work`, in MiB.
fn most_memory(server: &Server, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<(u64, u64)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut max = (0, 0);
            loop {
                let last = done.load(Ordering::Relaxed);
                let (own, agent) = memory(server)?;
                max = (max.0.max(own), max.1.max(agent));
                if last {
                    return anyhow::Ok(max);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let max = watching.join().expect("nothing panics");
        worked.and(max)
    })
}

/// Streams a request whose body is `before`, `zeros` zeros and `after`.
fn stream_in(files: &Files, request: Request, before: &str, zeros: u64, after: &str) -> anyhow::Result<Answer> {
    let length = before.len() as u64 + zeros + after.len() as u64;
    let mut stream = request.header("content-length", &length.to_string()).start(files.server.address())?;
    stream.write_all(before.as_bytes())?;
    let piece = vec![0; 1 << 20];
    for _ in 0..zeros >> 20 {
        stream.write_all(&piece)?;
    }
    stream.write_all(after.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Answer::read(&answer, false)
}

#[test]
fn large_files_and_directories_need_only_a_few_megabytes_of_memory() -> anyhow::Result<()> {
    let server = Server::start(Options { flags: vec!["--session-disk".into(), "8000".into()], ..Options::default() })?;
    let files = Files::new(&server, None)?;
    let (entries, mebibytes) = (flood(100_000), flood(2048));
    files.run(&format!(
        "mkdir /tmp/many && cd /tmp/many && seq {entries} | xargs touch; truncate -s {mebibytes}M /tmp/two"
    ))?;
    files.get("list_files?path=/tmp")?.expect(200)?;
    let before = memory(&server)?;
    let mut seen = Vec::new();
    let mut step = |what: String, work: &mut dyn FnMut() -> anyhow::Result<()>| {
        let began = Instant::now();
        let (own, agent) = most_memory(&server, work).with_context(|| what.clone())?;
        println!("{what}: {:?}, server {} -> {own} MiB, agent {} -> {agent} MiB", began.elapsed(), before.0, before.1);
        seen.push((what, own.saturating_sub(before.0), agent.saturating_sub(before.1)));
        anyhow::Ok(())
    };

    step(format!("list {entries} entries"), &mut || {
        let listed = files.get("list_files?path=/tmp/many")?.expect(200)?.json()?;
        ensure!(listed.as_array().map(Vec::len) == usize::try_from(entries).ok(), "not all");
        Ok(())
    })?;
    step(format!("read {mebibytes} MiB"), &mut || {
        let mut stream = files.request("GET", "read_file?path=/tmp/two").start(server.address())?;
        let received = std::io::copy(&mut stream, &mut std::io::sink())?;
        ensure!(received > mebibytes << 20, "{received} bytes with the head");
        Ok(())
    })?;
    files.run("rm /tmp/two")?;
    step(format!("write {mebibytes} MiB"), &mut || {
        let request = files.request("PUT", "write_file?path=/tmp/one");
        stream_in(&files, request, "", mebibytes << 20, "")?.expect(204).map(drop)
    })?;
    let end = "\r\n--b--\r\n";
    step("upload 256 MiB".to_owned(), &mut || {
        let path = "--b\r\nContent-Disposition: form-data; name=\"files[][dest_path]\"\r\n\r\n/tmp/one\r\n\
                    --b\r\nContent-Disposition: form-data; name=\"files[][file]\"\r\n\r\n";
        let request = files.request("POST", "upload").header("content-type", "multipart/form-data; boundary=b");
        stream_in(&files, request, path, 256 << 20, end)?.expect(204).map(drop)
    })?;
    let mut packed = Vec::new();
    step(format!("pack {entries} entries"), &mut || {
        packed = files.get("download_dir_zip?path=/tmp/many")?.expect(200)?.body;
        Ok(())
    })?;
    step(format!("unpack {entries} entries"), &mut || files.unzip("/tmp/again", &packed)?.expect(204).map(drop))?;
    files.run(&format!("test $(ls -U /tmp/again | wc -l) = {entries} && rm -r /tmp/again"))?;

    for (what, own, agent) in seen {
        assert!(own < 24 && agent < 24, "{what}: the server grew by {own} MiB, the agent by {agent} MiB");
    }
    files.end()?;
    Ok(())
}
