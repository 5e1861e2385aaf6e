//! What holds for a cluster after any fault, once all nodes run and the callers are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use ulid::Ulid;

use super::load::Report;
use super::{Cluster, uuid};
use crate::program::{processes_of, until};

/// The timeout until the nodes have noticed and cleaned up everything, also a node that was away.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
/// The number of violations of one kind that are listed.
const MAX_LISTED: usize = 10;

impl Cluster {
    /// Returns what is violated, one line each: every session row has an end or a living browser, every browser a row;
    /// every answered change is stored, not undone, and has its audit record once; no browser had two leases at the same time.
    pub fn violations(&self, report: &Report) -> anyhow::Result<Vec<String>> {
        let mut found = self.until_consistent()?;
        found.extend(self.undone(report)?);
        found.extend(self.unrecorded(report)?);
        let twice = "select one.browser_id, one.id, other.id from sessions one join sessions other using (browser_id) \
                     where one.id < other.id and one.created_at < coalesce(other.ended_at, 'infinity') \
                     and other.created_at < coalesce(one.ended_at, 'infinity')";
        found.extend(self.sql(twice)?.lines().map(|row| format!("a browser was leased twice at the same time: {row}")));
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
        let ending = self.sql("select count(*) from browsers where state = 'ending'")?;
        found.extend((ending != "0").then(|| format!("{ending} browsers end for long")));
        let pending = self.sql("select count(*) from audit_records_pending")?;
        found.extend((pending != "0").then(|| format!("{pending} calls have no audit record yet")));
        Ok(found)
    }

    /// Returns the browsers with processes, of all nodes.
    fn living_browsers(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut living = BTreeSet::new();
        for node in self.nodes.iter().chain(&self.former) {
            let Ok(entries) = fs::read_dir(node.data_dir().join("sandboxes")) else { continue };
            for entry in entries {
                let (name, path) =
                    entry.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))?;
                if name.parse::<Ulid>().is_ok() && !processes_of(&path).is_empty() {
                    living.insert(name);
                }
            }
        }
        Ok(living)
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

/// Converts an identifier of the database to the form of the API.
fn id_of(uuid: &str) -> anyhow::Result<String> {
    Ok(Ulid(u128::from_str_radix(&uuid.replace('-', ""), 16)?).to_string().to_ascii_lowercase())
}
