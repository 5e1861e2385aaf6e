//! The streamed response of a finished program, whose output may be long.

use actix_web::web::Bytes;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::{
    process::ExecutionResult,
    session_operation::{ByteStream, OperationError},
};
use futures_util::{Stream, StreamExt as _, stream};

/// The state of the response while it is written.
struct ResponseWriter {
    output: ByteStream,
    /// The received bytes that are not encoded yet.
    received: Bytes,
    /// The number of bytes of the current output that are not encoded yet.
    remaining_bytes: u64,
    /// The segments that follow the current output, in reverse order.
    segments: Vec<Segment>,
    /// Up to two bytes that do not fill a group of three yet.
    pending: Vec<u8>,
}

enum Segment {
    Text(String),
    Output(u64),
}

/// Streams the JSON of `result`.
pub(super) fn json(result: ExecutionResult) -> impl Stream<Item = Result<Bytes, OperationError>> {
    let ExecutionResult { exit_code, duration_ms, stdout_bytes, stderr_bytes, stdout_dropped, stderr_dropped, output } =
        result;
    let mut end = "\"".to_owned();
    for (name, dropped) in [("stdout_dropped_bytes", stdout_dropped), ("stderr_dropped_bytes", stderr_dropped)] {
        if dropped > 0 {
            end += &format!(",\"{name}\":{dropped}");
        }
    }
    // In reverse order, because segments are popped from the end.
    let segments = vec![
        Segment::Text(end + "}"),
        Segment::Output(stderr_bytes),
        Segment::Text("\",\"stderr_b64\":\"".to_owned()),
        Segment::Output(stdout_bytes),
        Segment::Text(format!("{{\"exit_code\":{exit_code},\"duration_ms\":{duration_ms},\"stdout_b64\":\"")),
    ];
    let writer = ResponseWriter { output, received: Bytes::new(), remaining_bytes: 0, segments, pending: Vec::new() };
    stream::try_unfold(
        writer,
        |mut writer| async move { Ok(writer.next().await?.map(|part| (Bytes::from(part), writer))) },
    )
}

impl ResponseWriter {
    async fn next(&mut self) -> Result<Option<String>, OperationError> {
        while self.remaining_bytes == 0 {
            match self.segments.pop() {
                None => return Ok(None),
                Some(Segment::Text(text)) => return Ok(Some(text)),
                Some(Segment::Output(bytes)) => self.remaining_bytes = bytes,
            }
        }
        while self.received.is_empty() {
            let broken = || OperationError::Failed("the output was interrupted".to_owned());
            self.received = self.output.next().await.ok_or_else(broken)??;
        }
        let length = self.received.len().min(usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX));
        self.pending.extend_from_slice(&self.received.split_to(length));
        self.remaining_bytes -= length as u64;
        // Only the end of an output may have padding.
        let whole = if self.remaining_bytes == 0 { self.pending.len() } else { self.pending.len() / 3 * 3 };
        let rest = self.pending.split_off(whole);
        let text = STANDARD.encode(std::mem::replace(&mut self.pending, rest));
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    async fn response_of(stdout: &[u8], stderr: &[u8], cut: usize, dropped: u64) -> Value {
        let all: Vec<u8> = [stdout, stderr].concat();
        let parts: Vec<_> = all.chunks(cut).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
        let executed = ExecutionResult {
            exit_code: -1,
            duration_ms: 5,
            stdout_bytes: stdout.len() as u64,
            stderr_bytes: stderr.len() as u64,
            stdout_dropped: dropped,
            stderr_dropped: 0,
            output: stream::iter(parts).boxed(),
        };
        let text: Vec<_> = super::json(executed).map(|part| part.expect("a part").to_vec()).collect().await;
        serde_json::from_slice(&text.concat()).expect("JSON")
    }

    #[tokio::test]
    async fn output_is_complete_for_any_chunk_size() {
        for (stdout, stderr) in [(0, 0), (1, 0), (0, 1), (3, 2), (10, 7), (256, 255)] {
            let bytes = |length: usize| (0..length).map(|n| n as u8).collect::<Vec<_>>();
            let (stdout, stderr) = (bytes(stdout), bytes(stderr));
            let expected = json!({
                "exit_code": -1, "duration_ms": 5,
                "stdout_b64": STANDARD.encode(&stdout), "stderr_b64": STANDARD.encode(&stderr),
            });
            for cut in [1, 2, 3, 4, 5, 100, 1000] {
                assert_eq!(response_of(&stdout, &stderr, cut, 0).await, expected, "in parts of {cut}");
            }
        }
        assert_eq!(response_of(b"a", b"", 1, 9).await["stdout_dropped_bytes"], 9);
    }

    #[tokio::test]
    async fn a_truncated_output_ends_the_response_with_an_error() {
        let executed = ExecutionResult {
            exit_code: 0,
            duration_ms: 0,
            stdout_bytes: 10,
            stderr_bytes: 0,
            stdout_dropped: 0,
            stderr_dropped: 0,
            output: stream::iter([Ok(Bytes::from_static(b"abc"))]).boxed(),
        };
        let parts: Vec<_> = super::json(executed).collect().await;
        assert!(matches!(parts.last(), Some(Err(OperationError::Failed(_)))));
    }
}
