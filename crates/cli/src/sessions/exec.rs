//! `casement sessions exec`: runs a program in a session. Its output appears while it runs.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use crate::arguments::name_and_value;
use crate::client::{Call, Client};
use crate::progress;
use crate::server_options::ServerOptions;
use crate::sse::Events;
use crate::text::text;

#[derive(Debug, Args)]
pub(crate) struct ExecCommand {
    /// The id of the session
    #[arg(value_name = "ID")]
    session: String,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
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

/// Runs the command. Returns the exit code of the program. Ctrl-C kills the program.
pub(super) async fn run(command: ExecCommand) -> anyhow::Result<u8> {
    let client = command.server.client()?;
    let (program, arguments) = command.command.split_first().context("no program is named")?;
    let mut body = json!({ "command": program, "args": arguments });
    let env = command.env.into_iter().map(|(name, value)| (name, Value::from(value)));
    body["env"] = Value::Object(env.collect());
    if let Some(cwd) = command.cwd {
        body["cwd"] = cwd.into();
    }
    if let Some(timeout) = command.timeout {
        body["timeout_sec"] = timeout.into();
    }
    let session = command.session.as_str();
    let spawn = Call::new(Method::POST, ["browsers", session, "process", "spawn"]).json(&body);
    let (started, _) = client.value(spawn).await?;
    let process = text(&started, "process_id");
    tokio::select! {
        code = output_of(&client, session, process) => code,
        _ = tokio::signal::ctrl_c() => {
            let kill = Call::new(Method::POST, ["browsers", session, "process", process, "kill"]);
            client.value(kill.json(&json!({ "signal": "KILL" }))).await?;
            bail!("interrupted: the program was killed")
        }
    }
}

/// Prints the output of a program until its end. Returns its exit code.
async fn output_of(client: &Client, session: &str, process: &str) -> anyhow::Result<u8> {
    let path = ["browsers", session, "process", process, "stdout", "stream"];
    let (_, body) = client.send(Call::new(Method::GET, path)).await?;
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
