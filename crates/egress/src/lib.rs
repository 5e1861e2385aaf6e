//! Egress of a sandbox: a forwarding proxy with rules, which is the only access to a network.
//!
//! A sandbox has no network. The browser inside connects to a forwarder, which connects to a unix socket that
//! [`Egress`] serves: an HTTP proxy for plain HTTP requests and `CONNECT` tunnels.
//!
//! The programs inside are untrusted and can write any bytes to the socket. Attacks and defences:
//!
//! - *Disguised spelling of a private address*: hosts are parsed by the URL standard's parser, as in a browser; a host
//!   that does not parse is refused. [`Rules`] check the address, in all its wrappings, not its spelling.
//! - *This machine or its neighbours by their public addresses*: the addresses of this machine, of its gateways and of
//!   hosts in the same IPv6 network, taken from its routes, are refused like private ones.
//! - *Posing as a reverse proxy of this machine*: connections to this machine, which the operator allowed or which go
//!   to Casement itself, have the source [`SANDBOX_SOURCE_ADDRESSES`], which nothing else uses.
//! - *DNS rebinding*: a name is resolved once per request, and exactly the checked address is dialled. Every request on
//!   an open connection is checked like the first.
//! - *A redirect to a private address*: the browser follows it with a new request, which is checked.
//! - *Probing by responses*: a refused destination is never dialled, and the response is constant. A refusal because of
//!   an address that only this machine knows (of a name, of itself, of a neighbour) has the same bytes as the response
//!   for an unreachable host, and is not sent earlier. An allowed destination that does not answer gives the same bytes
//!   for every cause.
//! - *Getting round a session's policy*: [`Destinations`] decide by the host as it is written, before a name is resolved,
//!   for every request on every connection; a name that they allow must still resolve to an allowed address. A change
//!   closes the open connections to destinations that are no longer allowed.
//! - *Posing as the proxy*: an origin's demand for proxy credentials does not reach the browser.
//! - *Exhausting resources*: connections, lookups, heads, buffers and times are bounded by [`Limits`]; a session
//!   without a running lookup has priority over sessions with many; a side that stops reading stops the other side.
//!
//! The content of tunnels is not visible here. UDP, and therefore QUIC and WebRTC, cannot leave a sandbox.

mod address;
mod ask;
mod check;
mod connection;
mod connection_slots;
mod counted_stream;
mod fault;
mod fetch;
mod headers;
mod limits;
mod neighbours;
mod policy;
mod post;
mod proxy;
mod resolver;
mod responses;
mod rules;
mod session;
mod stats;
mod target;
mod trust;
mod upstream;

pub use check::ProxyCheck;
pub use fault::ProxyFault;
pub use fetch::{FetchError, Fetched};
pub use limits::Limits;
pub use policy::{Decision, Denial, Destinations, SessionPolicy};
pub use proxy::{InvalidProxy, Proxy, ProxyProtocol, Route};
pub use resolver::{LookupPermit, Resolver, SystemResolver};
pub use rules::{Allow, ParseAllowError, Rules, Verdict};
pub use session::{Egress, EgressHandle, OnDenied, OnProxyDown};
pub use stats::Stats;
pub use upstream::SANDBOX_SOURCE_ADDRESSES;
