//! The commands that are made from operations of the API.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _};
use http::HeaderMap;
use serde_json::{Value, json};

use crate::arguments::{self, Request};
use crate::client::{Call, Client, whole};
use crate::document::{Body, Document, Operation, Response};
use crate::form::Form;
use crate::names;
use crate::output::{self, ClosedOutput, Format, OutputOptions};
use crate::progress::{self, Transfer};
use crate::resources::{Resource, Verb};
use crate::server_options::ServerOptions;
use crate::sessions;
use crate::sse::Events;
use crate::table::Column;
use crate::text::without_controls;

const ALL: &str = "all";
const WATCH: &str = "watch";
const FILE: &str = "to-file";
const POOL: &str = "pool";
const LIST_SESSIONS: &str = "list_browsers";
const DEFAULT_WATCH_SECONDS: &str = "2";

/// Returns the command of a resource with the commands of its verbs.
///
/// # Errors
/// If the document lacks an operation.
pub(crate) fn command(resource: &Resource, document: &Document) -> anyhow::Result<Command> {
    let mut command = Command::new(resource.name)
        .visible_aliases(resource.aliases)
        .about(resource.about)
        .subcommand_required(true)
        .arg_required_else_help(true);
    for verb in resource.verbs {
        command = command.subcommand(verb_command(verb, document)?);
    }
    Ok(command)
}

fn verb_command(verb: &Verb, document: &Document) -> anyhow::Result<Command> {
    let operation = document.operation(verb.operation)?;
    let command = arguments::add(Command::new(verb.name).visible_aliases(verb.aliases), verb, &operation);
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
    let command = if verb.operation == LIST_SESSIONS {
        let help = "Only the sessions of the pool of this name or id, on all pages";
        command.arg(Arg::new(POOL).long(POOL).value_name("NAME").help(help))
    } else {
        command
    };
    let command = if has_pages(&operation) {
        command.arg(Arg::new(ALL).long(ALL).action(ArgAction::SetTrue).help("All pages, not only one"))
    } else {
        command
    };
    // The description comes last, because arguments bring their own.
    let (short, long) = descriptions(&operation.summary);
    Ok(ServerOptions::augment_args(OutputOptions::augment_args(command)).about(short).long_about(long))
}

/// Returns the short and the long description of a command: the first sentence of an operation's, and all of it. Both
/// begin with an imperative, as those of other commands do.
fn descriptions(summary: &str) -> (String, String) {
    let (verb, rest) = summary.split_once(' ').unwrap_or((summary, ""));
    let verb = match verb {
        "Returns" => "Show",
        "Flushes" => "Flush",
        other => other.strip_suffix('s').unwrap_or(other),
    };
    let long = format!("{verb} {rest}");
    let first = long.split_once(". ").map_or(long.as_str(), |(first, _)| first);
    (first.trim_end_matches('.').to_owned(), long)
}

fn has_pages(operation: &Operation) -> bool {
    operation.response == Response::List && operation.query.iter().any(|field| field.name == "offset")
}

/// Runs a verb of a resource, for each resource that it names. Returns the exit code: 1 if some failed, which are said.
///
/// # Errors
/// If an argument is invalid, or the server refuses the only request.
pub(crate) async fn run(
    resource: &Resource,
    verb: &Verb,
    matches: &ArgMatches,
    document: &Document,
) -> anyhow::Result<u8> {
    let operation = document.operation(verb.operation)?;
    let client = ServerOptions::from_arg_matches(matches)?.client()?;
    let format = OutputOptions::from_arg_matches(matches)?.format;
    let mut requests = arguments::requests(matches, &operation)?;
    let finder = names::Finder::of(resource, document, &operation)?;
    let is_only = requests.len() == 1;
    let (mut results, mut failures) = (Vec::new(), 0);
    for request in &mut requests {
        let given = operation.first_parameter().and_then(|at| request.path.get(at)).cloned().unwrap_or_default();
        let command = async {
            finder.put_id(&client, &mut request.path).await?;
            let pool = matches.try_get_one::<String>(POOL).ok().flatten().map(String::as_str);
            let command = Running {
                client: &client,
                operation: &operation,
                request,
                format,
                resource,
                verb,
                given: &given,
                pool,
            };
            command.run(matches).await
        };
        match command.await {
            Ok(result) => results.extend(result),
            Err(error) if is_only || error.is::<ClosedOutput>() => return Err(error),
            Err(error) => {
                failures += 1;
                progress::say(&format!("casement: {given}: {error:#}"));
            }
        }
    }
    if !results.is_empty() {
        let all = if is_only { results.remove(0) } else { Value::Array(results) };
        output::print(&output::formatted(&all, format, &[])?)?;
    }
    Ok(u8::from(failures > 0))
}

/// A command with its request.
struct Running<'a> {
    client: &'a Client,
    operation: &'a Operation,
    request: &'a Request,
    format: Format,
    resource: &'a Resource,
    verb: &'a Verb,
    /// The resource as the user named it.
    given: &'a str,
    /// The name or the id of the pool whose sessions are listed.
    pool: Option<&'a str>,
}

impl Running<'_> {
    /// Runs the command. Returns the result of an operation without one, if records are printed as JSON or YAML.
    async fn run(&self, matches: &ArgMatches) -> anyhow::Result<Option<Value>> {
        match self.operation.response {
            Response::None => return self.change().await,
            Response::Stream => self.follow().await?,
            Response::File => self.download(matches.get_one::<PathBuf>(FILE).map(PathBuf::as_path)).await?,
            Response::List | Response::Record => match matches.try_get_one::<u64>(WATCH).ok().flatten() {
                Some(seconds) => self.watch(Duration::from_secs(*seconds)).await?,
                None => {
                    let is_all = matches.try_get_one::<bool>(ALL).ok().flatten().copied().unwrap_or_default();
                    self.print(is_all).await?;
                }
            },
        }
        Ok(None)
    }

    /// Sends a request without a result, and says what was done.
    async fn change(&self) -> anyhow::Result<Option<Value>> {
        self.value().await?;
        let done = done(self.verb.name);
        if !self.format.is_table() {
            return Ok(Some(json!({ self.resource.singular(): self.given, "result": done })));
        }
        let words = [self.resource.singular(), self.given, done];
        let line = words.into_iter().filter(|word| !word.is_empty()).map(without_controls).collect::<Vec<_>>();
        output::print(&line.join(" "))?;
        Ok(None)
    }

    fn columns(&self) -> &[Column] {
        self.verb.listed.map_or(self.resource.columns, |(_, columns)| columns)
    }

    /// Says that a list is empty, and which filters it had.
    async fn say_empty(&self) {
        let what = self.verb.listed.map_or(self.resource.name, |(what, _)| what);
        let given =
            self.request.query.iter().filter(|(name, _)| !["limit", "offset", "order"].contains(&name.as_str()));
        let given =
            given.map(|(name, value)| (name.as_str(), value.as_str())).chain(self.pool.map(|pool| (POOL, pool)));
        let filters = given.map(|(name, value)| format!("--{} {value}", name.replace('_', "-"))).collect::<Vec<_>>();
        let with = if filters.is_empty() { String::new() } else { format!(" with {}", filters.join(" ")) };
        let why = if self.verb.operation == "list_telemetry_events" {
            sessions::why_silent(self.client, &self.request.path).await
        } else {
            None
        };
        progress::say(&format!("no {what}{with}{}", why.map_or_else(String::new, |why| format!(": {why}"))));
    }

    fn call(&self) -> anyhow::Result<Call<'_>> {
        let body = match (&self.operation.body, &self.request.body) {
            (Body::Form(fields), Some(values)) => Some(Form::of(fields, values)?.into_body()),
            (_, Some(values)) => Some(("application/json".to_owned(), whole(serde_json::to_string(values)?))),
            (_, None) => None,
        };
        Ok(Call {
            method: self.operation.method.clone(),
            path: self.request.path.iter().map(String::as_str).collect(),
            query: self.query(),
            body,
        })
    }

    /// Returns the parameters. One session is shown after its end too, because then people ask for it.
    fn query(&self) -> Vec<(&str, &str)> {
        const ENDED_TOO: &str = "include_deleted";
        let given = self.request.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut query: Vec<_> = given.collect();
        // Less is read; the search does not find the id of a pool.
        if let Some(pool) = self.pool.filter(|pool| ulid::Ulid::from_string(pool).is_err())
            && !query.iter().any(|(name, _)| *name == "query")
        {
            query.push(("query", pool));
        }
        if self.verb.operation == "get_browser" && !query.iter().any(|(name, _)| *name == ENDED_TOO) {
            query.push((ENDED_TOO, "true"));
        }
        query
    }

    async fn value(&self) -> anyhow::Result<(Value, HeaderMap)> {
        self.client.value(self.call()?).await
    }

    /// Returns the records, and the offset of the next page if there are more.
    async fn records(&self, is_all: bool) -> anyhow::Result<(Value, Option<String>)> {
        // A page may have no session of the pool, and the next one may have some.
        let is_all = is_all || self.pool.is_some();
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
        if let (Some(pool), Some(records)) = (self.pool, value.as_array_mut()) {
            records.retain(|record| ["name", "id"].iter().any(|field| record["pool"][field] == pool));
        }
        Ok((value, next))
    }

    async fn print(&self, is_all: bool) -> anyhow::Result<()> {
        let (value, next) = self.records(is_all).await?;
        if value.is_null() {
            progress::say("nothing");
        }
        if value.as_array().is_some_and(Vec::is_empty) {
            self.say_empty().await;
        }
        output::print(&output::formatted(&value, self.format, self.columns())?)?;
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
            let (value, _) = self.records(false).await?;
            let stable = without_clocks(value.clone());
            if last.as_ref() != Some(&stable) {
                let text = output::formatted(&value, self.format, self.columns())?;
                // Clears the terminal, and moves to its first line.
                output::print(&format!("{}{text}", if clears { "\u{1b}[2J\u{1b}[H" } else { "" }))?;
                last = Some(stable);
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
                Format::Json | Format::Table | Format::Wide => crate::text::json_without_controls(&event.to_string()),
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
            let frame = frame.context("the download was interrupted")?;
            output::write_out(frame.data_ref().map_or(&[][..], |data| data))?;
        }
        return Ok(());
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut incomplete = tempfile::Builder::new()
        .prefix(".casement-")
        .tempfile_in(folder)
        .with_context(|| format!("cannot write to {}", folder.display()))?;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the download was interrupted")?;
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

/// Returns what a verb without a result has done.
fn done(verb: &str) -> &'static str {
    match verb {
        "delete" => "deleted",
        "revoke" => "revoked",
        "release" => "released",
        "flush" => "flushed",
        "stop" => "stopped",
        "stop-replay" => "recording stopped",
        "delete-browsers" => "browsers deleted",
        _ => "done",
    }
}

/// Removes the fields that change with every second.
fn without_clocks(mut value: Value) -> Value {
    let records = match &mut value {
        Value::Array(records) => records.iter_mut().collect(),
        record => vec![record],
    };
    for fields in records.into_iter().filter_map(Value::as_object_mut) {
        for name in ["usage", "heartbeat_at"] {
            fields.remove(name);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn every_verb_without_a_result_says_what_it_has_done() {
        let document = Document::parse(include_str!("../../../docs/openapi.json")).expect("JSON");
        for verb in RESOURCES.iter().flat_map(|resource| resource.verbs) {
            let operation = document.operation(verb.operation).expect("an operation");
            if operation.response == Response::None {
                assert_ne!(done(verb.name), "done", "{}", verb.name);
            }
        }
    }

    #[test]
    fn a_description_is_an_imperative_and_its_short_form_one_sentence() {
        let (short, long) = descriptions("Ends a session. Responds when nothing of its browser is left.");
        assert_eq!(short, "End a session");
        assert_eq!(long, "End a session. Responds when nothing of its browser is left.");
        assert_eq!(descriptions("Returns a session.").0, "Show a session");
    }

    #[test]
    fn a_watch_prints_nothing_again_because_time_passes() {
        let of = |uptime: u64| json!([{ "name": "a", "usage": { "uptime_ms": uptime }, "heartbeat_at": uptime }]);
        assert_eq!(without_clocks(of(1)), without_clocks(of(2)));
        assert_ne!(without_clocks(json!({ "name": "a" })), without_clocks(json!({ "name": "b" })));
    }
}
