//! Tests of the time zone and the locale, in real pages, frames and workers.

use std::path::Path;

use casement_domain::browser::{BrowserEngine, EngineError, Locale, Location, Memory, ReservedMemory, Shape, TimeZone};
use serde_json::{Value, json};

use super::cdp::Cdp;
use super::fake_egress::SITE;
use super::support::{Fixture, config, headless, processes, sized};

/// What a script sees of the location.
const SEEN: &str = "[Intl.DateTimeFormat().resolvedOptions().locale, Intl.DateTimeFormat().resolvedOptions().timeZone,
    navigator.language, navigator.languages.join(), new Date(0).getHours(), new Date(0).toLocaleDateString()]";

fn location(zone: &str, locale: &str) -> Location {
    Location { time_zone: TimeZone::parse(zone).ok(), locale: Locale::parse(locale).ok() }
}

/// Checks that the page, its frame and a worker see this.
async fn everything_sees(fixture: &Fixture, id: casement_domain::BrowserId, expected: &Value) -> anyhow::Result<()> {
    let mut page = Cdp::attach(&fixture.engine, id).await?;
    assert_eq!(page.open(SITE).await?, None);
    let text = Value::from(SEEN).to_string();
    for expression in [
        SEEN.to_owned(),
        format!("document.querySelector('iframe').contentWindow.eval({text})"),
        format!(
            "new Promise(done => {{
                const worker = new Worker('/worker.js');
                worker.onmessage = event => done(event.data);
                worker.postMessage({text});
            }})"
        ),
    ] {
        assert_eq!(page.evaluate(&expression).await?, *expected, "{expression}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_zone_and_locale_hold_in_pages_frames_and_workers() -> anyhow::Result<()> {
    let fixture = Fixture::with(|config| config.time_zone = Some("America/New_York".to_owned())).await?;
    let swiss = location("Asia/Tokyo", "de-CH");
    for shape in [headless(), sized(800, 600)] {
        let id = fixture.start(Shape { location: swiss, ..shape }).await?;
        let expected = json!(["de-CH", "Asia/Tokyo", "de-CH", "de-CH,de", 9, "1.1.1970"]);
        everything_sees(&fixture, id, &expected).await?;
        assert!(fixture.engine.has_location(id, swiss).await?);

        let elsewhere = Location { time_zone: None, ..location("UTC", "fr") };
        assert!(!fixture.engine.has_location(id, elsewhere).await?);
        fixture.engine.restart_with_location(id, elsewhere).await?;
        let expected = json!(["fr", "America/New_York", "fr", "fr", 19, "31/12/1969"]);
        everything_sees(&fixture, id, &expected).await?;

        fixture.engine.restart_with_location(id, Location::default()).await?;
        let expected = json!(["en-US", "America/New_York", "en-US", "en-US,en", 19, "12/31/1969"]);
        everything_sees(&fixture, id, &expected).await?;
        fixture.engine.end(id).await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_chromiums_files_another_locale_is_refused_and_a_time_zone_is_not() -> anyhow::Result<()> {
    let fixture = Fixture::with(|config| config.chromium = "/usr/bin/env".into()).await?;
    let launch = super::support::launch(Shape { location: location("UTC", "de"), ..headless() });
    let refused = fixture.engine.start(&launch).await;
    assert!(matches!(refused, Err(EngineError::Location(_))), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_has_the_memory_of_its_shape() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let memory = ReservedMemory { limit: Memory { mib: 1024 }, places: 1 };
    let id = fixture.start(Shape { memory: Some(memory), ..headless() }).await?;
    let record: Value = serde_json::from_slice(&std::fs::read(fixture.sandbox(id).join("engine.json"))?)?;
    assert_eq!(record["memory_bytes"], 1_u64 << 30);
    // The files of the session are counted too, if the kernel limits the memory.
    let disk = config(fixture.dir.path().to_owned())?.disk_bytes;
    let pid = processes(&fixture.engine, id, |line| line.contains("--remote-debugging-port")).await?[0];
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let groups = Path::new("/sys/fs/cgroup").join(group);
    let limits = groups.ancestors().filter_map(|group| std::fs::read_to_string(group.join("memory.max")).ok());
    let limits: Vec<u64> = limits.filter_map(|limit| limit.trim().parse().ok()).collect();
    assert!(limits.is_empty() || limits.contains(&((1 << 30) + disk)), "{limits:?}");
    fixture.engine.end(id).await?;
    Ok(())
}
