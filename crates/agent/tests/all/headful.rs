//! A session with a private display.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use casement_agent_protocol::{ErrorCode, ExitReason, Region, State, Viewport};
use serde_json::json;

use crate::cdp::Cdp;
use crate::headless::{LARGE, decode, refusal};
use crate::sandbox::{SLOWLY, Sandbox, config, end, signal};

#[tokio::test]
async fn a_session_with_a_display_fills_it_and_follows_its_size() {
    let mut sandbox = Sandbox::start(&config(false));
    let status = tokio::time::timeout(Duration::from_secs(60), sandbox.ready("headful")).await.unwrap();
    assert_eq!(status.state, State::Ready, "{status:?}");
    assert!(!status.user_agent.contains("Headless"));
    the_display_takes_the_memory_of_what_it_shows(&sandbox);
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    let frame = "[screenX, screenY, outerWidth, outerHeight, screen.width, screen.height, navigator.webdriver].join()";
    cdp.until(&page, frame, &json!("0,0,900,700,900,700,false")).await;
    // The window has the tab strip and the toolbar, and no warning below them.
    cdp.until(&page, "innerWidth + 'x' + innerHeight", &json!("900x613")).await;

    let client = sandbox.client().await;
    client.handout(Some("http://page.test/".to_owned()), None, SLOWLY).await.unwrap();
    let blue_below = |picture: &crate::headless::Picture| picture.at(50, 650) == [0, 0, 255];
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let began = Instant::now();
        let png = client.screenshot(None, LARGE).await.unwrap();
        let took = began.elapsed();
        let picture = decode(&png);
        assert_eq!(picture.size, (900, 700));
        if blue_below(&picture) {
            println!("headful picture of 900x700: {took:?}, {} bytes", png.len());
            break;
        }
        assert!(Instant::now() < deadline, "the page does not show");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let part =
        decode(&client.screenshot(Some(Region { x: 880, y: 600, width: 20, height: 100 }), LARGE).await.unwrap());
    assert_eq!(part.size, (20, 100));
    assert_eq!(
        refusal(client.screenshot(Some(Region { x: 881, y: 600, width: 20, height: 100 }), LARGE).await),
        ErrorCode::OutOfRange
    );

    for viewport in [(1280, 800), (1440, 2560), (3840, 2160), (640, 480)].map(|(width, height)| Viewport {
        width,
        height,
        refresh_rate: 60,
    }) {
        client.viewport(viewport).await.unwrap();
        let (width, height) = (viewport.width, viewport.height);
        cdp.until(&page, "[outerWidth, outerHeight, innerWidth].join()", &json!(format!("{width},{height},{width}")))
            .await;
        assert_eq!(decode(&client.screenshot(None, LARGE).await.unwrap()).size, (width, height));
    }
    for (width, height) in [(3841, 480), (640, 2561), (16_000, 16_000)] {
        let too_large = Viewport { width, height, refresh_rate: 60 };
        assert_eq!(refusal(client.viewport(too_large).await), ErrorCode::OutOfRange);
    }
    assert_eq!(decode(&client.screenshot(None, LARGE).await.unwrap()).size, (640, 480), "a refusal changes nothing");

    let mut events = client.events().await.unwrap();
    client.shutdown().await.unwrap();
    let last = end(&mut events).await.0;
    assert_eq!(last, ExitReason::Shutdown);
    assert_eq!(sandbox.ended().await, Some(0));
}

/// The buffer of the display could grow to 39 MB, all of which the X server has painted once.
fn the_display_takes_the_memory_of_what_it_shows(sandbox: &Sandbox) {
    let server = sandbox.processes("Xvfb").into_iter().min().unwrap();
    let picture = std::fs::metadata(format!("/proc/{server}/root/dev/shm/Xvfb_screen0")).unwrap();
    let held = picture.blocks() * 512;
    println!("display: {} KiB of {} KiB held", held >> 10, picture.len() >> 10);
    assert!(picture.len() > 30 << 20 && held < 8 << 20, "{held} bytes held");
}

#[tokio::test]
async fn in_kiosk_mode_the_page_is_all_there_is_and_a_signal_ends_the_session() {
    let mut config = config(false);
    config.kiosk_mode = true;
    let mut sandbox = Sandbox::start(&config);
    let status = tokio::time::timeout(Duration::from_secs(60), sandbox.ready("kiosk")).await.unwrap();
    assert_eq!(status.state, State::Ready, "{status:?}");
    let mut cdp = Cdp::dial(&sandbox, &status).await;
    let target = cdp.pages().await.remove(0);
    let page = cdp.attach(&target).await;
    cdp.until(&page, "innerWidth + 'x' + innerHeight", &json!("900x700")).await;
    let client = sandbox.client().await;
    client.viewport(Viewport { width: 1024, height: 768, refresh_rate: 60 }).await.unwrap();
    cdp.until(&page, "innerWidth + 'x' + innerHeight", &json!("1024x768")).await;
    sandbox.memory("Xvfb");
    signal(sandbox.agent(), "TERM");
    assert_eq!(sandbox.ended().await, Some(0));
}
