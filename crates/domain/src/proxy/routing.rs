//! Selects the route of a browser's traffic.

use std::collections::HashMap;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::lookup;
use super::selection::referenced;
use super::{
    NoProxies, NoRoutes, OpenProxy, Proxy, ProxyConfig, ProxyGateways, ProxyRepository, ProxyRoutes, ProxyType, Route,
    SelectedProxy, TrafficPolicy,
};
use crate::access::Scope;
use crate::browser::{EngineError, EngineFault, Shape};
use crate::field::{FieldCode, InvalidInput, InvalidValue};
use crate::ids::{BrowserId, ProjectId, ProxyId};
use crate::network::{Allowlist, LentHosts, Network, NewNetwork, PrivateHost, ProxyRoute};
use crate::permission::{Kind, Verb};
use crate::sealing::{KeyId, SealError, Sealer};
use crate::store_error::StoreError;

/// The error of routing a browser through its proxy. The browser has no connection then.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The proxy does not exist.
    #[error("proxy {0} does not exist")]
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
    lent: Arc<LentHosts>,
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
        Self { proxies, sealer, routes, upstreams, lent: Arc::default() }
    }

    /// Replaces the private hosts that the operator lends to projects. Default: none.
    #[must_use]
    pub fn with_lent_hosts(self, lent: LentHosts) -> Self {
        Self { lent: Arc::new(lent), ..self }
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
        let selected = SelectedProxy::IdOrName(which.to_owned());
        let found = self.find(scope, &selected).await?;
        found.map_err(|bad| InvalidInput::of(selected.field(), bad).into())
    }

    /// Resolves the proxy that a session selects; `None` for a direct connection.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), for the field that selects the proxy.
    pub async fn select<E: From<InvalidInput> + From<StoreError>>(
        &self,
        scope: &Scope,
        selected: &SelectedProxy,
    ) -> Result<Option<ProxyId>, E> {
        if *selected == SelectedProxy::Direct {
            return Ok(None);
        }
        let found = self.find(scope, selected).await?;
        found.map(Some).map_err(|bad| InvalidInput::of(selected.field(), bad).into())
    }

    async fn find(&self, scope: &Scope, selected: &SelectedProxy) -> Result<Result<ProxyId, InvalidValue>, StoreError> {
        let project = scope.project_id();
        let found = match selected {
            SelectedProxy::IdOrName(text) => lookup::all(&*self.proxies, project, text).await?,
            SelectedProxy::Id(text) => match text.parse::<ProxyId>() {
                Ok(id) => self.proxies.find(project, id).await?.into_iter().collect(),
                Err(_) => Vec::new(),
            },
            SelectedProxy::Name(text) => lookup::named(&*self.proxies, project, text).await?,
            SelectedProxy::Direct => Vec::new(),
        };
        Ok(match found.as_slice() {
            [proxy] => scope.allow(Verb::Use, scope.target(Kind::Proxies, proxy.id.ulid())).map(|()| proxy.id),
            [] => Err(InvalidValue::new(FieldCode::ReferenceNotFound, "there is no such proxy")),
            _ => {
                let several = "several proxies bear the name; give the id of one";
                Err(InvalidValue::new(FieldCode::Ambiguous, several))
            }
        })
    }

    /// Resolves a network configuration: the proxies of its routes, and whether the operator lends its private hosts
    /// to the project. Returns `None` for an empty one.
    ///
    /// # Errors
    /// `reference_not_found` or `ambiguous` for a proxy, `not_allowed` for a private host, below the field `network`;
    /// the error of the store.
    pub async fn resolve_network<E: From<InvalidInput> + From<StoreError>>(
        &self,
        scope: &Scope,
        requested: &NewNetwork,
    ) -> Result<Option<Network>, E> {
        let project = scope.project_id();
        let mut refused = self.check_lent(project, requested.private_hosts.as_deref().unwrap_or_default());
        let mut routes = Vec::new();
        for (n, (hosts, reference)) in requested.proxy_routes.as_deref().unwrap_or_default().iter().enumerate() {
            let found = match referenced(reference) {
                Some(selected) => self.find(scope, &selected).await?,
                None => Err(InvalidValue::new(FieldCode::Required, "needs an id or a name")),
            };
            match found {
                Ok(proxy) => routes.push(ProxyRoute { hosts: hosts.clone(), proxy }),
                Err(bad) => refused.push(bad.of("proxy").of(n).of("proxy_routes")),
            }
        }
        InvalidValue::any(refused).map_err(|bad| InvalidInput::of("network", bad))?;
        let network = Network {
            allowlist: requested.allowlist(),
            private_hosts: requested.private_hosts(project),
            proxy_routes: requested.proxy_routes.as_ref().map(|_| routes),
        };
        Ok(Some(network).filter(|network| !network.is_empty()))
    }

    /// Returns the refusals of the private hosts that the operator does not lend to the project.
    fn check_lent(&self, project: ProjectId, hosts: &[PrivateHost]) -> Vec<InvalidValue> {
        let not_lent = hosts.iter().enumerate().filter(|(_, host)| !self.lent.lends(project, host));
        let refusal = |n: usize| {
            InvalidValue::new(FieldCode::NotAllowed, "is not lent to this project by the operator")
                .of(n)
                .of("private_hosts")
        };
        not_lent.map(|(n, _)| refusal(n)).collect()
    }

    /// Returns the policy for the traffic of a browser of this shape.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn prepare(&self, shape: &Shape) -> Result<TrafficPolicy, RouteError> {
        let mut opened = HashMap::new();
        for id in shape.proxies() {
            opened.insert(id, self.open(id).await?);
        }
        let route_by = |id: ProxyId| opened.get(&id).cloned().unwrap_or(Route::Nowhere);
        let route = shape.proxy.map_or(Route::Direct, route_by);
        let network = shape.network.clone().map(|network| network.with_lent_hosts_only(&self.lent));
        let routed = network.iter().flat_map(|network| network.proxy_routes.iter().flatten());
        let proxy_routes = routed.map(|selected| route_by(selected.proxy)).collect();
        Ok(TrafficPolicy { route, network, proxy_routes })
    }

    /// Sets the policy of a browser's traffic.
    pub fn set(&self, browser: BrowserId, policy: TrafficPolicy) {
        self.routes.set(browser, policy);
    }

    /// Changes the allowlist of a browser whose policy is set.
    pub fn set_allowlist(&self, browser: BrowserId, allowlist: Option<Allowlist>) {
        self.routes.set_allowlist(browser, allowlist);
    }

    /// Applies the proxy and the network configuration of a shape to a browser. After an error the browser has no
    /// connection.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub async fn send(&self, browser: BrowserId, shape: &Shape) -> Result<(), RouteError> {
        match self.prepare(shape).await {
            Ok(policy) => {
                self.set(browser, policy);
                Ok(())
            }
            Err(error) => {
                self.set(browser, Route::Nowhere.into());
                Err(error)
            }
        }
    }

    /// Removes the route of a browser that has ended.
    pub fn forget(&self, browser: BrowserId) {
        self.routes.forget(browser);
    }

    async fn open(&self, id: ProxyId) -> Result<Route, RouteError> {
        let proxy = self.proxies.find_any(id).await?.ok_or(RouteError::Gone(id))?;
        Ok(Route::Through(Arc::new(open(&proxy, &*self.sealer, &self.upstreams)?)))
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

    fn knows(&self, _: KeyId) -> bool {
        false
    }
}
