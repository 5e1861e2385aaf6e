//! Tests of the events that are rewritten.

use serde_json::{Value, json};

use super::*;
use crate::relay::files::download_events::unmarked;

const KINDS: [Kind; 2] = [Kind::Download, Kind::RequestHeaders];

fn frame(payload: &str) -> Vec<u8> {
    wire::encode(wire::TEXT, payload.as_bytes(), None).to_vec()
}

fn event(guid: &str) -> String {
    format!(r#"{{"method":"Browser.downloadProgress","params":{{"guid":"{guid}","state":"completed"}}}}"#)
}

/// Returns the payloads that a client gets if `bytes` arrive in chunks of `size`.
fn received(bytes: &[u8], size: usize) -> Vec<String> {
    let (mut buffer, mut forwarded) = (BytesMut::new(), BytesMut::new());
    let mut tracker = crate::relay::FrameTracker::new(u64::MAX);
    for chunk in bytes.chunks(size) {
        buffer.extend_from_slice(chunk);
        while !buffer.is_empty() {
            let taken = match cut(&buffer, tracker.rest_of_frame(&buffer), &KINDS) {
                Cut::Bytes(length) => buffer.split_to(length).freeze(),
                Cut::Event(kind) => take_event(&mut buffer, kind, FilesLocation::Session),
                Cut::Nothing => break,
            };
            assert!(!taken.is_empty());
            tracker.feed(&taken).expect("no limit");
            forwarded.extend_from_slice(&taken);
        }
    }
    assert!(buffer.is_empty() && tracker.between_frames());
    let mut payloads = Vec::new();
    while let Some(frame) = wire::decode(&mut forwarded, u64::MAX).expect("frames") {
        payloads.push(String::from_utf8_lossy(&frame.payload).into_owned());
    }
    payloads
}

#[test]
fn ids_of_download_events_are_marked_and_all_other_frames_pass_unchanged() {
    let other = format!(r#"{{"method":"Network.dataReceived","params":{{"x":"{}"}}}}"#, "x".repeat(70_000));
    let of_a_session = event("b").replace("}}", r#"},"sessionId":"S"}"#);
    let near = &event("c")[..event("c").len() - 1];
    let sent = [other.as_str(), &event("a"), "{}", "", &of_a_session, &event("d"), near];
    let all: Vec<u8> = sent.iter().flat_map(|payload| frame(payload)).collect();
    for size in [1, 2, 30, 1000, all.len()] {
        let got = received(&all, size);
        for (at, (sent, got)) in sent.iter().zip(&got).enumerate() {
            if [1, 5].contains(&at) {
                let (sent, got): (Value, Value) =
                    (serde_json::from_str(sent).expect("JSON"), serde_json::from_str(got).expect("JSON"));
                let guid = got["params"]["guid"].as_str().expect("a guid");
                assert_eq!(unmarked(guid).map(Value::from), Some(sent["params"]["guid"].clone()), "by {size}");
                assert_eq!((&got["params"]["state"], &got["method"]), (&json!("completed"), &sent["method"]));
            } else {
                assert!(sent == got, "frame {at}, by {size}");
            }
        }
        assert_eq!(got.len(), sent.len());
    }
}

#[test]
fn the_header_for_the_egress_proxy_is_named_as_the_server_gets_it() {
    let event = |header: &str, cookie: &str| {
        format!(
            r#"{{"method":"Network.requestWillBeSentExtraInfo","params":{{"requestId":"1","headers":{{"Host":"a.test","{header}":"keep-alive","Cookie":"{cookie}"}}}},"sessionId":"S"}}"#
        )
    };
    let quoted = r#"\"Proxy-Connection\":\"keep-alive\""#;
    let sent = [event("Proxy-Connection", quoted), event("Connection", quoted), event("Upgrade", ""), "{}".to_owned()];
    let all: Vec<u8> = sent.iter().flat_map(|payload| frame(payload)).collect();
    let expected = [event("Connection", quoted), sent[1].clone(), sent[2].clone(), sent[3].clone()];
    for size in [1, 30, all.len()] {
        assert_eq!(received(&all, size), expected, "by {size}");
    }
}
