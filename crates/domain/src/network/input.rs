//! Requests for network configurations, and their checks.

use std::collections::HashSet;

use super::model::check_overlap;
use super::{Allowlist, AllowlistChange, Condition, Destination, Network, PrivateHost, PrivateHosts, ProxyRoute};
use crate::field::{FieldCode, Fields, InvalidValue, check_length, check_no_control_characters};
use crate::ids::{ProjectId, ProxyId};
use crate::reference::Reference;

/// The maximum number of allowed hosts.
pub const MAX_ALLOWED_HOSTS: usize = 200;
/// The maximum number of private hosts.
pub const MAX_PRIVATE_HOSTS: usize = 50;
/// The maximum number of proxy routes.
pub const MAX_PROXY_ROUTES: usize = 20;
/// The maximum number of hosts of all proxy routes together.
pub const MAX_ROUTED_HOSTS: usize = 200;
/// The maximum number of characters of a revision and of a mutation's id.
const MAX_ID_CHARACTERS: usize = 255;

/// The unchecked network configuration of a session or pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRequest {
    /// The only hosts that may be reached. Default: all.
    pub allowed_hosts: Option<Vec<String>>,
    /// The private hosts that may be reached. Default: those of the server's rules.
    pub private_hosts: Option<Vec<String>>,
    /// The proxies of single hosts. Default: none.
    pub proxy_routes: Option<Vec<ProxyRouteRequest>>,
}

/// The unchecked proxy of some hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyRouteRequest {
    /// The hosts.
    pub hosts: Vec<String>,
    /// The proxy of the project, by id or name.
    pub proxy: Reference,
}

/// The checked network configuration, whose proxies are not resolved yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewNetwork {
    /// The only hosts that may be reached.
    pub allowed_hosts: Option<Vec<Destination>>,
    /// The private hosts.
    pub private_hosts: Option<Vec<PrivateHost>>,
    /// The hosts of each proxy.
    pub proxy_routes: Option<Vec<(Vec<Destination>, Reference)>>,
}

impl NetworkRequest {
    /// Checks the fields. The errors have paths such as `allowed_hosts.0`.
    ///
    /// # Errors
    /// Every field that breaks a rule.
    pub fn parse(&self) -> Result<NewNetwork, InvalidValue> {
        let mut refused = Vec::new();
        let mut take = |name: &str, bad: InvalidValue| refused.push(bad.of(name));
        let allowed_hosts = self.allowed_hosts.as_deref().map(parse_allowed_hosts);
        let private_hosts = self.private_hosts.as_deref().map(|texts| {
            check_count(texts.len(), MAX_PRIVATE_HOSTS)?;
            parse_each(texts, PrivateHost::parse)
        });
        let proxy_routes = self.proxy_routes.as_deref().map(parse_routes);
        let network = NewNetwork {
            allowed_hosts: taken("allowed_hosts", allowed_hosts, &mut take),
            private_hosts: taken("private_hosts", private_hosts, &mut take),
            proxy_routes: taken("proxy_routes", proxy_routes, &mut take),
        };
        if let (Some(allowed), Some(private)) = (&network.allowed_hosts, &network.private_hosts)
            && let Err(bad) = check_overlap(allowed, private)
        {
            take("allowed_hosts", bad);
        }
        InvalidValue::any(refused)?;
        Ok(network)
    }
}

impl NewNetwork {
    /// Returns the private hosts, for this project.
    pub(crate) fn private_hosts(&self, project: ProjectId) -> Option<PrivateHosts> {
        self.private_hosts.clone().map(|hosts| PrivateHosts { project, hosts })
    }

    /// Returns whether `stored` is this configuration, with the same ids of proxies.
    pub(crate) fn describes(&self, stored: Option<&Network>) -> bool {
        let stored = stored.cloned().unwrap_or_default();
        let routes = self.proxy_routes.as_ref().map(|routes| {
            let route = |(hosts, proxy): &(Vec<Destination>, Reference)| {
                let proxy = proxy.id.as_ref().and_then(|id| id.parse::<ProxyId>().ok())?;
                Some(ProxyRoute { hosts: hosts.clone(), proxy })
            };
            routes.iter().map(route).collect::<Vec<_>>()
        });
        let stored_routes = stored.proxy_routes.map(|routes| routes.into_iter().map(Some).collect::<Vec<_>>());
        self.allowed_hosts == stored.allowlist.and_then(|allowlist| allowlist.hosts)
            && self.private_hosts == stored.private_hosts.map(|private| private.hosts)
            && routes == stored_routes
    }

    /// Returns the allowlist in its first revision.
    pub(crate) fn allowlist(&self) -> Option<Allowlist> {
        self.allowed_hosts.clone().map(Allowlist::new)
    }
}

fn taken<T>(
    name: &str,
    value: Option<Result<T, InvalidValue>>,
    refuse: &mut impl FnMut(&str, InvalidValue),
) -> Option<T> {
    value?.map_err(|bad| refuse(name, bad)).ok()
}

fn parse_allowed_hosts(texts: &[String]) -> Result<Vec<Destination>, InvalidValue> {
    if texts.is_empty() {
        return Err(InvalidValue::new(FieldCode::TooShort, "must have at least 1 member"));
    }
    check_count(texts.len(), MAX_ALLOWED_HOSTS)?;
    parse_each(texts, Destination::parse_allowed)
}

/// Parses a list, without members that are equal to earlier ones.
fn parse_each<T: Eq>(
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, InvalidValue>,
) -> Result<Vec<T>, InvalidValue> {
    let (mut parsed, mut refused) = (Vec::new(), Vec::new());
    for (n, text) in texts.iter().enumerate() {
        match parse(text) {
            Ok(one) if parsed.contains(&one) => {}
            Ok(one) => parsed.push(one),
            Err(bad) => refused.push(bad.of(n)),
        }
    }
    InvalidValue::any(refused)?;
    Ok(parsed)
}

fn parse_routes(routes: &[ProxyRouteRequest]) -> Result<Vec<(Vec<Destination>, Reference)>, InvalidValue> {
    check_count(routes.len(), MAX_PROXY_ROUTES)?;
    check_count(routes.iter().map(|route| route.hosts.len()).sum(), MAX_ROUTED_HOSTS)?;
    let (mut parsed, mut refused, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (n, route) in routes.iter().enumerate() {
        if route.hosts.is_empty() {
            refused.push(InvalidValue::new(FieldCode::TooShort, "must have at least 1 member").of("hosts").of(n));
        }
        if let Err(bad) = route.proxy.parse() {
            refused.push(bad.of("proxy").of(n));
        }
        let mut hosts = Vec::new();
        for (m, text) in route.hosts.iter().enumerate() {
            let parsed = Destination::parse_routed(text).and_then(|host| match seen.insert(host.clone()) {
                true => Ok(host),
                false => Err(InvalidValue::new(FieldCode::MutuallyExclusive, "is in a route already")),
            });
            match parsed {
                Ok(host) => hosts.push(host),
                Err(bad) => refused.push(bad.of(m).of("hosts").of(n)),
            }
        }
        parsed.push((hosts, route.proxy.clone()));
    }
    InvalidValue::any(refused)?;
    Ok(parsed)
}

fn check_count(count: usize, max: usize) -> Result<(), InvalidValue> {
    if count > max {
        return Err(InvalidValue::new(FieldCode::TooMany, format!("must have at most {max}")));
    }
    Ok(())
}

/// The unchecked change of the network configuration of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowlistUpdateRequest {
    /// The new allowed hosts; `Some(None)` removes the list.
    pub allowed_hosts: Option<Option<Vec<String>>>,
    /// The revision that the list must have; only with `mutation_id`.
    pub expected_allowlist_revision: Option<String>,
    /// The caller's id of the change; only with `expected_allowlist_revision`.
    pub mutation_id: Option<String>,
    /// Whether the request has a field that can be set only at the creation, by its name.
    pub fixed: Vec<&'static str>,
}

impl AllowlistUpdateRequest {
    /// Returns the change under the field `network`; `None` if nothing is requested. Errors are added to `fields`.
    pub(crate) fn parse(&self, fields: &mut Fields) -> Option<AllowlistChange> {
        for name in &self.fixed {
            let bad = InvalidValue::new(FieldCode::NotAllowed, "can be set only when the session is created");
            fields.refuse(&format!("network.{name}"), bad);
        }
        let condition = self.condition(fields);
        let hosts = match &self.allowed_hosts {
            None if condition.is_some() => {
                let bad = InvalidValue::new(FieldCode::Required, "is required beside network.mutation_id");
                fields.refuse("network.allowed_hosts", bad);
                return None;
            }
            None => return None,
            Some(hosts) => hosts.as_deref().map(parse_allowed_hosts).transpose(),
        };
        let hosts = fields.take("network.allowed_hosts", hosts)?;
        Some(AllowlistChange { hosts, condition })
    }

    fn condition(&self, fields: &mut Fields) -> Option<Condition> {
        const NAMES: [&str; 2] = ["network.expected_allowlist_revision", "network.mutation_id"];
        let values = [self.expected_allowlist_revision.as_deref(), self.mutation_id.as_deref()];
        let mut parsed = Vec::new();
        for (n, name) in NAMES.into_iter().enumerate() {
            match values[n] {
                Some(text) => {
                    let checked =
                        check_length(text, MAX_ID_CHARACTERS).and_then(|()| check_no_control_characters(text));
                    parsed.extend(fields.take(name, checked.map(|()| text.to_owned())));
                }
                None if values[1 - n].is_some() => {
                    let bad = format!("is required beside {}", NAMES[1 - n]);
                    fields.refuse(name, InvalidValue::new(FieldCode::Required, bad));
                }
                None => {}
            }
        }
        let [revision, mutation_id] = <[String; 2]>::try_from(parsed).ok()?;
        Some(Condition { revision, mutation_id })
    }
}
