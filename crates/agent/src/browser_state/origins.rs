//! The origins whose storage is read: those that the browser lists, or else those that are likely to have one.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::pages::{Document, Pages};
use crate::cdp::{Cdp, CdpError, text};
use casement_agent_protocol::browser_state::Cookie;

/// The timeouts of a call, and of the browser's list, in which it counts what each site stores.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const LIST_TIMEOUT: Duration = Duration::from_secs(20);
/// The timeout of a page that others have opened, and that may be blocked.
const PRESENT_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of listed origins, open pages, and hosts of cookies.
const MAX_LISTED: usize = 5_000;
const MAX_PAGES: usize = 50;
const MAX_HOSTS: usize = 300;
/// The longest origin: a host has at most 253 characters.
const MAX_ORIGIN: usize = 300;

/// The page that lists what each site stores, and the script that reads its list. Sites without storage, and storage of
/// third parties in a partition of another site, are not listed.
const LIST_PAGE: &str = "chrome://settings/content/all";
const LIST_SCRIPT: &str = "(async () => {
    const { sendWithPromise, addWebUiListener } = await import('chrome://resources/js/cr.js');
    const listed = new Promise(done => addWebUiListener('onStorageListFetched', done));
    await sendWithPromise('getAllSites');
    const origins = (await listed).flatMap(site => site.origins);
    return origins.filter(one => one.usage > 0 && !one.isPartitioned).map(one => one.origin);
})()";

/// Returns an origin of http or https as pages see it, without a path; `None` for everything else.
pub(super) fn normalized(origin: &str) -> Option<String> {
    let origin = origin.strip_suffix('/').unwrap_or(origin).to_ascii_lowercase();
    let (scheme, authority) = origin.split_once("://").filter(|_| origin.len() <= MAX_ORIGIN)?;
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    if !is_name && !is_address {
        return None;
    }
    match port {
        None => Some(origin),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse::<u16>().ok()? {
            0 => None,
            port if port == default_port => Some(format!("{scheme}://{host}")),
            port => Some(format!("{scheme}://{host}:{port}")),
        },
        Some(_) => None,
    }
}

/// Returns the origin of a URL of http or https.
fn of_url(url: &str) -> Option<String> {
    let after_scheme = url.find("://")? + 3;
    let end = url[after_scheme..].find(['/', '?', '#']).map_or(url.len(), |length| after_scheme + length);
    normalized(&url[..end])
}

/// Returns the origins that store something, as the browser's own settings list them. What a page has stored is listed some
/// seconds later.
///
/// # Errors
/// [`CdpError`], also if this browser has no such page: another product, or one whose policy blocks it.
pub(super) async fn listed(pages: &Pages) -> Result<Vec<String>, CdpError> {
    // The page does not load in a hidden target.
    let page = pages.open_tab().await?;
    let origins = read_list(&pages.cdp, &page.session).await;
    pages.close(&page).await;
    origins
}

async fn read_list(cdp: &Cdp, session: &str) -> Result<Vec<String>, CdpError> {
    let refused = |message: &str| CdpError::Refused { method: "getAllSites", message: message.to_owned() };
    let opened = cdp.call(Some(session), "Page.navigate", json!({ "url": LIST_PAGE }), CALL_TIMEOUT).await?;
    if let Some(error) = opened["errorText"].as_str().filter(|error| !error.is_empty()) {
        return Err(refused(error));
    }
    let script = json!({ "expression": LIST_SCRIPT, "awaitPromise": true, "returnByValue": true });
    let reply = cdp.call(Some(session), "Runtime.evaluate", script, LIST_TIMEOUT).await?;
    let listed = reply["result"]["value"].as_array().ok_or_else(|| refused("no list"))?;
    Ok(listed.iter().filter_map(|origin| normalized(text(origin))).take(MAX_LISTED).collect())
}

/// Returns the origins that are likely to store something: those in the histories of the open pages, and the hosts of
/// the cookies.
pub(super) async fn likely(cdp: &Cdp, cookies: &[Cookie]) -> Result<Vec<String>, CdpError> {
    let open = open_pages(cdp).await?;
    let histories = join_all(open.iter().map(|info| history(cdp, info))).await;
    let hosts = cookies.iter().filter_map(|cookie| {
        let host = cookie.domain.strip_prefix('.').unwrap_or(&cookie.domain);
        normalized(&format!("https://{host}"))
    });
    let mut seen = HashSet::new();
    let hosts = hosts.filter(|origin| seen.insert(origin.clone())).take(MAX_HOSTS);
    Ok(histories.into_iter().flatten().chain(hosts).collect())
}

/// Returns the documents of the open pages, each with its origin, which the page may have left meanwhile.
pub(super) async fn present(pages: &Pages) -> Result<Vec<(String, Document<'_>)>, CdpError> {
    let open = open_pages(&pages.cdp).await?;
    let documents = open.iter().map(async |info| {
        let origin = of_url(text(&info["url"]))?;
        let document = timeout(PRESENT_TIMEOUT, pages.present(text(&info["targetId"]))).await.ok()?;
        document.ok().map(|document| (origin, document))
    });
    Ok(join_all(documents).await.into_iter().flatten().collect())
}

async fn open_pages(cdp: &Cdp) -> Result<Vec<Value>, CdpError> {
    let mut reply = cdp.call(None, "Target.getTargets", json!({}), CALL_TIMEOUT).await?;
    let targets = match reply["targetInfos"].take() {
        Value::Array(targets) => targets,
        _ => Vec::new(),
    };
    Ok(targets.into_iter().filter(|info| info["type"] == "page").take(MAX_PAGES).collect())
}

/// Returns the origins of the documents that a page has shown. A page that does not answer has its current one.
async fn history(cdp: &Cdp, info: &Value) -> Vec<String> {
    let mut urls = vec![text(&info["url"]).to_owned()];
    let entries = async {
        let session = cdp.attach(text(&info["targetId"]), CALL_TIMEOUT).await?;
        let reply = cdp.call(Some(&session), "Page.getNavigationHistory", json!({}), CALL_TIMEOUT).await;
        cdp.send(None, "Target.detachFromTarget", json!({ "sessionId": session })).await?;
        reply
    };
    if let Ok(reply) = entries.await {
        let entries = reply["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        urls.extend(entries.iter().map(|entry| text(&entry["url"]).to_owned()));
    }
    urls.iter().filter_map(|url| of_url(url)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_origins_of_http_and_https_are_taken() {
        for (given, origin) in [
            ("https://Example.com/", "https://example.com"),
            ("https://example.com:443", "https://example.com"),
            ("http://example.com:443", "http://example.com:443"),
            ("http://localhost:080", "http://localhost"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]"),
            ("http://under_score.test", "http://under_score.test"),
        ] {
            assert_eq!(normalized(given).as_deref(), Some(origin), "{given}");
        }
        let long = format!("https://{}.test", "x".repeat(MAX_ORIGIN));
        for refused in [
            "",
            "https://",
            "example.com",
            "file:///etc/passwd",
            "chrome://settings",
            "javascript://a",
            "ftp://a.test",
            "https://a.test/path",
            "https://a.test?x",
            "https://user@a.test",
            "https://a.test:port",
            "https://a.test:0",
            "https://a.test:70000",
            "https://a.test:",
            "https://a b",
            "https://bücher.example",
            "https://[::g]",
            "http://[]",
            &long,
        ] {
            assert_eq!(normalized(refused), None, "{refused}");
        }
    }

    #[test]
    fn the_origin_of_a_url_ends_before_its_path() {
        for url in
            ["https://a.test:8443/x:y/", "https://a.test:8443?q=/", "https://a.test:8443#f", "https://a.test:8443"]
        {
            assert_eq!(of_url(url).as_deref(), Some("https://a.test:8443"), "{url}");
        }
        assert_eq!(of_url("about:blank"), None);
        assert_eq!(of_url("chrome-error://chromewebdata/"), None);
    }
}
