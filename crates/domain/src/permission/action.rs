//! Actions: a kind of resource, and what is done with it.

use std::fmt;

use crate::field::{FieldCode, InvalidValue, one_of};
use crate::text_enum::text_enum;

text_enum! {
    /// A kind of resource.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Kind {
        /// Browser sessions.
        Browsers => "browsers",
        /// Pools.
        BrowserPools => "browser_pools",
        /// Profiles.
        Profiles => "profiles",
        /// Proxies.
        Proxies => "proxies",
        /// Extensions.
        Extensions => "extensions",
        /// Auth connections.
        AuthConnections => "auth_connections",
        /// Credentials.
        Credentials => "credentials",
        /// Deployments.
        Deployments => "deployments",
        /// Apps.
        Apps => "apps",
        /// Invocations.
        Invocations => "invocations",
        /// Projects, with their limits.
        Projects => "projects",
        /// API keys.
        ApiKeys => "api_keys",
        /// Credential providers.
        CredentialProviders => "credential_providers",
        /// The limits of the organization.
        Limits => "limits",
        /// The features of the installation.
        Entitlements => "entitlements",
        /// Audit records.
        AuditLogs => "audit_logs",
        /// Audit destinations.
        AuditDestinations => "audit_destinations",
        /// Telemetry destinations.
        TelemetryDestinations => "telemetry_destinations",
        /// Nodes.
        Nodes => "nodes",
        /// Engines.
        Engines => "engines",
        /// The metrics of the server.
        Metrics => "metrics",
    }
}

text_enum! {
    /// What is done with a resource.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Verb {
        /// Reads its record, lists and streams.
        Read => "read",
        /// Makes a new one.
        Create => "create",
        /// Changes it.
        Update => "update",
        /// Ends or deletes it.
        Delete => "delete",
        /// Works with it, or reads its content: drives a browser, leases from a pool, loads a profile, logs in.
        Use => "use",
    }
}

/// Where the resources of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In a project.
    InProject,
    /// They are the projects.
    Project,
    /// In the organization.
    InOrganization,
}

impl Kind {
    /// Returns where resources of this kind are.
    #[must_use]
    pub fn level(self) -> Level {
        match self {
            Self::Browsers
            | Self::BrowserPools
            | Self::Profiles
            | Self::Proxies
            | Self::Extensions
            | Self::AuthConnections
            | Self::Credentials
            | Self::Deployments
            | Self::Apps
            | Self::Invocations => Level::InProject,
            Self::Projects => Level::Project,
            Self::ApiKeys
            | Self::CredentialProviders
            | Self::Limits
            | Self::Entitlements
            | Self::AuditLogs
            | Self::AuditDestinations
            | Self::TelemetryDestinations
            | Self::Nodes
            | Self::Engines
            | Self::Metrics => Level::InOrganization,
        }
    }

    /// Returns what can be done with resources of this kind.
    #[must_use]
    pub fn verbs(self) -> &'static [Verb] {
        use Verb::{Create, Delete, Read, Update, Use};
        match self {
            Self::Browsers
            | Self::BrowserPools
            | Self::Profiles
            | Self::Proxies
            | Self::AuthConnections
            | Self::Credentials
            | Self::CredentialProviders
            | Self::AuditDestinations => &[Read, Create, Update, Delete, Use],
            Self::Extensions => &[Read, Create, Delete, Use],
            Self::Deployments => &[Read, Create, Delete],
            Self::Invocations => &[Read, Create, Update],
            Self::Projects | Self::ApiKeys | Self::TelemetryDestinations => &[Read, Create, Update, Delete],
            Self::Limits | Self::Nodes => &[Read, Update],
            Self::Apps | Self::Entitlements | Self::AuditLogs | Self::Engines | Self::Metrics => &[Read],
        }
    }
}

/// What an operation does with a kind of resource, as `browsers:use`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    /// The kind.
    pub kind: Kind,
    /// What is done.
    pub verb: Verb,
}

impl Action {
    /// Creates the action.
    #[must_use]
    pub const fn new(kind: Kind, verb: Verb) -> Self {
        Self { kind, verb }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.as_str(), self.verb.as_str())
    }
}

/// The actions that a statement allows: `browsers:read`, `browsers:*`, `*:read` or `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActionPattern {
    /// The kind; `None`: every kind.
    pub(super) kind: Option<Kind>,
    /// What is done; `None`: everything.
    verb: Option<Verb>,
}

impl ActionPattern {
    /// Parses the text of a statement.
    ///
    /// # Errors
    /// `invalid_format`; `not_allowed` for an unknown kind, or a verb that no operation on the kind has.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        if text == "*" {
            return Ok(Self { kind: None, verb: None });
        }
        let Some((kind, verb)) = text.split_once(':') else {
            let message = "must be *, or a kind and a verb as in browsers:read, browsers:* or *:read";
            return Err(InvalidValue::new(FieldCode::InvalidFormat, message));
        };
        let kind = parse_or_any(kind, Kind::ALL.as_slice(), Kind::as_str)?;
        let verbs = kind.map_or(Verb::ALL.as_slice(), Kind::verbs);
        Ok(Self { kind, verb: parse_or_any(verb, verbs, Verb::as_str)? })
    }

    pub(super) fn includes(self, action: Action) -> bool {
        self.kind.is_none_or(|kind| kind == action.kind) && self.verb.is_none_or(|verb| verb == action.verb)
    }

    /// Returns whether every action of `other` is one of these.
    pub(super) fn covers(self, other: Self) -> bool {
        (self.kind.is_none() || self.kind == other.kind) && (self.verb.is_none() || self.verb == other.verb)
    }
}

/// Returns the value with this text; `None` for `*`.
fn parse_or_any<T: Copy>(text: &str, all: &[T], text_of: fn(T) -> &'static str) -> Result<Option<T>, InvalidValue> {
    if text == "*" {
        return Ok(None);
    }
    let found = one_of(text, all, text_of);
    found.map(Some).map_err(|bad| InvalidValue::new(bad.code, format!("{} or *", bad.message)))
}

impl fmt::Display for ActionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.verb) {
            (None, None) => f.write_str("*"),
            (kind, verb) => {
                write!(f, "{}:{}", kind.map_or("*", Kind::as_str), verb.map_or("*", Verb::as_str))
            }
        }
    }
}
