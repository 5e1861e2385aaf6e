//! Saved contexts: servers with their API keys, by name. The file belongs to its user alone, because it holds keys.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use casement_sealing::private_file;
use clap::{Args, Subcommand};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::arguments;
use crate::print_line;
use crate::progress::say;
use crate::server_options::server_url;

/// The longest file of contexts, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Manages the saved contexts.
#[derive(Debug, Args)]
pub(crate) struct ContextCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Save a server and its API key, and use them from now on
    Add {
        /// The name of the context
        name: String,
        /// The URL of the server
        #[arg(long, value_name = "URL", value_parser = server_url)]
        url: Url,
        /// The API key; @FILE reads it from a file, - from standard input
        #[arg(long, value_name = "KEY")]
        key: String,
    },
    /// Show the contexts; a star marks the current one
    List,
    /// Use a context from now on
    Use {
        /// The name of the context
        name: String,
    },
    /// Delete a context
    Remove {
        /// The name of the context
        name: String,
    },
}

/// A server and a key for it.
pub(crate) struct Context {
    pub(crate) url: Url,
    pub(crate) key: SecretString,
}

/// A context in the file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    url: String,
    key: String,
}

/// The content of the file.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Saved>,
}

impl Contexts {
    /// Reads the file; a missing one has no contexts.
    fn read() -> anyhow::Result<Self> {
        let Some(path) = path() else { return Ok(Self::default()) };
        let about = match fs::metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        ensure!(about.permissions().mode() & 0o077 == 0, "others may read {}: chmod 600 it", path.display());
        ensure!(about.len() <= MAX_FILE_BYTES, "{} is longer than 1 MiB", path.display());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The message of the parser would show the line, and so the key.
        toml::from_str(&text).map_err(|_| anyhow::anyhow!("{} is not a file of contexts", path.display()))
    }

    fn write(&self) -> anyhow::Result<()> {
        let path = path().context("neither XDG_CONFIG_HOME nor HOME is set")?;
        let folder = path.parent().context("the file has no folder")?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let text = toml::to_string(self).context("cannot write the contexts")?;
        private_file::replace(&path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
    }

    fn named(&self, name: &str) -> anyhow::Result<&Saved> {
        let known = || self.contexts.keys().cloned().collect::<Vec<_>>().join(", ");
        match self.contexts.get(name) {
            Some(context) => Ok(context),
            None if self.contexts.is_empty() => {
                bail!("no context is saved: casement context add {name} --url URL --key KEY")
            }
            None => bail!("there is no context {name}; there are {}", known()),
        }
    }
}

fn path() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("casement/contexts.toml"))
}

/// Returns the named context, or the current one, if there is one.
///
/// # Errors
/// If the file cannot be read, or the named context does not exist.
pub(crate) fn find(name: Option<&str>) -> anyhow::Result<Option<Context>> {
    let contexts = Contexts::read()?;
    let name = name.or(contexts.current.as_deref());
    let Some(name) = name else { return Ok(None) };
    let Saved { url, key } = contexts.named(name)?;
    let url = url.parse().with_context(|| format!("the URL of the context {name} is invalid"))?;
    Ok(Some(Context { url, key: key.clone().into() }))
}

/// Runs `casement context`.
pub(crate) fn run(command: ContextCommand) -> anyhow::Result<()> {
    let mut contexts = Contexts::read()?;
    match command.action {
        Action::Add { name, url, key } => {
            ensure!(!name.is_empty() && !name.contains(char::is_whitespace), "a name has no white space");
            ensure!(url.username().is_empty() && url.password().is_none(), "the URL has no user and no password");
            let key = arguments::read(&key, "--key")?.trim().to_owned();
            ensure!(!key.is_empty(), "the key is empty");
            contexts.contexts.insert(name.clone(), Saved { url: url.into(), key });
            contexts.current = Some(name);
            contexts.write()
        }
        Action::List => {
            if contexts.contexts.is_empty() {
                say("no contexts: casement context add NAME --url URL --key KEY");
            }
            for (name, context) in &contexts.contexts {
                let star = if contexts.current.as_ref() == Some(name) { "*" } else { " " };
                print_line(&format!("{star} {name}\t{}", context.url))?;
            }
            Ok(())
        }
        Action::Use { name } => {
            contexts.named(&name)?;
            contexts.current = Some(name);
            contexts.write()
        }
        Action::Remove { name } => {
            contexts.named(&name)?;
            contexts.contexts.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.write()
        }
    }
}
