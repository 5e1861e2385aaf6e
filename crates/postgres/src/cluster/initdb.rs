//! Creates a data directory and writes its configuration.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::account::Account;
use super::binaries::Binaries;
use super::error::{ClusterError, IoContext};
use super::guarded;

/// The database role that owns everything in a private cluster.
pub const ROLE: &str = "casement";

/// Whether committed data must survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Committed data survives.
    Durable,
    /// For the throwaway clusters of tests: faster, but not safe.
    #[cfg(feature = "testing")]
    Throwaway,
}

/// The major version that created the data directory, or `None` if that is missing or empty.
pub(super) fn version_of(data_dir: &Path) -> Result<Option<String>, ClusterError> {
    match guarded::read_small(&data_dir.join("PG_VERSION")) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let filled = fs::read_dir(data_dir).is_ok_and(|mut entries| entries.next().is_some());
            if filled { Err(ClusterError::NotACluster(data_dir.to_owned())) } else { Ok(None) }
        }
        Err(error) => Err(error).on("reading", &data_dir.join("PG_VERSION")),
    }
}

/// Creates the cluster in a directory beside the final one, and renames it. A start that is killed in between leaves
/// only an unfinished directory, which the next start removes.
pub(crate) fn initdb(
    binaries: &Binaries,
    account: &Account,
    data_dir: &Path,
    durability: Durability,
) -> Result<(), ClusterError> {
    let unfinished = data_dir.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).on("clearing away", &unfinished)?;
    }
    DirBuilder::new().mode(0o700).create(&unfinished).on("making", &unfinished)?;
    account.give(guarded::open_dir(&unfinished).on("opening", &unfinished)?, &unfinished)?;
    let mut command = account.command(&binaries.program("initdb"));
    command.arg("--pgdata").arg(&unfinished).arg("--username").arg(ROLE);
    command.args(["--encoding=UTF8", "--auth-local=trust", "--auth-host=reject", "--no-instructions"]);
    command.arg(format!("--locale={}", locale()));
    if durability != Durability::Durable {
        command.arg("--no-sync");
    }
    let printed = command.output().on("running initdb for", &unfinished)?;
    if !printed.status.success() {
        let output = String::from_utf8_lossy(&printed.stderr).trim().chars().take(2000).collect();
        return Err(ClusterError::Initdb { data_dir: data_dir.to_owned(), output });
    }
    match fs::remove_dir(data_dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).on("replacing", data_dir),
        _ => {}
    }
    fs::rename(&unfinished, data_dir).on("moving into place", data_dir)?;
    sync_directory(data_dir.parent().unwrap_or(Path::new("/")))
}

/// The default locale. Indexes that depend on a locale name their ICU collation, so this one only makes non-ASCII
/// characters count as letters.
fn locale() -> &'static str {
    if Path::new("/usr/lib/locale/C.utf8").exists() { "C.UTF-8" } else { "C" }
}

fn sync_directory(dir: &Path) -> Result<(), ClusterError> {
    File::open(dir).and_then(|dir| dir.sync_all()).on("syncing", dir)
}

/// Writes `postgresql.conf`. Called at each start, so that the settings of a new version apply.
pub(crate) fn write_configuration(
    data_dir: &Path,
    socket_dir: &Path,
    account: &Account,
    durability: Durability,
) -> Result<(), ClusterError> {
    let (name, next_name) = ("postgresql.conf", "postgresql.conf.next");
    let next = data_dir.join(next_name);
    let dir = guarded::open_dir(data_dir).on("opening", data_dir)?;
    match rustix::fs::unlinkat(&dir, next_name, AtFlags::empty()) {
        Err(error) if error != rustix::io::Errno::NOENT => return Err(error).on("clearing away", &next),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, next_name, flags, Mode::RUSR | Mode::WUSR).on("making", &next)?;
    let mut file = File::from(file);
    file.write_all(configuration(socket_dir, durability).as_bytes()).on("writing", &next)?;
    file.sync_all().on("syncing", &next)?;
    account.give(&file, &next)?;
    rustix::fs::renameat(&dir, next_name, &dir, name).on("moving into place", &data_dir.join(name))
}

fn configuration(socket_dir: &Path, durability: Durability) -> String {
    let safe = if durability == Durability::Durable { "on" } else { "off" };
    format!(
        "\
# Written by casement at each start. Put settings of your own into operator.conf beside this file.
listen_addresses = ''
unix_socket_directories = '{socket_dir}'
unix_socket_permissions = 0700
port = 5432
max_connections = 100
fsync = {safe}
synchronous_commit = {safe}
full_page_writes = {safe}
shared_buffers = '48MB'
work_mem = '4MB'
maintenance_work_mem = '32MB'
min_wal_size = '80MB'
max_wal_size = '512MB'
wal_level = minimal
max_wal_senders = 0
jit = off
max_parallel_workers_per_gather = 0
autovacuum_max_workers = 2
idle_in_transaction_session_timeout = '60s'
timezone = 'UTC'
log_timezone = 'UTC'
# Only what concerns the cluster as a whole: no statements and no values, which may be secret.
log_min_messages = log
log_min_error_statement = panic
log_parameter_max_length_on_error = 0
log_error_verbosity = terse
log_checkpoints = off
include_if_exists = 'operator.conf'
",
        socket_dir = socket_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// A process of the account can replace any name in its directory at any time.
    #[test]
    fn links_in_the_data_directory_lead_the_configuration_nowhere() -> Result<(), Box<dyn std::error::Error>> {
        let account = Account::choose()?;
        let home = tempfile::tempdir()?;
        let (data_dir, outside) = (home.path().join("data"), home.path().join("outside"));
        fs::create_dir(&data_dir)?;
        fs::write(&outside, "untouched")?;
        let before = fs::metadata(&outside)?.uid();
        for name in ["postgresql.conf", "postgresql.conf.next"] {
            symlink(&outside, data_dir.join(name))?;
        }
        write_configuration(&data_dir, home.path(), &account, Durability::Durable)?;
        let written = fs::symlink_metadata(data_dir.join("postgresql.conf"))?;
        assert!(written.is_file());
        assert_eq!((written.uid(), written.mode() & 0o777), (account.uid, 0o600));
        assert_eq!((fs::read_to_string(&outside)?.as_str(), fs::metadata(&outside)?.uid()), ("untouched", before));
        symlink(&data_dir, home.path().join("link"))?;
        assert!(write_configuration(&home.path().join("link"), home.path(), &account, Durability::Durable).is_err());
        Ok(())
    }

    /// `give` changes the open file, not the file that its name leads to meanwhile.
    #[test]
    fn a_file_is_handed_over_by_what_is_open_and_not_by_its_name() -> Result<(), Box<dyn std::error::Error>> {
        let account = Account::choose()?;
        let home = tempfile::tempdir()?;
        let (next, outside) = (home.path().join("next"), home.path().join("outside"));
        fs::write(&outside, "")?;
        let before = fs::metadata(&outside)?.uid();
        let open = File::create_new(&next)?;
        fs::remove_file(&next)?;
        symlink(&outside, &next)?;
        account.give(&open, &next)?;
        assert_eq!((open.metadata()?.uid(), fs::metadata(&outside)?.uid()), (account.uid, before));
        Ok(())
    }
}
