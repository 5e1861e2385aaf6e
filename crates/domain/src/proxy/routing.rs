//! Selects the route of a browser's traffic.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::{
    NoProxies, NoRoutes, OpenProxy, Proxy, ProxyConfig, ProxyGateways, ProxyRepository, ProxyRoutes, ProxyType, Route,
};
use crate::browser::{EngineError, EngineFault};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{BrowserId, ProjectId, ProxyId};
use crate::sealing::{KeyId, SealError, Sealer};
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// A browser was not sent through its proxy; its traffic goes nowhere.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The proxy is not stored any more.
    #[error("proxy {0} is not there")]
    Gone(ProxyId),
    /// How it is reached cannot be told.
    #[error(transparent)]
    Unopened(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a proxy is reached cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its password cannot be opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The operator has none of that type any more.
    #[error("this installation rents no {} proxies", .0.as_str())]
    NotRented(ProxyType),
    /// What its gateway would have to be told is too long.
    #[error("what the proxy's gateway would have to be told is too long")]
    TooLong,
}

impl From<RouteError> for EngineError {
    fn from(error: RouteError) -> Self {
        let message = match &error {
            RouteError::Gone(_) | RouteError::Unopened(OpenError::NotRented(_) | OpenError::TooLong) => {
                error.to_string()
            }
            RouteError::Unopened(OpenError::Seal(_)) => "the proxy's password cannot be opened on this node".to_owned(),
            RouteError::Store(_) => "the proxy cannot be read".to_owned(),
        };
        Self::Failed { fault: EngineFault::ProxyError, message }
    }
}

/// Finds proxies that sessions and pools name, and sends browsers through them.
#[derive(Clone)]
pub struct ProxyRouting {
    proxies: Arc<dyn ProxyRepository>,
    sealer: Arc<dyn Sealer>,
    routes: Arc<dyn ProxyRoutes>,
    upstreams: Arc<ProxyGateways>,
}

impl ProxyRouting {
    /// Creates it on these ports.
    #[must_use]
    pub fn new(
        proxies: Arc<dyn ProxyRepository>,
        sealer: Arc<dyn Sealer>,
        routes: Arc<dyn ProxyRoutes>,
        upstreams: Arc<ProxyGateways>,
    ) -> Self {
        Self { proxies, sealer, routes, upstreams }
    }

    /// For an installation without proxies.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Arc::new(NoProxies), Arc::new(NoKey), Arc::new(NoRoutes), Arc::default())
    }

    /// The proxy of the project that `proxy_id` means, by id or name.
    ///
    /// # Errors
    /// `reference_not_found`; `ambiguous` if several bear the name; the store's failure.
    pub async fn resolve<E: From<InvalidInput> + From<StoreError>>(
        &self,
        project: ProjectId,
        which: &str,
    ) -> Result<ProxyId, E> {
        let found = match IdOrName::parse(which) {
            IdOrName::Id(id) => self.proxies.find(project, id).await?.into_iter().collect(),
            // No name is longer, or holds what the store cannot.
            IdOrName::Name(name) if name.chars().nth(255).is_some() || name.contains('\0') => Vec::new(),
            IdOrName::Name(name) => self.proxies.named(project, name.trim()).await?,
        };
        let bad = match found.as_slice() {
            [proxy] => return Ok(proxy.id),
            [] => InvalidValue::new(FieldCode::ReferenceNotFound, "there is no such proxy"),
            _ => InvalidValue::new(FieldCode::Ambiguous, "several proxies bear the name; give the id of one"),
        };
        Err(InvalidInput::of("proxy_id", bad).into())
    }

    /// The way through the proxy, or straight.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn prepare(&self, proxy: Option<ProxyId>) -> Result<Route, RouteError> {
        match proxy {
            None => Ok(Route::Direct),
            Some(id) => self.open(id).await.map(|proxy| Route::Through(Arc::new(proxy))),
        }
    }

    /// Sends a browser's traffic that way.
    pub fn set(&self, browser: BrowserId, route: Route) {
        self.routes.set(browser, route);
    }

    /// Sends a browser's traffic through the proxy, or straight. After a failure it goes nowhere.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn send(&self, browser: BrowserId, proxy: Option<ProxyId>) -> Result<(), RouteError> {
        match self.prepare(proxy).await {
            Ok(route) => {
                self.set(browser, route);
                Ok(())
            }
            Err(error) => {
                self.set(browser, Route::Nowhere);
                Err(error)
            }
        }
    }

    /// The browser is gone.
    pub fn forget(&self, browser: BrowserId) {
        self.routes.forget(browser);
    }

    async fn open(&self, id: ProxyId) -> Result<OpenProxy, RouteError> {
        let proxy = self.proxies.find_any(id).await?.ok_or(RouteError::Gone(id))?;
        Ok(open(&proxy, &*self.sealer, &self.upstreams)?)
    }
}

/// The proxy with its password in clear.
pub(super) fn open(proxy: &Proxy, sealer: &dyn Sealer, upstreams: &ProxyGateways) -> Result<OpenProxy, OpenError> {
    let bypass = proxy.bypass.iter().map(ToString::to_string).collect();
    let own = match &proxy.config {
        ProxyConfig::Rented(exit) => {
            let upstream = upstreams.of(proxy.kind).ok_or(OpenError::NotRented(proxy.kind))?;
            return upstream.open(proxy.id, exit, bypass).ok_or(OpenError::TooLong);
        }
        ProxyConfig::Own(own) => own,
    };
    let password = match &own.password {
        None => SecretString::default(),
        Some(sealed) => {
            let opened = sealer.open(&Proxy::place(proxy.id), sealed)?;
            let text = std::str::from_utf8(opened.expose_secret()).map_err(|_| SealError::Damaged)?;
            SecretString::from(text)
        }
    };
    Ok(OpenProxy {
        protocol: proxy.protocol,
        host: own.host.clone(),
        port: own.port,
        credentials: own.username.clone().map(|name| (name, password)),
        bypass,
    })
}

/// Seals nothing, for an installation without secrets.
struct NoKey;

impl Sealer for NoKey {
    fn seal(&self, _: &str, _: &[u8]) -> Result<Vec<u8>, SealError> {
        self.current().map(|_| Vec::new())
    }

    fn open(&self, _: &str, _: &[u8]) -> Result<secrecy::SecretSlice<u8>, SealError> {
        self.current().map(|_| Vec::new().into())
    }

    fn current(&self) -> Result<KeyId, SealError> {
        Err(SealError::NoKey("there is none".to_owned()))
    }
}
