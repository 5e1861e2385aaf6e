//! The network configuration of a browser.

use url::{Host, Url};

use super::{Allowlist, AllowlistChange, AllowlistError, Destination, LentHosts, PrivateHost};
use crate::browser::StartUrl;
use crate::field::{FieldCode, InvalidValue};
use crate::ids::{ProjectId, ProxyId};

/// The network configuration of a browser, of a session or of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The hosts that may be reached; `None`: all that the rules of the server allow.
    pub allowlist: Option<Allowlist>,
    /// The private hosts that may be reached; `None`: those that the rules of the server allow.
    pub private_hosts: Option<PrivateHosts>,
    /// The proxies of single hosts.
    pub proxy_routes: Option<Vec<ProxyRoute>>,
}

/// The private hosts of a session. They are lent to its project by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateHosts {
    /// The project.
    pub project: ProjectId,
    /// The hosts.
    pub hosts: Vec<PrivateHost>,
}

/// The proxy of some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRoute {
    /// The host names and wildcards; each is in one route only.
    pub hosts: Vec<Destination>,
    /// The proxy.
    pub proxy: ProxyId,
}

/// The decision about the destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The session may not reach it.
    Denied,
    /// It is a private host, which is reached without a proxy.
    Private,
    /// It is reached through the proxy of this route: the index in [`Network::proxy_routes`].
    Routed(usize),
    /// It is reached as the session's other traffic.
    Default,
}

impl Network {
    /// Returns whether nothing is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Decides about the destination of a request.
    #[must_use]
    pub fn decide(&self, host: &Host<&str>, port: u16) -> Verdict {
        if self.private_hosts.iter().flat_map(|private| &private.hosts).any(|private| private.matches(host, port)) {
            return Verdict::Private;
        }
        if !self.allowlist.as_ref().is_none_or(|allowlist| allowlist.allows(host)) {
            return Verdict::Denied;
        }
        self.route_of(host).map_or(Verdict::Default, Verdict::Routed)
    }

    fn route_of(&self, host: &Host<&str>) -> Option<usize> {
        let routes = self.proxy_routes.iter().flatten().enumerate();
        let patterns = routes.flat_map(|(index, route)| route.hosts.iter().map(move |pattern| (pattern, index)));
        let matching = patterns.filter(|(pattern, _)| pattern.matches(host));
        matching.max_by_key(|(pattern, _)| pattern.rank()).map(|(_, index)| index)
    }

    /// Checks that a session may open the URL. URLs that need no network are allowed.
    ///
    /// # Errors
    /// `not_allowed`.
    pub fn check_start_url(&self, url: &StartUrl) -> Result<(), InvalidValue> {
        let denied = || InvalidValue::new(FieldCode::NotAllowed, "is not allowed by network.allowed_hosts");
        let Ok(url) = Url::parse(url.as_str()) else { return Err(denied()) };
        let is_local = matches!(url.scheme(), "about" | "data" | "blob" | "file" | "chrome" | "chrome-extension");
        if is_local || self.allowlist.as_ref().is_none_or(|allowlist| !allowlist.is_present()) {
            return Ok(());
        }
        // The host of an unknown scheme is an opaque text, which matches as a name.
        let host = url.host().ok_or_else(denied)?;
        match self.decide(&host, url.port_or_known_default().unwrap_or_default()) {
            Verdict::Denied => Err(denied()),
            Verdict::Private | Verdict::Routed(_) | Verdict::Default => Ok(()),
        }
    }

    /// Returns the configuration after a change of the allowlist.
    ///
    /// # Errors
    /// See [`AllowlistError`].
    pub fn changed(&self, change: &AllowlistChange) -> Result<Self, AllowlistError> {
        let allowlist = self.allowlist.as_ref().ok_or(AllowlistError::NoAllowlist)?;
        if let (Some(hosts), Some(private)) = (&change.hosts, &self.private_hosts) {
            check_overlap(hosts, &private.hosts).map_err(AllowlistError::Invalid)?;
        }
        Ok(Self { allowlist: Some(allowlist.changed(change)?), ..self.clone() })
    }

    /// Returns the configuration without private hosts that the operator does not lend, and therefore closed for them.
    #[must_use]
    pub fn with_lent_hosts_only(mut self, lent: &LentHosts) -> Self {
        if let Some(private) = &mut self.private_hosts {
            private.hosts.retain(|host| lent.lends(private.project, host));
        }
        self
    }
}

/// Checks that no allowed host is a private one too.
///
/// # Errors
/// `mutually_exclusive` for each that is.
pub(super) fn check_overlap(allowed: &[Destination], private: &[PrivateHost]) -> Result<(), InvalidValue> {
    let overlaps = |host: &Destination| {
        private.iter().any(|private| private.destination().covers(host) || host.covers(private.destination()))
    };
    let refused = allowed.iter().enumerate().filter(|(_, host)| overlaps(host));
    InvalidValue::any(
        refused.map(|(n, _)| InvalidValue::new(FieldCode::MutuallyExclusive, "overlaps private_hosts").of(n)),
    )
}
