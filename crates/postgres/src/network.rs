//! The stored form of network configurations.

use casement_domain::network::{Allowlist, Destination, Network, PrivateHost, PrivateHosts, ProxyRoute};
use casement_domain::{ProjectId, ProxyId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::column::ColumnValue;

#[derive(Serialize, Deserialize)]
struct StoredNetwork {
    #[serde(skip_serializing_if = "Option::is_none")]
    allowlist: Option<StoredAllowlist>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<StoredPrivate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_routes: Option<Vec<StoredRoute>>,
}

#[derive(Serialize, Deserialize)]
struct StoredAllowlist {
    hosts: Option<Vec<String>>,
    revision: u64,
    base_revision: Option<u64>,
    mutation_id: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredPrivate {
    project_id: String,
    hosts: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredRoute {
    hosts: Vec<String>,
    proxy_id: String,
}

/// Returns a value that the column of a network configuration contains if one of its routes uses the proxy.
pub(crate) fn with_route_by(proxy: ProxyId) -> Value {
    json!({ "proxy_routes": [{ "proxy_id": proxy.to_string() }] })
}

impl ColumnValue for Network {
    type Raw = Value;

    fn to_raw(&self) -> Value {
        let stored = StoredNetwork {
            allowlist: self.allowlist.as_ref().map(|allowlist| StoredAllowlist {
                hosts: allowlist.hosts.as_deref().map(texts),
                revision: allowlist.revision,
                base_revision: allowlist.base_revision,
                mutation_id: allowlist.mutation_id.clone(),
            }),
            private: self
                .private_hosts
                .as_ref()
                .map(|private| StoredPrivate { project_id: private.project.to_string(), hosts: texts(&private.hosts) }),
            proxy_routes: self.proxy_routes.as_ref().map(|routes| {
                let route =
                    |route: &ProxyRoute| StoredRoute { hosts: texts(&route.hosts), proxy_id: route.proxy.to_string() };
                routes.iter().map(route).collect()
            }),
        };
        // Texts and numbers always have a JSON form.
        serde_json::to_value(stored).unwrap_or_default()
    }

    fn from_raw(raw: Value) -> Result<Self, String> {
        let stored: StoredNetwork = serde_json::from_value(raw).map_err(|error| error.to_string())?;
        let allowlist = stored.allowlist.map(|list| {
            let hosts = list.hosts.map(|hosts| all(&hosts, Destination::parse_stored)).transpose()?;
            let StoredAllowlist { revision, base_revision, mutation_id, .. } = list;
            Ok::<_, String>(Allowlist { hosts, revision, base_revision, mutation_id })
        });
        let private_hosts = stored.private.map(|private| {
            let project = private.project_id.parse::<ProjectId>().map_err(|bad| bad.to_string())?;
            Ok::<_, String>(PrivateHosts { project, hosts: all(&private.hosts, PrivateHost::parse_stored)? })
        });
        let proxy_routes = stored.proxy_routes.map(|routes| {
            let route = |route: StoredRoute| {
                let proxy = route.proxy_id.parse::<ProxyId>().map_err(|_| "no id of a proxy".to_owned())?;
                Ok::<_, String>(ProxyRoute { hosts: all(&route.hosts, Destination::parse_stored)?, proxy })
            };
            routes.into_iter().map(route).collect::<Result<Vec<_>, _>>()
        });
        Ok(Self {
            allowlist: allowlist.transpose()?,
            private_hosts: private_hosts.transpose()?,
            proxy_routes: proxy_routes.transpose()?,
        })
    }
}

fn texts<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn all<T, E: std::fmt::Display>(texts: &[String], parse: impl Fn(&str) -> Result<T, E>) -> Result<Vec<T>, String> {
    texts.iter().map(|text| parse(text).map_err(|bad| bad.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn hosts_that_would_be_refused_today_are_read_as_they_were_stored() {
        let stored = json!({
            "allowlist": { "hosts": ["*.com", "10.1.0.0/16"], "revision": 1, "base_revision": null, "mutation_id": null },
            "private": { "project_id": ProjectId::from_ulid(1.into()).to_string(), "hosts": ["*.internal:80", "8.8.8.8"] },
            "proxy_routes": [{ "hosts": ["*.io"], "proxy_id": ProxyId::from_ulid(2.into()).to_string() }],
        });
        let network = Network::from_raw(stored.clone()).expect("readable");
        assert_eq!(network.to_raw(), stored);
        let malformed =
            json!({ "proxy_routes": [{ "hosts": ["a b"], "proxy_id": ProxyId::from_ulid(2.into()).to_string() }] });
        assert!(Network::from_raw(malformed).is_err());
    }
}
