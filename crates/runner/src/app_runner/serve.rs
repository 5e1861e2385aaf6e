//! The app runner's side of the protocol: serves the requests of the server.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use casement_archive::{package, unpack};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{LocalSet, spawn_blocking, spawn_local};

use super::child::{ChildProcess, exit};
use super::lines::OutputBuffer;
use super::load::{AppPhase, AppProcess};
use super::memory;
use super::pack;
use crate::protocol::{
    APP, Answer, CHUNK_BYTES, CallParams, Command, DEPLOYMENT, Exit, Outcome, Request, next, next_bytes, send,
    send_bytes,
};

/// The time after which a sandbox ends if no server has held it.
const HOLD_TIMEOUT: Duration = Duration::from_secs(60);
/// The time after a call's deadline at which its sandbox ends if the call still runs, and the time after which the
/// sandbox of an ended call ends if no server requests the result.
const UNCLAIMED_TIMEOUT: Duration = Duration::from_secs(10);
const RESULT_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// The path of an archive while it is unpacked.
const ARCHIVE: &str = "/tmp/.archive";

#[derive(Default)]
struct State {
    memory_bytes: Option<u64>,
    process: RefCell<Option<AppProcess>>,
    held: Cell<bool>,
    /// Signals the end of the sandbox.
    ending: Notify,
}

/// Serves until the sandbox has to end. `memory_bytes` limits its memory if the kernel enforces no limit.
pub(super) async fn serve(listener: UnixListener, memory_bytes: Option<u64>) {
    let state = Rc::new(State { memory_bytes, ..State::default() });
    let local = LocalSet::new();
    let serving = Rc::clone(&state);
    local.spawn_local(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(spawn_local(connection(Rc::clone(&serving), stream))),
                Err(error) => {
                    tracing::warn!(%error, "the app runner cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    });
    let unheld = Rc::clone(&state);
    local.spawn_local(async move {
        tokio::time::sleep(HOLD_TIMEOUT).await;
        if !unheld.held.get() {
            unheld.ending.notify_one();
        }
    });
    local.run_until(state.ending.notified()).await;
}

async fn connection(state: Rc<State>, mut stream: UnixStream) {
    // The client may have disconnected, which ends its request.
    if let Err(error) = answer(&state, &mut stream).await {
        tracing::debug!(%error, "a request failed");
    }
}

async fn answer(state: &Rc<State>, stream: &mut UnixStream) -> io::Result<()> {
    let Some(request) = next::<Request, _>(stream).await? else { return Ok(()) };
    match request {
        Request::Hold => hold(state, stream).await,
        Request::Unpack { top } => {
            let received = receive(stream).await;
            let unpacked = match received {
                Ok(()) => spawn_blocking(move || unpack_archive(top.as_deref())).await?,
                Err(error) => Err(error),
            };
            send(stream, &done(unpacked)).await
        }
        Request::Pack => send_stream(stream, |to| pack::pack(Path::new(DEPLOYMENT), to)).await,
        Request::Read { path, max } => send_stream(stream, move |to| read(&path, max, to)).await,
        Request::Command(command) => run(stream, &command, state.memory_bytes).await,
        Request::Load(command) => {
            let started = AppProcess::start(&command, state.memory_bytes);
            match started {
                Err(error) => send(stream, &refused(&error)).await,
                Ok(process) => {
                    let (output, phase) = (Arc::clone(&process.output), process.phase.clone());
                    *state.process.borrow_mut() = Some(process);
                    loaded(stream, &output, phase.clone()).await?;
                    spawn_local(end_without_call(Rc::clone(state), phase));
                    Ok(())
                }
            }
        }
        Request::Call(params) => {
            let taken = begin(state, params).await;
            send(stream, &if taken { Answer::Done } else { refused(&"no process waits for a call") }).await
        }
        Request::Follow { from } => follow(state, stream, from).await,
    }
}

async fn hold(state: &Rc<State>, stream: &mut UnixStream) -> io::Result<()> {
    state.held.set(true);
    send(stream, &Answer::Done).await?;
    // The server sends nothing more: the read returns when it closes the connection.
    stream.read_u8().await.ok();
    if !state.process.borrow().as_ref().is_some_and(AppProcess::is_called) {
        state.ending.notify_one();
    }
    Ok(())
}

/// Sends the process its call. Returns false if the process did not take it, because it has ended or is ending.
async fn begin(state: &Rc<State>, params: CallParams) -> bool {
    let time = Duration::from_secs(params.seconds);
    let given =
        state.process.borrow_mut().as_mut().and_then(|process| Some((process.call(params)?, process.phase.clone())));
    let Some((taken, mut phase)) = given else { return false };
    let state = Rc::clone(state);
    spawn_local(async move {
        let ended = phase.wait_for(|phase| matches!(phase, AppPhase::Ended(_)));
        if tokio::time::timeout(time + UNCLAIMED_TIMEOUT, ended).await.is_ok() {
            tokio::time::sleep(RESULT_RETENTION).await;
        }
        state.ending.notify_one();
    });
    taken.await.is_ok()
}

/// Ends the sandbox if its process ends without a call, which notifies the server.
async fn end_without_call(state: Rc<State>, mut phase: watch::Receiver<AppPhase>) {
    phase.wait_for(|phase| matches!(phase, AppPhase::Ended(_))).await.ok();
    if !state.process.borrow().as_ref().is_some_and(AppProcess::is_called) {
        state.ending.notify_one();
    }
}

/// Sends the lines of a process until it is loaded or has ended, and then its phase.
async fn loaded(
    stream: &mut UnixStream,
    output: &OutputBuffer,
    mut phase: watch::Receiver<AppPhase>,
) -> io::Result<()> {
    let mut from = 0;
    let phase = loop {
        tokio::select! {
            phase = phase.wait_for(|phase| !matches!(phase, AppPhase::Loading)) => break phase.map(|phase| phase.clone()),
            Some(lines) = output.after(from) => {
                from += lines.len() as u64;
                send(stream, &Answer::Lines { lines }).await?;
            }
        }
    };
    send(stream, &Answer::Lines { lines: output.now(from) }).await?;
    send(stream, &phase.map_or_else(|_| refused(&"it was given up"), outcome_answer)).await
}

/// Sends the lines from the number `from` on as they are written, and then the outcome of the call.
async fn follow(state: &State, stream: &mut UnixStream, mut from: u64) -> io::Result<()> {
    let process = state.process.borrow().as_ref().map(|process| (Arc::clone(&process.output), process.phase.clone()));
    let Some((output, mut phase)) = process else { return send(stream, &refused(&"there is no process")).await };
    lines(&output, stream, &mut from).await?;
    let ended = phase.wait_for(|phase| matches!(phase, AppPhase::Ended(_))).await.map(|phase| phase.clone());
    send(stream, &ended.map_or_else(|_| refused(&"it was given up"), outcome_answer)).await
}

async fn lines(output: &OutputBuffer, stream: &mut UnixStream, from: &mut u64) -> io::Result<()> {
    while let Some(lines) = output.after(*from).await {
        *from += lines.len() as u64;
        send(stream, &Answer::Lines { lines }).await?;
    }
    Ok(())
}

/// Runs a program to its end and sends its lines, and then its exit.
async fn run(stream: &mut UnixStream, command: &Command, memory_bytes: Option<u64>) -> io::Result<()> {
    let output = Arc::new(OutputBuffer::default());
    let mut running = match ChildProcess::start(command, Arc::clone(&output)) {
        Ok(running) => running,
        Err(error) => return send(stream, &refused(&error)).await,
    };
    let mut from = 0;
    let ended = async {
        let ended = tokio::time::timeout(Duration::from_secs(command.seconds), running.child.wait());
        let ended = tokio::select! {
            ended = ended => ended.map_or(Exit::Late, exit),
            () = memory::exceeded(memory_bytes) => Exit::OutOfMemory,
        };
        running.end().await;
        ended
    };
    let (ended, sent) = tokio::join!(ended, lines(&output, stream, &mut from));
    sent?;
    send(stream, &Answer::Exit(ended)).await
}

fn outcome_answer(phase: AppPhase) -> Answer {
    match phase {
        AppPhase::Loaded(apps) => Answer::Loaded { apps },
        AppPhase::Ended(outcome) => Answer::Ended(outcome),
        AppPhase::Loading | AppPhase::Called => Answer::Ended(Outcome::Died { exit: Exit::Code(0) }),
    }
}

async fn receive(stream: &mut UnixStream) -> io::Result<()> {
    let mut file = tokio::fs::File::create(ARCHIVE).await?;
    loop {
        let part = next_bytes(stream).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if part.is_empty() {
            return file.flush().await;
        }
        file.write_all(&part).await?;
    }
}

fn unpack_archive(top: Option<&str>) -> io::Result<()> {
    fs::create_dir_all(APP)?;
    unpack(File::open(ARCHIVE)?, package::LIMITS, top.map(Path::new), Path::new(APP)).map_err(io::Error::other)?;
    fs::remove_file(ARCHIVE)
}

fn read(path: &str, max: u64, to: &mut FrameWriter) -> io::Result<()> {
    let file = File::open(path)?;
    if file.metadata()?.len() > max {
        return Err(io::Error::other(format!("more than {max} bytes")));
    }
    let mut to = to;
    io::copy(&mut io::Read::take(file, max), &mut to).map(drop)
}

/// Sends the bytes that `make` writes.
async fn send_stream(
    stream: &mut UnixStream,
    make: impl FnOnce(&mut FrameWriter) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (sender, mut parts) = mpsc::channel(2);
    let making = spawn_blocking(move || {
        let mut to = FrameWriter { sender, part: Vec::with_capacity(CHUNK_BYTES) };
        make(&mut to).and_then(|()| io::Write::flush(&mut to))
    });
    while let Some(part) = parts.recv().await {
        send_bytes(stream, &part).await?;
    }
    send_bytes(stream, &[]).await?;
    send(stream, &done(making.await?)).await
}

/// A writer that sends its bytes as frames.
struct FrameWriter {
    sender: mpsc::Sender<Vec<u8>>,
    part: Vec<u8>,
}

impl io::Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        if self.part.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(CHUNK_BYTES));
        self.sender.blocking_send(part).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn done(result: io::Result<()>) -> Answer {
    result.map_or_else(|error| refused(&error), |()| Answer::Done)
}

fn refused(why: &impl ToString) -> Answer {
    Answer::Refused { reason: why.to_string().chars().take(1000).collect() }
}
