//! The flags that name a server and the credential for it.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use secrecy::SecretString;
use url::{Host, Url};

use crate::client::Client;
use crate::contexts;

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The server and the API key.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerOptions {
    /// The URL of the server [default: $KERNEL_BASE_URL, the current context, or http://127.0.0.1:8080]
    #[arg(long, visible_alias = "base-url", value_name = "URL", env = "CASEMENT_URL")]
    url: Option<Url>,
    /// An API key [default: $KERNEL_API_KEY, the context's, or the one of the server on this machine]
    #[arg(long, visible_alias = "api-key", value_name = "KEY", env = "CASEMENT_KEY", hide_env_values = true)]
    key: Option<SecretString>,
    /// A file with the API key
    #[arg(long, visible_alias = "api-key-file", value_name = "FILE", env = "CASEMENT_API_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// A saved context, instead of the current one
    #[arg(long, value_name = "NAME", env = "CASEMENT_CONTEXT")]
    context: Option<String>,
}

impl ServerOptions {
    /// Returns a client of the server.
    ///
    /// # Errors
    /// If there is no key for the server. The message says how to give one.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let given = match (&self.url, &self.context, variable("KERNEL_BASE_URL")) {
            (Some(url), _, _) => Some(url.clone()),
            (None, None, Some(url)) => Some(url.parse().context("KERNEL_BASE_URL is not a URL")?),
            (None, _, _) => None,
        };
        // A broken file of contexts must not stop a command that needs none.
        let needs_context =
            self.context.is_some() || given.is_none() || (self.key.is_none() && self.key_file.is_none());
        let context = if needs_context { contexts::find(self.context.as_deref())? } else { None };
        let url = match (&given, &context) {
            (Some(url), _) => url.clone(),
            (None, Some(context)) => context.url.clone(),
            (None, None) => DEFAULT_URL.parse()?,
        };
        // A key is sent only to the server for which it was saved.
        let of_context = context.filter(|context| context.url.origin() == url.origin()).map(|context| context.key);
        let key = match (&self.key, &self.key_file) {
            (Some(key), _) => key.clone(),
            (None, Some(file)) => read_key(file)?,
            (None, None) => match (self.context.is_none().then(|| variable("KERNEL_API_KEY")).flatten(), of_context) {
                (Some(key), _) => key.into(),
                (None, Some(key)) => key,
                (None, None) => local_key(&url)?,
            },
        };
        Client::new(url, key)
    }
}

fn read_key(file: &PathBuf) -> anyhow::Result<SecretString> {
    let key =
        std::fs::read_to_string(file).with_context(|| format!("the key file {} cannot be read", file.display()))?;
    Ok(key.trim().to_owned().into())
}

/// Returns the key that the server of this machine wrote at its first start.
fn local_key(url: &Url) -> anyhow::Result<SecretString> {
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    let ways = "give --key or --key-file, set CASEMENT_KEY, or save the server with `casement context add`";
    if !is_local {
        bail!("there is no API key for {url}: {ways}");
    }
    let files = default_key_files();
    for file in &files {
        if let Ok(key) = std::fs::read_to_string(file) {
            return Ok(key.trim().to_owned().into());
        }
    }
    let looked = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" or ");
    bail!(
        "there is no API key for {url}: {ways}. `casement serve` writes one to {looked}, which cannot be read; \
         `casement keys create --data-dir DIR --name NAME` makes one on the server's machine"
    )
}

/// Returns the files to which `casement serve` writes its first key by default.
fn default_key_files() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_user = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
    let of_user = of_user.filter(|_| !rustix::process::geteuid().is_root());
    of_user
        .into_iter()
        .map(|folder| folder.join("casement"))
        .chain([PathBuf::from("/var/lib/casement")])
        .map(|folder| folder.join("api-key"))
        .collect()
}
