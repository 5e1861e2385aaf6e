//! A private cluster with the schema of the program, which servers copy: creating one takes longer than many tests.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, ensure};
use rustix::fs::{FlockOperation, flock};

use super::places::program;

/// The folder of the cluster in a data directory.
const CLUSTER: &str = "postgres";

static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();

/// Creates a data directory with a copy of the cluster.
pub(super) fn copy_to(data_dir: &Path) -> anyhow::Result<()> {
    // A failure is not stored, so that each test reports it.
    let template = match TEMPLATE.get() {
        Some(template) => template,
        None => {
            let made = template()?;
            TEMPLATE.get_or_init(|| made)
        }
    };
    fs::create_dir(data_dir)?;
    // The account of the database must be able to pass through.
    fs::set_permissions(data_dir, Permissions::from_mode(0o711))?;
    copy(template, &data_dir.join(CLUSTER))
}

/// Returns the folder of the template beside the program. Creates it if it is missing or of another build.
fn template() -> anyhow::Result<PathBuf> {
    let folder = program().with_file_name("test-cluster");
    fs::create_dir_all(&folder)?;
    // Several test programs may run at once.
    let lock = File::create(folder.join("lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let built = fs::metadata(program())?.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
    let template = folder.join(built.to_string());
    if template.exists() {
        return Ok(template);
    }
    for old in fs::read_dir(&folder)?.flatten().filter(|entry| entry.path().is_dir()) {
        fs::remove_dir_all(old.path())?;
    }
    let incomplete = folder.join("incomplete");
    create(&incomplete)?;
    fs::rename(&incomplete, &template)?;
    Ok(template)
}

/// Creates a cluster without an organization: a server migrates the schema, and ends because of its master key, before it
/// stores anything.
fn create(target: &Path) -> anyhow::Result<()> {
    // The account of the database may not be able to pass through the folder of the build.
    let open = Permissions::from_mode(0o711);
    let root = tempfile::Builder::new().prefix("casement-template-").permissions(open).tempdir_in("/tmp")?;
    let mut command = Command::new(program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(root.path().join("data")).stdin(Stdio::null());
    command.env_remove("CASEMENT_DATABASE_URL").env("CASEMENT_CONFIG", "/dev/null").env("CASEMENT_MASTER_KEY", "none");
    let output = command.output().context("cannot start the program")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(message.contains("a master key is 32 bytes"), "no cluster was created: {message}");
    copy(&root.path().join("data").join(CLUSTER), target)
}

/// Copies a folder with its owner and permissions. A third of a cluster is a log of zeros, which are not written.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status =
        Command::new("cp").args(["-a", "--sparse=always"]).args([from, to]).status().context("cannot start cp")?;
    ensure!(status.success(), "cp -a {} {}: {status}", from.display(), to.display());
    Ok(())
}
