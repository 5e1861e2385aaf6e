//! Recognizes the responses that the egress proxy itself sends when it cannot connect to a destination.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use http::Uri;
use parking_lot::Mutex;

use casement_agent_protocol::curl::Upstream;

/// The header that marks the egress proxy's own responses (RFC 9209). The egress proxy removes it from the responses of
/// origins over plain HTTP, and a response to `CONNECT` never comes from an origin.
pub(crate) const PROXY_STATUS: &str = "proxy-status";
const OWN: &str = "casement;";
/// The beginnings of the texts of these responses.
const TEXTS: [&str; 5] = [
    "This destination is not allowed.",
    "The network configuration of this session does not allow this destination",
    "This destination could not be reached",
    "The session's proxy could not be used",
    "This is not a request that a proxy can pass on.",
];
/// The maximum length of such a text, in bytes.
const MAX_TEXT: usize = 200;
/// The maximum number of stored failures of tunnels, and how long each is stored.
const MAX_FAILURES: usize = 64;
const RETENTION: Duration = Duration::from_secs(30);

/// The egress proxy's word for a destination that the session's policy denies.
const POLICY_DENIED: &str = "network_policy_denied";

/// The faults of the session's proxy: the egress proxy's word for each, and the text for people.
const PROXY_FAULTS: [(&str, &str); 8] = [
    ("unreachable", "no connection to it could be made"),
    ("timeout", "it did not answer in time"),
    ("closed", "it closed the connection without an answer"),
    ("reset", "it reset the connection"),
    ("protocol", "its answer is not in the proxy's protocol"),
    ("tls", "no trusted TLS connection to it could be made"),
    ("authentication", "it does not accept the credentials"),
    ("unknown", "the server does not know it any more"),
];

/// The reason why the egress proxy did not connect to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The destination is not allowed, or cannot be reached.
    Destination,
    /// The network configuration of the session does not allow the destination.
    Policy,
    /// The session's proxy cannot be used. Contains the index in [`PROXY_FAULTS`] if the fault is listed there.
    Proxy(Option<usize>),
}

impl Fault {
    /// Parses the value of a `Proxy-Status` header; `None` if it is not the egress proxy's.
    pub(crate) fn of(proxy_status: &str) -> Option<Self> {
        let given = proxy_status.trim().strip_prefix(OWN)?;
        let details = given.split(';').find_map(|param| param.trim().strip_prefix("details="));
        Some(match details.map(|word| word.trim_matches('"')) {
            None => Self::Destination,
            Some(POLICY_DENIED) => Self::Policy,
            Some(word) => Self::Proxy(PROXY_FAULTS.iter().position(|(known, _)| *known == word)),
        })
    }

    /// Returns the part of the request's route that failed.
    pub(crate) fn upstream(self) -> Upstream {
        match self {
            Self::Destination | Self::Policy => Upstream::Connect,
            Self::Proxy(_) => Upstream::Proxy,
        }
    }

    /// Returns the word for the fault of the session's proxy, `other` if it is not listed; `None` if the proxy did not
    /// fail.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Destination | Self::Policy => None,
            Self::Proxy(which) => {
                Some(which.and_then(|which| PROXY_FAULTS.get(which)).map_or("other", |(word, _)| word))
            }
        }
    }

    /// Returns the text for people.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Destination => "the destination is not allowed or not reachable".to_owned(),
            Self::Policy => {
                format!("the network configuration of the session does not allow the destination ({POLICY_DENIED})")
            }
            Self::Proxy(which) => {
                let why = which.and_then(|which| PROXY_FAULTS.get(which)).map_or("it failed", |(_, why)| why);
                format!("the session's proxy could not be used: {why}")
            }
        }
    }
}

/// Returns true if the text of a page is a response of the egress proxy.
pub(crate) fn is_shown(text: &str) -> bool {
    let text = text.trim();
    text.len() <= MAX_TEXT && TEXTS.iter().any(|answer| text.starts_with(answer))
}

/// The tunnels that the egress proxy refused recently. The browser reports the same error for all of them.
#[derive(Debug, Default)]
pub(crate) struct FailedTunnels(Mutex<VecDeque<FailedTunnel>>);

#[derive(Debug)]
struct FailedTunnel {
    place: String,
    at: Instant,
    fault: Fault,
}

impl FailedTunnels {
    /// Records the outcome of a tunnel to `place` (a host and a port); `None` if the tunnel is open.
    pub(crate) fn note(&self, place: &str, fault: Option<Fault>) {
        let mut failed = self.0.lock();
        failed.retain(|one| one.place != place && one.at.elapsed() < RETENTION);
        let Some(fault) = fault else { return };
        if failed.len() == MAX_FAILURES {
            failed.pop_front();
        }
        failed.push_back(FailedTunnel { place: place.to_owned(), at: Instant::now(), fault });
    }

    /// Returns the fault of the way to `url`, a request to which failed with the browser's `error`.
    pub(crate) fn fault(&self, url: &str, error: &str) -> Option<Fault> {
        if url.starts_with("http:")
            && ["ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"].iter().any(|end| error.ends_with(end))
        {
            // The egress proxy closes a connection with a plain request for a destination that cannot be reached, which the
            // browser sees as a reset.
            return Some(Fault::Destination);
        }
        if !error.ends_with("ERR_TUNNEL_CONNECTION_FAILED") {
            return None;
        }
        let place = place_of(url)?;
        let failed = self.0.lock();
        failed.iter().find(|one| one.place == place && one.at.elapsed() < RETENTION).map(|one| one.fault)
    }
}

/// Returns the host and port of the tunnel for a URL, as `CONNECT` names them.
fn place_of(url: &str) -> Option<String> {
    let uri: Uri = url.split('#').next()?.parse().ok()?;
    let port = match (uri.port_u16(), uri.scheme_str()?) {
        (Some(port), _) => port,
        (None, "https" | "wss") => 443,
        (None, "http" | "ws") => 80,
        _ => return None,
    };
    Some(format!("{}:{port}", uri.host()?.to_ascii_lowercase()))
}

/// The inspected parts of a connection to the egress proxy: the line that requests a tunnel, and the head of its
/// response.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    requested: Vec<u8>,
    answered: Vec<u8>,
    done: bool,
    is_unanswered: bool,
}

/// The maximum inspected length of a request and of a response, in bytes. A host name has at most 253 bytes.
const MAX_LOOKED_AT: usize = 2048;

impl Exchange {
    /// Inspects bytes that are sent to the egress proxy. The inspection ends if they do not request a tunnel.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        self.is_unanswered |= !bytes.is_empty();
        if !self.done && !self.requested.contains(&b'\n') {
            keep(&mut self.requested, bytes);
            let start = self.requested.len().min(CONNECT.len());
            self.done = self.requested[..start] != CONNECT[..start];
        }
    }

    /// Inspects bytes that are received from the egress proxy. Returns the destination of the tunnel and its fault,
    /// once the head of the response is complete.
    pub(crate) fn received(&mut self, bytes: &[u8]) -> Option<(String, Option<Fault>)> {
        self.is_unanswered &= bytes.is_empty();
        if self.done {
            return None;
        }
        keep(&mut self.answered, bytes);
        let end = self.answered.windows(4).position(|end| end == b"\r\n\r\n");
        self.done = end.is_some() || self.answered.len() == MAX_LOOKED_AT;
        let head = std::str::from_utf8(self.answered.get(..end?)?).ok()?;
        let line = std::str::from_utf8(&self.requested).ok()?.lines().next()?;
        let place = line.split(' ').nth(1)?.to_ascii_lowercase();
        let status = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case(PROXY_STATUS));
        Some((place, status.and_then(|(_, value)| Fault::of(value))))
    }

    /// Returns true if nothing has been received since the last plain request.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered && !self.requested.starts_with(CONNECT)
    }
}

const CONNECT: &[u8] = b"CONNECT ";

fn keep(head: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_LOOKED_AT - head.len();
    head.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\n\
        Proxy-Status: casement; error=connection_terminated; details=\"reset\"\r\nContent-Length: 3\r\n\r\nNo\n";

    #[test]
    fn a_failed_tunnel_is_reported_by_the_answer_to_its_connect_however_that_is_cut() {
        for size in [1, 7, 4096] {
            let mut exchange = Exchange::default();
            for part in b"CONNECT Bank.example:443 HTTP/1.1\r\nHost: x\r\n\r\n".chunks(size) {
                exchange.sent(part);
            }
            let reported: Vec<_> = REFUSED.chunks(size).filter_map(|part| exchange.received(part)).collect();
            let [(place, Some(fault))] = reported.as_slice() else { panic!("{reported:?}") };
            assert_eq!((place.as_str(), fault.word()), ("bank.example:443", Some("reset")));
            assert_eq!(fault.text(), "the session's proxy could not be used: it reset the connection");
            assert_eq!(fault.upstream(), Upstream::Proxy);
        }
    }

    #[test]
    fn what_is_no_tunnel_is_not_looked_at() {
        let mut exchange = Exchange::default();
        exchange.sent(b"GET http://a.example/ HTTP/1.1\r\n\r\n");
        assert_eq!(exchange.received(REFUSED), None);
        assert!(exchange.answered.is_empty());
    }

    #[test]
    fn a_plain_request_is_unanswered_until_its_response_begins() {
        let mut plain = Exchange::default();
        assert!(!plain.is_unanswered(), "nothing was requested");
        for _ in 0..2 {
            plain.sent(b"GET http://a.example/ HTTP/1.1\r\n\r\n");
            assert!(plain.is_unanswered());
            plain.received(b"HTTP/1.1 200 OK\r\n");
            assert!(!plain.is_unanswered());
        }
        let mut tunnel = Exchange::default();
        tunnel.sent(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n");
        assert!(!tunnel.is_unanswered());
    }

    #[test]
    fn a_plain_request_without_a_response_failed_on_its_way() {
        let failed = FailedTunnels::default();
        let error = "net::ERR_CONNECTION_RESET";
        assert_eq!(failed.fault("http://a.example/", error), Some(Fault::Destination));
        assert_eq!(failed.fault("https://a.example/", error), None);
    }

    #[test]
    fn what_failed_is_known_by_place_until_a_tunnel_stands_there() {
        let failed = FailedTunnels::default();
        let (word, url) = ("net::ERR_TUNNEL_CONNECTION_FAILED", "https://a.example/path#part");
        assert_eq!(failed.fault(url, word), None);
        failed.note("a.example:443", Fault::of("casement; error=x; details=\"closed\""));
        assert_eq!(failed.fault(url, word).and_then(Fault::word), Some("closed"));
        assert_eq!(failed.fault("wss://A.example", word).and_then(Fault::word), Some("closed"));
        assert_eq!(failed.fault("https://a.example:444/", word), None);
        assert_eq!(failed.fault(url, "net::ERR_CONNECTION_RESET"), None);
        failed.note("a.example:443", Fault::of("casement; error=destination_unavailable"));
        assert_eq!(failed.fault(url, word), Some(Fault::Destination));
        failed
            .note("a.example:443", Fault::of("casement; error=http_request_denied; details=\"network_policy_denied\""));
        assert_eq!(failed.fault(url, word), Some(Fault::Policy));
        failed.note("a.example:443", None);
        assert_eq!(failed.fault(url, word), None);
        for n in 0..2 * MAX_FAILURES {
            failed.note(&format!("{n}.example:443"), Some(Fault::Destination));
        }
        assert_eq!(failed.0.lock().len(), MAX_FAILURES);
    }

    #[test]
    fn only_the_way_outs_own_status_is_believed() {
        assert_eq!(Fault::of("other-proxy; error=connection_refused"), None);
        assert_eq!(Fault::of("casement; error=new; details=\"of tomorrow\"").and_then(Fault::word), Some("other"));
    }
}
