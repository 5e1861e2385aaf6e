//! The process that waits for its call, takes it and ends.

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

/// The longest line of a loader: a result and the backslashes that JSON may put into it.
const MAX_LINE: u64 = 12 << 20;
/// How long a process that has ended may take to be heard to its end.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What a loader says.
#[derive(Debug, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum Word {
    Loaded { apps: Vec<App> },
    Returned { output: Option<String> },
    Raised { reason: String },
    Unfit { reason: String },
}

/// Where a process is in its life.
#[derive(Debug, Clone)]
pub(super) enum AppPhase {
    Loading,
    Loaded(Vec<App>),
    Called,
    Ended(Outcome),
}

/// A call on its way to the process.
#[derive(Debug)]
struct Given {
    words: CallParams,
    /// Says that the process has it, whole.
    taken: oneshot::Sender<()>,
}

/// A process on its way through that life.
#[derive(Debug)]
pub(super) struct AppProcess {
    pub(super) output: Arc<OutputBuffer>,
    pub(super) phase: watch::Receiver<AppPhase>,
    call: Option<oneshot::Sender<Given>>,
}

impl AppProcess {
    /// Starts one, which may hold so much memory with all that it starts, where nothing else holds it down.
    pub(super) fn start(command: &Command, memory_bytes: Option<u64>) -> std::io::Result<Self> {
        let output = Arc::new(OutputBuffer::default());
        let running = ChildProcess::start(command, Arc::clone(&output))?;
        let (phases, phase) = watch::channel(AppPhase::Loading);
        let (call, called) = oneshot::channel();
        let patience = Duration::from_secs(command.seconds);
        tokio::spawn(async move {
            let outcome = live(running, patience, memory_bytes, called, &phases).await;
            phases.send_replace(AppPhase::Ended(outcome));
        });
        Ok(Self { output, phase, call: Some(call) })
    }

    /// Gives it its call, if it waits for one; what is answered hears when it was taken.
    pub(super) fn call(&mut self, words: CallParams) -> Option<oneshot::Receiver<()>> {
        if !matches!(*self.phase.borrow(), AppPhase::Loaded(_)) {
            return None;
        }
        let call = self.call.take()?;
        self.output.begin_call();
        let (taken, hears) = oneshot::channel();
        call.send(Given { words, taken }).ok().map(|()| hears)
    }

    /// Whether it was given a call.
    pub(super) fn is_called(&self) -> bool {
        self.call.is_none()
    }
}

async fn live(
    mut running: ChildProcess,
    patience: Duration,
    memory_bytes: Option<u64>,
    called: oneshot::Receiver<Given>,
    phases: &watch::Sender<AppPhase>,
) -> Outcome {
    let Some(channel) = running.channel.take() else { return Outcome::Died { exit: Exit::Code(0) } };
    let (read, write) = channel.into_split();
    let mut ear = LineSink(BufReader::new(read));
    let outcome = tokio::select! {
        outcome = through(&mut running, &mut ear, write, called, phases) => outcome,
        () = overlong(phases.subscribe(), patience) => Outcome::Died { exit: Exit::Late },
        () = memory::exceeded(memory_bytes) => Outcome::Died { exit: Exit::OutOfMemory },
    };
    running.end().await;
    outcome
}

/// Returns when loading takes too long.
async fn overlong(mut phase: watch::Receiver<AppPhase>, patience: Duration) {
    let loaded = phase.wait_for(|phase| !matches!(phase, AppPhase::Loading));
    if tokio::time::timeout(patience, loaded).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

async fn through(
    running: &mut ChildProcess,
    ear: &mut LineSink,
    mut mouth: OwnedWriteHalf,
    called: oneshot::Receiver<Given>,
    phases: &watch::Sender<AppPhase>,
) -> Outcome {
    let apps = match ear.word(running).await {
        Ok(Word::Loaded { apps }) => apps,
        Ok(other) => return outcome(other, u64::MAX),
        Err(exit) => return Outcome::Died { exit },
    };
    phases.send_replace(AppPhase::Loaded(apps.clone()));
    let call = tokio::select! {
        call = called => call,
        died = ear.word(running) => return died.map_or_else(|exit| Outcome::Died { exit }, |word| outcome(word, u64::MAX)),
    };
    let Ok(Given { words: call, taken }) = call else { return Outcome::Died { exit: Exit::Code(0) } };
    phases.send_replace(AppPhase::Called);
    let (app, action) = registered(&apps, &call);
    let words = json!({
        "app": app, "action": action, "payload": call.payload, "invocation": call.invocation,
        "output_bytes": call.output_bytes,
    });
    // If it does not listen it has ended, or will be ended; and it has not begun.
    if mouth.write_all(format!("{words}\n").as_bytes()).await.is_ok() {
        taken.send(()).ok();
    }
    match ear.word(running).await {
        Ok(word) => outcome(word, call.output_bytes),
        Err(exit) => Outcome::Died { exit },
    }
}

/// The names of the call as the program has registered them: outside they are known as labels.
fn registered<'a>(apps: &'a [App], call: &'a CallParams) -> (&'a str, &'a str) {
    let same = |own: &str, label: &str| LabelName::parse(own).is_ok_and(|own| own.as_str() == label);
    let app = apps.iter().find(|app| same(&app.name, &call.app));
    let action = app.and_then(|app| app.actions.iter().find(|action| same(action, &call.action)));
    (app.map_or(&call.app, |app| &app.name), action.unwrap_or(&call.action))
}

fn outcome(word: Word, longest: u64) -> Outcome {
    match word {
        Word::Returned { output } if output.as_ref().is_some_and(|output| output.len() as u64 > longest) => {
            Outcome::Unfit { reason: format!("the action returned more than {longest} bytes of JSON") }
        }
        Word::Returned { output } => Outcome::Returned { output },
        Word::Raised { reason } => Outcome::Raised { reason: cut(reason) },
        Word::Unfit { reason } => Outcome::Unfit { reason: cut(reason) },
        Word::Loaded { .. } => Outcome::Unfit { reason: "the process said something out of turn".to_owned() },
    }
}

fn cut(reason: String) -> String {
    reason.chars().take(1000).collect()
}

/// What a loader says to us.
struct LineSink(BufReader<OwnedReadHalf>);

impl LineSink {
    /// The next word, or how the process ended instead.
    async fn word(&mut self, running: &mut ChildProcess) -> Result<Word, Exit> {
        let mut line = Vec::new();
        let ended = {
            let mut bounded = (&mut self.0).take(MAX_LINE);
            let mut heard = std::pin::pin!(bounded.read_until(b'\n', &mut line));
            tokio::select! {
                biased;
                _ = &mut heard => None,
                status = running.child.wait() => {
                    // Its last words may be on their way, unless a child of it holds the line.
                    tokio::time::timeout(LAST_WORDS, heard).await.ok();
                    Some(status)
                }
            }
        };
        match line.last() {
            Some(b'\n') => Ok(serde_json::from_slice(&line).unwrap_or_else(|_| unclear())),
            Some(_) if line.len() as u64 >= MAX_LINE => {
                Ok(Word::Unfit { reason: "the action returned far too much".to_owned() })
            }
            _ => Err(match ended {
                Some(status) => child::exit(status),
                // It has closed the line; what becomes of it is the same to us.
                None => match tokio::time::timeout(LAST_WORDS, running.child.wait()).await {
                    Ok(status) => child::exit(status),
                    Err(_) => Exit::Code(0),
                },
            }),
        }
    }
}

fn unclear() -> Word {
    Word::Unfit { reason: "the process said something that cannot be understood".to_owned() }
}
