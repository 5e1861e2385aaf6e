//! Records that lie: pids that were given out anew, files that were cut short.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Place, remains, until};

#[tokio::test]
async fn a_process_that_has_a_recorded_pid_by_chance_is_not_touched() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut bystander = Command::new("/usr/bin/sleep").arg("1000").stdin(Stdio::null()).spawn()?;
    // The kernel counts the time of a start in steps of 10 ms, in which no pid is given out twice.
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
    // The sandbox itself is found by other signs.
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
async fn what_the_host_gives_is_told_with_a_remedy_for_what_it_does_not() -> anyhow::Result<()> {
    let place = Place::new()?;
    let checks = place.host.checks().await;
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert!(names.contains(&"nested user namespaces") && names.contains(&"memory limits"), "{names:?}");
    for check in checks {
        assert!(check.ok && !check.detail.is_empty(), "{check:?}");
    }
    Ok(())
}
