//! How long starting and ending a sandbox takes here: `cargo run -p casement-sandbox --example start_time`.
//! Written to standard error, in milliseconds; median and slowest of 20.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use casement_sandbox::{Host, HostConfig, Spec};
use tokio::io::AsyncReadExt;

fn spec(program: &str, id: String, egress_dir: PathBuf) -> Spec {
    // The first thing that the program does is to accept, so an answer is the time of its first instruction.
    let answer = "use Socket; open L, q(+<&=3); accept(C, L); syswrite C, q(x); sleep 1000";
    Spec {
        id,
        program: program.into(),
        args: vec!["-e".to_owned(), answer.to_owned()],
        env: Vec::new(),
        files: Vec::new(),
        sockets: 1,
        listeners: Vec::new(),
        egress_dir,
        read_only: Vec::new(),
        memory_bytes: 256 << 20,
        tmpfs_bytes: 16 << 20,
        max_processes: 100,
        max_open_files: 256,
    }
}

fn tell(what: &str, mut times: Vec<Duration>) {
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
        let begun = Instant::now();
        let sandbox = host.start(spec("/usr/bin/perl", format!("s{n}"), place.join(n.to_string()))).await?;
        returned.push(begun.elapsed());
        sandbox.connect(0).await?.read_u8().await?;
        answered.push(begun.elapsed());
        let begun = Instant::now();
        host.end(&sandbox.id).await?;
        ended.push(begun.elapsed());
    }
    tell("start returns", returned);
    tell("perl inside answers", answered);
    tell("end returns", ended);
    std::fs::remove_dir_all(&place)?;
    Ok(())
}
