//! The servers for all tests that use them like a caller, because a start costs a second of a processor.
//!
//! There is one for each set of options that tests need. Each is started by the first test that needs it; its watchdog ends it
//! when the test program ends, because a test program runs no code after its last test. What a test creates there over
//! [`Server::send`] and its short forms ends with the test.

use std::sync::OnceLock;

use super::{Options, Pages, Server};

/// A server, and pages that its browsers may open.
pub struct Shared {
    /// The server.
    pub server: Server,
    /// The pages.
    pub pages: Pages,
}

impl Shared {
    /// Returns the server for most tests: as a user starts it, with its pool `default` and spares. Its browsers reach its pages
    /// and nothing else of this machine.
    pub fn get() -> &'static Self {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(|pages| Options { first_start: true, spares: 1, ..Options::reaching(pages) }))
    }

    /// Returns the server whose browsers may open any port of this machine, for tests that choose their ports themselves: of
    /// proxies, and of sites that a script serves.
    pub fn on_this_machine() -> &'static Self {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::start(|_| Options { egress_allow: vec!["127.0.0.0/8".to_owned()], ..Options::default() })
        })
    }

    /// Returns the server whose sessions have 600 MiB of memory and a disk of 128 MiB, for tests that use all of it.
    pub fn with_small_sessions() -> &'static Self {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        let flags = || ["--session-memory", "600", "--session-disk", "128"].map(str::to_owned).to_vec();
        SHARED.get_or_init(|| Self::start(|pages| Options { flags: flags(), ..Options::reaching(pages) }))
    }

    fn start(options: impl FnOnce(&Pages) -> Options) -> Self {
        let pages = Pages::start().expect("a web server of the test");
        let server = Server::start(Options { is_shared: true, ..options(&pages) });
        let server = server.unwrap_or_else(|error| panic!("a shared server does not start: {error:#}"));
        Self { server, pages }
    }
}
