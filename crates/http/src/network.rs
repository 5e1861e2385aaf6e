//! Network configurations and proxies of sessions and pools: request bodies and records.

use casement_domain::{
    network::{
        Allowlist, AllowlistUpdateRequest, DeniedRequests, MAX_ALLOWED_HOSTS, Network, NetworkRequest, ProxyRoute,
        ProxyRouteRequest,
    },
    proxy::{ProxyMode, ProxySelection},
};
use serde::{Deserialize, Serialize};

use crate::{from_fields::from_fields, json::nullable, schema::ToSchema, session::Reference};

const _: () = assert!(MAX_ALLOWED_HOSTS == 200, "the descriptions below name it");

/// What browsers may reach, and by which proxy.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserNetworkInput)]
pub(crate) struct NetworkInput {
    /// The only hosts that may be reached, 1 to 200: exact names, `*.` and a name for its subdomains, public IPv4
    /// addresses, public IPv6 addresses in brackets, public networks for literal addresses. Default: all.
    allowed_hosts: Option<Vec<String>>,
    /// The private hosts that may be reached, of those that the operator lends to the project, up to 50. `[]`: none.
    /// Default: those that the operator allows for all sessions.
    private_hosts: Option<Vec<String>>,
    /// Proxies of single hosts, up to 20 with 200 hosts together.
    proxy_routes: Option<Vec<ProxyRouteInput>>,
}

/// The proxy of some hosts.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserProxyRouteInput)]
pub(crate) struct ProxyRouteInput {
    /// Exact names, and `*.` and a name for its subdomains. An exact name has priority, then a longer wildcard.
    hosts: Vec<String>,
    /// A proxy of the project.
    proxy: Reference,
}

impl From<NetworkInput> for NetworkRequest {
    fn from(body: NetworkInput) -> Self {
        let route = |route: ProxyRouteInput| ProxyRouteRequest { hosts: route.hosts, proxy: route.proxy.into() };
        Self {
            allowed_hosts: body.allowed_hosts,
            private_hosts: body.private_hosts,
            proxy_routes: body.proxy_routes.map(|routes| routes.into_iter().map(route).collect()),
        }
    }
}

/// The change of the allowed hosts of a session that was created with some.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserNetworkUpdate)]
pub(crate) struct NetworkUpdate {
    /// The new hosts; null removes the list for good.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>)]
    allowed_hosts: Option<Option<Vec<String>>>,
    /// The revision that the list must have; only with `mutation_id`.
    expected_allowlist_revision: Option<String>,
    /// An id of this change, chosen by the caller, 1 to 255 characters. A repeated change has no further effect.
    mutation_id: Option<String>,
    /// Refused: it can be set only when the session is created.
    private_hosts: Option<Vec<String>>,
    /// Refused: they can be set only when the session is created.
    proxy_routes: Option<Vec<ProxyRouteInput>>,
}

impl From<NetworkUpdate> for AllowlistUpdateRequest {
    fn from(body: NetworkUpdate) -> Self {
        let fixed = [("private_hosts", body.private_hosts.is_some()), ("proxy_routes", body.proxy_routes.is_some())];
        Self {
            allowed_hosts: body.allowed_hosts,
            expected_allowlist_revision: body.expected_allowlist_revision,
            mutation_id: body.mutation_id,
            fixed: fixed.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect(),
        }
    }
}

/// The way of the traffic: exactly one field.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = BrowserProxySelection)]
pub(crate) struct ProxyInput {
    /// The id of a proxy of the project.
    id: Option<String>,
    /// The name of a proxy of the project.
    name: Option<String>,
    /// `direct`: no proxy; `default`: as browsers of this installation connect by default, which is directly too.
    mode: Option<String>,
}

from_fields!(ProxyInput => ProxySelection { id, name, mode });

/// The way of the traffic of a session: the id of a proxy, or a mode.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserProxy)]
pub(crate) struct ProxyBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// `direct` without a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
}

impl ProxyBody {
    pub(crate) fn new(id: Option<String>) -> Self {
        Self { mode: id.is_none().then_some(ProxyMode::Direct.as_str()), id }
    }
}

/// What browsers may reach, and by which proxy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserNetwork)]
pub(crate) struct NetworkBody {
    /// The only hosts that may be reached; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_hosts: Option<Vec<String>>,
    /// The revision of the allowed hosts of a session that was created with some.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowlist_state: Option<AllowlistState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_hosts: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_routes: Option<Vec<ProxyRouteBody>>,
    /// The requests of a session that were refused because of this configuration, since the last start of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_requests: Option<DeniedRequestsBody>,
}

/// The revision of the allowed hosts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserAllowlistState)]
struct AllowlistState {
    /// The present revision.
    revision: String,
    /// The revision before the last change with a `mutation_id`, if that is the present one.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_revision: Option<String>,
    /// The id of the last change, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    mutation_id: Option<String>,
}

/// The proxy of some hosts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserProxyRoute)]
struct ProxyRouteBody {
    hosts: Vec<String>,
    proxy: RoutedProxy,
}

/// A resolved proxy.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserRoutedProxy)]
struct RoutedProxy {
    id: String,
}

/// Refused requests.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserDeniedRequests)]
struct DeniedRequestsBody {
    count: u64,
    /// The last different destinations, newest first, up to 20, as `host:port`.
    last: Vec<String>,
}

impl NetworkBody {
    /// Returns the record of a pool's configuration.
    pub(crate) fn of_pool(network: Network) -> Self {
        let texts = |allowlist: &Allowlist| Some(allowlist.hosts.as_ref()?.iter().map(ToString::to_string).collect());
        Self {
            allowed_hosts: network.allowlist.as_ref().and_then(texts),
            allowlist_state: None,
            private_hosts: network.private_hosts.map(|private| private.hosts.iter().map(ToString::to_string).collect()),
            proxy_routes: network.proxy_routes.map(|routes| routes.into_iter().map(ProxyRouteBody::from).collect()),
            denied_requests: None,
        }
    }

    /// Returns the record of a session's configuration, with its refused requests.
    pub(crate) fn of_session(network: Network, denied: DeniedRequests) -> Self {
        let state = network.allowlist.as_ref().map(|allowlist| AllowlistState {
            revision: allowlist.revision.to_string(),
            base_revision: allowlist.base_revision.map(|revision| revision.to_string()),
            mutation_id: allowlist.mutation_id.clone(),
        });
        let denied = DeniedRequestsBody { count: denied.count, last: denied.last };
        Self { denied_requests: state.is_some().then_some(denied), allowlist_state: state, ..Self::of_pool(network) }
    }
}

impl From<ProxyRoute> for ProxyRouteBody {
    fn from(route: ProxyRoute) -> Self {
        let hosts = route.hosts.iter().map(ToString::to_string).collect();
        Self { hosts, proxy: RoutedProxy { id: route.proxy.to_string() } }
    }
}
