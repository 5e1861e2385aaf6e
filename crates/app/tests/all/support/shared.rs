//! One server for all tests that only use it as a caller does: a start costs seconds.

use std::sync::OnceLock;

use super::{Options, Pages, Server};

/// The server, and pages that its browsers may open.
pub(crate) struct Shared {
    pub(crate) server: Server,
    pub(crate) pages: Pages,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

impl Shared {
    /// The one server, with its pool `default`, started by the first who asks. Its watchdog ends it when the test program
    /// ends: nothing runs in a test program after its last test.
    pub(crate) fn get() -> &'static Self {
        SHARED.get_or_init(|| {
            let pages = Pages::start().unwrap();
            let server = Server::start(Options { default_pool: true, spares: 1, ..Options::reaching(&pages) });
            let server = server.unwrap_or_else(|error| panic!("the shared server does not start: {error:#}"));
            Self { server, pages }
        })
    }
}
