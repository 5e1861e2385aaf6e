//! Tests that state of a browser that needs more than a page ends with the session: names, certificates, links and
//! forms.
//!
//! - *HSTS*: the rule is created on Chromium's internal page, because a rule of a header needs a trusted certificate.
//!   The test checks its effect: a port without TLS cannot be opened any more.
//! - *TLS tickets*: the server of the site records whether a handshake resumed an earlier one.
//! - *Visited links*: scripts cannot detect visited links, so the colour is taken from a screenshot.
//! - *Forms*: sent values are in the file `Web Data` of the profile, from which Chromium suggests values.
//! - *Names*: the egress resolves them, not the browser. A changed address applies at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use casement_test_support::program::{Options, Server, Session, until};
use serde_json::{Value, json};

use super::internet::{Internet, PUBLIC, PUBLIC_TOO, Tls, within};
use super::isolation::{Visit, files_with, first_process};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const TYPED: &str = "canary-typed@forms.test";

const PAGE: &str = "<!doctype html><meta charset=utf-8><title>here</title>\
    <style>body{margin:0} a{display:block;width:200px;height:100px;background-color:rgb(255,0,0)}\
    a:visited{background-color:rgb(0,0,255)} input,button{display:block;width:300px;height:40px}</style>\
    <a id=link href=/canary-visited></a>\
    <form action=/sent><input id=field name=email autocomplete=email><button id=send>Send</button></form>";

fn page(internet: &Internet) -> anyhow::Result<()> {
    internet.page((PUBLIC, 80), PAGE)?;
    internet.page((PUBLIC, 8080), PAGE)?;
    internet.page((PUBLIC_TOO, 80), "<title>moved</title>")?;
    for name in ["links.test", "forms.test", "strict.test", "tls.test"] {
        internet.name(name, &[PUBLIC]);
    }
    Ok(())
}

/// Returns for each kind of state whether it is present. `left`: state is expected, so the function waits for it.
fn look(
    server: &Server,
    session: &Session,
    visit: &mut Visit,
    tls: &Tls,
    left: bool,
) -> anyhow::Result<BTreeMap<&'static str, bool>> {
    let typed = files_with(&first_process(server, session)?, TYPED);
    Ok(BTreeMap::from([
        ("HSTS", is_strict(visit)?),
        ("TLS ticket", is_resumed(visit, tls)?),
        ("visited link", looks_visited(visit, if left { TEST_TIMEOUT } else { Duration::from_secs(3) })?),
        ("form", typed.iter().any(|file| file.ends_with("/Web Data"))),
    ]))
}

fn is_strict(visit: &mut Visit) -> anyhow::Result<bool> {
    let params = json!({ "url": "http://strict.test:8080/" });
    let answer = visit.client.call_in(Some(&visit.page), "Page.navigate", &params)?;
    match answer["errorText"].as_str() {
        None => Ok(false),
        Some(error) => {
            // A server without TLS closes the connection, because it cannot parse the handshake.
            ensure!(error.contains("SSL") || error.contains("CONNECTION_CLOSED"), "{error}");
            Ok(true)
        }
    }
}

fn is_resumed(visit: &mut Visit, tls: &Tls) -> anyhow::Result<bool> {
    let before = tls.handshakes().len();
    visit.client.call_in(Some(&visit.page), "Security.setIgnoreCertificateErrors", &json!({ "ignore": true }))?;
    visit.client.open(&visit.page, "https://tls.test/")?;
    let handshake = until("a handshake", TEST_TIMEOUT, || tls.handshakes().get(before).cloned())?;
    Ok(handshake == "resumed")
}

/// Returns true if the link gets the colour of a visited one in time. A renderer receives the visited links of a site
/// after its first page, and shows them from the second page on.
fn looks_visited(visit: &mut Visit, within: Duration) -> anyhow::Result<bool> {
    visit.client.open(&visit.page, "http://links.test/")?;
    visit.client.evaluate(&visit.page, "void (location = '/look')")?;
    until_at(visit, "/look")?;
    // The link has no colour before it is drawn.
    let of_links = [json!([255, 0, 0, 255]), json!([0, 0, 255, 255])];
    until("the link is drawn", TEST_TIMEOUT, || colour(visit).ok().filter(|colour| of_links.contains(colour)))?;
    let until = Instant::now() + within;
    while Instant::now() < until {
        let colour = colour(visit)?;
        ensure!(colour == json!([255, 0, 0, 255]) || colour == json!([0, 0, 255, 255]), "{colour}");
        if colour == json!([0, 0, 255, 255]) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn colour(visit: &mut Visit) -> anyhow::Result<Value> {
    let clip = json!({ "x": 10, "y": 10, "width": 20, "height": 20, "scale": 1 });
    let picture = visit.client.call_in(Some(&visit.page), "Page.captureScreenshot", &json!({ "clip": clip }))?;
    let png = picture["data"].as_str().context("no picture")?;
    let read = "(async () => {
      const image = await createImageBitmap(await (await fetch('data:image/png;base64,PNG')).blob());
      const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
      canvas.drawImage(image, 0, 0);
      return [...canvas.getImageData(5, 5, 1, 1).data];
    })()";
    visit.client.evaluate(&visit.page, &read.replace("PNG", png))
}

/// Clicks the middle of an element.
fn press(visit: &mut Visit, id: &str) -> anyhow::Result<()> {
    visit.client.until_drawn(&visit.page)?;
    let place = format!("(it => [it.x + it.width / 2, it.y + it.height / 2])({id}.getBoundingClientRect())");
    let place = visit.client.evaluate(&visit.page, &place)?;
    for kind in ["mousePressed", "mouseReleased"] {
        let event = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
        visit.client.call_in(Some(&visit.page), "Input.dispatchMouseEvent", &event)?;
    }
    Ok(())
}

fn until_at(visit: &mut Visit, path: &str) -> anyhow::Result<()> {
    let there = format!("location.pathname == '{path}' && document.readyState == 'complete'");
    let Visit { client, page, .. } = visit;
    until(path, TEST_TIMEOUT, || (client.evaluate(page, &there).ok()? == true).then_some(()))
}

fn plant(visit: &mut Visit) -> anyhow::Result<()> {
    visit.client.open(&visit.page, "chrome://net-internals/#hsts")?;
    visit.client.evaluate(&visit.page, "chrome.send('hstsAdd', ['strict.test', false])")?;

    visit.client.open(&visit.page, "http://links.test/")?;
    press(visit, "link")?;
    until_at(visit, "/canary-visited")?;

    for _ in 0..2 {
        fill_in(visit)?;
    }
    Ok(())
}

fn fill_in(visit: &mut Visit) -> anyhow::Result<()> {
    visit.client.open(&visit.page, "http://forms.test/")?;
    press(visit, "field")?;
    for letter in TYPED.chars() {
        let key = |kind: &str| json!({ "type": kind, "text": letter.to_string(), "key": letter.to_string() });
        for kind in ["keyDown", "keyUp"] {
            visit.client.call_in(Some(&visit.page), "Input.dispatchKeyEvent", &key(kind))?;
        }
    }
    press(visit, "send")?;
    until_at(visit, "/sent")
}

fn all(found: &BTreeMap<&'static str, bool>, there: bool) -> bool {
    found.len() == 4 && found.values().all(|one| *one == there)
}

#[test]
fn browser_memory_of_links_forms_and_certificates_ends_with_the_session() -> anyhow::Result<()> {
    within(|internet| {
        page(internet)?;
        let tls = internet.tls(PUBLIC, "tls.test")?;
        let options = Options { resolv_conf: Some(internet.resolv_conf()), ..Options::default() };
        let server = Server::start(options)?;
        // Chromium stores form values only if the caller enables it.
        let remembers = json!({ "AutofillAddressEnabled": true });
        server
            .post(
                "/browser_pools",
                &json!({ "name": "memories", "size": 1, "headless": true, "browser_policy": remembers }),
            )?
            .expect(201)?;
        let first = server.acquire("memories")?;
        let mut visit = Visit::to(&first)?;
        let found = look(&server, &first, &mut visit, &tls, false)?;
        assert!(all(&found, false), "before anything was left: {found:?}");
        plant(&mut visit)?;
        let process = first_process(&server, &first)?;
        // A form that is sent before the browser has analysed it is not stored, so it is sent again.
        until("the form is remembered", 2 * TEST_TIMEOUT, || {
            let is_there = files_with(&process, TYPED).iter().any(|file| file.ends_with("/Web Data"));
            if is_there { Some(Ok(())) } else { fill_in(&mut visit).err().map(Err) }
        })??;
        let found = look(&server, &first, &mut visit, &tls, true)?;
        assert!(all(&found, true), "what was left is not seen where it was left: {found:?}");

        let other = server.create(&json!({ "headless": true }))?;
        let found = look(&server, &other, &mut Visit::to(&other)?, &tls, false)?;
        assert!(all(&found, false), "another session at the same time: {found:?}");
        server.release("memories", &first)?;
        let next = server.acquire("memories")?;
        let found = look(&server, &next, &mut Visit::to(&next)?, &tls, false)?;
        assert!(all(&found, false), "the next caller of the pool: {found:?}");
        Ok(())
    })
}

#[test]
fn no_dns_answer_of_one_caller_is_cached_for_the_next_or_another() -> anyhow::Result<()> {
    within(|internet| {
        page(internet)?;
        internet.name("moving.test", &[PUBLIC]);
        let options = Options { resolv_conf: Some(internet.resolv_conf()), ..Options::default() };
        let server = Server::start(options)?;
        server.post("/browser_pools", &json!({ "name": "names", "size": 1, "headless": true }))?.expect(201)?;
        let first = server.acquire("names")?;
        let mut visit = Visit::to(&first)?;
        let title = |visit: &mut Visit| -> anyhow::Result<Value> {
            visit.client.open(&visit.page, "http://moving.test/")?;
            visit.client.evaluate(&visit.page, "document.title")
        };
        assert_eq!(title(&mut visit)?, "here");
        let lookups = internet.lookups("moving.test");
        assert!(lookups > 0, "it was looked up");

        internet.name("moving.test", &[PUBLIC_TOO]);
        let other = server.headless()?;
        assert_eq!(title(&mut Visit::to(&other)?)?, "moved", "another session at the same time");
        let lookups_again = internet.lookups("moving.test");
        assert!(lookups_again > lookups, "it was looked up anew");
        server.release("names", &first)?;
        let next = server.acquire("names")?;
        assert_eq!(title(&mut Visit::to(&next)?)?, "moved", "the next caller of the pool");
        assert!(internet.lookups("moving.test") > lookups_again, "it was looked up anew");
        Ok(())
    })
}
