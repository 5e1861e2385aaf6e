//! Proxies: kept for a project, checked now and then, and what a session's way out goes through.

mod bypass;
mod input;
mod model;
mod ports;
mod routing;
mod service;

pub use bypass::{BypassHost, MOST_BYPASS_HOSTS};
pub use input::{CreateProxy, ProxyConfigInput, ProxyWish};
pub use model::{Proxy, ProxyProtocol, ProxyStatus, ProxyType};
pub use ports::{
    CheckOutcome, NoProxies, NoRoutes, OpenProxy, ProxyChecked, ProxyDeleted, ProxyDialer, ProxyFilter,
    ProxyRepository, ProxyRoutes, ProxyStored, Route,
};
#[cfg(feature = "mocks")]
pub use ports::{MockProxyDialer, MockProxyRepository, MockProxyRoutes};
pub use routing::{ProxyRouting, RouteError};
pub use service::{Proxies, ProxyDeps, ProxyError};
