//! The bounds of requests in the OpenAPI document: the server accepts nothing outside of them, and, except for what is
//! listed, everything inside.

mod calls;
mod document;
mod edges;

use std::collections::BTreeMap;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use self::{
    calls::{refusal, send, start},
    document::{Place, places},
    edges::Edges,
};
use super::support::TestApi;

/// The operations that a request alone does not reach, with the reason.
const LEFT_OUT: [(&str, &str); 3] = [
    ("connect_browser", "reads the parameters of get_connect_version, after a handshake of WebSocket"),
    ("connect_webdriver", "reads the parameters of get_connect_version, after a handshake of WebSocket"),
    ("submit_auth_connection", "compares the values with those that the login waits for"),
];
/// The ends of places whose texts have another form than a row of letters: host names, base 32, JSON …
const OTHER_TEXTS: [&str; 14] = [
    "_destination bucket",
    "allowed_hosts[]",
    "private_hosts[]",
    "hosts[]",
    "write_process_stdin data_b64",
    "_credential totp_secret",
    "create_deployment entrypoint_rel_path",
    "create_deployment source.entrypoint",
    "create_deployment source.url",
    "extension_from_web_store url",
    "create_invocation payload",
    "update_invocation output",
    "policy.statements[].resource",
    // An empty code is for a reset only.
    "evaluate_code code",
];
/// Fields that an operation knows only to refuse them, with all that they hold.
const NEVER_ACCEPTED: [(&str, &str); 2] =
    [("create_pool", "expected_network"), ("update_browser", "network.proxy_routes")];
/// A text that must be JSON; its pattern says what every text of a query has in common.
const JSON_IN_A_QUERY: &str = "get_connect_version launch";

/// Returns the bounded values that a request reaches.
fn reached() -> Vec<Place> {
    let is_left_out = |place: &Place| LEFT_OUT.iter().any(|(operation, _)| *operation == place.operation);
    let is_refused = |place: &Place| {
        let is_in =
            |(operation, field): &(&str, &str)| place.operation == *operation && place.field("[0]").starts_with(field);
        NEVER_ACCEPTED.iter().any(is_in)
    };
    places().into_iter().filter(|place| !is_left_out(place) && !is_refused(place)).collect()
}

/// Returns the edges of each pattern.
fn edges_by_pattern(places: &[Place]) -> BTreeMap<String, Edges> {
    let mut known = BTreeMap::new();
    for edges in edges::all() {
        let place = places.iter().find(|place| place.to_string() == edges.of && place.pattern().is_some());
        let place = place.unwrap_or_else(|| panic!("there is no pattern at {}", edges.of));
        let of = edges.of;
        let before = known.insert(place.pattern().unwrap().to_owned(), edges);
        assert!(before.is_none(), "the pattern of {of} has edges twice");
    }
    known
}

#[test]
fn every_pattern_of_the_document_has_edges() {
    let places = places();
    let known = edges_by_pattern(&places);
    let missing = places.iter().filter(|place| place.pattern().is_some_and(|pattern| !known.contains_key(pattern)));
    assert_eq!(missing.map(|place| format!("{place}: {}", place.schema["pattern"])).collect::<Vec<_>>(), [""; 0]);
    for edges in known.values() {
        assert!(!edges.inside.is_empty() && !edges.outside.is_empty(), "{}", edges.of);
    }
}

/// Sends a value, and writes down whether the server refuses it if that is not expected.
async fn check(api: &TestApi, place: &Place, value: Value, is_refused: bool, wrong: &mut Vec<String>) {
    let shown: String = value.to_string().chars().take(80).collect();
    let reply = send(api, place, value).await;
    let refusal = refusal(place, &reply);
    // The installation of the test does not have everything that the document describes.
    // An offset of events is a position that only the server knows.
    if !is_refused && refusal.is_some() && ["not_supported", "invalid_cursor"].contains(&&*reply.code()) {
        return;
    }
    if refusal.is_some() != is_refused {
        let body: String = reply.text().chars().take(300).collect();
        wrong.push(format!("{place} {shown}: {refusal:?} {} {body}", reply.status));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_accepts_and_refuses_what_lies_at_the_edges_of_each_pattern() {
    let (api, places, mut wrong) = (start(), reached(), Vec::new());
    let known = edges_by_pattern(&places);
    let is_read_as_text = |place: &&Place| place.pattern().is_some() && place.to_string() != JSON_IN_A_QUERY;
    for place in places.iter().filter(is_read_as_text) {
        let [inside, outside, refused] = known[place.pattern().unwrap()].texts(place);
        for (texts, matches, is_refused) in [(inside, true, false), (outside, false, true), (refused, true, true)] {
            for text in texts.into_iter().filter(|text| place.has_room_for(text)) {
                if place.accepts(&text) != matches {
                    wrong.push(format!("{place} {text:?} matches: {}", !matches));
                }
                check(&api, place, text.into(), is_refused, &mut wrong).await;
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The format is a description in OpenAPI 3.1, not a bound: a date without a time is accepted too.
#[tokio::test(flavor = "multi_thread")]
async fn every_moment_of_the_format_date_time_is_accepted() {
    let (api, mut wrong) = (start(), Vec::new());
    let moments = [
        "2027-01-31T00:00:00Z",
        "2028-02-29t23:59:59z",
        "2027-12-31T23:59:59.123456789Z",
        "2027-06-30T12:00:00+14:00",
        "2027-06-30T12:00:00.1-12:30",
        "2028-12-31T23:59:60Z",
    ];
    for place in reached().iter().filter(|place| place.schema["format"] == "date-time") {
        for moment in moments.into_iter().chain(["2027-01-31", "2027-01-31T00:00:00"]) {
            check(&api, place, moment.into(), false, &mut wrong).await;
        }
        for other in ["now", "2027-02-29T00:00:00Z", "2027-01-31T24:00:00Z", "2027-01-31T00:00Z", "1763942400"] {
            check(&api, place, other.into(), true, &mut wrong).await;
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_end_where_the_document_says() {
    let (api, mut wrong) = (start(), Vec::new());
    for place in reached() {
        for (bound, beyond) in [("minimum", -1), ("maximum", 1)] {
            let Some(last) = place.bound(bound) else { continue };
            check(&api, &place, last.into(), false, &mut wrong).await;
            check(&api, &place, (last + beyond).into(), true, &mut wrong).await;
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_words_are_accepted() {
    let (api, mut wrong) = (start(), Vec::new());
    for place in reached() {
        let Some(words) = place.schema["enum"].as_array() else { continue };
        for word in words.iter().filter(|word| !word.is_null()) {
            check(&api, &place, word.clone(), false, &mut wrong).await;
            let other = word.as_str().map_or(json!(true), |word| word.to_uppercase().into());
            if !words.contains(&other) {
                check(&api, &place, other, true, &mut wrong).await;
            }
        }
        for other in ["", " ", "x"].map(Value::from) {
            if !words.contains(&other) {
                check(&api, &place, other, true, &mut wrong).await;
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns a text of so many characters that matches the pattern of a place.
fn text_of(place: &Place, length: usize) -> String {
    let start = match place.pattern() {
        Some(_) => ["", "/", "a:", "https://a.example/", "https://d1.example/"].into_iter().find(|start| {
            length < start.len() || place.accepts(&format!("{start}{}", "a".repeat(8.min(length - start.len()))))
        }),
        None => Some(""),
    };
    let start = start.unwrap_or("").get(..length).unwrap_or(start.unwrap_or(""));
    format!("{start}{}", "a".repeat(length - start.len()))
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_lists_and_maps_end_where_the_document_says() {
    let (api, mut wrong) = (start(), Vec::new());
    for place in reached() {
        for (bound, beyond) in [("minLength", -1), ("maxLength", 1)] {
            let Some(last) = place.bound(bound) else { continue };
            if !OTHER_TEXTS.iter().any(|end| place.to_string().ends_with(end)) {
                let text = text_of(&place, usize::try_from(last).unwrap());
                check(&api, &place, text.into(), false, &mut wrong).await;
            }
            if last + beyond >= 0 {
                let text = text_of(&place, usize::try_from(last + beyond).unwrap());
                check(&api, &place, text.into(), true, &mut wrong).await;
            }
        }
        for (bound, beyond) in [("minItems", -1), ("maxItems", 1)] {
            let Some(last) = place.bound(bound).filter(|last| last + beyond >= 0) else { continue };
            let items = vec![json!("a"); usize::try_from(last + beyond).unwrap()];
            check(&api, &place, items.into(), true, &mut wrong).await;
        }
        if let Some(last) = place.bound("maxProperties") {
            let members = (0..=last).map(|n| (format!("k{n}"), json!("x")));
            check(&api, &place, Value::Object(members.collect()), true, &mut wrong).await;
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
