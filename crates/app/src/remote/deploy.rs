//! `casement deploy`: deploys a folder.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;

use super::{Remote, logs, print_line, progress, text, without_controls};

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
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable, action = clap::ArgAction::Append)]
    env: Vec<(String, String)>,
    #[command(flatten)]
    remote: Remote,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) async fn run(command: DeployCommand) -> anyhow::Result<()> {
    let (folder, entrypoint) = find_entrypoint(&command.path, command.entrypoint)?;
    let packing = folder.clone();
    let archive = tokio::task::spawn_blocking(move || casement_archive::package::pack(&packing)).await?;
    let archive = archive.with_context(|| format!("{} cannot be packed", folder.display()))?;
    progress(&format!("deploying {} with {entrypoint}: {} KiB", folder.display(), archive.len().div_ceil(1024)));
    let api = command.remote.api()?;
    let boundary = boundary(&archive);
    let mut fields = vec![
        ("entrypoint_rel_path".to_owned(), entrypoint),
        ("version".to_owned(), command.version),
        ("force".to_owned(), command.force.to_string()),
    ];
    fields.extend(command.env.into_iter().map(|(name, value)| (format!("env_vars[{name}]"), value)));
    let body = multipart(&boundary, &fields, &archive);
    let made = api.post(&["deployments"], &format!("multipart/form-data; boundary={boundary}"), body).await?;
    let id = text(&made, "id");
    progress(&format!("deployment {id}"));
    let mut events = super::sse::Events::new(api.stream(&["deployments", id, "events"]).await?);
    while let Some(event) = events.next().await? {
        logs::show(&event);
        match (text(&event, "event"), text(&event["deployment"], "status")) {
            ("deployment_state", "running") => {
                apps(&api, id).await?;
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

/// Prints how the deployed apps are invoked.
async fn apps(api: &super::api::Api, id: &str) -> anyhow::Result<()> {
    let apps = api.find(&["apps"], &[("limit", "100")]).await?.unwrap_or_default();
    for app in apps.as_array().into_iter().flatten().filter(|app| text(app, "deployment") == id) {
        for action in app["actions"].as_array().into_iter().flatten() {
            let version = text(app, "version");
            let version = if version == "latest" { String::new() } else { format!(" --version {version}") };
            progress(&format!("casement invoke {} {}{version}", text(app, "app_name"), text(action, "name")));
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

/// Returns a boundary that does not occur in the archive.
fn boundary(archive: &[u8]) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(archive);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn multipart(boundary: &str, fields: &[(String, String)], archive: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(archive.len() + 1024);
    let mut part = |name: &str, about: &str, content: &[u8]| {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{about}\r\n\r\n");
        // Writing to memory cannot fail.
        body.write_all(head.as_bytes())
            .and_then(|()| body.write_all(content))
            .and_then(|()| body.write_all(b"\r\n"))
            .ok();
    };
    for (name, value) in fields {
        part(&name.replace(['"', '\r', '\n'], "_"), "", value.as_bytes());
    }
    part("file", "; filename=\"package.zip\"\r\nContent-Type: application/zip", archive);
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}
