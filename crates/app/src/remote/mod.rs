//! The commands for developers of apps: clients of the public API of any server.

mod api;
mod deploy;
mod invoke;
mod logs;
mod sse;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

pub(crate) use deploy::DeployCommand;
pub(crate) use invoke::InvokeCommand;
pub(crate) use logs::LogsCommand;

use api::Api;

/// The server and the API key.
#[derive(Debug, Args)]
pub(crate) struct Remote {
    /// The URL of the server
    #[arg(long, value_name = "URL", env = "KERNEL_BASE_URL", default_value = "http://127.0.0.1:8080")]
    base_url: Url,
    /// An API key [default: the content of the file of --api-key-file]
    #[arg(long, value_name = "KEY", env = "KERNEL_API_KEY", hide_env_values = true)]
    api_key: Option<SecretString>,
    /// The file with the API key that is used if none is given
    #[arg(long, value_name = "FILE", env = "CASEMENT_API_KEY_FILE", default_value = "/var/lib/casement/api-key")]
    api_key_file: PathBuf,
}

impl Remote {
    fn api(self) -> anyhow::Result<Api> {
        let key = match self.api_key {
            Some(key) => key,
            None => {
                let missing =
                    || format!("give a key with KERNEL_API_KEY: {} cannot be read", self.api_key_file.display());
                std::fs::read_to_string(&self.api_key_file).with_context(missing)?.trim().to_owned().into()
            }
        };
        Api::new(self.base_url, key)
    }
}

/// Runs `casement deploy`.
pub(crate) async fn deploy(command: DeployCommand) -> anyhow::Result<()> {
    deploy::run(command).await
}

/// Runs `casement invoke`.
pub(crate) async fn invoke(command: InvokeCommand) -> anyhow::Result<()> {
    invoke::run(command).await
}

/// Runs `casement logs`.
pub(crate) async fn logs(command: LogsCommand) -> anyhow::Result<()> {
    logs::run(command).await
}

/// Writes progress to standard error: standard output holds only the result of a command.
fn progress(text: &str) {
    // A failed write is ignored.
    writeln!(std::io::stderr(), "{}", without_controls(text)).ok();
}

/// Prints the result of a command.
fn print_line(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// Removes control characters, so that output of an app cannot control the terminal.
fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Removes control characters from JSON: escapes them in strings, and replaces carriage returns with blanks.
fn json_without_controls(json: &str) -> String {
    json.chars()
        .map(|c| match c {
            '\r' => " ".to_owned(),
            c if c.is_control() && c != '\n' && c != '\t' => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect()
}

/// Returns a member of an object as text; empty if it is missing.
fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{json_without_controls, without_controls};

    #[test]
    fn printed_text_has_no_control_characters() {
        assert_eq!(without_controls("a\u{1b}[2Jb\u{9b}2Jc\td"), "a\u{fffd}[2Jb\u{fffd}2Jc\td");
        let sent = "{\"a\":\r\n \"\u{9b}2J \u{7f} \\u001b ä\"}";
        let printed = json_without_controls(sent);
        assert_eq!(printed, "{\"a\": \n \"\\u009b2J \\u007f \\u001b ä\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(&printed), value(sent));
    }
}
