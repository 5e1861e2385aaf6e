//! What a test leaves on a shared server ends with the test: idle browsers take processor time from other tests.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{Answer, Request};

/// The timeout of the end of one remainder. A failure is not reported, because most remainders have ended already.
const END_TIMEOUT: Duration = Duration::from_secs(60);

thread_local! {
    static REMAINDERS: RefCell<Remainders> = const { RefCell::new(Remainders(Vec::new())) };
}

/// The requests that end what this thread has created.
struct Remainders(Vec<(SocketAddr, Request)>);

impl Drop for Remainders {
    fn drop(&mut self) {
        for (server, request) in self.0.drain(..) {
            drop(request.send_within(server, END_TIMEOUT));
        }
    }
}

/// Notes a session or a pool that this call has created, if the thread is that of a test. A thread that a test has started
/// may end before the test.
pub(super) fn note(server: SocketAddr, key: &str, (method, path): (&str, &str), answer: &Answer) {
    let is_test = thread::current().name().is_some_and(|name| name.contains("::"));
    if !is_test || method != "POST" || !matches!(answer.status, 200 | 201) {
        return;
    }
    let Ok(created) = answer.json() else { return };
    let text = |field: &str| created[field].as_str().map(str::to_owned);
    let (path, body) = match path {
        "/browser_pools" => (text("id").map(|id| format!("/browser_pools/{id}")), json!({ "force": true })),
        _ if path == "/browsers" || path.ends_with("/acquire") => {
            (text("session_id").map(|id| format!("/browsers/{id}")), Value::Null)
        }
        _ => return,
    };
    let Some(path) = path else { return };
    let end = Request::new("DELETE", &path).bearer(key);
    let end = if body.is_null() { end } else { end.json(&body) };
    REMAINDERS.with_borrow_mut(|remainders| remainders.0.push((server, end)));
}
