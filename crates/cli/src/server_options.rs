//! The flags that name a server and the credential for it.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use secrecy::SecretString;
use url::{Host, Url};

use crate::client::Client;
use crate::contexts;
use crate::tls::Trust;

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The server and the API key.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerOptions {
    /// The URL of the server [default: $KERNEL_BASE_URL, the current context, or http://127.0.0.1:8080]
    #[arg(long, visible_alias = "base-url", value_name = "URL", env = "CASEMENT_URL", value_parser = server_url)]
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
    /// A file with certificates in PEM that are trusted besides those of the system
    #[arg(long, value_name = "FILE", env = "CASEMENT_CA")]
    ca: Option<PathBuf>,
    /// Accept any certificate. Whoever is on the way can read the API key
    #[arg(long)]
    insecure: bool,
}

/// Reads the URL of a server.
pub(crate) fn server_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| "must be as http://HOST:PORT or https://HOST".to_owned())
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
            (None, None, Some(url)) => {
                Some(server_url(&url).map_err(|wrong| anyhow::anyhow!("the variable KERNEL_BASE_URL {wrong}"))?)
            }
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
        Client::new(url, key, &Trust { ca: self.ca.clone(), is_insecure: self.insecure })
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

/// The options of a server and of output, which may also stand before the command. Those of the second list have no value.
const BEFORE: [&str; 10] = [
    "--url",
    "--base-url",
    "--key",
    "--api-key",
    "--key-file",
    "--api-key-file",
    "--context",
    "--ca",
    "--output",
    "-o",
];
const BEFORE_ALONE: [&str; 1] = ["--insecure"];

/// Returns the words of a command line with the options that stand before or between the words of the command behind them.
/// The first word is the program. `is_resource` tells whether a command has verbs, and `None` for other commands.
pub(crate) fn ordered(words: Vec<OsString>, is_resource: impl Fn(&str) -> Option<bool>) -> Vec<OsString> {
    let (mut moved, mut command, mut at) = (Vec::new(), Vec::new(), 1);
    let mut wanted = 1;
    while command.len() < wanted
        && let Some(word) = words.get(at)
    {
        let text = word.to_string_lossy();
        let is_option = |known: &[&str]| known.contains(&text.split('=').next().unwrap_or_default());
        if is_option(&BEFORE) || is_option(&BEFORE_ALONE) {
            let has_value_behind = is_option(&BEFORE) && !text.contains('=');
            let end = (at + 1 + usize::from(has_value_behind)).min(words.len());
            moved.extend_from_slice(&words[at..end]);
            at = end;
        } else if text.starts_with('-') {
            return words;
        } else {
            if command.is_empty() {
                match is_resource(&text) {
                    Some(is_resource) => wanted = 1 + usize::from(is_resource),
                    None => return words,
                }
            }
            command.push(word.clone());
            at += 1;
        }
    }
    if moved.is_empty() || command.len() < wanted {
        return words;
    }
    words[..1].iter().cloned().chain(command).chain(moved).chain(words[at..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_the_command_count_as_if_they_stood_behind_it() {
        let of = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let is_resource = |name: &str| ["sessions", "invoke"].contains(&name).then_some(name == "sessions");
            let ordered = ordered(words, is_resource);
            ordered.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("c --key k sessions list"), "c sessions list --key k");
        assert_eq!(of("c sessions -o json --url=u exec s ls -o"), "c sessions exec -o json --url=u s ls -o");
        assert_eq!(of("c --insecure invoke app --key k"), "c invoke --insecure app --key k");
        for unchanged in ["c sessions exec s ls --key k", "c --key k serve", "c --help", "c --key", "c sessions --help"]
        {
            assert_eq!(of(unchanged), unchanged);
        }
    }

    #[test]
    fn a_url_without_a_scheme_is_refused_with_an_example() {
        for wrong in ["127.0.0.1:8080", "localhost", "ftp://host", "http://"] {
            assert!(server_url(wrong).is_err_and(|message| message.contains("http://HOST:PORT")), "{wrong}");
        }
        assert!(server_url("http://127.0.0.1:8080").is_ok());
    }
}
