//! HTTP heads and WebSocket frames as bytes, for tests that check or break the protocols. Failures panic.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Returns the value of a header in a head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// Reads up to the empty line, byte by byte, so that nothing after it is consumed.
pub async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let read = stream.read(&mut byte).await.expect("a connection");
        assert_eq!(read, 1, "the connection ended within a head: {:?}", String::from_utf8_lossy(&head));
        assert!(!byte[0].is_ascii_control() || b"\t\r\n".contains(&byte[0]), "a head is text: {byte:?}");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("a head is text")
}

/// Returns the bytes of a frame. `mask`: the masking key of a client's frame.
pub fn frame(fin: bool, opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut frame = frame_header(fin, opcode, payload.len() as u64, mask.is_some());
    match mask {
        Some(mask) => {
            frame.extend(mask);
            frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        }
        None => frame.extend(payload),
    }
    frame
}

/// Returns the header of a frame, without the masking key.
pub fn frame_header(fin: bool, opcode: u8, length: u64, masked: bool) -> Vec<u8> {
    let mut header = vec![if fin { 0x80 } else { 0 } | opcode];
    let mask = if masked { 0x80 } else { 0 };
    match length {
        0..=125 => header.push(mask | length as u8),
        126..=0xffff => {
            header.push(mask | 126);
            header.extend((length as u16).to_be_bytes());
        }
        _ => {
            header.push(mask | 127);
            header.extend(length.to_be_bytes());
        }
    }
    header
}

/// Reads a whole frame. Returns its opcode and its unmasked payload.
pub async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await.expect("a frame");
    let length = match head[1] & 0x7f {
        126 => u64::from(stream.read_u16().await.expect("a length")),
        127 => stream.read_u64().await.expect("a length"),
        short => u64::from(short),
    };
    let mut mask = [0; 4];
    if head[1] & 0x80 != 0 {
        stream.read_exact(&mut mask).await.expect("a mask");
    }
    let mut payload = vec![0; usize::try_from(length).expect("a payload that fits into memory")];
    stream.read_exact(&mut payload).await.expect("a payload");
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    (head[0] & 0x0f, payload)
}

/// Returns the payload of a close frame.
pub fn close_payload(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes(), reason.as_bytes()].concat()
}
