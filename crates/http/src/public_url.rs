//! The URL by which callers reach the server, with which URLs in responses begin.

use actix_web::{
    dev::ServiceRequest,
    http::{
        header::{self, HeaderMap, HeaderName},
        uri::Authority,
    },
};
use url::Url;

use crate::{audit::TrustedProxies, host::Hosts};

static FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-proto");

tokio::task_local! {
    static OF_REQUEST: Url;
}

/// The URL by which callers reach the server.
pub(crate) struct PublicUrl {
    configured: Url,
    /// True if nobody has stated the URL, and the server listens on all addresses: then it is the one of each request.
    follows_requests: bool,
}

impl PublicUrl {
    pub(crate) fn new(configured: Url, follows_requests: bool) -> Self {
        Self { configured, follows_requests }
    }

    /// Returns the URL of the request that this task serves. Outside of requests, the one of the server's configuration.
    pub(crate) fn get(&self) -> Url {
        of_request().unwrap_or_else(|| self.configured.clone())
    }

    /// Returns whether clients reach the server over HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.configured.scheme() == "https"
    }

    /// Returns the URL by which this request reached the server, if URLs in its response begin with it.
    pub(crate) fn of(&self, request: &ServiceRequest, hosts: &Hosts, proxies: &TrustedProxies) -> Option<Url> {
        if !self.follows_requests {
            return None;
        }
        let is_proxied = request.peer_addr().is_some_and(|peer| proxies.contains(peer.ip().to_canonical()));
        let authority = request.head().uri.authority().map(Authority::to_string);
        self.of_headers(request.headers(), authority, hosts, is_proxied)
    }

    fn of_headers(
        &self,
        headers: &HeaderMap,
        authority: Option<String>,
        hosts: &Hosts,
        is_proxied: bool,
    ) -> Option<Url> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let forwarded = |name: &HeaderName| text(name).filter(|_| is_proxied);
        let scheme = forwarded(&FORWARDED_SCHEME).filter(|scheme| ["http", "https"].contains(&scheme.as_str()));
        let host = forwarded(&FORWARDED_HOST)
            .or_else(|| authority.or_else(|| text(&header::HOST)).filter(|host| hosts.accepts(host)))?;
        let scheme = scheme.as_deref().unwrap_or(self.configured.scheme());
        let url = Url::parse(&format!("{scheme}://{host}/")).ok()?;
        let is_only_a_host = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        is_only_a_host.then_some(url)
    }
}

/// Returns the URL of the request that this task serves, for the parts of its response that are made later.
pub(crate) fn of_request() -> Option<Url> {
    OF_REQUEST.try_with(Url::clone).ok()
}

/// Runs what serves a request, of which the URLs begin with `url`, if one is given.
pub(crate) async fn scope<T>(url: Option<Url>, served: impl Future<Output = T>) -> T {
    match url {
        Some(url) => OF_REQUEST.scope(url, served).await,
        None => served.await,
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn url_of(sent: &[(HeaderName, &str)], is_proxied: bool) -> Option<String> {
        let public: Url = "http://127.0.0.1:8080".parse().expect("a URL");
        let local = "0.0.0.0:8080".parse().expect("an address");
        let hosts = Hosts::new(&public, local, &["farm.example".to_owned()]);
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name.clone(), HeaderValue::from_str(value).expect("a value"));
        }
        let url = PublicUrl::new(public, true).of_headers(&headers, None, &hosts, is_proxied);
        url.map(|url| url.to_string())
    }

    #[test]
    fn the_url_is_that_of_the_accepted_host_of_the_request() {
        let of = |host| url_of(&[(header::HOST, host)], false);
        assert_eq!(of("192.0.2.7:8080").as_deref(), Some("http://192.0.2.7:8080/"));
        assert_eq!(of("farm.example:9000").as_deref(), Some("http://farm.example:9000/"));
        assert_eq!(of("elsewhere.example:8080"), None);
    }

    #[tokio::test]
    async fn a_part_of_a_response_that_is_made_later_begins_with_the_same_url() {
        let (configured, of_caller): (Url, Url) =
            ("http://127.0.0.1:8080".parse().expect("a URL"), "http://192.0.2.7:8080".parse().expect("a URL"));
        let public = PublicUrl::new(configured.clone(), true);
        let later = scope(Some(of_caller.clone()), async { of_request() }).await;
        assert_eq!(public.get(), configured, "outside of the request");
        assert_eq!(scope(later, async { public.get() }).await, of_caller);
    }

    #[test]
    fn only_a_trusted_proxy_states_another_host_or_scheme() {
        let sent = [
            (header::HOST, "192.0.2.7:8080"),
            (FORWARDED_HOST.clone(), "browsers.example"),
            (FORWARDED_SCHEME.clone(), "https"),
        ];
        assert_eq!(url_of(&sent, true).as_deref(), Some("https://browsers.example/"));
        assert_eq!(url_of(&sent, false).as_deref(), Some("http://192.0.2.7:8080/"));
        for hostile in ["a/b", "user@a", "a?b", "a b", "a, b"] {
            assert_eq!(url_of(&[(FORWARDED_HOST.clone(), hostile)], true), None, "{hostile}");
        }
    }
}
