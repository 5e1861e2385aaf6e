//! Run, start, look at, talk to, end.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, http::StatusCode};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use casement_domain::process::{
    ExecInput, KillInput, Output, OutputStream, ProcessState, ProcessStatus, ProgramInput, ResizeInput, SpawnInput,
    StdinInput,
};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::executed;
use crate::{
    answer::{self, Answer, Moment},
    client_timeout::client_timeout,
    request::{ActiveSession, Request},
    sse, stream,
};

/// What to run and wait for.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ExecuteProcess {
    /// With `args` the program; without, a line for `/bin/sh -c`.
    #[schema(required, nullable = false)]
    command: Option<String>,
    /// At most 1000.
    args: Option<Vec<String>>,
    /// An absolute path. Default: the home of the session's user.
    cwd: Option<String>,
    /// Added to the session's environment.
    env: Option<BTreeMap<String, String>>,
    /// A session has no root.
    as_root: Option<bool>,
    /// A session has one user, `casement`.
    as_user: Option<String>,
    /// 1 to 3600. Default: 60.
    timeout_sec: Option<i64>,
}

/// How a program ended, and what it wrote: the first 10 MiB of each output.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecutedProcess {
    /// 127 when there is no such program; 128 and the signal's number when a signal ended it.
    exit_code: i32,
    duration_ms: u64,
    stdout_b64: String,
    stderr_b64: String,
    /// How many more bytes it wrote to standard output, if it did.
    stdout_dropped_bytes: Option<u64>,
    /// How many more bytes it wrote to standard error, if it did.
    stderr_dropped_bytes: Option<u64>,
}

pub(crate) async fn execute_process(mut request: Request<ActiveSession>) -> Answer {
    let ExecuteProcess { command, args, cwd, env, as_root, as_user, timeout_sec } = request.json().await?;
    let program = ProgramInput { command, args, cwd, env, as_root, as_user };
    let input = ExecInput { program, timeout_sec, client_timeout: client_timeout(request.headers()) };
    let executed = request.while_served(request.services().processes.exec(request.session(), input)).await?;
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    Ok(stream::answer(response, request, executed::json(executed)))
}

/// What to start.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SpawnProcess {
    /// With `args` the program; without, a line for `/bin/sh -c`.
    #[schema(required, nullable = false)]
    command: Option<String>,
    /// At most 1000.
    args: Option<Vec<String>>,
    /// An absolute path. Default: the home of the session's user.
    cwd: Option<String>,
    /// Added to the session's environment.
    env: Option<BTreeMap<String, String>>,
    /// A session has no root.
    as_root: Option<bool>,
    /// A session has one user, `casement`.
    as_user: Option<String>,
    /// After how many seconds it is killed, 1 to 3600. Default: never.
    timeout_sec: Option<i64>,
    /// With a terminal. Default: false.
    allocate_tty: Option<bool>,
    /// Width of the terminal, 1 to 1000. Default: 80.
    cols: Option<i64>,
    /// Height of the terminal, 1 to 1000. Default: 24.
    rows: Option<i64>,
}

/// A program that was started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SpawnedProcess {
    process_id: String,
    /// Its number inside the session.
    pid: i32,
    #[schema(value_type = String, format = DateTime)]
    started_at: Moment,
}

pub(crate) async fn spawn_process(mut request: Request<ActiveSession>) -> Answer {
    let SpawnProcess { command, args, cwd, env, as_root, as_user, timeout_sec, allocate_tty, cols, rows } =
        request.json().await?;
    let program = ProgramInput { command, args, cwd, env, as_root, as_user };
    let input = SpawnInput { program, timeout_sec, allocate_tty, cols, rows };
    let spawned = request.services().processes.spawn(request.session(), input).await?;
    let location = format!("/browsers/{}/process/{}/status", request.session().id, spawned.id);
    let body =
        SpawnedProcess { process_id: spawned.id.to_string(), pid: spawned.pid, started_at: Moment(spawned.started_at) };
    Ok(answer::created(&location, &body))
}

/// Whether a program runs.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    Running,
    Exited,
}

/// How a program is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProcessStatus)]
pub(crate) struct StatusBody {
    state: State,
    /// Once it has ended; 128 and the signal's number when a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// Since the last question or its start, in percent of one processor; with all it has started.
    cpu_pct: f64,
    /// Resident; with all it has started.
    mem_bytes: u64,
}

pub(crate) async fn get_process_status(request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let ProcessStatus { state, cpu_pct, mem_bytes } =
        request.services().processes.status(request.session(), &which).await?;
    let (state, exit_code) = match state {
        ProcessState::Running => (State::Running, None),
        ProcessState::Exited(code) => (State::Exited, Some(code)),
    };
    Ok(answer::record(StatusCode::OK, &StatusBody { state, exit_code, cpu_pct, mem_bytes }))
}

/// What a program is to read.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct WriteProcessStdin {
    /// At most 1 MiB, in base64.
    #[schema(required, nullable = false)]
    data_b64: Option<String>,
}

/// How much a program took.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WrittenProcessStdin {
    /// Less than was sent when it does not read.
    written_bytes: u64,
}

pub(crate) async fn write_process_stdin(mut request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let WriteProcessStdin { data_b64 } = request.json().await?;
    let input = StdinInput { data_b64 };
    let written_bytes = request.services().processes.write(request.session(), &which, input).await?;
    Ok(answer::record(StatusCode::OK, &WrittenProcessStdin { written_bytes }))
}

/// What a program is told.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct KillProcess {
    /// `TERM`, `KILL`, `INT` or `HUP`.
    #[schema(required, nullable = false)]
    signal: Option<String>,
}

/// What a program is to show itself in.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ResizeProcess {
    /// 1 to 1000.
    #[schema(required, nullable = false)]
    cols: Option<i64>,
    /// 1 to 1000.
    #[schema(required, nullable = false)]
    rows: Option<i64>,
}

/// Done.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProcessDone)]
pub(crate) struct Done {
    ok: bool,
}

pub(crate) async fn kill_process(mut request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let KillProcess { signal } = request.json().await?;
    request.services().processes.kill(request.session(), &which, KillInput { signal }).await?;
    Ok(answer::record(StatusCode::OK, &Done { ok: true }))
}

pub(crate) async fn resize_process(mut request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let ResizeProcess { cols, rows } = request.json().await?;
    request.services().processes.resize(request.session(), &which, ResizeInput { cols, rows }).await?;
    Ok(answer::record(StatusCode::OK, &Done { ok: true }))
}

/// Something a program did: it wrote, or, as the last event, it ended.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ProcessEvent {
    /// It wrote.
    Data {
        /// `stdout` or `stderr`.
        stream: &'static str,
        data_b64: String,
        /// How many bytes before these were dropped, because the reader was too slow or came too late; left out for none.
        #[serde(skip_serializing_if = "Option::is_none")]
        dropped_bytes: Option<u64>,
    },
    /// It ended.
    Exit {
        /// `exit`.
        event: &'static str,
        exit_code: i32,
    },
}

impl From<Output> for ProcessEvent {
    fn from(output: Output) -> Self {
        match output {
            Output::Data { stream, data, dropped } => Self::Data {
                stream: match stream {
                    OutputStream::Stdout => "stdout",
                    OutputStream::Stderr => "stderr",
                },
                data_b64: STANDARD.encode(data),
                dropped_bytes: (dropped > 0).then_some(dropped),
            },
            Output::Exit { exit_code } => Self::Exit { event: "exit", exit_code },
        }
    }
}

pub(crate) async fn stream_process_output(request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let events = request.services().processes.output(request.session(), &which).await?;
    Ok(sse::answer(request, events.map(|event| event.map(ProcessEvent::from))))
}
