//! Tests of network configurations: a page and the programs of a session reach only the allowed hosts, whatever they
//! try, and a change reaches open connections.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use casement_test_support::program::{Cdp, Options, Pages, Server, Session, until};
use serde_json::{Value, json};

use super::internet::{Internet, within};
use super::proxies::exit;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A host that Chromium trusts like HTTPS, so that it may have a service worker.
const ALLOWED: &str = "app.localhost";
const DENIED: &str = "denied.site.test";
const PRIVATE: &str = "wiki.internal";

/// A site under several names, and a server whose browsers resolve them.
struct Site<'a> {
    internet: &'a Internet,
    pages: Pages,
    server: Server,
}

impl<'a> Site<'a> {
    fn start(internet: &'a Internet) -> anyhow::Result<Self> {
        Self::start_with(internet, Pages::start()?, Options::default())
    }

    fn start_with(internet: &'a Internet, pages: Pages, options: Options) -> anyhow::Result<Self> {
        for name in [ALLOWED, DENIED, "a.good.site.test", "b.a.good.site.test", "good.site.test", PRIVATE] {
            internet.name(name, &[Ipv4Addr::LOCALHOST]);
        }
        let egress_allow = vec!["127.0.0.0/8".to_owned()];
        let server = Server::start(Options { egress_allow, resolv_conf: Some(internet.resolv_conf()), ..options })?;
        Ok(Self { internet, pages, server })
    }

    fn port(&self) -> String {
        self.pages.allow().rsplit(':').next().unwrap_or_default().to_owned()
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port())
    }

    fn requested(&self, path: &str) -> bool {
        self.pages.requests().iter().any(|line| line.split(' ').nth(1) == Some(path))
    }

    fn session(&self, network: &Value) -> anyhow::Result<(Session, Cdp, String)> {
        let telemetry = json!({ "browser": { "network": { "enabled": true } } });
        let body = json!({ "headless": true, "network": network, "telemetry": telemetry, "timeout_seconds": 600 });
        let session = self.server.create(&body)?;
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        Ok((session, cdp, page))
    }

    fn record(&self, session: &Session) -> anyhow::Result<Value> {
        self.server.get(&format!("/browsers/{}", session.id()))?.expect(200)?.json()
    }

    fn patch(&self, session: &Session, network: &Value, status: u16) -> anyhow::Result<Value> {
        let path = format!("/browsers/{}", session.id());
        self.server.send("PATCH", &path, Some(&json!({ "network": network })))?.expect(status)?.json()
    }
}

/// Counts connections at a free port.
fn counted() -> anyhow::Result<(u16, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (port, count) = (listener.local_addr()?.port(), Arc::<AtomicUsize>::default());
    let counter = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    Ok((port, count))
}

/// Returns the scripts by which a page makes a request, each for a URL. A script ends when the request has ended.
fn ways(url: &dyn Fn(&str) -> String) -> Vec<(&'static str, String)> {
    let element = |way: &str, make: &str| {
        let url = url(way);
        format!(
            "new Promise(done => {{ {make}; it.onload = it.onerror = () => done(1); setTimeout(() => done(2), 3000); \
             if (it.href === undefined) it.src = '{url}'; else it.href = '{url}'; document.body.append(it); }})"
        )
    };
    let created = |tag: &str| format!("const it = document.createElement('{tag}')");
    let link = |rel: &str| format!("{}; it.rel = '{rel}'", created("link"));
    let ended = ".then(() => 1, () => 2)";
    vec![
        ("image", element("image", "const it = new Image()")),
        ("script", element("script", &created("script"))),
        ("style", element("style", &link("stylesheet"))),
        ("frame", element("frame", &created("iframe"))),
        ("prefetch", element("prefetch", &link("prefetch"))),
        ("fetch", format!("fetch('{}', {{ mode: 'no-cors' }}){ended}", url("fetch"))),
        (
            "beacon",
            format!("navigator.sendBeacon('{}', 'x'); new Promise(done => setTimeout(done, 300))", url("beacon")),
        ),
        (
            "events",
            format!(
                "new Promise(done => {{ const it = new EventSource('{}'); it.onerror = () => {{ it.close(); done(1); }} }})",
                url("events")
            ),
        ),
        (
            "socket",
            format!(
                "new Promise(done => {{ const it = new WebSocket('{}'); it.onclose = () => done(1); }})",
                url("socket").replacen("http:", "ws:", 1)
            ),
        ),
        (
            "worker",
            format!(
                "navigator.serviceWorker.ready.then(it => new Promise(done => {{ navigator.serviceWorker.onmessage = () => done(1); \
                 it.active.postMessage('{}'); }}))",
                url("worker")
            ),
        ),
        (
            "download",
            format!(
                "Object.assign(document.createElement('a'), {{ href: '{}', download: 'x' }}).click(); \
                 new Promise(done => setTimeout(done, 1000))",
                url("download")
            ),
        ),
    ]
}

const WORKER: &str = "onactivate = event => event.waitUntil(clients.claim()); \
    onmessage = event => event.waitUntil(fetch(event.data, { mode: 'no-cors' }).then(() => 1, () => 2)\
    .then(result => event.source.postMessage(result)))";

#[test]
fn a_session_reaches_only_its_allowed_hosts_whatever_a_page_or_program_tries() -> anyhow::Result<()> {
    within(|internet| {
        let site = Site::start(internet)?;
        site.pages.put_as("/worker.js", "Content-Type: text/javascript", WORKER);
        let attachment = "Content-Type: application/octet-stream\r\nContent-Disposition: attachment";
        site.pages.put_as("/public-download", attachment, "x");
        site.pages.redirect("/leave", &site.url(DENIED, "/secret-redirect"));
        let network = json!({ "allowed_hosts": [ALLOWED, "*.good.site.test"] });
        let (session, mut cdp, page) = site.session(&network)?;
        let home = site.url(ALLOWED, "/form");
        cdp.open(&page, &home)?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
        cdp.evaluate(
            &page,
            "navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready).then(() => 1)",
        )?;
        for (way, script) in ways(&|way| site.url("b.a.good.site.test", &format!("/public-{way}"))) {
            cdp.evaluate(&page, &script)?;
            until(&format!("{way} of an allowed host"), TEST_TIMEOUT, || {
                site.requested(&format!("/public-{way}")).then_some(())
            })?;
        }
        let literal = format!("http://{}", site.pages.allow());
        for host in [DENIED, "good.site.test", "127.0.0.1"] {
            let denied = |way: &str| match host {
                "127.0.0.1" => format!("{literal}/secret-{way}"),
                name => site.url(name, &format!("/secret-{way}")),
            };
            cdp.open(&page, &home)?;
            for (way, script) in ways(&denied) {
                // A refused download shows the page that says why, in the place of this one.
                let outcome = cdp.evaluate(&page, &script);
                assert!(outcome.is_ok() || way == "download", "{way}: {outcome:?}");
            }
        }
        cdp.open(&page, &home)?;
        let fetched = format!("fetch('{}').then(it => it.status, () => 'failed')", site.url(DENIED, "/secret-cors"));
        assert_eq!(cdp.evaluate(&page, &fetched)?, "failed");

        // WebRTC over TCP is a tunnel; UDP cannot leave a sandbox.
        let (port, relayed) = counted()?;
        let rtc = format!(
            "new Promise(async done => {{ const it = new RTCPeerConnection({{ iceServers: [{{ urls: ['turn:{DENIED}:{port}?transport=tcp', \
             'stun:{DENIED}:{port}'], username: 'u', credential: 'c' }}] }}); it.createDataChannel('x'); \
             it.onicegatheringstatechange = () => it.iceGatheringState == 'complete' && done(1); setTimeout(() => done(2), 10000); \
             await it.setLocalDescription(await it.createOffer()); }})"
        );
        cdp.evaluate(&page, &rtc)?;
        assert_eq!(relayed.load(Ordering::SeqCst), 0);

        for path in ["/leave", "/secret-navigation"] {
            let host = if path == "/leave" { ALLOWED } else { DENIED };
            cdp.call_in(Some(&page), "Page.navigate", &json!({ "url": site.url(host, path) }))?;
            let text = until("the page that says why", TEST_TIMEOUT, || {
                let text = cdp.evaluate(&page, "document.body?.innerText ?? ''").ok()?;
                text.as_str()?.contains("network_policy_denied").then(|| text.clone())
            })?;
            assert!(text.to_string().contains("does not allow this destination"), "{text}");
        }
        let tls = cdp.call_in(Some(&page), "Page.navigate", &json!({ "url": format!("https://{DENIED}/") }))?;
        assert_eq!(tls["errorText"], "net::ERR_TUNNEL_CONNECTION_FAILED");

        let path = format!("/browsers/{}", session.id());
        let call = |url: &str| site.server.post(&format!("{path}/curl"), &json!({ "url": url }));
        assert_eq!(call(&site.url("a.good.site.test", "/form"))?.expect(200)?.json()?["status"], 200);
        for scheme in ["http", "https"] {
            let refused = call(&site.url(DENIED, "/secret-curl").replacen("http", scheme, 1))?.expect(502)?.json()?;
            assert!(refused["message"].to_string().contains("network_policy_denied"), "{refused}");
        }
        let program = |url: &str| {
            let command = format!("curl -s -x http://127.0.0.1:3128 -D - {url}");
            let body = json!({ "command": command, "timeout_sec": 60 });
            let ended = site.server.post(&format!("{path}/process/exec"), &body)?.expect(200)?.json()?;
            let output = base64_text(&ended["stdout_b64"]);
            anyhow::Ok(output)
        };
        assert!(program(&site.url("a.good.site.test", "/green"))?.contains("Green"));
        for url in [site.url(DENIED, "/secret-program"), format!("https://{DENIED}:{}/", site.port())] {
            let output = program(&url)?.to_ascii_lowercase();
            assert!(
                output.contains("403") && output.contains("x-kernel-proxy-error: network_policy_denied"),
                "{output}"
            );
        }
        let direct = format!("curl -s --noproxy '*' --max-time 5 {}", site.url(DENIED, "/secret-direct"));
        site.server
            .post(&format!("{path}/process/exec"), &json!({ "command": direct, "timeout_sec": 60 }))?
            .expect(200)?;

        let secret = site.pages.requests().into_iter().filter(|line| line.contains("secret")).collect::<Vec<_>>();
        assert!(secret.is_empty(), "{secret:?}");
        assert_eq!(site.internet.lookups(DENIED), 0, "no name of a refused request is looked up");

        let denied = &site.record(&session)?["network"]["denied_requests"];
        assert!(denied["count"].as_u64().unwrap_or_default() > 20, "{denied}");
        assert!(denied["last"].to_string().contains(&format!("{DENIED}:{}", site.port())), "{denied}");
        until("the refusal in the telemetry", TEST_TIMEOUT, || {
            let events = site.server.get(&format!("{path}/telemetry/events?category=network&limit=100&order=desc"));
            let events = events.ok()?.json().ok()?;
            let mut events = events.as_array()?.iter().map(|one| one["event"].clone());
            events.find(|one| one["type"] == "proxy_error" && one["data"]["code"] == "network_policy_denied")
        })?;
        site.server.delete(&path)?.expect(204).map(drop)
    })
}

fn base64_text(value: &Value) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// Reads a response that never ends; `window.state` says whether it was cut.
const READING: &str = "fetch('/stream').then(async response => { const reader = response.body.getReader(); window.state = 'open'; \
    try { while (!(await reader.read()).done); window.state = 'ended'; } catch { window.state = 'cut'; } }); 1";

#[test]
fn a_change_of_the_allowed_hosts_has_a_revision_and_closes_what_it_denies() -> anyhow::Result<()> {
    within(|internet| {
        let mut site = Site::start(internet)?;
        let name = "a.good.site.test";
        site.pages.put_without_end("/stream", "begin");
        let (session, mut cdp, page) = site.session(&json!({ "allowed_hosts": [ALLOWED, name] }))?;
        let state = |record: &Value| record["network"]["allowlist_state"].clone();
        let record = site.record(&session)?;
        let first = state(&record)["revision"].clone();
        assert_eq!(record["network"]["allowed_hosts"], json!([ALLOWED, name]));

        cdp.open(&page, &site.url(ALLOWED, "/form"))?;
        let other = cdp.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let other = cdp.attach(other["targetId"].as_str().unwrap_or_default())?;
        cdp.open(&other, &site.url(name, "/form"))?;
        for page in [&page, &other] {
            cdp.evaluate(page, READING)?;
            until("the response", TEST_TIMEOUT, || {
                cdp.evaluate(page, "window.state").ok().filter(|state| state == "open")
            })?;
        }
        let change = json!({ "allowed_hosts": [ALLOWED], "expected_allowlist_revision": first, "mutation_id": "m1" });
        let changed = site.patch(&session, &change, 200)?;
        let expected = json!({ "revision": "2", "base_revision": first, "mutation_id": "m1" });
        assert_eq!((state(&changed), &changed["network"]["allowed_hosts"]), (expected.clone(), &json!([ALLOWED])));
        until("the end of the response of the host that was removed", TEST_TIMEOUT, || {
            cdp.evaluate(&other, "window.state").ok().filter(|state| state == "cut")
        })?;
        assert_eq!(cdp.evaluate(&page, "window.state")?, "open", "the other one continues");
        assert_eq!(state(&site.patch(&session, &change, 200)?), expected, "a repeated change");
        let stale = json!({ "allowed_hosts": [name], "expected_allowlist_revision": first, "mutation_id": "m2" });
        assert_eq!(site.patch(&session, &stale, 409)?["code"], "stale_network");
        let fetched = |host: &str| {
            format!("fetch('{}', {{ mode: 'no-cors' }}).then(it => it.type, () => 'failed')", site.url(host, "/form"))
        };
        let refused = format!("fetch('{}').then(it => it.status, () => 'failed')", site.url(name, "/after-change"));
        cdp.evaluate(&page, &refused)?;
        assert!(!site.requested("/after-change"));
        assert_eq!(cdp.evaluate(&page, &fetched(ALLOWED))?, "basic");

        site.server.kill()?;
        site.server.restart()?;
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        cdp.open(&page, &site.url(ALLOWED, "/form"))?;
        cdp.evaluate(&page, &format!("fetch('{}').catch(() => 0)", site.url(name, "/after-restart")))?;
        assert!(!site.requested("/after-restart"), "the list outlives the server");

        let removed = site.patch(&session, &json!({ "allowed_hosts": null }), 200)?;
        assert_eq!((&removed["network"]["allowed_hosts"], &state(&removed)["revision"]), (&Value::Null, &json!("3")));
        cdp.open(&page, &site.url(name, "/green"))?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "Green");
        let added = site.patch(&session, &json!({ "allowed_hosts": [name] }), 400)?;
        assert!(added["message"].to_string().contains("network.allowed_hosts"), "{added}");
        site.server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
    })
}

#[test]
fn pools_have_a_network_configuration_that_their_browsers_keep() -> anyhow::Result<()> {
    within(|internet| {
        let site = Site::start(internet)?;
        let network = json!({ "allowed_hosts": [ALLOWED] });
        let body = json!({ "name": "warm", "size": 1, "headless": true, "network": network });
        let pool = site.server.post("/browser_pools", &body)?.expect(201)?.json()?;
        assert_eq!(pool["browser_pool_config"]["network"], network);
        let start_url = json!({ "start_url": site.url(DENIED, "/") });
        site.server.post("/browser_pools/warm/acquire", &start_url)?.expect(400)?;

        let session = site.server.acquire("warm")?;
        let mut cdp = Cdp::connect(session.text("cdp_ws_url"))?;
        let page = cdp.page()?;
        cdp.open(&page, &site.url(ALLOWED, "/form"))?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
        cdp.evaluate(&page, &format!("fetch('{}').catch(() => 0)", site.url(DENIED, "/secret")))?;
        assert!(!site.requested("/secret"));
        site.patch(&session, &json!({ "allowed_hosts": null }), 200)?;
        cdp.open(&page, &site.url(DENIED, "/green"))?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "Green");
        site.server.release("warm", &session)?;
        assert_eq!(site.server.acquire("warm")?.0["network"]["allowed_hosts"], json!([ALLOWED]));

        let update = |body: &Value| site.server.send("PATCH", "/browser_pools/warm", Some(body));
        let stale = json!({ "network": {}, "expected_network": { "allowed_hosts": [DENIED] } });
        assert_eq!(update(&stale)?.expect(409)?.json()?["code"], "stale_network");
        let removed = update(&json!({ "network": {}, "expected_network": network }))?.expect(200)?.json()?;
        assert_eq!(removed["browser_pool_config"]["network"], Value::Null);
        Ok(())
    })
}

#[test]
fn hosts_leave_through_the_proxies_of_their_routes() -> anyhow::Result<()> {
    within(|internet| {
        let site = Site::start(internet)?;
        let (address, requests) = exit(&site.pages)?;
        for (name, port) in [("exit", address.port()), ("down", 9)] {
            let config = json!({ "host": "127.0.0.1", "port": port });
            site.server.post("/proxies", &json!({ "type": "custom", "name": name, "config": config }))?.expect(201)?;
        }
        let route = |host: &str, name: &str| json!({ "hosts": [host], "proxy": { "name": name } });
        let routes = [route("*.routed.example", "exit"), route("down.routed.example", "down")];
        let network = json!({ "proxy_routes": routes });
        let (session, mut cdp, page) = site.session(&network)?;
        cdp.open(&page, "http://a.b.routed.example/form")?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
        assert!(requests.lock().iter().any(|line| line.contains("a.b.routed.example")));
        let before = requests.lock().len();
        cdp.open(&page, &site.url(ALLOWED, "/green"))?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "Green");
        cdp.call_in(Some(&page), "Page.navigate", &json!({ "url": "http://down.routed.example/" }))?;
        until("the failed proxy", TEST_TIMEOUT, || {
            let text = cdp.evaluate(&page, "document.body?.innerText ?? ''").ok()?;
            text.as_str()?.contains("The session's proxy could not be used").then_some(())
        })?;
        assert_eq!(requests.lock().len(), before);
        let id = site.record(&session)?["network"]["proxy_routes"][0]["proxy"]["id"].clone();
        let path = format!("/proxies/{}", id.as_str().unwrap_or_default());
        assert_eq!(site.server.get(&path)?.expect(200)?.json()?["name"], "exit");

        let selected = json!({ "proxy": { "name": "exit" } });
        let path = format!("/browsers/{}", session.id());
        let record = site.server.send("PATCH", &path, Some(&selected))?.expect(200)?.json()?;
        assert_eq!(record["proxy"], json!({ "id": id }));
        cdp.open(&page, "http://only-there.example/form")?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
        let direct = json!({ "proxy": { "mode": "direct" } });
        let record = site.server.send("PATCH", &path, Some(&direct))?.expect(200)?.json()?;
        assert_eq!((&record["proxy"], &record["proxy_id"]), (&json!({ "mode": "direct" }), &Value::Null));
        Ok(())
    })
}

#[test]
fn a_session_reaches_private_hosts_that_the_operator_lends_to_its_project() -> anyhow::Result<()> {
    within(|internet| {
        let pages = Pages::start()?;
        let port = pages.allow().rsplit(':').next().unwrap_or_default().to_owned();
        let private = format!("{PRIVATE}:{port}");
        let request = json!({ "headless": true, "network": { "private_hosts": [private] } });
        let mut first = Server::start(Options::default())?;
        let projects = first.get("/org/projects")?.expect(200)?.json()?;
        let project = projects[0]["id"].as_str().unwrap_or_default().to_owned();
        let answer = first.post("/browsers", &request)?.expect(400)?.json()?;
        assert!(answer["message"].to_string().contains("network.private_hosts.0"), "{answer}");
        first.stop_all()?;

        let flags = vec!["--egress-lend".to_owned(), format!("{project}={private}")];
        let options = Options { flags, data_dir: Some(first.data_dir()), ..Options::default() };
        let site = Site::start_with(internet, pages, options)?;
        let (session, mut cdp, page) = site.session(&request["network"])?;
        assert_eq!(site.record(&session)?["network"]["private_hosts"], json!([private]));
        cdp.open(&page, &site.url(PRIVATE, "/form"))?;
        assert_eq!(cdp.evaluate(&page, "document.title")?, "A form");
        // The operator allows the address of this name to all sessions, but this one has private hosts of its own.
        let fetched = format!("fetch('{}', {{ mode: 'no-cors' }}).then(() => 1, () => 2)", site.url(DENIED, "/secret"));
        cdp.evaluate(&page, &fetched)?;
        assert!(!site.requested("/secret"));
        site.server.delete(&format!("/browsers/{}", session.id()))?.expect(204).map(drop)
    })
}
