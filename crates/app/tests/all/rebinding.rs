//! Tests with names that change their addresses.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use casement_test_support::program::{Cdp, Options, Server, until};
use serde_json::json;

use super::internet::{PUBLIC, within};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn dns_rebinding_to_this_machine_is_never_followed() -> anyhow::Result<()> {
    within(|internet| {
        internet.page((PUBLIC, 8080), "<title>public</title>")?;
        let loopback =
            [8080, 443].map(|port| internet.page((Ipv4Addr::LOCALHOST, port), "<title>secret</title>").unwrap());
        for port in [8080, 443] {
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
        }
        let options = Options { resolv_conf: Some(internet.resolv_conf()), ..Options::default() };
        let server = Server::start(options)?;
        let session = server.headless()?;
        let mut client = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = client.page()?;
        // The port is not 80, because Chromium would try 443 first, which would consume the first answer. Each script
        // makes the second request, and returns the title or `open` if it gets a response.
        let ways = [
            ("fetch", "fetch('/again', { cache: 'no-store' }).then(it => it.text(), () => 'refused')"),
            (
                "frame",
                "new Promise(done => { const frame = document.createElement('iframe'); frame.src = '/frame'; \
                       frame.onload = () => done(frame.contentDocument?.title ?? 'refused'); document.body.append(frame); })",
            ),
            (
                "socket",
                "new Promise(done => { const it = new WebSocket(`ws://${location.host}/`); \
                        it.onopen = () => done('open'); it.onclose = () => done('refused'); })",
            ),
            ("tls", "fetch(`https://${location.hostname}/`, { mode: 'no-cors' }).then(() => 'open', () => 'refused')"),
        ];
        for (way, script) in ways {
            let name = format!("{way}.rebind.test");
            internet.name(&name, &[PUBLIC, Ipv4Addr::LOCALHOST]);
            client.open(&page, &format!("http://{name}:8080/"))?;
            assert_eq!(client.evaluate(&page, "document.title")?, "public", "{way}: the first answer is followed");
            let before = internet.lookups(&name);
            let value = client.evaluate(&page, script)?;
            assert!(internet.lookups(&name) > before, "{way}: the name was not asked again, so nothing was shown");
            assert!(!value.to_string().contains("secret") && value != "open", "{way}: {value}");
            client.evaluate(&page, "void (window.left = true)")?;
            let answer =
                client.call_in(Some(&page), "Page.navigate", &json!({ "url": format!("http://{name}:8080/") }))?;
            // `window.left` identifies the previous page.
            let there = "window.left || document.readyState != 'complete' ? null : document.title";
            let title = until("what comes in its place", TEST_TIMEOUT, || {
                client.evaluate(&page, there).ok().filter(|title| title.is_string())
            })?;
            assert!(title != "secret" && title != "public", "{way}, opened again: {answer} {title}");
        }
        for came in loopback {
            assert_eq!(came.load(Ordering::SeqCst), 1, "nobody but the test itself came");
        }
        Ok(())
    })
}
