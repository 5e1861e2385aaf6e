//! The only way out of a sandbox: a forwarding proxy with rules.
//!
//! A sandbox has no network. Inside it the browser speaks to a forwarder, which speaks to a unix socket, and on that
//! socket stands [`Egress`]: an HTTP proxy that passes on plain HTTP requests and `CONNECT` tunnels.
//!
//! Whatever runs inside is taken for hostile, and can write any bytes to the socket. What it could try, and what stands
//! against it:
//!
//! - *Name an inner address in a way that looks like another*: hosts are read by the URL standard's parser, as a browser
//!   does; what does not parse is refused. [`Rules`] judge the address, in all its wrappings, not its spelling.
//! - *Reach this machine or its neighbours by public addresses*: those of this machine, its gateways and what shares an
//!   IPv6 network with it, as its routes tell, are refused as private ones are.
//! - *Pose as a reverse proxy of this machine*: where the operator allows an address of this machine, and where Casement itself is
//!   reached, connections come from [`SANDBOX_SOURCE_ADDRESSES`], which nothing else speaks from.
//! - *A name that changes its answer between check and use*: a name is resolved once per request, and exactly the address
//!   that was checked is dialled. A request on a connection that is already open is checked like the first.
//! - *A redirect inwards*: is a new request, made by the browser, and checked as such.
//! - *Reading the map from our answers*: a refused destination is never dialled, and the answer is the same bytes.
//!   What is refused for an address that only this machine knows (a name's, its own, a neighbour's) is answered like what does not
//!   answer: the same bytes, and no sooner. An allowed one that does not answer gives the same bytes whatever was wrong.
//! - *Posing as the proxy*: an origin's demand for proxy credentials does not reach the browser.
//! - *Taking more than its share*: connections, lookups, heads, buffers and times are bounded by [`Limits`]; a session that has
//!   no lookup under way is served before those that have many; a side that stops reading stops the other.
//!
//! What travels through a tunnel cannot be seen from here. UDP, and so QUIC and WebRTC, has no way out at all.

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
pub use proxy::{InvalidProxy, Proxy, ProxyProtocol, Route};
pub use resolver::{LookupPermit, Resolver, SystemResolver};
pub use rules::{Allow, ParseAllowError, Rules, Verdict};
pub use session::{Egress, EgressHandle, OnProxyDown};
pub use stats::Stats;
pub use upstream::SANDBOX_SOURCE_ADDRESSES;
