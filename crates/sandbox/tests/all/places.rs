//! Tests of the directory of control groups of version 2, depending on the group in which the server of an ordinary
//! user is started. They need root and version 2, and pass otherwise.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use casement_sandbox::MemoryLimit;

use crate::support::{Place, groups, program_in};

const UNPRIVILEGED_USER: u32 = 65534;
const QUERY: &str = "CASEMENT_TEST_ASKED_FOR_LIMIT";

/// A control group of a test. `Drop` removes it with the groups below it.
struct Group(PathBuf);

impl Group {
    /// Creates a group beside those of sandboxes, so that it has a memory controller; `None` if this machine has none.
    async fn new(name: &str) -> anyhow::Result<Option<Self>> {
        let place = Place::new()?;
        if !rustix::process::geteuid().is_root() || place.host.memory_limit() != MemoryLimit::CgroupV2 {
            return Ok(None);
        }
        let sandbox = place.host.start(place.script("a", "exec sleep 1000")).await?;
        let beside =
            groups(&sandbox)?.first().and_then(|group| group.ancestors().nth(2)).context("no group")?.to_owned();
        let group = Self(beside.join(format!("test-{name}-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        Ok(Some(group))
    }

    /// Returns the kind of memory limit of a server that an unprivileged user starts in this group, or in one below it.
    fn limit_in(&self, below: &str) -> anyhow::Result<String> {
        let group = self.0.join(below);
        fs::create_dir_all(&group)?;
        // The test program may be in a directory that other users cannot enter.
        let dir = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir_in("/tmp")?;
        let program = program_in(dir.path())?;
        let enter = r#"echo $$ >"$0/cgroup.procs" && exec "$@""#;
        let query = Command::new("/bin/sh")
            .args(["-c", enter])
            .arg(group)
            .args([
                "/usr/bin/setpriv",
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--bounding-set=-all",
                "--",
            ])
            .arg(program)
            .args(["--exact", "--nocapture", "places::limiting_group"])
            .env(QUERY, "1")
            .current_dir("/")
            .output()?;
        let printed = String::from_utf8_lossy(&query.stdout).into_owned();
        ensure!(query.status.success(), "{printed}{}", String::from_utf8_lossy(&query.stderr));
        Ok(printed.split_once("limit: ").and_then(|(_, rest)| rest.lines().next()).unwrap_or_default().to_owned())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while !removed(&self.0) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn removed(group: &Path) -> bool {
    let below = fs::read_dir(group).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    below.for_each(|entry| {
        removed(&entry.path());
    });
    fs::remove_dir(group).is_ok()
}

/// Delegates a group to an unprivileged user, like systemd does.
fn delegate(group: &Path) -> anyhow::Result<()> {
    chown(group, Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER))?;
    for file in ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        chown(group.join(file), Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER))?;
    }
    Ok(())
}

/// The child process that the tests in this file run in other groups.
#[test]
fn limiting_group() -> anyhow::Result<()> {
    if std::env::var_os(QUERY).is_some() {
        println!("limit: {:?}", Place::new()?.host.memory_limit());
    }
    Ok(())
}

#[tokio::test]
async fn a_server_leaves_the_control_group_that_was_delegated_to_it() -> anyhow::Result<()> {
    let Some(group) = Group::new("aside").await? else { return Ok(()) };
    delegate(&group.0)?;
    assert_eq!(group.limit_in("")?, "CgroupV2");
    assert!(group.0.join("server").exists());
    Ok(())
}

#[tokio::test]
async fn a_control_group_without_permission_to_move_processes_is_not_used() -> anyhow::Result<()> {
    let Some(group) = Group::new("refused").await? else { return Ok(()) };
    let given = group.0.join("casement");
    fs::write(group.0.join("cgroup.subtree_control"), "+memory")?;
    fs::create_dir(&given)?;
    delegate(&given)?;
    assert_eq!(group.limit_in("elsewhere")?, "None");
    Ok(())
}
