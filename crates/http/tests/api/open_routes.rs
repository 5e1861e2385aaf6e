//! What a caller without a key can have: every route that answers it, with its cost in bytes and in time of a processor.
//!
//! The measured values are in docs/hardening.md; `cargo test -p casement-http routes_without_a_key -- --nocapture` prints
//! them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use casement_domain::{BrowserId, testing::session_id};
use casement_http::{RoutePattern, SessionConnector, relay::BrowserConnector, route_patterns};
use pretty_assertions::assert_eq;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{FailingConnector, Key, Ports, TestApi, request};

const ID: &str = "00000000000000000000000001";
/// A site that the operator trusts.
const SITE: &str = "https://site.example";
/// The number of measured calls of a route.
const CALLS: u32 = 30;
/// The factor by which a call may cost more than it did when the table was written. A processor that does other things
/// meanwhile is slower, and the table says what grows, not by how much.
const SLACK: f64 = 10.0;

/// The cost of a call without a key.
struct Cost {
    /// The method and the path, or what they have in common.
    route: &'static str,
    status: u16,
    /// The maximum size of the whole response, in bytes.
    bytes: usize,
    /// The time of the processor as a multiple of that of `GET /healthz`, rounded.
    effort: f64,
}

const fn cost(route: &'static str, status: u16, bytes: usize, effort: f64) -> Cost {
    Cost { route, status, bytes, effort }
}

/// The routes that do something for a caller without a key. A session's page and its connections are not among them.
const OPEN: [Cost; 18] = [
    cost("GET /healthz", 200, 242, 1.0),
    cost("GET /readyz", 200, 242, 1.0),
    cost("GET /wd/hub/status", 200, 288, 1.0),
    cost("GET /openapi.json", 200, 900_000, 3.0),
    cost("GET /openapi.json with gzip", 200, 100_000, 1.5),
    cost("GET /json/protocol", 200, DESCRIPTION + 300, 5.0),
    cost("GET /connect/json/protocol", 200, DESCRIPTION + 300, 5.0),
    cost("GET /", 303, 216, 1.0),
    cost("GET /ui", 200, 3_000, 1.0),
    cost("GET /ui/{tail:.*}", 200, 3_000, 1.0),
    cost("GET /ui/assets/{name}", 200, 24_000, 1.5),
    cost("GET /ui/session", 204, 183, 1.5),
    cost("GET /live/assets/{name}", 200, 24_000, 1.5),
    cost("GET /login/assets/{name}", 200, 24_000, 1.5),
    cost("GET /login/{connection_id}", 404, 1_500, 1.5),
    cost("GET /login/{connection_id}/events", 404, 323, 1.5),
    cost("GET /login/{connection_id}/live", 404, 323, 1.5),
    cost("POST /cluster/calls", 404, 295, 1.5),
];

/// The size of Chromium's description of its protocol, in bytes.
const DESCRIPTION: usize = 1_600_000;

/// A connector of browsers that have described their protocol.
struct Described(Bytes);

impl SessionConnector for Described {
    fn connector(&self, browser: BrowserId) -> Arc<dyn BrowserConnector> {
        FailingConnector.connector(browser)
    }

    fn protocol(&self) -> Option<Bytes> {
        Some(self.0.clone())
    }
}

/// What other requests without a key have in common.
const OTHERS: [Cost; 8] = [
    cost(NO_KEY, 401, 669, 1.5),
    cost("a key that is not valid", 401, 377, 2.0),
    cost(NO_ORIGIN, 403, 309, 1.5),
    cost("a sign-in with a key that is not valid", 401, 377, 2.0),
    cost("an unknown path", 404, 295, 1.5),
    cost("another method", 405, 446, 1.5),
    cost("OPTIONS", 204, 225, 1.5),
    cost("OPTIONS of a trusted site", 204, 497, 1.5),
];
const NO_KEY: &str = "every other route";
const NO_ORIGIN: &str = "a change that no page of this server asks for";

/// Returns the names of assets below the sources.
fn assets(folders: &[&str]) -> Vec<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = folders.iter().flat_map(|folder| fs::read_dir(sources.join(folder).join("assets")).unwrap());
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".html")).collect()
}

/// Returns the paths that a pattern stands for: one, or one for each asset.
fn paths(pattern: &str) -> Vec<String> {
    let names = match pattern {
        "/ui/assets/{name}" => assets(&["ui"]),
        "/live/assets/{name}" => assets(&["live_view", "replay"]),
        "/login/assets/{name}" => assets(&["login_page"]),
        _ => vec![ID.to_owned()],
    };
    let session = session_id(1).to_string();
    let path = |name: &String| {
        let parts = pattern.split('/').map(|part| match part {
            "{session_id}" => session.as_str(),
            part if part.starts_with('{') => name.as_str(),
            part => part,
        });
        parts.collect::<Vec<_>>().join("/")
    };
    names.iter().map(path).collect()
}

/// Returns the methods of a path, without those that have no cost of their own.
fn methods(pattern: &RoutePattern) -> Vec<&str> {
    let all = pattern.methods.iter().map(String::as_str).filter(|method| !matches!(*method, "HEAD" | "OPTIONS"));
    if pattern.methods.is_empty() { vec!["GET"] } else { all.collect() }
}

/// A server, and the time of the processor that its worker has used.
struct Meter {
    api: TestApi,
    schedule: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    status: u16,
    bytes: usize,
    time: Duration,
}

impl Meter {
    async fn start() -> Self {
        let connector = Described(Bytes::from(vec![b' '; DESCRIPTION]));
        let session_connector = Some(Arc::new(connector) as _);
        let ports = Ports { cors_origins: vec![SITE], session_connector, ..Ports::of_first_session() };
        let worker = ports.worker.clone();
        let api = TestApi::start(ports);
        assert_eq!(api.request("GET", "/readyz", &[], "").await.status, 200);
        let schedule = format!("/proc/self/task/{}/schedstat", worker.load(Ordering::Relaxed));
        Self { api, schedule }
    }

    /// Returns the time that the worker has run.
    fn time(&self) -> Duration {
        let text = fs::read_to_string(&self.schedule).unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    }

    /// Returns the status and the size of a whole response.
    async fn call(&self, raw: &[u8]) -> (u16, usize) {
        let mut stream = self.api.connect().await;
        stream.write_all(raw).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        let status = std::str::from_utf8(&response[9..12]).unwrap().parse().unwrap();
        (status, response.len())
    }

    async fn measure(&self, method: &str, path: &str, lines: &[&str], calls: u32) -> Measured {
        self.measure_raw(&request(method, path, lines, ""), calls).await
    }

    async fn measure_raw(&self, raw: &[u8], calls: u32) -> Measured {
        let (status, bytes) = self.call(raw).await;
        let before = self.time();
        for _ in 0..calls {
            assert_eq!(self.call(raw).await.0, status, "{}", String::from_utf8_lossy(raw));
        }
        Measured { status, bytes, time: (self.time() - before) / calls }
    }
}

/// The costs by row: the highest size, and the mean time.
#[derive(Default)]
struct Costs(BTreeMap<String, (u16, usize, Vec<Duration>)>);

impl Costs {
    fn add(&mut self, row: &str, new: Measured) {
        let (status, bytes, times) = self.0.entry(row.to_owned()).or_insert((new.status, new.bytes, Vec::new()));
        assert_eq!(*status, new.status, "{row}");
        *bytes = (*bytes).max(new.bytes);
        times.push(new.time);
    }

    fn mean(&self, row: &str) -> Duration {
        let times = &self.0[row].2;
        times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap()
    }
}

/// Measures every route without a key, and its other methods.
async fn measure_routes(meter: &Meter, costs: &mut Costs) {
    let site = format!("Origin: {SITE}");
    for pattern in route_patterns() {
        for path in paths(&pattern.path) {
            for method in methods(&pattern) {
                let once = meter.measure(method, &path, &[], 1).await;
                match once.status {
                    401 => costs.add(NO_KEY, once),
                    403 => costs.add(NO_ORIGIN, once),
                    _ => {
                        let row = format!("{method} {}", pattern.path);
                        // All other paths of the web interface are unknown.
                        let row = if row == "GET /ui/api/{tail:.*}" { "an unknown path" } else { &row };
                        costs.add(row, meter.measure(method, &path, &[], CALLS).await);
                    }
                }
            }
            if !pattern.methods.is_empty() {
                costs.add("OPTIONS", meter.measure("OPTIONS", &path, &[], 1).await);
                let lines = [site.as_str(), "Access-Control-Request-Method: GET"];
                costs.add("OPTIONS of a trusted site", meter.measure("OPTIONS", &path, &lines, 1).await);
                costs.add("another method", meter.measure("TRACE", &path, &[], 1).await);
            }
        }
    }
    for path in ["/nowhere", "/browsers/x/nowhere", "/vm/x/y/z"] {
        costs.add("an unknown path", meter.measure("GET", path, &[], CALLS).await);
    }
}

/// Measures requests that need more than a path.
async fn measure_others(meter: &Meter, costs: &mut Costs) {
    let packed = meter.measure("GET", "/openapi.json", &["Accept-Encoding: gzip"], CALLS).await;
    costs.add("GET /openapi.json with gzip", packed);
    let key = Key::Revoked.text();
    let line = format!("Authorization: Bearer {key}");
    costs.add("a key that is not valid", meter.measure("GET", "/browsers", &[&line], CALLS).await);
    let own_page = ["Origin: https://casement.test", "Sec-Fetch-Site: same-origin", "Content-Type: application/json"];
    let body = format!("{{\"key\": \"{key}\"}}");
    let sign_in = request("POST", "/ui/session", &own_page, &body);
    costs.add("a sign-in with a key that is not valid", meter.measure_raw(&sign_in, 5).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_without_a_key_are_known_with_their_bytes_and_their_time_of_a_processor() {
    let meter = Meter::start().await;
    meter.measure("GET", "/healthz", &[], 10 * CALLS).await;
    let mut costs = Costs::default();
    measure_routes(&meter, &mut costs).await;
    measure_others(&meter, &mut costs).await;
    let unit = costs.mean("GET /healthz").as_secs_f64();
    let (mut wrong, mut table) = (Vec::new(), String::new());
    for (route, (status, bytes, _)) in &costs.0 {
        let time = costs.mean(route);
        let effort = time.as_secs_f64() / unit;
        table.push_str(&format!("| {route} | {status} | {bytes} | {effort:.1} | {} µs |\n", time.as_micros()));
        match OPEN.iter().chain(&OTHERS).find(|known| known.route == route) {
            None => wrong.push(format!("{route} answers with {status}, but it is not in the table")),
            Some(known) => {
                let is_known = known.status == *status && *bytes <= known.bytes && effort <= known.effort * SLACK;
                if !is_known {
                    wrong.push(format!("{route}: {status}, {bytes} bytes, {effort:.1} times /healthz"));
                }
            }
        }
    }
    println!("{table}");
    let gone = OPEN.iter().chain(&OTHERS).filter(|known| !costs.0.contains_key(known.route));
    wrong.extend(gone.map(|known| format!("{} does not answer any more", known.route)));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
