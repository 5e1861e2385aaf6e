//! `casement deploy`: deploys a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use http::Method;
use serde_json::Value;

use crate::arguments::name_and_value;
use crate::client::{Call, Client};
use crate::form::Form;
use crate::logs;
use crate::print_line;
use crate::progress::{Transfer, say};
use crate::server_options::ServerOptions;
use crate::sse::Events;
use crate::text::{text, without_controls};

/// The entrypoints that are tried in this order if none is named.
const ENTRYPOINTS: &[&str] = &[
    "main.py",
    "app.py",
    "index.ts",
    "main.ts",
    "app.ts",
    "src/index.ts",
    "src/main.ts",
    "index.mjs",
    "index.js",
    "main.js",
    "app.js",
];

#[derive(Debug, Args)]
pub(crate) struct DeployCommand {
    /// The folder of the source code, or its entrypoint
    path: PathBuf,
    /// The file that registers the apps, relative to the folder
    #[arg(long, value_name = "FILE")]
    entrypoint: Option<String>,
    /// The version of the apps
    #[arg(long, value_name = "VERSION", default_value = "latest")]
    version: String,
    /// Replace apps of the same name and version
    #[arg(long)]
    force: bool,
    /// An environment variable of the apps; may be given several times
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = name_and_value, action = clap::ArgAction::Append)]
    env: Vec<(String, String)>,
    #[command(flatten)]
    server: ServerOptions,
}

pub(crate) async fn run(command: DeployCommand) -> anyhow::Result<()> {
    let (folder, entrypoint) = find_entrypoint(&command.path, command.entrypoint)?;
    let packing = folder.clone();
    let archive = tokio::task::spawn_blocking(move || casement_archive::package::pack(&packing)).await?;
    let archive = archive.with_context(|| format!("{} cannot be packed", folder.display()))?;
    say(&format!("deploying {} with {entrypoint}: {} KiB", folder.display(), archive.len().div_ceil(1024)));
    let client = command.server.client()?;
    if !command.force {
        refuse_existing(&client, &folder.join(&entrypoint), &command.version).await?;
    }
    let mut form = Form::default();
    form.field("entrypoint_rel_path", &entrypoint);
    form.field("version", &command.version);
    form.field("force", &command.force.to_string());
    for (name, value) in &command.env {
        form.field(&format!("env_vars[{name}]"), value);
    }
    form.archive("file", archive);
    let mut call = Call::new(Method::POST, ["deployments"]);
    call.body = Some(form.into_body());
    let uploading = Transfer::waiting("uploading");
    let (made, _) = client.value(call).await?;
    drop(uploading);
    let id = text(&made, "id");
    say(&format!("deployment {id}"));
    let (_, body) = client.send(Call::new(Method::GET, ["deployments", id, "events"])).await?;
    let mut events = Events::new(body);
    while let Some(event) = events.next().await? {
        logs::show(&event);
        match (text(&event, "event"), text(&event["deployment"], "status")) {
            ("deployment_state", "running") => {
                apps(&client, id).await?;
                return print_line(id);
            }
            ("deployment_state", status @ ("failed" | "stopped")) => {
                bail!("the deployment {status}: {}", without_controls(text(&event["deployment"], "status_reason")))
            }
            _ => {}
        }
    }
    bail!("the server did not report how it ended: casement logs {id}")
}

/// Refuses a version that exists before anything is uploaded. The server learns the names of the apps from the build;
/// those that the entrypoint states as text are known before.
async fn refuse_existing(client: &Client, entrypoint: &Path, version: &str) -> anyhow::Result<()> {
    let source = fs::read_to_string(entrypoint).unwrap_or_default();
    for app in app_names(&source) {
        let found = client.find(&["apps"], &[("app_name", &app), ("version", version)]).await?.unwrap_or_default();
        if found.get(0).is_some() {
            bail!("the app {app} has a version {version} already: --force replaces it, --version names another one");
        }
    }
    Ok(())
}

/// Returns the names of the apps that a source file registers with a literal, as `App("name")` or `.app('name'`.
fn app_names(source: &str) -> Vec<String> {
    let calls = source.match_indices("App(").chain(source.match_indices(".app("));
    let name = |(at, call): (usize, &str)| {
        let rest = source[at + call.len()..].trim_start();
        let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
        let name = rest[1..].split_once(quote)?.0;
        (!name.contains('\n') && !name.contains("${")).then(|| name.to_owned())
    };
    calls.filter_map(name).collect()
}

/// Prints how the deployed apps are invoked.
async fn apps(client: &Client, id: &str) -> anyhow::Result<()> {
    let apps = client.find(&["apps"], &[("limit", "100")]).await?.unwrap_or_default();
    for app in apps.as_array().into_iter().flatten().filter(|app| text(app, "deployment") == id) {
        for action in app["actions"].as_array().into_iter().flatten() {
            let version = text(app, "version");
            let version = if version == "latest" { String::new() } else { format!(" --version {version}") };
            say(&format!("casement invoke {} {}{version}", text(app, "app_name"), text(action, "name")));
        }
    }
    Ok(())
}

/// Returns the folder to pack and the entrypoint in it.
fn find_entrypoint(path: &Path, entrypoint: Option<String>) -> anyhow::Result<(PathBuf, String)> {
    let about = fs::metadata(path).with_context(|| format!("{} cannot be read", path.display()))?;
    if about.is_file() {
        let name = path.file_name().and_then(|name| name.to_str()).context("the entrypoint has no name")?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Ok((folder.to_owned(), entrypoint.unwrap_or_else(|| name.to_owned())));
    }
    let named = entrypoint.or_else(|| {
        let package = fs::read(path.join("package.json")).ok()?;
        let main = serde_json::from_slice::<Value>(&package).ok()?["main"].as_str()?.to_owned();
        path.join(&main).is_file().then_some(main)
    });
    let guessed = || ENTRYPOINTS.iter().find(|name| path.join(name).is_file()).map(|name| (*name).to_owned());
    let entrypoint = named.or_else(guessed);
    let missing = || {
        format!("name the file that registers the apps with --entrypoint: there is none of {}", ENTRYPOINTS.join(", "))
    };
    let entrypoint = entrypoint.with_context(missing)?;
    if !path.join(&entrypoint).is_file() {
        bail!("there is no file {entrypoint} in {}", path.display());
    }
    Ok((path.to_owned(), entrypoint))
}

#[cfg(test)]
mod tests {
    use super::app_names;

    #[test]
    fn the_names_of_apps_are_read_from_the_source() {
        assert_eq!(app_names("app = kernel.App(\"one\")\nother = App( 'two' )"), ["one", "two"]);
        assert_eq!(app_names("const app = kernel.app(`three`)"), ["three"]);
        assert!(app_names("App(name)\nkernel.app(`${name}`)\nApp(\"unfinished").is_empty());
    }
}
