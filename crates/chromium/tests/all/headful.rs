//! Tests of two browsers with displays at the same time.

use casement_domain::browser::{BrowserEngine, EngineError, HandOut, Shape, StartUrl, Viewport};
use serde_json::json;

use super::cdp::Cdp;
use super::fake_egress::SITE;
use super::support::{Fixture, hand_out, png_size, sized};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browsers_with_a_display_have_its_size_and_see_nothing_of_each_other() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let kiosk = Shape { kiosk_mode: true, stealth: true, ..sized(1280, 720) };
    let (kiosk, framed) = tokio::join!(fixture.start(kiosk), fixture.start(sized(1024, 768)));
    let (kiosk, framed) = (kiosk?, framed?);
    eprintln!(
        "memory of each: {} and {} MiB",
        fixture.engine.pss(kiosk).await? >> 20,
        fixture.engine.pss(framed).await? >> 20
    );
    let mut in_kiosk = Cdp::attach(&fixture.engine, kiosk).await?;
    let mut in_frame = Cdp::attach(&fixture.engine, framed).await?;

    let size = "[innerWidth, innerHeight, screen.width, screen.height]";
    // A window gets its size a moment after it opens.
    in_kiosk.until_is(size, &json!([1280, 720, 1280, 720])).await?;
    in_frame
        .until("innerWidth === 1024 && innerHeight < 768 && screen.width === 1024 && screen.height === 768")
        .await?;
    let seen = in_frame.evaluate(size).await?;
    assert_eq!((&seen[0], &seen[2], &seen[3]), (&json!(1024), &json!(1024), &json!(768)));
    assert!(seen[1].as_u64().is_some_and(|height| (500..768).contains(&height)), "the window has a frame: {seen}");
    assert_eq!(in_kiosk.evaluate("navigator.webdriver").await?, false);

    for id in [kiosk, framed] {
        let start_url = Some(StartUrl::parse(SITE).expect("a URL"));
        hand_out(&fixture.engine, id, HandOut { start_url, ..HandOut::default() }).await?;
    }
    in_kiosk.until("document.title === 'the site' && document.readyState === 'complete'").await?;
    in_frame.until("document.title === 'the site' && document.readyState === 'complete'").await?;
    in_kiosk.evaluate("localStorage.mine = 1; document.cookie = 'mine=1'").await?;
    assert_eq!(in_frame.evaluate("[localStorage.mine ?? 0, document.cookie]").await?, json!([0, ""]));
    assert_ne!(fixture.engine.cdp_path(kiosk).await?, fixture.engine.cdp_path(framed).await?);
    let (ours, theirs) = (fixture.engine.sandbox_pids(kiosk).await?, fixture.engine.sandbox_pids(framed).await?);
    assert!(!ours.iter().any(|pid| theirs.contains(pid)), "{ours:?} {theirs:?}");

    assert_eq!(png_size(&fixture.engine.screenshot(framed, sized(1024, 768).viewport, None).await?)?, (1024, 768));
    fixture.engine.set_viewport(kiosk, Viewport { width: 800, height: 600, refresh_rate: 25 }).await?;
    in_kiosk.until("innerWidth === 800 && innerHeight === 600 && screen.width === 800").await?;
    assert_eq!(png_size(&fixture.engine.screenshot(kiosk, sized(800, 600).viewport, None).await?)?, (800, 600));

    let too_large = Viewport { width: 8000, height: 600, refresh_rate: 10 };
    let refused = fixture.engine.set_viewport(kiosk, too_large).await;
    assert!(matches!(&refused, Err(EngineError::OutOfRange(why)) if why.contains("3840")), "{refused:?}");
    assert_eq!(in_kiosk.evaluate(size).await?, json!([800, 600, 800, 600]));

    fixture.engine.end(kiosk).await?;
    assert_eq!(fixture.remains(kiosk), Vec::<String>::new());
    hand_out(&fixture.engine, framed, HandOut::default()).await?;
    fixture.engine.end_all().await?;
    assert_eq!(fixture.remains(framed), Vec::<String>::new());
    Ok(())
}
