//! Removes users and passwords from the URLs in an event, and on request their queries and fragments.

use std::borrow::Cow;

use serde_json::{Map, Value};

use casement_agent_protocol::telemetry::Addresses;

/// The fields with the content of pages and servers, or a screenshot. URLs in them are content.
const CONTENT: [&str; 3] = ["post_data", "body", "png"];
/// The headers whose values are URLs, possibly without a scheme.
const ADDRESS_HEADERS: [&str; 8] =
    ["location", "content-location", "referer", "refresh", "link", "sourcemap", "x-sourcemap", ":path"];

/// Rewrites the URLs in all fields of an event.
pub(super) fn clean(data: &mut Map<String, Value>, shown: Addresses) {
    for (name, value) in data {
        match (name.as_str(), value) {
            (name, _) if CONTENT.contains(&name) => {}
            ("headers", Value::Object(headers)) => {
                for (name, value) in headers {
                    let alone = ADDRESS_HEADERS.iter().any(|header| name.eq_ignore_ascii_case(header));
                    clean_value(value, alone, shown);
                }
            }
            (name, value) => clean_value(value, is_address(name), shown),
        }
    }
}

fn clean_value(value: &mut Value, is_one: bool, shown: Addresses) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = if is_one { address(text, shown) } else { in_text(text, shown) } {
                *text = clean;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| clean_value(value, is_one, shown)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| clean_value(value, is_address(name), shown));
        }
        _ => {}
    }
}

/// Returns true if a field of this name holds one URL.
fn is_address(name: &str) -> bool {
    name == "url" || name.ends_with("_url")
}

/// Rewrites one URL, or a header's value of URLs.
pub(super) fn address(text: &str, shown: Addresses) -> Cow<'_, str> {
    let clean = in_text(text, Addresses::Full);
    // Without a scheme: `//user:password@host/`.
    let clean = match clean.strip_prefix("//").and_then(|rest| Some((rest, user_length(rest)?))) {
        Some((rest, user)) => Cow::Owned(format!("//{}", &rest[user..])),
        None => clean,
    };
    match shown {
        Addresses::Full => clean,
        Addresses::WithoutQuery => match clean.find(['?', '#']) {
            Some(end) => Cow::Owned(clean[..end].to_owned()),
            None => clean,
        },
    }
}

/// Rewrites all URLs in a text, which are recognized by `://`.
pub(super) fn in_text(text: &str, shown: Addresses) -> Cow<'_, str> {
    const START: &str = "://";
    if !text.contains(START) {
        return text.into();
    }
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(START) {
        let (before, after) = rest.split_at(start + START.len());
        clean.push_str(before);
        let after = &after[user_length(after).unwrap_or(0)..];
        if shown == Addresses::Full {
            rest = after;
            continue;
        }
        // Punctuation after a URL may be part of its query. It is removed too, so that no part of a query remains.
        let end =
            after.find(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '<' | '>' | '`'));
        let (one, behind) = after.split_at(end.unwrap_or(after.len()));
        let address = &one[..one.find(['?', '#']).unwrap_or(one.len())];
        // A URL inside a URL may have a user of its own.
        let inner = address.find(START);
        clean.push_str(&address[..inner.unwrap_or(address.len())]);
        rest = inner.map_or(behind, |inner| &after[inner..]);
    }
    clean.push_str(rest);
    if clean.len() == text.len() { text.into() } else { clean.into() }
}

/// Returns the length of the user with its `@` after the scheme.
fn user_length(after: &str) -> Option<usize> {
    let end = after
        .find(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '\\' | '?' | '#' | '"' | '<' | '>'))
        .unwrap_or(after.len());
    after[..end].rfind('@').map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn users_and_passwords_are_removed() {
        for (text, clean) in [
            ("https://user:pw@shop.test/a?b#c", "https://shop.test/a?b#c"),
            ("https://user:p@w@shop.test", "https://shop.test"),
            ("//user:pw@shop.test/a", "//shop.test/a"),
            ("https://shop.test/@name", "https://shop.test/@name"),
            ("view-source:http://u@x.test/", "view-source:http://x.test/"),
            ("https://x.test/?to=ftp://u:p@y.test/z", "https://x.test/?to=ftp://y.test/z"),
            ("see https://u:p@x.test/a, or http://v:q@y.test", "see https://x.test/a, or http://y.test"),
            ("mail me@x.test :// @", "mail me@x.test :// @"),
            ("", ""),
        ] {
            assert_eq!(address(text, Addresses::Full), clean);
        }
    }

    #[test]
    fn queries_and_fragments_are_removed_on_request() {
        for (text, clean) in [
            ("https://u:p@x.test/a?token=1#b", "https://x.test/a"),
            ("/a/b?token=1", "/a/b"),
            ("</a?token=1>; rel=next", "</a"),
            ("https://x.test/#access_token=1", "https://x.test/"),
            ("blob:https://x.test/1-2", "blob:https://x.test/1-2"),
        ] {
            assert_eq!(address(text, Addresses::WithoutQuery), clean);
        }
        for (text, clean) in [
            (
                "Failed: https://x.test/a?t=(1),[2] then \"http://y.test?z\"?",
                "Failed: https://x.test/a then \"http://y.test\"?",
            ),
            ("at f (https://x.test/a.js?v=1:2:3)\n  at g", "at f (https://x.test/a.js\n  at g"),
            ("https://x.test/r?to=https://u:p@y.test/?k=1 end", "https://x.test/r end"),
            ("why? because #1", "why? because #1"),
        ] {
            assert_eq!(in_text(text, Addresses::WithoutQuery), clean);
        }
    }

    #[test]
    fn all_fields_but_content_are_rewritten() {
        let data = json!({
            "url": "https://u:p@x.test/?a", "document_url": "https://x.test/?a", "redirect_url": "https://x.test/#a",
            "source_url": "https://x.test/s.js?a", "text": "went to https://x.test/?a", "args": ["https://x.test/?a", "b?"],
            "title": "x.test/?a https://x.test/?a",
            "stack_trace": { "callFrames": [{ "url": "https://x.test/s.js?a", "functionName": "f?" }],
                "parent": { "callFrames": [{ "url": "https://x.test/s.js?a" }] } },
            "lcp_details": { "url": "https://x.test/i.png?a" },
            "headers": { "Referer": "https://x.test/?a", "location": "/b?a", "Accept": "a?b", "X-From": "https://x.test/?a" },
            "body": "https://x.test/?a", "post_data": "https://x.test/?a", "status": 200,
        });
        let Value::Object(mut data) = data else { panic!() };
        clean(&mut data, Addresses::WithoutQuery);
        let frame = json!({ "url": "https://x.test/s.js", "functionName": "f?" });
        let expected = json!({
            "url": "https://x.test/", "document_url": "https://x.test/", "redirect_url": "https://x.test/",
            "source_url": "https://x.test/s.js", "text": "went to https://x.test/", "args": ["https://x.test/", "b?"],
            "title": "x.test/?a https://x.test/",
            "stack_trace": { "callFrames": [frame], "parent": { "callFrames": [{ "url": "https://x.test/s.js" }] } },
            "lcp_details": { "url": "https://x.test/i.png" },
            "headers": { "Referer": "https://x.test/", "location": "/b", "Accept": "a?b", "X-From": "https://x.test/" },
            "body": "https://x.test/?a", "post_data": "https://x.test/?a", "status": 200,
        });
        assert_eq!(Value::Object(data), expected);
    }
}
