//! `casement sessions exec`: runs a program in a session. Its output appears while it runs, and standard input is passed on.

use std::io::{IsTerminal as _, Read as _, Write as _};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::arguments::name_and_value;
use crate::client::{Call, Client, Refusal};
use crate::progress;
use crate::server_options::ServerOptions;
use crate::sse::Events;
use crate::terminal::{self, RawMode};
use crate::text::text;

/// The bytes of standard input that are sent in one request.
const CHUNK: usize = 256 << 10;

#[derive(Debug, Args)]
pub(crate) struct ExecCommand {
    /// The id or the name of the session
    #[arg(value_name = "ID|NAME")]
    session: String,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// Pass on what is typed; standard input that is no terminal is always passed on
    #[arg(short, long)]
    interactive: bool,
    /// Run the program in a terminal of the size of this one
    #[arg(short, long)]
    tty: bool,
    /// The working directory in the session
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// An environment variable of the program; may be given several times
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = name_and_value, action = clap::ArgAction::Append)]
    env: Vec<(String, String)>,
    /// The timeout in seconds, 1 to 3600, after which the program is killed [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: Option<u32>,
    #[command(flatten)]
    server: ServerOptions,
}

/// A program that was started in a session.
struct Started<'a> {
    client: &'a Client,
    session: &'a str,
    process: &'a str,
}

/// Runs the command. Returns the exit code of the program. Ctrl-C kills the program, unless it has a terminal.
pub(super) async fn run(command: ExecCommand) -> anyhow::Result<u8> {
    let has_terminal = std::io::stdin().is_terminal();
    ensure!(!command.tty || has_terminal, "--tty needs a terminal, and standard input is none");
    let client = command.server.client()?;
    let (spawned, _) = client.value(spawn(&command)?).await?;
    let started = Started { client: &client, session: command.session.as_str(), process: text(&spawned, "process_id") };
    let raw = command.tty.then(RawMode::enter).transpose()?;
    let input = async {
        if command.interactive || command.tty || !has_terminal {
            started.pass_on_input().await?;
        } else {
            started.write(&[], true).await?;
        }
        std::future::pending::<anyhow::Result<u8>>().await
    };
    tokio::select! {
        code = started.print_output() => code,
        failed = input => failed,
        failed = started.follow_size(), if raw.is_some() => failed,
        _ = tokio::signal::ctrl_c() => {
            started.post("kill", &json!({ "signal": "KILL" })).await?;
            bail!("interrupted: the program was killed")
        }
    }
}

/// Returns the request that starts the program.
fn spawn(command: &ExecCommand) -> anyhow::Result<Call<'_>> {
    let (program, arguments) = command.command.split_first().context("no program is named")?;
    let mut body = json!({ "command": program, "args": arguments });
    let env = command.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    body["env"] = Value::Object(env.collect());
    if let Some(cwd) = &command.cwd {
        body["cwd"] = cwd.as_str().into();
    }
    if let Some(timeout) = command.timeout {
        body["timeout_sec"] = timeout.into();
    }
    if command.tty {
        let (cols, rows) = terminal::size().context("the size of the terminal is unknown")?;
        body["allocate_tty"] = true.into();
        body["cols"] = cols.into();
        body["rows"] = rows.into();
    }
    Ok(Call::new(Method::POST, ["browsers", command.session.as_str(), "process", "spawn"]).json(&body))
}

impl Started<'_> {
    async fn post(&self, what: &str, body: &Value) -> anyhow::Result<Value> {
        let path = ["browsers", self.session, "process", self.process, what];
        Ok(self.client.value(Call::new(Method::POST, path).json(body)).await?.0)
    }

    /// Passes standard input on, to its end.
    async fn pass_on_input(&self) -> anyhow::Result<()> {
        let mut chunks = read_input();
        while let Some(chunk) = chunks.recv().await {
            if !self.write(&chunk.context("standard input cannot be read")?, false).await? {
                return Ok(());
            }
        }
        self.write(&[], true).await.map(drop)
    }

    /// Writes to the program, which may read slowly. Returns false if it reads nothing more.
    async fn write(&self, mut data: &[u8], is_last: bool) -> anyhow::Result<bool> {
        loop {
            let body = json!({ "data_b64": STANDARD.encode(data), "eof": is_last });
            let written = match self.post("stdin", &body).await {
                Ok(written) => written["written_bytes"].as_u64().context("the server did not say what was written")?,
                Err(error) if error.downcast_ref::<Refusal>().is_some_and(|it| it.status == StatusCode::CONFLICT) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            data = data.get(usize::try_from(written)?..).unwrap_or_default();
            if data.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Gives the program's terminal each new size of this one.
    async fn follow_size(&self) -> anyhow::Result<u8> {
        let mut changes = signal(SignalKind::window_change())?;
        while changes.recv().await.is_some() {
            if let Some((cols, rows)) = terminal::size() {
                self.post("resize", &json!({ "cols": cols, "rows": rows })).await?;
            }
        }
        std::future::pending().await
    }

    /// Prints the output of the program until its end. Returns its exit code.
    async fn print_output(&self) -> anyhow::Result<u8> {
        let path = ["browsers", self.session, "process", self.process, "stdout", "stream"];
        let (_, body) = self.client.send(Call::new(Method::GET, path)).await?;
        let mut events = Events::new(body);
        while let Some(event) = events.next().await? {
            if let Some(dropped) = event["dropped_bytes"].as_u64() {
                progress::say(&format!("{dropped} bytes of output were lost"));
            }
            if event["event"] == "exit" {
                let code = event["exit_code"].as_i64().unwrap_or(1);
                return Ok(u8::try_from(code).unwrap_or(1));
            }
            // The output is the caller's program's, so it is not filtered.
            let data = STANDARD.decode(text(&event, "data_b64")).context("the output is not base64")?;
            if event["stream"] == "stderr" {
                std::io::stderr().write_all(&data)?
            } else {
                std::io::stdout().write_all(&data)?
            }
            std::io::stdout().flush()?;
        }
        bail!("the session ended before the program")
    }
}

/// Reads standard input in a thread that nothing waits for: a read of a terminal cannot be ended.
fn read_input() -> mpsc::Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match input.read(&mut chunk) {
                Ok(0) => return,
                Ok(length) => Ok(chunk[..length].to_vec()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            if sender.blocking_send(read).is_err() {
                return;
            }
        }
    });
    receiver
}
