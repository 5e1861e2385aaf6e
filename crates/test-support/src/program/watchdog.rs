//! Ends what a test has started if the test program is killed, which closes a pipe.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use super::places::program;

/// Ends a server and its sessions. A server that has already ended
/// is started again, because only a server ends sandboxes.
const IN_ORDER: &str = r#"
read -r cleaned && exit 0
stop() { "$PROGRAM" stop --end-sessions --data-dir "$ROOT/data" 2>/dev/null; }
if ! stop; then
  "$PROGRAM" serve --listen 127.0.0.1:0 --data-dir "$ROOT/data" --no-default-pool >/dev/null 2>&1 &
  for try in $(seq 300); do stop && break; sleep 0.1; done
  wait
fi
rm -rf "$ROOT"
"#;

/// Kills every process that names the directory in its command line, its
/// working directory or its mounts, and removes what they have left: control groups, claims of users, files.
///
/// Nothing is ended in order, because a node may be stopped, and the database gone.
const GUARDIAN: &str = r#"
read -r cleaned && exit 0
mine() {
  for place in /proc/[0-9]*; do
    [ "$place" = "/proc/$$" ] && continue
    case "$(readlink "$place/cwd")" in "$ROOT"|"$ROOT"/*) echo "${place#/proc/}"; continue;; esac
    grep -qsaF "$ROOT/" "$place/cmdline" "$place/mountinfo" && echo "${place#/proc/}"
  done
}
for try in $(seq 50); do
  found=$(mine)
  [ -z "$found" ] && break
  kill -KILL $found 2>/dev/null
  sleep 0.1
done
grep -o " $ROOT/[^ ]*" /proc/self/mountinfo | sort -r | xargs -r -n 1 umount -l
for sandbox in "$ROOT"/data/*/* "$ROOT"/*/data/*/*; do
  name=${sandbox##*/}
  [ ${#name} -lt 26 ] && continue
  for groups in /sys/fs/cgroup/*/casement /sys/fs/cgroup/casement; do
    find "$groups" -mindepth 1 -depth -type d -path "*/$name*" -exec rmdir {} + 2>/dev/null
  done
done
for claim in /run/casement/uids/*; do
  case "$(cat "$claim" 2>/dev/null)" in "$ROOT"/*) rm -f "$claim";; esac
done
rm -rf "$ROOT"
"#;

/// The process that waits for the end of the test program.
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Ends one server in order.
    pub(super) fn start(root: &Path) -> anyhow::Result<Self> {
        Self::run(IN_ORDER, root)
    }

    /// Kills all processes of a directory.
    pub(super) fn guard(root: &Path) -> anyhow::Result<Self> {
        Self::run(GUARDIAN, root)
    }

    fn run(script: &str, root: &Path) -> anyhow::Result<Self> {
        let mut watchdog = Command::new("sh");
        // Not as arguments, because then the processes of the directory would include this one.
        watchdog.args(["-c", script]).env("PROGRAM", program()).env("ROOT", root).current_dir("/");
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        Ok(Self(watchdog.spawn().context("cannot start sh")?))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            drop(pipe.write_all(b"cleaned\n"));
        }
        drop(self.0.wait());
    }
}
