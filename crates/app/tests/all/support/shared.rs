//! One server for all tests that only use it as a caller does: a start costs seconds.

use std::sync::OnceLock;

use serde_json::json;

use super::{Options, Pages, Server};

/// The server, and pages that its browsers may open.
pub(crate) struct Shared {
    pub(crate) server: Server,
    pub(crate) pages: Pages,
}

/// Tests run side by side, so none takes the last browser of another's pool: this one has two.
pub(crate) const POOL: &str = "shared";

static SHARED: OnceLock<Shared> = OnceLock::new();

impl Shared {
    /// The one server, started by the first who asks. Its watchdog ends it when the test program ends: nothing runs in a
    /// test program after its last test.
    pub(crate) fn get() -> &'static Self {
        SHARED.get_or_init(|| {
            let pages = Pages::start().unwrap();
            let server =
                Server::start(Options { flags: vec!["--spares".into(), "0".into()], ..Options::reaching(&pages) });
            let server = server.unwrap_or_else(|error| panic!("the shared server does not start: {error:#}"));
            let pool = json!({ "name": POOL, "size": 2, "headless": true });
            server.post("/browser_pools", &pool).unwrap().expect(201).unwrap();
            Self { server, pages }
        })
    }
}
