//! The commands that drive a server anywhere over its API.
//!
//! Most commands are made from the OpenAPI document of the API: a verb of a resource is an operation, its flags are the
//! parameters and the fields of the body. [`resources`] names them. The other commands combine several operations:
//! `deploy`, `invoke`, `logs`, and some below `sessions`.

mod arguments;
mod client;
mod contexts;
mod deploy;
mod document;
mod form;
mod generated;
mod invoke;
mod logs;
mod names;
mod output;
mod progress;
mod resources;
mod server_options;
mod sessions;
mod sse;
mod table;
mod terminal;
mod text;
mod tls;

use std::ffi::OsString;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};

pub use self::arguments::read;
use self::contexts::ContextCommand;
use self::deploy::DeployCommand;
use self::document::Document;
use self::invoke::InvokeCommand;
use self::logs::LogsCommand;
use self::output::print as print_line;
pub use self::output::{ClosedOutput, write_out};
use self::resources::{RESOURCES, Resource};

const CONTEXT: &str = "context";
const DEPLOY: &str = "deploy";
const INVOKE: &str = "invoke";
const LOGS: &str = "logs";

/// Returns true if this library runs the command of this name.
pub fn has(command: &str) -> bool {
    [CONTEXT, DEPLOY, INVOKE, LOGS].contains(&command) || resource(command).is_some()
}

/// Returns the resource of this name, or of this other word for it.
fn resource(name: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.name == name || resource.aliases.contains(&name))
}

/// Returns the words of a command line, with the options for the server behind the command of this library. The first word is
/// the program.
pub fn ordered(words: Vec<OsString>) -> Vec<OsString> {
    server_options::ordered(words, |name| has(name).then(|| resource(name).is_some()))
}

/// Adds the commands to the program's. Only the one named `only` has its arguments, or each one for `None`: making all
/// of them takes longer than many commands run. `document` is the OpenAPI document of the API.
///
/// # Errors
/// If the document lacks an operation.
pub fn add_to(mut program: Command, only: Option<&str>, document: &str) -> anyhow::Result<Command> {
    let only = only.map(|only| resource(only).map_or(only, |resource| resource.name));
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    let is_any_wanted = RESOURCES.iter().any(|resource| is_wanted(resource.name));
    let document = if is_any_wanted { Some(Document::parse(document)?) } else { None };
    for resource in RESOURCES {
        let made = match &document {
            Some(document) if is_wanted(resource.name) => {
                let command = generated::command(resource, document)?;
                if resource.name == sessions::NAME { sessions::add_to(command) } else { command }
            }
            _ => Command::new(resource.name).visible_aliases(resource.aliases).about(resource.about),
        };
        program = program.subcommand(made);
    }
    Ok(program
        .subcommand(DeployCommand::augment_args(Command::new(DEPLOY)).about("Deploy an app, and show its build"))
        .subcommand(
            InvokeCommand::augment_args(Command::new(INVOKE)).about("Run an action of an app, and print its result"),
        )
        .subcommand(
            LogsCommand::augment_args(Command::new(LOGS)).about("Show the log of a build or an invocation, to its end"),
        )
        .subcommand(
            ContextCommand::augment_args(Command::new(CONTEXT))
                .about("Save servers with their API keys, and choose one of them"),
        ))
}

/// Runs a command of this library. Returns the exit code.
///
/// # Errors
/// If an argument is invalid, the server cannot be reached, or it refuses a request. The message says what to do.
pub async fn run(name: &str, matches: &ArgMatches, document: &str) -> anyhow::Result<u8> {
    match name {
        CONTEXT => contexts::run(ContextCommand::from_arg_matches(matches)?).map(|()| 0),
        DEPLOY => deploy::run(DeployCommand::from_arg_matches(matches)?).await.map(|()| 0),
        INVOKE => invoke::run(InvokeCommand::from_arg_matches(matches)?).await.map(|()| 0),
        LOGS => logs::run(LogsCommand::from_arg_matches(matches)?).await.map(|()| 0),
        _ => run_verb(name, matches, document).await,
    }
}

async fn run_verb(name: &str, matches: &ArgMatches, document: &str) -> anyhow::Result<u8> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(0) };
    if name == sessions::NAME
        && let Some(code) = sessions::run(verb, matches).await?
    {
        return Ok(code);
    }
    let found =
        resource(name).and_then(|resource| Some((resource, resource.verbs.iter().find(|one| one.name == verb)?)));
    let (resource, verb) = found.ok_or_else(|| anyhow::anyhow!("there is no command {name} {verb}"))?;
    generated::run(resource, verb, matches, &Document::parse(document)?).await
}

#[cfg(test)]
mod tests {
    use super::add_to;

    const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

    #[test]
    fn every_verb_is_a_valid_command_of_an_operation() {
        let program = add_to(clap::Command::new("casement"), None, DOCUMENT).expect("every operation exists");
        program.debug_assert();
    }

    #[test]
    fn every_command_has_a_description_of_its_own() {
        let program = add_to(clap::Command::new("casement"), None, DOCUMENT).expect("every operation exists");
        for resource in program.get_subcommands() {
            let mut known = std::collections::BTreeSet::new();
            for verb in resource.get_subcommands() {
                let about = verb.get_about().unwrap_or_default().to_string();
                assert!(
                    !about.is_empty() && known.insert(about.clone()),
                    "{} {}: {about}",
                    resource.get_name(),
                    verb.get_name()
                );
            }
        }
    }

    #[test]
    fn only_the_wanted_command_is_made_from_the_document() {
        let program = add_to(clap::Command::new("casement"), Some("serve"), "not read");
        assert!(program.expect("no error").find_subcommand("pools").is_some(), "the help names it");
    }
}
