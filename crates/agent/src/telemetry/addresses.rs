//! What is told of the addresses in an event: never the user and password in one, and without their queries and fragments if asked.

use std::borrow::Cow;

use serde_json::{Map, Value};

use casement_agent_protocol::telemetry::Addresses;

/// Fields that hold what a page or a server sent, or a picture: addresses in them are content.
const CONTENT: [&str; 3] = ["post_data", "body", "png"];
/// Headers whose values are addresses that need not begin with a scheme.
const ADDRESS_HEADERS: [&str; 8] =
    ["location", "content-location", "referer", "refresh", "link", "sourcemap", "x-sourcemap", ":path"];

/// Rewrites the addresses in all fields of an event.
pub(super) fn clean(data: &mut Map<String, Value>, reported: Addresses) {
    for (name, value) in data {
        match (name.as_str(), value) {
            (name, _) if CONTENT.contains(&name) => {}
            ("headers", Value::Object(headers)) => {
                for (name, value) in headers {
                    let alone = ADDRESS_HEADERS.iter().any(|header| name.eq_ignore_ascii_case(header));
                    clean_value(value, alone, reported);
                }
            }
            (name, value) => clean_value(value, is_address(name), reported),
        }
    }
}

fn clean_value(value: &mut Value, is_one: bool, reported: Addresses) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = if is_one { address(text, reported) } else { in_text(text, reported) } {
                *text = clean;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| clean_value(value, is_one, reported)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| clean_value(value, is_address(name), reported));
        }
        _ => {}
    }
}

/// Whether a field of this name holds nothing but an address.
fn is_address(name: &str) -> bool {
    name == "url" || name.ends_with("_url")
}

/// One address, or a header's value that is made of such.
pub(super) fn address(text: &str, reported: Addresses) -> Cow<'_, str> {
    let clean = in_text(text, Addresses::Full);
    // Without a scheme: `//user:password@host/`.
    let clean = match clean.strip_prefix("//").and_then(|rest| Some((rest, user_length(rest)?))) {
        Some((rest, user)) => Cow::Owned(format!("//{}", &rest[user..])),
        None => clean,
    };
    match reported {
        Addresses::Full => clean,
        Addresses::WithoutQuery => match clean.find(['?', '#']) {
            Some(end) => Cow::Owned(clean[..end].to_owned()),
            None => clean,
        },
    }
}

/// Every address in a text, known by its `://`.
pub(super) fn in_text(text: &str, reported: Addresses) -> Cow<'_, str> {
    const START: &str = "://";
    if !text.contains(START) {
        return text.into();
    }
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(START) {
        let (before, after) = rest.split_at(start + START.len());
        clean.push_str(before);
        let after = &after[user_length(after).unwrap_or(0)..];
        if reported == Addresses::Full {
            rest = after;
            continue;
        }
        // Some characters that end an address in a sentence may stand in a query: too much is cut rather than too little.
        let end =
            after.find(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '<' | '>' | '`'));
        let (one, behind) = after.split_at(end.unwrap_or(after.len()));
        let shown = &one[..one.find(['?', '#']).unwrap_or(one.len())];
        // An address inside of an address has a user of its own.
        let inner = shown.find(START);
        clean.push_str(&shown[..inner.unwrap_or(shown.len())]);
        rest = inner.map_or(behind, |inner| &after[inner..]);
    }
    clean.push_str(rest);
    if clean.len() == text.len() { text.into() } else { clean.into() }
}

/// How much of what follows the scheme names a user, with the `@` behind it.
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
    fn a_user_and_a_password_are_reported_of_no_address() {
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
    fn queries_and_fragments_are_left_out_if_requested_wherever_an_address_stands() {
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
    fn every_field_with_an_address_is_cleaned_and_content_is_not() {
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
