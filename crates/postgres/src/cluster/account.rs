//! The account that runs PostgreSQL: the current user, or an unprivileged account if that is root.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::thread::{CapabilitySet, capabilities};

use super::binaries::Binaries;
use super::error::{ClusterError, IoContext};

/// The accounts to use, in this order: Casement's own, that of the distribution's PostgreSQL package. Never `nobody`,
/// which other daemons share: each of them could read the whole database.
const CANDIDATES: [&str; 2] = ["casement", "postgres"];

/// An account to run PostgreSQL as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name of the account, for messages.
    pub name: String,
    /// The user id, never 0.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// Whether commands must switch to the account.
    switch: bool,
}

impl Account {
    /// The current user, or for root the first of `casement` and `postgres` that exists.
    ///
    /// # Errors
    /// [`ClusterError::NoAccount`] if the current user is root and neither account exists.
    pub fn choose() -> Result<Self, ClusterError> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        if !uid.is_root() {
            let (uid, gid) = (uid.as_raw(), gid.as_raw());
            return Ok(Self { name: format!("uid {uid}"), uid, gid, switch: false });
        }
        let accounts = fs::read_to_string("/etc/passwd").on("reading", Path::new("/etc/passwd"))?;
        Self::among(&accounts)
    }

    /// The first candidate in the text of `/etc/passwd`.
    fn among(accounts: &str) -> Result<Self, ClusterError> {
        let found = CANDIDATES.iter().find_map(|name| Self::parse(accounts, name));
        found.ok_or(ClusterError::NoAccount)
    }

    /// Parses one account of the text of `/etc/passwd`.
    fn parse(accounts: &str, wanted: &str) -> Option<Self> {
        accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next().filter(|name| *name == wanted)?;
            let uid = fields.nth(1)?.parse().ok().filter(|uid| *uid != 0)?;
            let gid = fields.next()?.parse().ok()?;
            Some(Self { name: name.to_owned(), uid, gid, switch: true })
        })
    }

    /// A command that runs as this account, with a minimal environment, no supplementary groups and a process group of
    /// its own, so that signals to the group of this process do not reach it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").env("TZ", "UTC");
        command.stdin(Stdio::null()).process_group(0).current_dir("/");
        if self.switch {
            // As root the standard library also clears the supplementary groups.
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Changes the owner of an open file to the account, unless that is the current user. `path` is for the message
    /// only, since it may lead to another file by now.
    pub(crate) fn give(&self, open: impl AsFd, path: &Path) -> Result<(), ClusterError> {
        if self.switch { fchown(open, Some(self.uid), Some(self.gid)).on("handing over", path) } else { Ok(()) }
    }

    /// Refuses a data directory that another account owns.
    pub(crate) fn check_owner(&self, path: &Path) -> Result<(), ClusterError> {
        let owner = fs::symlink_metadata(path).on("looking at", path)?.uid();
        if owner == self.uid {
            return Ok(());
        }
        Err(ClusterError::ForeignOwner { path: path.to_owned(), owner, account: self.name.clone() })
    }

    /// Checks that the account can enter the parent of the data directory, by running a command there as the account.
    pub(crate) fn check_reach(&self, binaries: &Binaries, data_dir: &Path) -> Result<(), ClusterError> {
        let parent = data_dir.parent().unwrap_or(Path::new("/"));
        let mut probe = self.command(&binaries.program("postgres"));
        probe.arg("--version").current_dir(parent).stdout(Stdio::null()).stderr(Stdio::null());
        match probe.status() {
            Ok(status) if status.success() => Ok(()),
            Err(refused) if refused.kind() == std::io::ErrorKind::PermissionDenied => {
                let blocked = self.first_closed(parent);
                Err(ClusterError::NotTraversable { account: self.name.clone(), blocked })
            }
            Ok(status) => Err(std::io::Error::other(status.to_string())).on("running postgres near", parent),
            Err(other) => Err(other).on("running postgres near", parent),
        }
    }

    /// Checks that this process can tell its PostgreSQL from other processes: by its working directory, which root reads of a
    /// process of another account with the capability `SYS_PTRACE` only. Containers have root without it.
    pub(crate) fn check_capability(&self) -> Result<(), ClusterError> {
        let held =
            capabilities(None).map_err(io::Error::from).on("reading the capabilities of", Path::new("/proc/self"))?;
        let suffices = !self.switch || held.effective.contains(CapabilitySet::SYS_PTRACE);
        if suffices { Ok(()) } else { Err(ClusterError::NoCapability) }
    }

    /// The outermost directory of the path whose mode denies access to the account.
    fn first_closed(&self, path: &Path) -> PathBuf {
        let mut way: Vec<&Path> = path.ancestors().collect();
        way.reverse();
        let closed = way.into_iter().find(|dir| {
            fs::metadata(dir).is_ok_and(|meta| {
                let bit = if meta.uid() == self.uid {
                    0o100
                } else if meta.gid() == self.gid {
                    0o010
                } else {
                    0o001
                };
                meta.mode() & bit == 0
            })
        });
        closed.unwrap_or(path).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::{Account, ClusterError};

    #[test]
    fn an_account_is_read_by_its_whole_name_and_never_as_root() {
        let accounts =
            "root:x:0:0::/root:/bin/sh\npostgres2:x:7:7::/:/bin/sh\npostgres:x:101:104:,,,:/var/lib:/bin/sh\n";
        let expected = Account { name: "postgres".into(), uid: 101, gid: 104, switch: true };
        assert_eq!(Account::parse(accounts, "postgres"), Some(expected));
        assert_eq!(Account::parse(accounts, "casement"), None);
        assert_eq!(Account::parse(accounts, "root"), None);
    }

    #[test]
    fn our_own_account_is_preferred_and_one_that_daemons_share_never_taken() -> Result<(), ClusterError> {
        let (shared, package) = ("nobody:x:65534:65534::/:/bin/sh\n", "postgres:x:101:104::/:/bin/sh\n");
        let own = "casement:x:990:990::/:/bin/sh\n";
        assert_eq!(Account::among(&format!("{shared}{package}{own}"))?.name, "casement");
        assert_eq!(Account::among(&format!("{shared}{package}"))?.name, "postgres");
        let refused = Account::among(shared).map_err(|refused| refused.to_string());
        assert!(refused.is_err_and(|text| text.contains("useradd --system casement") && text.contains("`postgresql`")));
        Ok(())
    }

    #[test]
    fn only_a_switch_of_accounts_needs_the_capability_sys_ptrace() {
        let account = |switch| Account { name: "postgres".into(), uid: 101, gid: 104, switch };
        // Capabilities belong to a thread.
        let checks = std::thread::spawn(move || {
            let mut held = capabilities(None).expect("a thread reads its own");
            held.effective.remove(CapabilitySet::SYS_PTRACE);
            set_capabilities(None, held).expect("a thread may drop its own");
            [true, false].map(|switch| account(switch).check_capability())
        });
        let [switched, own] = checks.join().expect("nothing panics");
        assert!(switched.is_err_and(|refused| refused.to_string().contains("--cap-add SYS_PTRACE")));
        assert!(own.is_ok());
    }
}
