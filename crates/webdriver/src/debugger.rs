//! Finds out whose debugging port is at a port of this machine.
//!
//! A chromedriver of this machine names the port of the browser that it has started. A server on a loopback address may be
//! anything, for example the end of a tunnel, and could name the port of any program. So a port is asked nothing unless a
//! process listens there that has the mark of the session among its arguments: only a program of this machine can have
//! started it. The kernel tells so of processes of the same user, or of all if this program runs as root.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use casement_domain::ids::BrowserId;

use crate::capabilities::BROWSER_ARGUMENT;

/// The state of a listening socket in the kernel's table.
const LISTENING: &str = "0A";

/// Returns whether a process with the mark of the browser listens at `127.0.0.1:port`.
pub(crate) async fn is_of_browser(port: u16, browser: BrowserId) -> bool {
    let mark = format!("{BROWSER_ARGUMENT}{browser}");
    tokio::task::spawn_blocking(move || is_of_marked_process(port, &mark)).await.unwrap_or(false)
}

fn is_of_marked_process(port: u16, mark: &str) -> bool {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    let sockets = listening(&table, port);
    !sockets.is_empty() && processes().any(|process| has_argument(&process, mark) && has_socket(&process, &sockets))
}

/// Returns the sockets that listen at `127.0.0.1:port`, as links to them are written.
fn listening(table: &str, port: u16) -> HashSet<PathBuf> {
    let address = format!("{:08X}:{port:04X}", u32::from_ne_bytes([127, 0, 0, 1]));
    let inode = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        let is_listening = local == address && state == LISTENING;
        is_listening.then(|| fields.nth(5)).flatten().map(|inode| PathBuf::from(format!("socket:[{inode}]")))
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// Returns the folders of all processes that are visible here.
fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    entries.filter(move |entry| entry.file_name().to_str().is_some_and(is_process)).map(|entry| entry.path())
}

/// Returns whether a process has this argument. Chromium joins its arguments by spaces.
fn has_argument(process: &Path, argument: &str) -> bool {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    line.split(|byte| matches!(byte, 0 | b' ')).any(|one| one == argument.as_bytes())
}

fn has_socket(process: &Path, sockets: &HashSet<PathBuf>) -> bool {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| sockets.contains(&link))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_socket_of_a_port_is_found_and_belongs_to_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let sockets = || listening(&fs::read_to_string("/proc/self/net/tcp").expect("a table"), port);
        assert_eq!(sockets().len(), 1);
        assert!(has_socket(Path::new("/proc/self"), &sockets()));
        let program = std::env::args().next().expect("the name of the program");
        assert!(is_of_marked_process(port, &program), "its arguments are the mark");
        assert!(!is_of_marked_process(port, "--casement-browser=other"));
        drop(listener);
        assert!(!is_of_marked_process(port, &program));
    }

    #[test]
    fn only_a_socket_that_listens_on_loopback_counts() {
        let line = |local: &str, state: &str| {
            format!("0: {local}:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 4711 1")
        };
        let loopback = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let table = |line: String| format!("sl local_address …\n{line}\n");
        assert_eq!(listening(&table(line(&loopback, "0A")), 8080), HashSet::from([PathBuf::from("socket:[4711]")]));
        for other in [line(&loopback, "01"), line("00000000", "0A"), String::new()] {
            assert_eq!(listening(&table(other.clone()), 8080), HashSet::new(), "{other}");
        }
        assert_eq!(listening(&table(line(&loopback, "0A")), 8081), HashSet::new());
    }
}
