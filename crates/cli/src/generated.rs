//! The commands that are made from operations of the API.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _};
use http::HeaderMap;
use serde_json::Value;

use crate::arguments::{self, Request};
use crate::client::{Call, Client, whole};
use crate::document::{Body, Document, Operation, Response};
use crate::form::Form;
use crate::output::{self, Format, OutputOptions};
use crate::progress::{self, Transfer};
use crate::resources::{Resource, Verb};
use crate::server_options::ServerOptions;
use crate::sse::Events;

const ALL: &str = "all";
const WATCH: &str = "watch";
const FILE: &str = "to-file";
const DEFAULT_WATCH_SECONDS: &str = "2";

/// Returns the command of a resource with the commands of its verbs.
///
/// # Errors
/// If the document lacks an operation.
pub(crate) fn command(resource: &Resource, document: &Document) -> anyhow::Result<Command> {
    let mut command =
        Command::new(resource.name).about(resource.about).subcommand_required(true).arg_required_else_help(true);
    for verb in resource.verbs {
        command = command.subcommand(verb_command(verb, document)?);
    }
    Ok(command)
}

fn verb_command(verb: &Verb, document: &Document) -> anyhow::Result<Command> {
    let operation = document.operation(verb.operation)?;
    let command = arguments::add(Command::new(verb.name), verb, &operation);
    let command = match operation.response {
        Response::File => command.arg(
            Arg::new(FILE)
                .short('f')
                .long("to-file")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("The file to write [default: standard output, unless it is a terminal]"),
        ),
        Response::List | Response::Record if operation.method == http::Method::GET => command.arg(
            Arg::new(WATCH)
                .long(WATCH)
                .value_name("SECONDS")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(DEFAULT_WATCH_SECONDS)
                .value_parser(clap::value_parser!(u64).range(1..=3600))
                .help("Print again after each change; asks the server every two seconds, or as given"),
        ),
        _ => command,
    };
    let command = if has_pages(&operation) {
        command.arg(Arg::new(ALL).long(ALL).action(ArgAction::SetTrue).help("All pages, not only one"))
    } else {
        command
    };
    // The description comes last, because arguments bring their own.
    Ok(ServerOptions::augment_args(OutputOptions::augment_args(command)).about(operation.summary))
}

fn has_pages(operation: &Operation) -> bool {
    operation.response == Response::List && operation.query.iter().any(|field| field.name == "offset")
}

/// Runs a verb of a resource.
///
/// # Errors
/// If an argument is invalid, or the server refuses a request.
pub(crate) async fn run(
    resource: &Resource,
    verb: &Verb,
    matches: &ArgMatches,
    document: &Document,
) -> anyhow::Result<()> {
    let operation = document.operation(verb.operation)?;
    let client = ServerOptions::from_arg_matches(matches)?.client()?;
    let format = OutputOptions::from_arg_matches(matches)?.format;
    for request in arguments::requests(matches, &operation)? {
        let command =
            Running { client: &client, operation: &operation, request: &request, format, columns: resource.columns };
        match operation.response {
            Response::None => {
                command.value().await?;
                progress::say(&format!("{} {}: done", verb.name, request.path.get(1).map_or("", String::as_str)));
            }
            Response::Stream => command.follow().await?,
            Response::File => command.download(matches.get_one::<PathBuf>(FILE).map(PathBuf::as_path)).await?,
            Response::List | Response::Record => match matches.try_get_one::<u64>(WATCH).ok().flatten() {
                Some(seconds) => command.watch(Duration::from_secs(*seconds)).await?,
                None => {
                    let is_all = matches.try_get_one::<bool>(ALL).ok().flatten().copied().unwrap_or_default();
                    command.print(is_all).await?;
                }
            },
        }
    }
    Ok(())
}

/// A command with its request.
struct Running<'a> {
    client: &'a Client,
    operation: &'a Operation,
    request: &'a Request,
    format: Format,
    columns: &'a [&'a str],
}

impl Running<'_> {
    fn call(&self) -> anyhow::Result<Call<'_>> {
        let body = match (&self.operation.body, &self.request.body) {
            (Body::Form(fields), Some(values)) => Some(Form::of(fields, values)?.into_body()),
            (_, Some(values)) => Some(("application/json".to_owned(), whole(serde_json::to_string(values)?))),
            (_, None) => None,
        };
        Ok(Call {
            method: self.operation.method.clone(),
            path: self.request.path.iter().map(String::as_str).collect(),
            query: self.request.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            body,
        })
    }

    async fn value(&self) -> anyhow::Result<(Value, HeaderMap)> {
        self.client.value(self.call()?).await
    }

    async fn print(&self, is_all: bool) -> anyhow::Result<()> {
        let (mut value, headers) = self.value().await?;
        let mut next = next_offset(&headers);
        while let (true, Some(offset), Some(records)) = (is_all, next.as_deref(), value.as_array_mut()) {
            let mut call = self.call()?;
            call.query.retain(|(name, _)| *name != "offset");
            call.query.push(("offset", offset));
            let (page, headers) = self.client.value(call).await?;
            records.extend(page.as_array().into_iter().flatten().cloned());
            next = next_offset(&headers);
        }
        if value.is_null() {
            progress::say("nothing");
        }
        output::print(&output::formatted(&value, self.format, self.columns)?)?;
        if let Some(offset) = next {
            progress::say(&format!("there is more: --offset {offset}, or --all"));
        }
        Ok(())
    }

    /// Prints the records whenever they have changed.
    async fn watch(&self, interval: Duration) -> anyhow::Result<()> {
        let clears = self.format == Format::Table && std::io::stdout().is_terminal();
        let mut last = None;
        loop {
            let (value, _) = self.value().await?;
            if last.as_ref() != Some(&value) {
                let text = output::formatted(&value, self.format, self.columns)?;
                // Clears the terminal, and moves to its first line.
                output::print(&format!("{}{text}", if clears { "\u{1b}[2J\u{1b}[H" } else { "" }))?;
                last = Some(value);
            }
            tokio::time::sleep(interval).await;
        }
    }

    /// Prints the events of a stream until its end.
    async fn follow(&self) -> anyhow::Result<()> {
        let (_, body) = self.client.send(self.call()?).await?;
        let mut events = Events::new(body);
        while let Some(event) = events.next().await? {
            let text = match self.format {
                Format::Json | Format::Table => crate::text::json_without_controls(&event.to_string()),
                Format::Yaml => format!("---\n{}", output::formatted(&event, Format::Yaml, &[])?),
            };
            output::print(&text)?;
        }
        Ok(())
    }

    async fn download(&self, file: Option<&Path>) -> anyhow::Result<()> {
        if file.is_none() && std::io::stdout().is_terminal() {
            bail!("this would write a file to the terminal: give --to-file FILE");
        }
        let (headers, body) = self.client.send(self.call()?).await?;
        save(&headers, body, file).await
    }
}

/// Writes a body to a file, or to standard output. An incomplete file is removed.
///
/// # Errors
/// If the body breaks off, or the file cannot be written.
pub(crate) async fn save(
    headers: &HeaderMap,
    mut body: hyper::body::Incoming,
    file: Option<&Path>,
) -> anyhow::Result<()> {
    use http_body_util::BodyExt as _;
    let length = headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let transfer = Transfer::new(length, file.is_some());
    let Some(file) = file else {
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the download broke off")?;
            std::io::stdout().write_all(frame.data_ref().map_or(&[][..], |data| data))?;
        }
        return Ok(std::io::stdout().flush()?);
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut incomplete = tempfile::Builder::new()
        .prefix(".casement-")
        .tempfile_in(folder)
        .with_context(|| format!("cannot write to {}", folder.display()))?;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the download broke off")?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        incomplete.write_all(data)?;
        transfer.advance(data.len());
    }
    incomplete.flush()?;
    incomplete.persist(file).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

fn next_offset(headers: &HeaderMap) -> Option<String> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    header("x-has-more").filter(|more| more == "true").and_then(|_| header("x-next-offset"))
}
