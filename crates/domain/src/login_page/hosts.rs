//! The hosts that a login may visit.

use url::{Host, Url};

use crate::credential::Sites;
use crate::pattern::trimmed;

/// The hosts of identity providers, which every login may visit.
pub const WITHOUT_LISTING: &[&str] = &[
    "accounts.google.com",
    "login.microsoftonline.com",
    "login.live.com",
    "*.okta.com",
    "*.oktapreview.com",
    "*.auth0.com",
    "*.us.auth0.com",
    "*.eu.auth0.com",
    "*.au.auth0.com",
    "appleid.apple.com",
    "github.com",
    "www.facebook.com",
    "www.linkedin.com",
    "**.amazoncognito.com",
    "**.onelogin.com",
    "*.pingone.com",
    "*.pingidentity.com",
];

/// The maximum number of characters of a host name.
const MAX_HOST_CHARACTERS: usize = 253;

/// A pattern of hosts: `login.example.com`, `*.example.com` (one label more) or `**.example.com` (one or more).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern(Vec<String>);

/// The error of a text that is neither a host nor a pattern of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a host name; a label may be `*` (any one) or `**` (one or more)")]
pub struct BadPattern;

impl HostPattern {
    /// The pattern of the texts, also with white space around them. It also accepts texts that are too long.
    pub const PATTERN: &str = trimmed!(
        r"((\*\*?|[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)\.)*",
        "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
    );

    /// Parses a pattern without regard to case. The last label must be a name.
    ///
    /// # Errors
    /// [`BadPattern`] if the text is no pattern.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let lower = text.to_ascii_lowercase();
        if lower.is_empty() || lower.len() > MAX_HOST_CHARACTERS {
            return Err(BadPattern);
        }
        let labels: Vec<String> = lower.split('.').map(str::to_owned).collect();
        let name = |label: &String| {
            let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            !label.is_empty() && label.len() <= 63 && inner && !label.starts_with('-') && !label.ends_with('-')
        };
        let wild = |label: &String| label == "*" || label == "**";
        let good = labels.iter().all(|label| wild(label) || name(label)) && labels.last().is_some_and(name);
        if good { Ok(Self(labels)) } else { Err(BadPattern) }
    }

    /// Returns the labels after the last wildcard, and whether there is a wildcard.
    fn tail(&self) -> (String, bool) {
        let wild = self.0.iter().rposition(|label| label.starts_with('*'));
        (self.0.get(wild.map_or(0, |at| at + 1)..).unwrap_or_default().join("."), wild.is_some())
    }

    /// Returns whether the pattern matches a host.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        if host.len() > MAX_HOST_CHARACTERS {
            return false;
        }
        let host: Vec<&str> = host.split('.').collect();
        fits(&self.0, &host)
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Returns whether the labels of a host match those of a pattern, in one pass over the host per label.
fn fits(pattern: &[String], host: &[&str]) -> bool {
    // For each n: whether the labels of the pattern so far match the first n labels of the host.
    let mut before = vec![false; host.len() + 1];
    if let Some(nothing) = before.first_mut() {
        *nothing = true;
    }
    for wanted in pattern {
        let mut after = vec![false];
        let mut any = false;
        for (label, reached) in host.iter().zip(&before) {
            any |= reached;
            after.push(match wanted.as_str() {
                "**" => any,
                "*" => *reached && !label.is_empty(),
                name => *reached && name == *label,
            });
        }
        before = after;
    }
    before.last() == Some(&true)
}

/// The hosts that one login may visit: its own domain with subdomains, those listed for it, and [`WITHOUT_LISTING`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHosts {
    domain: String,
    listed: Vec<HostPattern>,
}

impl AllowedHosts {
    /// Creates the hosts of a login at `domain`, with the hosts listed for it.
    #[must_use]
    pub fn new(domain: &str, listed: Vec<HostPattern>) -> Self {
        let domain = domain.to_ascii_lowercase();
        Self { domain: domain.strip_prefix("www.").unwrap_or(&domain).to_owned(), listed }
    }

    /// Returns whether the login may visit a host.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        self.own(host)
            || self.listed.iter().any(|pattern| pattern.matches(host))
            || WITHOUT_LISTING.iter().any(|text| HostPattern::parse(text).is_ok_and(|pattern| pattern.matches(host)))
    }

    /// Returns whether a host is the login's own domain or a subdomain of it.
    #[must_use]
    pub fn own(&self, host: &str) -> bool {
        // An IP address has no subdomains.
        let below = || host.strip_suffix(&self.domain).is_some_and(|before| before.ends_with('.'));
        host == self.domain || (Host::parse(&self.domain).is_ok_and(|host| matches!(host, Host::Domain(_))) && below())
    }

    /// Returns whether the login may visit a page of one of the sites.
    #[must_use]
    pub fn may_reach(&self, sites: &Sites) -> bool {
        let reaches = |pattern: &HostPattern| {
            let (tail, wild) = pattern.tail();
            sites.is_near(&tail) || (wild && sites.is_below(&tail))
        };
        sites.is_near(&self.domain)
            || self.listed.iter().any(reaches)
            || WITHOUT_LISTING.iter().any(|text| HostPattern::parse(text).is_ok_and(|pattern| reaches(&pattern)))
    }

    /// Returns the host of a URL if the login may visit it.
    ///
    /// # Errors
    /// Returns the host that is not allowed, the scheme if it is neither `http` nor `https`, or a text that is no URL.
    pub fn check(&self, url: &str) -> Result<String, String> {
        let Ok(url) = Url::parse(url) else { return Err(super::clean(url, 100)) };
        match (url.scheme(), url.host_str()) {
            ("http" | "https", Some(host)) if self.allow(host.trim_matches(['[', ']'])) || self.allow(host) => {
                Ok(host.to_owned())
            }
            ("http" | "https", Some(host)) => Err(host.to_owned()),
            (scheme, _) => Err(format!("{scheme}:")),
        }
    }
}
