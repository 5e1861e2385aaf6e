//! Tests of pools with concurrent, waiting and disconnecting callers, and with failing browsers.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::http::{Answer, Request};
use casement_test_support::program::{Cdp, Clients, Options, Process, Server, Session, Shared, until};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::host::{browser_of, chromium, count, id_of, idle_browsers, kind, metric, sandboxes, sql};

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// The timeout of an acquire in seconds: many callers may be ahead, and each needs a start of Chromium.
const ACQUIRE_TIMEOUT_SECONDS: u64 = 400;

/// A pool of headless browsers that is deleted at the end of its test.
struct Pool<'a> {
    server: &'a Server,
    name: &'static str,
    id: String,
}

impl<'a> Pool<'a> {
    fn new(server: &'a Server, name: &'static str, size: u32) -> anyhow::Result<Self> {
        Self::shaped(server, name, &json!({ "size": size, "headless": true, "fill_rate_per_minute": 100 }))
    }

    fn shaped(server: &'a Server, name: &'static str, config: &Value) -> anyhow::Result<Self> {
        let mut config = config.clone();
        config["name"] = name.into();
        let made = server.post("/browser_pools", &config)?.expect(201)?.json()?;
        Ok(Self { server, name, id: made["id"].as_str().context("no id")?.to_owned() })
    }

    fn path(&self, rest: &str) -> String {
        format!("/browser_pools/{}{rest}", self.name)
    }

    /// Sends one acquire and returns its response.
    fn acquire(&self, seconds: u64) -> anyhow::Result<Answer> {
        let mut stream = self.ask(seconds).start(self.server.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(seconds) + TEST_TIMEOUT))?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).context("no whole answer to an acquire")?;
        Answer::read(&bytes, false)
    }

    /// Returns an acquire that is not sent yet.
    fn ask(&self, seconds: u64) -> Request {
        let body = json!({ "acquire_timeout_seconds": seconds });
        Request::new("POST", &self.path("/acquire")).bearer(self.server.key()).json(&body)
    }

    fn waiting(&self) -> anyhow::Result<u64> {
        let line = "select count(*) from pool_waiters w join browser_pools p on p.id = w.pool_id";
        count(self.server, &format!("{line} where p.name = '{}' and w.outcome is null", self.name))
    }

    fn until_waiting(&self, wanted: u64, limit: Duration) -> anyhow::Result<()> {
        until(&format!("{wanted} wait for {}", self.name), limit, || (self.waiting().ok()? == wanted).then_some(()))
    }

    fn counts(&self) -> anyhow::Result<(u64, u64)> {
        let found = self.server.get(&self.path(""))?.expect(200)?.json()?;
        let number = |field: &str| found[field].as_u64().with_context(|| format!("no {field}: {found}"));
        Ok((number("available_count")?, number("acquired_count")?))
    }

    fn until_counts(&self, wanted: (u64, u64)) -> anyhow::Result<()> {
        let mut last = (0, 0);
        until(&format!("{} has (idle, leased) {wanted:?}", self.name), 2 * TEST_TIMEOUT, || {
            last = self.counts().ok()?;
            (last == wanted).then_some(())
        })
        .with_context(|| format!("it has {last:?}"))
    }

    fn delete(self) -> anyhow::Result<()> {
        self.server.send("DELETE", &self.path(""), Some(&json!({ "force": true })))?.expect(204).map(drop)
    }
}

fn session(answer: &Answer) -> anyhow::Result<Session> {
    ensure!(answer.status == 200, "no browser: {} {}", answer.status, answer.text());
    Ok(Session(answer.json()?))
}

#[test]
fn waiters_are_served_in_order_of_arrival_and_a_newcomer_does_not_overtake() -> anyhow::Result<()> {
    const WAITERS: usize = 16;
    let pool = Pool::new(&Shared::get().server, "queue", 1)?;
    let server = pool.server;
    let first = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    let served: Mutex<Vec<usize>> = Mutex::default();
    thread::scope(|scope| -> anyhow::Result<()> {
        let mut line = Vec::new();
        for number in 0..WAITERS {
            let (pool, served) = (&pool, &served);
            line.push(scope.spawn(move || -> anyhow::Result<()> {
                let leased = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
                served.lock().push(number);
                server.release(pool.name, &leased)
            }));
            pool.until_waiting(number as u64 + 1, TEST_TIMEOUT)?;
        }
        server.release(pool.name, &first)?;
        while served.lock().len() < WAITERS - 2 {
            ensure!(!line.iter().all(thread::ScopedJoinHandle::is_finished), "the line broke up");
            let newcomer = pool.acquire(0)?.status;
            let after = served.lock().len();
            // Checks the status only while a caller certainly waits, because the queue may be empty later.
            ensure!(newcomer == 204 || after >= WAITERS - 2, "a newcomer overtook: {newcomer}");
        }
        line.into_iter().try_for_each(|waiter| waiter.join().unwrap())
    })?;
    assert_eq!(served.into_inner(), (0..WAITERS).collect::<Vec<_>>());
    pool.delete()
}

#[test]
fn a_caller_that_disconnects_leaves_the_queue_at_once_and_costs_no_browser() -> anyhow::Result<()> {
    let config = json!({ "size": 1, "headless": true, "timeout_seconds": 10 });
    let pool = Pool::shaped(&Shared::get().server, "left", &config)?;
    let server = pool.server;
    let held = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    let gauge = format!("casement_pool_waiters{{pool=\"{}\"}}", pool.id);
    // The connection that keeps the lease in use.
    let open = Cdp::connect(held.text("cdp_ws_url"))?;
    for way in ["closed", "half closed"] {
        let waiter = pool.ask(ACQUIRE_TIMEOUT_SECONDS).start(server.address())?;
        pool.until_waiting(1, TEST_TIMEOUT)?;
        if way == "closed" {
            until("the gauge shows the line", TEST_TIMEOUT, || (metric(server, &gauge).ok()?? == 1.0).then_some(()))?;
            drop(waiter);
        } else {
            waiter.shutdown(Shutdown::Write)?;
        }
        pool.until_waiting(0, TEST_TIMEOUT).context(way)?;
    }
    until("the gauge shows that nobody waits", TEST_TIMEOUT, || (metric(server, &gauge).ok()?? == 0.0).then_some(()))?;

    // The caller disconnects around the time of its lease. The server cannot detect that a written response is not
    // read; then the lease ends by its idle timeout.
    let mut held = (held, open);
    for pause in [0, 300, 500, 900] {
        let waiter = pool.ask(ACQUIRE_TIMEOUT_SECONDS).start(server.address())?;
        pool.until_waiting(1, TEST_TIMEOUT)?;
        server.release(pool.name, &held.0)?;
        thread::sleep(Duration::from_millis(pause));
        drop(waiter);
        pool.until_counts((1, 0)).with_context(|| format!("hung up {pause} ms after a browser was on its way"))?;
        let next = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
        let open = Cdp::connect(next.text("cdp_ws_url"))?;
        held = (next, open);
    }
    pool.delete()
}

#[test]
fn a_wait_ends_with_204_at_its_timeout_or_just_before_the_client_gives_up() -> anyhow::Result<()> {
    let pool = Pool::new(&Shared::get().server, "patience", 1)?;
    let held = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    let timed = |request: Request| -> anyhow::Result<(u16, Duration)> {
        let began = Instant::now();
        Ok((request.send(pool.server.address())?.status, began.elapsed()))
    };
    let (status, took) = timed(pool.ask(0))?;
    assert!(status == 204 && took < TEST_TIMEOUT, "{status} after {took:?}");
    let (status, took) = timed(pool.ask(1))?;
    assert!(status == 204 && took.as_secs_f64() >= 0.9 && took < TEST_TIMEOUT, "{status} after {took:?}");
    // On a busy machine the response may be too late, but not every time.
    let in_time = (0..15).find_map(|_| match timed(pool.ask(60).header("X-Stainless-Read-Timeout", "4")) {
        Ok((204, took)) if took >= Duration::from_secs(4) => None,
        answered => Some(answered),
    });
    let (status, took) = in_time.context("the caller has always given up before")??;
    assert!(status == 204 && took.as_secs_f64() >= 1.9, "{status} after {took:?}");
    pool.until_waiting(0, TEST_TIMEOUT)?;
    pool.server.release(pool.name, &held)?;
    pool.delete()
}

#[test]
fn deleting_flushing_or_resizing_a_pool_ends_its_browsers() -> anyhow::Result<()> {
    let pool = Pool::new(&Shared::get().server, "moving", 2)?;
    let server = pool.server;
    let held = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    pool.until_counts((1, 1))?;

    let flushed = idle_browsers(server, pool.name)?;
    let began = Instant::now();
    server.post(&pool.path("/flush"), &json!({}))?.expect(204)?;
    assert!(!sandboxes(server)?.contains(&flushed[0]), "the flush was answered before the sandbox was gone");
    assert_eq!(server.get(&format!("/browsers/{}", held.id()))?.status, 200, "what is leased is not flushed");
    // At this size and rate the pool grows by one browser every ten seconds.
    server.send("PATCH", &pool.path(""), Some(&json!({ "size": 6 })))?.expect(200)?;
    let (idle, leased) = until("it fills again", TEST_TIMEOUT, || pool.counts().ok().filter(|(idle, _)| *idle > 0))?;
    // Several slow starts may finish at once.
    let at_its_rate = began.elapsed() >= Duration::from_secs(10) * u32::try_from(idle)?;
    assert!(leased == 1 && at_its_rate, "{idle} idle and {leased} leased after {:?}", began.elapsed());
    assert!(!idle_browsers(server, pool.name)?.contains(&flushed[0]));

    server.send("PATCH", &pool.path(""), Some(&json!({ "size": 1 })))?.expect(200)?;
    pool.until_counts((0, 1)).context("it became smaller")?;
    server.release(pool.name, &held)?;
    pool.until_counts((1, 0)).context("what is left of it")?;

    let last = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    let refused = server.delete(&pool.path(""))?;
    assert_eq!((refused.status, &refused.json()?["code"]), (409, &json!("resource_in_use")));
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (ask, address) = (pool.ask(ACQUIRE_TIMEOUT_SECONDS), server.address());
            thread::spawn(move || ask.send(address))
        })
        .collect();
    pool.until_waiting(2, TEST_TIMEOUT)?;
    pool.delete()?;
    for waiter in waiting {
        assert_eq!(waiter.join().unwrap()?.status, 404, "who waits is told that the pool is gone");
    }
    assert_eq!(server.get(&format!("/browsers/{}", last.id()))?.status, 404);
    Ok(())
}

#[test]
fn a_released_browser_is_never_leased_again() -> anyhow::Result<()> {
    let pool = Pool::new(&Shared::get().server, "fresh", 1)?;
    let server = pool.server;
    let old = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    let browser = browser_of(server, &old)?;
    let other = server.headless()?;
    let wrong = server.post(&pool.path("/release"), &json!({ "session_id": other.id() }))?;
    assert_eq!(wrong.status, 404, "another session is not this pool's to take back: {}", wrong.text());
    server.delete(&format!("/browsers/{}", other.id()))?.expect(204)?;

    // `reuse` has no effect, because reuse is not safe.
    let body = json!({ "session_id": old.id(), "reuse": true });
    server.post(&pool.path("/release"), &body)?.expect(204)?;
    assert!(!sandboxes(server)?.contains(&browser), "the release was answered before the sandbox was gone");
    assert_eq!(server.post(&pool.path("/release"), &body)?.status, 404, "given back twice");

    let new = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    assert_ne!((new.id(), browser_of(server, &new)?), (old.id(), browser));
    assert_eq!(server.get(&format!("/browsers/{}", old.id()))?.status, 404);
    let refused = Cdp::connect(old.text("cdp_ws_url")).err().context("the old address still leads somewhere")?;
    assert!(refused.to_string().contains("404"), "{refused}");
    pool.delete()
}

#[test]
fn a_browser_whose_page_hangs_is_not_leased() -> anyhow::Result<()> {
    let pool = Pool::new(&Shared::get().server, "wedged", 1)?;
    let server = pool.server;
    pool.until_counts((1, 0))?;
    let idle = idle_browsers(server, pool.name)?;
    let mut renderers = chromium(server, &idle[0])?;
    renderers.retain(|process| kind(process) == Some("renderer"));
    assert!(!renderers.is_empty(), "an idle browser has a page");
    for renderer in &renderers {
        server.signal(renderer, Signal::STOP)?;
    }

    let leased = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;

    assert_ne!(browser_of(server, &leased)?, idle[0]);
    let mut client = Cdp::connect(leased.text("cdp_ws_url"))?;
    let page = client.page()?;
    assert_eq!(client.evaluate(&page, "6 * 7")?, 42);
    until("the hung one is cleared away", TEST_TIMEOUT, || {
        (!sandboxes(server).ok()?.contains(&idle[0])).then_some(())
    })?;
    pool.delete()
}

#[test]
fn a_browser_that_partly_hangs_since_its_last_probe_is_not_leased() -> anyhow::Result<()> {
    let pool = Pool::new(&Shared::get().server, "half-dead", 2)?;
    let server = pool.server;
    let is = |process: &Process, word: &str| process.argv.iter().any(|argument| argument.contains(word));
    for word in ["--utility-sub-type=network.mojom.NetworkService", "--type=renderer", "--remote-debugging-port"] {
        pool.until_counts((2, 0))?;
        let next = idle_browsers(server, pool.name)?[1].clone();
        let mut stopped = chromium(server, &next)?;
        stopped.retain(|process| is(process, word) && (kind(process).is_some() != word.contains("debugging")));
        assert!(!stopped.is_empty(), "{word}");
        // After this response the server has chosen and probed the next browser.
        let before = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
        for process in &stopped {
            server.signal(process, Signal::STOP)?;
        }
        let leased = session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
        assert_ne!(browser_of(server, &leased)?, next, "{word}");
        until("the dead one is cleared away", TEST_TIMEOUT, || {
            (!sandboxes(server).ok()?.contains(&next)).then_some(())
        })?;
        for held in [before, leased] {
            server.release(pool.name, &held)?;
        }
    }
    pool.delete()
}

#[test]
fn a_lease_after_a_discard_gets_a_browser_that_was_started_afterwards() -> anyhow::Result<()> {
    let pool = Pool::new(&Shared::get().server, "renewed", 3)?;
    let server = pool.server;
    for (round, flushed) in [(1, false), (2, true), (3, false)] {
        // In the first round no browser has started yet, in later rounds some have.
        if round > 1 {
            until("some are there", TEST_TIMEOUT, || (pool.counts().ok()?.0 > 0).then_some(()))?;
        }
        let width = 900 + round * 10;
        let viewport = json!({ "width": width, "height": 600 });
        let change = json!({ "viewport": viewport, "discard_all_idle": !flushed });
        server.send("PATCH", &pool.path(""), Some(&change))?.expect(200)?;
        if flushed {
            server.post(&pool.path("/flush"), &json!({}))?.expect(204)?;
        }
        let leased: Vec<_> =
            (0..2).map(|_| session(&pool.acquire(ACQUIRE_TIMEOUT_SECONDS)?)).collect::<anyhow::Result<_>>()?;
        for session in &leased {
            assert_eq!(session.0["viewport"]["width"], width, "round {round}: {}", session.0);
        }
        for session in &leased {
            server.release(pool.name, session)?;
        }
    }
    pool.delete()
}

/// Writes a program that sandboxes find before that of the system.
fn put_program(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let mut file = std::fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755))?;
    Ok(std::fs::rename(new, dir.join(name))?)
}

#[test]
fn a_deleted_pool_leaves_nothing_in_the_metrics() -> anyhow::Result<()> {
    let pool = Pool::shaped(&Shared::get().server, "measured", &json!({ "size": 1, "headless": true }))?;
    let (server, id) = (pool.server, pool.id.clone());
    let shown = || Some(server.get("/metrics").ok()?.text());
    until("its figures are shown", TEST_TIMEOUT, || shown()?.contains(&id).then_some(()))?;
    let gauge = format!("casement_pool_browsers{{pool=\"{id}\",state=\"idle\"}}");
    until("its browser is counted", TEST_TIMEOUT, || (metric(server, &gauge).ok()?? == 1.0).then_some(()))?;
    pool.delete()?;
    until("they are gone", TEST_TIMEOUT, || (!shown()?.contains(&id)).then_some(()))
}

#[test]
fn a_pool_that_cannot_fill_backs_off_reports_why_and_fills_once_it_can() -> anyhow::Result<()> {
    // With an X server that always fails, headful browsers do not start, but headless ones do.
    let open = std::fs::Permissions::from_mode(0o755);
    let programs = tempfile::Builder::new().prefix("casement-x-").permissions(open).tempdir_in("/tmp")?;
    put_program(programs.path(), "Xvfb", "#!/bin/sh\nexit 1\n")?;
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH")?);
    let server = Server::start(Options { variables: vec![("PATH".to_owned(), path)], ..Options::default() })?;
    let broken = Pool::shaped(&server, "broken", &json!({ "size": 2 }))?;
    let well = Pool::new(&server, "well", 1)?;

    let failed = format!("casement_pool_start_failures_total{{pool=\"{}\"", broken.id);
    let mut at = Vec::new();
    let mut seen = 0.0;
    let less_often = until("four starts have failed, tried less and less often", 2 * TEST_TIMEOUT, || {
        let now = metric(&server, &failed).ok()??;
        // On a busy machine a failure is read late, or two at once; then the pause after the next one counts.
        if now > seen {
            at.push(Instant::now());
            seen = now;
        }
        let [.., before, last] = at[..] else { return None };
        (seen >= 4.0 && last - before > Duration::from_millis(1500)).then_some(())
    });
    less_often.with_context(|| format!("tried at {at:?}"))?;
    let shown = server.get("/metrics")?.text();
    let blocked = format!("casement_pool_blocked{{pool=\"{}\"", broken.id);
    let why: Vec<&str> = shown.lines().filter(|line| line.starts_with(&blocked) && line.ends_with(" 1")).collect();
    assert!(why.len() == 1 && why[0].contains("reason=\"display_error\""), "{why:#?}");
    let page = Clients::find()?.run(&server, "crates/app/tests/scripts/ui_pools.mjs", &["broken"])?.json()?;
    let read = page.as_str().context("no text")?;
    assert!(read.starts_with("The last ") && read.contains(" starts failed: the display did not start. "), "{read}");
    let log = server.log();
    let backoff_line = log.lines().find(|line| line.contains("a pool cannot fill"));
    let backoff_line = backoff_line.context("the log says nothing")?;
    assert!(backoff_line.contains("the X server ended") && backoff_line.contains("retry_in"), "{backoff_line}");
    assert_eq!(well.acquire(ACQUIRE_TIMEOUT_SECONDS)?.status, 200, "another pool is served meanwhile");
    assert_eq!(broken.acquire(1)?.status, 204);
    let half_made = sql(&server, "select id from browsers where state = 'leased' or state = 'idle'")?;
    let mut whole: Vec<String> = half_made.lines().map(id_of).collect::<anyhow::Result<_>>()?;
    whole.sort_unstable();
    until("nothing of the failed starts is left", TEST_TIMEOUT, || {
        let found = sandboxes(&server).ok()?;
        (found.iter().filter(|id| whole.contains(id)).count() == whole.len() && found.len() <= whole.len() + 1)
            .then_some(())
    })?;

    put_program(programs.path(), "Xvfb", "#!/bin/sh\nexec /usr/bin/Xvfb \"$@\"\n")?;
    let leased = session(&broken.acquire(ACQUIRE_TIMEOUT_SECONDS)?)?;
    assert_eq!(leased.0["headless"], false);
    until("it is told that it fills again", TEST_TIMEOUT, || {
        let shown = server.get("/metrics").ok()?.expect(200).ok()?.text();
        (!shown.lines().any(|line| line.starts_with(&blocked) && line.ends_with(" 1"))).then_some(())
    })
}

#[test]
fn a_create_of_the_default_shape_takes_a_spare_and_never_a_browser_of_a_pool() -> anyhow::Result<()> {
    let variables = vec![("CASEMENT_LOG".to_owned(), "info,casement=debug".to_owned())];
    let server = Server::start(Options { spares: 1, variables, ..Options::default() })?;
    let pool = Pool::shaped(&server, "same-shape", &json!({ "size": 1 }))?;
    pool.until_counts((1, 0))?;
    until("both spares are warm", TEST_TIMEOUT, || {
        (server.log().matches("a spare browser is ready").count() >= 2).then_some(())
    })?;
    let before = sandboxes(&server)?;
    let pooled = idle_browsers(&server, pool.name)?;

    for config in [json!({}), json!({ "headless": true })] {
        let session = server.create(&config)?;
        let browser = browser_of(&server, &session)?;
        assert!(before.contains(&browser), "{config}: a browser was started for it");
        assert!(!pooled.contains(&browser), "{config}: it was taken from a pool");
    }
    assert_eq!(pool.counts()?, (1, 0));
    Ok(())
}
