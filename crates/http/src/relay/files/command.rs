//! The commands of CDP and WebDriver BiDi that name files, and the responses that refuse them.

use serde_json::{Value, json};

use super::directories::{
    self, CDP_IN_BIDI, NamedDirectory, SET_DOWNLOADS, SET_DOWNLOADS_OF_BIDI, SET_DOWNLOADS_OF_PAGE,
};
use super::{FilesLocation, download_events};
use crate::relay::Channel;

const SET_FILES_OF_CDP: &str = "DOM.setFileInputFiles";
const SET_FILES_OF_BIDI: &str = "input.setFiles";
const END_OF_BIDI: &str = "session.end";
const CANCEL_DOWNLOAD: &str = "Browser.cancelDownload";
/// The code of a CDP error that Chromium's own handlers use.
const SERVER_ERROR: i32 = -32_000;
/// The maximum length of a path in an error, in characters.
const MAX_SHOWN: usize = 300;

/// Returns the words of which a message contains one if it may be a command that names files.
pub(super) fn words(channel: Channel) -> &'static [&'static str] {
    match channel {
        Channel::Cdp => &[SET_FILES_OF_CDP, SET_DOWNLOADS, SET_DOWNLOADS_OF_PAGE, CANCEL_DOWNLOAD],
        Channel::WebDriver => &[SET_FILES_OF_BIDI, SET_DOWNLOADS_OF_BIDI, CDP_IN_BIDI],
        Channel::Bidi => &[SET_FILES_OF_BIDI, SET_DOWNLOADS_OF_BIDI, CDP_IN_BIDI, END_OF_BIDI],
    }
}

/// A message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    /// Gives files to an input of a page.
    SetFiles(SetFiles),
    /// Playwright's command for downloads, with the session's directory in place of its own.
    PlaywrightDownloads(String),
    /// Names a download directory.
    SetDirectory(NamedDirectory),
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
            (Channel::Cdp, SET_DOWNLOADS) if is_of_playwright(&message) => {
                with_downloads_of(message, location).map(Self::PlaywrightDownloads)
            }
            (Channel::Cdp, SET_DOWNLOADS | SET_DOWNLOADS_OF_PAGE) => {
                directories::of_cdp(message, location).map(Self::SetDirectory)
            }
            (Channel::WebDriver | Channel::Bidi, SET_DOWNLOADS_OF_BIDI | CDP_IN_BIDI) => {
                directories::of_bidi(message, location).map(Self::SetDirectory)
            }
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

/// Returns whether a command is that of a Playwright, which reads the events of its root session only.
fn is_of_playwright(message: &Value) -> bool {
    message.get("sessionId").is_none() && message.get("params").is_some_and(directories::is_playwright)
}

/// Returns the command of a Playwright with the session's directory, or that of a remote browser.
fn with_downloads_of(mut message: Value, location: FilesLocation) -> Option<String> {
    let params = message.get_mut("params")?.as_object_mut()?;
    // With their own names: Playwright cannot read the files of another machine by their ids.
    params.insert("behavior".to_owned(), "allow".into());
    directories::put_directory(params, location);
    Some(message.to_string())
}

fn with_unmarked_download(mut message: Value) -> Option<String> {
    let guid = message.get_mut("params")?.get_mut("guid")?;
    *guid = download_events::unmarked(guid.as_str()?)?.into();
    Some(message.to_string())
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
