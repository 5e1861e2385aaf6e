//! The use cases of proxies.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use time::Duration;
use url::Url;

use super::input::NONE_RENTED;
use super::lookup::{UseProxyError, find};
use super::routing::{OpenError, open};
use super::{
    CheckOutcome, NewProxy, NewProxyConfig, OpenProxy, OwnProxy, Proxy, ProxyChecked, ProxyConfig, ProxyDeleted,
    ProxyDialer, ProxyFailure, ProxyFilter, ProxyGateways, ProxyRepository, ProxyRequest, ProxyStatus, ProxyStored,
};
use crate::access::Scope;
use crate::clock::{Clock, IdSource};
use crate::error::{InUse, NotFound, UseCaseError};
use crate::field::{FieldCode, Fields, InvalidInput, InvalidValue, check_max_length, required};
use crate::ids::ProxyId;
use crate::name::LabelName;
use crate::page::{Listed, Page};
use crate::sealing::{Resealed, SealError, Sealer};
use crate::session::NotSupported;
use crate::store_error::StoreError;
use crate::web_url;

impl<E> From<OpenError> for UseCaseError<E> {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Seal(seal) => seal.into(),
            OpenError::NotRented(_) => NONE_RENTED.into(),
            OpenError::TooLong => {
                let why = "the parameters for the proxy's gateway are too long";
                NotSupported { field: "config", why: why.into() }.into()
            }
        }
    }
}

/// The dependencies of the use cases of proxies.
#[derive(Clone)]
pub struct ProxyDeps {
    /// The repository of proxies.
    pub proxies: Arc<dyn ProxyRepository>,
    /// Seals the passwords of proxies.
    pub sealer: Arc<dyn Sealer>,
    /// Checks proxies.
    pub dialer: Arc<dyn ProxyDialer>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of new identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The gateways of rented proxy services.
    pub upstreams: Arc<ProxyGateways>,
    /// The maximum number of proxies per project.
    pub max: u32,
}

/// The use cases of proxies.
#[derive(Clone)]
pub struct Proxies {
    deps: ProxyDeps,
}

impl Proxies {
    /// The default maximum number of proxies per project.
    pub const DEFAULT_MAX: u32 = 1000;
    /// The interval of the checks of a proxy.
    pub const CHECKED_EVERY: Duration = Duration::minutes(10);

    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: ProxyDeps) -> Self {
        Self { deps }
    }

    /// Returns whether the installation has rented proxies.
    #[must_use]
    pub fn has_rented(&self) -> bool {
        !self.deps.upstreams.is_empty()
    }

    /// Checks and stores a new proxy. A proxy that does not work is stored as unavailable.
    ///
    /// # Errors
    /// See [`UseCaseError`]; nothing is stored then.
    pub async fn create(&self, scope: &Scope, request: ProxyRequest) -> Result<Proxy, UseCaseError> {
        scope.writable()?;
        let NewProxy { name, kind, protocol, bypass, config } = request.parse(&self.deps.upstreams)?;
        let id = ProxyId::mint(self.deps.ids.as_ref());
        let created_at = self.deps.clock.now();
        let mut proxy = Proxy {
            id,
            project: scope.project_id(),
            name,
            kind,
            protocol,
            config: self.sealed(id, config)?,
            bypass,
            status: ProxyStatus::Unavailable,
            failure: None,
            last_checked: None,
            ip_address: None,
            created_at,
        };
        let found = self.look(&self.open(&proxy)?, None).await?;
        (proxy.status, proxy.failure) = (found.status, found.failure);
        (proxy.last_checked, proxy.ip_address) = (Some(found.at), found.ip_address);
        match self.deps.proxies.create(&proxy, self.deps.max).await? {
            ProxyStored::Yes => Ok(proxy),
            ProxyStored::LimitExceeded(limit) => Err(limit.into()),
            ProxyStored::ProjectGone => Err(UseCaseError::ProjectDeleted),
        }
    }

    fn sealed(&self, id: ProxyId, config: NewProxyConfig) -> Result<ProxyConfig, SealError> {
        let (host, port, username, password, ca_bundle) = match config {
            NewProxyConfig::Own { host, port, username, password, ca_bundle } => {
                (host, port, username, password, ca_bundle)
            }
            NewProxyConfig::Rented(exit) => return Ok(ProxyConfig::Rented(exit)),
        };
        let place = Proxy::place(id);
        let seal = |secret: SecretString| self.deps.sealer.seal(&place, secret.expose_secret().as_bytes());
        let password = password.map(seal).transpose()?;
        Ok(ProxyConfig::Own(OwnProxy { host, port, username, password, ca_bundle }))
    }

    fn open(&self, proxy: &Proxy) -> Result<OpenProxy, OpenError> {
        open(proxy, &*self.deps.sealer, &self.deps.upstreams)
    }

    /// Returns the proxy of the project with this id or name.
    ///
    /// # Errors
    /// [`NotFound`]; [`AmbiguousName`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Proxy, UseProxyError> {
        find(&*self.deps.proxies, scope.project_id(), which).await
    }

    /// Returns the proxies of the project, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(&self, scope: &Scope, filter: &ProxyFilter, page: Page) -> Result<Listed<Proxy>, StoreError> {
        self.deps.proxies.list(scope.project_id(), filter, page).await
    }

    /// Renames a proxy.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn rename(&self, scope: &Scope, which: &str, name: Option<&str>) -> Result<Proxy, UseProxyError> {
        scope.writable()?;
        let name = required("name", name, LabelName::parse)?;
        let id = self.get(scope, which).await?.id;
        let renamed = self.deps.proxies.rename(scope.project_id(), id, &name).await?;
        renamed.ok_or_else(|| NotFound::new("proxy", which).into())
    }

    /// Deletes a proxy that no pool or auth connection uses. Sessions continue to use it.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), UseProxyError> {
        let id = self.get(scope, which).await?.id;
        match self.deps.proxies.delete(scope.project_id(), id, self.deps.clock.now()).await? {
            ProxyDeleted::Yes => Ok(()),
            ProxyDeleted::InUse => Err(in_use(which).into()),
            ProxyDeleted::NotFound => Err(NotFound::new("proxy", which).into()),
        }
    }

    /// Checks a proxy and stores the result. If `url` is given, reads that through the proxy and stores nothing.
    ///
    /// # Errors
    /// See [`UseCaseError`].
    pub async fn check(&self, scope: &Scope, which: &str, url: Option<&str>) -> Result<Proxy, UseProxyError> {
        let mut fields = Fields::new();
        let url = fields.take_optional("url", url, check_url);
        fields.finish()?;
        let proxy = self.get(scope, which).await?;
        let stored = url.is_none();
        let found = match self.open(&proxy) {
            Err(OpenError::NotRented(_)) => self.unavailable(ProxyFailure::Unknown),
            clear => self.look(&clear?, url).await?,
        };
        if stored {
            let noted = self.deps.proxies.checked(proxy.id, &found).await?;
            return noted.ok_or_else(|| NotFound::new("proxy", which).into());
        }
        let ip_address = found.ip_address.or(proxy.ip_address);
        Ok(Proxy { status: found.status, failure: found.failure, last_checked: Some(found.at), ip_address, ..proxy })
    }

    async fn look(&self, proxy: &OpenProxy, url: Option<Url>) -> Result<ProxyChecked, InvalidInput> {
        match self.deps.dialer.check(proxy, url).await {
            CheckOutcome::Available(address) => Ok(ProxyChecked {
                status: ProxyStatus::Available,
                failure: None,
                ip_address: address.map(|one| one.to_string()),
                at: self.deps.clock.now(),
            }),
            CheckOutcome::Unavailable(failure) => Ok(self.unavailable(failure)),
            CheckOutcome::Blocked => Err(InvalidInput::of("url", blocked())),
        }
    }

    fn unavailable(&self, failure: ProxyFailure) -> ProxyChecked {
        let at = self.deps.clock.now();
        ProxyChecked { status: ProxyStatus::Unavailable, failure: Some(failure), ip_address: None, at }
    }

    /// Checks up to `max` proxies of any project that are due, and returns their number. One server checks each.
    ///
    /// # Errors
    /// See [`UseCaseError`]; later calls do the rest.
    pub async fn check_due(&self, max: u32) -> Result<usize, UseCaseError> {
        let now = self.deps.clock.now();
        let due = self.deps.proxies.due(now - Self::CHECKED_EVERY, now, max).await?;
        let taken = due.len();
        for proxy in due {
            // A proxy that cannot be opened is unavailable for every session.
            let found = match self.open(&proxy) {
                Ok(clear) => self.look(&clear, None).await?,
                Err(_) => self.unavailable(ProxyFailure::Unknown),
            };
            let _ = self.deps.proxies.checked(proxy.id, &found).await?;
        }
        Ok(taken)
    }

    /// Reseals the passwords that are not sealed with the current master key, except those that cannot be opened.
    ///
    /// # Errors
    /// See [`UseCaseError`]; the passwords that were resealed before stay resealed.
    pub async fn reseal(&self) -> Result<Resealed, UseCaseError> {
        let (sealer, mut resealed) = (&*self.deps.sealer, Resealed::default());
        loop {
            let processed = resealed.processed();
            for (id, sealed) in &self.deps.proxies.sealed_with_other_key(sealer.current()?, resealed.batch()).await? {
                if let Some(next) = resealed.reseal_value(sealer, Proxy::place(*id), sealed)? {
                    self.deps.proxies.reseal(*id, sealed, &next).await?;
                    resealed.done += 1;
                }
            }
            if resealed.processed() == processed {
                return Ok(resealed);
            }
        }
    }
}

fn blocked() -> InvalidValue {
    InvalidValue::new(FieldCode::Blocked, "must be an http or https address on the public internet")
}

fn check_url(text: &str) -> Result<Url, InvalidValue> {
    check_max_length(text, 8192)?;
    let url =
        web_url::read(text).ok_or_else(|| InvalidValue::new(FieldCode::InvalidFormat, "must be an absolute URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(blocked());
    }
    Ok(url)
}

fn in_use(which: &str) -> InUse {
    let usage = "used by a browser pool or an auth connection; take it out there first";
    InUse { kind: "proxy", which: which.to_owned(), usage }
}
