//! Proxies: stored in a project, checked periodically, and used for the egress of sessions.

mod bypass;
mod ca_bundle;
mod exit;
mod input;
mod lookup;
mod model;
mod ports;
mod routing;
mod selection;
mod service;
mod upstream;

pub use bypass::{BypassHost, MAX_BYPASS_HOSTS};
pub use ca_bundle::CaBundle;
pub use exit::{ASN_PATTERN, CITY_PATTERN, Exit, ExitMember, TWO_LETTERS_PATTERN, ZIP_PATTERN};
pub use input::{HOST_PATTERN, MAX_CREDENTIAL};
pub use input::{NewProxy, NewProxyConfig, ProxyConfigRequest, ProxyRequest};
pub use lookup::{AmbiguousName, UseProxyError};
pub use model::{OwnProxy, Proxy, ProxyConfig, ProxyFailure, ProxyProtocol, ProxyStatus, ProxyType};
pub use ports::{
    CheckOutcome, NoProxies, NoRoutes, OpenProxy, ProxyChecked, ProxyDeleted, ProxyDialer, ProxyFilter,
    ProxyRepository, ProxyRoutes, ProxyStored, Route, TrafficPolicy,
};
#[cfg(feature = "mocks")]
pub use ports::{MockProxyDialer, MockProxyRepository, MockProxyRoutes};
pub use routing::{OpenError, ProxyRouting, RouteError};
pub(crate) use selection::selected;
pub use selection::{ProxyMode, ProxySelection, SelectedProxy};
pub use service::{Proxies, ProxyDeps};
pub use upstream::{BadUpstream, ProxyGateways, Upstream};
