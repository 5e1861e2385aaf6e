//! Tests that the audit log is complete: it contains the calls that were running when the server was killed, and an
//! export contains all calls before its stated end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::Request;
use casement_test_support::program::{Options, Server, until};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::host::{count, sql};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of kills, and the variable that overrides it.
const KILLS: u32 = 5;
const KILLS_VARIABLE: &str = "CASEMENT_TEST_KILLS";

/// Clients that repeat a call, each time with a new identifier, and the identifiers of the answered calls.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<Mutex<Vec<String>>>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(server: &Server, round: u32, call: fn(&str) -> Request) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<String>>>::default());
        let number = Arc::<AtomicU32>::default();
        let callers = (0..4).map(|_| {
            let (stop, answered, number) = (Arc::clone(&stop), Arc::clone(&answered), Arc::clone(&number));
            let (address, key): (SocketAddr, String) = (server.address(), server.key().to_owned());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("call-{round}-{}", number.fetch_add(1, Ordering::Relaxed));
                    let request = call(&name).bearer(&key).header("X-Request-Id", &name);
                    // A call without a response was running when the server was killed.
                    if request.send(address).is_ok_and(|answer| answer.status < 300) {
                        answered.lock().push(name);
                    }
                }
            })
        });
        let callers = callers.collect();
        Self { stop, answered, callers }
    }

    fn answered(&self) -> BTreeSet<String> {
        self.answered.lock().iter().cloned().collect()
    }

    fn until_answered(&self, calls: usize) -> anyhow::Result<()> {
        until("the calls are answered", TEST_TIMEOUT, || (self.answered.lock().len() >= calls).then_some(()))
    }

    fn end(self) -> anyhow::Result<BTreeSet<String>> {
        self.stop.store(true, Ordering::Relaxed);
        let answered = self.answered();
        for caller in self.callers {
            caller.join().ok().context("a caller panicked")?;
        }
        Ok(answered)
    }
}

#[test]
fn a_change_made_before_a_kill_has_its_audit_record() -> anyhow::Result<()> {
    let kills = std::env::var(KILLS_VARIABLE).ok().map_or(Ok(KILLS), |text| text.parse())?;
    let flags = vec!["--max-profiles".to_owned(), "100000".to_owned()];
    let mut server = Server::start(Options { flags, ..Options::default() })?;
    for round in 0..kills {
        let load = Load::start(&server, round, |name| Request::new("POST", "/profiles").json(&json!({ "name": name })));
        load.until_answered(20)?;
        server.kill()?;
        load.end()?;
        server.restart()?;
    }
    until("what had begun is recorded", TEST_TIMEOUT, || {
        (count(&server, "select count(*) from audit_records_pending").ok()? == 0).then_some(())
    })?;
    let unrecorded =
        "select count(*) from profiles p where not exists (select 1 from audit_records r where r.request_id = p.name)";
    let twice = "select count(*) from (select 1 from audit_records where request_id like 'call-%' group by request_id \
        having count(*) > 1) as several";
    let unknown = "select count(*) from audit_records where status = 0";
    eprintln!(
        "{kills} kills, {} changes, {} of them recorded as unknown",
        count(&server, "select count(*) from profiles")?,
        count(&server, unknown)?
    );
    assert_eq!((count(&server, unrecorded)?, count(&server, twice)?), (0, 0), "{}", sql(&server, unrecorded)?);
    Ok(())
}

/// Returns the request identifiers of the records of an export, and the end of its range.
fn export(server: &Server, start: &str) -> anyhow::Result<(Vec<String>, String)> {
    let path = format!("/audit-logs/export/chunk?start={start}&end=2099-01-01&format=jsonl&search=/browsers");
    let answer = server.get(&path)?.expect(200)?;
    ensure!(answer.header("x-next-cursor").is_none(), "one chunk holds them all");
    let end = answer.header("x-range-end").context("it does not say where it ends")?.to_owned();
    let text = answer.text();
    let records = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    Ok((records.iter().filter_map(|record| record["request_id"].as_str().map(str::to_owned)).collect(), end))
}

#[test]
fn an_export_into_the_future_has_every_answered_call_and_the_next_one_continues() -> anyhow::Result<()> {
    let server = Server::start(Options::default())?;
    let load = Load::start(&server, 0, |_| Request::new("GET", "/browsers"));
    let (mut exported, mut start) = (Vec::new(), "2020-01-01".to_owned());
    for round in 1..=10 {
        load.until_answered(100 * round)?;
        let before = load.answered();
        let (records, end) = export(&server, &start)?;
        exported.extend(records);
        let missing: Vec<_> = before.iter().filter(|name| !exported.contains(name)).collect();
        assert!(missing.is_empty(), "{} of {} are missing: {missing:?}", missing.len(), before.len());
        start = end;
    }
    let answered = load.end()?;
    exported.extend(export(&server, &start)?.0);
    let all: BTreeSet<String> = exported.iter().filter(|name| name.starts_with("call-")).cloned().collect();
    assert_eq!(
        exported.iter().filter(|name| name.starts_with("call-")).count(),
        all.len(),
        "none stands in two exports"
    );
    assert!(answered.is_subset(&all));
    Ok(())
}
