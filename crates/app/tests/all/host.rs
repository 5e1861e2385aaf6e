//! What the tests of failures look at and break on the host: the private database, and the processes of one session.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use ulid::Ulid;

use super::support::{Process, Server, Session, processes_of};

/// Asks the server's private database. Rows are lines, columns are parted by `|`.
pub(super) fn sql(server: &Server, statement: &str) -> anyhow::Result<String> {
    let file = fs::read_to_string(server.data_dir().join("postgres/postmaster.pid")).context("no postmaster.pid")?;
    let socket_dir = file.lines().nth(4).context("no socket")?;
    let words = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "casement", "-d", "casement", "-h", socket_dir];
    let output = Command::new("psql").args(words).args(["-c", statement]).output().context("cannot start psql")?;
    ensure!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A number from the private database.
pub(super) fn count(server: &Server, statement: &str) -> anyhow::Result<u64> {
    Ok(sql(server, statement)?.parse()?)
}

/// An identifier as the database writes it.
pub(super) fn uuid(id: &str) -> anyhow::Result<String> {
    let digits = format!("{:032x}", Ulid::from_string(id)?.0);
    let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}

/// An identifier of the database as everybody else writes it.
pub(super) fn id_of(uuid: &str) -> anyhow::Result<String> {
    let number = u128::from_str_radix(&uuid.replace('-', ""), 16)?;
    Ok(Ulid(number).to_string().to_ascii_lowercase())
}

/// The ids of the sandboxes that have a directory, in order.
pub(super) fn sandboxes(server: &Server) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(server.data_dir().join("sandboxes"))?;
    let mut found: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
    found.sort_unstable();
    Ok(found)
}

/// The directory of a sandbox.
pub(super) fn sandbox(server: &Server, browser: &str) -> PathBuf {
    server.data_dir().join("sandboxes").join(browser)
}

/// The browser that a session runs on.
pub(super) fn browser_of(server: &Server, session: &Session) -> anyhow::Result<String> {
    id_of(&sql(server, &format!("select browser_id from sessions where id = '{}'", uuid(session.id())?))?)
}

/// The browsers of a pool that nobody uses.
pub(super) fn idle_browsers(server: &Server, pool: &str) -> anyhow::Result<Vec<String>> {
    let pool = format!("select id from browser_pools where name = '{pool}' and deleted_at is null");
    let idle = format!("select id from browsers where state = 'idle' and pool_id = ({pool}) order by created_at");
    sql(server, &idle)?.lines().map(id_of).collect()
}

/// How a session ended; empty while it has not.
pub(super) fn end_reason(server: &Server, session: &str) -> anyhow::Result<String> {
    sql(server, &format!("select coalesce(end_reason, '') from sessions where id = '{}'", uuid(session)?))
}

/// Chromium's own processes in a sandbox: the browser first, then the others.
pub(super) fn chromium(server: &Server, browser: &str) -> anyhow::Result<Vec<Process>> {
    let mut all = processes_of(&sandbox(server, browser));
    let program = |process: &Process| process.argv.first().is_some_and(|name| name.contains("chrom"));
    all.retain(|process| program(process) && !process.argv[0].contains("crashpad"));
    all.sort_by_key(|process| kind(process).is_some());
    ensure!(all.first().is_some_and(|first| kind(first).is_none()), "no Chromium runs in {browser}: {all:#?}");
    Ok(all)
}

/// `renderer`, `gpu-process` and the like; nothing for the browser itself.
pub(super) fn kind(process: &Process) -> Option<&str> {
    process.argv.iter().find_map(|word| word.split(' ').find_map(|word| word.strip_prefix("--type=")))
}

/// The value of one line of `/metrics` that begins so.
pub(super) fn metric(server: &Server, beginning: &str) -> anyhow::Result<Option<f64>> {
    let text = server.get("/metrics")?.expect(200)?.text();
    let line = text.lines().find(|line| line.starts_with(beginning));
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()))
}
