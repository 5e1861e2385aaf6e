//! Tests of wrong records, such as reused pids and truncated files, and of a lack of descriptors.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use casement_sandbox::{Host, HostConfig};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::support::{Place, config, processes, remains, until};

/// The environment variable that makes the child process of these tests use few descriptors.
const STARVED: &str = "CASEMENT_TEST_STARVED";

/// The child process of the next test. Does nothing without its variable.
#[tokio::test]
async fn starved_process() -> anyhow::Result<()> {
    if std::env::var_os(STARVED).is_none() {
        return Ok(());
    }
    let place = Place::new()?;
    let start = || place.host.start(place.script("a", "exec sleep 1000"));
    let usual = getrlimit(Resource::Nofile);
    let (mut sandbox, mut reported_done) = (start().await?, 0);
    for free in 0..24 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..usual })?;
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len().saturating_sub(free));
        let listed = place.host.list().await.map(|all| all.iter().filter(|found| found.is_alive()).count());
        assert!(matches!(listed, Ok(1) | Err(_)), "{listed:?} with {free} descriptors");
        let swept = place.host.sweep(&["a".to_owned()].into()).await;
        assert!(sandbox.is_alive(), "{swept:?} with {free} descriptors");
        let ended = place.host.end("a").await;
        drop(taken);
        setrlimit(Resource::Nofile, usual)?;
        assert!(ended.is_err() || remains(&sandbox.dir).is_empty(), "{ended:?} with {free} descriptors");
        reported_done += u32::from(ended.is_ok());
        if !sandbox.is_alive() {
            place.host.end("a").await?;
            sandbox = start().await?;
        }
    }
    assert!((1..24).contains(&reported_done), "{reported_done}");
    Ok(())
}

#[tokio::test]
async fn a_lack_of_descriptors_makes_no_living_process_look_dead() -> anyhow::Result<()> {
    let mut starved = Command::new(std::env::current_exe()?);
    let output = starved.args(["--exact", "remains::starved_process"]).env(STARVED, "1").output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

#[tokio::test]
async fn a_process_with_a_reused_pid_is_not_touched() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut bystander = Command::new("/usr/bin/sleep").arg("1000").stdin(Stdio::null()).spawn()?;
    // The kernel stores start times in steps of 10 ms. No pid is reused within one step.
    let begun = Instant::now();
    until("another step has begun", || begun.elapsed() > Duration::from_millis(20)).await?;
    let sandbox = place.host.start(place.script("a", "exec sleep 1000")).await?;
    let path = sandbox.dir.join("state.json");
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    for which in ["init", "monitor"] {
        record["processes"][which]["pid"] = bystander.id().into();
    }
    std::fs::write(&path, record.to_string())?;
    assert!(place.host.list().await?.iter().all(|found| !found.is_alive()));
    place.host.end("a").await?;
    assert_eq!(bystander.try_wait()?, None);
    // The sandbox itself is still found by other properties.
    assert!(!sandbox.is_alive());
    assert_eq!(remains(&sandbox.dir), Vec::<String>::new());
    bystander.kill()?;
    bystander.wait()?;
    Ok(())
}

#[tokio::test]
async fn a_record_of_another_boot_names_no_process() -> anyhow::Result<()> {
    let place = Place::new()?;
    let sandbox = place.host.start(place.script("a", "exec sleep 1000")).await?;
    let path = sandbox.dir.join("state.json");
    let text = std::fs::read_to_string(&path)?;
    let mut record: serde_json::Value = serde_json::from_str(&text)?;
    record["boot"] = "another".into();
    std::fs::write(&path, record.to_string())?;
    assert!(place.host.list().await?.iter().all(|found| !found.is_alive()));
    std::fs::write(&path, text)?;
    Ok(())
}

#[tokio::test]
async fn a_record_that_was_cut_short_does_not_keep_a_sandbox_alive() -> anyhow::Result<()> {
    let place = Place::new()?;
    let sandbox = place.host.start(place.script("a", "exec sleep 1000")).await?;
    std::fs::write(sandbox.dir.join("state.json"), "{")?;
    assert_eq!(place.host.list().await?.len(), 0);
    assert_eq!(place.host.sweep(&["a".to_owned()].into()).await?, ["a"]);
    assert!(!sandbox.is_alive());
    assert_eq!(remains(&sandbox.dir), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn missing_features_of_the_host_are_reported_with_a_remedy() -> anyhow::Result<()> {
    let place = Place::new()?;
    let checks = place.host.checks().await;
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert!(names.contains(&"nested user namespaces") && names.contains(&"memory limits"), "{names:?}");
    for check in checks {
        assert!(check.ok && !check.detail.is_empty(), "{check:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_sandbox_does_not_end_the_checks_of_another_server() -> anyhow::Result<()> {
    // The first sandbox of this range has the first user, and its end kills whatever that user runs.
    let (place, first) = (Place::new()?, 230_000);
    let range = HostConfig { uid_base: first, uid_count: 10, ..config(&place.dir.path().join("root")) };
    let host = Host::new(range)?;
    let done = Arc::new(AtomicBool::new(false));
    let ends = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Ordering::Relaxed) {
                let of_first = |dir: &Path| std::fs::metadata(dir).is_ok_and(|found| found.uid() == first);
                for pid in processes(of_first).into_iter().filter_map(Pid::from_raw) {
                    kill_process(pid, Signal::KILL).ok();
                }
            }
        }
    });

    let checks = host.checks().await;

    done.store(true, Ordering::Relaxed);
    assert!(ends.join().is_ok());
    let failed: Vec<_> = checks.into_iter().filter(|check| !check.ok).collect();
    assert!(failed.is_empty(), "{failed:?}");
    Ok(())
}
