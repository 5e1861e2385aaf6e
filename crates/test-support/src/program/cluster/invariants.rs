//! What holds for a cluster after any fault, once all nodes run and the callers are gone. [`Cluster::log_queues`] must
//! have been called before them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use ulid::Ulid;

use super::load::Report;
use super::{Cluster, uuid};
use crate::program::leftovers::sandboxes_of;
use crate::program::{claims_below, control_groups, processes_of, until};

/// The timeout until the nodes have noticed and cleaned up everything, also a node that was away.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
/// The number of violations of one kind that are listed.
const MAX_LISTED: usize = 10;

impl Cluster {
    /// Returns what is violated, one line each: every session row has an end or a living browser, every browser a row;
    /// nothing of any other sandbox is left; every answered change is stored, not undone, and has its audit record once; no
    /// browser had two leases at the same time; no waiting caller was overtaken on a living node.
    pub fn violations(&self, report: &Report) -> anyhow::Result<Vec<String>> {
        let mut found = self.until_consistent()?;
        found.extend(self.undone(report)?);
        found.extend(self.unrecorded(report)?);
        let twice = "select one.browser_id, one.id, other.id from sessions one join sessions other using (browser_id) \
                     where one.id < other.id and one.created_at < coalesce(other.ended_at, 'infinity') \
                     and other.created_at < coalesce(one.ended_at, 'infinity')";
        found.extend(self.sql(twice)?.lines().map(|row| format!("a browser was leased twice at the same time: {row}")));
        found.extend(shortened(self.queue_order()?.overtaken));
        Ok(found)
    }

    /// Waits until rows and browsers are the same; returns the differences that stay.
    fn until_consistent(&self) -> anyhow::Result<Vec<String>> {
        let mut differences = Err(anyhow::anyhow!("not looked"));
        let looked = until("rows and browsers are the same", SETTLE_TIMEOUT, || {
            differences = self.differences();
            differences.as_ref().is_ok_and(Vec::is_empty).then_some(())
        });
        if looked.is_ok() { Ok(Vec::new()) } else { differences }
    }

    fn differences(&self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        let living = self.living_browsers()?;
        let rows = self.sql("select s.id, s.browser_id from sessions s where s.state <> 'ended'")?;
        for row in rows.lines() {
            let (session, browser) = row.split_once('|').context("two columns")?;
            let browser = if browser.is_empty() { String::new() } else { id_of(browser)? };
            if !living.contains(&browser) {
                found.push(format!("the session {session} has no end and no living browser"));
            }
        }
        let known: BTreeSet<String> =
            self.sql("select id from browsers")?.lines().map(id_of).collect::<anyhow::Result<_>>()?;
        found.extend(living.difference(&known).map(|browser| format!("the browser {browser} has no row")));
        found.extend(self.remains_of_sandboxes(&known)?);
        let ending = self.sql("select count(*) from browsers where state = 'ending'")?;
        found.extend((ending != "0").then(|| format!("{ending} browsers end for long")));
        let pending = self.sql("select count(*) from audit_records_pending")?;
        found.extend((pending != "0").then(|| format!("{pending} calls have no audit record yet")));
        Ok(found)
    }

    /// Returns the browsers with processes, of all nodes.
    fn living_browsers(&self) -> anyhow::Result<BTreeSet<String>> {
        let living = self.sandboxes()?.into_iter().filter(|dir| !processes_of(dir).is_empty());
        Ok(living.filter_map(|dir| name_of(&dir)).collect())
    }

    /// Returns the directories of sandboxes, of all nodes.
    fn sandboxes(&self) -> anyhow::Result<Vec<PathBuf>> {
        let nodes = self.nodes.iter().chain(&self.former);
        Ok(nodes.map(|node| sandboxes_of(&node.data_dir())).collect::<io::Result<Vec<_>>>()?.concat())
    }

    /// Returns what is left of sandboxes that are not those of the known browsers: directories, users and control groups.
    fn remains_of_sandboxes(&self, known: &BTreeSet<String>) -> anyhow::Result<Vec<String>> {
        let is_left = |dir: &Path| name_of(dir).is_some_and(|name| !known.contains(&name));
        let mut found: Vec<String> = Vec::new();
        for dir in self.sandboxes()?.iter().filter(|dir| is_left(dir)) {
            found.push(format!("{} is left", dir.display()));
        }
        for (user, dir) in claims_below(self.root.path()).iter().filter(|(_, dir)| is_left(dir)) {
            found.push(format!("the user {user} is still claimed for {}", dir.display()));
        }
        let used = self.sql("select browser_id from sessions where browser_id is not null")?;
        let ended: BTreeSet<String> = used.lines().map(id_of).collect::<anyhow::Result<_>>()?;
        let ended: Vec<&String> = ended.difference(known).collect();
        let groups = control_groups().into_iter();
        let left = groups.filter(|group| name_of(group).is_some_and(|name| ended.iter().any(|id| name.contains(*id))));
        found.extend(left.map(|group| format!("{} is left", group.display())));
        Ok(found)
    }

    /// Returns the answered changes that are not stored.
    fn undone(&self, report: &Report) -> anyhow::Result<Vec<String>> {
        let rows = self.sql("select id, state, coalesce(end_reason, '') from sessions")?;
        let ends: BTreeMap<&str, &str> = rows.lines().filter_map(|row| row.split_once('|')).collect();
        let mut found = Vec::new();
        for change in &report.answered {
            let end = ends.get(uuid(&change.session)?.as_str()).copied();
            let is_stored = match (change.is_release, end) {
                (true, Some(end)) => end == "ended|released",
                (false, Some(end)) => !["ended|undelivered", "ended|start_failed"].contains(&end),
                (_, None) => false,
            };
            if !is_stored {
                found.push(format!("{} was answered, but its session is {end:?}", change.request));
            }
        }
        Ok(shortened(found))
    }

    /// Returns the answered changes without exactly one audit record.
    fn unrecorded(&self, report: &Report) -> anyhow::Result<Vec<String>> {
        let rows =
            self.sql("select request_id, count(*) from audit_records where request_id like 'load-%' group by 1")?;
        let records: BTreeMap<&str, &str> = rows.lines().filter_map(|row| row.split_once('|')).collect();
        let wrong = report.answered.iter().filter_map(|change| {
            let count = records.get(change.request.as_str()).copied().unwrap_or("no");
            (count != "1").then(|| format!("{} has {count} audit records", change.request))
        });
        Ok(shortened(wrong.collect()))
    }
}

/// Keeps the first lines, and counts the others.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_LISTED);
    lines.truncate(MAX_LISTED);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// Converts an identifier of the database to the form of the API.
fn id_of(uuid: &str) -> anyhow::Result<String> {
    Ok(Ulid(u128::from_str_radix(&uuid.replace('-', ""), 16)?).to_string().to_ascii_lowercase())
}
