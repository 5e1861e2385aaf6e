//! Selects the route of a browser's traffic.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::lookup;
use super::{
    NoProxies, NoRoutes, OpenProxy, Proxy, ProxyConfig, ProxyGateways, ProxyRepository, ProxyRoutes, ProxyType, Route,
};
use crate::access::Scope;
use crate::browser::{EngineError, EngineFault};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{BrowserId, ProxyId};
use crate::permission::{Kind, Verb};
use crate::sealing::{KeyId, SealError, Sealer};
use crate::store_error::StoreError;

/// The error of routing a browser through its proxy. The browser has no connection then.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The proxy does not exist.
    #[error("proxy {0} is not there")]
    Gone(ProxyId),
    /// The proxy cannot be opened.
    #[error(transparent)]
    Unopened(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The error of opening a stored proxy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The password cannot be opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The operator no longer rents proxies of this type.
    #[error("this installation rents no {} proxies", .0.as_str())]
    NotRented(ProxyType),
    /// The credentials for the gateway are too long.
    #[error("the parameters for the proxy's gateway are too long")]
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

/// Resolves the proxies of sessions and pools, and routes browsers through them.
#[derive(Clone)]
pub struct ProxyRouting {
    proxies: Arc<dyn ProxyRepository>,
    sealer: Arc<dyn Sealer>,
    routes: Arc<dyn ProxyRoutes>,
    upstreams: Arc<ProxyGateways>,
}

impl ProxyRouting {
    /// Creates the routing.
    #[must_use]
    pub fn new(
        proxies: Arc<dyn ProxyRepository>,
        sealer: Arc<dyn Sealer>,
        routes: Arc<dyn ProxyRoutes>,
        upstreams: Arc<ProxyGateways>,
    ) -> Self {
        Self { proxies, sealer, routes, upstreams }
    }

    /// Creates the routing for an installation without proxies.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Arc::new(NoProxies), Arc::new(NoKey), Arc::new(NoRoutes), Arc::default())
    }

    /// Resolves `proxy_id`: the id or name of a proxy of the project.
    ///
    /// # Errors
    /// `reference_not_found` if the proxy does not exist; `ambiguous` if several have the name; `insufficient_scope`; the
    /// error of the store.
    pub async fn resolve<E: From<InvalidInput> + From<StoreError>>(
        &self,
        scope: &Scope,
        which: &str,
    ) -> Result<ProxyId, E> {
        let found = lookup::all(&*self.proxies, scope.project_id(), which).await?;
        let bad = match found.as_slice() {
            [proxy] => match scope.allow(Verb::Use, scope.target(Kind::Proxies, proxy.id.ulid())) {
                Ok(()) => return Ok(proxy.id),
                Err(refused) => refused,
            },
            [] => InvalidValue::new(FieldCode::ReferenceNotFound, "there is no such proxy"),
            _ => InvalidValue::new(FieldCode::Ambiguous, "several proxies bear the name; give the id of one"),
        };
        Err(InvalidInput::of("proxy_id", bad).into())
    }

    /// Returns the route through the proxy, or the direct one.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn prepare(&self, proxy: Option<ProxyId>) -> Result<Route, RouteError> {
        match proxy {
            None => Ok(Route::Direct),
            Some(id) => self.open(id).await.map(|proxy| Route::Through(Arc::new(proxy))),
        }
    }

    /// Sets the route of a browser.
    pub fn set(&self, browser: BrowserId, route: Route) {
        self.routes.set(browser, route);
    }

    /// Routes a browser through the proxy, or directly. After an error the browser has no connection.
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

    /// Removes the route of a browser that has ended.
    pub fn forget(&self, browser: BrowserId) {
        self.routes.forget(browser);
    }

    async fn open(&self, id: ProxyId) -> Result<OpenProxy, RouteError> {
        let proxy = self.proxies.find_any(id).await?.ok_or(RouteError::Gone(id))?;
        Ok(open(&proxy, &*self.sealer, &self.upstreams)?)
    }
}

/// Returns the proxy with its decrypted password.
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
        ca_bundle: own.ca_bundle.clone(),
    })
}

/// A sealer that refuses everything, for an installation without secrets.
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
