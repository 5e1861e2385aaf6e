//! The requests that network configurations refused.

use crate::ids::BrowserId;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeniedRequest {
    /// The host as it is written in URLs.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The method; `CONNECT` for a tunnel, which HTTPS and WebSockets use.
    pub method: String,
}

impl DeniedRequest {
    /// The maximum number of bytes of the method, which a page can choose.
    pub const MAX_METHOD_BYTES: usize = 32;

    /// Creates a refused request. A longer method is cut.
    #[must_use]
    pub fn new(host: String, port: u16, mut method: String) -> Self {
        while method.len() > Self::MAX_METHOD_BYTES {
            method.pop();
        }
        Self { host, port, method }
    }

    /// Returns the URL of the destination, without its path, which the egress does not know of a tunnel.
    #[must_use]
    pub fn url(&self) -> String {
        match (self.method.as_str(), self.port) {
            ("CONNECT", 443) => format!("https://{}/", self.host),
            ("CONNECT", 80) => format!("ws://{}/", self.host),
            ("CONNECT", port) => format!("https://{}:{port}/", self.host),
            (_, 80) => format!("http://{}/", self.host),
            (_, port) => format!("http://{}:{port}/", self.host),
        }
    }
}

/// The refused requests of a browser since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedRequests {
    /// The number of requests.
    pub count: u64,
    /// The last different destinations as `host:port`, newest first.
    pub last: Vec<String>,
}

impl DeniedRequests {
    /// The maximum number of destinations that are held.
    pub const MAX_LAST: usize = 20;

    /// Counts a request.
    pub fn note(&mut self, denied: &DeniedRequest) {
        self.count += 1;
        let place = format!("{}:{}", denied.host, denied.port);
        self.last.retain(|other| *other != place);
        self.last.insert(0, place);
        self.last.truncate(Self::MAX_LAST);
    }
}

/// The port to the refused requests of this node's browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait DeniedRequestLog: Send + Sync {
    /// Returns the refused requests of a browser.
    fn of(&self, browser: BrowserId) -> DeniedRequests;
}

/// A log without entries, for embedders without an egress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDeniedRequests;

impl DeniedRequestLog for NoDeniedRequests {
    fn of(&self, _: BrowserId) -> DeniedRequests {
        DeniedRequests::default()
    }
}
