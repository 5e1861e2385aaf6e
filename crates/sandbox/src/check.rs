//! Checks the capabilities of a host for sandboxes, with results for people.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::host::{Host, SETSID, barrier};
use crate::layout;
use crate::network::{self, UNSHARE};
use crate::record::MemoryLimit;

const TIMEOUT: Duration = Duration::from_secs(10);

const NAMESPACES: &str = "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1 \
    user.max_user_namespaces=10000 kernel.apparmor_restrict_unprivileged_userns=0 (those of them that exist); in a \
    container, allow the system calls clone, unshare and mount for it";

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The subject of the check.
    pub name: &'static str,
    /// True if the requirement is met.
    pub ok: bool,
    /// The result, as text.
    pub detail: String,
    /// The remedy for a problem, if there is one.
    pub remedy: Option<String>,
}

impl Check {
    /// Returns a successful check, or a failed one with its reason and remedy.
    #[must_use]
    pub fn new(name: &'static str, found: Result<String, String>, remedy: &str) -> Self {
        let ok = found.is_ok();
        let detail = found.unwrap_or_else(|why| why);
        Self { name, ok, detail, remedy: (!ok).then(|| remedy.to_owned()) }
    }
}

impl Host {
    /// Checks everything that a sandbox needs of this host.
    pub async fn checks(&self) -> Vec<Check> {
        let config = self.config();
        let util_linux = "install the package util-linux";
        let mut checks = vec![Check::new("bubblewrap", version(&config.bwrap).await, "install the package bubblewrap")];
        checks.push(Check::new("setsid", version(Path::new(SETSID)).await, util_linux));
        if self.as_root() {
            checks.push(Check::new("setpriv", version(&config.setpriv).await, util_linux));
            checks.push(self.host_users());
        }
        checks.push(self.parents());
        checks.push(Check::new("user namespaces", self.inside(&[], &["/usr/bin/true"]).await, NAMESPACES));
        let nested = self.inside(&[], &[UNSHARE, "--user", "--map-root-user", "/usr/bin/true"]).await;
        checks.push(Check::new("nested user namespaces", nested, NAMESPACES));
        let network = self.inside(&network::namespaces(), &["/usr/bin/true"]).await;
        checks.push(Check::new("networks that are prepared", network, NAMESPACES));
        checks.push(self.memory());
        checks.push(self.processors());
        checks.push(self.control_group());
        checks
    }

    /// Runs a program in the namespaces of a sandbox, without a sandbox's directory. If `network` is not empty, it is
    /// the command that creates the network.
    async fn inside(&self, network: &[&str], program: &[&str]) -> Result<String, String> {
        let user = self.as_root().then_some(self.last_user());
        let mut command = self.starter(user);
        command.args(network).arg(&self.config().bwrap);
        command
            .args(layout::isolation(!network.is_empty()).words())
            .arg("--")
            .args(program)
            .env_clear()
            .current_dir("/");
        run(command).await.map(|_| "work".to_owned())
    }

    /// Returns the last host user of the range. Sandboxes take the first free one, and the end of a sandbox kills every
    /// process of its user: a check as the first user would be killed by the end of a sandbox of any server.
    fn last_user(&self) -> u32 {
        self.config().uid_base + self.config().uid_count - 1
    }

    fn parents(&self) -> Check {
        let root = &self.config().root;
        let remedy =
            format!("make every parent of {} traversable (chmod o+x), or choose another place", root.display());
        let found = match barrier(root).filter(|_| self.as_root()) {
            Some(parent) => Err(format!("{} is closed to other users", parent.display())),
            None => Ok(format!("{} can be reached", root.display())),
        };
        Check::new("parents of the sandboxes' directory", found, &remedy)
    }

    fn processors(&self) -> Check {
        let (detail, remedy) = match self.controllers().share_processors() {
            true => ("a share for each session, by control groups", None),
            false => (
                "no control group can be made for them: a session that starts many programs takes what others want",
                Some("let Casement make control groups of the controller cpu, see docs/configuration.md"),
            ),
        };
        Check { name: "processors", ok: true, detail: detail.to_owned(), remedy: remedy.map(str::to_owned) }
    }

    fn memory(&self) -> Check {
        let (detail, remedy) = match self.controllers().memory() {
            MemoryLimit::CgroupV2 => ("control groups, version 2", None),
            MemoryLimit::CgroupV1 => ("control groups, version 1", None),
            MemoryLimit::None => (
                "no control group can be made: the server watches the memory instead, and less exactly",
                Some(
                    "delegate a control group (systemd: Delegate=yes and, from version 254, DelegateSubgroup=server; \
                     in a container: a /sys/fs/cgroup of its own that can be written), see docs/configuration.md; \
                     asked in a shell, this is about the shell's group, not about a service's",
                ),
            ),
        };
        Check { name: "memory limits", ok: true, detail: detail.to_owned(), remedy: remedy.map(str::to_owned) }
    }

    /// Says what the control groups of this process leave for sandboxes.
    fn control_group(&self) -> Check {
        let groups = self.own_groups();
        let bounds = [
            groups.memory_bytes().map(|bytes| format!("{} MiB of memory", bytes >> 20)),
            groups.pids().map(|pids| format!("{pids} processes and threads")),
        ];
        let bounds: Vec<String> = bounds.into_iter().flatten().collect();
        let detail = match groups.sessions() {
            Some(sessions) => format!("at most {}: room for {sessions} idle sessions", bounds.join(" and ")),
            None => "no limit of memory or processes".to_owned(),
        };
        Check { name: "control group", ok: true, detail, remedy: None }
    }

    fn host_users(&self) -> Check {
        let (first, last) = (self.config().uid_base, self.last_user());
        let given = ["/etc/subuid", "/etc/subgid"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let overlap = given.iter().flat_map(|text| text.lines()).find(|line| overlaps(line, first, last));
        let found = match overlap {
            Some(line) => Err(format!("{first} to {last} are also given away as {line}")),
            None => Ok(format!("{first} to {last}")),
        };
        Check::new("host users", found, "choose another range for the sandboxes")
    }
}

/// Returns true if a line of `/etc/subuid` (`name:first:count`) assigns a part of the range.
fn overlaps(line: &str, first: u32, last: u32) -> bool {
    let mut fields = line.split(':').skip(1).map(|field| field.trim().parse::<u64>());
    let (Some(Ok(start)), Some(Ok(count))) = (fields.next(), fields.next()) else { return false };
    count > 0 && start <= u64::from(last) && start + count > u64::from(first)
}

/// Returns the version that a program of this host prints.
///
/// # Errors
/// The reason why there is no version. The timeout of the program is ten seconds.
pub async fn version(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.arg("--version");
    run(command).await
}

async fn run(mut command: Command) -> Result<String, String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = done.map_err(|_| format!("no answer in {} seconds", TIMEOUT.as_secs()))?.map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match (output.status.success(), text(&output.stderr)) {
        (true, _) => Ok(text(&output.stdout)),
        (false, why) if why.is_empty() => Err(output.status.to_string()),
        (false, why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::overlaps;

    #[test]
    fn only_a_range_that_shares_a_user_overlaps() {
        assert!(overlaps("a:165536:65536", 210_000, 219_999));
        assert!(!overlaps("a:100000:65536", 210_000, 219_999));
        assert!(!overlaps("a:220000:1", 210_000, 219_999));
        assert!(!overlaps("nonsense", 210_000, 219_999));
    }
}
