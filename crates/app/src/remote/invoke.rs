//! `casement invoke`: runs an action and prints its result.

use std::io::Read as _;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;

use super::{Remote, json_without_controls, logs, print_line, progress, text, without_controls};

#[derive(Debug, Args)]
pub(crate) struct InvokeCommand {
    /// The name of the app
    app: String,
    /// The name of the action
    action: String,
    /// The payload as JSON; - reads it from standard input
    payload: Option<String>,
    /// The version of the app
    #[arg(long, value_name = "VERSION", default_value = "latest")]
    version: String,
    /// The timeout of the invocation in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u32).range(10..=3600))]
    timeout: u32,
    #[command(flatten)]
    remote: Remote,
}

pub(super) async fn run(command: InvokeCommand) -> anyhow::Result<()> {
    let payload = match command.payload.as_deref() {
        Some("-") => {
            let mut read = String::new();
            std::io::stdin().read_to_string(&mut read).context("the payload cannot be read")?;
            Some(read)
        }
        given => given.map(str::to_owned),
    };
    let mut request = json!({
        "app_name": command.app, "action_name": command.action, "version": command.version, "async": true,
        "async_timeout_seconds": command.timeout,
    });
    if let Some(payload) = payload {
        serde_json::from_str::<serde_json::Value>(&payload).context("the payload is not JSON")?;
        request["payload"] = payload.into();
    }
    let api = command.remote.api()?;
    let begun = api.post(&["invocations"], "application/json", request.to_string().into_bytes()).await?;
    let id = text(&begun, "id");
    progress(&format!("invocation {id}"));
    let mut events = super::sse::Events::new(api.stream(&["invocations", id, "events"]).await?);
    while let Some(event) = events.next().await? {
        logs::show(&event);
        let invocation = &event["invocation"];
        match text(invocation, "status") {
            "succeeded" => {
                return print_line(&json_without_controls(invocation["output"].as_str().unwrap_or("null")));
            }
            "failed" => bail!("the invocation failed: {}", without_controls(text(invocation, "status_reason"))),
            _ => {}
        }
    }
    bail!("the server did not report how it ended: casement logs {id}")
}
