//! All cookies of the browser, read and replaced.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cdp::{Cdp, CdpError};
use casement_agent_protocol::browser_state::{Cookie, CookiePartition};

/// The timeout of a call. A browser with thousands of cookies needs half a second.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of cookies that are set by one call.
const MAX_BATCH: usize = 500;

/// A cookie of the debugging protocol.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCookie {
    name: String,
    value: String,
    domain: String,
    path: String,
    #[serde(default)]
    expires: f64,
    #[serde(default)]
    http_only: bool,
    #[serde(default)]
    secure: bool,
    #[serde(default)]
    session: bool,
    same_site: Option<String>,
    priority: Option<String>,
    source_scheme: Option<String>,
    source_port: Option<i32>,
    partition_key: Option<WirePartition>,
    #[serde(default)]
    partition_key_opaque: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePartition {
    top_level_site: String,
    has_cross_site_ancestor: bool,
}

/// Returns all cookies of the default context, and the number of those that exist in this browser only.
pub(super) async fn read(cdp: &Cdp) -> Result<(Vec<Cookie>, u32), CdpError> {
    let mut reply = cdp.call(None, "Storage.getCookies", json!({}), CALL_TIMEOUT).await?;
    let mut left_out = 0;
    let mut cookies = Vec::new();
    for cookie in reply["cookies"].as_array_mut().map(std::mem::take).unwrap_or_default() {
        match from_wire(cookie) {
            Some(cookie) => cookies.push(cookie),
            None => left_out += 1,
        }
    }
    Ok((cookies, left_out))
}

/// Replaces all cookies. Returns the number of refused ones.
pub(super) async fn replace(cdp: &Cdp, cookies: &[Cookie]) -> Result<u32, CdpError> {
    cdp.call(None, "Storage.clearCookies", json!({}), CALL_TIMEOUT).await?;
    let mut refused = 0;
    let mut batches: Vec<&[Cookie]> = cookies.chunks(MAX_BATCH).rev().collect();
    while let Some(batch) = batches.pop() {
        match set(cdp, batch, true).await {
            Ok(()) => {}
            // One cookie that is not allowed makes the browser refuse all of a call.
            Err(CdpError::Refused { .. }) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                batches.extend([second, first]);
            }
            // A page of http://localhost may set a secure cookie, but the protocol does not accept that source.
            Err(CdpError::Refused { .. }) => match set(cdp, batch, false).await {
                Err(CdpError::Refused { .. }) => refused += 1,
                other => other?,
            },
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

async fn set(cdp: &Cdp, cookies: &[Cookie], with_source: bool) -> Result<(), CdpError> {
    let cookies: Vec<Value> = cookies.iter().map(|cookie| to_wire(cookie, with_source)).collect();
    cdp.call(None, "Storage.setCookies", json!({ "cookies": cookies }), CALL_TIMEOUT).await.map(drop)
}

fn from_wire(cookie: Value) -> Option<Cookie> {
    // Browsers before 2024 describe a partition incompletely, as a text.
    let cookie: WireCookie = serde_json::from_value(cookie).ok()?;
    if cookie.partition_key_opaque {
        return None;
    }
    Some(Cookie {
        name: cookie.name,
        value: cookie.value,
        domain: cookie.domain,
        path: cookie.path,
        expires: (!cookie.session && cookie.expires >= 0.0).then_some(cookie.expires),
        http_only: cookie.http_only,
        secure: cookie.secure,
        same_site: cookie.same_site,
        priority: cookie.priority,
        source_scheme: cookie.source_scheme,
        source_port: cookie.source_port,
        partition: cookie.partition_key.map(|key| CookiePartition {
            top_level_site: key.top_level_site,
            has_cross_site_ancestor: key.has_cross_site_ancestor,
        }),
    })
}

fn to_wire(cookie: &Cookie, with_source: bool) -> Value {
    // Without a leading dot the domain makes a cookie of this host only.
    let mut wire = json!({
        "name": cookie.name, "value": cookie.value, "domain": cookie.domain, "path": cookie.path,
        "httpOnly": cookie.http_only, "secure": cookie.secure,
    });
    let mut add = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            wire[key] = value;
        }
    };
    add("expires", cookie.expires.map(Value::from));
    add("sameSite", cookie.same_site.clone().map(Value::from));
    add("priority", cookie.priority.clone().map(Value::from));
    add(
        "partitionKey",
        cookie.partition.as_ref().map(|partition| {
            json!({
                "topLevelSite": partition.top_level_site, "hasCrossSiteAncestor": partition.has_cross_site_ancestor,
            })
        }),
    );
    if with_source {
        add("sourceScheme", cookie.source_scheme.clone().map(Value::from));
        add("sourcePort", cookie.source_port.map(Value::from));
    }
    wire
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_keeps_its_properties() {
        let wire = json!({
            "name": "a", "value": "b", "domain": ".a.test", "path": "/x", "expires": 1.5e9, "size": 2, "httpOnly": true,
            "secure": true, "session": false, "sameSite": "None", "priority": "High", "sourceScheme": "Secure",
            "sourcePort": 8443, "partitionKey": { "topLevelSite": "https://b.test", "hasCrossSiteAncestor": true },
        });
        let cookie = from_wire(wire.clone()).unwrap();
        let mut expected = wire;
        for only_read in ["size", "session"] {
            expected.as_object_mut().unwrap().remove(only_read);
        }
        assert_eq!(to_wire(&cookie, true), expected);
    }

    #[test]
    fn a_session_cookie_has_no_expiry_and_an_opaque_partition_no_copy() {
        let wire = json!({ "name": "a", "value": "", "domain": "a.test", "path": "/", "expires": -1, "session": true });
        assert_eq!(from_wire(wire.clone()).unwrap().expires, None);
        let with = |key: &str, value: Value| {
            let mut wire = wire.clone();
            wire[key] = value;
            from_wire(wire)
        };
        assert_eq!(with("partitionKeyOpaque", json!(true)), None);
        assert_eq!(with("partitionKey", json!("https://b.test")), None);
    }
}
