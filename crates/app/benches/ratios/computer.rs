//! Measures screenshots and the clipboard of a session through the API, against direct calls of the browser.

use anyhow::ensure;
use casement_test_support::png_size;
use casement_test_support::program::{Options, Server};
use serde_json::json;

use crate::client::Client;
use crate::machine::quiet;
use crate::relay::PathClient;
use crate::samples::Samples;
use crate::table::{Row, Table, ms};

const PICTURES: usize = 60;
const TEXTS: usize = 200;
/// Text on a colour gradient, for a screenshot of medium complexity.
const PAGE: &str = "document.body.style.background = 'linear-gradient(45deg, #fed, #def)';
    document.body.innerHTML = '<p>Lorem ipsum dolor sit <b>amet</b>, consectetur adipiscing elit. '.repeat(200);
    document.title = 'a picture'; 1";

pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    for headless in [false, true] {
        let server = Server::start(Options::default())?;
        let mut client = Client::of(&server)?;
        let body = json!({ "headless": headless, "viewport": { "width": 1920, "height": 1080 } });
        let session = client.call("POST", "/browsers", Some(&body))?.expect(201)?.json()?;
        let base = format!("/browsers/{}/computer", session["session_id"].as_str().unwrap_or_default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut straight = PathClient::straight(&server, &runtime)?;
        straight.evaluate(PAGE)?;
        quiet();
        let how = if headless { "headless" } else { "with a display" };
        pictures(&mut client, &mut straight, &base, how, table)?;
        clipboard(&mut client, &mut straight, &base, how, table)?;
    }
    Ok(())
}

fn pictures(
    client: &mut Client,
    straight: &mut PathClient,
    base: &str,
    how: &str,
    table: &mut Table,
) -> anyhow::Result<()> {
    let (mut ours, mut direct) = (Samples::default(), Samples::default());
    let path = format!("{base}/screenshot");
    for _ in 0..PICTURES {
        let picture = ours.time(|| client.call("POST", &path, Some(&json!({}))))?.expect(200)?;
        ensure!(png_size(&picture.body) == Some((1920, 1080)), "a picture of another size");
        let params = json!({ "format": "png", "optimizeForSpeed": true });
        let taken = direct.time(|| straight.in_page("Page.captureScreenshot", &params))?;
        ensure!(taken["result"]["data"].is_string(), "no picture: {:.200}", taken.to_string());
    }
    let (ours, direct) = (ours.p50(), direct.p50());
    let what = format!("screenshot of 1920 × 1080, {how}, p50 of {PICTURES}");
    table
        .add(Row::new(what, ms(ours)).against(format!("Page.captureScreenshot direct, {}", ms(direct)), ours / direct));
    Ok(())
}

/// Measures writing and reading a text, against two direct evaluations on a page.
fn clipboard(
    client: &mut Client,
    straight: &mut PathClient,
    base: &str,
    how: &str,
    table: &mut Table,
) -> anyhow::Result<()> {
    let (mut ours, mut direct) = (Samples::default(), Samples::default());
    let (write, read) = (format!("{base}/clipboard/write"), format!("{base}/clipboard/read"));
    // The first call opens the page for the clipboard.
    client.call("POST", &write, Some(&json!({ "text": "first" })))?.expect(204)?;
    for number in 0..TEXTS {
        let text = format!("text {number}");
        let answer = ours.time(|| {
            client.call("POST", &write, Some(&json!({ "text": text })))?.expect(204)?;
            client.call("POST", &read, Some(&json!({})))
        })?;
        ensure!(answer.expect(200)?.json()? == json!({ "text": text }), "another text came back");
        // Two evaluations on a page are the minimum cost.
        direct.time(|| straight.evaluate("1").and_then(|_| straight.evaluate("2")))?;
    }
    let (ours, direct) = (ours.p50(), direct.p50());
    let what = format!("clipboard there and back, {how}, p50 of {TEXTS}");
    table.add(
        Row::new(what, ms(ours)).against(format!("two questions to a page, direct, {}", ms(direct)), ours / direct),
    );
    Ok(())
}
