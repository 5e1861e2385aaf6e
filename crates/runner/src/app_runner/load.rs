//! The process that loads an app, waits for one call, runs it and ends.

use std::sync::Arc;
use std::time::Duration;

use casement_domain::name::LabelName;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{oneshot, watch};

use super::child::{self, ChildProcess};
use super::lines::OutputBuffer;
use super::memory;
use crate::protocol::{App, CallParams, Command, Exit, Outcome};

/// The longest line of a loader in bytes: an output with the backslashes that JSON may add.
const MAX_LINE: u64 = 12 << 20;
/// The timeout for reading the remaining messages of a process that has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A message of a loader.
#[derive(Debug, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum LoaderMessage {
    Loaded { apps: Vec<App> },
    Returned { output: Option<String> },
    Raised { reason: String },
    Unfit { reason: String },
}

/// The phase of a process.
#[derive(Debug, Clone)]
pub(super) enum AppPhase {
    Loading,
    Loaded(Vec<App>),
    Called,
    Ended(Outcome),
}

/// A call for the process.
#[derive(Debug)]
struct Given {
    params: CallParams,
    /// Signals that the process has received the whole call.
    taken: oneshot::Sender<()>,
}

/// A process that loads an app and runs one call.
#[derive(Debug)]
pub(super) struct AppProcess {
    pub(super) output: Arc<OutputBuffer>,
    pub(super) phase: watch::Receiver<AppPhase>,
    call: Option<oneshot::Sender<Given>>,
}

impl AppProcess {
    /// Starts a process. `memory_bytes` limits the memory of the sandbox if the kernel enforces no limit.
    pub(super) fn start(command: &Command, memory_bytes: Option<u64>) -> std::io::Result<Self> {
        let output = Arc::new(OutputBuffer::default());
        let running = ChildProcess::start(command, Arc::clone(&output))?;
        let (phases, phase) = watch::channel(AppPhase::Loading);
        let (call, called) = oneshot::channel();
        let timeout = Duration::from_secs(command.seconds);
        tokio::spawn(async move {
            let outcome = live(running, timeout, memory_bytes, called, &phases).await;
            phases.send_replace(AppPhase::Ended(outcome));
        });
        Ok(Self { output, phase, call: Some(call) })
    }

    /// Sends the call to the process, if it waits for one. The receiver signals that the process has received it.
    pub(super) fn call(&mut self, params: CallParams) -> Option<oneshot::Receiver<()>> {
        if !matches!(*self.phase.borrow(), AppPhase::Loaded(_)) {
            return None;
        }
        let call = self.call.take()?;
        self.output.begin_call();
        let (taken, on_taken) = oneshot::channel();
        call.send(Given { params, taken }).ok().map(|()| on_taken)
    }

    /// Returns true if a call was sent to the process.
    pub(super) fn is_called(&self) -> bool {
        self.call.is_none()
    }
}

async fn live(
    mut running: ChildProcess,
    timeout: Duration,
    memory_bytes: Option<u64>,
    called: oneshot::Receiver<Given>,
    phases: &watch::Sender<AppPhase>,
) -> Outcome {
    let Some(channel) = running.channel.take() else { return Outcome::Died { exit: Exit::Code(0) } };
    let (read, write) = channel.into_split();
    let mut channel = LineSink(BufReader::new(read));
    let outcome = tokio::select! {
        outcome = through(&mut running, &mut channel, write, called, phases) => outcome,
        () = load_timed_out(phases.subscribe(), timeout) => Outcome::Died { exit: Exit::Late },
        () = memory::exceeded(memory_bytes) => Outcome::Died { exit: Exit::OutOfMemory },
    };
    running.end().await;
    outcome
}

/// Waits until loading has timed out.
async fn load_timed_out(mut phase: watch::Receiver<AppPhase>, timeout: Duration) {
    let loaded = phase.wait_for(|phase| !matches!(phase, AppPhase::Loading));
    if tokio::time::timeout(timeout, loaded).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

async fn through(
    running: &mut ChildProcess,
    channel: &mut LineSink,
    mut writer: OwnedWriteHalf,
    called: oneshot::Receiver<Given>,
    phases: &watch::Sender<AppPhase>,
) -> Outcome {
    let apps = match channel.next_message(running).await {
        Ok(LoaderMessage::Loaded { apps }) => apps,
        Ok(other) => return outcome(other, u64::MAX),
        Err(exit) => return Outcome::Died { exit },
    };
    phases.send_replace(AppPhase::Loaded(apps.clone()));
    let call = tokio::select! {
        call = called => call,
        died = channel.next_message(running) => return died.map_or_else(|exit| Outcome::Died { exit }, |next_message| outcome(next_message, u64::MAX)),
    };
    let Ok(Given { params: call, taken }) = call else { return Outcome::Died { exit: Exit::Code(0) } };
    phases.send_replace(AppPhase::Called);
    let (app, action) = registered_names(&apps, &call);
    let params = json!({
        "app": app, "action": action, "payload": call.payload, "invocation": call.invocation,
        "output_bytes": call.output_bytes,
    });
    // If the process does not read, it has ended or will be ended, and the call has not begun.
    if writer.write_all(format!("{params}\n").as_bytes()).await.is_ok() {
        taken.send(()).ok();
    }
    match channel.next_message(running).await {
        Ok(next_message) => outcome(next_message, call.output_bytes),
        Err(exit) => Outcome::Died { exit },
    }
}

/// Returns the registered names of the call's app and action. The server only knows their normalized names.
fn registered_names<'a>(apps: &'a [App], call: &'a CallParams) -> (&'a str, &'a str) {
    let same = |own: &str, label: &str| LabelName::parse(own).is_ok_and(|own| own.as_str() == label);
    let app = apps.iter().find(|app| same(&app.name, &call.app));
    let action = app.and_then(|app| app.actions.iter().find(|action| same(action, &call.action)));
    (app.map_or(&call.app, |app| &app.name), action.unwrap_or(&call.action))
}

fn outcome(next_message: LoaderMessage, longest: u64) -> Outcome {
    match next_message {
        LoaderMessage::Returned { output } if output.as_ref().is_some_and(|output| output.len() as u64 > longest) => {
            Outcome::Unfit { reason: format!("the action returned more than {longest} bytes of JSON") }
        }
        LoaderMessage::Returned { output } => Outcome::Returned { output },
        LoaderMessage::Raised { reason } => Outcome::Raised { reason: cut(reason) },
        LoaderMessage::Unfit { reason } => Outcome::Unfit { reason: cut(reason) },
        LoaderMessage::Loaded { .. } => Outcome::Unfit { reason: "the process sent an unexpected message".to_owned() },
    }
}

fn cut(reason: String) -> String {
    reason.chars().take(1000).collect()
}

/// Reads a loader's messages.
struct LineSink(BufReader<OwnedReadHalf>);

impl LineSink {
    /// Returns the next message, or the end of the process.
    async fn next_message(&mut self, running: &mut ChildProcess) -> Result<LoaderMessage, Exit> {
        let mut line = Vec::new();
        let ended = {
            let mut bounded = (&mut self.0).take(MAX_LINE);
            let mut drained = std::pin::pin!(bounded.read_until(b'\n', &mut line));
            tokio::select! {
                biased;
                _ = &mut drained => None,
                status = running.child.wait() => {
                    // Its last messages may still be in the channel; a descendant may hold the channel open.
                    tokio::time::timeout(DRAIN_TIMEOUT, drained).await.ok();
                    Some(status)
                }
            }
        };
        match line.last() {
            Some(b'\n') => Ok(serde_json::from_slice(&line).unwrap_or_else(|_| unclear())),
            Some(_) if line.len() as u64 >= MAX_LINE => {
                Ok(LoaderMessage::Unfit { reason: "the action returned far too much".to_owned() })
            }
            _ => Err(match ended {
                Some(status) => child::exit(status),
                // The process has closed the channel; its further behaviour does not matter.
                None => match tokio::time::timeout(DRAIN_TIMEOUT, running.child.wait()).await {
                    Ok(status) => child::exit(status),
                    Err(_) => Exit::Code(0),
                },
            }),
        }
    }
}

fn unclear() -> LoaderMessage {
    LoaderMessage::Unfit { reason: "the process said something that cannot be understood".to_owned() }
}
