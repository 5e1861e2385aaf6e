//! Runs the tests without root.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::ensure;
use casement_sandbox::{Host, HostError};

use crate::support::{config, program_in};

/// Runs every other test of this program again as an unprivileged user, if this test runs as root.
#[tokio::test]
async fn all_tests_pass_for_an_ordinary_user_too() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        // The other tests run as an unprivileged user already.
        return Ok(());
    }
    let open = std::fs::Permissions::from_mode(0o755);
    let dir = tempfile::Builder::new().permissions(open).tempdir_in("/tmp")?;
    let program = program_in(dir.path())?;
    let ran = Command::new("/usr/bin/setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"])
        .arg(&program)
        .env("RUST_BACKTRACE", "0")
        .current_dir("/")
        .output()?;
    ensure!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    Ok(())
}

#[test]
fn a_root_that_the_sandboxes_users_cannot_reach_is_refused_with_the_remedy() -> anyhow::Result<()> {
    let closed = tempfile::tempdir_in("/tmp")?;
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700))?;
    let made = Host::new(config(&closed.path().join("root")));
    match made {
        Err(error @ HostError::NotTraversable { .. }) => assert!(error.to_string().contains("chmod o+x")),
        Ok(_) => ensure!(!rustix::process::geteuid().is_root(), "accepted as root"),
        Err(other) => return Err(other.into()),
    }
    Ok(())
}
