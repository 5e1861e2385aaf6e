//! `casement logs`: prints the log of a build or a call, to its end.

use anyhow::{Context as _, bail};
use clap::Args;
use http::Method;
use serde_json::Value;

use crate::client::{Call, Client};
use crate::print_line;
use crate::progress::say;
use crate::server_options::ServerOptions;
use crate::sse::Events;
use crate::text::{text, without_controls};

#[derive(Debug, Args)]
pub(crate) struct LogsCommand {
    /// The id of an invocation or a deployment, or the name of an app for its latest invocation
    #[arg(value_name = "ID|APP")]
    of: String,
    /// Show the build of the app's latest deployment
    #[arg(long)]
    build: bool,
    /// End after the stored lines, instead of waiting for more
    #[arg(long)]
    no_follow: bool,
    #[command(flatten)]
    server: ServerOptions,
}

pub(crate) async fn run(command: LogsCommand) -> anyhow::Result<()> {
    let client = command.server.client()?;
    let (kind, id) = found(&client, &command.of, command.build).await?;
    let mut call = Call::new(Method::GET, [kind, &id, "events"]);
    if command.no_follow {
        call.query.push(("follow", "false"));
    }
    let (_, body) = client.send(call).await?;
    let mut events = Events::new(body);
    while let Some(event) = events.next().await? {
        match text(&event, "event") {
            "log" => print_line(&without_controls(text(&event, "message")))?,
            _ => show(&event),
        }
    }
    Ok(())
}

/// Returns the kind and the id of what the logs are of: an invocation, or else the deployment of an app without one.
async fn found(client: &Client, of: &str, is_build: bool) -> anyhow::Result<(&'static str, String)> {
    for kind in ["invocations", "deployments"] {
        if client.find(&[kind, of], &[]).await?.is_some() {
            return Ok((kind, of.to_owned()));
        }
    }
    let query = [("app_name", of), ("limit", "1")];
    let kinds: &[&'static str] = if is_build { &["deployments"] } else { &["invocations", "deployments"] };
    for kind in kinds {
        let latest = client.find(&[*kind], &query).await?.with_context(|| format!("the server knows of no {kind}"))?;
        if let Some(id) = latest.get(0).map(|latest| text(latest, "id")) {
            say(&format!("the latest of the {kind} of {of}: {id}"));
            return Ok((*kind, id.to_owned()));
        }
    }
    bail!("there is no invocation, deployment or app {of}")
}

/// Prints an event of a build or a call.
pub(crate) fn show(event: &Value) {
    match text(event, "event") {
        "log" => say(text(event, "message")),
        "deployment_state" => state("deployment", &event["deployment"]),
        "invocation_state" => state("invocation", &event["invocation"]),
        "error" => say(&format!("error: {}", text(&event["error"], "message"))),
        _ => {}
    }
}

fn state(what: &str, record: &Value) {
    let reason = text(record, "status_reason");
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    say(&format!("{what} {}{reason}", text(record, "status").replace('_', " ")));
}
