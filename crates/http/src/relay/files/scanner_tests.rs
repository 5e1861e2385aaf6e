//! Tests of the search in a client's messages.

use super::*;

const WORD: &str = "DOM.setFileInputFiles";

/// Returns the forwarded bytes in order, and the messages that were found, if `bytes` arrive in chunks of `size`.
fn scanned(bytes: &[u8], size: usize) -> (Vec<u8>, Vec<String>) {
    let (mut scanner, mut parts) = (MessageScanner::new(&["other.word", WORD]), VecDeque::new());
    for chunk in bytes.chunks(size) {
        scanner.scan(Bytes::copy_from_slice(chunk), &mut parts);
    }
    let (mut all, mut found) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Part::Bytes(bytes) => all.extend_from_slice(&bytes),
            Part::Message(message) => {
                all.extend_from_slice(&message.raw);
                found.push(String::from_utf8(message.text).expect("a text"));
            }
        }
    }
    (all, found)
}

fn frame(fin: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 0, 255, payload.len().to_le_bytes()[0]];
    let mut bytes = wire::header(fin, opcode, payload.len() as u64, Some(mask)).to_vec();
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    wire::apply_mask(mask, &mut bytes[start..]);
    bytes
}

fn command(path: &str) -> String {
    format!(r#"{{"id":1,"method":"{WORD}","params":{{"files":["{path}"]}}}}"#)
}

#[test]
fn messages_with_a_word_are_found_for_any_chunk_size_and_all_bytes_keep_their_order() {
    let (short, long) = (command("/tmp/a"), command(&"x".repeat(60_000)));
    let (first, second) = short.as_bytes().split_at(20);
    let all = [
        frame(true, wire::TEXT, b"{}"),
        frame(true, wire::TEXT, short.as_bytes()),
        frame(true, wire::PING, WORD.as_bytes()),
        frame(true, wire::BINARY, WORD.as_bytes()),
        frame(false, wire::BINARY, b""),
        frame(true, wire::CONTINUATION, WORD.as_bytes()),
        frame(false, wire::TEXT, first),
        frame(false, wire::CONTINUATION, b""),
        frame(true, wire::CONTINUATION, second),
        frame(true, wire::TEXT, long.as_bytes()),
        frame(true, wire::TEXT, b""),
    ]
    .concat();
    for size in [1, 2, 3, 7, 64, 1000, 65_536, all.len()] {
        let (bytes, found) = scanned(&all, size);
        assert!(bytes == all, "the bytes changed, by {size}");
        assert!(found == [short.clone(), short.clone(), long.clone()], "by {size}");
    }
}

#[test]
fn long_messages_and_many_fragments_pass_without_being_held() {
    let limit = usize::try_from(MAX_MESSAGE_BYTES).expect("a size");
    let long = command(&"x".repeat(limit));
    let (first, second) = long.as_bytes().split_at(limit - 10);
    let mut many = frame(false, wire::TEXT, WORD.as_bytes());
    for _ in 0..MAX_FRAMES {
        many.extend(frame(false, wire::CONTINUATION, b"x"));
    }
    let cases = [
        frame(true, wire::TEXT, long.as_bytes()),
        [frame(false, wire::TEXT, first), frame(true, wire::CONTINUATION, second)].concat(),
        many,
    ];
    for case in cases {
        for size in [1000, case.len()] {
            // Without its last byte, a message that is held would be missing.
            let (bytes, found) = scanned(&case[..case.len() - 1], size);
            assert!(bytes == case[..case.len() - 1] && found.is_empty(), "by {size}");
        }
    }
}

#[test]
fn a_control_frame_within_a_message_passes_it_and_the_next_message_is_searched() {
    let short = command("/tmp/a");
    let (first, second) = short.as_bytes().split_at(50);
    let all = [
        frame(false, wire::TEXT, first),
        frame(true, wire::PING, b"still there?"),
        frame(false, wire::CONTINUATION, second),
        frame(true, wire::PING, b""),
        frame(true, wire::CONTINUATION, b""),
        frame(true, wire::TEXT, short.as_bytes()),
    ]
    .concat();
    for size in [1, 5, all.len()] {
        assert_eq!(scanned(&all, size), (all.clone(), vec![short.clone()]), "by {size}");
    }
}

#[test]
fn broken_frames_pass_as_they_are() {
    for bytes in [
        vec![0x81, 1, b'x'],
        frame(true, wire::CONTINUATION, b"of nothing"),
        [frame(false, wire::TEXT, b"x"), frame(true, wire::TEXT, b"within")].concat(),
        frame(true, 3, b"a reserved opcode"),
        wire::header(true, wire::TEXT, u64::MAX, Some([1; 4])).to_vec(),
    ] {
        for size in [1, bytes.len()] {
            assert_eq!(scanned(&bytes, size), (bytes.clone(), vec![]));
        }
    }
}

#[test]
fn a_replacement_is_one_frame_with_the_mask_of_the_message() {
    let mut parts = VecDeque::new();
    MessageScanner::new(&[WORD]).scan(frame(true, wire::TEXT, command("/a").as_bytes()).into(), &mut parts);
    let Some(Part::Message(message)) = parts.pop_front() else { panic!("a message") };
    let replaced = message.replaced_by("{}");
    let (sent, made) = (Header::first(&message.raw).expect("a header"), Header::first(&replaced).expect("a header"));
    assert_eq!(sent.0.mask, made.0.mask);
    let frame = wire::decode(&mut BytesMut::from(&replaced[..]), 100).expect("a frame").expect("whole");
    assert_eq!((&frame.payload[..], frame.opcode, frame.fin), (&b"{}"[..], wire::TEXT, true));
}
