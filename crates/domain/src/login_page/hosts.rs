//! Where a login may go.

use url::{Host, Url};

use crate::credential::Sites;

/// Hosts of identity providers where a login may go without anybody listing them.
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

/// The characters that a host name may have at most.
const MAX_HOST: usize = 253;

/// Hosts, as `login.example.com`, `*.example.com` (one label more) or `**.example.com` (one or more).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern(Vec<String>);

/// Not a host, nor a pattern of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a host name; a label may be `*` (any one) or `**` (one or more)")]
pub struct BadPattern;

impl HostPattern {
    /// Reads a pattern; upper and lower case are the same. At least the last label is a name.
    ///
    /// # Errors
    /// [`BadPattern`].
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let lower = text.to_ascii_lowercase();
        if lower.is_empty() || lower.len() > MAX_HOST {
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

    /// The labels behind its last wildcard, and whether there is a wildcard.
    fn tail(&self) -> (String, bool) {
        let wild = self.0.iter().rposition(|label| label.starts_with('*'));
        (self.0.get(wild.map_or(0, |at| at + 1)..).unwrap_or_default().join("."), wild.is_some())
    }

    /// Whether it is meant.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        if host.len() > MAX_HOST {
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

/// Whether the labels of a host are those of a pattern: one pass over the host for each label of the pattern, whatever either says.
fn fits(pattern: &[String], host: &[&str]) -> bool {
    // Which beginnings of the host, by their number of labels, the pattern's labels so far can stand for.
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

/// Where one login may go: its own domain and what lies below, what was listed for it, and [`WITHOUT_LISTING`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHosts {
    domain: String,
    listed: Vec<HostPattern>,
}

impl AllowedHosts {
    /// Of a login at `domain`, with the hosts listed for it.
    #[must_use]
    pub fn new(domain: &str, listed: Vec<HostPattern>) -> Self {
        let domain = domain.to_ascii_lowercase();
        Self { domain: domain.strip_prefix("www.").unwrap_or(&domain).to_owned(), listed }
    }

    /// Whether a login may go to that host.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        self.own(host)
            || self.listed.iter().any(|pattern| pattern.matches(host))
            || WITHOUT_LISTING.iter().any(|text| HostPattern::parse(text).is_ok_and(|pattern| pattern.matches(host)))
    }

    /// Whether a host is the login's own: its domain or below it.
    #[must_use]
    pub fn own(&self, host: &str) -> bool {
        // Below an address there is nothing.
        let below = || host.strip_suffix(&self.domain).is_some_and(|before| before.ends_with('.'));
        host == self.domain || (Host::parse(&self.domain).is_ok_and(|host| matches!(host, Host::Domain(_))) && below())
    }

    /// Whether a login may come to a page of one of these sites.
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

    /// The host of an address where a login may go, or else why it may not.
    ///
    /// # Errors
    /// The host, or the scheme where that is neither `http` nor `https`.
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
