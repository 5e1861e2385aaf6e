//! The sites of a secret, which decide where it may be typed.

use core::net::IpAddr;

use url::{Host, Url};

/// The sites of one secret: the URLs of a provider's item, the domain of a stored credential, or the page where a
/// person entered a value. A secret without a site is never typed automatically.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites(Vec<Site>);

/// The parts of one URL of a secret that decide where the secret may be typed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Site {
    /// The host, in lower case, without a trailing dot.
    host: String,
    /// The explicit port of the URL; `None`: any.
    port: Option<u16>,
    /// True if the scheme is `http`.
    is_plain: bool,
}

/// The way in which the browser of a login reaches pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Directly.
    Direct,
    /// Through a proxy of the project, which can read and answer unencrypted traffic.
    Proxied,
}

impl Sites {
    /// Returns the site of a stored credential, from its host name.
    #[must_use]
    pub fn of_domain(domain: &str) -> Self {
        Self::of_addresses([domain])
    }

    /// Returns the sites of an item, from its URLs, with or without a scheme. Other texts are ignored.
    #[must_use]
    pub fn of_addresses<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Self {
        Self(addresses.into_iter().filter_map(Site::parse).collect())
    }

    /// Returns whether there is no site.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the secret may be typed into a page or frame of this origin (`https://login.example.com`).
    ///
    /// The origin must have the same registrable domain as one of the sites, according to the public suffix list
    /// including its private part; IP addresses and names of one label must be equal. It must be `https`, unless it is
    /// on the loopback interface, or the site's own URL is `http` with this host. Through a proxy `http` is never
    /// allowed, because the proxy could answer in place of the site. An explicit port of the site must be the origin's.
    #[must_use]
    pub fn allow(&self, origin: &str, route: Route) -> bool {
        let Some(page) = Origin::parse(origin) else { return false };
        self.0.iter().any(|site| site.allows(&page, route))
    }

    /// Returns whether the host has the same registrable domain as one of the sites.
    #[must_use]
    pub fn is_near(&self, host: &str) -> bool {
        let host = bare(host);
        self.0.iter().any(|site| same_site(&site.host, &host))
    }

    /// Returns whether one of the sites is a subdomain of this name.
    #[must_use]
    pub fn is_below(&self, name: &str) -> bool {
        let below = |site: &Site| site.host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
        self.0.iter().any(below)
    }
}

/// The scheme, host and port of a page or frame.
struct Origin {
    is_secure: bool,
    host: String,
    port: Option<u16>,
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let is_secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Self { is_secure, host: bare(url.host_str()?), port: url.port_or_known_default() })
    }
}

impl Site {
    fn parse(address: &str) -> Option<Self> {
        let address = address.trim();
        let url = match Url::parse(address) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            _ if address.contains("://") => return None,
            _ => Url::parse(&format!("https://{address}")).ok()?,
        };
        let host = bare(url.host_str()?);
        (!host.is_empty()).then(|| Self { host, port: url.port(), is_plain: url.scheme() == "http" })
    }

    fn allows(&self, page: &Origin, route: Route) -> bool {
        if self.port.is_some() && self.port != page.port {
            return false;
        }
        if page.is_secure {
            return same_site(&self.host, &page.host);
        }
        let named = without_www(&self.host) == without_www(&page.host);
        named && route == Route::Direct && (self.is_plain || is_loopback(&self.host))
    }
}

/// Returns a host in the form in which names are compared.
fn bare(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn without_www(host: &str) -> &str {
    host.strip_prefix("www.").unwrap_or(host)
}

/// Returns whether both hosts have the same registrable domain according to the public suffix list.
fn same_site(site: &str, page: &str) -> bool {
    if site == page {
        return true;
    }
    let is_name = |host: &str| matches!(Host::parse(host), Ok(Host::Domain(_)));
    if !is_name(site) || !is_name(page) {
        return false;
    }
    matches!((psl::domain_str(site), psl::domain_str(page)), (Some(one), Some(other)) if one == other)
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(site: &str, origin: &str) -> bool {
        Sites::of_addresses([site]).allow(origin, Route::Direct)
    }

    #[test]
    fn a_secret_is_for_the_registrable_domain_of_its_site() {
        let of_one_owner = [
            ("https://shop.example/login?x=1", "https://shop.example"),
            ("shop.example", "https://www.shop.example"),
            ("https://login.shop.example", "https://shop.example"),
            ("https://a.shop.example", "https://b.shop.example"),
            ("https://Shop.Example./", "https://shop.example."),
            ("https://münchen.example", "https://xn--mnchen-3ya.example"),
            ("https://me.github.io", "https://a.me.github.io"),
            ("https://intranet", "https://intranet"),
            ("https://10.0.0.1", "https://10.0.0.1"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]"),
            ("https://me:word@shop.example", "https://shop.example"),
        ];
        let of_two_owners = [
            ("https://shop.example", "https://notshop.example"),
            ("https://shop.example", "https://shop.example.evil.test"),
            ("https://shop.example", "https://shop.evil.test"),
            ("https://bank.co.uk", "https://shop.co.uk"),
            ("https://co.uk", "https://shop.co.uk"),
            ("https://me.github.io", "https://evil.github.io"),
            ("https://github.io", "https://evil.github.io"),
            ("https://intranet", "https://a.intranet"),
            ("https://10.0.0.1", "https://10.0.0.2"),
            ("https://0.0.1", "https://10.0.0.1"),
            ("https://[2001:db8::1]", "https://[2001:db8::2]"),
            ("https://shop.example@evil.test", "https://shop.example"),
        ];
        for (site, origin) in of_one_owner {
            assert!(allows(site, origin), "{site} for {origin}");
        }
        for (site, origin) in of_two_owners {
            assert!(!allows(site, origin), "{site} for {origin}");
        }
    }

    #[test]
    fn plain_http_is_for_the_loopback_interface_and_for_what_is_stored_so() {
        for (site, origin, may) in [
            ("https://shop.example", "http://shop.example", false),
            ("shop.example", "http://shop.example", false),
            ("http://shop.example", "http://shop.example", true),
            ("http://shop.example", "http://www.shop.example", true),
            ("http://shop.example", "https://login.shop.example", true),
            ("http://shop.example", "http://login.shop.example", false),
            ("localhost", "http://localhost:8080", true),
            ("localhost", "http://a.localhost", false),
            ("a.localhost", "http://a.localhost", true),
            ("http://127.0.0.1", "http://127.0.0.1:99", true),
            ("127.0.0.1", "http://127.0.0.2", false),
            ("http://[::1]/", "http://[::1]:7", true),
            ("10.0.0.1", "http://10.0.0.1", false),
            ("localhost.evil.test", "http://localhost.evil.test", false),
        ] {
            assert_eq!(allows(site, origin), may, "{site} for {origin}");
        }
        for site in ["http://shop.example", "localhost"] {
            let sites = Sites::of_addresses([site]);
            assert!(
                !sites.allow("http://shop.example", Route::Proxied) && !sites.allow("http://localhost", Route::Proxied)
            );
        }
        assert!(Sites::of_domain("shop.example").allow("https://shop.example", Route::Proxied));
    }

    #[test]
    fn a_port_that_is_named_is_the_only_one() {
        for (site, origin, may) in [
            ("https://shop.example:8443/login", "https://shop.example:8443", true),
            ("https://shop.example:8443", "https://shop.example", false),
            ("shop.example:8443", "https://shop.example:8444", false),
            ("https://shop.example", "https://shop.example:8443", true),
            ("http://nas:5000", "http://nas:5000", true),
            ("http://nas:5000", "http://nas:5001", false),
        ] {
            assert_eq!(allows(site, origin), may, "{site} for {origin}");
        }
    }

    #[test]
    fn what_is_no_site_of_the_web_allows_nothing() {
        for site in ["", "https://", "ftp://shop.example", "androidapp://com.example", "\u{1b}[31mshop", "  "] {
            assert!(Sites::of_addresses([site]).is_empty(), "{site}");
        }
        assert!(!Sites::default().allow("https://shop.example", Route::Direct));
        for origin in [
            "null",
            "",
            "file:///etc/passwd",
            "about:blank",
            "data:text/html,x",
            "chrome://settings",
            "ws://shop.example",
        ] {
            assert!(!allows("shop.example", origin), "{origin}");
        }
    }
}
