//! Measures the start and the end of sandboxes on this machine: `cargo run -p casement-sandbox --example start_time`.
//! Prints the median and the slowest of 20 to standard error, in milliseconds.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use casement_sandbox::{Host, HostConfig, Spec};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;

fn spec(id: &str, egress_dir: PathBuf, started: OwnedFd) -> Spec {
    Spec {
        id: id.to_owned(),
        program: "/usr/bin/dash".into(),
        args: vec!["-c".to_owned(), "echo >&3; exec sleep 1000".to_owned()],
        env: Vec::new(),
        files: Vec::new(),
        sockets: 0,
        listeners: vec![started],
        egress_dir,
        network: None,
        read_only: Vec::new(),
        read_only_at: Vec::new(),
        memory_bytes: 256 << 20,
        tmpfs_bytes: 16 << 20,
        max_processes: 100,
        max_open_files: 256,
    }
}

/// Starts a sandbox. Returns the time until the start returned, and the time until the program inside wrote its first
/// byte.
async fn start(host: Host, place: PathBuf, id: String) -> anyhow::Result<(Duration, Duration)> {
    let (word, started) = std::io::pipe()?;
    let begun = Instant::now();
    host.start(spec(&id, place.join(format!("egress-{id}")), started.into())).await?;
    let returned = begun.elapsed();
    pipe::Receiver::from_owned_fd(word.into())?.read_u8().await?;
    Ok((returned, begun.elapsed()))
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    eprintln!("{what:<28} {:6.1} {:6.1}", ms(times.get(times.len() / 2)), ms(times.last()));
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let place = PathBuf::from(format!("/tmp/casement-start-time-{}", std::process::id()));
    let host = Host::new(HostConfig {
        root: place.join("root"),
        uid_base: 210_000,
        uid_count: 100,
        bwrap: "/usr/bin/bwrap".into(),
        setpriv: "/usr/bin/setpriv".into(),
    })?;
    let [mut returned, mut answered, mut ended] = [Vec::new(), Vec::new(), Vec::new()];
    for n in 0..20 {
        let (first, second) = start(host.clone(), place.clone(), format!("s{n}")).await?;
        returned.push(first);
        answered.push(second);
        let begun = Instant::now();
        host.end(&format!("s{n}")).await?;
        ended.push(begun.elapsed());
    }
    report("start returns", returned);
    report("first word of the program", answered);
    report("end returns", ended);
    let begun = Instant::now();
    let mut starts = JoinSet::new();
    (0..8).for_each(|n| drop(starts.spawn(start(host.clone(), place.clone(), format!("e{n}")))));
    while let Some(started) = starts.join_next().await {
        started??;
    }
    report("eight at once, last word", vec![begun.elapsed()]);
    host.sweep(&HashSet::new()).await?;
    std::fs::remove_dir_all(&place)?;
    Ok(())
}
