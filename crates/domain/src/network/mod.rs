//! The part of the network that a session may use: the hosts that it may reach, the private hosts that the operator
//! lends to its project, and the proxies of single hosts.
//!
//! The rules of this module decide by the host of a request, before a name is resolved. Where a request that they allow
//! may connect to is decided again by the egress, from the address.

mod address;
mod allowlist;
mod denied;
mod destination;
mod input;
mod model;
mod private;

pub use allowlist::{Allowlist, AllowlistChange, AllowlistError, Condition, StaleNetwork};
#[cfg(feature = "mocks")]
pub use denied::MockDeniedRequestLog;
pub use denied::{DeniedRequest, DeniedRequestLog, DeniedRequests, NoDeniedRequests};
pub(crate) use destination::is_host_name;
pub use destination::{Destination, MAX_LENGTH as MAX_PATTERN};
pub use input::{
    AllowlistUpdateRequest, MAX_ALLOWED_HOSTS, MAX_PRIVATE_HOSTS, MAX_PROXY_ROUTES, MAX_ROUTED_HOSTS, NetworkRequest,
    NewNetwork, ProxyRouteRequest,
};
pub use model::{Network, PrivateHosts, ProxyRoute, Verdict};
pub use private::{LentHost, LentHostError, LentHosts, PrivateHost};
