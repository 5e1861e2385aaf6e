//! The handlers of programs in sessions: run, start, status, input, output, signal, resize.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, http::StatusCode};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use casement_domain::{
    field::{self, FieldCode, InvalidInput, InvalidValue},
    process::{Exec, Output, OutputStream, ProcessState, ProcessStatus, Processes, ProgramRequest, parse_stdin},
};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use super::executed;
use crate::{
    answer::{self, Answer, Moment},
    client_timeout::client_timeout,
    request::{ActiveSession, Request},
    schema::ToSchema,
    sse, stream,
};

/// The program to run and wait for.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ExecuteProcess {
    /// With `args`, the program; without, a command line for `/bin/sh -c`. Required.
    #[schema(required, nullable = false)]
    command: Option<String>,
    /// The arguments of the program, at most 1000.
    args: Option<Vec<String>>,
    /// The working directory, an absolute path. Default: the home of the session's user.
    cwd: Option<String>,
    /// Environment variables that are added to those of the session.
    env: Option<BTreeMap<String, String>>,
    /// May not be true, because a session has no root user.
    as_root: Option<bool>,
    /// May only be `casement`, the only user of a session.
    as_user: Option<String>,
    /// The timeout in seconds, 1 to 3600. Default: 60.
    timeout_sec: Option<i64>,
}

/// The exit code of a program and the first 10 MiB of each of its outputs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecutedProcess {
    /// The exit code; 127 if the program does not exist; 128 plus the number of the signal that ended the program.
    exit_code: i32,
    duration_ms: u64,
    stdout_b64: String,
    stderr_b64: String,
    /// The number of further bytes of standard output, if any.
    stdout_dropped_bytes: Option<u64>,
    /// The number of further bytes of standard error, if any.
    stderr_dropped_bytes: Option<u64>,
}

pub(crate) async fn execute_process(mut request: Request<ActiveSession>) -> Answer {
    let ExecuteProcess { command, args, cwd, env, as_root, as_user, timeout_sec } = request.json().await?;
    let program = ProgramRequest { command, args, cwd, env, as_root, as_user };
    let exec = Exec::parse(program, timeout_sec, client_timeout(request.headers()))?;
    let executed = request.while_served(request.services().processes.exec(request.session(), exec)).await?;
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    Ok(stream::answer(response, request, executed::json(executed)))
}

/// The program to start.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SpawnProcess {
    /// With `args`, the program; without, a command line for `/bin/sh -c`. Required.
    #[schema(required, nullable = false)]
    command: Option<String>,
    /// The arguments of the program, at most 1000.
    args: Option<Vec<String>>,
    /// The working directory, an absolute path. Default: the home of the session's user.
    cwd: Option<String>,
    /// Environment variables that are added to those of the session.
    env: Option<BTreeMap<String, String>>,
    /// May not be true, because a session has no root user.
    as_root: Option<bool>,
    /// May only be `casement`, the only user of a session.
    as_user: Option<String>,
    /// The timeout in seconds, 1 to 3600, after which the program is killed. Default: none.
    timeout_sec: Option<i64>,
    /// Whether the program has a terminal. Default: false.
    allocate_tty: Option<bool>,
    /// The width of the terminal in columns, 1 to 1000. Default: 80.
    cols: Option<i64>,
    /// The height of the terminal in rows, 1 to 1000. Default: 24.
    rows: Option<i64>,
}

/// A started program.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SpawnedProcess {
    process_id: String,
    /// The process id inside the session.
    pid: i32,
    #[schema(value_type = String, format = DateTime)]
    started_at: Moment,
}

pub(crate) async fn spawn_process(mut request: Request<ActiveSession>) -> Answer {
    let SpawnProcess { command, args, cwd, env, as_root, as_user, timeout_sec, allocate_tty, cols, rows } =
        request.json().await?;
    let program = ProgramRequest { command, args, cwd, env, as_root, as_user };
    let (processes, with_terminal) = (&request.services().processes, allocate_tty == Some(true));
    let spawned = processes.spawn(request.session(), program, timeout_sec, with_terminal, cols, rows).await?;
    let location = format!("/browsers/{}/process/{}/status", request.session().id, spawned.id);
    let body =
        SpawnedProcess { process_id: spawned.id.to_string(), pid: spawned.pid, started_at: Moment(spawned.started_at) };
    Ok(answer::created(&location, &body))
}

/// The state of a program.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    Running,
    Exited,
}

/// The status of a program.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProcessStatus)]
pub(crate) struct StatusBody {
    state: State,
    /// The exit code of an ended program; 128 plus the number of the signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// The CPU usage of the program and its descendants since the last request or the start, in percent of one CPU.
    cpu_pct: f64,
    /// The resident memory of the program and its descendants in bytes.
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

/// The input of a program.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct WriteProcessStdin {
    /// The input, at most 1 MiB, in base64. Required.
    #[schema(required, nullable = false)]
    data_b64: Option<String>,
    /// Whether the input ends with this data. It ends once all of the data was accepted. Default: false.
    eof: Option<bool>,
}

/// The pattern of base 64. It also accepts a last character with bits that belong to no byte.
#[cfg(any(test, feature = "openapi"))]
pub(crate) const BASE64_PATTERN: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";

impl WriteProcessStdin {
    fn data(self) -> Result<Bytes, InvalidInput> {
        field::required("data_b64", self.data_b64, |text| {
            let bad = |_| InvalidValue::new(FieldCode::InvalidFormat, "must be base64");
            parse_stdin(STANDARD.decode(text).map_err(bad)?)
        })
    }
}

/// The number of bytes that a program accepted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WrittenProcessStdin {
    /// The number of accepted bytes: fewer than were sent if the program does not read them.
    written_bytes: u64,
}

pub(crate) async fn write_process_stdin(mut request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let body = request.json::<WriteProcessStdin>().await?;
    let (id, is_last) = (Processes::id(&which)?, body.eof.unwrap_or_default());
    let written_bytes = request.services().processes.write(request.session(), id, body.data()?, is_last).await?;
    Ok(answer::record(StatusCode::OK, &WrittenProcessStdin { written_bytes }))
}

/// The signal to send to a program.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct KillProcess {
    /// `TERM`, `KILL`, `INT` or `HUP`. Required.
    #[schema(required, nullable = false)]
    signal: Option<String>,
}

/// The new size of a program's terminal.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ResizeProcess {
    /// The width in columns, 1 to 1000. Required.
    #[schema(required, nullable = false)]
    cols: Option<i64>,
    /// The height in rows, 1 to 1000. Required.
    #[schema(required, nullable = false)]
    rows: Option<i64>,
}

/// The result of a completed operation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProcessDone)]
pub(crate) struct Done {
    ok: bool,
}

pub(crate) async fn kill_process(mut request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let KillProcess { signal } = request.json().await?;
    request.services().processes.kill(request.session(), &which, signal.as_deref()).await?;
    Ok(answer::record(StatusCode::OK, &Done { ok: true }))
}

pub(crate) async fn resize_process(mut request: Request<ActiveSession>) -> Answer {
    let which = request.path("process_id")?;
    let ResizeProcess { cols, rows } = request.json().await?;
    request.services().processes.resize(request.session(), &which, cols, rows).await?;
    Ok(answer::record(StatusCode::OK, &Done { ok: true }))
}

/// An event of a program: output, or, as the last event, its end.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ProcessEvent {
    /// Output.
    Data {
        /// `stdout` or `stderr`.
        stream: &'static str,
        data_b64: String,
        /// The number of bytes before these that were dropped because the reader was too slow or too late; absent if
        /// none.
        #[serde(skip_serializing_if = "Option::is_none")]
        dropped_bytes: Option<u64>,
    },
    /// The end of the program.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_comes_in_base64_of_at_most_1_mib() {
        let data = |text: &str| WriteProcessStdin { data_b64: Some(text.to_owned()), eof: None }.data();
        assert_eq!(data("AGE=").expect("bytes"), b"\0a".as_slice());
        assert!(data("%").is_err() && data(&STANDARD.encode(vec![0; (1 << 20) + 1])).is_err());
        assert!(data(&STANDARD.encode(vec![0; 1 << 20])).is_ok());
        assert!(WriteProcessStdin::default().data().is_err());
    }
}
