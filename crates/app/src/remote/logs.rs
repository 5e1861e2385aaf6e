//! `casement logs`: prints the log of a build or a call, to its end.

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;

use super::api::Api;
use super::{Remote, print_line, progress, text, without_controls};

#[derive(Debug, Args)]
pub(crate) struct LogsCommand {
    /// The id of an invocation or a deployment, or the name of an app for its latest deployment
    of: String,
    #[command(flatten)]
    remote: Remote,
}

pub(super) async fn run(command: LogsCommand) -> anyhow::Result<()> {
    let api = command.remote.api()?;
    let (kind, id) = found(&api, &command.of).await?;
    let mut events = super::sse::Events::new(api.stream(&[kind, &id, "events"]).await?);
    while let Some(event) = events.next().await? {
        match text(&event, "event") {
            "log" => print_line(&without_controls(text(&event, "message")))?,
            _ => show(&event),
        }
    }
    Ok(())
}

async fn found(api: &Api, of: &str) -> anyhow::Result<(&'static str, String)> {
    for kind in ["invocations", "deployments"] {
        if api.find(&[kind, of], &[]).await?.is_some() {
            return Ok((kind, of.to_owned()));
        }
    }
    let query = [("app_name", of), ("limit", "1")];
    let deployments = api.find(&["deployments"], &query).await?.context("the server knows of no deployments")?;
    match deployments.get(0).map(|deployment| text(deployment, "id")) {
        Some(id) => Ok(("deployments", id.to_owned())),
        None => bail!("there is no invocation, deployment or app {of}"),
    }
}

/// Prints an event of a build or a call.
pub(super) fn show(event: &Value) {
    match text(event, "event") {
        "log" => progress(text(event, "message")),
        "deployment_state" => state("deployment", &event["deployment"]),
        "invocation_state" => state("invocation", &event["invocation"]),
        "error" => progress(&format!("error: {}", text(&event["error"], "message"))),
        _ => {}
    }
}

fn state(what: &str, record: &Value) {
    let reason = text(record, "status_reason");
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    progress(&format!("{what} {}{reason}", text(record, "status").replace('_', " ")));
}
