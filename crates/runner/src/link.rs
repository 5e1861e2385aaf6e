//! The server's side of the conversation with the inside of a sandbox.

use std::fs::File;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use casement_sandbox::Sandbox;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::protocol::{Answer, Command, Exit, OutputLine, PART, Request, next, next_bytes, send, send_bytes};

/// How long the inside may take to answer what takes it no time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Hears what a program writes.
#[async_trait]
pub(crate) trait LineSink: Send {
    /// Takes the next lines; holds their writer up meanwhile.
    async fn hear(&mut self, lines: Vec<OutputLine>);
}

/// Hears nothing.
pub(crate) struct DiscardLines;

#[async_trait]
impl LineSink for DiscardLines {
    async fn hear(&mut self, _: Vec<OutputLine>) {}
}

/// Sends a request.
pub(crate) async fn ask(sandbox: &Sandbox, request: &Request) -> io::Result<UnixStream> {
    let mut stream = sandbox.connect(0).await?;
    send(&mut stream, request).await?;
    Ok(stream)
}

/// Takes hold of a sandbox.
pub(crate) async fn hold(sandbox: &Sandbox) -> io::Result<UnixStream> {
    let mut stream = ask(sandbox, &Request::Hold).await?;
    match within(PATIENCE, next(&mut stream)).await? {
        Some(Answer::Done) => Ok(stream),
        _ => Err(unclear()),
    }
}

/// Hands an archive in and has it unpacked.
pub(crate) async fn unpack(
    stream: &mut UnixStream,
    archive: File,
    patience: Duration,
) -> io::Result<Result<(), String>> {
    let mut archive = tokio::fs::File::from_std(archive);
    let mut part = vec![0; PART];
    loop {
        let count = archive.read(&mut part).await?;
        send_bytes(stream, &part[..count]).await?;
        if count == 0 {
            break;
        }
    }
    done(within(patience, next(stream)).await?)
}

/// Takes bytes out, at most so many, into a file.
pub(crate) async fn take(
    stream: &mut UnixStream,
    file: File,
    most: u64,
    patience: Duration,
) -> io::Result<Result<File, String>> {
    let mut file = tokio::fs::File::from_std(file);
    let mut room = most;
    let taken = async {
        loop {
            let part = next_bytes(stream).await?.ok_or_else(unclear)?;
            if part.is_empty() {
                return done(next(stream).await?);
            }
            let Some(left) = room.checked_sub(part.len() as u64) else {
                return Ok(Err(format!("more than {most} bytes")));
            };
            room = left;
            file.write_all(&part).await?;
        }
    };
    if let Err(reason) = within(patience, taken).await? {
        return Ok(Err(reason));
    }
    file.flush().await?;
    let mut file = file.into_std().await;
    io::Seek::rewind(&mut file)?;
    Ok(Ok(file))
}

/// Runs a program to its end.
pub(crate) async fn command(sandbox: &Sandbox, command: Command, ear: &mut dyn LineSink) -> io::Result<Exit> {
    let patience = Duration::from_secs(command.seconds) + PATIENCE;
    let mut stream = ask(sandbox, &Request::Command(command)).await?;
    let ended = async {
        loop {
            match next(&mut stream).await?.ok_or_else(unclear)? {
                Answer::Lines { lines } => ear.hear(lines).await,
                Answer::Exit(exit) => return Ok(exit),
                Answer::Refused { reason } => return Err(io::Error::other(reason)),
                _ => return Err(unclear()),
            }
        }
    };
    within(patience, ended).await
}

/// What is answered next that is no line; lines are handed on.
pub(crate) async fn words(stream: &mut UnixStream, ear: &mut dyn LineSink) -> io::Result<Answer> {
    loop {
        match next(stream).await?.ok_or_else(unclear)? {
            Answer::Lines { lines } => ear.hear(lines).await,
            other => return Ok(other),
        }
    }
}

fn done(answer: Option<Answer>) -> io::Result<Result<(), String>> {
    match answer {
        Some(Answer::Done) => Ok(Ok(())),
        Some(Answer::Refused { reason }) => Ok(Err(reason)),
        _ => Err(unclear()),
    }
}

async fn within<T>(patience: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(patience, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn unclear() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the inside of the sandbox broke off")
}
