//! Runs a program while its caller waits.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Semaphore;

use super::launch::{Input, drain, launch};
use super::{exit_code, tree};
use crate::reply::{self, Answer, Refusal, line};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::process::{Exec, Executed, MAX_EXEC_OUTPUT};

/// The time for which leftover processes of a program may delay the response by keeping its output open.
const GRACE: Duration = Duration::from_millis(100);
/// The maximum size of a part of the response, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// One output of the program, stored up to [`MAX_EXEC_OUTPUT`] bytes.
#[derive(Debug, Default)]
struct BoundedOutput {
    data: Vec<u8>,
    dropped: u64,
}

impl BoundedOutput {
    fn take(&mut self, data: &[u8]) {
        let (buffered, dropped) = data.split_at(data.len().min(MAX_EXEC_OUTPUT - self.data.len()));
        self.data.extend_from_slice(buffered);
        self.dropped += dropped.len() as u64;
    }
}

/// Kills the program and all processes that it has started if it is dropped before their end.
struct Waited<'a> {
    pid: Pid,
    name: &'a str,
    over: bool,
}

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        if !self.over {
            tree::end(self.pid, self.name);
        }
    }
}

/// Runs the program and returns its result and output. Dropping the future ends the program.
pub(crate) async fn exec(
    name: &str,
    requested: &Exec,
    environment: &[(OsString, OsString)],
    leftovers: &Arc<Semaphore>,
) -> Answer {
    let began = Instant::now();
    let within = Duration::from_millis(requested.timeout_ms);
    let mut launched = launch(name, &requested.program, Input::Nothing, environment)?;
    let mut waited = Waited { pid: launched.pid, name, over: false };
    let (mut out, mut err) = (BoundedOutput::default(), BoundedOutput::default());
    let ends: Vec<Receiver> = launched.outputs.into_iter().map(|(_, end)| end).collect();
    let [stdout, stderr] = ends.as_slice() else {
        return Err(Refusal::new(ErrorCode::Internal, "a program without its two outputs"));
    };
    let ran = async {
        let reading =
            async { tokio::join!(drain(stdout, |data| out.take(data)), drain(stderr, |data| err.take(data))) };
        tokio::pin!(reading);
        let mut read = false;
        let status = loop {
            tokio::select! {
                status = launched.child.wait() => break status,
                _ = &mut reading, if !read => read = true,
            }
        };
        waited.over = true;
        // The output of the program is in the pipes. Processes that it started may hold them open without a limit.
        let whole = read || tokio::time::timeout(GRACE, reading).await.is_ok();
        (status, whole)
    };
    let (status, whole) = tokio::time::timeout(within, ran).await.map_err(|_| {
        Refusal::new(ErrorCode::TimedOut, format_args!("the program did not end within {} ms", requested.timeout_ms))
    })?;
    let status: ExitStatus = status.map_err(|error: io::Error| Refusal::new(ErrorCode::Failed, error))?;
    if !whole {
        keep_open(ends, leftovers);
    }
    let executed = Executed {
        exit_code: exit_code(status),
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        stdout_bytes: out.data.len() as u64,
        stderr_bytes: err.data.len() as u64,
        stdout_dropped: out.dropped,
        stderr_dropped: err.dropped,
    };
    Ok(answer(&executed, out.data, err.data))
}

/// Reads the output of leftover processes, if there is room for them: without a reader, writing would end them.
fn keep_open(ends: Vec<Receiver>, leftovers: &Arc<Semaphore>) {
    let Ok(place) = Arc::clone(leftovers).try_acquire_owned() else { return };
    tokio::spawn(async move {
        futures_util::future::join_all(ends.iter().map(|end| drain(end, |_| ()))).await;
        drop(place);
    });
}

fn answer(executed: &Executed, out: Vec<u8>, err: Vec<u8>) -> http::Response<reply::Body> {
    let rest = VecDeque::from([line(executed), Bytes::from(out), Bytes::from(err)]);
    reply::stream(
        "application/octet-stream",
        stream::unfold(rest, |mut rest| async move {
            while rest.front().is_some_and(Bytes::is_empty) {
                rest.pop_front();
            }
            let first = rest.front_mut()?;
            let part = first.split_to(first.len().min(CHUNK_BYTES));
            Some((Ok(part), rest))
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_stored_up_to_its_bound_and_the_rest_is_counted() {
        let mut buffered = BoundedOutput::default();
        for _ in 0..11 {
            buffered.take(&[1; 1 << 20]);
        }
        assert_eq!((buffered.data.len(), buffered.dropped), (10 << 20, 1 << 20));
    }
}
