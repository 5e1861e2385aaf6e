//! The commands of CDP and WebDriver BiDi that name files, and the responses that refuse them.

use casement_domain::fs::DOWNLOADS;
use serde_json::{Value, json};

use super::{FilesLocation, download_events};
use crate::relay::Channel;

const SET_FILES_OF_CDP: &str = "DOM.setFileInputFiles";
const SET_FILES_OF_BIDI: &str = "input.setFiles";
const END_OF_BIDI: &str = "session.end";
const SET_DOWNLOADS: &str = "Browser.setDownloadBehavior";
const CANCEL_DOWNLOAD: &str = "Browser.cancelDownload";
/// The name of the directory in which Playwright expects downloads on its own machine begins like this.
const PLAYWRIGHT_DIRECTORY: &str = "playwright-artifacts-";
/// The code of a CDP error that Chromium's own handlers use.
const SERVER_ERROR: i32 = -32_000;
/// The maximum length of a path in an error, in characters.
const MAX_SHOWN: usize = 300;

/// Returns the words of which a message contains one if it may be a command that names files.
pub(super) fn words(channel: Channel) -> &'static [&'static str] {
    match channel {
        Channel::Cdp => &[SET_FILES_OF_CDP, SET_DOWNLOADS, CANCEL_DOWNLOAD],
        Channel::WebDriver => &[SET_FILES_OF_BIDI],
        Channel::Bidi => &[SET_FILES_OF_BIDI, END_OF_BIDI],
    }
}

/// A message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    /// Gives files to an input of a page.
    SetFiles(SetFiles),
    /// Playwright's command for downloads, with the session's directory in place of its own.
    PlaywrightDownloads(String),
    /// Cancels a download by its id of Chromium, in place of the marked one.
    CancelDownload(String),
    /// Ends the WebDriver session of a remote browser, with the answer.
    EndSession(String),
    /// Everything else, also a text that contains one of the words somewhere.
    Other,
}

/// A command that gives files to an input of a page.
#[derive(Debug, PartialEq)]
pub(super) struct SetFiles {
    channel: Channel,
    id: Value,
    /// The CDP session, if any.
    session: Option<Value>,
    pub(super) paths: Vec<String>,
}

impl Command {
    /// Parses a text message.
    pub(super) fn parse(channel: Channel, location: FilesLocation, text: &[u8]) -> Self {
        let Ok(message) = serde_json::from_slice::<Value>(text) else { return Self::Other };
        let found = match (channel, message["method"].as_str().unwrap_or_default()) {
            (Channel::Cdp, SET_FILES_OF_CDP) | (Channel::WebDriver | Channel::Bidi, SET_FILES_OF_BIDI) => {
                SetFiles::read(channel, &message).map(Self::SetFiles)
            }
            (Channel::Cdp, SET_DOWNLOADS) => with_downloads_of(message, location).map(Self::PlaywrightDownloads),
            (Channel::Bidi, END_OF_BIDI) => ended(&message).map(Self::EndSession),
            (Channel::Cdp, CANCEL_DOWNLOAD) => with_unmarked_download(message).map(Self::CancelDownload),
            _ => None,
        };
        found.unwrap_or(Self::Other)
    }
}

/// Returns the answer to the end of a session.
fn ended(message: &Value) -> Option<String> {
    let id = message.get("id").filter(|id| id.is_u64())?;
    Some(json!({ "type": "success", "id": id, "result": {} }).to_string())
}

/// Returns the command of a Playwright with the session's directory, or that of a remote browser. Playwright reads the
/// events of its root session only.
fn with_downloads_of(mut message: Value, location: FilesLocation) -> Option<String> {
    let is_root = message.get("sessionId").is_none();
    let params = message.get_mut("params").filter(|params| is_root && is_playwright(params))?.as_object_mut()?;
    match location {
        FilesLocation::Session => {
            params.insert("behavior".to_owned(), "allow".into());
            params.insert("downloadPath".to_owned(), DOWNLOADS.into());
        }
        FilesLocation::Remote => {
            params.insert("behavior".to_owned(), "default".into());
            params.remove("downloadPath");
        }
    }
    Some(message.to_string())
}

fn with_unmarked_download(mut message: Value) -> Option<String> {
    let guid = message.get_mut("params")?.get_mut("guid")?;
    *guid = download_events::unmarked(guid.as_str()?)?.into();
    Some(message.to_string())
}

/// Returns whether the parameters are those of a Playwright, which reads a download from its own disk by its id.
fn is_playwright(params: &Value) -> bool {
    let directory = params["downloadPath"].as_str().unwrap_or_default();
    let name = directory.rsplit(['/', '\\']).next().unwrap_or_default();
    params["behavior"] == "allowAndName" && name.starts_with(PLAYWRIGHT_DIRECTORY)
}

impl SetFiles {
    fn read(channel: Channel, message: &Value) -> Option<Self> {
        let files = message["params"]["files"].as_array()?;
        let paths = files.iter().map(|path| path.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        let id = message.get("id").filter(|id| id.is_i64() || id.is_u64())?.clone();
        let session = message.get("sessionId").filter(|_| channel == Channel::Cdp).cloned();
        Some(Self { channel, id, session, paths })
    }

    /// Returns the error response because `path` does not exist in the session, or was not uploaded to its
    /// remote browser.
    pub(super) fn refusal(&self, path: &str, location: FilesLocation) -> String {
        let shown: String = path.chars().take(MAX_SHOWN).collect();
        let message = match location {
            FilesLocation::Session => format!(
                "the file {shown} does not exist in the session: upload it with POST /browsers/{{id}}/fs/upload and \
                 pass its path there"
            ),
            FilesLocation::Remote => format!(
                "the file {shown} was not uploaded to the machine of the remote browser: upload it with WebDriver's POST \
                 /session/{{id}}/se/file and pass the path of the answer"
            ),
        };
        match self.channel {
            Channel::Cdp => {
                let mut error = json!({ "id": self.id, "error": { "code": SERVER_ERROR, "message": message } });
                if let Some(session) = &self.session {
                    error["sessionId"] = session.clone();
                }
                error.to_string()
            }
            Channel::WebDriver | Channel::Bidi => {
                let error = "unable to set file input";
                json!({ "type": "error", "id": self.id, "error": error, "message": message }).to_string()
            }
        }
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
