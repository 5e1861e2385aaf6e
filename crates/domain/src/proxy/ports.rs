//! The ports of proxies: repository, checker and routes.

use core::net::IpAddr;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use time::OffsetDateTime;
use url::Url;

use super::{CaBundle, Proxy, ProxyFailure, ProxyProtocol, ProxyStatus};
use crate::ids::{BrowserId, ProjectId, ProxyId};
use crate::name::LabelName;
use crate::network::{Allowlist, Network};
use crate::organization::{Limit, LimitExceeded};
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::store_error::StoreError;

/// The result of storing a proxy.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyStored {
    /// The proxy is stored.
    Yes,
    /// The project has the maximum of proxies. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project was deleted. Nothing was stored.
    ProjectGone,
}

/// The result of deleting a proxy.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyDeleted {
    /// The proxy is deleted; sessions continue to use it.
    Yes,
    /// A pool or an auth connection uses the proxy. Nothing was changed.
    InUse,
    /// The proxy does not exist.
    NotFound,
}

/// The filter of a list of proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyFilter {
    /// The exact name, compared without case and accents.
    pub name: Option<String>,
    /// A substring of the name, the host or the exit address, compared without case.
    pub query: Option<String>,
}

/// The stored result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyChecked {
    /// Whether the proxy answered and accepted the credentials.
    pub status: ProxyStatus,
    /// The reason of the failure.
    pub failure: Option<ProxyFailure>,
    /// The exit address, if it could be determined.
    pub ip_address: Option<String>,
    /// The time of the check.
    pub at: OffsetDateTime,
}

/// The port to the stored proxies.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProxyRepository: Send + Sync {
    /// Stores a new proxy if the project has fewer than `max`.
    async fn create(&self, proxy: &Proxy, max: u32) -> Result<ProxyStored, StoreError>;

    /// Returns the project's proxy.
    async fn find(&self, project: ProjectId, id: ProxyId) -> Result<Option<Proxy>, StoreError>;

    /// Returns the proxies of the project with this name, compared without case and accents; two at most.
    async fn named(&self, project: ProjectId, name: &str) -> Result<Vec<Proxy>, StoreError>;

    /// Returns the proxy, even if it is deleted, because sessions continue to use it.
    async fn find_any(&self, id: ProxyId) -> Result<Option<Proxy>, StoreError>;

    /// Returns the project's proxies, newest first.
    async fn list(&self, project: ProjectId, filter: &ProxyFilter, page: Page) -> Result<Listed<Proxy>, StoreError>;

    /// Renames the proxy.
    async fn rename(&self, project: ProjectId, id: ProxyId, name: &LabelName) -> Result<Option<Proxy>, StoreError>;

    /// Stores the result of a check, unless a later one is stored, and returns the proxy. A result without an exit
    /// address leaves the stored one unchanged.
    async fn checked(&self, id: ProxyId, found: &ProxyChecked) -> Result<Option<Proxy>, StoreError>;

    /// Deletes the proxy, unless a pool or an auth connection uses it.
    async fn delete(&self, project: ProjectId, id: ProxyId, at: OffsetDateTime) -> Result<ProxyDeleted, StoreError>;

    /// Claims up to `max` proxies for a check that were not claimed since `before`. Each is claimed by one server.
    async fn due(&self, before: OffsetDateTime, now: OffsetDateTime, max: u32) -> Result<Vec<Proxy>, StoreError>;

    /// Returns up to `max` passwords, also of deleted proxies, that are not sealed with `key`.
    async fn sealed_with_other_key(&self, key: KeyId, max: u32) -> Result<Vec<(ProxyId, Vec<u8>)>, StoreError>;

    /// Replaces the sealed password by `next` if it is still `current`.
    async fn reseal(&self, id: ProxyId, current: &[u8], next: &[u8]) -> Result<(), StoreError>;

    /// Returns the keys that seal the passwords.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// A proxy with its decrypted password, for connecting to it.
#[derive(Clone)]
pub struct OpenProxy {
    /// The protocol.
    pub protocol: ProxyProtocol,
    /// The host: a name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// User name and password.
    pub credentials: Option<(String, SecretString)>,
    /// The hosts that bypass it, in the forms of [`BypassHost`](super::BypassHost).
    pub bypass: Vec<String>,
    /// The only authorities of the certificate of a proxy with the protocol `https`; `None`: those of this machine.
    pub ca_bundle: Option<CaBundle>,
}

impl fmt::Debug for OpenProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenProxy").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The proxy answered and accepted the credentials. With the exit address, if it could be determined.
    Available(Option<IpAddr>),
    /// The proxy did not answer or refused the credentials.
    Unavailable(ProxyFailure),
    /// The requested URL is not allowed.
    Blocked,
}

/// The port that checks proxies from this machine, under its egress rules.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProxyDialer: Send + Sync {
    /// Checks within 10 s whether the proxy works and, if a URL is given, whether it can be read through the proxy.
    async fn check(&self, proxy: &OpenProxy, url: Option<Url>) -> CheckOutcome;
}

/// The route of a browser's traffic.
#[derive(Clone, Debug)]
pub enum Route {
    /// A direct connection to the destination.
    Direct,
    /// A connection through a proxy.
    Through(Arc<OpenProxy>),
    /// No connection, because the proxy cannot be used. There is no fallback to a direct connection.
    Nowhere,
}

/// What a browser's traffic may reach, and by which route.
#[derive(Clone, Debug)]
pub struct TrafficPolicy {
    /// The route of the traffic for which the network configuration selects no proxy.
    pub route: Route,
    /// The network configuration, with private hosts that the operator lends only.
    pub network: Option<Network>,
    /// The routes of the network configuration's proxy routes, in their order.
    pub proxy_routes: Vec<Route>,
}

impl From<Route> for TrafficPolicy {
    fn from(route: Route) -> Self {
        Self { route, network: None, proxy_routes: Vec::new() }
    }
}

/// The port to the routes of this node's browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait ProxyRoutes: Send + Sync {
    /// Sets the policy of a browser's traffic, also before the browser starts. It is valid until
    /// [`forget`](Self::forget). Open tunnels are closed.
    fn set(&self, browser: BrowserId, policy: TrafficPolicy);

    /// Changes the allowlist of a browser whose policy is set. Only connections to hosts that are no longer allowed are
    /// closed.
    fn set_allowlist(&self, browser: BrowserId, allowlist: Option<Allowlist>);

    /// Removes the route of a browser that has ended.
    fn forget(&self, browser: BrowserId);
}

/// A repository without proxies, for embedders that do not use them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProxies;

#[async_trait]
impl ProxyRepository for NoProxies {
    async fn create(&self, _: &Proxy, _: u32) -> Result<ProxyStored, StoreError> {
        Ok(ProxyStored::LimitExceeded(LimitExceeded { limit: Limit::ProjectProxies, value: 0, used: 0, requested: 1 }))
    }

    async fn find(&self, _: ProjectId, _: ProxyId) -> Result<Option<Proxy>, StoreError> {
        Ok(None)
    }

    async fn named(&self, _: ProjectId, _: &str) -> Result<Vec<Proxy>, StoreError> {
        Ok(Vec::new())
    }

    async fn find_any(&self, _: ProxyId) -> Result<Option<Proxy>, StoreError> {
        Ok(None)
    }

    async fn list(&self, _: ProjectId, _: &ProxyFilter, page: Page) -> Result<Listed<Proxy>, StoreError> {
        Ok(page.cut(Vec::new()))
    }

    async fn rename(&self, _: ProjectId, _: ProxyId, _: &LabelName) -> Result<Option<Proxy>, StoreError> {
        Ok(None)
    }

    async fn checked(&self, _: ProxyId, _: &ProxyChecked) -> Result<Option<Proxy>, StoreError> {
        Ok(None)
    }

    async fn delete(&self, _: ProjectId, _: ProxyId, _: OffsetDateTime) -> Result<ProxyDeleted, StoreError> {
        Ok(ProxyDeleted::NotFound)
    }

    async fn due(&self, _: OffsetDateTime, _: OffsetDateTime, _: u32) -> Result<Vec<Proxy>, StoreError> {
        Ok(Vec::new())
    }

    async fn sealed_with_other_key(&self, _: KeyId, _: u32) -> Result<Vec<(ProxyId, Vec<u8>)>, StoreError> {
        Ok(Vec::new())
    }

    async fn reseal(&self, _: ProxyId, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<KeyId>, StoreError> {
        Ok(Vec::new())
    }
}

/// Routes that cannot be changed, for embedders without proxies.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRoutes;

impl ProxyRoutes for NoRoutes {
    fn set(&self, _: BrowserId, _: TrafficPolicy) {}

    fn set_allowlist(&self, _: BrowserId, _: Option<Allowlist>) {}

    fn forget(&self, _: BrowserId) {}
}
