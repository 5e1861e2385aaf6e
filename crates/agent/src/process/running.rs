//! A program that runs without a waiting caller: its recent output, its input and its end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, stream};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::Pid;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::Child;
use tokio::sync::{Semaphore, watch};

use super::launch::{self, Launched, drain, write_some};
use super::ring::Ring;
use super::{RETENTION, exit_code, tree};
use crate::reply::{Refusal, line};
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::process::{Output, OutputStream, ProcessStatus, Signal, TerminalSize};

/// The time after the end of a program for which the output of its leftover processes is still stored.
const GRACE: Duration = Duration::from_millis(100);
/// The timeout for a program to read its input.
const STDIN: Duration = Duration::from_secs(10);
/// The characters that end the input of a terminal in the middle of a line; the second one is enough at its beginning.
const END_OF_INPUT: &[u8] = &[4, 4];
/// The maximum size of a piece of output, in bytes.
const CHUNK_BYTES: usize = 48 << 10;
/// The minimum time over which the processor usage is measured.
const LEAST_SAMPLE: Duration = Duration::from_millis(200);

/// A started program.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) pid: Pid,
    began: Instant,
    output: Mutex<Recent>,
    /// Notifies readers that `output` has changed.
    news: watch::Sender<()>,
    stdin: tokio::sync::Mutex<Option<Sender>>,
    terminal: Option<OwnedFd>,
    sample: Mutex<(Instant, u64)>,
}

/// The recent output of a program, and its end.
#[derive(Debug, Default)]
struct Recent {
    ring: Ring,
    exited: Option<Exit>,
    /// True if no more output will be added.
    closed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Exit {
    code: i32,
    at: Instant,
}

impl Running {
    /// Takes over a launched program. Its output is read from now on, even without a reader.
    pub(crate) fn new(
        name: String,
        launched: Launched,
        leftovers: &Arc<Semaphore>,
        within: Option<Duration>,
    ) -> Arc<Self> {
        let Launched { child, pid, stdin, outputs, terminal } = launched;
        let now = Instant::now();
        let running = Arc::new(Self {
            name,
            pid,
            began: now,
            output: Mutex::default(),
            news: watch::Sender::new(()),
            stdin: tokio::sync::Mutex::new(stdin),
            terminal,
            sample: Mutex::new((now, 0)),
        });
        tokio::spawn(Arc::clone(&running).attend(child, outputs, Arc::clone(leftovers), within));
        running
    }

    /// Reads the output of the program, waits for its end, and kills it when the time `within` is over.
    async fn attend(
        self: Arc<Self>,
        mut child: Child,
        outputs: Vec<(OutputStream, Receiver)>,
        leftovers: Arc<Semaphore>,
        within: Option<Duration>,
    ) {
        let reading = outputs.iter().map(|(stream, end)| drain(end, |data| self.take(*stream, data)));
        let mut reading = std::pin::pin!(futures_util::future::join_all(reading));
        let mut late = std::pin::pin!(async {
            match within {
                Some(within) => tokio::time::sleep(within).await,
                None => std::future::pending().await,
            }
        });
        let (mut read, mut killed) = (false, false);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                _ = &mut reading, if !read => read = true,
                () = &mut late, if !killed => {
                    killed = true;
                    tree::end(self.pid, &self.name);
                }
            }
        };
        // From here on the process id may belong to another process.
        let code = status.map_or(-1, exit_code);
        self.output().exited = Some(Exit { code, at: Instant::now() });
        self.news.send_replace(());
        self.stdin.lock().await.take();
        let whole = read || tokio::time::timeout(GRACE, &mut reading).await.is_ok();
        self.output().closed = true;
        self.news.send_replace(());
        let forgotten = Arc::downgrade(&self);
        tokio::spawn(async move {
            tokio::time::sleep(RETENTION).await;
            // The output is released even if no further request removes the program.
            if let Some(running) = forgotten.upgrade() {
                running.output().ring = Ring::default();
            }
        });
        // Leftover processes keep a reader of their output, if there is room for it.
        if !whole && let Ok(_place) = leftovers.try_acquire_owned() {
            reading.await;
        }
    }

    fn take(&self, stream: OutputStream, data: &[u8]) {
        let mut output = self.output();
        if !output.closed {
            output.ring.write(stream, data);
            drop(output);
            self.news.send_replace(());
        }
    }

    fn output(&self) -> MutexGuard<'_, Recent> {
        self.output.lock()
    }

    /// Returns the time at which the program ended, if it has.
    pub(crate) fn ended(&self) -> Option<Instant> {
        self.output().exited.map(|exit| exit.at)
    }

    /// Returns the exit code of the program, or the resources that it uses.
    pub(crate) fn status(&self) -> ProcessStatus {
        if let Some(exit) = self.output().exited {
            return ProcessStatus { exit_code: Some(exit.code), cpu_pct: 0.0, mem_bytes: 0 };
        }
        let load = tree::load(self.pid);
        let mut sample = self.sample.lock();
        let (since, before) = *sample;
        let (since, before) = if since.elapsed() < LEAST_SAMPLE { (self.began, 0) } else { (since, before) };
        let seconds = since.elapsed().as_secs_f64().max(0.01);
        let ticks = load.ticks.saturating_sub(before);
        if sample.0.elapsed() >= LEAST_SAMPLE {
            *sample = (Instant::now(), load.ticks);
        }
        let cpu = ticks as f64 / rustix::param::clock_ticks_per_second() as f64 / seconds * 100.0;
        ProcessStatus { exit_code: None, cpu_pct: (cpu * 10.0).round() / 10.0, mem_bytes: load.bytes }
    }

    /// Sends a signal to the program and its process group.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Refusal> {
        let signal = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
            Signal::Int => rustix::process::Signal::INT,
            Signal::Hup => rustix::process::Signal::HUP,
        };
        // Locked during the signal. The same thread waits for the program, so the process id still belongs to the
        // program.
        let output = self.output();
        if output.exited.is_some() || !tree::signal(self.pid, signal) {
            return Err(self.exited());
        }
        Ok(())
    }

    fn exited(&self) -> Refusal {
        Refusal::new(ErrorCode::InvalidState, format_args!("process {} has ended", self.name))
    }

    /// Changes the size of the program's terminal.
    pub(crate) fn resize(&self, size: TerminalSize) -> Result<(), Refusal> {
        let none = || Refusal::new(ErrorCode::InvalidState, format_args!("process {} has no terminal", self.name));
        let terminal = self.terminal.as_ref().ok_or_else(none)?;
        if self.ended().is_some() {
            return Err(self.exited());
        }
        launch::resize(terminal, size).map_err(|error| Refusal::new(ErrorCode::Failed, error))
    }

    /// Writes to the standard input of the program, and returns the number of accepted bytes: if the program does not
    /// read, as many as its pipe holds. With `is_last`, the input ends after the last byte of `data`.
    pub(crate) async fn write(&self, data: &[u8], is_last: bool) -> Result<usize, Refusal> {
        if self.ended().is_some() {
            return Err(self.exited());
        }
        let mut written = 0;
        let writing = async {
            let mut stdin = self.stdin.lock().await;
            let end = stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
            self.write_all(end, data, &mut written).await?;
            if is_last && written == data.len() {
                match self.terminal {
                    None => drop(stdin.take()),
                    // The end of a terminal's input is a character, which ends an unfinished line first.
                    Some(_) => self.write_all(end, &END_OF_INPUT[usize::from(data.ends_with(b"\n"))..], &mut 0).await?,
                }
            }
            Ok::<_, io::Error>(())
        };
        match tokio::time::timeout(STDIN, writing).await {
            Ok(Err(error)) if written == 0 => {
                let message = format!("process {} reads nothing more: {error}", self.name);
                Err(Refusal::new(ErrorCode::InvalidState, message))
            }
            _ => Ok(written),
        }
    }

    /// Writes until all is written or the program has ended.
    async fn write_all(&self, end: &Sender, data: &[u8], written: &mut usize) -> io::Result<()> {
        while *written < data.len() && self.ended().is_none() {
            let mut news = self.news.subscribe();
            tokio::select! {
                some = write_some(end, &data[*written..]) => *written += some?,
                // The program may have ended without reading.
                _ = news.changed() => {}
            }
        }
        Ok(())
    }

    /// Returns the output from the oldest stored byte on, as lines, until the program has ended.
    pub(crate) fn follow<G: Send + 'static>(self: Arc<Self>, place: G) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let news = self.news.subscribe();
        stream::unfold(Some((self, news, 0_u64, place)), |state| async move {
            let (running, mut news, position, place) = state?;
            loop {
                news.borrow_and_update();
                match running.next(position) {
                    Next::Data(line, position) => return Some((Ok(line), Some((running, news, position, place)))),
                    Next::End(line) => return Some((Ok(line), None)),
                    Next::Wait => news.changed().await.ok()?,
                }
            }
        })
    }

    fn next(&self, position: u64) -> Next {
        let output = self.output();
        if let Some((part, next)) = output.ring.read(position, CHUNK_BYTES) {
            drop(output);
            let data_b64 = STANDARD.encode(&part.data);
            return Next::Data(line(&Output::Data { stream: part.stream, data_b64, dropped: part.dropped }), next);
        }
        match output.exited {
            Some(exit) if output.closed => Next::End(line(&Output::Exit { exit_code: exit.code })),
            _ => Next::Wait,
        }
    }
}

/// The next item for a reader of the output.
enum Next {
    Data(Bytes, u64),
    End(Bytes),
    Wait,
}
