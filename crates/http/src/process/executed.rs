//! The answer of a program that was waited for: made while it is sent, because its output may be long.

use actix_web::web::Bytes;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::{
    process::ExecutionResult,
    session_operation::{ByteStream, OperationError},
};
use futures_util::{Stream, StreamExt as _, stream};

/// The text in front of one output, what is left of it, and the text after the last.
struct Writing {
    output: ByteStream,
    /// What came and was not sent.
    came: Bytes,
    /// Bytes of the current output that are still to be encoded.
    left: u64,
    /// What follows the current output.
    then: Vec<Next>,
    /// One or two bytes that wait for their group of three.
    carried: Vec<u8>,
}

enum Next {
    Text(String),
    Output(u64),
}

/// The JSON of `executed`, in parts.
pub(super) fn json(executed: ExecutionResult) -> impl Stream<Item = Result<Bytes, OperationError>> {
    let ExecutionResult { exit_code, duration_ms, stdout_bytes, stderr_bytes, stdout_dropped, stderr_dropped, output } =
        executed;
    let mut end = "\"".to_owned();
    for (name, dropped) in [("stdout_dropped_bytes", stdout_dropped), ("stderr_dropped_bytes", stderr_dropped)] {
        if dropped > 0 {
            end += &format!(",\"{name}\":{dropped}");
        }
    }
    // Taken from the end.
    let then = vec![
        Next::Text(end + "}"),
        Next::Output(stderr_bytes),
        Next::Text("\",\"stderr_b64\":\"".to_owned()),
        Next::Output(stdout_bytes),
        Next::Text(format!("{{\"exit_code\":{exit_code},\"duration_ms\":{duration_ms},\"stdout_b64\":\"")),
    ];
    let writing = Writing { output, came: Bytes::new(), left: 0, then, carried: Vec::new() };
    stream::try_unfold(writing, |mut writing| async move {
        Ok(writing.next().await?.map(|part| (Bytes::from(part), writing)))
    })
}

impl Writing {
    async fn next(&mut self) -> Result<Option<String>, OperationError> {
        while self.left == 0 {
            match self.then.pop() {
                None => return Ok(None),
                Some(Next::Text(text)) => return Ok(Some(text)),
                Some(Next::Output(bytes)) => self.left = bytes,
            }
        }
        while self.came.is_empty() {
            let broken = || OperationError::Failed("the output broke off".to_owned());
            self.came = self.output.next().await.ok_or_else(broken)??;
        }
        let length = self.came.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.carried.extend_from_slice(&self.came.split_to(length));
        self.left -= length as u64;
        // Only the end of an output may be padded.
        let whole = if self.left == 0 { self.carried.len() } else { self.carried.len() / 3 * 3 };
        let rest = self.carried.split_off(whole);
        let text = STANDARD.encode(std::mem::replace(&mut self.carried, rest));
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    async fn written(stdout: &[u8], stderr: &[u8], cut: usize, dropped: u64) -> Value {
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
    async fn output_is_whole_however_it_came() {
        for (stdout, stderr) in [(0, 0), (1, 0), (0, 1), (3, 2), (10, 7), (256, 255)] {
            let bytes = |length: usize| (0..length).map(|n| n as u8).collect::<Vec<_>>();
            let (stdout, stderr) = (bytes(stdout), bytes(stderr));
            let expected = json!({
                "exit_code": -1, "duration_ms": 5,
                "stdout_b64": STANDARD.encode(&stdout), "stderr_b64": STANDARD.encode(&stderr),
            });
            for cut in [1, 2, 3, 4, 5, 100, 1000] {
                assert_eq!(written(&stdout, &stderr, cut, 0).await, expected, "in parts of {cut}");
            }
        }
        assert_eq!(written(b"a", b"", 1, 9).await["stdout_dropped_bytes"], 9);
    }

    #[tokio::test]
    async fn an_output_that_breaks_off_is_never_taken_for_the_whole() {
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
