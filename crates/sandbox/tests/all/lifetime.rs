//! Tests of the start and the end of sandboxes, and of processes that continue after others end.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::Context as _;
use casement_sandbox::{EndError, Host, MemoryLimit, Sandbox, StartError};

use crate::support::{Place, config, groups, remains, spec, until, within};

/// The environment variable with the directory in which the child process of these tests starts a sandbox.
const STARTER: &str = "CASEMENT_TEST_STARTER";

/// The child process of the tests in this file. Does nothing without its variable.
#[tokio::test]
async fn starter_process() -> anyhow::Result<()> {
    let Some(place) = std::env::var_os(STARTER).map(PathBuf::from) else { return Ok(()) };
    let own = place.join("bwrap");
    let mut config = config(&place.join("root"));
    if own.exists() {
        config.bwrap = own;
    }
    let host = Host::new(config)?;
    host.start(spec(&place, "a", "sleep 1000 & exec sleep 1000")).await?;
    std::fs::write(place.join("started"), "")?;
    std::future::pending().await
}

fn starter(place: &Place) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "lifetime::starter_process"]).env(STARTER, place.dir.path());
    let output = std::fs::File::create(place.dir.path().join("said"))?;
    Ok(command.stdout(output.try_clone()?).stderr(output).spawn()?)
}

/// Waits until `so` returns true. If the starter has ended, the error contains its output.
async fn begins(place: &Place, child: &mut Child, so: impl Fn() -> bool) -> anyhow::Result<()> {
    until("it begins", || so() || !matches!(child.try_wait(), Ok(None))).await?;
    if let Some(status) = child.try_wait()? {
        anyhow::bail!("the starter ended: {status}: {}", std::fs::read_to_string(place.dir.path().join("said"))?);
    }
    Ok(())
}

#[tokio::test]
async fn a_sandbox_outlives_its_starter_and_is_found_again() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut child = starter(&place)?;
    begins(&place, &mut child, || place.dir.path().join("started").exists()).await?;
    child.kill()?;
    child.wait()?;
    let found = place.host.list().await?;
    let [sandbox] = found.as_slice() else { anyhow::bail!("{found:?}") };
    assert!(sandbox.is_alive() && sandbox.id == "a" && sandbox.nonce.len() == 32);
    running(sandbox, 5).await?;
    place.host.end("a").await?;
    assert!(!sandbox.is_alive());
    assert_eq!(remains(&sandbox.dir), Vec::<String>::new());
    Ok(())
}

/// Waits until a sandbox has at least `count` processes, and returns them.
async fn running(sandbox: &Sandbox, count: usize) -> anyhow::Result<Vec<i32>> {
    let enough = async {
        loop {
            let pids = sandbox.pids().await;
            if pids.len() >= count {
                return pids;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(Duration::from_secs(60), enough).await
}

/// Kills the starter at many moments of a start. A sweep finds everything that exists then.
#[tokio::test]
async fn a_start_killed_at_any_point_leaves_nothing_after_a_sweep() -> anyhow::Result<()> {
    let place = Place::new()?;
    let dir = place.dir.path().join("root/a");
    let mut states = HashSet::new();
    for delay in 0..40 {
        let mut child = starter(&place)?;
        // Half of the delays count from the start of the process, the other half from the moment the directory exists.
        if delay % 2 == 1 {
            begins(&place, &mut child, || dir.exists()).await?;
        }
        std::thread::sleep(Duration::from_micros(delay * 800));
        child.kill()?;
        child.wait()?;
        states.insert(remains(&dir).len());
        place.host.sweep(&HashSet::new()).await?;
        // A process that was forked and has not executed its program yet ends by itself soon.
        let gone = until(&format!("nothing is left after {delay} steps"), || remains(&dir).is_empty()).await;
        gone.with_context(|| format!("left: {:?}", remains(&dir)))?;
        assert_eq!(claims(&dir), 0, "after {delay} steps");
        std::fs::remove_file(place.dir.path().join("started")).ok();
    }
    assert!(states.len() > 1, "the starter was always killed at the same moment");
    Ok(())
}

/// A bubblewrap that never reports its start: the starter waits for the report, and bubblewrap waits for the gate.
const SILENT: &str = r#"#!/bin/sh
count=$#
while [ $count -gt 0 ]; do
    if [ "$1" = --info-fd ]; then shift 2; count=$((count - 2)); else set -- "$@" "$1"; shift; count=$((count - 1)); fi
done
exec /usr/bin/bwrap "$@"
"#;

#[tokio::test]
async fn a_start_whose_starter_ends_ends_too() -> anyhow::Result<()> {
    let place = Place::new()?;
    let (dir, bwrap) = (place.dir.path().join("root/a"), place.dir.path().join("bwrap"));
    std::fs::write(&bwrap, SILENT)?;
    std::fs::set_permissions(&bwrap, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut child = starter(&place)?;
    let processes = || remains(&dir).into_iter().filter(|found| found.starts_with("process")).count();
    // bubblewrap outside, and inside where it waits for the gate.
    begins(&place, &mut child, || processes() >= 2).await?;
    child.kill()?;
    child.wait()?;
    until("nothing of it runs", || processes() == 0).await?;
    place.host.sweep(&HashSet::new()).await?;
    assert_eq!(remains(&dir), Vec::<String>::new());
    Ok(())
}

/// Returns the number of host users that are claimed for a sandbox.
fn claims(dir: &std::path::Path) -> usize {
    let claims = std::fs::read_dir("/run/casement/uids").into_iter().flatten().flatten();
    claims.filter(|claim| std::fs::read_to_string(claim.path()).is_ok_and(|text| text == dir.to_string_lossy())).count()
}

#[tokio::test]
async fn ending_a_sandbox_ends_every_process_of_it() -> anyhow::Result<()> {
    let place = Place::new()?;
    let hidden = "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' &) ; \
        unshare --user --pid --fork sh -c 'sleep 1000 & sleep 1000' & kill -STOP $$; sleep 1000";
    let sandbox = place.host.start(place.script("a", hidden)).await?;
    let pids = running(&sandbox, 9).await?;
    let groups = groups(&sandbox)?;
    assert!(sandbox.memory == MemoryLimit::None || !groups.is_empty());
    place.host.end("a").await?;
    for pid in pids {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z"), "{state}");
    }
    assert_eq!(remains(&sandbox.dir), Vec::<String>::new());
    assert!(!groups.iter().any(|group| group.exists()));
    Ok(())
}

#[tokio::test]
async fn ending_a_sandbox_twice_or_an_unknown_one_is_no_error() -> anyhow::Result<()> {
    let place = Place::new()?;
    place.host.start(place.script("a", "exec sleep 1000")).await?;
    let (one, two) = tokio::join!(place.host.end("a"), place.host.end("a"));
    one?;
    two?;
    place.host.end("a").await?;
    place.host.end("never").await?;
    assert!(matches!(place.host.end("../root").await, Err(EndError::InvalidId(_))));
    Ok(())
}

#[tokio::test]
async fn a_program_that_ends_takes_its_sandbox_along_and_stays_listed() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = "sleep 1000 & unshare --user --pid --fork sleep 1000 & sleep 0.05; exit 0";
    let sandbox = place.host.start(place.script("a", script)).await?;
    let (one, two) = tokio::join!(sandbox.exited(), sandbox.exited());
    one?;
    two?;
    assert!(!sandbox.is_alive());
    let gone = async {
        while !sandbox.pids().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(Duration::from_secs(60), gone).await?;
    let listed: Vec<bool> = place.host.list().await?.iter().map(|found| found.is_alive()).collect();
    assert_eq!(listed, [false]);
    Ok(())
}

#[tokio::test]
async fn a_sweep_ends_all_but_the_listed_sandboxes() -> anyhow::Result<()> {
    let place = Place::new()?;
    let spared = place.host.start(place.script("kept", "exec sleep 1000")).await?;
    let other = place.host.start(place.script("other", "exec sleep 1000")).await?;
    // The remains of a start that was killed before it wrote anything.
    std::fs::create_dir(place.dir.path().join("root/half"))?;
    let keep = HashSet::from(["kept".to_owned(), "half".to_owned()]);
    let mut ended = place.host.sweep(&keep).await?;
    ended.sort();
    assert_eq!(ended, ["half", "other"]);
    assert!(spared.is_alive() && !other.is_alive());
    Ok(())
}

#[tokio::test]
async fn a_sweep_leaves_starting_sandboxes_alone() -> anyhow::Result<()> {
    let place = Place::new()?;
    let sweeps = async {
        for _ in 0..20 {
            place.host.sweep(&HashSet::from(["a".to_owned()])).await?;
        }
        anyhow::Ok(())
    };
    let (started, swept) = tokio::join!(place.host.start(place.script("a", "exec sleep 1000")), sweeps);
    swept?;
    assert!(started?.is_alive());
    Ok(())
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_no_sandbox() -> anyhow::Result<()> {
    let place = Place::new()?;
    let dir = place.dir.path().join("root/a");
    let start = place.host.start(place.script("a", "exec sleep 1000"));
    assert!(tokio::time::timeout(Duration::from_millis(2), start).await.is_err());
    tokio::time::sleep(Duration::from_millis(1)).await;
    until("nothing is left of it", || remains(&dir).is_empty()).await?;
    // The start may not have begun yet, so a later start of the same id is the proof.
    let again = async {
        loop {
            match place.host.start(place.script("a", "exec sleep 1000")).await {
                Err(StartError::Exists(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => break other,
            }
        }
    };
    assert!(within(Duration::from_secs(60), again).await??.is_alive());
    Ok(())
}

#[tokio::test]
async fn a_taken_id_is_refused_and_its_holder_unharmed() -> anyhow::Result<()> {
    let place = Place::new()?;
    let first = place.host.start(place.script("a", "exec sleep 1000")).await?;
    let second = place.host.start(place.script("a", "exec sleep 1000")).await;
    assert!(matches!(second, Err(StartError::Exists(id)) if id == "a"));
    assert!(first.is_alive());
    Ok(())
}

#[tokio::test]
async fn a_failed_start_reports_why_and_leaves_nothing() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut missing_program = place.script("a", "true");
    missing_program.program = "/no/such/program".into();
    let mut missing_path = place.script("a", "true");
    missing_path.read_only.push("/no/such/path".into());
    let mut bad_id = place.script("a", "true");
    bad_id.id = "../a".to_owned();
    for (spec, reason) in [(missing_program, "/no/such/program"), (missing_path, "/no/such/path"), (bad_id, "id: ")] {
        let Err(error) = place.host.start(spec).await else { anyhow::bail!("it started in spite of {reason}") };
        assert!(error.to_string().contains(reason), "{error}");
        let dir = place.dir.path().join("root/a");
        assert_eq!((remains(&dir), claims(&dir)), (vec![], 0));
    }
    Ok(())
}

#[tokio::test]
async fn a_sandbox_keeps_the_program_of_its_start() -> anyhow::Result<()> {
    let place = Place::new()?;
    let program = place.dir.path().join("program");
    std::fs::copy("/usr/bin/dash", &program)?;
    let mut spec = place.script("a", "kill -STOP $$; exec /run/casement/program -c 'echo the old one'");
    spec.program = program.clone();
    let sandbox = place.host.start(spec).await?;
    std::fs::copy("/usr/bin/false", &program)?;
    let stopped = async {
        loop {
            for pid in sandbox.pids().await {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                if stat.contains(") T ") {
                    return pid;
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let pid = within(Duration::from_secs(60), stopped).await?;
    assert!(Command::new("/usr/bin/kill").args(["-CONT", &pid.to_string()]).status()?.success());
    within(Duration::from_secs(60), sandbox.exited()).await??;
    assert_eq!(sandbox.log().as_deref(), Some("the old one\n"));
    Ok(())
}

#[tokio::test]
async fn eight_concurrent_starts_are_eight_sandboxes_of_different_users() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut starts = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (host, spec) = (place.host.clone(), place.script(&format!("s{n}"), "exec sleep 1000"));
        starts.spawn(async move { host.start(spec).await });
    }
    let started = starts.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let users: HashSet<_> = started.iter().map(|sandbox| sandbox.host_uid).collect();
    let as_root = rustix::process::geteuid().is_root();
    assert_eq!((users.len(), started.iter().all(|s| s.is_alive())), (if as_root { 8 } else { 1 }, true));
    Ok(())
}
