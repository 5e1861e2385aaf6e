//! One server for all tests that use it like a caller, because a start costs seconds.

use std::sync::OnceLock;

use super::{Options, Pages, Server};

/// A server, and pages that its browsers may open.
pub struct Shared {
    /// The server.
    pub server: Server,
    /// The pages.
    pub pages: Pages,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

impl Shared {
    /// Returns the server, with its pool `default`. The first call starts it. Its watchdog ends it when the test
    /// program ends, because a test program runs no code after its last test.
    pub fn get() -> &'static Self {
        SHARED.get_or_init(|| {
            let pages = Pages::start().expect("a web server of the test");
            let server = Server::start(Options { first_start: true, spares: 1, ..Options::reaching(&pages) });
            let server = server.unwrap_or_else(|error| panic!("the shared server does not start: {error:#}"));
            Self { server, pages }
        })
    }
}
