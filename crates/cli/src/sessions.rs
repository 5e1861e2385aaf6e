//! The commands below `sessions` that are more than one operation.

mod copy;
mod exec;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::{Command as Program, Stdio};

use anyhow::bail;
use clap::{ArgMatches, Args, Command, FromArgMatches as _};
use http::Method;
use serde_json::json;

use self::copy::CopyCommand;
use self::exec::ExecCommand;
use crate::client::{Call, Client};
use crate::generated::save;
use crate::output::{self, OutputOptions, print};
use crate::progress::{self, Transfer};
use crate::server_options::ServerOptions;
use crate::table;
use crate::text::{json_without_controls, text, without_controls};

/// The name of the resource.
pub(crate) const NAME: &str = "sessions";

/// Prints a URL of a session.
#[derive(Debug, Args)]
struct UrlCommand {
    /// The id or the name of the session
    #[arg(value_name = "ID|NAME")]
    session: String,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Args)]
struct ScreenshotCommand {
    /// The id of the session
    #[arg(value_name = "ID")]
    session: String,
    /// The file to write [default: standard output, unless it is a terminal]
    #[arg(short = 'f', long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Args)]
struct ScriptCommand {
    /// The id of the session
    #[arg(value_name = "ID")]
    session: String,
    /// The script as text, @FILE, or - for standard input
    #[arg(value_name = "SCRIPT")]
    code: String,
    /// The timeout in seconds, 1 to 600 [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    timeout: Option<u32>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// Adds the commands to those that are made from operations.
pub(crate) fn add_to(sessions: Command) -> Command {
    // The description comes last, because arguments bring their own.
    let verbs = [
        UrlCommand::augment_args(Command::new("open")).about("Open the live view of a session, or print its URL"),
        UrlCommand::augment_args(Command::new("cdp")).about("Print the URL of the DevTools Protocol of a session"),
        ExecCommand::augment_args(Command::new("exec")).about("Run a program in a session, and print its output"),
        CopyCommand::augment_args(Command::new("cp")).about("Copy files to or from a session"),
        ScreenshotCommand::augment_args(Command::new("screenshot")).about("Take a screenshot of the display"),
        ScriptCommand::augment_args(Command::new("script"))
            .about("Run TypeScript or JavaScript with Playwright in a session, and print its result"),
    ];
    sessions.subcommands(verbs)
}

/// Runs a command of this module, and returns its exit code; `None` if the command is made from an operation.
///
/// # Errors
/// If the server refuses a request, or a file cannot be read or written.
pub(crate) async fn run(verb: &str, matches: &ArgMatches) -> anyhow::Result<Option<u8>> {
    match verb {
        "open" => open(&url_of(matches, "browser_live_view_url").await?)?,
        "cdp" => print(&without_controls(&url_of(matches, "cdp_ws_url").await?))?,
        "exec" => return exec::run(ExecCommand::from_arg_matches(matches)?).await.map(Some),
        "cp" => copy::run(CopyCommand::from_arg_matches(matches)?).await?,
        "screenshot" => screenshot(ScreenshotCommand::from_arg_matches(matches)?).await?,
        "script" => script(ScriptCommand::from_arg_matches(matches)?).await?,
        _ => return Ok(None),
    }
    Ok(Some(0))
}

/// Returns why a session has no telemetry events: it records none, or it has ended.
pub(crate) async fn why_silent(client: &Client, path: &[String]) -> Option<String> {
    let query = [("include_deleted", "true")];
    let session = client.find(&["browsers", path.get(1)?], &query).await.ok().flatten()?;
    if session["telemetry"].is_null() {
        return Some("the session was created without --telemetry".to_owned());
    }
    let ended = table::cell_since(&session["deleted_at"])?;
    Some(format!("the session ended {ended} ago"))
}

async fn url_of(matches: &ArgMatches, field: &str) -> anyhow::Result<String> {
    let command = UrlCommand::from_arg_matches(matches)?;
    let (session, _) = command.server.client()?.value(Call::new(Method::GET, ["browsers", &command.session])).await?;
    Ok(text(&session, field).to_owned())
}

/// Opens a page in the desktop's browser. Without a desktop, prints its URL.
fn open(url: &str) -> anyhow::Result<()> {
    // The server may be anybody's, and the desktop opens files and programs by URL too.
    if !url.starts_with("http://") && !url.starts_with("https://") {
        bail!("the server returned no URL of a live view");
    }
    print(&without_controls(url))?;
    let has_desktop = std::env::var_os("DISPLAY").is_some() || std::env::var_os("WAYLAND_DISPLAY").is_some();
    if has_desktop {
        let mut opener = Program::new("xdg-open");
        opener.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if opener.spawn().is_err() {
            progress::say("there is no xdg-open: open the URL in a browser");
        }
    }
    Ok(())
}

async fn screenshot(command: ScreenshotCommand) -> anyhow::Result<()> {
    if command.to_file.is_none() && std::io::stdout().is_terminal() {
        bail!("this would write an image to the terminal: give --to-file FILE");
    }
    let call = Call::new(Method::POST, ["browsers", &command.session, "computer", "screenshot"]).json(&json!({}));
    let (headers, body) = command.server.client()?.send(call).await?;
    save(&headers, body, command.to_file.as_deref()).await
}

async fn script(command: ScriptCommand) -> anyhow::Result<()> {
    let mut body = json!({ "code": crate::arguments::read(&command.code, "SCRIPT")? });
    if let Some(timeout) = command.timeout {
        body["timeout_sec"] = timeout.into();
    }
    let client = command.server.client()?;
    let waiting = Transfer::waiting("the script runs");
    let call = Call::new(Method::POST, ["browsers", &command.session, "playwright", "execute"]).json(&body);
    let (end, _) = client.value(call).await?;
    drop(waiting);
    if !command.output.format.is_table() {
        print(&output::formatted(&end, command.output.format, &[])?)?;
    } else {
        for stream in ["stdout", "stderr"] {
            text(&end, stream).lines().for_each(progress::say);
        }
        if let Some(result) = end.get("result") {
            print(&json_without_controls(&serde_json::to_string_pretty(result)?))?;
        }
    }
    if end["success"] != true {
        bail!(
            "the script failed: {}",
            text(&end, "error").lines().map(without_controls).collect::<Vec<_>>().join("\n")
        );
    }
    Ok(())
}
