//! Tests of Playwright over `cdp_ws_url`.

use casement_test_support::program::{Cdp, Clients, Shared};
use serde_json::json;

#[test]
fn playwright_drives_the_open_page_and_leaves_the_browser_running() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.headless()?;

    let arguments = [session.text("cdp_ws_url"), &pages.url("")];
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/playwright_drive.mjs", &arguments)?;

    let saw = json!({
        "open": [["about:blank"]],
        "said": "Hello, Ada",
        "computed": { "product": 42, "title": "Pressed", "seen": ["click"] },
        "picture": [1920, 1080],
        "bulk": { "upload": 3 << 20, "popup": "Green", "large": 12 << 20 },
        "cookies": "",
        "small": [640, 480],
    });
    assert_eq!(run.json()?, saw);
    let mut later = Cdp::connect(session.text("cdp_ws_url"))?;
    let page = later.page()?;
    assert_eq!(later.evaluate(&page, "document.title")?, "Pressed", "the page is as the client left it");
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

#[test]
fn two_playwright_clients_share_one_browser() -> anyhow::Result<()> {
    let Shared { server, pages } = Shared::get();
    let session = server.headless()?;

    let arguments = [session.text("cdp_ws_url"), &pages.url("")];
    let run = Clients::find()?.run(server, "crates/app/tests/scripts/playwright_two.mjs", &arguments)?;

    assert_eq!(run.json()?, json!({ "loaded": ["Green", "A page"], "after": "A page" }));
    server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    Ok(())
}

#[test]
fn files_of_a_playwright_elsewhere_cross_or_fail_with_the_way_that_works() -> anyhow::Result<()> {
    let Shared { server, .. } = Shared::get();
    for headless in [true, false] {
        let session = server.create(&json!({ "headless": headless, "timeout_seconds": 600 }))?;

        let script = "crates/app/tests/scripts/playwright_files.mjs";
        let saw = Clients::find()?.run(server, script, &[session.text("cdp_ws_url")])?.json()?;

        let downloads = &saw["downloads"];
        assert_eq!((&downloads["name"], &downloads["failure"]), (&json!("report.csv"), &json!(null)));
        assert_eq!(downloads["saved"], json!(false));
        for call in ["saveAs", "stream"] {
            let error = downloads[call]["error"].as_str().unwrap_or_default();
            assert!(error.contains("in the session below /home/casement/downloads"), "{call}: {downloads}");
        }
        let path = "/home/casement/downloads/report.csv";
        let read = server.get(&format!("/browsers/{}/fs/read_file?path={path}", session.id()))?.expect(200)?;
        assert_eq!(read.text(), "month,total");

        assert_eq!(saw["note"], "a note", "a file of the client crosses");
        let folder = saw["folder"]["error"].as_str().unwrap_or_default();
        assert!(folder.contains("does not exist in the session: upload it with POST"), "{saw}");
        server.delete(&format!("/browsers/{}", session.id()))?.expect(204)?;
    }
    Ok(())
}
