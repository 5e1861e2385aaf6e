//! Tests with a clock that is set while the server runs. The program and its database have another time than the test,
//! by libfaketime.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use casement_test_support::program::{Options, Server, Session, until};
use serde_json::json;
use tempfile::TempDir;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The clock of programs with [`SetClock::variables`]. Only its offset changes, not its speed.
struct SetClock(TempDir);

impl SetClock {
    fn new() -> anyhow::Result<Self> {
        // The database runs as another user.
        let open = Permissions::from_mode(0o711);
        let clock = Self(tempfile::Builder::new().prefix("casement-clock-").permissions(open).tempdir_in("/tmp")?);
        clock.set("+0")?;
        Ok(clock)
    }

    /// Sets the offset from the true time, such as `+1h`.
    fn set(&self, offset: &str) -> anyhow::Result<()> {
        let new = self.0.path().join("new");
        fs::write(&new, format!("{offset}\n"))?;
        fs::set_permissions(&new, Permissions::from_mode(0o644))?;
        Ok(fs::rename(new, self.file())?)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("offset")
    }

    fn variables(&self) -> anyhow::Result<Vec<(String, String)>> {
        let library = "faketime/libfaketimeMT.so.1";
        let mut places = fs::read_dir("/usr/lib")?.flatten().map(|place| place.path().join(library));
        let library = places.find(|place| place.exists()).context("no libfaketime: `cargo xtask test` installs it")?;
        let variables = [
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        Ok(variables.map(|(name, value)| (name.to_owned(), value)).to_vec())
    }
}

fn idle_for(server: &Server, seconds: u32) -> anyhow::Result<Session> {
    server.create(&json!({ "headless": true, "timeout_seconds": seconds }))
}

fn lives(server: &Server, session: &Session) -> anyhow::Result<bool> {
    Ok(server.get(&format!("/browsers/{}", session.id()))?.status == 200)
}

fn made_at(session: &Session) -> anyhow::Result<OffsetDateTime> {
    Ok(OffsetDateTime::parse(session.text("created_at"), &Rfc3339)?)
}

#[test]
fn a_clock_change_ends_no_idle_session_early_or_late_and_stops_no_pool() -> anyhow::Result<()> {
    let clock = SetClock::new()?;
    let mut server = Server::start(Options { variables: clock.variables()?, ..Options::default() })?;
    let patient = idle_for(&server, 1800)?;
    for offset in ["+1h", "+0"] {
        let short = idle_for(&server, 10)?;
        clock.set(offset)?;
        // The end of `short` shows that sessions were checked after the clock was set.
        until(&format!("{offset}: its time is over"), TEST_TIMEOUT, || (!lives(&server, &short).ok()?).then_some(()))?;
        assert!(lives(&server, &patient)?, "{offset}: it has half an hour");
    }
    clock.set("+1h")?;
    let later = idle_for(&server, 1800)?;
    assert!(made_at(&later)? - made_at(&patient)? >= time::Duration::HOUR, "a record says what the clock says");

    // The pool grows by one browser in thirty seconds.
    let pool = json!({ "name": "grows", "size": 1, "headless": true, "fill_rate_per_minute": 100 });
    server.post("/browser_pools", &pool)?.expect(201)?;
    server.until_available("grows", 1)?;
    server.send("PATCH", "/browser_pools/grows", Some(&json!({ "size": 2 })))?.expect(200)?;
    clock.set("-1h")?;
    server.until_available("grows", 2)?;

    // After a restart, stored times that are an hour ahead do not change the idle timeouts.
    server.kill()?;
    server.restart()?;
    let short = idle_for(&server, 10)?;
    until("its time is over", TEST_TIMEOUT, || (!lives(&server, &short).ok()?).then_some(()))?;
    assert!(lives(&server, &later)? && lives(&server, &patient)?);
    Ok(())
}
