//! `casement invoke`: runs an action and prints its result.

use anyhow::{Context as _, bail};
use clap::Args;
use http::Method;
use serde_json::json;

use crate::arguments::read;
use crate::client::Call;
use crate::logs;
use crate::print_line;
use crate::progress::say;
use crate::server_options::ServerOptions;
use crate::sse::Events;
use crate::text::{json_without_controls, text, without_controls};

#[derive(Debug, Args)]
pub(crate) struct InvokeCommand {
    /// The name of the app
    app: String,
    /// The name of the action
    action: String,
    /// The payload as JSON; @FILE reads it from a file, - from standard input
    payload: Option<String>,
    /// The version of the app
    #[arg(long, value_name = "VERSION", default_value = "latest")]
    version: String,
    /// The timeout of the invocation in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u32).range(10..=3600))]
    timeout: u32,
    #[command(flatten)]
    server: ServerOptions,
}

pub(crate) async fn run(command: InvokeCommand) -> anyhow::Result<()> {
    let payload = command.payload.map(|payload| read(&payload, "PAYLOAD")).transpose()?;
    let mut request = json!({
        "app_name": command.app, "action_name": command.action, "version": command.version, "async": true,
        "async_timeout_seconds": command.timeout,
    });
    if let Some(payload) = payload {
        serde_json::from_str::<serde_json::Value>(&payload).context("the payload is not JSON")?;
        request["payload"] = payload.into();
    }
    let client = command.server.client()?;
    let (begun, _) = client.value(Call::new(Method::POST, ["invocations"]).json(&request)).await?;
    let id = text(&begun, "id");
    say(&format!("invocation {id}"));
    let (_, body) = client.send(Call::new(Method::GET, ["invocations", id, "events"])).await?;
    let mut events = Events::new(body);
    while let Some(event) = events.next().await? {
        let invocation = &event["invocation"];
        let status = text(invocation, "status");
        // How it ended is the result, or the error of this command.
        if !["succeeded", "failed"].contains(&status) {
            logs::show(&event);
        }
        match status {
            "succeeded" => {
                return print_line(&json_without_controls(invocation["output"].as_str().unwrap_or("null")));
            }
            "failed" => bail!("the invocation failed: {}", without_controls(text(invocation, "status_reason"))),
            _ => {}
        }
    }
    bail!("the server did not report how it ended: casement logs {id}")
}
