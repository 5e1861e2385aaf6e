//! The client of the app runner: the server's side of the protocol.

use std::fs::File;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use casement_sandbox::Sandbox;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::protocol::{Answer, CHUNK_BYTES, Command, Exit, OutputLine, Request, next, next_bytes, send, send_bytes};

/// The timeout of requests that need no work.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Receives the output of a program.
#[async_trait]
pub(crate) trait LineSink: Send {
    /// Receives the next lines. Further output is buffered in the sandbox meanwhile.
    async fn push(&mut self, lines: Vec<OutputLine>);
}

/// Discards the output.
pub(crate) struct DiscardLines;

#[async_trait]
impl LineSink for DiscardLines {
    async fn push(&mut self, _: Vec<OutputLine>) {}
}

/// Sends a request on a new connection.
pub(crate) async fn ask(sandbox: &Sandbox, request: &Request) -> io::Result<UnixStream> {
    let mut stream = sandbox.connect(0).await?;
    send(&mut stream, request).await?;
    Ok(stream)
}

/// Holds a sandbox: without a call, it ends when the returned connection is closed.
pub(crate) async fn hold(sandbox: &Sandbox) -> io::Result<UnixStream> {
    let mut stream = ask(sandbox, &Request::Hold).await?;
    match with_timeout(REQUEST_TIMEOUT, next(&mut stream)).await? {
        Some(Answer::Done) => Ok(stream),
        _ => Err(broken()),
    }
}

/// Sends an archive and waits until it is unpacked.
pub(crate) async fn unpack(stream: &mut UnixStream, archive: File, limit: Duration) -> io::Result<Result<(), String>> {
    let mut archive = tokio::fs::File::from_std(archive);
    let mut part = vec![0; CHUNK_BYTES];
    loop {
        let count = archive.read(&mut part).await?;
        send_bytes(stream, &part[..count]).await?;
        if count == 0 {
            break;
        }
    }
    done(with_timeout(limit, next(stream)).await?)
}

/// Reads a stream of at most `max_bytes` into a file. Returns the file, or the reason of a refusal.
pub(crate) async fn take(
    stream: &mut UnixStream,
    file: File,
    max_bytes: u64,
    limit: Duration,
) -> io::Result<Result<File, String>> {
    let mut file = tokio::fs::File::from_std(file);
    let mut space = max_bytes;
    let taken = async {
        loop {
            let part = next_bytes(stream).await?.ok_or_else(broken)?;
            if part.is_empty() {
                return done(next(stream).await?);
            }
            let Some(left) = space.checked_sub(part.len() as u64) else {
                return Ok(Err(format!("more than {max_bytes} bytes")));
            };
            space = left;
            file.write_all(&part).await?;
        }
    };
    if let Err(reason) = with_timeout(limit, taken).await? {
        return Ok(Err(reason));
    }
    file.flush().await?;
    let mut file = file.into_std().await;
    io::Seek::rewind(&mut file)?;
    Ok(Ok(file))
}

/// Runs a program to its end and passes its output to `sink`.
pub(crate) async fn command(sandbox: &Sandbox, command: Command, sink: &mut dyn LineSink) -> io::Result<Exit> {
    let limit = Duration::from_secs(command.seconds) + REQUEST_TIMEOUT;
    let mut stream = ask(sandbox, &Request::Command(command)).await?;
    let ended = async {
        loop {
            match next(&mut stream).await?.ok_or_else(broken)? {
                Answer::Lines { lines } => sink.push(lines).await,
                Answer::Exit(exit) => return Ok(exit),
                Answer::Refused { reason } => return Err(io::Error::other(reason)),
                _ => return Err(broken()),
            }
        }
    };
    with_timeout(limit, ended).await
}

/// Passes output to `sink` until another answer arrives, and returns that.
pub(crate) async fn next_answer(stream: &mut UnixStream, sink: &mut dyn LineSink) -> io::Result<Answer> {
    loop {
        match next(stream).await?.ok_or_else(broken)? {
            Answer::Lines { lines } => sink.push(lines).await,
            other => return Ok(other),
        }
    }
}

fn done(answer: Option<Answer>) -> io::Result<Result<(), String>> {
    match answer {
        Some(Answer::Done) => Ok(Ok(())),
        Some(Answer::Refused { reason }) => Ok(Err(reason)),
        _ => Err(broken()),
    }
}

async fn with_timeout<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection to the app runner broke")
}
