//! Inspects a server from the host, for other tests: its private database, and the processes of sessions.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use casement_test_support::program::{Cdp, Process, Server, Session, control_groups, processes_of, remains_of, until};
use serde_json::json;
use ulid::Ulid;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the anonymous memory of a process, in MiB.
pub(super) fn resident(pid: i32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}

/// Returns the path of a program of PostgreSQL. Debian's `/usr/bin/psql` is a script that takes longer than a query.
fn postgres_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let program = versions.map(|version| version.path().join("bin").join(name)).find(|program| program.exists());
    program.unwrap_or_else(|| name.into())
}

/// Queries the server's private database. Rows are lines, columns are separated by `|`.
pub(super) fn sql(server: &Server, statement: &str) -> anyhow::Result<String> {
    let socket_dir = server.database_socket()?;
    let words = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "casement", "-d", "casement", "-h", &socket_dir];
    let output = Command::new(postgres_program("psql"))
        .args(words)
        .args(["-c", statement])
        .output()
        .context("cannot start psql")?;
    ensure!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Returns a dump of the server's private database.
pub(super) fn dump(server: &Server) -> anyhow::Result<String> {
    let socket_dir = server.database_socket()?;
    let words = ["-U", "casement", "-d", "casement", "-h", &socket_dir];
    let output = Command::new(postgres_program("pg_dump")).args(words).output().context("cannot start pg_dump")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns a number from the private database.
pub(super) fn count(server: &Server, statement: &str) -> anyhow::Result<u64> {
    Ok(sql(server, statement)?.parse()?)
}

fn ulid(id: &str) -> anyhow::Result<Ulid> {
    Ulid::from_string(id).map_err(|error| anyhow!("{id}: {error}"))
}

/// Converts an identifier to the form of the database.
pub(super) fn uuid(id: &str) -> anyhow::Result<String> {
    let digits = format!("{:032x}", ulid(id)?.0);
    let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}

/// Converts an identifier of the database to the form of the API.
pub(super) fn id_of(uuid: &str) -> anyhow::Result<String> {
    let number = u128::from_str_radix(&uuid.replace('-', ""), 16)?;
    Ok(Ulid(number).to_string().to_ascii_lowercase())
}

/// Returns the ids of the sandboxes with a directory, in order.
pub(super) fn sandboxes(server: &Server) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(server.data_dir().join("sandboxes"))?;
    let mut found: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
    found.retain(|name| name.parse::<Ulid>().is_ok());
    found.sort_unstable();
    Ok(found)
}

/// Returns the directory of a sandbox.
pub(super) fn sandbox(server: &Server, browser: &str) -> PathBuf {
    server.data_dir().join("sandboxes").join(browser)
}

/// Returns the id of the browser of a session.
pub(super) fn browser_of(server: &Server, session: &Session) -> anyhow::Result<String> {
    id_of(&sql(server, &format!("select browser_id from sessions where id = '{}'", uuid(session.id())?))?)
}

/// Returns the ids of the idle browsers of a pool.
pub(super) fn idle_browsers(server: &Server, pool: &str) -> anyhow::Result<Vec<String>> {
    let pool = format!("select id from browser_pools where name = '{pool}' and deleted_at is null");
    let idle = format!("select id from browsers where state = 'idle' and pool_id = ({pool}) order by created_at");
    sql(server, &idle)?.lines().map(id_of).collect()
}

/// Returns the end reason of a session; empty while it runs.
pub(super) fn end_reason(server: &Server, session: &str) -> anyhow::Result<String> {
    sql(server, &format!("select coalesce(end_reason, '') from sessions where id = '{}'", uuid(session)?))
}

/// Returns all processes of a sandbox.
pub(super) fn all_of(server: &Server, browser: &str) -> Vec<Process> {
    with_descendants(processes_of(&sandbox(server, browser)))
}

/// Returns the Chromium processes of a sandbox, the main process first.
pub(super) fn chromium(server: &Server, browser: &str) -> anyhow::Result<Vec<Process>> {
    let mut all = all_of(server, browser);
    // Chromium writes the arguments of its child processes as one word.
    all.retain(|process| {
        process.argv.first().and_then(|word| word.split(' ').next()).is_some_and(|name| name.ends_with("/chromium"))
    });
    all.sort_by_key(|process| kind(process).is_some());
    ensure!(all.first().is_some_and(|first| kind(first).is_none()), "no Chromium runs in {browser}: {all:#?}");
    Ok(all)
}

/// Adds the descendants of processes: a renderer has no mounts that identify its sandbox, but its parent has.
fn with_descendants(mut known: Vec<Process>) -> Vec<Process> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut others: Vec<(i32, i32)> = numbers
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    loop {
        let is_known = |pid: &i32| known.iter().any(|process| process.pid == *pid);
        let new = others.iter().position(|(pid, parent)| !is_known(pid) && is_known(parent));
        let Some(new) = new else { return known };
        let pid = others.swap_remove(new).0;
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = command.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        known.push(Process { pid, argv: words.filter(|word| !word.is_empty()).collect() });
    }
}

/// Returns the type of a Chromium process, such as `renderer`, or `None` for the main process.
pub(super) fn kind(process: &Process) -> Option<&str> {
    process.argv.iter().find_map(|word| word.split(' ').find_map(|word| word.strip_prefix("--type=")))
}

/// Returns the value of the first line of `/metrics` with this beginning.
pub(super) fn metric(server: &Server, beginning: &str) -> anyhow::Result<Option<f64>> {
    let text = server.get("/metrics")?.expect(200)?.text();
    let line = text.lines().find(|line| line.starts_with(beginning));
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()))
}

/// Returns the server process.
pub(super) fn server_process(server: &Server) -> anyhow::Result<Process> {
    let serving = |process: &Process| process.argv.get(1).is_some_and(|word| word == "serve");
    server.processes().into_iter().find(serving).context("the server does not run")
}

/// Attaches to the page with this URL. Returns the id of the session.
pub(super) fn page_at(client: &mut Cdp, url: &str) -> anyhow::Result<String> {
    let targets = client.call("Target.getTargets", &json!({}))?;
    let shows = |target: &&serde_json::Value| target["type"] == "page" && target["url"] == url;
    let target = targets["targetInfos"].as_array().and_then(|all| all.iter().find(shows));
    let target = target.with_context(|| format!("no page at {url}: {targets}"))?["targetId"].clone();
    let attached = client.call("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }))?;
    Ok(attached["sessionId"].as_str().context("no session")?.to_owned())
}

/// Waits until a server that the harness did not end has exited with success.
pub(super) fn until_ended_well(server: &mut Server, process: &Process) -> anyhow::Result<()> {
    let stat = format!("/proc/{}/stat", process.pid);
    let code = until("the server ends", Duration::from_secs(300), || {
        let text = fs::read_to_string(&stat).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // The last field of a zombie is the exit status.
        (*fields.first()? == "Z").then(|| fields.last().copied().unwrap_or_default().to_owned())
    })?;
    ensure!(code == "0", "the server ended with the status {code}");
    // Only reaps the process, because one that has ended cannot be killed.
    server.kill()
}

pub(super) fn create_pool(server: &Server, name: &str, size: u32) -> anyhow::Result<()> {
    let body = json!({ "name": name, "size": size, "headless": true });
    server.post("/browser_pools", &body)?.expect(201).map(drop)
}

/// Deletes a pool with its browsers.
pub(super) fn delete_pool(server: &Server, pool: &str) -> anyhow::Result<()> {
    server.send("DELETE", &format!("/browser_pools/{pool}"), Some(&json!({ "force": true })))?.expect(204).map(drop)
}

/// Waits until the result of a count in the database is as expected.
pub(super) fn until_count(server: &Server, statement: &str, wanted: impl Fn(u64) -> bool) -> anyhow::Result<()> {
    until(statement, TEST_TIMEOUT, || count(server, statement).ok().filter(|found| wanted(*found)).map(drop))
}

pub(super) fn control_groups_named(browser: &str) -> Vec<String> {
    control_groups().iter().map(|group| group.display().to_string()).filter(|path| path.contains(browser)).collect()
}

/// Returns the leftovers of a sandbox on this machine, one line each.
pub(super) fn remains_of_sandbox(server: &Server, id: &str) -> Vec<String> {
    let dir = sandbox(server, id);
    let mut left = remains_of(&dir);
    left.extend(dir.exists().then(|| format!("{}", dir.display())));
    left.extend(control_groups_named(id));
    left
}
