//! What proxies need from outside.

use core::net::IpAddr;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;
use time::OffsetDateTime;
use url::Url;

use super::{Proxy, ProxyFailure, ProxyProtocol, ProxyStatus};
use crate::ids::{BrowserId, ProjectId, ProxyId};
use crate::name::LabelName;
use crate::organization::{Limit, LimitExceeded};
use crate::page::{Listed, Page};
use crate::sealing::KeyId;
use crate::store_error::StoreError;

/// What became of a proxy that was to be stored.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyStored {
    /// It is stored.
    Yes,
    /// The project has as many as it may have. Nothing was stored.
    LimitExceeded(LimitExceeded),
    /// The project is gone. Nothing was stored.
    ProjectGone,
}

/// What became of a proxy that was to be deleted.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyDeleted {
    /// It is gone; sessions that have it keep it.
    Yes,
    /// A pool names it. Nothing was changed.
    InUse,
    /// There is no such proxy.
    NotFound,
}

/// Which proxies a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyFilter {
    /// Exactly, without case and accents.
    pub name: Option<String>,
    /// Substring of name, host or exit address, without case.
    pub query: Option<String>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyChecked {
    /// Whether it answered and took the credentials.
    pub status: ProxyStatus,
    /// Why it did not.
    pub failure: Option<ProxyFailure>,
    /// The address that others saw, if somebody could be asked.
    pub ip_address: Option<String>,
    /// When.
    pub at: OffsetDateTime,
}

/// Where proxies are kept.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProxyRepository: Send + Sync {
    /// Stores a new proxy, if the project has fewer than `most`.
    async fn create(&self, proxy: &Proxy, most: u32) -> Result<ProxyStored, StoreError>;

    /// The project's proxy.
    async fn find(&self, project: ProjectId, id: ProxyId) -> Result<Option<Proxy>, StoreError>;

    /// The proxies of the project that bear the name, compared without case and accents; two at most.
    async fn named(&self, project: ProjectId, name: &str) -> Result<Vec<Proxy>, StoreError>;

    /// The proxy, deleted or not: sessions keep theirs.
    async fn find_any(&self, id: ProxyId) -> Result<Option<Proxy>, StoreError>;

    /// The project's proxies, newest first.
    async fn list(&self, project: ProjectId, filter: &ProxyFilter, page: Page) -> Result<Listed<Proxy>, StoreError>;

    /// Gives it another name.
    async fn rename(&self, project: ProjectId, id: ProxyId, name: &LabelName) -> Result<Option<Proxy>, StoreError>;

    /// Notes what a check found; never backwards. An exit address that is not known leaves the last one. The proxy as it is then.
    async fn checked(&self, id: ProxyId, found: &ProxyChecked) -> Result<Option<Proxy>, StoreError>;

    /// Deletes it, unless a pool names it.
    async fn delete(&self, project: ProjectId, id: ProxyId, at: OffsetDateTime) -> Result<ProxyDeleted, StoreError>;

    /// Takes on the check of up to `most` proxies that nobody has taken on since `before`; two servers never take on the same.
    async fn due(&self, before: OffsetDateTime, now: OffsetDateTime, most: u32) -> Result<Vec<Proxy>, StoreError>;

    /// Up to `most` passwords, of deleted proxies too, that are not sealed under `key`.
    async fn sealed_with_other_key(&self, key: KeyId, most: u32) -> Result<Vec<(ProxyId, Vec<u8>)>, StoreError>;

    /// Puts `next` in the place of `current`, unless that was changed meanwhile.
    async fn reseal(&self, id: ProxyId, current: &[u8], next: &[u8]) -> Result<(), StoreError>;

    /// The keys that passwords are sealed under.
    async fn keys(&self) -> Result<Vec<KeyId>, StoreError>;
}

/// A proxy with its password in clear, for whoever dials it.
#[derive(Clone)]
pub struct OpenProxy {
    /// What it is spoken to in.
    pub protocol: ProxyProtocol,
    /// Where it stands: a name or an address.
    pub host: String,
    /// On which port.
    pub port: u16,
    /// User name and password.
    pub credentials: Option<(String, SecretString)>,
    /// What does not go through it; in the forms of [`BypassHost`](super::BypassHost).
    pub bypass: Vec<String>,
}

impl fmt::Debug for OpenProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenProxy").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It answered and took the credentials; maybe it is known from which address others see it.
    Available(Option<IpAddr>),
    /// It did not.
    Unavailable(ProxyFailure),
    /// The address to be asked for is none that may be.
    Blocked,
}

/// Dials proxies, from this machine and under its rules.
#[cfg_attr(feature = "mocks", mockall::automock)]
#[async_trait]
pub trait ProxyDialer: Send + Sync {
    /// Whether the proxy works, within 10 s; with an address, whether that can be read through it.
    async fn check(&self, proxy: &OpenProxy, url: Option<Url>) -> CheckOutcome;
}

/// How a browser's traffic leaves this machine.
#[derive(Clone, Debug)]
pub enum Route {
    /// Straight to where it goes.
    Direct,
    /// Through a proxy.
    Through(Arc<OpenProxy>),
    /// Not at all: its proxy is not known here. Never straight instead.
    Nowhere,
}

/// The ways out of this node's browsers.
#[cfg_attr(feature = "mocks", mockall::automock)]
pub trait ProxyRoutes: Send + Sync {
    /// Sends the traffic of a browser that way: connections from now on, and those of a browser that is yet to be started. Holds
    /// until the browser is forgotten.
    fn set(&self, browser: BrowserId, route: Route);

    /// The browser is gone for good.
    fn forget(&self, browser: BrowserId);
}

/// No proxies at all, for whoever embeds the sessions without them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProxies;

#[async_trait]
impl ProxyRepository for NoProxies {
    async fn create(&self, _: &Proxy, _: u32) -> Result<ProxyStored, StoreError> {
        Ok(ProxyStored::LimitExceeded(LimitExceeded { limit: Limit::ProjectProxies, value: 0, used: 0, asked: 1 }))
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

/// No ways out to be changed, likewise.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRoutes;

impl ProxyRoutes for NoRoutes {
    fn set(&self, _: BrowserId, _: Route) {}

    fn forget(&self, _: BrowserId) {}
}
